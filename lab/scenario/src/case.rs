//! One case: a lab with the patches of one combination of axis values applied.

use std::sync::Arc;

use indexmap::IndexMap;

use super::expectation::Row;
use super::lab::LabSpec;
use super::objects::Objects;
use super::reference::DocumentRef;
use super::tree::{Step, Tree};
use svclab_diagnostic::source::Span;

/// One combination of a lab's axes, ready to be made a cluster of.
#[derive(Debug, Clone)]
pub struct Case {
    /// `lab/axis=value,axis2=value2`; the lab's name when it has no axes.
    pub id: String,
    /// The lab's name.
    pub lab: String,
    /// The value of each axis, in the order of the axes.
    pub values: IndexMap<String, String>,
    /// The lab, patched. Cases with the same patches share it.
    pub spec: Arc<LabSpec>,
    /// The objects, patched. Cases with the same patches share them.
    pub objects: Arc<Objects>,
    /// Which row of `spec.expect` is for this case. In a lab with flows it is one that
    /// was added, and so are the flows' probes.
    pub row: usize,
    /// For each flow, by its name, which row of its `expect` is for this case.
    pub flows: IndexMap<String, usize>,
    /// What it is after each of its steps.
    pub steps: Vec<CaseStep>,
    pub(super) lab_tree: Tree,
}

/// What a case is after a step and those before it.
#[derive(Debug, Clone)]
pub struct CaseStep {
    /// The step's name.
    pub name: String,
    /// The lab, patched.
    pub spec: Arc<LabSpec>,
    /// The objects, patched.
    pub objects: Arc<Objects>,
    pub(super) lab_tree: Tree,
}

impl Case {
    /// What is expected of this case.
    ///
    /// # Panics
    ///
    /// Never: a case without a row is not built.
    #[must_use]
    pub fn expected(&self) -> &Row {
        &self.spec.expect[self.row]
    }

    /// A document as the case has it, patched; `None` when it has no such object
    /// or the object is a derived endpoint slice.
    #[must_use]
    pub fn tree(&self, document: &DocumentRef) -> Option<&Tree> {
        match document {
            DocumentRef::Lab => Some(&self.lab_tree),
            DocumentRef::Object { .. } => self.objects.tree(document),
        }
    }

    /// The case as it is after a step, by the step's number from 0: with the step's
    /// documents in place of its own, and without steps. `None` if there is no such step.
    #[must_use]
    pub fn after(&self, step: usize) -> Option<Self> {
        let after = self.steps.get(step)?;
        Some(Self {
            spec: Arc::clone(&after.spec),
            objects: Arc::clone(&after.objects),
            steps: Vec::new(),
            lab_tree: after.lab_tree.clone(),
            id: self.id.clone(),
            lab: self.lab.clone(),
            values: self.values.clone(),
            row: self.row,
            flows: self.flows.clone(),
        })
    }

    /// Where a value was written, in the document or in a patch: with
    /// `path!["spec", "ports", 0]`. When the value was left out, the nearest place
    /// on the way to it that was written.
    #[must_use]
    pub fn span(&self, document: &DocumentRef, path: &[Step]) -> Option<Span> {
        let tree = self.tree(document)?;
        let node = tree.nearest(path);
        Some(match tree.at(path) {
            Some(found) => found.span,
            None => node.head(),
        })
    }

    /// Where the key of a map's value was written; as [`Case::span`] when `path`
    /// ends in a list or was left out.
    #[must_use]
    pub fn key_span(&self, document: &DocumentRef, path: &[Step]) -> Option<Span> {
        if let Some((Step::Key(key), parent)) = path.split_last()
            && let Some(span) = self
                .tree(document)?
                .at(parent)
                .and_then(|map| map.key_span(key))
        {
            return Some(span);
        }
        self.span(document, path)
    }
}
