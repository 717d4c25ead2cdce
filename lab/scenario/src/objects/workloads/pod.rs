//! Builds the document of a pod from the template of its workload. Values of the template keep
//! their spans, so diagnostics point at the template.

use std::net::IpAddr;
use std::sync::Arc;

use crate::objects::documents::name_span;
use crate::objects::workloads::workload::Workload;
use crate::yaml::merge::apply_merge_patch;
use crate::yaml::tree::{Entry, Scalar, ScalarKind, Tree, Value};
use svclab_diagnostic::source::Span;

/// Value of `uid` in the reference of a pod to its owner if svclab wrote the pod.
pub(crate) const MADE_UID: &str = "svclab";

/// Builds values whose span is that of the workload's name.
struct Builder(Span);

impl Builder {
    fn map<const N: usize>(&self, entries: [(&str, Tree); N]) -> Tree {
        let entries = entries.into_iter().map(|(key, value)| {
            let key_span = self.0;
            let entry = Entry {
                key: key_span,
                value,
            };
            (Arc::from(key), entry)
        });
        self.tree(Value::Map(Arc::new(entries.collect())))
    }

    fn list(&self, items: Vec<Tree>) -> Tree {
        self.tree(Value::Sequence(Arc::new(items)))
    }

    fn text(&self, text: &str) -> Tree {
        self.tree(Value::Scalar(Scalar {
            text: text.into(),
            kind: ScalarKind::String,
        }))
    }

    fn tree(&self, value: Value) -> Tree {
        Tree {
            span: self.0,
            value,
        }
    }
}

/// Returns the pod of a workload on a node. Its containers are ready.
pub(super) fn pod_tree(
    workload: &Workload,
    ordinal: usize,
    node: &str,
    addresses: &[IpAddr],
) -> Tree {
    let new = Builder(name_span(&workload.tree));
    let name = match workload.replicas {
        Some(_) => format!("{}-{ordinal}", workload.name),
        None => format!("{}-{node}", workload.name),
    };
    // Labels of the controller (kubernetes v1.36 `pkg/controller/statefulset/stateful_set_utils.go`,
    // `initIdentity` and `updateIdentity`).
    let labels = if workload.kind == "StatefulSet" {
        new.map([
            ("statefulset.kubernetes.io/pod-name", new.text(&name)),
            (
                "apps.kubernetes.io/pod-index",
                new.text(&ordinal.to_string()),
            ),
        ])
    } else {
        new.map([])
    };
    let owner = new.map([
        ("apiVersion", new.text("apps/v1")),
        ("kind", new.text(&workload.kind)),
        ("name", new.text(&workload.name)),
        ("uid", new.text(MADE_UID)),
    ]);
    let ready = new.map([("type", new.text("Ready")), ("status", new.text("True"))]);
    let ips = addresses
        .iter()
        .map(|address| new.map([("ip", new.text(&address.to_string()))]));
    let overlay = new.map([
        ("apiVersion", new.text("v1")),
        ("kind", new.text("Pod")),
        (
            "metadata",
            new.map([
                ("name", new.text(&name)),
                ("namespace", new.text(&workload.namespace)),
                ("labels", labels),
                ("ownerReferences", new.list(vec![owner])),
            ]),
        ),
        ("spec", new.map([("nodeName", new.text(node))])),
        (
            "status",
            new.map([
                ("phase", new.text("Running")),
                ("conditions", new.list(vec![ready])),
                ("podIPs", new.list(ips.collect())),
            ]),
        ),
    ]);
    let template = workload.tree.node_at(crate::path!["spec", "template"]);
    let template = template.cloned().unwrap_or_else(|| new.map([]));
    apply_merge_patch(&template, &overlay)
}
