//! Errors of parsing a YAML file, with spans.

use crate::yaml::{MAX_DEPTH, MAX_NODES, MAX_TEXT};
use svclab_diagnostic::Diagnostic;
use svclab_diagnostic::source::Span;

/// Error of parsing a YAML file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum YamlError {
    /// The text is not valid YAML.
    #[error("invalid YAML: {message}")]
    Syntax {
        /// Position where the parser stopped.
        span: Span,
        /// Message of the parser.
        message: String,
        /// Bracket that is open at the position.
        open: Option<Span>,
        /// Help for the user, if the correction is clear.
        help: Option<&'static str>,
    },
    /// A map has the same key twice.
    #[error("duplicate key `{key}`")]
    DuplicateKey {
        /// Text of the key.
        key: String,
        /// Span of the second key.
        span: Span,
        /// Span of the first key.
        first: Span,
    },
    /// A key is a list, a map or null.
    #[error("a key must be a string")]
    InvalidKey {
        /// Span of the key.
        span: Span,
    },
    /// The key is `<<`, which YAML 1.2 does not define.
    #[error("`<<` is not supported: YAML 1.2 has no merge keys")]
    MergeKey {
        /// Span of the key.
        span: Span,
    },
    /// The nesting exceeds [`MAX_DEPTH`].
    #[error("maps and lists nest deeper than {MAX_DEPTH} levels")]
    TooDeep {
        /// Span of the first node that is too deep.
        span: Span,
    },
    /// The number of nodes exceeds [`MAX_NODES`].
    #[error("more than {MAX_NODES} values in one file, with aliases expanded")]
    TooManyNodes {
        /// Span of the node that exceeds the limit.
        span: Span,
    },
    /// The size of the text exceeds [`MAX_TEXT`].
    #[error("more than {} MiB of text in one file, with aliases expanded", MAX_TEXT >> 20)]
    TooMuchText {
        /// Span of the node that exceeds the limit.
        span: Span,
    },
    /// An alias is inside its own anchored node.
    #[error("the alias refers to a value that contains it")]
    AliasLoop {
        /// Span of the alias.
        span: Span,
    },
    /// A tag is not part of the core schema, or does not fit the node.
    #[error("tag `{tag}` is not supported here")]
    UnknownTag {
        /// Resolved tag.
        tag: String,
        /// Span of the tagged node.
        span: Span,
    },
    /// A scalar does not fit its tag.
    #[error("`{text}` does not match its tag `{tag}`")]
    TagMismatch {
        /// Text of the scalar.
        text: String,
        /// Suffix of the tag, such as `int`.
        tag: String,
        /// Span of the scalar.
        span: Span,
    },
}

impl From<YamlError> for Diagnostic {
    fn from(error: YamlError) -> Self {
        let diagnostic = Self::error(error.to_string());
        match error {
            YamlError::Syntax {
                span: at,
                open,
                help,
                ..
            } => {
                let diagnostic = diagnostic
                    .with_position(at, "")
                    .with_optional_help(help.map(str::to_owned));
                match open {
                    Some(open) => diagnostic.with_related(open, "not closed"),
                    None => diagnostic,
                }
            }
            YamlError::DuplicateKey {
                span: at, first, ..
            } => diagnostic
                .with_position(at, "again here")
                .with_related(first, "first here"),
            YamlError::InvalidKey { span: at } => diagnostic.with_position(at, "not a string"),
            YamlError::MergeKey { span: at } => diagnostic
                .with_position(at, "")
                .with_help("write the keys out, or use an alias for the whole value"),
            YamlError::TooDeep { span: at } => diagnostic.with_position(at, "exceeds the limit"),
            YamlError::TooManyNodes { span: at } | YamlError::TooMuchText { span: at } => {
                diagnostic.with_position(at, "exceeds the limit")
            }
            YamlError::UnknownTag { span: at, .. } => {
                diagnostic.with_position(at, "").with_help("remove the tag")
            }
            YamlError::AliasLoop { span: at } | YamlError::TagMismatch { span: at, .. } => {
                diagnostic.with_position(at, "")
            }
        }
    }
}
