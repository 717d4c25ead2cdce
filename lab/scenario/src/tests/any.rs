//! Tests of probes without an expectation and of the outcome `any`. Snapshots contain the
//! diagnostics.

use crate::Scenario;
use crate::tests::example::{EXAMPLE, example_with, load_diagnostics};
use svclab_diagnostic::source::{Source, Sources};

const FLOWS: &str = include_str!("../flows.yaml");

fn flows_with(part: &str, replacement: &str) -> String {
    assert!(FLOWS.contains(part), "{part} is not in the lab");
    FLOWS.replacen(part, replacement, 1)
}

#[test]
fn row_without_a_probe_is_refused() {
    let text = example_with(
        "  axes:\n",
        "    other: {from: node-1, to: node-2, protocol: ping}\n  axes:\n",
    );
    insta::assert_snapshot!(load_diagnostics(&text));
}

#[test]
fn row_with_wire_only_is_refused() {
    let text = example_with(
        "    call: {connected: 4, timeout: 4, endpoints: [nginx-b], seenSource: pod/default/client}\n",
        "",
    );
    insta::assert_snapshot!(load_diagnostics(&text));
}

#[test]
fn row_without_a_probe_that_a_patch_adds_is_refused() {
    let text = example_with(
        "merge: {spec: {nodes: {node-1: {sysctls",
        "merge: {spec: {probes: {added: {from: node-1, to: lb/default/nginx:443}}, nodes: {node-1: {sysctls",
    );
    insta::assert_snapshot!(load_diagnostics(&text));
}

#[test]
fn row_without_a_probe_that_a_patch_removes_loads() {
    let text = example_with(
        "merge: {spec: {nodes: {node-1: {sysctls",
        "merge: {spec: {probes: {extra: null}, nodes: {node-1: {sysctls",
    )
    .replace(
        "  axes:\n",
        "    extra: {from: node-1, to: lb/default/nginx:443}\n  axes:\n",
    )
    .replace(
        "  - when: {policy: Cluster, rpFilter: [0, 1]}",
        "  - {when: {policy: Cluster, rpFilter: 0}, call: any, extra: any}\n  - when: {policy: Cluster}",
    )
    .replace(
        "  - when: {policy: Local}",
        "  - {when: {policy: Local, rpFilter: 0}, call: any, extra: any}\n  - when: {policy: Local}",
    );
    assert_eq!(load_diagnostics(&text), "");
}

#[test]
fn row_without_a_probe_of_a_step_is_refused() {
    let text = example_with(
        "  axes:\n",
        "  steps:\n  - name: later\n    change: [{delete: Pod/default/nginx-a}]\n    probes:\n      again: {from: pod/default/client, to: \"lb/default/nginx:443\", connections: 2}\n  axes:\n",
    );
    insta::assert_snapshot!(load_diagnostics(&text));
}

#[test]
fn probe_beside_flows_without_a_row_is_refused() {
    let text = flows_with(
        "{kubeProxy: {mode: ipvs}, connections: 4}",
        "{kubeProxy: {mode: ipvs}, connections: 4, probes: {added: {from: node-1, to: service/default/web:80}}}",
    );
    insta::assert_snapshot!(load_diagnostics(&text));
}

#[test]
fn probe_expecting_nothing_is_refused() {
    let call = |value: &str| {
        load_diagnostics(&example_with(
            "call: {connected: 8, endpoints: [nginx-b], seenSource: node-1}",
            &format!("call: {value}"),
        ))
    };
    let values = ["{}", "", "whatever", "[any]", "{any: true, connected: 8}"];
    insta::assert_snapshot!(values.map(call).join("\n\n"));
}

#[test]
fn any_outcome_of_probe_is_accepted() {
    let text = example_with(
        "call: {connected: 8, endpoints: [nginx-b], seenSource: node-1}",
        "call: any",
    );
    assert_eq!(load_diagnostics(&text), "");
    let source = Source::from_bytes("example.yaml", text.into()).expect("a source");
    let (scenario, _) = Scenario::load(&Sources::from(source)).expect("a lab");
    let any = scenario
        .cases()
        .iter()
        .map(|case| case.expected().expected.probes["call"].any);
    assert_eq!(any.collect::<Vec<_>>(), [false, false, true, true]);
}

#[test]
fn any_outcome_is_refused_in_a_claim() {
    insta::assert_snapshot!(load_diagnostics(&example_with(
        "says: {call: {connected: 8}}",
        "says: {call: any}"
    )));
}

#[test]
fn any_outcome_of_flow_is_accepted() {
    let text = flows_with("- {refused: all}", "- {any: true}");
    assert_eq!(load_diagnostics(&text), "");
}

#[test]
fn any_outcome_beside_another_is_refused() {
    insta::assert_snapshot!(load_diagnostics(&flows_with(
        "- {refused: all}",
        "- {any: true, refused: all}"
    )));
}

#[test]
fn example_without_expect_is_refused() {
    let (head, rest) = EXAMPLE.split_once("  expect:\n").expect("expect");
    let (_, objects) = rest.split_once("---\n").expect("objects");
    let text = format!("{head}---\n{objects}");
    assert!(load_diagnostics(&text).contains("4 cases have no row in `expect`"));
}

#[test]
fn claim_of_row_with_only_any_is_refused() {
    insta::assert_snapshot!(load_diagnostics(&example_with(
        "    call: {connected: 4, timeout: 4, endpoints: [nginx-b], seenSource: pod/default/client}\n    \
         wire:\n    - {on: node-1/eth0, see: \"SYN from pod/default/client\"}\n",
        "    call: any\n"
    )));
}

#[test]
fn claim_of_row_with_other_expectation_loads() {
    let text = example_with(
        "call: {connected: 4, timeout: 4, endpoints: [nginx-b], seenSource: pod/default/client}",
        "call: any",
    );
    assert_eq!(load_diagnostics(&text), "");
}
