//! Checks flows and facts of a lab.
//!
//! - Every flow has rows.
//! - The facts that a row covers are declared, and the row expects what they state.
//! - Every fact is covered or gives a reason in `notCovered`.

use std::collections::BTreeMap;

use crate::check::lab::{check_selector, steps};
use crate::check::traffic::check_traffic;
use crate::expectation::{ProbeExpectation, ROW_KEYS};
use crate::lab::LabSpec;
use crate::lab::flow::{Fact, FailureVerdict, Flow, FlowRow};
use crate::sink::Sink;
use crate::yaml::tree::{PathSegment, Tree};
use svclab_diagnostic::Diagnostic;
use svclab_diagnostic::source::Span;
use svclab_diagnostic::suggest::{did_you_mean, format_list};

/// Runs the checks of flows and facts that do not depend on a case.
pub(crate) fn check_flows(spec: &LabSpec, tree: &Tree, sink: &mut Sink) {
    let flows_tree = tree.nearest(crate::path!["spec", "flows"]);
    let mut covered: BTreeMap<&str, Span> = BTreeMap::new();
    for (name, flow) in &spec.flows {
        let key = flows_tree.key_span(name).unwrap_or(flows_tree.head_span());
        if ROW_KEYS.contains(&name.as_str()) {
            sink.push(
                Diagnostic::error(format!("a flow cannot be named `{name}`"))
                    .with_position(key, "")
                    .with_help("choose another name: this word is a keyword in rows of `expect`"),
            );
        }
        if spec.probe(name).is_some() {
            sink.push(
                Diagnostic::error(format!("a probe and a flow have the same name `{name}`"))
                    .with_position(key, "this flow")
                    .with_related(steps::probe_name_span(spec, tree, name), "this probe")
                    .with_help("rename one of them"),
            );
        }
        if flow.expect.is_empty() {
            let span = flows_tree
                .get(name)
                .map_or(key, |flow| flow.key_span("expect").unwrap_or(key));
            sink.push(
                Diagnostic::error(format!("flow `{name}` has no rows in `expect`"))
                    .with_position(span, "no rows")
                    .with_help("add a row: `expect: [{connected: 1}]`, or `expect: [{any: true}]` if the outcome does not matter"),
            );
        }
        let connections = flow.connections.unwrap_or(spec.connections);
        let node = flows_tree.get(name).unwrap_or(flows_tree);
        check_traffic(&flow.probe(connections), node, sink);
        for (index, row) in flow.expect.iter().enumerate() {
            let path = crate::path!["spec", "flows", name.as_str(), "expect", index];
            self::check_flow_row(spec, (name, flow), row, (tree, path), sink);
            for (position, id) in row.covers.iter().enumerate() {
                let cover_path = [&path[..], &["covers".into(), position.into()]].concat();
                let span = tree.nearest(&cover_path).span;
                match spec.facts.get(id) {
                    Some(fact) => {
                        covered.entry(id).or_insert(span);
                        check_covered_fact(flow, row, (id, fact), (span, tree), sink);
                    }
                    None => sink.push(unknown_fact(id, span, spec)),
                }
            }
        }
    }
    check_facts(spec, tree, &covered, sink);
}

/// Checks a row: its axes exist, and it expects an outcome.
fn check_flow_row(
    spec: &LabSpec,
    (name, flow): (&str, &Flow),
    row: &FlowRow,
    (tree, path): (&Tree, &[PathSegment]),
    sink: &mut Sink,
) {
    let when = [path, &["when".into()]].concat();
    check_selector(spec, &row.when, tree, &when, sink);
    let connections = flow.connections(row, spec.connections);
    let expectation = row.expectation(connections);
    if row.any {
        let only_any = ProbeExpectation {
            any: true,
            ..ProbeExpectation::default()
        };
        if expectation != only_any {
            let node = tree.nearest(path);
            sink.push(
                Diagnostic::error(format!(
                    "this row of flow `{name}` combines `any` with an expected outcome"
                ))
                .with_position(node.key_span("any").unwrap_or(node.head_span()), "")
                .with_help("remove `any`, or all other expectations"),
            );
        }
        return;
    }
    if expectation
        .verdicts()
        .iter()
        .all(|(_, count)| count.is_none())
    {
        let verdict = if flow.protocol == svclab_model::plan::ProbeProtocol::Tcp {
            "connected"
        } else {
            "answered"
        };
        sink.push(
            Diagnostic::error(format!("this row of flow `{name}` has no verdict"))
                .with_position(tree.nearest(path).head_span(), "expects nothing")
                .with_help(format!(
                    "add a verdict: `{verdict}: all`, a failure such as `timeout: all`, or `any: \
                     true` if the outcome does not matter"
                )),
        );
    }
}

