//! A YAML document as it was written: every node knows its place.

use std::fmt;
use std::sync::Arc;

use indexmap::IndexMap;

use svclab_diagnostic::source::Span;

/// A node and everything below it. Cheap to clone: what is below is shared, and
/// a patch copies only the way to what it changes.
#[derive(Debug, Clone, PartialEq)]
pub struct Tree {
    /// Where it stands. A map in block style goes from its first key to the end
    /// of its last value.
    pub span: Span,
    /// What it is.
    pub value: Value,
}

/// What a node is.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// A single value.
    Scalar(Scalar),
    /// A list.
    Sequence(Arc<Vec<Tree>>),
    /// A map from strings, in the order it was written.
    Map(Arc<Map>),
}

/// A single value, as text and as what YAML 1.2's core schema takes it for.
#[derive(Debug, Clone, PartialEq)]
pub struct Scalar {
    /// The text, quotes and escapes resolved; `1.20` stays `1.20`.
    pub text: Arc<str>,
    /// What it means.
    pub kind: ScalarKind,
}

/// What a single value means.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum ScalarKind {
    /// `null`, `~` or nothing.
    Null,
    /// `true` or `false`.
    Bool(bool),
    /// A whole number from 0 up.
    Unsigned(u64),
    /// A whole number below 0.
    Negative(i64),
    /// A number with a point or an exponent, or too large to be whole.
    Float(f64),
    /// Text.
    String,
}

/// The entries of a map.
pub type Map = IndexMap<Arc<str>, Entry>;

/// A map's value with the place of its key.
#[derive(Debug, Clone, PartialEq)]
pub struct Entry {
    /// Where the key stands.
    pub key: Span,
    /// The value.
    pub value: Tree,
}

/// A step on the way from a document to a node.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Step {
    /// A map's value.
    Key(String),
    /// A list's element, from 0.
    Index(usize),
}

impl From<&str> for Step {
    fn from(key: &str) -> Self {
        Self::Key(key.to_owned())
    }
}

impl From<&String> for Step {
    fn from(key: &String) -> Self {
        Self::Key(key.clone())
    }
}

impl From<usize> for Step {
    fn from(index: usize) -> Self {
        Self::Index(index)
    }
}

/// The way from a document to a node: `path!["spec", "ports", 0]`.
#[macro_export]
macro_rules! path {
    ($($step:expr),* $(,)?) => {
        &[$($crate::tree::Step::from($step)),*]
    };
}

impl Tree {
    /// The map, if it is one.
    #[must_use]
    pub fn as_map(&self) -> Option<&Map> {
        match &self.value {
            Value::Map(map) => Some(map),
            _ => None,
        }
    }

    /// The list's elements, if it is one.
    #[must_use]
    pub fn as_sequence(&self) -> Option<&[Tree]> {
        match &self.value {
            Value::Sequence(items) => Some(items),
            _ => None,
        }
    }

    /// The text, if it is a string.
    #[must_use]
    pub fn as_str(&self) -> Option<&str> {
        match &self.value {
            Value::Scalar(scalar) if scalar.kind == ScalarKind::String => Some(&scalar.text),
            _ => None,
        }
    }

    /// Where a scalar is written as this text, the first in the document's order.
    #[must_use]
    pub fn find(&self, text: &str) -> Option<Span> {
        match &self.value {
            Value::Scalar(scalar) => (*scalar.text == *text).then_some(self.span),
            Value::Sequence(items) => items.iter().find_map(|item| item.find(text)),
            Value::Map(map) => map.iter().find_map(|(_, entry)| entry.value.find(text)),
        }
    }

    /// Whether it is null.
    #[must_use]
    pub fn is_null(&self) -> bool {
        matches!(&self.value, Value::Scalar(scalar) if scalar.kind == ScalarKind::Null)
    }

    /// The value with this key, if it is a map that has one.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&Tree> {
        Some(&self.as_map()?.get(key)?.value)
    }

    /// The place of this key, if it is a map that has one.
    #[must_use]
    pub fn key_span(&self, key: &str) -> Option<Span> {
        Some(self.as_map()?.get(key)?.key)
    }

    /// The node at `path`.
    #[must_use]
    pub fn at(&self, path: &[Step]) -> Option<&Tree> {
        path.iter().try_fold(self, |tree, step| match step {
            Step::Key(key) => tree.get(key),
            Step::Index(index) => tree.as_sequence()?.get(*index),
        })
    }

    /// The node at `path`, or the last one on the way that exists: a place to
    /// point at in any case.
    #[must_use]
    pub fn nearest(&self, path: &[Step]) -> &Tree {
        (0..=path.len())
            .rev()
            .find_map(|steps| self.at(&path[..steps]))
            .unwrap_or(self)
    }

    /// A short place for the whole node: its first key if it is a map.
    #[must_use]
    pub fn head(&self) -> Span {
        self.as_map()
            .and_then(|map| map.values().next())
            .map_or(self.span, |entry| entry.key)
    }
}

impl fmt::Display for Tree {
    /// What it is, in a few words, as in "expected a list, found …".
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
                ScalarKind::String => write!(f, "the string {}", shortened(&scalar.text)),
            },
        }
    }
}

/// A text in quotes, cut after 40 characters.
pub(super) fn shortened(text: &str) -> String {
    match text.char_indices().nth(40) {
        Some((cut, _)) => format!("`{}…`", &text[..cut]),
        None => format!("`{text}`"),
    }
}
