//! Writes the pods of workloads: of each `Deployment`, `ReplicaSet`, `StatefulSet` and `DaemonSet`
//! that has no pod among the objects. The pods become documents before any patch applies, so all
//! later code treats them like written pods.
//!
//! - `ReplicaSet`s of a `Deployment` among the objects have no pods of their own.
//! - A pod has the name of its workload and an ordinal number, or the name of its node for a
//!   `DaemonSet`.
//! - The pods are on the nodes that the scheduler permits, in the order of the nodes.
//! - The addresses are the lowest free ones of the nodes' podCIDRs.

mod nodes;
mod pod;
#[cfg(test)]
mod tests;
mod workload;

use std::collections::{BTreeMap, HashSet};

use crate::lab::reference::{DocumentRef, ObjectKind, WORKLOAD_KINDS};
use crate::objects::MAX_PODS;
use crate::objects::documents::{Documents, UnmodelledObject, name_span};
use crate::objects::selector::matches;
use crate::objects::workloads::nodes::Nodes;
use crate::objects::workloads::pod::pod_tree;
use crate::objects::workloads::workload::Workload;
use crate::sink::Sink;
use crate::yaml::tree::Tree;
use svclab_diagnostic::Diagnostic;

pub(crate) use pod::MADE_UID;

/// Adds the pods of workloads to the documents, and removes these workloads from the objects that
/// svclab does not model. Without nodes, nothing changes: a file of objects may have no cluster.
pub(crate) fn add_pods(documents: &mut Documents, sink: &mut Sink) {
    if !documents.unmodelled.iter().any(is_workload) {
        return;
    }
    let mut nodes = Nodes::new(&documents.objects);
    if nodes.is_empty() {
        return;
    }
    let kept = kinds_not_modelled(&documents.labs);
    let (workloads, others) = std::mem::take(&mut documents.unmodelled)
        .into_iter()
        .partition(|object| is_workload(object) && !kept.contains(&object.kind));
    documents.unmodelled = others;
    let workloads: Vec<(UnmodelledObject, Workload)> = workloads
        .into_iter()
        .filter_map(|object| match Workload::decode(&object, sink) {
            Ok(workload) => Some((object, workload)),
            Err(error) => {
                sink.push(error);
                None
            }
        })
        .collect();
    let written = WrittenPods::new(documents);
    let deployments: HashSet<(String, String)> = workloads
        .iter()
        .filter(|(_, workload)| workload.kind == "Deployment")
        .map(|(_, workload)| (workload.namespace.clone(), workload.name.clone()))
        .collect();
    let mut left = MAX_PODS;
    for (object, workload) in workloads {
        let is_part = workload
            .deployment()
            .is_some_and(|name| deployments.contains(&(workload.namespace.clone(), name)));
        if is_part || written.has_pod_of(&workload) {
            continue;
        }
        match make_pods(&workload, &mut nodes, &mut left) {
            Ok(pods) => {
                workload.warn_unmodelled(sink);
                add_documents(documents, &workload, pods, sink);
                forget_ignored(documents, &object.kind);
            }
            Err(problem) => {
                let is_warning = !problem.is_error();
                sink.push(problem);
                if is_warning {
                    // The warning replaces the one about the kind.
                    forget_ignored(documents, &object.kind);
                }
            }
        }
    }
}

/// Whether svclab writes the pods of an object.
pub(crate) fn is_workload(object: &UnmodelledObject) -> bool {
    object.tree.get("apiVersion").and_then(Tree::as_str) == Some("apps/v1")
        && WORKLOAD_KINDS.contains(&object.kind.as_str())
}

/// Returns the kinds that a lab lists in `notModelled`.
fn kinds_not_modelled(labs: &[Tree]) -> HashSet<String> {
    let lists = labs.iter().filter_map(|lab| {
        lab.node_at(crate::path!["spec", "notModelled"])?
            .as_sequence()
    });
    let kinds = lists.flatten().filter_map(Tree::as_str);
    kinds.map(str::to_owned).collect()
}

/// Removes an object of a kind from the number of objects that are not used.
fn forget_ignored(documents: &mut Documents, kind: &str) {
    if let Some(count) = documents.ignored.get_mut(kind) {
        *count -= 1;
        if *count == 0 {
            documents.ignored.remove(kind);
        }
    }
}

