//! Parses the text of a file into the trees of its documents.
//!
//! The events come from the parser of serde-saphyr. This module adds spans, the detection of
//! duplicate keys, and limits that apply before memory or stack run out. For the limits, an alias
//! counts as a copy of its anchored node.

pub(crate) mod error;
pub(crate) mod merge;
pub(crate) mod scalar;
#[cfg(test)]
mod tests;
pub mod tree;

use std::collections::HashMap;
use std::sync::Arc;

use serde_saphyr::granit_parser::{
    self, ErrorKind, Event, Parser, ScalarStyle, ScanError, Span as RawSpan, Tag,
};

use crate::yaml::tree::{Entry, Map, Scalar, ScalarKind, Tree, Value};
use svclab_diagnostic::source::{FileId, Source, Span};

pub(crate) use crate::yaml::error::YamlError;

/// Maximum nesting depth of maps and lists. Kubernetes' own types reach about 20.
pub(crate) const MAX_DEPTH: usize = 100;

/// Maximum number of nodes in a file, where each alias counts as a copy of its anchored node.
pub(crate) const MAX_NODES: usize = 1_000_000;

/// Maximum size of all values in a file in bytes, where each alias counts as a copy of its anchored
/// node.
pub(crate) const MAX_TEXT: usize = 16 << 20;

/// Parses the documents of a file. Empty documents are omitted.
///
/// # Errors
///
/// Returns the first error; the rest of the file is not parsed.
pub(crate) fn parse(source: &Source, file: FileId) -> Result<Vec<Tree>, YamlError> {
    let options = granit_parser::options! {
        emit_comments: false,
        flow_nesting_limit: MAX_DEPTH,
        block_nesting_limit: MAX_DEPTH,
    };
    let mut builder = Builder::new(file);
    for event in Parser::new_from_str_with_options(source.text(), options) {
        let (event, span) = event.map_err(|error| builder.syntax_error(&error))?;
        builder.on_event(event, span)?;
    }
    Ok(builder.documents)
}

/// Complete node with its sizes for the limits.
#[derive(Clone)]
struct BuiltNode {
    tree: Tree,
    /// Number of nodes, including the node itself.
    nodes: usize,
    /// Size of the text in bytes.
    text: usize,
    /// Number of levels, 0 for a scalar.
    height: usize,
}

/// List or map whose end is not reached yet.
struct OpenNode {
    kind: OpenNodeKind,
    span: Span,
    /// Identifier of the anchor, 0 for none.
    anchor: usize,
    nodes: usize,
    text: usize,
    height: usize,
}

enum OpenNodeKind {
    Sequence(Vec<Tree>),
    Map {
        entries: Map,
        /// Key whose value is next.
        key: Option<(Arc<str>, Span)>,
    },
}

struct Builder {
    file: FileId,
    frames: Vec<OpenNode>,
    /// Complete nodes by the identifiers of their anchors.
    anchors: HashMap<usize, BuiltNode>,
    /// Number of nodes in the file so far.
    nodes: usize,
    /// Size of the text in the file so far, in bytes.
    text: usize,
    documents: Vec<Tree>,
}

impl Builder {
    fn new(file: FileId) -> Self {
        Self {
            file,
            frames: Vec::new(),
            anchors: HashMap::new(),
            nodes: 0,
            text: 0,
            documents: Vec::new(),
        }
    }

    fn on_event(&mut self, event: Event<'_>, raw: RawSpan) -> Result<(), YamlError> {
        let span = self.span(raw);
        match event {
            Event::DocumentStart(..) => self.anchors.clear(),
            Event::Scalar(text, style, anchor, tag) => {
                let scalar = resolve_scalar(&text, style, tag.as_deref(), span)?;
                let bytes = scalar.text.len();
                let tree = Tree {
                    span,
                    value: Value::Scalar(scalar),
                };
                let built = BuiltNode {
                    tree,
                    nodes: 1,
                    text: bytes,
                    height: 0,
                };
                self.finish(built, anchor)?;
            }
            Event::SequenceStart(_, anchor, tag) => {
                check_collection_tag(tag.as_deref(), "seq", span)?;
                self.open(OpenNodeKind::Sequence(Vec::new()), span, anchor)?;
            }
            Event::MappingStart(_, anchor, tag) => {
                check_collection_tag(tag.as_deref(), "map", span)?;
                let entries = Map::new();
                self.open(OpenNodeKind::Map { entries, key: None }, span, anchor)?;
            }
            Event::SequenceEnd | Event::MappingEnd => self.close(span)?,
            Event::Alias(id) => {
                let Some(built) = self.anchors.get(&id) else {
                    return Err(YamlError::AliasLoop { span });
                };
                let mut built = built.clone();
                // An error inside an aliased node points at the anchored node. An error about the
                // whole node points at the alias.
                built.tree.span = span;
                self.finish(built, 0)?;
            }
            _ => {}
        }
        Ok(())
    }

    fn open(&mut self, kind: OpenNodeKind, span: Span, anchor: usize) -> Result<(), YamlError> {
        if self.frames.len() >= MAX_DEPTH {
            return Err(YamlError::TooDeep { span });
        }
        self.frames.push(OpenNode {
            kind,
            span,
            anchor,
            nodes: 1,
            text: 0,
            height: 0,
        });
        Ok(())
    }

