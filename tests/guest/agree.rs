//! Runs the same plans on two kernels and compares verdicts, packets, counters and rules, except
//! where two kernels may differ.

use std::time::Duration;

use futures_util::StreamExt as _;
use svclab_runner::kernel::{Agent, Host};
use svclab_runner::run::Prepared;

use super::cases::cases;
use super::guests::{AGENT, block_on, guest};
use super::outcome::{RunOutcome, watched};

/// Number of parallel cases in one guest, the same as of `svclab run`.
const AT_ONCE: usize = 2;

/// Cases with more connections than this wait longer.
const MANY: u32 = 100;

/// Wait of probes in such cases.
const PATIENCE: Duration = Duration::from_secs(30);

async fn run(agent: &Agent, prepared: &Prepared) -> RunOutcome {
    let mut session = agent.build(prepared.plan.clone()).await.expect("a lab");
    let evidence = session.probe().await.expect("evidence");
    let judgement = prepared
        .judge()
        .expect("the case can be judged")
        .judge(&evidence);
    assert!(judgement.holds(), "{}: {judgement:#?}", prepared.case.id);
    RunOutcome::new(prepared, &judgement, &evidence)
}

/// Runs the cases of a lab on both agents and compares the outcomes.
async fn assert_same_outcomes(lab: &str, here: Agent, there: Agent) {
    let mut prepared = cases(&[lab.to_owned()]);
    assert!(prepared.len() > 1, "{lab}");
    for case in &mut prepared {
        let connections: u32 = case.plan.probes.iter().map(|each| each.connections).sum();
        if connections > MANY {
            // Recording all packets slows the guest down.
            for probe in &mut case.plan.probes {
                probe.patience = PATIENCE;
            }
        }
    }
    futures_util::stream::iter(prepared.into_iter().map(watched))
        .for_each_concurrent(AT_ONCE, async |case| {
            let (here, there) = tokio::join!(run(&here, &case), run(&there, &case));
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
        let host = Host::with_agent(AGENT.into()).start().await;
        let guest = guest("6.12").await.start().await;
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
        let older = guest("6.1").await.start().await;
        let newer = guest("6.12").await.start().await;
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
