//! Tests of labs with flows: the probes they generate and the diagnostics of invalid labs.
//! Snapshots contain the diagnostics.

use super::count::Count;
use super::example_tests::told;
use super::reference::DocumentRef;
use super::{Case, Scenario};
use svclab_diagnostic::source::{Source, Sources};

/// Valid lab that has only flows.
const FLOWS: &str = include_str!("flows.yaml");

fn with(part: &str, replacement: &str) -> String {
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
    found.expect("the case is there")
}

#[test]
fn the_lab_with_flows_is_right() {
    assert_eq!(told(FLOWS), "");
}

#[test]
fn a_flow_is_a_probe_and_its_row_is_expected_of_it() {
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
fn written(case: &Case, sources: &Sources, path: &[super::tree::Step]) -> String {
    let span = case.span(&DocumentRef::Lab, path).expect("a place");
    let (_, source) = sources.iter().next().expect("a source");
    let range =
        usize::try_from(span.start).expect("small")..usize::try_from(span.end).expect("small");
    source.text()[range].to_owned()
}

#[test]
fn what_a_flow_becomes_keeps_its_place() {
    let (scenario, sources) = scenario(FLOWS);
    let case = case(&scenario, "example/mode=ipvs");
    let expected = crate::path!["spec", "expect", case.row, "call", "endpoints"];
    assert_eq!(written(case, &sources, expected), "[web]");
    let to = crate::path!["spec", "probes", "closed", "to"];
    assert_eq!(written(case, &sources, to), "service/default/web:81");
    let own = crate::path!["spec", "probes", "closed", "connections"];
    assert_eq!(written(case, &sources, own), "3");
}

#[test]
fn probes_and_rows_of_their_own_may_stand_beside_flows() {
    let text = with(
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
fn flow_without_rows() {
    insta::assert_snapshot!(told(&with(
        "expect:\n      - {when: {mode: ipvs}, connections: 3, refused: all}\n      - {refused: all}",
        "expect: []"
    )));
}

#[test]
fn flow_without_expect() {
    insta::assert_snapshot!(told(&with(
        "\n      expect:\n      - {when: {mode: ipvs}, connections: 3, refused: all}\n      - {refused: all}",
        ""
    )));
}

#[test]
fn row_of_a_flow_without_a_verdict() {
    insta::assert_snapshot!(told(&with("- {connected: all, endpoints", "- {endpoints")));
}

#[test]
fn row_of_a_flow_that_no_case_reaches() {
    insta::assert_snapshot!(told(&with(
        "- when: {mode: ipvs}\n        connected",
        "- connected"
    )));
}

#[test]
fn two_rows_of_a_flow_for_the_same_case() {
    insta::assert_snapshot!(told(&with(
        "      - {connected: all, endpoints",
        "      - {when: {mode: ipvs}, timeout: all}\n      - {connected: all, endpoints"
    )));
}

#[test]
fn case_that_no_row_of_a_flow_is_for() {
    insta::assert_snapshot!(told(&with(
        "- {connected: all, endpoints",
        "- {when: {mode: ipvs}, connected: all, endpoints"
    )));
}

#[test]
fn unknown_axis_in_a_row_of_a_flow() {
    insta::assert_snapshot!(told(&with("- when: {mode: ipvs}", "- when: {mod: ipvs}")));
}

#[test]
fn unknown_field_of_a_row_of_a_flow() {
    insta::assert_snapshot!(told(&with(
        "because: Two endpoints",
        "becuase: Two endpoints"
    )));
}

#[test]
fn numbers_that_do_not_add_up() {
    insta::assert_snapshot!(told(&with("connected: all", "connected: 3")));
}

#[test]
fn verdict_that_is_no_count() {
    insta::assert_snapshot!(told(&with("connected: all", "connected: every")));
}

#[test]
fn flow_called_as_a_probe() {
    insta::assert_snapshot!(told(&with(
        "  flows:\n",
        "  probes: {call: {from: pod/default/client, to: service/default/web:80}}\n  \
         expect: [{counters: [{on: node-1, counter: TcpExtIPReversePathFilter, grows: 0}]}]\n  flows:\n"
    )));
}

#[test]
fn flow_in_a_row_of_the_lab() {
    insta::assert_snapshot!(told(&with(
        "  flows:\n",
        "  expect: [{call: {connected: 1}}]\n  flows:\n"
    )));
}

#[test]
fn flow_called_as_a_word_of_rows() {
    insta::assert_snapshot!(told(&with("    closed:\n", "    wire:\n")));
}

#[test]
fn patch_of_a_flow() {
    insta::assert_snapshot!(told(&with(
        "connections: 4}",
        "flows: {call: {connections: 4}}}"
    )));
}

#[test]
fn columns_of_no_axis() {
    insta::assert_snapshot!(told(&with("  columns: mode\n", "  columns: mod\n")));
}

#[test]
fn unknown_fact() {
    insta::assert_snapshot!(told(&with("covers: [plain]", "covers: [plan]")));
}

#[test]
fn fact_that_no_flow_covers() {
    insta::assert_snapshot!(told(&with(", covers: [plain]", "")));
}

#[test]
fn fact_that_is_covered_and_said_not_to_be() {
    insta::assert_snapshot!(told(&with(
        "masqueraded: false",
        "masqueraded: false, notCovered: no time"
    )));
}

#[test]
fn fact_that_says_nothing() {
    insta::assert_snapshot!(told(&with(
        "reaches: [web], masqueraded: false",
        "reaches: [web]"
    )));
}

#[test]
fn fact_of_none_of_a_row_s_cases() {
    insta::assert_snapshot!(told(&with(
        "when: {mode: iptables}, says",
        "when: {mode: ipvs}, says"
    )));
}

/// Checks every statement of a fact against the row that covers it.
#[test]
fn row_and_fact_that_differ() {
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
        .map(|(part, replacement)| told(&with(part, replacement)))
        .collect();
    insta::assert_snapshot!(all.join("\n\n"));
}