fn unknown_fact(id: &str, span: Span, spec: &LabSpec) -> Diagnostic {
    let known = spec.facts.keys().map(String::as_str);
    let help = did_you_mean(id, known.clone()).unwrap_or_else(|| match spec.facts.len() {
        0 => format!("declare it: `facts: {{{id}: {{test: …, says: …}}}}`"),
        _ => format!("the facts are {}", format_list(known)),
    });
    Diagnostic::error(format!("unknown fact `{id}`"))
        .with_position(span, "not in `spec.facts`")
        .with_help(help)
}

/// Checks that each fact makes one statement, and that each is covered or gives a reason why not.
fn check_facts(spec: &LabSpec, tree: &Tree, covered: &BTreeMap<&str, Span>, sink: &mut Sink) {
    let facts_tree = tree.nearest(crate::path!["spec", "facts"]);
    for (id, fact) in &spec.facts {
        let span = facts_tree.key_span(id).unwrap_or(facts_tree.head_span());
        let when = crate::path!["spec", "facts", id.as_str(), "when"];
        check_selector(spec, &fact.when, tree, when, sink);
        let says_one = match (&fact.reaches, fact.fails) {
            (Some(_), None) => fact.masqueraded.is_some(),
            (None, Some(_)) => fact.masqueraded.is_none(),
            // A fact that no flow covers does not have to use the lab's names.
            (None, None) => fact.not_covered.is_some(),
            (Some(_), Some(_)) => false,
        };
        if !says_one {
            sink.push(
                Diagnostic::error(format!("fact `{id}` does not state exactly one outcome"))
                    .with_position(span, "")
                    .with_help(
                        "write either `reaches: [POD]` with `masqueraded: true` or `false`, \
                        or `fails: refused` or `timeout`",
                    ),
            );
        }
        match (covered.get(id.as_str()), &fact.not_covered) {
            (None, None) => sink.push(
                Diagnostic::error(format!("no flow covers fact `{id}`"))
                    .with_position(span, "not in `covers` of any row")
                    .with_help("add it to `covers` of a row, or write the reason in `notCovered`"),
            ),
            (Some(row), Some(_)) => sink.push(
                Diagnostic::error(format!("fact `{id}` is covered, but has `notCovered`"))
                    .with_position(*row, "covered here")
                    .with_related(span, "declared here"),
            ),
            _ => {}
        }
    }
}

/// Checks that a row expects what the covered fact states.
fn check_covered_fact(
    flow: &Flow,
    row: &FlowRow,
    (id, fact): (&str, &Fact),
    (at, tree): (Span, &Tree),
    sink: &mut Sink,
) {
    let Some(differs) = describe_difference(flow, row, fact) else {
        return;
    };
    let facts = tree.nearest(crate::path!["spec", "facts"]);
    sink.push(
        Diagnostic::error(format!("this row does not match fact `{id}`"))
            .with_position(at, differs)
            .with_related(
                facts.key_span(id).unwrap_or(facts.head_span()),
                fact.says.clone(),
            ),
    );
}

/// Describes how a row differs from a fact, in terms of the fact. `None` if they agree.
fn describe_difference(flow: &Flow, row: &FlowRow, fact: &Fact) -> Option<String> {
    // The number of connections is irrelevant here: only the expected verdicts are compared.
    let expectation = row.expectation(1);
    let expected: Vec<&str> = expectation
        .verdicts()
        .into_iter()
        .filter(|(_, count)| count.is_some_and(|count| count.max() != Some(0)))
        .map(|(verdict, _)| verdict)
        .collect();
    if let Some(fails) = fact.fails {
        let verdict = match fails {
            FailureVerdict::Refused => "refused",
            FailureVerdict::Timeout => "timeout",
        };
        return (expected != [verdict]).then(|| format!("the fact states `{verdict}`"));
    }
    let reaches = fact.reaches.as_ref()?;
    if expected != ["connected"] && expected != ["answered"] {
        return Some("the fact states that the flow succeeds".to_owned());
    }
    let sorted = |names: &[String]| {
        let mut names = names.to_vec();
        names.sort();
        names
    };
    if row.endpoints.as_deref().map(sorted) != Some(sorted(reaches)) {
        return Some(format!(
            "the fact states that the flow reaches {}",
            format_list(reaches.iter().map(String::as_str))
        ));
    }
    let sources = expectation.sources().unwrap_or_default();
    // `host/laptop` is also called `laptop`.
    let is_caller = |name: &str| {
        let front = flow.from.strip_suffix(name);
        front.is_some_and(|front| front.is_empty() || front.ends_with('/'))
    };
    let is_source_kept = matches!(sources[..], [one] if is_caller(one));
    // A node whose request is masqueraded has one of its own addresses before and after.
    let is_from_node = !flow.from.contains('/');
    match fact.masqueraded {
        _ if sources.is_empty() => {
            Some("the row has neither `seenSource` nor `seenSources`".to_owned())
        }
        Some(false) if !is_source_kept => {
            Some("the fact states that the source address is kept".to_owned())
        }
        Some(true) if is_source_kept && !is_from_node => {
            Some("the fact states that the source address is masqueraded".to_owned())
        }
        _ => None,
    }
}
