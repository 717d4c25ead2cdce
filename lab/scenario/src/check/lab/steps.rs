//! Checks the steps of a lab: their names, the names of their probes, their changes, and the
//! connections that stay open across them.

use std::collections::{BTreeMap, BTreeSet};

use crate::expectation::Expected;
use crate::lab::patch::Patch;
use crate::lab::reference::DocumentRef;
use crate::lab::{LabSpec, Probe};
use crate::sink::Sink;
use crate::yaml::tree::{PathSegment as At, Tree};
use svclab_diagnostic::Diagnostic;
use svclab_diagnostic::source::Span;
use svclab_diagnostic::suggest::{did_you_mean, format_list};
use svclab_model::plan::ProbeProtocol;

/// Checks the steps of a lab and the expectations for them.
pub(crate) fn check_steps(spec: &LabSpec, tree: &Tree, sink: &mut Sink) {
    check_step_names(spec, tree, sink);
    check_probe_names(spec, tree, sink);
    check_changes(spec, tree, sink);
    for (name, probe) in spec.all_probes() {
        check_across(spec, name, probe, tree, sink);
    }
    for (row_index, row) in spec.expect.iter().enumerate() {
        let path = [At::from("spec"), "expect".into(), row_index.into()];
        check_expected_steps(spec, &row.expected, tree, &path, sink);
        for (position, claim) in row.claims.iter().enumerate() {
            if let Some(says) = &claim.says {
                let path = [
                    &path[..],
                    &["claims".into(), position.into(), "says".into()],
                ]
                .concat();
                check_expected_steps(spec, says, tree, &path, sink);
            }
        }
    }
}

/// Returns the span of a probe's name.
pub(crate) fn probe_name_span(spec: &LabSpec, tree: &Tree, name: &str) -> Span {
    let step = spec
        .steps
        .iter()
        .position(|step| step.probes.contains_key(name));
    let map = match step {
        Some(step) if !spec.probes.contains_key(name) => {
            tree.nearest(crate::path!["spec", "steps", step, "probes"])
        }
        _ => tree.nearest(crate::path!["spec", "probes"]),
    };
    map.key_span(name).unwrap_or(map.head_span())
}

fn check_step_names(spec: &LabSpec, tree: &Tree, sink: &mut Sink) {
    let mut seen: BTreeMap<&str, Span> = BTreeMap::new();
    for (index, step) in spec.steps.iter().enumerate() {
        let span = tree
            .nearest(crate::path!["spec", "steps", index, "name"])
            .span;
        if let Some(first) = seen.insert(&step.name, span) {
            sink.push(
                Diagnostic::error(format!("duplicate step `{}`", step.name))
                    .with_position(span, "again here")
                    .with_related(first, "first here"),
            );
        }
    }
}

/// Checks that no two probes of the lab have the same name. Rows of `expect` refer to a probe only
/// by its name.
fn check_probe_names(spec: &LabSpec, tree: &Tree, sink: &mut Sink) {
    let mut seen: BTreeMap<&str, Span> = BTreeMap::new();
    let lab_probes = spec.probes.keys().map(|name| (None, name));
    let steps = spec.steps.iter().enumerate();
    let step_probes =
        steps.flat_map(|(index, step)| step.probes.keys().map(move |name| (Some(index), name)));
    for (step, name) in lab_probes.chain(step_probes) {
        let map = match step {
            None => tree.nearest(crate::path!["spec", "probes"]),
            Some(at) => tree.nearest(crate::path!["spec", "steps", at, "probes"]),
        };
        let span = map.key_span(name).unwrap_or(map.head_span());
        if let Some(first) = seen.insert(name, span) {
            sink.push(
                Diagnostic::error(format!("duplicate probe `{name}`"))
                    .with_position(span, "again here")
                    .with_related(first, "first here")
                    .with_help("rename one of them: `expect` refers to probes by name"),
            );
        }
    }
}

