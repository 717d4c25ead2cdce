//! Refuses fields of a case's lab document that have no effect because of other fields.

use super::lab::{FabricKind, LabSpec};
use super::sink::Sink;
use super::tree::{Step, Tree};
use svclab_diagnostic::Diagnostic;

/// Checks the patched lab document of a case.
pub(super) fn check_unused_fields(spec: &LabSpec, tree: &Tree, sink: &mut Sink) {
    let mut unused = |path: &[Step], message: String, help: &str| {
        let key_span = match path.split_last() {
            Some((Step::Key(key), parent)) => tree.nearest(parent).key_span(key),
            _ => None,
        };
        let span = key_span.unwrap_or_else(|| tree.nearest(path).head_span());
        sink.push(
            Diagnostic::error(message)
                .at(span, "changes nothing")
                .with_help(help),
        );
    };
    if spec.fabric.kind == FabricKind::Routed && spec.fabric.subnet.is_some() {
        unused(
            crate::path!["spec", "fabric", "subnet"],
            "a routed fabric has no subnet of its own".to_owned(),
            "write `type: switched`, or the subnet of each node under `nodes`",
        );
    }
    if spec.flows.is_empty() {
        if spec.connections != super::probe::default_connections() {
            unused(
                crate::path!["spec", "connections"],
                "`connections` of the lab are those of flows, and there is no flow".to_owned(),
                "write `connections` in each probe",
            );
        }
        if spec.columns.is_some() {
            unused(
                crate::path!["spec", "columns"],
                "`columns` are those of the table of flows, and there is no flow".to_owned(),
                "leave it out",
            );
        }
    }
    for (name, node) in &spec.nodes {
        if node.dump.is_none() {
            if node.lenient {
                unused(
                    crate::path!["spec", "nodes", name.as_str(), "lenient"],
                    format!("`lenient` is said of a dump, and node `{name}` has none"),
                    "leave it out, or name the node's `dump`",
                );
            }
            continue;
        }
        let lines = [
            (
                "leftovers",
                node.leftovers != super::lab::Leftovers::default(),
            ),
            ("byHand", !node.by_hand.iptables.is_empty()),
        ];
        for (field, _) in lines.iter().filter(|(_, is_written)| *is_written) {
            unused(
                crate::path!["spec", "nodes", name.as_str(), *field],
                format!("node `{name}` has the rules of its dump and not those of `{field}`"),
                "leave it out, or leave out `dump`; `byHand: {commands: …}` are run beside a dump",
            );
        }
    }
}
