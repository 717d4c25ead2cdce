//! Tests of labs with flows: the probes they generate and the diagnostics of invalid labs.
//! Snapshots contain the diagnostics.

use crate::Case;
use crate::Scenario;
use crate::expectation::count::Count;
use crate::lab::reference::DocumentRef;
use crate::tests::example::load_diagnostics;
use svclab_diagnostic::source::{Source, Sources};

/// Valid lab that has only flows.
const FLOWS: &str = include_str!("../flows.yaml");

fn flows_with(part: &str, replacement: &str) -> String {
    assert!(FLOWS.contains(part), "{part} is not in the lab");
    FLOWS.replacen(part, replacement, 1)
}

fn scenario(text: &str) -> (Scenario, Sources) {
    let source = Source::from_bytes("example.yaml", text.into()).expect("a source");
    let sources = Sources::from(source);
    match Scenario::load(&sources) {
        Ok((scenario, _)) => (scenario, sources),
        Err(errors) => panic!("{errors:?}"),
    }
}

fn case<'s>(scenario: &'s Scenario, id: &str) -> &'s Case {
    let found = scenario.cases().iter().find(|case| case.id == id);
    found.expect("the case exists")
}

#[test]
fn lab_with_flows_loads_without_warnings() {
    assert_eq!(load_diagnostics(FLOWS), "");
}

#[test]
fn flow_expands_to_probe_and_expectation() {
    let (scenario, _) = scenario(FLOWS);
    let ids: Vec<&str> = scenario
        .cases()
        .iter()
        .map(|case| case.id.as_str())
        .collect();
    assert_eq!(ids, ["example/mode=iptables", "example/mode=ipvs"]);
    for (id, connections, row) in [
        ("example/mode=iptables", 32, 1),
        ("example/mode=ipvs", 4, 0),
    ] {
        let case = case(&scenario, id);
        assert_eq!(case.flows["call"], row);
        let probe = &case.spec.probes["call"];
        assert_eq!(
            (probe.to.as_str(), probe.connections),
            ("service/default/web:80", connections)
        );
        let expected = &case.expected().expected.probes["call"];
        assert_eq!(expected.connected, Some(Count::exactly(connections)));
        assert!(expected.timeout.is_none());
    }
    // `connections` of a row overrides that of the flow, which overrides that of the lab.
    let connections = |id, flow: &str| case(&scenario, id).spec.probes[flow].connections;
    assert_eq!(connections("example/mode=iptables", "closed"), 2);
    assert_eq!(connections("example/mode=ipvs", "closed"), 3);
}

/// Returns the text of a part of the lab document.
fn source_text(case: &Case, sources: &Sources, path: &[crate::yaml::tree::PathSegment]) -> String {
    let span = case.span(&DocumentRef::Lab, path).expect("a span");
    let (_, source) = sources.iter().next().expect("a source");
    let range =
        usize::try_from(span.start).expect("small")..usize::try_from(span.end).expect("small");
    source.text()[range].to_owned()
}

#[test]
fn expanded_flow_keeps_source_spans() {
    let (scenario, sources) = scenario(FLOWS);
    let case = case(&scenario, "example/mode=ipvs");
    let expected = crate::path!["spec", "expect", case.row, "call", "endpoints"];
    assert_eq!(source_text(case, &sources, expected), "[web]");
    let to = crate::path!["spec", "probes", "closed", "to"];
    assert_eq!(source_text(case, &sources, to), "service/default/web:81");
    let connections_path = crate::path!["spec", "probes", "closed", "connections"];
    assert_eq!(source_text(case, &sources, connections_path), "3");
}

#[test]
fn lab_with_flows_and_probes_loads() {
    let text = flows_with(
        "  flows:\n",
        "  probes: {aside: {from: pod/default/client, to: service/default/web:80}}\n  \
         expect: [{aside: {connected: 1}, counters: [{on: node-1, counter: TcpExtIPReversePathFilter, grows: 0}]}]\n  \
         flows:\n",
    );
    let (scenario, _) = scenario(&text);
    let case = case(&scenario, "example/mode=ipvs");
    let names: Vec<&String> = case.expected().expected.probes.keys().collect();
    assert_eq!(names, ["aside", "call", "closed"]);
    assert_eq!(case.expected().expected.counters.len(), 1);
}

#[test]
fn flow_without_rows_is_refused() {
    insta::assert_snapshot!(load_diagnostics(&flows_with(
        "expect:\n      - {when: {mode: ipvs}, connections: 3, refused: all}\n      - {refused: all}",
        "expect: []"
    )));
}

#[test]
fn flow_without_expect_is_refused() {
    insta::assert_snapshot!(load_diagnostics(&flows_with(
        "\n      expect:\n      - {when: {mode: ipvs}, connections: 3, refused: all}\n      - {refused: all}",
        ""
    )));
}

