//! Runs the same plans on two kernels and compares verdicts, packets, counters and rules, except
//! where two kernels may differ.

use std::time::Duration;

use futures_util::StreamExt as _;
use svclab_runner::kernel::{Agent, Host};
use svclab_runner::run::Prepared;
use svclab_test_support::block_on;
use svclab_test_support::cases::prepare_cases;
use svclab_test_support::evidence::single_stage;
use svclab_test_support::guests::new_guest;
use svclab_test_support::programs::agent;

use super::outcome::{RunOutcome, with_full_evidence};

/// Number of parallel cases in one guest, the same as of `svclab run`.
const PARALLEL_CASES: usize = 2;

/// Cases with more connections than this wait longer.
const MANY_CONNECTIONS: u32 = 100;

/// Wait of probes in such cases.
const LONG_WAIT: Duration = Duration::from_secs(30);

async fn run(agent: &Agent, prepared: &Prepared) -> RunOutcome {
    let mut session = agent.build(prepared.plan.clone()).await.expect("a lab");
    let evidence = session.probe().await.expect("evidence");
    let judgement = prepared
        .judge()
        .expect("the case can be judged")
        .judge(&evidence);
    assert!(judgement.holds(), "{}: {judgement:#?}", prepared.case.id);
    RunOutcome::new(prepared, &judgement, &single_stage(evidence))
}

/// Runs the cases of a lab on both agents and compares the outcomes.
async fn assert_same_outcomes(lab: &str, first: Agent, second: Agent) {
    let mut prepared = prepare_cases(&[lab]);
    assert!(prepared.len() > 1, "{lab}");
    for case in &mut prepared {
        let connections: u32 = case.plan.probes().map(|each| each.connections).sum();
        if connections > MANY_CONNECTIONS {
            // Recording all packets slows the guest down.
            for probe in case.plan.probes_mut() {
                probe.max_wait = LONG_WAIT;
            }
        }
    }
    futures_util::stream::iter(prepared.into_iter().map(with_full_evidence))
        .for_each_concurrent(PARALLEL_CASES, async |case| {
            let (here, there) = tokio::join!(run(&first, &case), run(&second, &case));
            let differences = differences(&here, &there);
            assert!(differences.is_empty(), "{}:\n{differences}", case.case.id);
        })
        .await;
}

/// Returns the lines that only one of two outcomes has.
fn differences(first: &RunOutcome, second: &RunOutcome) -> String {
    let only = |left: &RunOutcome, right: &RunOutcome, mark: char| -> String {
        let lines = left.0.difference(&right.0);
        let marked: Vec<String> = lines.map(|line| format!("{mark} {line}\n")).collect();
        marked.concat()
    };
    only(first, second, '-') + &only(second, first, '+')
}

fn assert_host_and_guest_agree(lab: &str) {
    block_on(async {
        let host = Host::with_agent(agent()).start().await;
        let guest = new_guest("6.12").await.start().await;
        assert_same_outcomes(lab, host.expect("an agent"), guest.expect("a guest")).await;
    });
}

#[test]
fn canal_stale_rule_host_and_guest_agree() {
    assert_host_and_guest_agree("canal-stale-rule");
}

#[test]
fn local_ingress_host_and_guest_agree() {
    assert_host_and_guest_agree("local-ingress/mode=iptables");
}

fn assert_guests_agree(lab: &str) {
    block_on(async {
        let older = new_guest("6.1").await.start().await;
        let newer = new_guest("6.12").await.start().await;
        assert_same_outcomes(lab, older.expect("a guest"), newer.expect("a guest")).await;
    });
}

#[test]
fn clb_hairpin_both_guest_kernels_agree() {
    assert_guests_agree("clb-hairpin");
}

#[test]
fn local_ingress_ipvs_mode_both_guest_kernels_agree() {
    assert_guests_agree("local-ingress/mode=ipvs");
}

#[test]
fn missing_cluster_cidr_both_guest_kernels_agree() {
    assert_guests_agree("missing-cluster-cidr");
}
