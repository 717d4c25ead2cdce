//! Size limits of a case. They are far above any realistic lab, and low enough that a lab does not
//! run for a day. The limits of memory are the machine's, and the runner checks them.

use crate::lab::LabSpec;
use crate::lab::node::ByHand;
use crate::objects::Objects;
use crate::sink::Sink;
use crate::yaml::tree::{Scalar, Tree, Value, shorten};
use svclab_diagnostic::Diagnostic;
use svclab_diagnostic::printable::is_control;
use svclab_diagnostic::source::Span;
use svclab_model::evidence::MAX_STAGES;

/// Maximum number of hosts outside the cluster, and of load balancers.
pub(crate) const MAX_HOSTS: usize = 256;

/// Maximum number of probes in a case.
pub(crate) const MAX_PROBES: usize = 256;

/// Maximum number of steps in a case.
pub(crate) const MAX_STEPS: usize = MAX_STAGES - 1;

/// Maximum number of connections of all probes in a case.
pub(crate) const MAX_CONNECTIONS: u64 = 10_000;

/// Maximum length of a line of rules in bytes. `iptables-restore` reads lines of up to 10 KiB
/// (iptables 1.8.9, `iptables/iptables-restore.c`, `buffer`).
pub(crate) const MAX_RULE_LINE: usize = 8192;

/// Maximum length of a name in the lab document, in bytes.
pub(crate) const MAX_NAME: usize = 63;

/// Maximum number of objects in all cases of a lab together; each case has its own objects.
pub(crate) const MAX_OBJECTS: usize = 1_000_000;

/// Refuses control characters in the lab's texts, which a terminal would interpret.
pub(crate) fn check_text(tree: &Tree, sink: &mut Sink) {
    match &tree.value {
        Value::Scalar(Scalar { text, .. }) => check_printable(text, tree.span, sink),
        Value::Sequence(items) => items.iter().for_each(|item| self::check_text(item, sink)),
        Value::Map(map) => {
            for (key, entry) in map.iter() {
                check_printable(key, entry.key, sink);
                self::check_text(&entry.value, sink);
            }
        }
    }
}

fn check_printable(text: &str, span: Span, sink: &mut Sink) {
    let control = text.chars().find(|letter| is_control(*letter));
    if let Some(odd) = control {
        sink.push(
            Diagnostic::error(format!(
                "control character U+{:04X} is not allowed in a lab",
                u32::from(odd)
            ))
            .with_position(span, "in this text"),
        );
    }
}

/// Checks the counts of the lab document, its names and its lines of rules.
pub(crate) fn check_lab_limits(spec: &LabSpec, tree: &Tree, sink: &mut Sink) {
    let field_span = |key: &str| {
        let spec = tree.nearest(crate::path!["spec"]);
        spec.key_span(key).unwrap_or(spec.head_span())
    };
    let counted = [
        ("hosts", spec.hosts.len(), MAX_HOSTS),
        (
            "loadBalancers",
            spec.load_balancers.by_name.len(),
            MAX_HOSTS,
        ),
        ("probes", spec.all_probes().count(), MAX_PROBES),
        ("steps", spec.steps.len(), MAX_STEPS),
    ];
    for (field, count, max) in counted {
        if count > max {
            sink.push(too_many(field, count, max).with_position(field_span(field), ""));
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
            .with_position(field_span("probes"), "")
            .with_help("use fewer connections: svclab does not measure throughput"),
        );
    }
    for (field, names) in [
        ("hosts", spec.hosts.keys().collect::<Vec<_>>()),
        (
            "loadBalancers",
            spec.load_balancers.by_name.keys().collect(),
        ),
        ("probes", spec.probes.keys().collect()),
    ] {
        let map = tree.nearest(crate::path!["spec", field]);
        for name in names.into_iter().filter(|name| !is_valid_name(name)) {
            sink.push(invalid_name(
                name,
                map.key_span(name).unwrap_or(map.head_span()),
            ));
        }
    }
    let step_names = spec.steps.iter().enumerate();
    let step_names = step_names.flat_map(|(index, step)| {
        let node = tree.nearest(crate::path!["spec", "steps", index]);
        let probes = step.probes.keys().map(move |name| {
            let map = node.get("probes").unwrap_or(node);
            (name, map.key_span(name).unwrap_or(map.head_span()))
        });
        let name_span = node.get("name").map_or(node.head_span(), |name| name.span);
        [(&step.name, name_span)].into_iter().chain(probes)
    });
    for (name, span) in step_names.filter(|(name, _)| !is_valid_name(name)) {
        sink.push(invalid_name(name, span));
    }
    check_rule_lines(spec, tree, sink);
    check_command_limits(spec, tree, sink);
}