#[test]
fn flow_row_without_verdict_is_refused() {
    insta::assert_snapshot!(load_diagnostics(&flows_with(
        "- {connected: all, endpoints",
        "- {endpoints"
    )));
}

#[test]
fn unreached_flow_row_is_refused() {
    insta::assert_snapshot!(load_diagnostics(&flows_with(
        "- when: {mode: ipvs}\n        connected",
        "- connected"
    )));
}

#[test]
fn second_flow_row_for_same_case_is_refused() {
    insta::assert_snapshot!(load_diagnostics(&flows_with(
        "      - {connected: all, endpoints",
        "      - {when: {mode: ipvs}, timeout: all}\n      - {connected: all, endpoints"
    )));
}

#[test]
fn case_without_flow_row_is_refused() {
    insta::assert_snapshot!(load_diagnostics(&flows_with(
        "- {connected: all, endpoints",
        "- {when: {mode: ipvs}, connected: all, endpoints"
    )));
}

#[test]
fn unknown_axis_in_flow_row_is_refused() {
    insta::assert_snapshot!(load_diagnostics(&flows_with(
        "- when: {mode: ipvs}",
        "- when: {mod: ipvs}"
    )));
}

#[test]
fn unknown_field_in_flow_row_is_refused() {
    insta::assert_snapshot!(load_diagnostics(&flows_with(
        "because: Two endpoints",
        "becuase: Two endpoints"
    )));
}

#[test]
fn flow_counts_with_wrong_sum_are_refused() {
    insta::assert_snapshot!(load_diagnostics(&flows_with(
        "connected: all",
        "connected: 3"
    )));
}

#[test]
fn flow_verdict_without_count_is_refused() {
    insta::assert_snapshot!(load_diagnostics(&flows_with(
        "connected: all",
        "connected: every"
    )));
}

#[test]
fn flow_with_name_of_probe_is_refused() {
    insta::assert_snapshot!(load_diagnostics(&flows_with(
        "  flows:\n",
        "  probes: {call: {from: pod/default/client, to: service/default/web:80}}\n  \
         expect: [{counters: [{on: node-1, counter: TcpExtIPReversePathFilter, grows: 0}]}]\n  flows:\n"
    )));
}

#[test]
fn flow_in_lab_row_is_refused() {
    insta::assert_snapshot!(load_diagnostics(&flows_with(
        "  flows:\n",
        "  expect: [{call: {connected: 1}}]\n  flows:\n"
    )));
}

#[test]
fn flow_with_name_of_row_key_is_refused() {
    insta::assert_snapshot!(load_diagnostics(&flows_with(
        "    closed:\n",
        "    wire:\n"
    )));
}

#[test]
fn patch_of_flow_is_refused() {
    insta::assert_snapshot!(load_diagnostics(&flows_with(
        "connections: 4}",
        "flows: {call: {connections: 4}}}"
    )));
}

#[test]
fn columns_of_unknown_axis_are_refused() {
    insta::assert_snapshot!(load_diagnostics(&flows_with(
        "  columns: mode\n",
        "  columns: mod\n"
    )));
}

#[test]
fn unknown_fact_is_refused() {
    insta::assert_snapshot!(load_diagnostics(&flows_with(
        "covers: [plain]",
        "covers: [plan]"
    )));
}

#[test]
fn uncovered_fact_is_refused() {
    insta::assert_snapshot!(load_diagnostics(&flows_with(", covers: [plain]", "")));
}

#[test]
fn covered_fact_with_not_covered_is_refused() {
    insta::assert_snapshot!(load_diagnostics(&flows_with(
        "masqueraded: false",
        "masqueraded: false, notCovered: no time"
    )));
}

#[test]
fn fact_without_statement_is_refused() {
    insta::assert_snapshot!(load_diagnostics(&flows_with(
        "reaches: [web], masqueraded: false",
        "reaches: [web]"
    )));
}

#[test]
fn fact_for_no_case_of_row_is_refused() {
    insta::assert_snapshot!(load_diagnostics(&flows_with(
        "when: {mode: iptables}, says",
        "when: {mode: ipvs}, says"
    )));
}

/// Checks every statement of a fact against the row that covers it.
#[test]
fn row_that_contradicts_fact_is_refused() {
    let differing = [
        ("reaches: [web], masqueraded: false", "fails: timeout"),
        ("reaches: [web], masqueraded: false", "fails: refused"),
        ("reaches: [web]", "reaches: [web, client]"),
        ("masqueraded: false", "masqueraded: true"),
        (
            ", seenSource: pod/default/client, covers",
            ", seenSource: node-1, covers",
        ),
        (", seenSource: pod/default/client, covers", ", covers"),
        (
            "- {connected: all, endpoints: [web], ",
            "- {connected: all, ",
        ),
    ];
    let all: Vec<String> = differing
        .iter()
        .map(|(part, replacement)| load_diagnostics(&flows_with(part, replacement)))
        .collect();
    insta::assert_snapshot!(all.join("\n\n"));
}