/// Checks that every step changes something, and that no step changes `spec.probes`.
fn check_changes(spec: &LabSpec, tree: &Tree, sink: &mut Sink) {
    for (index, step) in spec.steps.iter().enumerate() {
        let node = tree.nearest(crate::path!["spec", "steps", index]);
        if step.change.is_empty() {
            sink.push(
                Diagnostic::error(format!("step `{}` changes nothing", step.name))
                    .with_position(
                        node.key_span("change").unwrap_or(node.head_span()),
                        "no change",
                    )
                    .with_help("add a change: `change: [{delete: Pod/default/web}]`"),
            );
        }
        for (position, patch) in step.change.iter().enumerate() {
            let is_of_lab = matches!(
                patch,
                Patch::Merge {
                    target: DocumentRef::Lab,
                    ..
                }
            );
            let path = crate::path!["spec", "steps", index, "change", position, "merge", "spec"];
            let probes = tree.node_at(path).and_then(|spec| spec.key_span("probes"));
            if let Some(span) = probes.filter(|_| is_of_lab) {
                sink.push(
                    Diagnostic::error("a step cannot change `probes` of the lab")
                        .with_position(span, "")
                        .with_help(
                            "write the probes that run after the step under its own `probes`",
                        ),
                );
            }
        }
    }
}

/// Checks that a probe with `across` opens its connections before an existing step, and can do so.
fn check_across(spec: &LabSpec, name: &str, probe: &Probe, tree: &Tree, sink: &mut Sink) {
    let Some(across) = &probe.across else {
        return;
    };
    let probe_step = spec
        .steps
        .iter()
        .position(|step| step.probes.contains_key(name));
    let node = match probe_step {
        None => tree.nearest(crate::path!["spec", "probes", name]),
        Some(at) => tree.nearest(crate::path!["spec", "steps", at, "probes", name]),
    };
    let field_span = |field: &str| node.get(field).map_or(node.head_span(), |value| value.span);
    let Some(step) = spec.steps.iter().position(|step| step.name == *across) else {
        let known: BTreeSet<&str> = spec.steps.iter().map(|step| step.name.as_str()).collect();
        let help = did_you_mean(across, known.iter().copied()).unwrap_or_else(|| {
            if known.is_empty() {
                "the lab has no `steps`".to_owned()
            } else {
                format!("the steps are {}", format_list(known.iter().copied()))
            }
        });
        sink.push(
            Diagnostic::error(format!("unknown step `{across}`"))
                .with_position(field_span("across"), "no such step")
                .with_help(help),
        );
        return;
    };
    if probe_step.is_some_and(|of| of >= step) {
        sink.push(
            Diagnostic::error(format!(
                "probe `{name}` would open connections before the step that it belongs to"
            ))
            .with_position(field_span("across"), "connections open before this step")
            .with_help("move the probe to `spec.probes`, or to an earlier step"),
        );
    }
    if probe.protocol == ProbeProtocol::Ping {
        sink.push(
            Diagnostic::error("a ping has no connection that can stay open")
                .with_position(field_span("protocol"), "")
                .with_help("remove `across`, or use `tcp` or `udp`"),
        );
    }
    if probe.after.is_some() {
        sink.push(
            Diagnostic::error(format!(
                "probe `{name}` starts before step `{across}` and cannot wait for another probe"
            ))
            .with_position(field_span("after"), "")
            .with_related(
                field_span("across"),
                "connections open right before this step",
            ),
        );
    }
}

/// Checks that the steps named in an expectation exist.
fn check_expected_steps(
    spec: &LabSpec,
    expected: &Expected,
    tree: &Tree,
    path: &[At],
    sink: &mut Sink,
) {
    let node = tree.nearest(&[path, &["steps".into()]].concat());
    let known = || spec.steps.iter().map(|step| step.name.as_str());
    for name in expected.steps.keys() {
        if known().any(|step| step == name) {
            continue;
        }
        let help = did_you_mean(name, known()).unwrap_or_else(|| match spec.steps.len() {
            0 => "the lab has no `steps`".to_owned(),
            _ => format!("the steps are {}", format_list(known())),
        });
        sink.push(
            Diagnostic::error(format!("unknown step `{name}`"))
                .with_position(
                    node.key_span(name).unwrap_or(node.head_span()),
                    "no such step",
                )
                .with_help(help),
        );
    }
}
