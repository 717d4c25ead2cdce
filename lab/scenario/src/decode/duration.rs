//! Parses durations in a lab. The limits guarantee that arithmetic with a duration neither
//! overflows nor exceeds one day.

use std::time::Duration;

/// Shortest accepted duration: 1 ms.
pub const MIN_DURATION: Duration = Duration::from_millis(1);

/// Longest accepted duration: 1 h.
pub const MAX_DURATION: Duration = Duration::from_hours(1);

/// Error of parsing a duration.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DurationError {
    /// The text is not a duration.
    #[error("`{0}` is not a duration; write for example 3s or 500ms")]
    InvalidFormat(String),
    /// The duration is out of bounds.
    #[error("`{0}` is not between 1ms and 1h; write for example 3s or 500ms")]
    OutOfBounds(String),
}

/// Parses a duration such as `3s` or `1m 30s`, from 1 ms to 1 h.
///
/// # Errors
///
/// Returns an error if the text is not a duration, or if the duration is out of bounds.
pub fn parse(text: &str) -> Result<Duration, DurationError> {
    let Unbounded(duration) = text.parse()?;
    if (MIN_DURATION..=MAX_DURATION).contains(&duration) {
        Ok(duration)
    } else {
        Err(DurationError::OutOfBounds(text.to_owned()))
    }
}

/// Duration of a lab within the limits, for [`crate::decode::values`].
pub(crate) struct Bounded(pub(crate) Duration);

impl std::str::FromStr for Bounded {
    type Err = DurationError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        parse(text).map(Self)
    }
}

/// Duration of a lab for a field that has its own limits.
pub(crate) struct Unbounded(pub(crate) Duration);

impl std::str::FromStr for Unbounded {
    type Err = DurationError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let duration = humantime::parse_duration(text);
        duration
            .map(Self)
            .map_err(|_| DurationError::InvalidFormat(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn duration_out_of_bounds_is_refused() {
        for text in ["0s", "999us", "1h 1ns", "400000000000y", "0"] {
            let error = parse(text).map_err(|error| error.to_string());
            let message =
                format!("`{text}` is not between 1ms and 1h; write for example 3s or 500ms");
            assert_eq!(error, Err(message));
        }
        for text in ["1ms", "1h", "60m", "59m 60s", "3s"] {
            assert!(parse(text).is_ok(), "{text}");
        }
    }

    #[test]
    fn text_without_unit_is_refused_with_an_example() {
        // The parser itself refuses numbers that overflow a duration.
        for text in ["soon", "3", "99999999999999999999y"] {
            let error = parse(text).map_err(|error| error.to_string());
            let message = format!("`{text}` is not a duration; write for example 3s or 500ms");
            assert_eq!(error, Err(message));
        }
    }
}
