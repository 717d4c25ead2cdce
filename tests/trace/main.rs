//! Tests the trace evidence of this host's kernel: matched rules, drops and conntrack entries.

#[path = "../shared/accounts.rs"]
mod accounts;
#[path = "../shared/cases.rs"]
mod cases;
#[path = "../shared/copied.rs"]
mod copied;
#[path = "../shared/dropped.rs"]
mod dropped;
mod drops;
mod during;
#[path = "../shared/full.rs"]
mod full;
mod inside;
mod labs;
#[path = "../shared/rights.rs"]
mod rights;
#[path = "../shared/traced.rs"]
mod traced;

use std::path::PathBuf;

use svclab_model::evidence::{Drops, Evidence};
use svclab_model::plan::{Backend, Plan};
use svclab_runner::kernel::{Agent, Host};
use tokio::runtime::Builder;

const AGENT: &str = env!("CARGO_BIN_EXE_svclab-agent");

fn host() -> Host {
    Host::with_agent(PathBuf::from(AGENT))
}

fn block_on<T>(doing: impl Future<Output = T>) -> T {
    let runtime = Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    runtime.block_on(doing)
}

fn with_agent<T>(doing: impl AsyncFnOnce(Agent) -> T) -> T {
    block_on(async { doing(host().start().await.expect("an agent")).await })
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
fn a_plan_that_traces_nothing_hears_nothing() {
    let mut plan = traced::plan(Backend::Nft);
    plan.watch.trace.clear();
    let evidence = probe(plan);
    assert!(evidence.met.is_empty() && evidence.connections.is_empty());
    assert_eq!(evidence.met_left_out, 0);
    assert_eq!(evidence.drops, Drops::Unwatched);
}
