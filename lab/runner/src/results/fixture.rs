//! Example run for the tests of every output format. Its cases pass, fail, and end with each kind
//! of error.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::flows::{self, FlowObservation, FlowOutcome, FlowTable};
use super::{CaseResult, CaseStatus, ErrorKind, Event, FileLine, Results, RunError, Warning};
use crate::certify::{Certificate, MachineState, Section};
use svclab_judge::{
    Check, ClaimDifference, ClaimOutcome, ClaimVerdict, Observed, ProbeOutcome, SetContent,
    StepOutcome, TrafficShift,
};
use svclab_model::evidence::{RejectedRequest, Verdict};

const KERNEL: &str = "6.18.44";
const GUEST: &str = "6.1.0-50-cloud-amd64";

/// Returns a case that passed without probes.
#[must_use]
pub fn passed(name: &str) -> CaseResult {
    let lab = name.split('/').next().unwrap_or(name);
    CaseResult {
        kernel: KERNEL.to_owned(),
        result: CaseStatus::Pass,
        duration_ms: 40,
        ..CaseResult::empty(lab, name)
    }
}

fn strings(items: &[&str]) -> BTreeSet<String> {
    items.iter().map(|&item| item.to_owned()).collect()
}

fn observed(verdicts: &[(Verdict, u32)], endpoints: &[&str], sources: &[&str]) -> Observed {
    Observed {
        verdicts: verdicts.iter().copied().collect(),
        endpoints: strings(endpoints),
        seen_sources: strings(sources),
        source_ports: BTreeSet::new(),
    }
}

fn probe(name: &str, expected: Option<Value>, observed: Observed, holds: bool) -> ProbeOutcome {
    ProbeOutcome {
        name: name.to_owned(),
        from: "pod/default/client".to_owned(),
        to: "lb/default/nginx-ingress:443".to_owned(),
        step: None,
        expected: expected.map(expectation),
        observed,
        holds,
    }
}

/// Parses an expectation in the notation of a lab.
fn expectation<T: DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).expect("a valid expectation")
}

fn packets(expected: Value, count: u32) -> Check {
    Check::Packets {
        expected: expectation(expected),
        count,
        missed: 0,
    }
}

/// Returns the outcome of a claim.
#[must_use]
pub fn claim(
    id: &str,
    verdict: ClaimVerdict,
    part: Option<&str>,
    difference: Option<ClaimDifference>,
) -> ClaimOutcome {
    ClaimOutcome {
        id: id.to_owned(),
        verdict,
        part: part.map(str::to_owned),
        differences: difference.into_iter().collect(),
    }
}

fn place(file: &str, line: u32) -> FileLine {
    let file = file.to_owned();
    FileLine { file, line }
}

/// Returns a case with steps after which traffic moved, once in time and once too late.
fn stepped() -> CaseResult {
    let step = |name: &str, moved: &[(&str, u64, &str)], within: Option<u64>| StepOutcome {
        name: name.to_owned(),
        applied_us: 41_000,
        shifts: moved
            .iter()
            .map(|(probe, us, to)| TrafficShift {
                probe: (*probe).to_owned(),
                delay_us: *us,
                to: (*to).to_owned(),
            })
            .collect(),
        within: within.map(Duration::from_secs),
    };
    let seen = observed(&[(Verdict::Connected, 4)], &["pod/default/web-b"], &[]);
    let after = ProbeOutcome {
        step: Some("leaves".to_owned()),
        ..probe("callAfter", Some(json!({"connected": 4})), seen, true)
    };
    let moved = [("callAfter", 1_020_000, "pod/default/web-b")];
    CaseResult {
        result: CaseStatus::Fail,
        location: Some(place("topologies/changes.yaml", 12)),
        probes: vec![after],
        steps: vec![
            step("comes", &[], None),
            step("leaves", &moved, Some(2)),
            step("flips", &moved, Some(1)),
        ],
        ..passed("changes")
    }
}

/// Returns a case in which a probe timed out as expected.
fn timed_out() -> CaseResult {
    let seen = observed(&[(Verdict::Timeout, 1)], &[], &[]);
    CaseResult {
        duration_ms: 3_021,
        location: Some(place("topologies/canal-stale-rule.yaml", 58)),
        claims: vec![
            claim("S2-3", ClaimVerdict::Confirmed, None, None),
            claim(
                "S2-10",
                ClaimVerdict::Refuted,
                Some("the port"),
                Some(ClaimDifference::Probe(probe(
                    "call",
                    Some(json!({"refused": 1})),
                    seen.clone(),
                    false,
                ))),
            ),
        ],
        probes: vec![probe("call", Some(json!({"timeout": 1})), seen, true)],
        wire: vec![packets(json!({"on": "node-1/eth0", "see": "SYN"}), 2)],
        ..passed("canal-stale-rule/stale=present,rpFilter=0")
    }
}

