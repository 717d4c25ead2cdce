//! Parses names with values, as `ip` and `ipset` print them: `via 10.0.0.1 dev eth0 onlink`.

use std::fmt;
use std::ops::Range;

use crate::text::problem::{Problem, ProblemKind};
use crate::text::{Field, Text};

/// Attribute: a name with a value, or a flag.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attribute {
    /// Name as printed.
    pub name: Text,
    /// Value as printed. `None` for a flag.
    pub value: Option<Text>,
}

/// Attributes of a line, in printed order.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Attributes(pub Vec<Attribute>);

/// Kind of value that follows a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ValueKind {
    /// No value: the name is a flag.
    None,
    /// Single word.
    Word,
    /// Decimal or hexadecimal integer.
    Number,
    /// `forever`, or seconds: `86311sec`.
    Lifetime,
    /// Word, optionally preceded by `lock`.
    Lockable,
    /// Word, optionally preceded by a family name.
    Gateway,
    /// All words up to one of these words.
    Until(&'static [&'static str]),
    /// Text in double quotes.
    Quoted,
}

/// Names that a program prints, with the kinds of their values.
pub type Grammar = &'static [(&'static str, ValueKind)];

/// Formats the attributes as printed, separated by single spaces.
impl fmt::Display for Attributes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, Attribute { name, value }) in self.0.iter().enumerate() {
            let space = if index > 0 { " " } else { "" };
            write!(f, "{space}{}", &**name)?;
            if let Some(value) = value {
                write!(f, " {}", &**value)?;
            }
        }
        Ok(())
    }
}

impl Attributes {
    /// Returns the value of an attribute. `None` if the attribute is absent or a flag.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&str> {
        let found = self.0.iter().find(|attribute| &*attribute.name == name)?;
        found.value.as_deref()
    }

    /// Whether an attribute with this name is present.
    #[must_use]
    pub fn has(&self, name: &str) -> bool {
        self.0.iter().any(|attribute| &*attribute.name == name)
    }

    /// Formats the attributes sorted by name, without those in `but`. Equivalent attributes give
    /// equal texts.
    #[must_use]
    pub fn canonical(&self, except: &[&str]) -> String {
        let mut parts: Vec<String> = self
            .0
            .iter()
            .filter(|attribute| !except.contains(&&*attribute.name))
            .map(|attribute| match &attribute.value {
                None => attribute.name.to_string(),
                Some(value) => {
                    let value = value.split_ascii_whitespace().collect::<Vec<_>>();
                    format!("{} {}", attribute.name, value.join(" "))
                }
            })
            .collect();
        parts.sort();
        parts.join(" ")
    }

    /// Parses attributes from all remaining words.
    ///
    /// # Errors
    ///
    /// Returns an error for the first unknown name and for the first value of the wrong kind.
    pub fn parse<'t>(
        text: &Text,
        fields: &mut impl Iterator<Item = Field<'t>>,
        grammar: Grammar,
    ) -> Result<Self, Problem> {
        let mut attributes = Self::default();
        let mut fields = fields.peekable();
        while let Some(field) = fields.next() {
            let Some((_, value_kind)) = grammar.iter().find(|(name, _)| *name == field.text) else {
                let word = field.text.to_owned();
                return Err(Problem::new(
                    ProblemKind::UnknownWord { word },
                    field.range(),
                ));
            };
            let missing_value = || {
                Problem::new(
                    ProblemKind::MissingValue(field.text.to_owned()),
                    field.range(),
                )
            };
            let value: Option<Range<usize>> = match value_kind {
                ValueKind::None => None,
                ValueKind::Word => Some(fields.next().ok_or_else(missing_value)?.range()),
                ValueKind::Number => Some(checked_value(
                    fields.next().ok_or_else(missing_value)?,
                    is_number,
                    "a number",
                )?),
                ValueKind::Lifetime => Some(checked_value(
                    fields.next().ok_or_else(missing_value)?,
                    is_lifetime,
                    "a time such as `forever` or `86311sec`",
                )?),
                ValueKind::Lockable | ValueKind::Gateway => {
                    let first = fields.next().ok_or_else(missing_value)?;
                    if matches!(first.text, "lock" | "inet" | "inet6") {
                        let second = fields.next().ok_or_else(missing_value)?;
                        Some(first.start..second.range().end)
                    } else {
                        Some(first.range())
                    }
                }
                ValueKind::Until(ends) => {
                    let mut range = fields.next().ok_or_else(missing_value)?.range();
                    while let Some(next) = fields.next_if(|next| !ends.contains(&next.text)) {
                        range.end = next.range().end;
                    }
                    Some(range)
                }
                ValueKind::Quoted => {
                    let first = fields.next().ok_or_else(missing_value)?;
                    let mut range = first.range();
                    let is_unclosed = |range: &Range<usize>| {
                        let word = &text[range.clone()];
                        word.len() < 2 || !word.ends_with('"')
                    };
                    if !first.text.starts_with('"') {
                        return Err(Problem::new(
                            ProblemKind::InvalidValue {
                                value: first.text.to_owned(),
                                expected: "a quoted text",
                            },
                            range,
                        ));
                    }
                    while is_unclosed(&range) {
                        let next = fields.next().ok_or_else(|| {
                            Problem::new(ProblemKind::UnclosedQuote, range.clone())
                        })?;
                        range.end = next.range().end;
                    }
                    Some(range)
                }
            };
            attributes.0.push(Attribute {
                name: text.slice(field.range()),
                value: value.map(|range| text.slice(range)),
            });
        }
        Ok(attributes)
    }
}

fn checked_value(
    field: Field<'_>,
    is_valid: fn(&str) -> bool,
    expected: &'static str,
) -> Result<Range<usize>, Problem> {
    if is_valid(field.text) {
        return Ok(field.range());
    }
    let value = field.text.to_owned();
    Err(Problem::new(
        ProblemKind::InvalidValue { value, expected },
        field.range(),
    ))
}

/// Whether a text is a decimal or hexadecimal integer.
#[must_use]
pub fn is_number(text: &str) -> bool {
    match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).is_ok(),
        None => text.parse::<u64>().is_ok(),
    }
}

fn is_lifetime(text: &str) -> bool {
    text == "forever" || text.strip_suffix("sec").is_some_and(is_number)
}
