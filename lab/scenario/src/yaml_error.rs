//! Why a text is no YAML that svclab reads, and where.

use super::yaml::{MAX_DEPTH, MAX_NODES, MAX_TEXT};
use svclab_diagnostic::Diagnostic;
use svclab_diagnostic::source::Span;

/// Why a text is no YAML that svclab reads.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum YamlError {
    /// Not YAML.
    #[error("this is not YAML: {message}")]
    Syntax {
        /// Where the parser stopped.
        at: Span,
        /// What it says.
        message: String,
        /// The bracket that is open there.
        open: Option<Span>,
        /// What to do about it, where that is clear.
        help: Option<&'static str>,
    },
    /// A key that is there already.
    #[error("the key `{key}` is there twice")]
    DuplicateKey {
        /// The key.
        key: String,
        /// The second one.
        at: Span,
        /// The first one.
        first: Span,
    },
    /// A key that is a list, a map or nothing.
    #[error("a key must be a string")]
    Key {
        /// The key.
        at: Span,
    },
    /// `<<`, which is no part of YAML 1.2.
    #[error("`<<` does not merge: YAML 1.2 has no merge keys")]
    MergeKey {
        /// The key.
        at: Span,
    },
    /// Deeper than [`MAX_DEPTH`].
    #[error("maps and lists nest deeper than {MAX_DEPTH} levels")]
    TooDeep {
        /// The first node that is too deep.
        at: Span,
    },
    /// More than [`MAX_NODES`].
    #[error("more than {MAX_NODES} values in one file, aliases counted as what they stand for")]
    TooManyNodes {
        /// The node that was one too many.
        at: Span,
    },
    /// More than [`MAX_TEXT`].
    #[error("more than {} MiB of text in one file, aliases counted as what they stand for", MAX_TEXT >> 20)]
    TooMuchText {
        /// The node that was one too many.
        at: Span,
    },
    /// An alias inside the node it stands for.
    #[error("the alias stands for a value that contains it")]
    AliasLoop {
        /// The alias.
        at: Span,
    },
    /// A tag outside the core schema.
    #[error("the tag `{tag}` means nothing here")]
    Tag {
        /// The tag as resolved.
        tag: String,
        /// The tagged node.
        at: Span,
    },
    /// A scalar that is not what its tag says.
    #[error("`{text}` is no {tag}, as its tag says")]
    Tagged {
        /// The scalar's text.
        text: String,
        /// The tag's last word.
        tag: String,
        /// The scalar.
        at: Span,
    },
}

impl From<YamlError> for Diagnostic {
    fn from(error: YamlError) -> Self {
        let diagnostic = Self::error(error.to_string());
        match error {
            YamlError::Syntax { at, open, help, .. } => {
                let diagnostic = diagnostic.at(at, "").maybe_help(help.map(str::to_owned));
                match open {
                    Some(open) => diagnostic.and(open, "this is not closed"),
                    None => diagnostic,
                }
            }
            YamlError::DuplicateKey { at, first, .. } => {
                diagnostic.at(at, "again here").and(first, "first here")
            }
            YamlError::Key { at } => diagnostic.at(at, "not a string"),
            YamlError::MergeKey { at } => diagnostic
                .at(at, "")
                .help("write the keys out, or use an alias for the whole value"),
            YamlError::TooDeep { at } => diagnostic.at(at, "the first that is too deep"),
            YamlError::TooManyNodes { at } | YamlError::TooMuchText { at } => {
                diagnostic.at(at, "one too many")
            }
            YamlError::Tag { at, .. } => diagnostic.at(at, "").help("leave the tag out"),
            YamlError::AliasLoop { at } | YamlError::Tagged { at, .. } => diagnostic.at(at, ""),
        }
    }
}
