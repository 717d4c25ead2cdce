//! YAML document in which every node has its span.

use std::fmt;
use std::sync::Arc;

use indexmap::IndexMap;

use svclab_diagnostic::source::Span;

/// Node with all its descendants. A clone is cheap: descendants are shared, and a patch copies only
/// the nodes on the path to the change.
#[derive(Debug, Clone, PartialEq)]
pub struct Tree {
    /// Span of the node. A map in block style extends from its first key to the end of its last
    /// value.
    pub span: Span,
    /// Content of the node.
    pub value: Value,
}

/// Content of a node.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// Single value.
    Scalar(Scalar),
    /// List of nodes.
    Sequence(Arc<Vec<Tree>>),
    /// Map from strings, in document order.
    Map(Arc<Map>),
}

/// Single value, as text and as resolved by the core schema of YAML 1.2.
#[derive(Debug, Clone, PartialEq)]
pub struct Scalar {
    /// Text with quotes and escapes resolved. The text `1.20` stays `1.20`.
    pub text: Arc<str>,
    /// Resolved value.
    pub kind: ScalarKind,
}

/// Resolved value of a scalar.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum ScalarKind {
    /// `null`, `~` or nothing.
    Null,
    /// `true` or `false`.
    Bool(bool),
    /// Integer from 0.
    Unsigned(u64),
    /// Integer below 0.
    Negative(i64),
    /// Number with a decimal point or an exponent, or an integer that does not fit in 64 bits.
    Float(f64),
    /// Any other text.
    String,
}

/// Entries of a map, in document order.
pub type Map = IndexMap<Arc<str>, Entry>;

/// Value of a map with the span of its key.
#[derive(Debug, Clone, PartialEq)]
pub struct Entry {
    /// Span of the key.
    pub key: Span,
    /// Value at the key.
    pub value: Tree,
}

/// Segment of a path from a document to a node.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum PathSegment {
    /// Key of a map.
    Key(String),
    /// Index in a list, from 0.
    Index(usize),
}

impl From<&str> for PathSegment {
    fn from(key: &str) -> Self {
        Self::Key(key.to_owned())
    }
}

impl From<&String> for PathSegment {
    fn from(key: &String) -> Self {
        Self::Key(key.clone())
    }
}

impl From<usize> for PathSegment {
    fn from(index: usize) -> Self {
        Self::Index(index)
    }
}

/// Builds a path from a document to a node: `path!["spec", "ports", 0]`.
#[macro_export]
macro_rules! path {
    ($($step:expr),* $(,)?) => {
        &[$($crate::tree::PathSegment::from($step)),*]
    };
}

impl Tree {
    /// Returns the map, `None` for other nodes.
    #[must_use]
    pub fn as_map(&self) -> Option<&Map> {
        match &self.value {
            Value::Map(map) => Some(map),
            _ => None,
        }
    }

    /// Returns the elements of the list, `None` for other nodes.
    #[must_use]
    pub fn as_sequence(&self) -> Option<&[Tree]> {
        match &self.value {
            Value::Sequence(items) => Some(items),
            _ => None,
        }
    }

    /// Returns the text of a string, `None` for other nodes.
    #[must_use]
    pub fn as_str(&self) -> Option<&str> {
        match &self.value {
            Value::Scalar(scalar) if scalar.kind == ScalarKind::String => Some(&scalar.text),
            _ => None,
        }
    }

    /// Returns the span of the first scalar with this text, in document order.
    #[must_use]
    pub fn find_text(&self, text: &str) -> Option<Span> {
        match &self.value {
            Value::Scalar(scalar) => (*scalar.text == *text).then_some(self.span),
            Value::Sequence(items) => items.iter().find_map(|item| item.find_text(text)),
            Value::Map(map) => map
                .iter()
                .find_map(|(_, entry)| entry.value.find_text(text)),
        }
    }

    /// Whether the node is null.
    #[must_use]
    pub fn is_null(&self) -> bool {
        matches!(&self.value, Value::Scalar(scalar) if scalar.kind == ScalarKind::Null)
    }

    /// Returns the value at a key. `None` if the node is not a map or has no such key.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&Tree> {
        Some(&self.as_map()?.get(key)?.value)
    }

    /// Returns the span of a key. `None` if the node is not a map or has no such key.
    #[must_use]
    pub fn key_span(&self, key: &str) -> Option<Span> {
        Some(self.as_map()?.get(key)?.key)
    }

    /// Returns the node at `path`, `None` if it does not exist.
    #[must_use]
    pub fn node_at(&self, path: &[PathSegment]) -> Option<&Tree> {
        path.iter().try_fold(self, |tree, step| match step {
            PathSegment::Key(key) => tree.get(key),
            PathSegment::Index(index) => tree.as_sequence()?.get(*index),
        })
    }

    /// Returns the node at `path`, or its nearest existing ancestor. Used for spans of diagnostics.
    #[must_use]
    pub fn nearest(&self, path: &[PathSegment]) -> &Tree {
        (0..=path.len())
            .rev()
            .find_map(|steps| self.node_at(&path[..steps]))
            .unwrap_or(self)
    }

    /// Returns a short span for the whole node: the span of its first key if it is a map.
    #[must_use]
    pub fn head_span(&self) -> Span {
        self.as_map()
            .and_then(|map| map.values().next())
            .map_or(self.span, |entry| entry.key)
    }
}

impl fmt::Display for Tree {
    /// Describes the node in a few words, as in "expected a list, found …".
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.value {
            Value::Sequence(_) => f.write_str("a list"),
            Value::Map(_) => f.write_str("a map"),
            Value::Scalar(scalar) => match scalar.kind {
                ScalarKind::Null => f.write_str("nothing"),
                ScalarKind::Bool(value) => write!(f, "`{value}`"),
                ScalarKind::Unsigned(_) | ScalarKind::Negative(_) | ScalarKind::Float(_) => {
                    write!(f, "the number `{}`", scalar.text)
                }
                ScalarKind::String => write!(f, "the string {}", shorten(&scalar.text)),
            },
        }
    }
}

/// Returns a text in backticks, cut after 40 characters.
pub(crate) fn shorten(text: &str) -> String {
    match text.char_indices().nth(40) {
        Some((cut, _)) => format!("`{}…`", &text[..cut]),
        None => format!("`{text}`"),
    }
}
