//! Describes problems of a cluster and their locations in the documents.

use std::fmt;

use svclab_scenario::reference::{DocumentRef, ObjectKind};
use svclab_scenario::tree::PathSegment;

/// A location in the documents of a lab.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DocumentPath {
    /// Document that contains the location.
    pub document: DocumentRef,
    /// Path from the root of the document. If the document does not contain the path, the nearest
    /// existing parent is meant.
    pub path: Vec<PathSegment>,
}

impl fmt::Display for DocumentPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.document)?;
        for step in &self.path {
            match step {
                PathSegment::Key(key) => write!(f, ".{key}")?,
                PathSegment::Index(at) => write!(f, "[{at}]")?,
            }
        }
        Ok(())
    }
}

/// An error in the documents of a lab.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// Location of the error.
    pub location: DocumentPath,
    /// Error message.
    pub message: String,
    /// Suggested action.
    pub help: Option<String>,
    /// Whether the key itself is wrong; otherwise its value is.
    pub is_key: bool,
    /// Index of the stage in which the problem occurs.
    pub stage: usize,
}

impl Problem {
    /// Creates a problem at a path of a document.
    pub fn new<const N: usize>(
        document: DocumentRef,
        path: [PathSegment; N],
        message: impl Into<String>,
    ) -> Self {
        Self {
            location: DocumentPath {
                document,
                path: path.into(),
            },
            message: message.into(),
            help: None,
            is_key: false,
            stage: 0,
        }
    }

    /// Creates a problem at a path of the lab document, given as a vector.
    pub fn at_path(path: Vec<PathSegment>, message: impl Into<String>) -> Self {
        let mut problem = Self::in_lab([], message);
        problem.location.path = path;
        problem
    }

    /// Creates a problem at a path of the lab document.
    pub fn in_lab<const N: usize>(path: [PathSegment; N], message: impl Into<String>) -> Self {
        Self::new(DocumentRef::Lab, path, message)
    }

    /// Marks the key at the location as wrong, instead of its value.
    #[must_use]
    pub fn at_key(mut self) -> Self {
        self.is_key = true;
        self
    }

    /// Whether two problems have the same location and message, regardless of the stage.
    #[must_use]
    pub fn is_same_error(&self, other: &Self) -> bool {
        (&self.location, &self.message) == (&other.location, &other.message)
    }

    /// Sets the index of the stage in which the problem occurs.
    #[must_use]
    pub fn at_stage(mut self, stage: usize) -> Self {
        self.stage = stage;
        self
    }

    /// Sets the suggested action.
    #[must_use]
    pub fn with_help(mut self, help: impl Into<Option<String>>) -> Self {
        self.help = help.into();
        self
    }
}

/// Returns the reference to the document of an object.
pub(super) fn object_ref(
    kind: ObjectKind,
    metadata: &k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta,
) -> DocumentRef {
    DocumentRef::object(
        kind,
        metadata.namespace.as_deref().unwrap_or("default"),
        metadata.name.as_deref().unwrap_or_default(),
    )
}

/// Builds a path from keys and indices.
#[macro_export]
macro_rules! place {
    ($($step:expr),* $(,)?) => { [$(svclab_scenario::tree::PathSegment::from($step)),*] };
}
pub use crate::place;