/// Returns the pods of a workload. The diagnostic states why there are none.
fn make_pods(
    workload: &Workload,
    nodes: &mut Nodes,
    left: &mut usize,
) -> Result<Vec<Tree>, Diagnostic> {
    if workload.replicas == Some(0) {
        return Ok(Vec::new());
    }
    let eligible = nodes.eligible(workload)?;
    let count = workload.replicas.unwrap_or(eligible.len());
    if count > *left {
        let message = format!("{workload} has {count} replicas, more than {left} further pods");
        let span = workload.span(crate::path!["spec", "replicas"]);
        return Err(Diagnostic::error(message).with_position(span, ""));
    }
    if workload.holds_node_ports() && count > eligible.len() {
        let message = format!(
            "{workload} needs {count} nodes for its {count} pods, but {} can run one",
            eligible.len()
        );
        let span = workload.span(crate::path!["spec", "replicas"]);
        return Err(Diagnostic::error(message)
            .with_position(span, "each pod has ports of its node")
            .with_help("write fewer `replicas`"));
    }
    *left -= count;
    let mut pods = Vec::with_capacity(count);
    for number in 0..count {
        let node = eligible[number % eligible.len()];
        let addresses = if workload.is_on_host_network() {
            Vec::new()
        } else {
            nodes.take_addresses(node, workload)?
        };
        let ordinal = workload.first_ordinal + number;
        pods.push(pod_tree(workload, ordinal, nodes.name(node), &addresses));
    }
    Ok(pods)
}

/// Adds the pods of a workload to the documents.
fn add_documents(documents: &mut Documents, workload: &Workload, pods: Vec<Tree>, sink: &mut Sink) {
    for tree in pods {
        let name = tree.node_at(crate::path!["metadata", "name"]);
        let name = name.and_then(Tree::as_str).unwrap_or_default();
        let reference = DocumentRef::object(ObjectKind::Pod, &workload.namespace, name);
        if let Some(other) = documents.objects.get(&reference) {
            sink.push(
                Diagnostic::error(format!("the pod `{name}` of {workload} already exists"))
                    .with_position(name_span(&tree), "")
                    .with_related(name_span(other), "this object has the same name"),
            );
            return;
        }
        documents.objects.insert(reference, tree);
    }
}

/// Labels and owners of the written pods that have not ended.
struct WrittenPods {
    pods: Vec<WrittenPod>,
}

struct WrittenPod {
    namespace: String,
    labels: BTreeMap<String, String>,
    /// Kinds and names of the owners.
    owners: Vec<(String, String)>,
}

impl WrittenPods {
    fn new(documents: &Documents) -> Self {
        let text = |tree: &Tree, key: &str| tree.get(key).and_then(Tree::as_str).map(str::to_owned);
        let pods = documents.objects.iter().filter_map(|(reference, tree)| {
            let DocumentRef::Object {
                kind: ObjectKind::Pod,
                namespace,
                ..
            } = reference
            else {
                return None;
            };
            let phase = tree.get("status").and_then(|status| text(status, "phase"));
            if matches!(phase.as_deref(), Some("Failed" | "Succeeded")) {
                return None;
            }
            let metadata = tree.get("metadata")?;
            let labels = metadata.get("labels").and_then(Tree::as_map);
            let labels = labels.into_iter().flatten();
            let owners = metadata.get("ownerReferences").and_then(Tree::as_sequence);
            let owners = owners.unwrap_or_default().iter();
            Some(WrittenPod {
                namespace: namespace.clone(),
                labels: labels
                    .filter_map(|(key, entry)| {
                        Some((key.to_string(), entry.value.as_str()?.to_owned()))
                    })
                    .collect(),
                owners: owners
                    .filter_map(|owner| Some((text(owner, "kind")?, text(owner, "name")?)))
                    .collect(),
            })
        });
        Self {
            pods: pods.collect(),
        }
    }

    fn has_pod_of(&self, workload: &Workload) -> bool {
        self.pods.iter().any(|pod| {
            let is_owned = pod
                .owners
                .iter()
                .any(|(kind, name)| *kind == workload.kind && *name == workload.name);
            pod.namespace == workload.namespace
                && (is_owned || matches(&workload.selector, Some(&pod.labels)))
        })
    }
}