/// Returns a case that fails every kind of expectation.
fn failed_everywhere() -> CaseResult {
    let seen = observed(
        &[(Verdict::Connected, 7), (Verdict::Timeout, 1)],
        &["pod/default/nginx-b"],
        &["node-1", "pod/default/client"],
    );
    CaseResult {
        kernel: GUEST.to_owned(),
        result: CaseStatus::Fail,
        duration_ms: 8_124,
        location: Some(place("topologies/odd, name: 100%.yaml", 31)),
        claims: vec![claim("S1-18", ClaimVerdict::Unsettled, None, None)],
        probes: vec![
            probe(
                "call",
                Some(json!({
                    "connected": 4,
                    "timeout": 4,
                    "endpoints": ["nginx-b"],
                    "seenSource": "pod/default/client",
                })),
                seen,
                false,
            ),
            probe(
                "silence",
                Some(json!({"connected": 1})),
                Observed::default(),
                false,
            ),
            probe(
                "other",
                None,
                observed(&[(Verdict::Refused, 2)], &[], &[]),
                true,
            ),
        ],
        wire: vec![
            packets(
                json!({"on": "node-1/eth0", "see": "SYN from pod/default/client"}),
                0,
            ),
            packets(json!({"on": "node-2/eth0", "never": "RST"}), 0),
        ],
        counters: vec![Check::Counter {
            expected: expectation(json!({
                "on": "node-1",
                "counter": "TcpExtIPReversePathFilter",
                "grows": 4,
            })),
            increase: 0,
        }],
        rules: vec![Check::Rule {
            expected: expectation(json!({
                "on": "node-1",
                "table": "nat",
                "chain": "KUBE-POSTROUTING",
                "rule": "-j MASQUERADE",
                "hits": ">=1",
            })),
            hits: None,
            missed: 0,
        }],
        kernel_state: vec![Check::Set {
            expected: expectation(json!({
                "on": "node-1",
                "set": "KUBE-LOAD-BALANCER",
                "type": "hash:ip,port",
                "members": ["172.18.96.4,tcp:443"],
            })),
            observed: Some(SetContent {
                kind: "hash:ip,port".to_owned(),
                members: BTreeSet::new(),
            }),
        }],
        ..passed("clb-hairpin/policy=Local,rpFilter=0")
    }
}

/// Returns requests that API servers did not serve: one request of two nodes' kube-proxies, with
/// different timeouts, and another request.
#[must_use]
pub fn unserved_requests() -> Vec<RejectedRequest> {
    let request_of_node = |node: &str, seconds: u32, times| RejectedRequest {
        node: node.to_owned(),
        request: format!("GET /apis/x.example/v1/policies?timeoutSeconds={seconds}&watch=true"),
        status: 404,
        message: "/apis/x.example/v1/policies is not served".to_owned(),
        times,
    };
    let other_request = RejectedRequest {
        node: "node-1".to_owned(),
        request: "DELETE /api/v1/services".to_owned(),
        status: 405,
        message: "DELETE of /api/v1/services is not served".to_owned(),
        times: 1,
    };
    vec![
        request_of_node("node-1", 301, 1),
        other_request,
        request_of_node("node-2", 399, 3),
    ]
}

/// Returns a case with more probes than an output line lists.
fn many_probes() -> CaseResult {
    let seen = |verdict, count| observed(&[(verdict, count)], &["pod/default/web-a"], &["node-1"]);
    let names = ["cluster", "node", "local", "balancer", "outside"];
    let probes = names
        .iter()
        .map(|name| {
            probe(
                name,
                Some(json!({"connected": "2..6"})),
                seen(Verdict::Connected, 4),
                true,
            )
        })
        .chain([probe(
            "closed",
            Some(json!({"refused": 1})),
            seen(Verdict::Refused, 1),
            true,
        )])
        .collect();
    CaseResult {
        probes,
        claims: vec![claim("S2-10", ClaimVerdict::Confirmed, None, None)],
        refused: unserved_requests(),
        refused_missed: 2,
        ..passed("clb-hairpin/policy=Cluster,rpFilter=0")
    }
}

fn errored(name: &str, trouble: ErrorKind, message: &str, remedy: Option<&str>) -> CaseResult {
    CaseResult {
        kernel: String::new(),
        result: CaseStatus::Error,
        duration_ms: 12,
        error: Some(RunError {
            kind: trouble,
            message: message.to_owned(),
            remedy: remedy.map(str::to_owned),
        }),
        ..passed(name)
    }
}

