//! Size limits of a case. They are far above any realistic lab, and low enough that a lab neither
//! exhausts the machine's memory nor runs for a day.

use super::lab::LabSpec;
use super::node_spec::ByHand;
use super::objects::Objects;
use super::sink::Sink;
use super::tree::{Scalar, Tree, Value, shortened};
use svclab_diagnostic::Diagnostic;
use svclab_diagnostic::printable::is_control;
use svclab_diagnostic::source::Span;

/// Maximum number of nodes in a cluster.
pub const MAX_NODES: usize = 256;

/// Maximum number of pods in a cluster.
pub const MAX_PODS: usize = 4096;

/// Maximum number of services in a cluster.
pub const MAX_SERVICES: usize = 5000;

/// Maximum number of endpoints in all slices of a cluster.
pub const MAX_ENDPOINTS: usize = 20_000;

/// Maximum of the sum of service ports and endpoints, times the number of nodes. The kube-proxy of
/// each node writes rules for each of them.
pub const MAX_WRITTEN: usize = 1_000_000;

/// Maximum number of hosts outside the cluster, and of load balancers.
pub const MAX_HOSTS: usize = 256;

/// Maximum number of probes in a case.
pub const MAX_PROBES: usize = 256;

/// Maximum number of steps in a case.
pub const MAX_STEPS: usize = 64;

/// Maximum number of connections of all probes in a case.
pub const MAX_CONNECTIONS: u64 = 10_000;

/// Maximum length of a line of rules in bytes. `iptables-restore` reads lines of up to 10 KiB
/// (iptables 1.8.9, `iptables/iptables-restore.c`, `buffer`).
pub const MAX_LINE: usize = 8192;

/// Maximum length of a name in the lab document, in bytes.
pub const MAX_NAME: usize = 63;

/// Maximum number of objects in all cases of a lab together; each case has its own objects.
pub const MAX_OBJECTS: usize = 1_000_000;

/// Refuses control characters in the lab's texts, which a terminal would interpret.
pub(super) fn text(tree: &Tree, sink: &mut Sink) {
    match &tree.value {
        Value::Scalar(Scalar { text, .. }) => printable(text, tree.span, sink),
        Value::Sequence(items) => items.iter().for_each(|item| self::text(item, sink)),
        Value::Map(map) => {
            for (key, entry) in map.iter() {
                printable(key, entry.key, sink);
                self::text(&entry.value, sink);
            }
        }
    }
}

fn printable(text: &str, at: Span, sink: &mut Sink) {
    let odd = text.chars().find(|letter| is_control(*letter));
    if let Some(odd) = odd {
        sink.push(
            Diagnostic::error(format!(
                "the control character U+{:04X} has no place in a lab",
                u32::from(odd)
            ))
            .at(at, "in this text"),
        );
    }
}

/// Checks the counts of the lab document, its names and its lines of rules.
pub(super) fn lab(spec: &LabSpec, tree: &Tree, sink: &mut Sink) {
    let at = |key: &str| {
        let spec = tree.nearest(crate::path!["spec"]);
        spec.key_span(key).unwrap_or(spec.head())
    };
    let counted = [
        ("hosts", spec.hosts.len(), MAX_HOSTS),
        ("loadBalancers", spec.load_balancers.len(), MAX_HOSTS),
        ("probes", spec.all_probes().count(), MAX_PROBES),
        ("steps", spec.steps.len(), MAX_STEPS),
    ];
    for (field, count, most) in counted {
        if count > most {
            sink.push(too_many(field, count, most).at(at(field), ""));
        }
    }
    let connections: u64 = spec
        .all_probes()
        .map(|(_, probe)| u64::from(probe.connections))
        .sum();
    if connections > MAX_CONNECTIONS {
        sink.push(
            Diagnostic::error(format!(
                "the probes of a case make {connections} connections, more than {MAX_CONNECTIONS}"
            ))
            .at(at("probes"), "")
            .help("svclab measures no throughput; fewer show the same"),
        );
    }
    for (field, names) in [
        ("hosts", spec.hosts.keys().collect::<Vec<_>>()),
        ("loadBalancers", spec.load_balancers.keys().collect()),
        ("probes", spec.probes.keys().collect()),
    ] {
        let map = tree.nearest(crate::path!["spec", field]);
        for name in names.into_iter().filter(|name| !is_name(name)) {
            sink.push(no_name(name, map.key_span(name).unwrap_or(map.head())));
        }
    }
    let of_steps = spec.steps.iter().enumerate();
    let of_steps = of_steps.flat_map(|(at, step)| {
        let node = tree.nearest(crate::path!["spec", "steps", at]);
        let probes = step.probes.keys().map(move |name| {
            let map = node.get("probes").unwrap_or(node);
            (name, map.key_span(name).unwrap_or(map.head()))
        });
        let own = node.get("name").map_or(node.head(), |name| name.span);
        [(&step.name, own)].into_iter().chain(probes)
    });
    for (name, place) in of_steps.filter(|(name, _)| !is_name(name)) {
        sink.push(no_name(name, place));
    }
    lines(spec, tree, sink);
    commands(spec, tree, sink);
}

