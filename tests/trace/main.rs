//! What happens to packets by this host's own account: rules met, connections.

#[path = "../shared/accounts.rs"]
mod accounts;
#[path = "../shared/cases.rs"]
mod cases;
mod during;
mod labs;
#[path = "../shared/traced.rs"]
mod traced;

use std::path::PathBuf;

use svclab::evidence::{Drops, Evidence};
use svclab::kernel::{Agent, Host};
use svclab::plan::{Backend, Plan};
use tokio::runtime::Builder;

fn with_agent<T>(doing: impl AsyncFnOnce(Agent) -> T) -> T {
    let runtime = Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    runtime.block_on(async {
        let host = Host::with_agent(PathBuf::from(env!("CARGO_BIN_EXE_svclab")));
        doing(host.start().await.expect("an agent")).await
    })
}

fn probe(plan: Plan) -> Evidence {
    with_agent(async |agent| {
        let mut session = agent.build(plan).await.expect("a lab");
        session.probe().await.expect("evidence")
    })
}

#[test]
fn every_step_through_iptables_nft_is_told() {
    traced::check(&probe(traced::plan(Backend::Nft)), Backend::Nft);
}

#[test]
fn every_step_through_iptables_legacy_is_told() {
    traced::check(&probe(traced::plan(Backend::Legacy)), Backend::Legacy);
}

#[test]
fn an_agent_that_is_contained_says_why_it_knows_of_no_drops() {
    let Drops::Uncertain(why) = probe(traced::plan(Backend::Nft)).drops else {
        panic!("it may trace this machine's kernel");
    };
    insta::assert_snapshot!(why, @"the kernel does not let svclab trace what it drops: Operation not permitted (os error 1)");
}

#[test]
fn a_plan_that_traces_nothing_hears_nothing() {
    let mut plan = traced::plan(Backend::Nft);
    plan.watch.trace.clear();
    let evidence = probe(plan);
    assert!(evidence.met.is_empty() && evidence.connections.is_empty());
    assert_eq!(evidence.met_left_out, 0);
    assert_eq!(evidence.drops, Drops::Unwatched);
}
