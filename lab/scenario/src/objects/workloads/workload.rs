//! Decodes and checks workloads.

use std::fmt;

use k8s_openapi::api::apps::v1::{DaemonSet, Deployment, ReplicaSet, StatefulSet};
use k8s_openapi::api::core::v1::{PodSpec, PodTemplateSpec, Toleration};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};
use serde::de::DeserializeOwned;

use crate::decode::lenient;
use crate::objects::admission::check_selector;
use crate::objects::documents::{UnmodelledObject, name_and_namespace};
use crate::objects::selector::matches;
use crate::sink::Sink;
use crate::yaml::tree::{PathSegment, Tree};
use svclab_diagnostic::Diagnostic;
use svclab_diagnostic::source::Span;

/// Workload whose pods svclab writes.
pub(super) struct Workload {
    /// Value of `kind`.
    pub kind: String,
    pub namespace: String,
    pub name: String,
    pub selector: LabelSelector,
    /// Number of pods. `None` for one pod on each node.
    pub replicas: Option<usize>,
    /// Ordinal number of the first pod.
    pub first_ordinal: usize,
    pub template: PodTemplateSpec,
    pub tree: Tree,
    metadata: ObjectMeta,
}

/// Fields of the specification of a workload.
struct Fields {
    selector: LabelSelector,
    replicas: Option<i32>,
    first_ordinal: i32,
    template: PodTemplateSpec,
}

impl Workload {
    /// Decodes a workload and checks it as the API server does.
    pub(super) fn decode(object: &UnmodelledObject, sink: &mut Sink) -> Result<Self, Diagnostic> {
        let UnmodelledObject { kind, tree, .. } = object;
        let (name, namespace) = name_and_namespace(kind, true, tree)?;
        if tree.node_at(crate::path!["spec", "selector"]).is_none() {
            let span = tree.nearest(crate::path!["spec"]).head_span();
            let error = Diagnostic::error(format!("this {kind} has no `spec.selector`"));
            return Err(error.with_position(span, "`selector` is missing here"));
        }
        let (metadata, fields) = decode_fields(kind, tree, sink)?;
        let path = crate::path!["spec", "selector"];
        check_selector(&fields.selector, tree, path)?;
        let labels = fields.template.metadata.as_ref();
        let labels = labels.and_then(|metadata| metadata.labels.as_ref());
        let is_empty = fields.selector == LabelSelector::default();
        if is_empty || !matches(&fields.selector, labels) {
            let path = crate::path!["spec", "template", "metadata", "labels"];
            let span = tree.nearest(path).head_span();
            return Err(Diagnostic::error(format!(
                "the selector of {kind} `{namespace}/{name}` does not match the labels of its pods"
            ))
            .with_position(span, "labels of the pods")
            .with_related(
                tree.nearest(crate::path!["spec", "selector"]).head_span(),
                "selector",
            ));
        }
        let count = |field: &[PathSegment], number: i32| {
            usize::try_from(number).map_err(|_| {
                let span = tree.nearest(field).span;
                Diagnostic::error(format!("`{number}` is not a number of pods"))
                    .with_position(span, "expected a number from 0")
            })
        };
        let replicas = match kind.as_str() {
            "DaemonSet" => None,
            _ => Some(count(
                crate::path!["spec", "replicas"],
                fields.replicas.unwrap_or(1),
            )?),
        };
        let first_ordinal = count(
            crate::path!["spec", "ordinals", "start"],
            fields.first_ordinal,
        )?;
        Ok(Self {
            kind: kind.clone(),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            selector: fields.selector,
            replicas,
            first_ordinal,
            template: fields.template,
            tree: tree.clone(),
            metadata,
        })
    }

    /// Returns the span of the node at a path, or of its nearest ancestor.
    pub(super) fn span(&self, path: &[PathSegment]) -> Span {
        self.tree.nearest(path).head_span()
    }

    /// Returns the name of the `Deployment` that a `ReplicaSet` belongs to.
    pub(super) fn deployment(&self) -> Option<String> {
        let owners = self.metadata.owner_references.iter().flatten();
        let mut owners = owners.filter(|owner| owner.kind == "Deployment");
        (self.kind == "ReplicaSet").then(|| owners.next().map(|owner| owner.name.clone()))?
    }

    pub(super) fn pod_spec(&self) -> Option<&PodSpec> {
        self.template.spec.as_ref()
    }

    pub(super) fn is_on_host_network(&self) -> bool {
        self.pod_spec().and_then(|spec| spec.host_network) == Some(true)
    }

