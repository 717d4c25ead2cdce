//! Reports fields of a case's lab document that have no effect because of other fields.

use crate::lab::{FabricKind, LabSpec};
use crate::sink::Sink;
use crate::yaml::tree::{PathSegment, Tree};
use svclab_diagnostic::Diagnostic;

/// Checks the patched lab document of a case.
pub(crate) fn check_unused_fields(spec: &LabSpec, tree: &Tree, sink: &mut Sink) {
    warn_ignored_by_program(spec, tree, sink);
    let mut unused = |path: &[PathSegment], message: String, help: &str| {
        sink.push(with_no_effect(Diagnostic::error(message), tree, path).with_help(help));
    };
    if spec.fabric.kind == FabricKind::Routed && spec.fabric.subnet.is_some() {
        unused(
            crate::path!["spec", "fabric", "subnet"],
            "a routed fabric has no subnet".to_owned(),
            "write `type: switched`, or the subnet of each node under `nodes`",
        );
    }
    if spec.flows.is_empty() {
        if spec.connections != crate::lab::probe::default_connections() {
            unused(
                crate::path!["spec", "connections"],
                "`connections` of the lab applies only to flows, but the lab has no flows"
                    .to_owned(),
                "write `connections` in each probe",
            );
        }
        if spec.columns.is_some() {
            unused(
                crate::path!["spec", "columns"],
                "`columns` applies only to the table of flows, but the lab has no flows".to_owned(),
                "remove it",
            );
        }
    }
    for (name, node) in &spec.nodes {
        if node.dump.is_none() {
            if node.lenient {
                unused(
                    crate::path!["spec", "nodes", name.as_str(), "lenient"],
                    format!("`lenient` requires a dump, but node `{name}` has none"),
                    "remove it, or add `dump` to the node",
                );
            }
            continue;
        }
        let lines = [
            (
                "leftovers",
                node.leftovers != crate::lab::Leftovers::default(),
            ),
            ("byHand", !node.by_hand.iptables.is_empty()),
        ];
        for (field, _) in lines.iter().filter(|(_, is_written)| *is_written) {
            unused(
                crate::path!["spec", "nodes", name.as_str(), *field],
                format!("node `{name}` has the rules of its dump, not those of `{field}`"),
                "remove it or `dump`; with a dump, only `byHand: {commands: …}` has an effect",
            );
        }
    }
}

/// Warns about fields that describe the node of generated rules: a kube-proxy program detects both
/// by itself (kubernetes v1.36.2, `pkg/util/iptables/iptables.go`, `HasRandomFully`, and
/// `pkg/proxy/iptables/proxier.go`, `nfAcctCounters`).
fn warn_ignored_by_program(spec: &LabSpec, tree: &Tree, sink: &mut Sink) {
    let of_lab = spec.kube_proxy.iter();
    let of_lab = of_lab.map(|proxy| (crate::path!["spec", "kubeProxy"].to_vec(), proxy));
    let of_nodes = spec.nodes.iter().filter_map(|(name, node)| {
        let path = crate::path!["spec", "nodes", name.as_str(), "kubeProxy"];
        Some((path.to_vec(), node.kube_proxy.as_ref()?))
    });
    let proxies = of_lab.chain(of_nodes);
    for (path, proxy) in proxies.filter(|(_, proxy)| proxy.binary.is_some()) {
        let fields = [
            ("randomFully", proxy.random_fully),
            ("accounting", proxy.accounting),
        ];
        for (field, _) in fields.into_iter().filter(|(_, is_default)| !is_default) {
            let path = [path.as_slice(), &[field.into()]].concat();
            let warning = Diagnostic::warning(format!(
                "the program in `binary` ignores `{field}`: it detects what the node supports"
            ));
            sink.push(with_no_effect(warning, tree, &path).with_help("remove it"));
        }
    }
}

fn with_no_effect(diagnostic: Diagnostic, tree: &Tree, path: &[PathSegment]) -> Diagnostic {
    let key_span = match path.split_last() {
        Some((PathSegment::Key(key), parent)) => tree.nearest(parent).key_span(key),
        _ => None,
    };
    let span = key_span.unwrap_or_else(|| tree.nearest(path).head_span());
    diagnostic.with_position(span, "no effect")
}
