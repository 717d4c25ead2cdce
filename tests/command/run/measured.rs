//! Compares measurements of a real kube-proxy v1.36.2 in all modes with the tables of flows. Each
//! measured connection has a row there.

use svclab_scenario::expectation::ProbeExpectation;
use svclab_test_support::cases::prepare_cases;

/// Columns: measured connection, lab, flow, cluster CIDR, and the expectation in iptables, nftables
/// and ipvs mode. An expectation is a verdict and, for `connected`, the kind of source that the
/// endpoint sees.
///
/// The measurement used a single node, which every reply passes. `*` marks results that differ in a
/// cluster: those rows must state why (`because`).
const LINES: &str = "
outside → ClusterIP, no cidr           | cluster-ip    | outside-to-one              | none | connected caller | connected caller | connected caller
outside → ClusterIP, cidr              | cluster-ip    | outside-to-one              | set  | connected node   | connected node   | connected node
outside → Local, no local endpoint     | node-port     | local-outside-to-other-node | set  | timeout          | timeout          | *timeout
pod → the same, no cidr                | node-port     | local-pod-away              | none | timeout          | timeout          |
pod → the same, cidr                   | node-port     | local-pod-away              | set  | connected caller | connected caller | connected caller
node → Local LB IP                     | load-balancer | local-node                  | set  | connected node   | connected node   | connected lb
node → Local LB IP, none local         | load-balancer | local-node-away             | set  | connected node   | connected node   | *timeout
ClusterIP, wrong port                  | cluster-ip    | wrong-port                  | set  | *unreachable     | refused          | refused
node → 127.0.0.1:nodePort              | node-port     | localhost                   | set  | connected node   | refused          | refused
outside → no endpoints                 | node-port     | empty-outside               | set  | refused          | refused          | refused
node → no endpoints                    | node-port     | empty-node                  | set  | refused          | refused          | refused
";

#[test]
fn measured_flow_every_mode_has_matching_row() {
    let prepared = prepare_cases(&["conformance"]);
    let mut rows = 0;
    for line in LINES.lines().filter(|line| !line.is_empty()) {
        let [what, lab, flow, cidr, outcomes @ ..] =
            &line.split('|').map(str::trim).collect::<Vec<_>>()[..]
        else {
            panic!("{line}");
        };
        assert_eq!(outcomes.len(), 3, "{line}");
        for (mode, outcome) in ["iptables", "nftables", "ipvs"].iter().zip(outcomes) {
            let matching = prepared.iter().filter(|prepared| {
                let values = &prepared.case.values;
                let has =
                    |axis: &str, value: &str| values.get(axis).is_none_or(|actual| actual == value);
                prepared.case.lab == *lab
                    && has("mode", mode)
                    && has("cidr", cidr)
                    && has("version", "v1.36")
                    && has("masqueradeAll", "no")
            });
            let matching: Vec<_> = matching.collect();
            // In ipvs mode, cases with and without a cluster CIDR do not differ.
            assert_eq!(
                matching.len(),
                usize::from(!outcome.is_empty()),
                "{line}: {mode}"
            );
            for prepared in matching {
                let case = &prepared.case;
                let context = format!("{what}, {mode}");
                let expectation = &case.expected().expected.probes[*flow];
                let row = &case.spec.flows[*flow].expect[case.flows[*flow]];
                let in_cluster = outcome.strip_prefix('*');
                check(expectation, in_cluster.unwrap_or(outcome), &context);
                assert!(in_cluster.is_none() || row.because.is_some(), "{context}");
                rows += 1;
            }
        }
    }
    assert_eq!(rows, 32);
}

fn check(expected: &ProbeExpectation, outcome: &str, context: &str) {
    let verdicts = [
        ("connected", expected.connected.is_some()),
        ("refused", expected.refused.is_some()),
        ("unreachable", expected.unreachable.is_some()),
        ("timeout", expected.timeout.is_some()),
    ];
    let verdict_names: Vec<_> = verdicts
        .iter()
        .filter(|(_, is)| *is)
        .map(|(word, _)| *word)
        .collect();
    let (end, by) = outcome.split_once(' ').unwrap_or((outcome, ""));
    assert_eq!(verdict_names, [end], "{context}");
    let sources: Vec<&str> = expected
        .seen_source
        .iter()
        .chain(expected.seen_sources.iter().flatten())
        .map(String::as_str)
        .collect();
    let of = |source: &&str| match by {
        "node" => source.starts_with("node-"),
        "lb" => source.starts_with("lb/"),
        _ => *source == "laptop" || source.starts_with("pod/"),
    };
    assert_eq!(sources.is_empty(), by.is_empty(), "{context}: {sources:?}");
    assert!(sources.iter().all(of), "{context}: {sources:?}");
}
