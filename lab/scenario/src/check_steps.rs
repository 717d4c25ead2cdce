//! Checks the steps of a lab: their names, the names of their probes, their changes, and the
//! connections that stay open across them.

use std::collections::{BTreeMap, BTreeSet};

use super::expectation::Expected;
use super::lab::{LabSpec, Probe};
use super::patch::Patch;
use super::reference::DocumentRef;
use super::sink::Sink;
use super::tree::{Step as At, Tree};
use svclab_diagnostic::Diagnostic;
use svclab_diagnostic::source::Span;
use svclab_diagnostic::suggest::{did_you_mean, listed};
use svclab_model::plan::Protocol;

/// Checks the steps of a lab and the expectations for them.
pub(super) fn steps(spec: &LabSpec, tree: &Tree, sink: &mut Sink) {
    names(spec, tree, sink);
    probe_names(spec, tree, sink);
    changes(spec, tree, sink);
    for (name, probe) in spec.all_probes() {
        across(spec, name, probe, tree, sink);
    }
    for (at, row) in spec.expect.iter().enumerate() {
        let path = [At::from("spec"), "expect".into(), at.into()];
        expected(spec, &row.expected, tree, &path, sink);
        for (position, claim) in row.claims.iter().enumerate() {
            if let Some(says) = &claim.says {
                let path = [
                    &path[..],
                    &["claims".into(), position.into(), "says".into()],
                ]
                .concat();
                expected(spec, says, tree, &path, sink);
            }
        }
    }
}

/// Returns the span of a probe's name.
pub(super) fn place_of_probe(spec: &LabSpec, tree: &Tree, name: &str) -> Span {
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
    map.key_span(name).unwrap_or(map.head())
}

fn names(spec: &LabSpec, tree: &Tree, sink: &mut Sink) {
    let mut seen: BTreeMap<&str, Span> = BTreeMap::new();
    for (at, step) in spec.steps.iter().enumerate() {
        let place = tree.nearest(crate::path!["spec", "steps", at, "name"]).span;
        if let Some(first) = seen.insert(&step.name, place) {
            sink.push(
                Diagnostic::error(format!("there are two steps `{}`", step.name))
                    .at(place, "again here")
                    .and(first, "first here"),
            );
        }
    }
}

/// Checks that no two probes of the lab have the same name. Rows of `expect` refer to a probe only
/// by its name.
fn probe_names(spec: &LabSpec, tree: &Tree, sink: &mut Sink) {
    let mut seen: BTreeMap<&str, Span> = BTreeMap::new();
    let of_lab = spec.probes.keys().map(|name| (None, name));
    let of_steps = spec.steps.iter().enumerate();
    let of_steps =
        of_steps.flat_map(|(at, step)| step.probes.keys().map(move |name| (Some(at), name)));
    for (step, name) in of_lab.chain(of_steps) {
        let map = match step {
            None => tree.nearest(crate::path!["spec", "probes"]),
            Some(at) => tree.nearest(crate::path!["spec", "steps", at, "probes"]),
        };
        let place = map.key_span(name).unwrap_or(map.head());
        if let Some(first) = seen.insert(name, place) {
            sink.push(
                Diagnostic::error(format!("there are two probes `{name}`"))
                    .at(place, "again here")
                    .and(first, "first here")
                    .help("a probe has one name in the whole lab: `expect` speaks of it by that"),
            );
        }
    }
}

/// Checks that every step changes something, and that no step changes `spec.probes`.
fn changes(spec: &LabSpec, tree: &Tree, sink: &mut Sink) {
    for (at, step) in spec.steps.iter().enumerate() {
        let node = tree.nearest(crate::path!["spec", "steps", at]);
        if step.change.is_empty() {
            sink.push(
                Diagnostic::error(format!("the step `{}` changes nothing", step.name))
                    .at(node.key_span("change").unwrap_or(node.head()), "no change")
                    .help("write what changes: `change: [{delete: Pod/default/web}]`"),
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
            let path = crate::path!["spec", "steps", at, "change", position, "merge", "spec"];
            let probes = tree.at(path).and_then(|spec| spec.key_span("probes"));
            if let Some(place) = probes.filter(|_| is_of_lab) {
                sink.push(
                    Diagnostic::error("a step cannot change the lab's `probes`")
                        .at(place, "")
                        .help("write what is tried after it under the step's own `probes`"),
                );
            }
        }
    }
}

/// Checks that a probe with `across` opens its connections before an existing step, and can do so.
fn across(spec: &LabSpec, name: &str, probe: &Probe, tree: &Tree, sink: &mut Sink) {
    let Some(across) = &probe.across else {
        return;
    };
    let of = spec
        .steps
        .iter()
        .position(|step| step.probes.contains_key(name));
    let node = match of {
        None => tree.nearest(crate::path!["spec", "probes", name]),
        Some(at) => tree.nearest(crate::path!["spec", "steps", at, "probes", name]),
    };
    let place = |field: &str| node.get(field).map_or(node.head(), |value| value.span);
    let Some(step) = spec.steps.iter().position(|step| step.name == *across) else {
        let known: BTreeSet<&str> = spec.steps.iter().map(|step| step.name.as_str()).collect();
        let help = did_you_mean(across, known.iter().copied()).unwrap_or_else(|| {
            if known.is_empty() {
                "the lab has no `steps`".to_owned()
            } else {
                format!("the steps are {}", listed(known.iter().copied()))
            }
        });
        sink.push(
            Diagnostic::error(format!("there is no step `{across}`"))
                .at(place("across"), "no such step")
                .help(help),
        );
        return;
    };
    if of.is_some_and(|of| of >= step) {
        sink.push(
            Diagnostic::error(format!(
                "the probe `{name}` would be opened before the step it belongs to"
            ))
            .at(
                place("across"),
                "its connections are opened before this step",
            )
            .help("write it under `spec.probes`, or under a step before that one"),
        );
    }
    if probe.protocol == Protocol::Ping {
        sink.push(
            Diagnostic::error("a ping has no connection that could stay open")
                .at(place("protocol"), "")
                .help("leave `across` out, or try `tcp` or `udp`"),
        );
    }
    if probe.after.is_some() {
        sink.push(
            Diagnostic::error(format!(
                "the probe `{name}` begins before the step `{across}`, and cannot wait for another"
            ))
            .at(place("after"), "")
            .and(place("across"), "opened right before this step"),
        );
    }
}

/// Checks that the steps named in an expectation exist.
fn expected(spec: &LabSpec, expected: &Expected, tree: &Tree, path: &[At], sink: &mut Sink) {
    let node = tree.nearest(&[path, &["steps".into()]].concat());
    let known = || spec.steps.iter().map(|step| step.name.as_str());
    for name in expected.steps.keys() {
        if known().any(|step| step == name) {
            continue;
        }
        let help = did_you_mean(name, known()).unwrap_or_else(|| match spec.steps.len() {
            0 => "the lab has no `steps`".to_owned(),
            _ => format!("the steps are {}", listed(known())),
        });
        sink.push(
            Diagnostic::error(format!("there is no step `{name}`"))
                .at(node.key_span(name).unwrap_or(node.head()), "no such step")
                .help(help),
        );
    }
}
