//! Errors of decoding a tree into a type, with span and readable message.

use std::fmt;
use std::ops::Range;

use serde::de::{self, Expected, Unexpected};

use crate::decode::spanned_error;
use crate::yaml::tree::{Scalar, Tree, Value, shorten};
use svclab_diagnostic::Diagnostic;
use svclab_diagnostic::source::Span;
use svclab_diagnostic::suggest::{did_you_mean, format_list, format_similar};

/// Error of decoding a tree into a type.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("{kind}")]
pub struct DecodeError {
    kind: Box<DecodeErrorKind>,
    span: Option<Span>,
}

/// Kind of a decode error.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum DecodeErrorKind {
    /// The type has no such field.
    #[error("unknown field `{field}`")]
    UnknownField {
        /// Name of the unknown field.
        field: String,
        /// Fields of the type.
        fields: &'static [&'static str],
    },
    /// The enum has no such variant.
    #[error("`{variant}` is not one of {}", format_list(variants.iter().copied()))]
    UnknownVariant {
        /// Name of the unknown variant.
        variant: String,
        /// Variants of the enum.
        variants: &'static [&'static str],
    },
    /// A required field is missing.
    #[error("field `{field}` is missing")]
    MissingField {
        /// Name of the missing field.
        field: &'static str,
    },
    /// The value has another type.
    #[error("expected {expected}, found {found}")]
    WrongType {
        /// Description of the expected type.
        expected: String,
        /// Description of the found value.
        found: String,
    },
    /// A string is expected, and the value is an unquoted number or boolean.
    #[error("expected a string, found {found}")]
    Unquoted {
        /// Description of the found value.
        found: String,
        /// Text of the value in the file.
        text: String,
    },
    /// A custom error of a type's own parser.
    #[error("{message}")]
    Custom {
        /// Message of the parser.
        message: String,
        /// Invalid part of the value, as a byte range of its text; `None` for the whole value.
        part: Option<Range<usize>>,
    },
}

impl DecodeError {
    pub(crate) fn new(kind: DecodeErrorKind) -> Self {
        Self {
            kind: Box::new(kind),
            span: None,
        }
    }

    /// Returns the kind of the error.
    #[must_use]
    pub fn kind(&self) -> &DecodeErrorKind {
        &self.kind
    }

    /// Returns the span of the value with the error.
    #[must_use]
    pub fn span(&self) -> Option<Span> {
        self.span
    }

    /// Sets the span of the error, unless a nested value already set it.
    pub(crate) fn with_span(mut self, tree: &Tree, key: Option<Span>) -> Self {
        if self.span.is_none() {
            self.span = Some(match self.kind.as_ref() {
                // The span of the whole value is too wide for a missing field, so the error points
                // at the value's key.
                DecodeErrorKind::MissingField { .. } => key.unwrap_or_else(|| tree.head_span()),
                DecodeErrorKind::Custom {
                    part: Some(part), ..
                } => part_span(tree, part),
                DecodeErrorKind::WrongType { .. } | DecodeErrorKind::Custom { .. }
                    if tree.as_map().is_some() =>
                {
                    key.unwrap_or_else(|| tree.head_span())
                }
                _ => tree.span,
            });
        }
        self
    }

    /// Sets the span of the error to that of a key, unless a nested value already set it.
    pub(crate) fn with_key_span(mut self, key: Span) -> Self {
        self.span.get_or_insert(key);
        self
    }
}

/// Returns the span of a part of a scalar.
///
/// The result is exact for a plain or quoted scalar on one line without escapes. For all other
/// scalars, the result is the span of the whole scalar.
fn part_span(tree: &Tree, part: &Range<usize>) -> Span {
    let whole = tree.span;
    let Value::Scalar(Scalar { text, .. }) = &tree.value else {
        return whole;
    };
    let written = whole.end.saturating_sub(whole.start);
    let quote = match usize::try_from(written).map(|written| written.checked_sub(text.len())) {
        Ok(Some(0)) => 0,
        Ok(Some(2)) => 1,
        _ => return whole,
    };
    let Some(before) = text.get(..part.start) else {
        return whole;
    };
    let number = |n: usize| u32::try_from(n).unwrap_or(0);
    Span {
        start: whole.start + number(quote + part.start),
        end: whole.start + number(quote + part.end.min(text.len())),
        column: whole.column + number(quote + before.chars().count()),
        ..whole
    }
}

impl de::Error for DecodeError {
    fn custom<T: fmt::Display>(message: T) -> Self {
        // The alternate form contains the range of the invalid part; see `SpannedError`.
        let text = format!("{message:#}");
        let (part, message) = spanned_error::split_range(&text);
        Self::new(DecodeErrorKind::Custom {
            message: message.to_owned(),
            part,
        })
    }

    fn invalid_type(found: Unexpected<'_>, expected: &dyn Expected) -> Self {
        Self::new(DecodeErrorKind::WrongType {
            expected: describe_expected(&expected.to_string()),
            found: describe_found(found),
        })
    }

    fn invalid_value(found: Unexpected<'_>, expected: &dyn Expected) -> Self {
        Self::invalid_type(found, expected)
    }

