//! Tests the trace evidence of this host's kernel: matched rules, drops and conntrack entries.

mod connections;
mod drops;
mod during;
mod inside;
mod interrupts;
mod labs;

use svclab_model::evidence::{DropEvidence, StageEvidence};
use svclab_model::plan::{Backend, Plan};
use svclab_runner::kernel::{Agent, Host};
use svclab_test_support::block_on;
use svclab_test_support::evidence::{single_stage, traced};
use svclab_test_support::programs::agent;

fn new_host() -> Host {
    Host::with_agent(agent())
}

fn with_agent<T>(work: impl AsyncFnOnce(Agent) -> T) -> T {
    block_on(async { work(new_host().start().await.expect("an agent")).await })
}

fn probe_plan(plan: Plan) -> StageEvidence {
    with_agent(async |agent| {
        let mut session = agent.build(plan).await.expect("a lab");
        single_stage(session.probe().await.expect("evidence"))
    })
}

#[test]
fn trace_iptables_nft_reports_all_rules() {
    traced::check_trace(&probe_plan(traced::router_plan(Backend::Nft)), Backend::Nft);
}

#[test]
fn trace_iptables_legacy_reports_all_rules() {
    traced::check_trace(
        &probe_plan(traced::router_plan(Backend::Legacy)),
        Backend::Legacy,
    );
}

#[test]
fn trace_not_requested_records_nothing() {
    let mut plan = traced::router_plan(Backend::Nft);
    plan.evidence.trace.clear();
    let evidence = probe_plan(plan);
    assert!(evidence.trace.is_empty() && evidence.conntrack.is_empty());
    assert_eq!(evidence.trace_missed, 0);
    assert_eq!(evidence.drops, DropEvidence::Unwatched);
}