fn cases() -> Vec<CaseResult> {
    let dump = "iptables-restore on node-1: line 3 failed\n\
                ::error::not the runner's | <b>100%</b>\n##[group]nor this";
    let module = "IPVS: Protocol not available (the module ip_vs is not loaded)";
    vec![
        timed_out(),
        passed("canal-stale-rule/stale=absent,rpFilter=0"),
        many_probes(),
        failed_everywhere(),
        errored("it's", ErrorKind::Input, dump, None),
        errored(
            "needs/mode=ipvs",
            ErrorKind::Machine,
            module,
            Some("modprobe ip_vs,\nor install qemu-system-x86"),
        ),
        errored(
            "needs/mode=iptables",
            ErrorKind::Lost,
            "the agent was killed by signal 9",
            None,
        ),
        errored(
            "needs/mode=nftables",
            ErrorKind::Bug,
            "the plan names no namespace",
            Some("please report it"),
        ),
        stepped(),
    ]
}

/// Returns the results of all example cases.
#[must_use]
pub fn results() -> Results {
    let tools = [
        ("svclab", "0.1.0"),
        ("ipset", "ipset v7.17, protocol version: 7"),
        (
            "iptables-nft-restore",
            "iptables-nft-restore v1.8.9 (nf_tables)",
        ),
        (
            "iptables-legacy-restore",
            "iptables-restore v1.8.9 (legacy)",
        ),
    ];
    let tools: BTreeMap<String, String> = tools
        .iter()
        .map(|&(name, version)| (name.to_owned(), version.to_owned()))
        .collect();
    let mut results = Results::new(tools, cases());
    results.warnings = vec![Warning {
        lab: "clb-hairpin".to_owned(),
        message: "an object of kind `Deployment` is not modelled: 100%".to_owned(),
        location: Some(FileLine {
            file: "topologies/odd, name: 100%.yaml".to_owned(),
            line: 90,
        }),
        help: Some("write its pods, each with a node and an address".to_owned()),
    }];
    results
}

/// Returns a certificate of a machine with a section that cannot be read.
#[must_use]
pub fn certificate() -> Certificate {
    let state = MachineState::default()
        .with(Section::Links, Ok(vec!["lo".to_owned()]))
        .with(
            Section::Nftables,
            Err("nft: Operation not permitted".to_owned()),
        );
    Certificate::compare(&state, &state)
}

