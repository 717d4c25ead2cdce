//! What is wrong with a cluster, and where it was written.

use std::fmt;

use svclab_scenario::reference::{DocumentRef, ObjectKind};
use svclab_scenario::tree::Step;

/// A place in what a user wrote.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct At {
    /// The document.
    pub document: DocumentRef,
    /// The way down from its root. Where it was not written, the nearest place
    /// above it that was.
    pub path: Vec<Step>,
}

impl fmt::Display for At {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.document)?;
        for step in &self.path {
            match step {
                Step::Key(key) => write!(f, ".{key}")?,
                Step::Index(at) => write!(f, "[{at}]")?,
            }
        }
        Ok(())
    }
}

/// Something that cannot be built.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// Where it was written.
    pub at: At,
    /// What is wrong.
    pub message: String,
    /// What to do about it.
    pub help: Option<String>,
    /// Whether it is the key that is wrong, not its value.
    pub key: bool,
    /// The step, counted from 0, after which it is wrong; none if it is from the
    /// beginning.
    pub step: Option<usize>,
}

impl Problem {
    /// A problem at a place of a document.
    pub fn new<const N: usize>(
        document: DocumentRef,
        path: [Step; N],
        message: impl Into<String>,
    ) -> Self {
        Self {
            at: At {
                document,
                path: path.into(),
            },
            message: message.into(),
            help: None,
            key: false,
            step: None,
        }
    }

    /// A problem at a place of the lab document.
    pub fn at_path(path: Vec<Step>, message: impl Into<String>) -> Self {
        let mut problem = Self::in_lab([], message);
        problem.at.path = path;
        problem
    }

    /// A problem in the lab document.
    pub fn in_lab<const N: usize>(path: [Step; N], message: impl Into<String>) -> Self {
        Self::new(DocumentRef::Lab, path, message)
    }

    /// Says that it is the key at that place that is wrong.
    #[must_use]
    pub fn of_key(mut self) -> Self {
        self.key = true;
        self
    }

    /// Whether the same is wrong at the same place, after whichever step.
    #[must_use]
    pub fn is_as(&self, other: &Self) -> bool {
        (&self.at, &self.message) == (&other.at, &other.message)
    }

    /// Says that it is so after a step, counted from 0.
    #[must_use]
    pub fn after(mut self, step: usize) -> Self {
        self.step = Some(step);
        self
    }

    /// Says what to do about it.
    #[must_use]
    pub fn help(mut self, help: impl Into<Option<String>>) -> Self {
        self.help = help.into();
        self
    }
}

/// The document that an object is.
pub(super) fn object_of(
    kind: ObjectKind,
    metadata: &k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta,
) -> DocumentRef {
    DocumentRef::object(
        kind,
        metadata.namespace.as_deref().unwrap_or("default"),
        metadata.name.as_deref().unwrap_or_default(),
    )
}

/// A path from keys and positions.
#[macro_export]
macro_rules! place {
    ($($step:expr),* $(,)?) => { [$(svclab_scenario::tree::Step::from($step)),*] };
}
pub use crate::place;