    /// Whether no two pods can run on the same node, because each has ports of its node.
    pub(super) fn holds_node_ports(&self) -> bool {
        let containers = self
            .pod_spec()
            .into_iter()
            .flat_map(|spec| &spec.containers);
        let mut ports = containers.flat_map(|container| container.ports.iter().flatten());
        if self.is_on_host_network() {
            ports.next().is_some()
        } else {
            ports.any(|port| port.host_port.is_some_and(|number| number != 0))
        }
    }

    /// Returns the tolerations of the pods, with those that the controller of `DaemonSet`s adds
    /// (kubernetes v1.36 `pkg/controller/daemon/util/daemonset_util.go`,
    /// `AddOrUpdateDaemonPodTolerations`).
    pub(super) fn tolerations(&self) -> Vec<Toleration> {
        let spec = self.pod_spec();
        let own = spec.and_then(|spec| spec.tolerations.clone());
        let mut tolerations = own.unwrap_or_default();
        if self.kind == "DaemonSet" {
            const ADDED: [(&str, &str); 7] = [
                ("not-ready", "NoExecute"),
                ("unreachable", "NoExecute"),
                ("disk-pressure", "NoSchedule"),
                ("memory-pressure", "NoSchedule"),
                ("pid-pressure", "NoSchedule"),
                ("unschedulable", "NoSchedule"),
                ("network-unavailable", "NoSchedule"),
            ];
            let added = if self.is_on_host_network() {
                &ADDED[..]
            } else {
                &ADDED[..6]
            };
            tolerations.extend(added.iter().map(|(key, effect)| Toleration {
                key: Some(format!("node.kubernetes.io/{key}")),
                operator: Some("Exists".to_owned()),
                effect: Some((*effect).to_owned()),
                ..Toleration::default()
            }));
        }
        tolerations
    }

    /// Warns about fields that would place the pods on other nodes.
    pub(super) fn warn_unmodelled(&self, sink: &mut Sink) {
        for field in ["affinity", "topologySpreadConstraints"] {
            let path = crate::path!["spec", "template", "spec"];
            let spec = self.tree.nearest(path);
            let Some(span) = spec
                .get(field)
                .filter(|value| !value.is_null())
                .and_then(|_| spec.key_span(field))
            else {
                continue;
            };
            let message = format!("`{field}` of {self} is not modelled");
            sink.push(
                Diagnostic::warning(message)
                    .with_position(span, "svclab spreads the pods in the order of the nodes")
                    .with_help("to place them otherwise, write the pods, each with its node"),
            );
        }
    }
}

impl fmt::Display for Workload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} `{}/{}`", self.kind, self.namespace, self.name)
    }
}

/// Decodes the fields of a workload. Unknown fields go to `sink`.
fn decode_fields(
    kind: &str,
    tree: &Tree,
    sink: &mut Sink,
) -> Result<(ObjectMeta, Fields), Diagnostic> {
    Ok(match kind {
        "Deployment" => {
            let object: Deployment = decode(tree, sink)?;
            let spec = object.spec.unwrap_or_default();
            let fields = Fields {
                selector: spec.selector,
                replicas: spec.replicas,
                first_ordinal: 0,
                template: spec.template,
            };
            (object.metadata, fields)
        }
        "ReplicaSet" => {
            let object: ReplicaSet = decode(tree, sink)?;
            let spec = object.spec.unwrap_or_default();
            let fields = Fields {
                selector: spec.selector,
                replicas: spec.replicas,
                first_ordinal: 0,
                template: spec.template.unwrap_or_default(),
            };
            (object.metadata, fields)
        }
        "StatefulSet" => {
            let object: StatefulSet = decode(tree, sink)?;
            let spec = object.spec.unwrap_or_default();
            let ordinals = spec.ordinals.unwrap_or_default();
            let fields = Fields {
                selector: spec.selector,
                replicas: spec.replicas,
                first_ordinal: ordinals.start.unwrap_or_default(),
                template: spec.template,
            };
            (object.metadata, fields)
        }
        _ => {
            let object: DaemonSet = decode(tree, sink)?;
            let spec = object.spec.unwrap_or_default();
            let fields = Fields {
                selector: spec.selector,
                replicas: None,
                first_ordinal: 0,
                template: spec.template,
            };
            (object.metadata, fields)
        }
    })
}

fn decode<T: DeserializeOwned>(tree: &Tree, sink: &mut Sink) -> Result<T, Diagnostic> {
    let (object, ignored) = lenient::<T>(tree)?;
    sink.extend(ignored.into_iter().map(Diagnostic::from));
    Ok(object)
}
