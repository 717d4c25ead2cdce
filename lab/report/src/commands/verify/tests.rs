//! Tests of the text, with an example document.

use super::*;
use svclab_dump::{Difference, DumpChange, DumpLocation, Side};
use svclab_experiment::ConnectionOutcome;
use svclab_experiment::verify::{
    ComparedFlow, FailedCase, FlowId, OneSidedMatches, SCHEMA, SyncTimes,
};
use svclab_model::evidence::Verdict;
use svclab_runner::results::flows::Reason;
use svclab_runner::results::{ErrorKind, RunError};

fn times(verdict: Verdict, endpoint: Option<&str>, connections: u64) -> OutcomeCount {
    OutcomeCount {
        outcome: ConnectionOutcome {
            verdict,
            endpoint: endpoint.map(str::to_owned),
            source: endpoint.map(|_| "host/laptop".to_owned()),
            initial_endpoint: None,
        },
        connections,
    }
}

fn before_steps() -> ChangedFlow {
    ChangedFlow {
        flow: FlowId {
            case: "node-port/policy=Cluster".to_owned(),
            kernel: "6.18.44".to_owned(),
            step: None,
            probe: "call".to_owned(),
            from: "host/laptop".to_owned(),
            to: "node-1:30080".to_owned(),
        },
        against: vec![times(Verdict::Connected, Some("pod/default/web"), 16)],
        new: vec![
            times(Verdict::Connected, Some("pod/default/web"), 2),
            times(Verdict::Timeout, None, 14),
        ],
        matches: OneSidedMatches {
            against: vec!["node-1: nat KUBE-POSTROUTING: -j MASQUERADE --random-fully".to_owned()],
            new: Vec::new(),
        },
        error_per_billion: 2_500,
    }
}

fn in_a_step() -> ChangedFlow {
    let mut moved = times(Verdict::Answered, Some("pod/default/web-b"), 17);
    moved.outcome.initial_endpoint = Some("pod/default/web-a".to_owned());
    let mut lost = times(Verdict::Silent, None, 1);
    lost.outcome.initial_endpoint = Some("pod/default/web-a".to_owned());
    ChangedFlow {
        flow: FlowId {
            case: "service-changes".to_owned(),
            kernel: "6.18.44".to_owned(),
            step: Some("oneLeaves".to_owned()),
            probe: "askAsOneLeaves".to_owned(),
            from: "host/laptop".to_owned(),
            to: "service/default/web:53".to_owned(),
        },
        against: vec![
            times(Verdict::Answered, Some("pod/default/web-a"), 15),
            times(Verdict::Answered, Some("pod/default/web-b"), 17),
        ],
        new: vec![
            times(Verdict::Answered, Some("pod/default/web-b"), 14),
            moved,
            lost,
        ],
        matches: OneSidedMatches::default(),
        error_per_billion: 0,
    }
}

/// Returns the flows of three cases of two labs; two of the flows are changed.
fn compared() -> Vec<ComparedFlow> {
    let changed = [before_steps(), in_a_step()].map(|changed| ComparedFlow {
        flow: changed.flow,
        against: changed.against,
        new: changed.new,
        is_changed: true,
        reason: Some(reason("the policy is Cluster")),
    });
    let same = |case: &str, probe: &str| {
        let outcomes = vec![times(Verdict::Connected, Some("pod/default/web"), 16)];
        ComparedFlow {
            flow: FlowId {
                case: case.to_owned(),
                probe: probe.to_owned(),
                ..before_steps().flow
            },
            against: outcomes.clone(),
            new: outcomes,
            is_changed: false,
            reason: Some(reason("the endpoint is local")),
        }
    };
    let [first, second] = changed;
    vec![
        first,
        same("node-port/policy=Cluster", "fromPod"),
        same("node-port/policy=Local", "call"),
        second,
    ]
}

fn reason(because: &str) -> Reason {
    Reason {
        because: because.to_owned(),
        source: Some("kubernetes v1.36, pkg/proxy/topology.go".to_owned()),
    }
}

fn shares_differ() -> SharesDiffer {
    let shares = |all: [(&str, u64); 2]| {
        let share = |(endpoint, draws): (&str, u64)| Share {
            endpoint: Some(format!("pod/default/{endpoint}")),
            draws,
        };
        all.map(share).to_vec()
    };
    SharesDiffer {
        service: "service/default/web:80".to_owned(),
        modes: "iptables".to_owned(),
        cases: ["a", "b", "c", "d"].map(str::to_owned).to_vec(),
        flows: 9,
        by_client: false,
        against: shares([("web-a", 1_201), ("web-b", 1_187)]),
        new: shares([("web-a", 797), ("web-b", 1_591)]),
        error_per_billion: 0,
    }
}

fn missing(rule: &str) -> Difference {
    Difference {
        location: DumpLocation::Chain {
            program: "iptables-save".to_owned(),
            table: "nat".to_owned(),
            chain: rule.split(' ').nth(1).unwrap_or_default().to_owned(),
        },
        change: DumpChange::Item {
            only: Side::First,
            item: rule.to_owned(),
            line: 7,
        },
        owner: None,
        repeated_in: None,
    }
}

