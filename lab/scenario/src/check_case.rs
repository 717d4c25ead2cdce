//! Checks a case after its patches are applied: its probes must be valid, and its expectations must
//! be possible.

use std::collections::BTreeSet;

use indexmap::IndexMap;

use super::check_steps::place_of_probe;
use super::expectation::{Expected, ProbeExpectation};
use super::lab::{LabSpec, Probe};
use super::limits;
use super::sink::Sink;
use super::tree::{Step, Tree};
use svclab_diagnostic::Diagnostic;
use svclab_diagnostic::suggest::{did_you_mean, listed};
use svclab_ruleset::iptables::script::Table;

/// Checks the probes of a lab and the row for the case.
pub(super) fn case(spec: &LabSpec, tree: &Tree, row: usize, sink: &mut Sink) {
    limits::lab(spec, tree, sink);
    probes(spec, tree, sink);
    let Some(expected) = spec.expect.get(row) else {
        return;
    };
    let path = [Step::from("spec"), "expect".into(), row.into()];
    without_expectation(spec, &expected.expected, tree, &path, sink);
    expectations(spec, &expected.expected, tree, &path, sink);
    for (index, claim) in expected.claims.iter().enumerate() {
        if let Some(says) = &claim.says {
            let path = [&path[..], &["claims".into(), index.into(), "says".into()]].concat();
            expectations(spec, says, tree, &path, sink);
            any_of_claim(says, tree, &path, sink);
        }
    }
}

/// Refuses a row without an expectation for every probe of the case: a probe without one could not
/// fail.
fn without_expectation(
    spec: &LabSpec,
    expected: &Expected,
    tree: &Tree,
    path: &[Step],
    sink: &mut Sink,
) {
    for (name, probe) in spec.all_probes() {
        if expected.probes.contains_key(name) {
            continue;
        }
        let verdict = ProbeExpectation::verdicts_of(probe.protocol)[0];
        let place = place_of_probe(spec, tree, name);
        let error = Diagnostic::error(format!("no outcome is expected of the probe `{name}`"));
        // In a lab with flows, the last row is generated. If it is the only row, no row is written.
        let is_written = spec.flows.is_empty() || spec.expect.len() > 1;
        let error = match tree.at(path).filter(|_| is_written) {
            Some(row) => error
                .at(row.head(), format!("this row leaves `{name}` out"))
                .and(place, "this probe"),
            None => error.at(place, "in no row of `expect`"),
        };
        sink.push(error.help(format!(
            "add `{name}: {{{verdict}: {}}}` to the row, or `{name}: any` if the outcome does not matter",
            probe.connections
        )));
    }
}

/// Refuses `any` in `says` of a claim: no packet could refute the claim.
fn any_of_claim(says: &Expected, tree: &Tree, path: &[Step], sink: &mut Sink) {
    let node = tree.nearest(path);
    for (name, _) in says.probes.iter().filter(|(_, expected)| expected.any) {
        sink.push(
            Diagnostic::error(format!("a claim cannot say `any` of the probe `{name}`"))
                .at(node.key_span(name).unwrap_or(node.head()), "")
                .help("leave the probe out, or say which outcome the claim expects"),
        );
    }
}

/// Checks that every probe makes at least one connection. A probe can wait only for a probe of the
/// same stage that ends before the step, without a cycle.
fn probes(spec: &LabSpec, tree: &Tree, sink: &mut Sink) {
    group(
        spec,
        &spec.probes,
        &[Step::from("spec"), "probes".into()],
        tree,
        sink,
    );
    for (at, step) in spec.steps.iter().enumerate() {
        let path = [
            Step::from("spec"),
            "steps".into(),
            at.into(),
            "probes".into(),
        ];
        group(spec, &step.probes, &path, tree, sink);
    }
}

/// Checks the probes of one stage.
fn group(
    spec: &LabSpec,
    probes: &IndexMap<String, Probe>,
    path: &[Step],
    tree: &Tree,
    sink: &mut Sink,
) {
    for (name, probe) in probes {
        let at = |field: &str| {
            tree.nearest(&[path, &[name.into(), field.into()]].concat())
                .span
        };
        if probe.connections == 0 {
            sink.push(
                Diagnostic::error(format!("the probe `{name}` attempts nothing"))
                    .at(at("connections"), "expected at least 1"),
            );
        }
        let Some(after) = &probe.after else {
            continue;
        };
        let Some(first) = probes.get(after) else {
            let known = probes.keys().map(String::as_str);
            let help = if spec.probe(after).is_some() {
                "a probe waits for one that is tried with it, before or after the same step"
                    .to_owned()
            } else {
                did_you_mean(after, known.clone())
                    .unwrap_or_else(|| format!("the probes are {}", listed(known)))
            };
            sink.push(
                Diagnostic::error(format!("there is no probe `{after}`"))
                    .at(at("after"), "no such probe")
                    .help(help),
            );
            continue;
        };
        if let Some(step) = &first.across {
            sink.push(
                Diagnostic::error(format!(
                    "the probe `{after}` is not over before the step `{step}`"
                ))
                .at(at("after"), "it stays open"),
            );
        } else if waits_for_itself(probes, name) {
            sink.push(
                Diagnostic::error(format!("the probe `{name}` waits for itself"))
                    .at(at("after"), "this leads back to the probe"),
            );
        }
    }
}

