//! Checks a case after its patches are applied: its probes must be valid, and its expectations must
//! be possible.

use std::collections::BTreeSet;

use indexmap::IndexMap;

use crate::check::lab::steps::probe_name_span;
use crate::check::limits;
use crate::check::traffic::{check_source_ports, check_traffic};
use crate::expectation::{Expected, ProbeExpectation};
use crate::lab::{LabSpec, Probe};
use crate::sink::Sink;
use crate::yaml::tree::{PathSegment, Tree};
use svclab_diagnostic::Diagnostic;
use svclab_diagnostic::suggest::{did_you_mean, format_list};
use svclab_ruleset::iptables::script::Table;

/// Checks the probes of a lab and the row for the case.
pub(crate) fn check_case(spec: &LabSpec, tree: &Tree, row: usize, sink: &mut Sink) {
    limits::check_lab_limits(spec, tree, sink);
    check_probes(spec, tree, sink);
    let Some(expected) = spec.expect.get(row) else {
        return;
    };
    let path = [PathSegment::from("spec"), "expect".into(), row.into()];
    require_expectations(spec, &expected.expected, tree, &path, sink);
    check_expectations(spec, &expected.expected, tree, &path, sink);
    for (index, claim) in expected.claims.iter().enumerate() {
        if let Some(says) = &claim.says {
            let path = [&path[..], &["claims".into(), index.into(), "says".into()]].concat();
            check_expectations(spec, says, tree, &path, sink);
            reject_any_in_claim(says, tree, &path, sink);
        } else if !expected.expected.is_refutable() {
            let path = [&path[..], &["claims".into(), index.into()]].concat();
            sink.push(
                Diagnostic::error(format!(
                    "no packet can refute claim `{}`: the row expects only `any`",
                    claim.id
                ))
                .with_position(tree.nearest(&path).span, "")
                .with_help("write the outcome that the claim expects in the row, or in `says`"),
            );
        }
    }
}

/// Refuses a row without an expectation for every probe of the case: a probe without one could not
/// fail.
fn require_expectations(
    spec: &LabSpec,
    expected: &Expected,
    tree: &Tree,
    path: &[PathSegment],
    sink: &mut Sink,
) {
    for (name, probe) in spec.all_probes() {
        if expected.probes.contains_key(name) {
            continue;
        }
        let verdict = ProbeExpectation::verdicts_for(probe.protocol)[0];
        let span = probe_name_span(spec, tree, name);
        let error = Diagnostic::error(format!("no expectation for probe `{name}`"));
        // In a lab with flows, the last row is generated. If it is the only row, no row is written.
        let is_written = spec.flows.is_empty() || spec.expect.len() > 1;
        let error = match tree.node_at(path).filter(|_| is_written) {
            Some(row) => error
                .with_position(
                    row.head_span(),
                    format!("this row does not contain `{name}`"),
                )
                .with_related(span, "this probe"),
            None => error.with_position(span, "not in any row of `expect`"),
        };
        sink.push(error.with_help(format!(
            "add `{name}: {{{verdict}: {}}}` to the row, or `{name}: any` if the outcome does not matter",
            probe.connections
        )));
    }
}

/// Refuses `any` in `says` of a claim: no packet could refute the claim.
fn reject_any_in_claim(says: &Expected, tree: &Tree, path: &[PathSegment], sink: &mut Sink) {
    let node = tree.nearest(path);
    for (name, _) in says.probes.iter().filter(|(_, expected)| expected.any) {
        sink.push(
            Diagnostic::error(format!("a claim cannot expect `any` for probe `{name}`"))
                .with_position(node.key_span(name).unwrap_or(node.head_span()), "")
                .with_help("remove the probe, or write the outcome that the claim expects"),
        );
    }
}

/// Checks that every probe makes at least one connection. A probe can wait only for a probe of the
/// same stage that ends before the step, without a cycle.
fn check_probes(spec: &LabSpec, tree: &Tree, sink: &mut Sink) {
    check_probe_group(
        spec,
        &spec.probes,
        &[PathSegment::from("spec"), "probes".into()],
        tree,
        sink,
    );
    for (step_index, step) in spec.steps.iter().enumerate() {
        let path = [
            PathSegment::from("spec"),
            "steps".into(),
            step_index.into(),
            "probes".into(),
        ];
        check_probe_group(spec, &step.probes, &path, tree, sink);
    }
}

/// Checks the probes of one stage.
fn check_probe_group(
    spec: &LabSpec,
    probes: &IndexMap<String, Probe>,
    path: &[PathSegment],
    tree: &Tree,
    sink: &mut Sink,
) {
    check_source_ports(probes, path, tree, sink);
    for (name, probe) in probes {
        let field_span = |field: &str| {
            tree.nearest(&[path, &[name.into(), field.into()]].concat())
                .span
        };
        check_traffic(probe, tree.nearest(&[path, &[name.into()]].concat()), sink);
        if probe.connections == 0 {
            sink.push(
                Diagnostic::error(format!("probe `{name}` makes 0 connections"))
                    .with_position(field_span("connections"), "expected at least 1"),
            );
        }
        let Some(after) = &probe.after else {
            continue;
        };
        let Some(first) = probes.get(after) else {
            let known = probes.keys().map(String::as_str);
            let help = if spec.probe(after).is_some() {
                "`after` can name only a probe of the same stage".to_owned()
            } else {
                did_you_mean(after, known.clone())
                    .unwrap_or_else(|| format!("the probes are {}", format_list(known)))
            };
            sink.push(
                Diagnostic::error(format!("no probe `{after}` in the same stage"))
                    .with_position(field_span("after"), "no such probe")
                    .with_help(help),
            );
            continue;
        };
        if let Some(step) = &first.across {
            sink.push(
                Diagnostic::error(format!("probe `{after}` does not end before step `{step}`"))
                    .with_position(field_span("after"), "its connections stay open"),
            );
        } else if waits_for_itself(probes, name) {
            sink.push(
                Diagnostic::error(format!("probe `{name}` waits for itself"))
                    .with_position(field_span("after"), "this creates a cycle"),
            );
        }
    }
}

