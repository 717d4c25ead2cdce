//! Cases of a lab: a lab with the patches of one combination of axis values applied.

use std::borrow::Cow;
use std::sync::Arc;

use indexmap::IndexMap;

use crate::expectation::Row;
use crate::lab::reference::DocumentRef;
use crate::lab::{BalancerTarget, LabSpec};
use crate::objects::Objects;
use crate::objects::workloads::MADE_UID;
use crate::yaml::tree::{PathSegment, Tree};
use svclab_diagnostic::source::Span;

/// Lab patched with one combination of axis values, ready to be planned.
#[derive(Debug, Clone)]
pub struct Case {
    /// Identifier `LAB/AXIS=VALUE,AXIS2=VALUE2`; the lab's name if the lab has no axes.
    pub id: String,
    /// Name of the lab.
    pub lab: String,
    /// Value of each axis, in the order of the axes.
    pub values: IndexMap<String, String>,
    /// Patched lab. Cases with the same patches share it.
    pub spec: Arc<LabSpec>,
    /// Patched objects. Cases with the same patches share them.
    pub objects: Arc<Objects>,
    /// Index in `spec.expect` of the row for this case. In a lab with flows, svclab generates this
    /// row and the probes of the flows.
    pub row: usize,
    /// Index of the row for this case in the `expect` of each flow, by the flow's name.
    pub flows: IndexMap<String, usize>,
    /// State of the case after each of its steps.
    pub steps: Vec<CaseStep>,
    pub(crate) lab_tree: Tree,
}

/// State of a case after a step and all earlier steps.
#[derive(Debug, Clone)]
pub struct CaseStep {
    /// Name of the step.
    pub name: String,
    /// Patched lab.
    pub spec: Arc<LabSpec>,
    /// Patched objects.
    pub objects: Arc<Objects>,
    pub(crate) lab_tree: Tree,
}

impl Case {
    /// Returns the row of `expect` for this case.
    ///
    /// # Panics
    ///
    /// Never: [`Scenario::load`](crate::Scenario::load) builds no case without a row.
    #[must_use]
    pub fn expected(&self) -> &Row {
        &self.spec.expect[self.row]
    }

    /// Returns the pods and load balancers that svclab made before the first step, one line each.
    #[must_use]
    pub fn made_objects(&self) -> Vec<String> {
        let pods = self.objects.pods.iter().filter_map(|pod| {
            let mut owners = pod.value.metadata.owner_references.iter().flatten();
            let owner = owners.find(|owner| owner.uid == MADE_UID)?;
            let node = pod.value.spec.as_ref()?.node_name.as_deref()?;
            let ips = pod.value.status.iter().flat_map(|status| &status.pod_ips);
            let ips: Vec<&str> = ips.flatten().map(|ip| ip.ip.as_str()).collect();
            Some(format!(
                "pod/{}/{} of {} {} on {node}: {}",
                pod.namespace,
                pod.name,
                owner.kind,
                owner.name,
                ips.join(", ")
            ))
        });
        let balancers = &self.spec.load_balancers;
        let made = balancers.by_name.iter().filter(|_| balancers.is_auto);
        let made = made.map(|(name, balancer)| {
            let (target, checks) = match balancer.target {
                BalancerTarget::NodePort => ("node ports", " with health checks"),
                BalancerTarget::Pods => ("pods", ""),
            };
            let service = &balancer.service;
            format!("load balancer {name} of service {service} to its {target}{checks}")
        });
        pods.chain(made).collect()
    }

    /// Returns a patched document of the case. `None` if the case has no such object, or if the
    /// object is a derived endpoint slice.
    #[must_use]
    pub fn tree(&self, document: &DocumentRef) -> Option<&Tree> {
        match document {
            DocumentRef::Lab => Some(&self.lab_tree),
            DocumentRef::Object { .. } => self.objects.tree(document),
        }
    }

    /// Returns the case at each stage. Stages after a step have the documents of the step and no
    /// steps.
    pub fn stages(&self) -> impl Iterator<Item = Cow<'_, Self>> {
        let later = self
            .steps
            .iter()
            .map(|step| Cow::Owned(self.after_step(step)));
        std::iter::once(Cow::Borrowed(self)).chain(later)
    }

    /// Returns the case after a step, with the documents of the step and without steps.
    #[must_use]
    pub fn after_step(&self, after: &CaseStep) -> Self {
        Self {
            spec: Arc::clone(&after.spec),
            objects: Arc::clone(&after.objects),
            steps: Vec::new(),
            lab_tree: after.lab_tree.clone(),
            id: self.id.clone(),
            lab: self.lab.clone(),
            values: self.values.clone(),
            row: self.row,
            flows: self.flows.clone(),
        }
    }

    /// Returns the span of a value, in its document or in a patch. A path is, for example,
    /// `path!["spec", "ports", 0]`. If the value is absent, the result is the span of its nearest
    /// ancestor that is written.
    #[must_use]
    pub fn span(&self, document: &DocumentRef, path: &[PathSegment]) -> Option<Span> {
        let tree = self.tree(document)?;
        let node = tree.nearest(path);
        Some(match tree.node_at(path) {
            Some(found) => found.span,
            None => node.head_span(),
        })
    }

    /// Returns the span of a key of a map. The result is that of [`Case::span`] if `path` ends in a
    /// list index or the key is absent.
    #[must_use]
    pub fn key_span(&self, document: &DocumentRef, path: &[PathSegment]) -> Option<Span> {
        if let Some((PathSegment::Key(key), parent)) = path.split_last()
            && let Some(span) = self
                .tree(document)?
                .node_at(parent)
                .and_then(|map| map.key_span(key))
        {
            return Some(span);
        }
        self.span(document, path)
    }
}