fn waits_for_itself(probes: &IndexMap<String, Probe>, name: &str) -> bool {
    let mut seen = BTreeSet::new();
    let mut next = name;
    while let Some(after) = probes.get(next).and_then(|probe| probe.after.as_deref()) {
        if after == name {
            return true;
        }
        if !seen.insert(after) {
            // This probe leads into a cycle but is not part of the cycle.
            return false;
        }
        next = after;
    }
    false
}

fn expectations(spec: &LabSpec, expected: &Expected, tree: &Tree, path: &[Step], sink: &mut Sink) {
    tables(expected, tree, path, sink);
    let row = tree.nearest(path);
    for (name, expectation) in &expected.probes {
        let key = row.key_span(name).unwrap_or(row.head());
        match spec.probe(name) {
            Some(probe) => {
                if let Some(node) = row.get(name) {
                    probe_expectation(name, probe, expectation, node, sink);
                }
            }
            None => sink.push(
                Diagnostic::error(format!("there is no probe `{name}` in this case"))
                    .at(key, "no such probe")
                    .maybe_help(did_you_mean(
                        name,
                        spec.all_probes().map(|(name, _)| name.as_str()),
                    )),
            ),
        }
    }
}

/// Checks the names of tables: those of iptables, or `FAMILY NAME` for nftables.
fn tables(expected: &Expected, tree: &Tree, path: &[Step], sink: &mut Sink) {
    const FAMILIES: [&str; 3] = ["ip", "ip6", "inet"];
    let is_own = |table: &str| {
        let parts = table.split_once(' ');
        parts.is_some_and(|(family, name)| {
            FAMILIES.contains(&family) && !name.is_empty() && !name.contains(' ')
        })
    };
    let mut wrong = |list: &str, at: usize, table: &str, known: &str| {
        let place = [path, &[list.into(), at.into(), "table".into()]].concat();
        sink.push(
            Diagnostic::error(format!("`{table}` is no table"))
                .at(tree.nearest(&place).span, "no such table")
                .help(format!(
                    "{known} nftables' own are called by family and name: `ip kube-proxy`"
                )),
        );
    };
    let chains = expected.chains.iter().map(|chain| &chain.table);
    let rules = expected.rules.iter().map(|rule| &rule.table);
    for (list, at, table) in chains
        .enumerate()
        .map(|(at, table)| ("chains", at, table))
        .chain(rules.enumerate().map(|(at, table)| ("rules", at, table)))
    {
        if Table::from_name(table).is_none() && !is_own(table) {
            wrong(list, at, table, "iptables has raw, mangle, nat and filter;");
        }
    }
    for (at, set) in expected.sets.iter().enumerate() {
        if let Some(table) = set.table.as_ref().filter(|table| !is_own(table)) {
            wrong("sets", at, table, "ipsets are of none;");
        }
    }
}

/// Checks that the expected verdicts exist for the probe's protocol and that their counts add up.
fn probe_expectation(
    name: &str,
    probe: &Probe,
    expectation: &ProbeExpectation,
    node: &Tree,
    sink: &mut Sink,
) {
    let verdicts = ProbeExpectation::verdicts_of(probe.protocol);
    if expectation.is_empty() {
        sink.push(
            Diagnostic::error(format!("nothing is expected of the probe `{name}`"))
                .at(node.span, "expects nothing")
                .help(format!(
                    "name a verdict, such as `{}: {}`, or write `{name}: any` if the outcome does not matter",
                    verdicts[0], probe.connections
                )),
        );
        return;
    }
    let named = || {
        expectation
            .verdicts()
            .into_iter()
            .filter_map(|(verdict, count)| Some((verdict, count?)))
    };
    let key = |verdict: &str| node.key_span(verdict).unwrap_or(node.head());
    for (verdict, _) in named() {
        if !verdicts.contains(&verdict) {
            sink.push(
                Diagnostic::error(format!("a {} probe is never `{verdict}`", probe.protocol))
                    .at(key(verdict), "")
                    .help(format!(
                        "the verdicts of {} are {}",
                        probe.protocol,
                        listed(verdicts.iter().copied())
                    )),
            );
            return;
        }
    }
    if expectation.seen_source.is_some() && expectation.seen_sources.is_some() {
        sink.push(
            Diagnostic::error("`seenSource` and `seenSources` say the same thing twice")
                .at(key("seenSource"), "")
                .and(key("seenSources"), ""),
        );
    }
    let total = u64::from(probe.connections);
    let least: u64 = named().map(|(_, count)| u64::from(count.min())).sum();
    let most: Option<u64> = named().map(|(_, count)| count.max().map(u64::from)).sum();
    let falls_short = named().next().is_some() && most.is_some_and(|most| most < total);
    if least > total || falls_short {
        let sums = match most {
            Some(most) if most == least => format!("{most}"),
            Some(most) => format!("{least} to {most}"),
            None => format!("{least} or more"),
        };
        let plural = if total == 1 { "" } else { "s" };
        sink.push(
            Diagnostic::error(format!(
                "the probe `{name}` makes {total} connection{plural}, not {sums}"
            ))
            .at(node.head(), "these add up to another number")
            .help("a verdict that is not named is expected never"),
        );
    }
}
