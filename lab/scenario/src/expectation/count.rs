//! Expected counts: an exact number, a minimum or a range.

use std::borrow::Cow;
use std::fmt;
use std::ops::Range;
use std::str::FromStr;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{self, Deserialize, Deserializer, Visitor};

use crate::decode::spanned_error::SpannedError;

/// Expected number of occurrences, written in a lab as `4`, `"2..6"` (both ends included) or
/// `">=1"`.
///
/// Exact counts suit deterministic mechanisms (IPVS round robin). Ranges suit random mechanisms
/// (`statistic --mode random`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Count {
    min: u32,
    max: Option<u32>,
}

/// Error of parsing a [`Count`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CountError {
    /// The text has none of the three forms.
    #[error("`{0}` is not a count; write `4`, \"2..6\" (both included) or \">=1\"")]
    InvalidFormat(String),
    /// A number in the text is not an integer from 0 to 4294967295.
    #[error("`{0}` is not a whole number from 0 to {max}", max = u32::MAX)]
    InvalidNumber(String),
    /// The lower end of a range is above its upper end.
    #[error("the range {0}..{1} is empty; write the smaller number first")]
    EmptyRange(u32, u32),
}

impl Count {
    /// Returns the count of exactly `n`.
    #[must_use]
    pub const fn exactly(n: u32) -> Self {
        Self {
            min: n,
            max: Some(n),
        }
    }

    /// Returns the count of `n` or more.
    #[must_use]
    pub const fn at_least(n: u32) -> Self {
        Self { min: n, max: None }
    }

    /// Returns the range from `min` to `max`, both included.
    ///
    /// # Errors
    ///
    /// Returns [`CountError::EmptyRange`] if `min` is above `max`.
    pub const fn between(min: u32, max: u32) -> Result<Self, CountError> {
        if min > max {
            return Err(CountError::EmptyRange(min, max));
        }
        Ok(Self {
            min,
            max: Some(max),
        })
    }

    /// Returns the smallest accepted number.
    #[must_use]
    pub const fn min(self) -> u32 {
        self.min
    }

    /// Returns the largest accepted number, `None` without an upper bound.
    #[must_use]
    pub const fn max(self) -> Option<u32> {
        self.max
    }

    /// Whether `n` is accepted.
    #[must_use]
    pub fn contains(self, n: u32) -> bool {
        n >= self.min && self.max.is_none_or(|max| n <= max)
    }
}

impl fmt::Display for Count {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.max {
            Some(max) if max == self.min => write!(f, "{max}"),
            Some(max) => write!(f, "{}..{max}", self.min),
            None => write!(f, ">={}", self.min),
        }
    }
}

impl FromStr for Count {
    type Err = SpannedError<CountError>;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if let Some(rest) = text.strip_prefix(">=") {
            return Ok(Self::at_least(parse_number(
                text,
                text.len() - rest.len()..text.len(),
            )?));
        }
        if let Some(dots) = text.find("..") {
            let min = parse_number(text, 0..dots)?;
            let max = parse_number(text, dots + 2..text.len())?;
            return Self::between(min, max).map_err(SpannedError::whole);
        }
        if text.trim().starts_with(|c: char| c.is_ascii_digit()) {
            return Ok(Self::exactly(parse_number(text, 0..text.len())?));
        }
        Err(SpannedError::whole(CountError::InvalidFormat(
            text.to_owned(),
        )))
    }
}

/// Parses the number in `range` of `text`, with surrounding blanks.
fn parse_number(text: &str, range: Range<usize>) -> Result<u32, SpannedError<CountError>> {
    let part = &text[range.clone()];
    let word = part.trim();
    if word.is_empty() {
        return Err(SpannedError::whole(CountError::InvalidFormat(
            text.to_owned(),
        )));
    }
    // `parse` accepts a sign, which is not valid in a count.
    if !word.bytes().all(|b| b.is_ascii_digit()) {
        return Err(SpannedError::new(
            range,
            CountError::InvalidNumber(word.to_owned()),
        ));
    }
    word.parse()
        .map_err(|_| SpannedError::new(range, CountError::InvalidNumber(word.to_owned())))
}

impl<'de> Deserialize<'de> for Count {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct CountVisitor;

        impl Visitor<'_> for CountVisitor {
            type Value = Count;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a count: `4`, \"2..6\" or \">=1\"")
            }

            fn visit_u64<E: de::Error>(self, n: u64) -> Result<Count, E> {
                u32::try_from(n)
                    .map(Count::exactly)
                    .map_err(|_| E::custom(CountError::InvalidNumber(n.to_string())))
            }

            fn visit_i64<E: de::Error>(self, n: i64) -> Result<Count, E> {
                u32::try_from(n)
                    .map(Count::exactly)
                    .map_err(|_| E::custom(CountError::InvalidNumber(n.to_string())))
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Count, E> {
                text.parse().map_err(E::custom)
            }
        }

        deserializer.deserialize_any(CountVisitor)
    }
}

impl JsonSchema for Count {
    fn schema_name() -> Cow<'static, str> {
        "Count".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "Count: `4` (exactly), \"2..6\" (both included) or \">=1\" (at least).",
            "anyOf": [
                {"type": "integer", "minimum": 0, "maximum": u32::MAX},
                {"type": "string", "pattern": r"^(\s*[0-9]+\s*(\.\.\s*[0-9]+\s*)?|>=\s*[0-9]+\s*)$"},
            ],
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(text: &str) -> SpannedError<CountError> {
        text.parse::<Count>().expect_err("should not parse")
    }

    #[test]
    fn count_three_forms_parse() {
        assert_eq!("4".parse(), Ok(Count::exactly(4)));
        assert_eq!(">=1".parse(), Ok(Count::at_least(1)));
        assert_eq!(
            "2..6".parse(),
            Count::between(2, 6).map_err(SpannedError::whole)
        );
        assert_eq!(
            " 2 .. 6 ".parse::<Count>().map(|c| c.to_string()),
            Ok("2..6".to_owned())
        );
    }

    #[test]
    fn range_includes_both_ends() {
        let count: Count = "2..6".parse().expect("a range");
        assert_eq!(
            (0..9).filter(|n| count.contains(*n)).collect::<Vec<_>>(),
            [2, 3, 4, 5, 6]
        );
        assert!(Count::at_least(3).contains(u32::MAX));
        assert!(!Count::at_least(3).contains(2));
    }

    #[test]
    fn count_printed_parses_to_same_value() {
        for text in ["0", "4", "2..6", ">=1"] {
            assert_eq!(
                text.parse::<Count>().map(|c| c.to_string()),
                Ok(text.to_owned())
            );
        }
    }

    #[test]
    fn count_error_range_is_invalid_number() {
        assert_eq!(error("2..x6").range(), Some(3..5));
        assert_eq!(error(">=-1").range(), Some(2..4));
        assert_eq!(error("6..2").error(), &CountError::EmptyRange(6, 2));
        assert_eq!(
            error("2..").error(),
            &CountError::InvalidFormat("2..".to_owned())
        );
        assert_eq!(
            error("some").error(),
            &CountError::InvalidFormat("some".to_owned())
        );
        assert_eq!(error("").error(), &CountError::InvalidFormat(String::new()));
        assert_eq!(
            error("4294967296").error(),
            &CountError::InvalidNumber("4294967296".to_owned())
        );
    }
}