/// Checks that each line of rules is a single line within [`MAX_LINE`].
fn lines(spec: &LabSpec, tree: &Tree, sink: &mut Sink) {
    for (node, said) in &spec.nodes {
        for (part, field, lines) in [
            ("leftovers", "iptables", &said.leftovers.iptables),
            ("leftovers", "ipset", &said.leftovers.ipset),
            ("byHand", "iptables", &said.by_hand.iptables),
            ("byHand", "commands", &said.by_hand.commands),
        ] {
            for (index, line) in lines.iter().enumerate() {
                let at = tree
                    .nearest(crate::path![
                        "spec",
                        "nodes",
                        node.as_str(),
                        part,
                        field,
                        index
                    ])
                    .span;
                if line.trim().contains('\n') {
                    sink.push(
                        Diagnostic::error("these are several lines")
                            .at(at, "")
                            .help("make each an item of the list"),
                    );
                } else if line.len() > MAX_LINE {
                    sink.push(
                        Diagnostic::error(format!(
                            "a line of {} bytes, more than {MAX_LINE}",
                            line.len()
                        ))
                        .at(at, ""),
                    );
                }
            }
        }
    }
}

/// Checks the limits for commands.
fn commands(spec: &LabSpec, tree: &Tree, sink: &mut Sink) {
    for (node, said) in &spec.nodes {
        let said = &said.by_hand;
        let time = said.time_limit;
        let is_long = time.is_some_and(|time| time > ByHand::MAX_TIME || time.is_zero());
        let outside = |limit: Option<u64>, most| limit.is_some_and(|n| n == 0 || n > most);
        for (is_wrong, field, bounds) in [
            (
                is_long,
                "timeLimit",
                "more than 0 s and at most 10 min".to_owned(),
            ),
            (
                outside(said.output_limit, ByHand::MAX_OUTPUT),
                "outputLimit",
                format!("1 to {} bytes", ByHand::MAX_OUTPUT),
            ),
            (
                outside(said.process_limit, ByHand::MAX_PROCESSES),
                "processLimit",
                format!("1 to {} processes", ByHand::MAX_PROCESSES),
            ),
        ] {
            if is_wrong {
                let path = crate::path!["spec", "nodes", node.as_str(), "byHand", field];
                let at = tree.nearest(path).span;
                sink.push(
                    Diagnostic::error(format!("`{field}` is out of bounds"))
                        .at(at, "")
                        .help(format!("give {bounds}")),
                );
            }
        }
    }
}

/// Checks the counts of a cluster's objects.
pub(super) fn objects(objects: &Objects, tree: &Tree, sink: &mut Sink) {
    let endpoints: usize = objects
        .endpoint_slices
        .iter()
        .map(|slice| slice.value.endpoints.as_ref().map_or(0, Vec::len))
        .sum();
    let ports: usize = objects
        .services
        .iter()
        .filter_map(|service| service.value.spec.as_ref()?.ports.as_ref())
        .map(Vec::len)
        .sum();
    let at = tree.key_span("spec").unwrap_or(tree.head());
    for (what, count, most) in [
        ("nodes", objects.nodes.len(), MAX_NODES),
        ("pods", objects.pods.len(), MAX_PODS),
        ("services", objects.services.len(), MAX_SERVICES),
        ("endpoints", endpoints, MAX_ENDPOINTS),
    ] {
        if count > most {
            let help = "leave out objects that play no part in what the lab tries";
            sink.push(too_many(what, count, most).at(at, "").help(help));
        }
    }
    let written = objects
        .nodes
        .len()
        .saturating_mul(ports.saturating_add(endpoints));
    if written > MAX_WRITTEN {
        sink.push(
            Diagnostic::error(format!(
                "{} nodes would hold rules for {ports} ports of services and {endpoints} \
                 endpoints each: {written} in all, more than {MAX_WRITTEN}",
                objects.nodes.len()
            ))
            .at(at, "")
            .help("leave out nodes or services that play no part in what the lab tries"),
        );
    }
}

/// Checks the number of objects in all cases together.
pub(super) fn cases(cases: usize, objects: usize, at: Span) -> Result<(), Diagnostic> {
    if cases.saturating_mul(objects) <= MAX_OBJECTS {
        return Ok(());
    }
    Err(Diagnostic::error(format!(
        "{cases} cases of {objects} objects each are more than {MAX_OBJECTS} objects"
    ))
    .at(at, "")
    .help("split the lab, or leave out objects that play no part in what it tries"))
}

fn too_many(what: &str, count: usize, most: usize) -> Diagnostic {
    Diagnostic::error(format!("{count} {what}, more than {most}"))
}

fn no_name(name: &str, at: Span) -> Diagnostic {
    Diagnostic::error(format!("{} is no name", shortened(name)))
        .at(at, "")
        .help(format!(
            "names are of letters, digits, `-`, `_` and `.`, up to {MAX_NAME}"
        ))
}

fn is_name(name: &str) -> bool {
    !name.is_empty()
        && name.len() <= MAX_NAME
        && name
            .chars()
            .all(|letter| letter.is_alphanumeric() || ['-', '_', '.'].contains(&letter))
}