fn waits_for_itself(probes: &IndexMap<String, Probe>, name: &str) -> bool {
    let mut visited = BTreeSet::new();
    let mut next = name;
    while let Some(after) = probes.get(next).and_then(|probe| probe.after.as_deref()) {
        if after == name {
            return true;
        }
        if !visited.insert(after) {
            // This probe leads into a cycle but is not part of the cycle.
            return false;
        }
        next = after;
    }
    false
}

fn check_expectations(
    spec: &LabSpec,
    expected: &Expected,
    tree: &Tree,
    path: &[PathSegment],
    sink: &mut Sink,
) {
    check_tables(expected, tree, path, sink);
    let row = tree.nearest(path);
    for (name, expectation) in &expected.probes {
        let key = row.key_span(name).unwrap_or(row.head_span());
        match spec.probe(name) {
            Some(probe) => {
                if let Some(node) = row.get(name) {
                    check_probe_expectation(name, probe, expectation, node, sink);
                }
            }
            None => sink.push(
                Diagnostic::error(format!("no probe `{name}` in this case"))
                    .with_position(key, "no such probe")
                    .with_optional_help(did_you_mean(
                        name,
                        spec.all_probes().map(|(name, _)| name.as_str()),
                    )),
            ),
        }
    }
}

/// Checks the names of tables: those of iptables, or `FAMILY NAME` for nftables.
fn check_tables(expected: &Expected, tree: &Tree, path: &[PathSegment], sink: &mut Sink) {
    const FAMILIES: [&str; 3] = ["ip", "ip6", "inet"];
    let is_nftables_table = |table: &str| {
        let parts = table.split_once(' ');
        parts.is_some_and(|(family, name)| {
            FAMILIES.contains(&family) && !name.is_empty() && !name.contains(' ')
        })
    };
    let mut report_table = |list: &str, index: usize, table: &str, known: &str| {
        let table_path = [path, &[list.into(), index.into(), "table".into()]].concat();
        sink.push(
            Diagnostic::error(format!("`{table}` is not a table"))
                .with_position(tree.nearest(&table_path).span, "no such table")
                .with_help(format!(
                    "{known} for an nftables table, write family and name: `ip kube-proxy`"
                )),
        );
    };
    let chains = expected.chains.iter().map(|chain| &chain.table);
    let rules = expected.rules.iter().map(|rule| &rule.table);
    for (list, index, table) in chains
        .enumerate()
        .map(|(at, table)| ("chains", at, table))
        .chain(rules.enumerate().map(|(at, table)| ("rules", at, table)))
    {
        if Table::from_name(table).is_none() && !is_nftables_table(table) {
            report_table(
                list,
                index,
                table,
                "the iptables tables are raw, mangle, nat and filter;",
            );
        }
    }
    for (index, set) in expected.sets.iter().enumerate() {
        if let Some(table) = set.table.as_ref().filter(|table| !is_nftables_table(table)) {
            report_table("sets", index, table, "an ipset has no table;");
        }
    }
}

/// Checks that the expected verdicts exist for the probe's protocol and that their counts add up.
fn check_probe_expectation(
    name: &str,
    probe: &Probe,
    expectation: &ProbeExpectation,
    node: &Tree,
    sink: &mut Sink,
) {
    let verdicts = ProbeExpectation::verdicts_for(probe.protocol);
    if expectation.is_empty() {
        sink.push(
            Diagnostic::error(format!("empty expectation for probe `{name}`"))
                .with_position(node.span, "expects nothing")
                .with_help(format!(
                    "add a verdict, such as `{}: {}`, or write `{name}: any` if the outcome does \
                     not matter",
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
    let key = |verdict: &str| node.key_span(verdict).unwrap_or(node.head_span());
    for (verdict, _) in named() {
        if !verdicts.contains(&verdict) {
            sink.push(
                Diagnostic::error(format!(
                    "a {} probe cannot have verdict `{verdict}`",
                    probe.protocol
                ))
                .with_position(key(verdict), "")
                .with_help(format!(
                    "the verdicts of {} are {}",
                    probe.protocol,
                    format_list(verdicts.iter().copied())
                )),
            );
            return;
        }
    }
    if expectation.seen_source.is_some() && expectation.seen_sources.is_some() {
        sink.push(
            Diagnostic::error("`seenSource` and `seenSources` are mutually exclusive")
                .with_position(key("seenSource"), "")
                .with_related(key("seenSources"), ""),
        );
    }
    let total = u64::from(probe.connections);
    let min_total: u64 = named().map(|(_, count)| u64::from(count.min())).sum();
    let max_total: Option<u64> = named().map(|(_, count)| count.max().map(u64::from)).sum();
    let falls_short = named().next().is_some() && max_total.is_some_and(|most| most < total);
    if min_total > total || falls_short {
        let sums = match max_total {
            Some(most) if most == min_total => format!("{most}"),
            Some(most) => format!("{min_total} to {most}"),
            None => format!("{min_total} or more"),
        };
        let plural = if total == 1 { "" } else { "s" };
        sink.push(
            Diagnostic::error(format!(
                "probe `{name}` makes {total} connection{plural}, but the expected counts add up \
                 to {sums}"
            ))
            .with_position(
                node.head_span(),
                "the sum must be the number of connections",
            )
            .with_help("a verdict without a count is expected 0 times"),
        );
    }
}