fn traffic(step: &str, probe: &str, against_us: Option<u64>, new_us: Option<u64>) -> FlowShift {
    FlowShift {
        case: "service-changes".to_owned(),
        step: step.to_owned(),
        probe: probe.to_owned(),
        against_us,
        new_us,
    }
}

/// Returns a verification with results of every kind.
pub fn document() -> Verification {
    Verification {
        schema: SCHEMA.to_owned(),
        against: SideInfo {
            program: None,
            version: "v1.20".to_owned(),
            sync: None,
            shift_times: ShiftTimes::from_times(vec![7_400, 12_000]),
            refused: Vec::new(),
        },
        new: SideInfo {
            program: Some("/tmp/kube-proxy".to_owned()),
            version: "v1.20.2".to_owned(),
            sync: SyncTimes::from_times(vec![310, 1200, 455]),
            shift_times: ShiftTimes::from_times(vec![93_000, 78_200, 1_204_000]),
            refused: svclab_runner::results::fixture::unserved_requests(),
        },
        cases: 40,
        flows: 312,
        changed: vec![before_steps(), in_a_step()],
        undecided: vec![UndecidedFlow {
            flow: in_a_step().flow,
            against: in_a_step().against,
            new: in_a_step().new,
            has_other_verdict: true,
        }],
        compared: compared(),
        shares: vec![shares_differ()],
        rules: vec![
            RulesDiffer {
                case: "node-port/policy=Local".to_owned(),
                step: None,
                node: "node-1".to_owned(),
                differences: vec![missing("-A KUBE-FORWARD -j ACCEPT")],
            },
            RulesDiffer {
                case: "service-changes".to_owned(),
                step: Some("oneLeaves".to_owned()),
                node: "node-1".to_owned(),
                differences: vec![missing("-A KUBE-SVC-A -j KUBE-SEP-B")],
            },
        ],
        shifts: vec![
            traffic("oneComes", "callBoth", Some(7_400), Some(78_200)),
            traffic("oneLeaves", "callStaying", Some(12_000), Some(93_000)),
            traffic("oneLeaves", "askStaying", None, Some(1_204_000)),
        ],
        failed: vec![FailedCase {
            case: "local-ingress".to_owned(),
            side: SideName::New,
            error: RunError {
                kind: ErrorKind::Input,
                message: "the kube-proxy of node-1 ended".to_owned(),
                remedy: Some("give the path of a kube-proxy".to_owned()),
            },
        }],
        not_compared: vec![
            NotCompared {
                cases: ["a", "b", "c", "d", "e"].map(str::to_owned).to_vec(),
                from_step: None,
                reason: "kube-proxy has no flag for `bindLoadBalancerIPs`".to_owned(),
            },
            NotCompared {
                cases: vec!["service-changes/mode=ipvs".to_owned()],
                from_step: Some("oneLeaves".to_owned()),
                reason: "the step `oneLeaves` changes IPVS virtual servers in node-1, which \
                          breaks their connections"
                    .to_owned(),
            },
        ],
        interrupted: false,
    }
}

#[test]
fn render_text_differences_match_snapshot() {
    insta::assert_snapshot!(render_text(
        &document(),
        false,
        false,
        TerminalWidth::default()
    ));
}

#[test]
fn render_text_verbose_matches_snapshot() {
    insta::assert_snapshot!(render_text(
        &document(),
        true,
        false,
        TerminalWidth::default()
    ));
}

#[test]
fn render_text_equal_sides_match_snapshot() {
    let alike = Verification {
        changed: Vec::new(),
        undecided: Vec::new(),
        shares: Vec::new(),
        rules: Vec::new(),
        shifts: Vec::new(),
        failed: Vec::new(),
        not_compared: Vec::new(),
        ..document()
    };
    insta::assert_snapshot!(render_text(&alike, true, false, TerminalWidth::default()));
}

#[test]
fn compared_flows_have_column_for_each_side() {
    let tables = compared_flows(&document());
    insta::assert_json_snapshot!(tables.tables);
    assert_eq!(tables.omitted, 0);
    let none = Verification {
        compared: Vec::new(),
        ..document()
    };
    assert_eq!(compared_flows(&none), ComparedTables::default());
}

#[test]
fn compared_flows_omit_only_rows_without_difference() {
    let mut verification = document();
    let last = verification.compared[0].clone();
    let many = (0..1200).map(|index| ComparedFlow {
        flow: FlowId {
            probe: format!("probe{index}"),
            ..last.flow.clone()
        },
        is_changed: index == 1199,
        ..last.clone()
    });
    verification.compared = many.collect();
    let tables = compared_flows(&verification);
    let rows = &tables.tables[0].flows;
    assert_eq!((rows.len(), tables.omitted), (1001, 199));
    assert!(rows.last().is_some_and(|row| row.differs));
}