/// Checks that each line of rules is a single line within [`MAX_RULE_LINE`].
fn check_rule_lines(spec: &LabSpec, tree: &Tree, sink: &mut Sink) {
    for (node, node_spec) in &spec.nodes {
        for (part, field, lines) in [
            ("leftovers", "iptables", &node_spec.leftovers.iptables),
            ("leftovers", "ipset", &node_spec.leftovers.ipset),
            ("byHand", "iptables", &node_spec.by_hand.iptables),
            ("byHand", "commands", &node_spec.by_hand.commands),
        ] {
            for (index, line) in lines.iter().enumerate() {
                let span = tree
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
                        Diagnostic::error("an item must be a single line")
                            .with_position(span, "")
                            .with_help("write each line as a separate item"),
                    );
                } else if line.len() > MAX_RULE_LINE {
                    sink.push(
                        Diagnostic::error(format!(
                            "a line of {} bytes, more than {MAX_RULE_LINE}",
                            line.len()
                        ))
                        .with_position(span, ""),
                    );
                }
            }
        }
    }
}

/// Checks the limits for commands.
fn check_command_limits(spec: &LabSpec, tree: &Tree, sink: &mut Sink) {
    for (node, node_spec) in &spec.nodes {
        let by_hand = &node_spec.by_hand;
        let time = by_hand.time_limit;
        let is_long = time.is_some_and(|time| time > ByHand::MAX_TIME_LIMIT || time.is_zero());
        let outside = |limit: Option<u64>, max| limit.is_some_and(|n| n == 0 || n > max);
        for (is_wrong, field, bounds) in [
            (
                is_long,
                "timeLimit",
                "more than 0 s and at most 10 min".to_owned(),
            ),
            (
                outside(by_hand.output_limit, ByHand::MAX_OUTPUT),
                "outputLimit",
                format!("1 to {} bytes", ByHand::MAX_OUTPUT),
            ),
            (
                outside(by_hand.process_limit, ByHand::MAX_PROCESSES),
                "processLimit",
                format!("1 to {} processes", ByHand::MAX_PROCESSES),
            ),
        ] {
            if is_wrong {
                let path = crate::path!["spec", "nodes", node.as_str(), "byHand", field];
                let span = tree.nearest(path).span;
                sink.push(
                    Diagnostic::error(format!("`{field}` is out of bounds"))
                        .with_position(span, "")
                        .with_help(format!("use {bounds}")),
                );
            }
        }
    }
}

/// Checks the counts of a cluster's objects.
pub(crate) fn check_object_limits(objects: &Objects, tree: &Tree, sink: &mut Sink) {
    if let Some(error) = objects.size_error() {
        let span = tree.key_span("spec").unwrap_or(tree.head_span());
        sink.push(error.with_position(span, ""));
    }
}

/// Checks the number of objects in all cases together.
pub(crate) fn check_case_limits(
    cases: usize,
    objects: usize,
    span: Span,
) -> Result<(), Diagnostic> {
    if cases.saturating_mul(objects) <= MAX_OBJECTS {
        return Ok(());
    }
    Err(Diagnostic::error(format!(
        "{} of {} each are more than {MAX_OBJECTS} objects",
        count_noun(cases, "case"),
        count_noun(objects, "object"),
    ))
    .with_position(span, "")
    .with_help("split the lab, or remove objects that it does not need"))
}

fn count_noun(count: usize, noun: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} {noun}{plural}")
}

fn too_many(kind: &str, count: usize, max: usize) -> Diagnostic {
    Diagnostic::error(format!("{count} {kind}, more than {max}"))
}

fn invalid_name(name: &str, span: Span) -> Diagnostic {
    Diagnostic::error(format!("{} is not a valid name", shorten(name)))
        .with_position(span, "")
        .with_help(format!(
            "a name has at most {MAX_NAME} letters, digits, `-`, `_` and `.`"
        ))
}

fn is_valid_name(name: &str) -> bool {
    !name.is_empty()
        && name.len() <= MAX_NAME
        && name
            .chars()
            .all(|letter| letter.is_alphanumeric() || ['-', '_', '.'].contains(&letter))
}