    fn invalid_length(length: usize, expected: &dyn Expected) -> Self {
        Self::new(DecodeErrorKind::WrongType {
            expected: describe_expected(&expected.to_string()),
            found: format!("{length} elements"),
        })
    }

    fn unknown_variant(variant: &str, variants: &'static [&'static str]) -> Self {
        Self::new(DecodeErrorKind::UnknownVariant {
            variant: variant.to_owned(),
            variants,
        })
    }

    fn unknown_field(field: &str, fields: &'static [&'static str]) -> Self {
        Self::new(DecodeErrorKind::UnknownField {
            field: field.to_owned(),
            fields,
        })
    }

    fn missing_field(field: &'static str) -> Self {
        Self::new(DecodeErrorKind::MissingField { field })
    }
}

/// Rewrites serde's description of an expected type for users.
fn describe_expected(expected: &str) -> String {
    let range = |min: i128, max: i128| format!("a whole number from {min} to {max}");
    match expected {
        "u8" => range(0, u8::MAX.into()),
        "u16" => range(0, u16::MAX.into()),
        "u32" => range(0, u32::MAX.into()),
        "u64" | "usize" => "a whole number from 0".to_owned(),
        "i32" => range(i32::MIN.into(), i32::MAX.into()),
        "i8" | "i16" | "i64" | "isize" => "a whole number".to_owned(),
        "f32" | "f64" => "a number".to_owned(),
        "a boolean" => "`true` or `false`".to_owned(),
        "a sequence" => "a list".to_owned(),
        "IntOrString" | "Quantity" => "a number or a string".to_owned(),
        // Names of structs in the lab document and the Kubernetes API.
        name if name.starts_with("struct ")
            || name.starts_with(|c: char| c.is_ascii_uppercase()) =>
        {
            "a map".to_owned()
        }
        other => other.to_owned(),
    }
}

fn describe_found(found: Unexpected<'_>) -> String {
    match found {
        Unexpected::Bool(value) => format!("`{value}`"),
        Unexpected::Unsigned(n) => format!("the number `{n}`"),
        Unexpected::Signed(n) => format!("the number `{n}`"),
        // `{n:?}` prints `1.0`, where `{n}` would print an integer.
        Unexpected::Float(n) => format!("the number `{n:?}`"),
        Unexpected::Str(text) => format!("the string {}", shorten(text)),
        Unexpected::Unit | Unexpected::Option => "nothing".to_owned(),
        Unexpected::Seq => "a list".to_owned(),
        Unexpected::Map | Unexpected::StructVariant => "a map".to_owned(),
        other => other.to_string(),
    }
}

/// Components of clusters that users expect in a lab, and that svclab does not model.
const UNMODELLED_COMPONENTS: [&str; 10] = [
    "antrea",
    "cilium",
    "coredns",
    "istio",
    "kubeRouter",
    "kube-router",
    "linkerd",
    "metallb",
    "ovnKubernetes",
    "weave",
];

/// Returns the help for a field that a type does not have.
fn unknown_field_help(field: &str, fields: &'static [&'static str]) -> String {
    let known = fields.iter().copied();
    let is_unmodelled = |name: &&str| name.eq_ignore_ascii_case(field);
    if UNMODELLED_COMPONENTS.iter().any(is_unmodelled) && fields.contains(&"notModelled") {
        return format!(
            "svclab does not model {field}; remove the field, and add it to `notModelled`: \
             `notModelled: [{field}]`"
        );
    }
    did_you_mean(field, known.clone())
        .unwrap_or_else(|| format!("the fields are {}", format_similar(field, known)))
}

impl From<DecodeError> for Diagnostic {
    fn from(error: DecodeError) -> Self {
        let message = error.to_string();
        let (label, help) = match *error.kind {
            DecodeErrorKind::UnknownField { field, fields } => (
                "no such field".to_owned(),
                Some(unknown_field_help(&field, fields)),
            ),
            DecodeErrorKind::UnknownVariant {
                variant: word,
                variants: words,
            } => (String::new(), did_you_mean(&word, words.iter().copied())),
            DecodeErrorKind::MissingField { field } => (format!("`{field}` is missing here"), None),
            DecodeErrorKind::WrongType { expected, found } => {
                let quoted = found.strip_prefix("the string `");
                let number = quoted.and_then(|text| text.strip_suffix('`'));
                let number = number.filter(|text| {
                    expected.starts_with("a whole number") && text.parse::<i64>().is_ok()
                });
                let help =
                    number.map(|number| format!("write the number without quotes: {number}"));
                (format!("expected {expected}"), help)
            }
            DecodeErrorKind::Unquoted { text, .. } => (
                "expected a string".to_owned(),
                Some(format!("quote it: \"{text}\"")),
            ),
            DecodeErrorKind::Custom { .. } => (String::new(), None),
        };
        let mut diagnostic = Self::error(message).with_optional_help(help);
        if let Some(span) = error.span {
            diagnostic = diagnostic.with_position(span, label);
        }
        diagnostic
    }
}