    fn close(&mut self, end: Span) -> Result<(), YamlError> {
        let Some(frame) = self.frames.pop() else {
            return Ok(());
        };
        let mut span = frame.span;
        let value = match frame.kind {
            OpenNodeKind::Sequence(items) => {
                span.end = items.last().map_or(span.end, |last| last.span.end);
                Value::Sequence(Arc::new(items))
            }
            OpenNodeKind::Map { entries, .. } => {
                span.end = entries
                    .last()
                    .map_or(span.end, |(_, last)| last.value.span.end);
                Value::Map(Arc::new(entries))
            }
        };
        // In flow style, the closing bracket is a token. In block style, the end is empty and
        // follows blank lines and comments.
        if end.end > end.start {
            span.end = end.end;
        }
        let built = BuiltNode {
            tree: Tree { span, value },
            nodes: frame.nodes,
            text: frame.text,
            height: frame.height + 1,
        };
        self.finish(built, frame.anchor)
    }

    /// Adds a complete node to its parent, or to the documents.
    fn finish(&mut self, built: BuiltNode, anchor: usize) -> Result<(), YamlError> {
        let span = built.tree.span;
        if self.frames.len() + built.height > MAX_DEPTH {
            return Err(YamlError::TooDeep { span });
        }
        if anchor != 0 {
            self.anchors.insert(anchor, built.clone());
        }
        let Some(frame) = self.frames.last_mut() else {
            // A document may be a single value, so the limits also apply to a file of many such
            // documents.
            self.nodes = self.nodes.saturating_add(built.nodes);
            self.text = self.text.saturating_add(built.text);
            if self.nodes > MAX_NODES {
                return Err(YamlError::TooManyNodes { span });
            }
            if self.text > MAX_TEXT {
                return Err(YamlError::TooMuchText { span });
            }
            if !built.tree.is_null() {
                self.documents.push(built.tree);
            }
            return Ok(());
        };
        frame.nodes = frame.nodes.saturating_add(built.nodes);
        frame.text = frame.text.saturating_add(built.text);
        frame.height = frame.height.max(built.height);
        if self.nodes.saturating_add(frame.nodes) > MAX_NODES {
            return Err(YamlError::TooManyNodes { span });
        }
        if self.text.saturating_add(frame.text) > MAX_TEXT {
            return Err(YamlError::TooMuchText { span });
        }
        match &mut frame.kind {
            OpenNodeKind::Sequence(items) => items.push(built.tree),
            OpenNodeKind::Map { entries, key } => match key.take() {
                None => *key = Some(key_text(&built.tree, entries)?),
                Some((name, at)) => {
                    let value = built.tree;
                    entries.insert(name, Entry { key: at, value });
                }
            },
        }
        Ok(())
    }

    fn span(&self, raw: RawSpan) -> Span {
        let number = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        let bytes = raw.byte_range().unwrap_or_default();
        Span {
            file: self.file,
            start: number(bytes.start),
            end: number(bytes.end),
            line: number(raw.start.line()),
            column: number(raw.start.col() + 1),
        }
    }

    fn syntax_error(&self, error: &ScanError) -> YamlError {
        let span = self.span(RawSpan::empty(*error.marker()));
        let help = match error.kind() {
            ErrorKind::RecursionLimitExceeded => return YamlError::TooDeep { span },
            ErrorKind::TabNotAllowed
            | ErrorKind::TabInBlockIndentation
            | ErrorKind::TabInIndentation
            | ErrorKind::TabAtBlockScalarStart => {
                Some("indent with spaces: YAML does not allow tabs")
            }
            ErrorKind::UnknownAnchor => Some(
                "define the anchor `&name` earlier in this document, or quote a text that begins \
                 with `*`",
            ),
            ErrorKind::UnexpectedCharacter { .. } => Some("quote the text"),
            _ => None,
        };
        let message = match error.kind() {
            ErrorKind::UnknownAnchor => "the alias has no anchor".to_owned(),
            _ => error.info(),
        };
        // Only a bracket is a token; the start of a block-style collection is empty.
        let open = self.frames.last().map(|frame| frame.span);
        YamlError::Syntax {
            span,
            message,
            open: open.filter(|open| open.end > open.start),
            help,
        }
    }
}

/// Returns the text of a key. Numbers and booleans keep their notation.
fn key_text(tree: &Tree, entries: &Map) -> Result<(Arc<str>, Span), YamlError> {
    let span = tree.span;
    let text = match &tree.value {
        Value::Scalar(scalar) if !tree.is_null() => Arc::clone(&scalar.text),
        _ => return Err(YamlError::InvalidKey { span }),
    };
    if &*text == "<<" {
        return Err(YamlError::MergeKey { span });
    }
    if let Some(first) = entries.get(&text) {
        return Err(YamlError::DuplicateKey {
            key: text.to_string(),
            span,
            first: first.key,
        });
    }
    Ok((text, span))
}

/// Resolves a scalar by its style and tag.
fn resolve_scalar(
    text: &str,
    style: ScalarStyle,
    tag: Option<&Tag>,
    span: Span,
) -> Result<Scalar, YamlError> {
    let kind = match tag {
        None if style == ScalarStyle::Plain => scalar::resolve(text),
        None => ScalarKind::String,
        Some(tag) => match tag.core_suffix() {
            Some(word) => {
                scalar::resolve_tagged(text, word).ok_or_else(|| YamlError::TagMismatch {
                    text: text.to_owned(),
                    tag: word.to_owned(),
                    span,
                })?
            }
            None => {
                return Err(YamlError::UnknownTag {
                    tag: tag.to_string(),
                    span,
                });
            }
        },
    };
    Ok(Scalar {
        text: text.into(),
        kind,
    })
}

/// Checks that a list or map has no tag, or the tag of its type.
fn check_collection_tag(tag: Option<&Tag>, expected: &str, span: Span) -> Result<(), YamlError> {
    match tag {
        Some(tag) if tag.core_suffix() != Some(expected) => Err(YamlError::UnknownTag {
            tag: tag.to_string(),
            span,
        }),
        _ => Ok(()),
    }
}