/// Returns a certificate of a machine that a run changed.
#[must_use]
pub fn broken_certificate() -> Certificate {
    let lines = |lines: &[&str]| Ok(lines.iter().map(|line| (*line).to_owned()).collect());
    let before = MachineState::default()
        .with(Section::Links, lines(&[r#"{"ifname":"lo"}"#]))
        .with(Section::Sysctls, lines(&["net/ipv4/ip_forward = 0"]))
        .with(Section::Processes, lines(&[]));
    let after = MachineState::default()
        .with(
            Section::Links,
            lines(&[r#"{"ifname":"lo"}"#, r#"{"ifname":"veth7"}"#]),
        )
        .with(Section::Sysctls, lines(&["net/ipv4/ip_forward = 1"]))
        .with(Section::Processes, lines(&["sleep (process 4711)"]));
    Certificate::compare(&before, &after)
}

/// Returns the events of a run whose cases end in another order than they are listed.
#[must_use]
pub fn events() -> Vec<Event> {
    let results = results();
    let started = results.cases.iter().map(|case| Event::CaseStarted {
        case: case.case.clone(),
    });
    let finished = results.cases.iter().rev().map(|case| Event::CaseEnded {
        result: Box::new(case.clone()),
        evidence: None,
    });
    let begun = Event::RunStarted {
        cases: results.cases.len(),
    };
    let mut events: Vec<Event> = std::iter::once(begun)
        .chain(started)
        .chain(finished)
        .collect();
    events.push(Event::RunEnded {
        results: Box::new(results),
        duration: Duration::from_millis(8_449),
    });
    events
}

fn both_endpoints() -> Value {
    json!({"connected": 4, "endpoints": ["web-a", "web-b"]})
}

fn flow(
    name: &str,
    (verdicts, endpoints, sources): (&[Verdict], &[&str], &[&str]),
    holds: bool,
) -> FlowOutcome {
    FlowOutcome {
        flow: name.to_owned(),
        from: "pod/default/beside".to_owned(),
        to: format!("service/default/{name}:80"),
        seen: FlowObservation {
            verdicts: verdicts.iter().copied().collect(),
            endpoints: strings(endpoints),
            sources: strings(sources),
        },
        holds,
        expected: expectation(both_endpoints()),
        location: Some(place("topologies/conformance/table.yaml", 41)),
        because: None,
        source: None,
        covers: Vec::new(),
    }
}

/// Returns a case of a lab with flows. `reached` is the flow in which the cases differ.
fn with_flows(name: &str, reached: FlowOutcome) -> CaseResult {
    let both: (&[Verdict], &[&str], &[&str]) = (
        &[Verdict::Connected],
        &["pod/default/web-a", "pod/default/web-b"],
        &["node-1", "node-1/cbr0"],
    );
    let mut every = flow("every", both, true);
    every.covers = vec!["test.every".to_owned()];
    let ipvs = name.contains("mode=ipvs");
    let refused: (&[Verdict], &[&str], &[&str]) = (&[Verdict::Refused], &[], &[]);
    let timeout: (&[Verdict], &[&str], &[&str]) = (&[Verdict::Timeout], &[], &[]);
    let mut none = flow("none", if ipvs { refused } else { timeout }, true);
    let (because, source) = if ipvs {
        (
            "a virtual server without a real server refuses",
            "ip_vs_leave",
        )
    } else {
        (
            "packets to a service with endpoints, but none on the node, are dropped and not \
             rejected",
            "proxier.go",
        )
    };
    none.because = Some(because.to_owned());
    none.source = Some(format!("{source} v1.30"));
    let failed = !reached.holds;
    CaseResult {
        flows: vec![every, none, reached],
        result: if failed {
            CaseStatus::Fail
        } else {
            CaseStatus::Pass
        },
        ..passed(name)
    }
}

fn declared_flows(lab: &str, columns: Option<&str>) -> flows::DeclaredFlows {
    let fact = |id: &str, why: Option<&str>| (id.to_owned(), why.map(str::to_owned));
    flows::DeclaredFlows {
        lab: lab.to_owned(),
        columns: columns.map(str::to_owned),
        flows: ["every", "none", "pod"].map(str::to_owned).to_vec(),
        facts: [
            fact("test.every", None),
            fact("test.pod", None),
            fact("test.sctp", Some("probes do not support SCTP")),
        ]
        .into_iter()
        .collect(),
    }
}

/// Returns the flow table of 2 modes and 2 versions, with one unexpected result.
#[must_use]
pub fn flow_tables() -> Vec<FlowTable> {
    let named = |rest: &str| format!("table/{rest}");
    let expected: (&[Verdict], &[&str], &[&str]) = (
        &[Verdict::Connected],
        &["pod/default/web-a"],
        &["pod/default/beside"],
    );
    let half_timed_out: (&[Verdict], &[&str], &[&str]) = (
        &[Verdict::Connected, Verdict::Timeout],
        &["pod/default/web-a"],
        &["laptop"],
    );
    let mut failed = flow("pod", half_timed_out, false);
    failed.covers = vec!["test.pod".to_owned()];
    let cases = vec![
        with_flows(
            &named("mode=iptables,version=v1.20"),
            flow("pod", expected, true),
        ),
        with_flows(&named("mode=iptables,version=v1.30"), failed),
        with_flows(
            &named("mode=ipvs,version=v1.20"),
            flow("pod", expected, true),
        ),
        with_flows(
            &named("mode=ipvs,version=v1.30"),
            flow("pod", expected, true),
        ),
        errored(
            "table/mode=ipvs,version=v1.36",
            ErrorKind::Lost,
            "the agent exited",
            None,
        ),
    ];
    flows::tables(&[declared_flows("table", Some("mode"))], &cases)
}

/// Returns the flow table of a lab without axes.
#[must_use]
pub fn flow_table_of_one_case() -> Vec<FlowTable> {
    let pod = flow("pod", (&[], &[], &[]), false);
    flows::tables(
        &[declared_flows("table", None)],
        &[with_flows("table", pod)],
    )
}

/// Returns a case in which one flow failed, with the reason and source of its expectation.
#[must_use]
pub fn failed_flow() -> CaseResult {
    let mut failed = flow("pod", (&[Verdict::Timeout], &[], &[]), false);
    failed.because = Some("pods are sent to all endpoints".to_owned());
    failed.source = Some("pkg/proxy/iptables/proxier.go v1.30.0".to_owned());
    let seen = observed(&[(Verdict::Timeout, 4)], &[], &[]);
    let expected = Some(both_endpoints());
    CaseResult {
        probes: vec![probe("pod", expected, seen, false)],
        ..with_flows("table/mode=iptables,version=v1.30", failed)
    }
}
