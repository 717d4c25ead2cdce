//! Measures the cost of evidence on this host and in a guest. Runs the same cases without evidence,
//! with the evidence their labs require, and with full evidence. Full evidence is what `svclab
//! explain` and `svclab run --report` record. Also measures how long it takes to reconstruct
//! journeys from the evidence.
//!
//! Run by `scripts/bench` on an idle machine.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use comfy_table::{Cell, CellAlignment, Table, presets};
use svclab_journey::journey::journeys;
use svclab_model::evidence::StageEvidence;
use svclab_model::plan::{EvidenceRequest, Plan};
use svclab_runner::kernel::guest::{Cache, Guest, KernelRequest};
use svclab_runner::kernel::{Agent, Host};
use svclab_runner::run::{prepare, select_labs};
use svclab_test_support::evidence::single_stage;

/// Path of the measured program.
const AGENT: &str = env!("CARGO_BIN_EXE_svclab-agent");

/// Cases without timeouts on this host, as descriptions and names.
const HOST_CASES: [(&str, &str); 4] = [
    (
        "one connection through a tunnel",
        "canal-stale-rule/stale=removed,rpFilter=1,underlay=passes",
    ),
    (
        "288 connections",
        "local-ingress/policy=Cluster,clusterCIDR=set,version=v1.30,mode=iptables",
    ),
    (
        "six namespaces, iptables-nft",
        "bench/six-namespaces/iptables=nft",
    ),
    (
        "six namespaces, iptables-legacy",
        "bench/six-namespaces/iptables=legacy",
    ),
];

/// Cases in a guest.
const GUEST_CASES: [(&str, &str); 2] = [
    HOST_CASES[0],
    (
        "8 connections by IPVS",
        "clb-hairpin/policy=Cluster,ingress=both,balancer=internal,rpFilter=0,byHand=nothing",
    ),
];

/// Number of measured runs of each case, after one unmeasured run.
const RUNS: usize = 15;

fn main() {
    // Ignores the arguments of cargo, including filters.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    let mut table = Table::new();
    table.load_style(presets::ASCII_MARKDOWN).set_header([
        "on",
        "a case",
        "unwatched",
        "as its lab expects",
        "everything",
        "more",
        "journeys",
    ]);
    runtime.block_on(async {
        let host = Host::with_agent(PathBuf::from(AGENT));
        let agent = host.start().await.expect("an agent");
        rows(&mut table, &agent, &HOST_CASES).await;
        drop(agent);
        let target = Path::new(env!("CARGO_TARGET_TMPDIR"));
        let cache = Cache::open(target.join("guests")).expect("a cache");
        let guest = Guest::with_agent(cache, &KernelRequest::Newest, PathBuf::from(AGENT)).await;
        let agent = guest.expect("a kernel").start().await;
        rows(&mut table, &agent.expect("a guest starts"), &GUEST_CASES).await;
    });
    println!("{table}");
}

async fn rows(table: &mut Table, agent: &Agent, cases: &[(&str, &str)]) {
    for (description, name) in cases {
        let plan = plan(name);
        let watches = [
            EvidenceRequest::default(),
            plan.evidence.clone(),
            EvidenceRequest::everything(&plan),
        ];
        let mut medians = Vec::new();
        let mut last = None;
        for watch in watches {
            let plan = Plan {
                evidence: watch,
                ..plan.clone()
            };
            let mut took = Vec::new();
            for _ in 0..=RUNS {
                let (time, evidence) = run(agent, &plan).await;
                took.push(time);
                last = Some(evidence);
            }
            took.remove(0);
            medians.push(median(took));
        }
        let last_evidence = last.expect("the case ran");
        let followed = (0..RUNS).map(|_| {
            let begun = Instant::now();
            let journeys = journeys(&plan, &plan.stages[0].probes, &last_evidence);
            assert_eq!(journeys.len(), last_evidence.attempts.len());
            begun.elapsed()
        });
        let followed = median(followed.collect());
        let more = medians[2].saturating_sub(medians[0]);
        let kernel = agent.environment().kernel.as_str();
        let mut row = vec![Cell::new(kernel), Cell::new(description)];
        row.extend(medians.into_iter().chain([more, followed]).map(|took| {
            let text = format!("{:.1} ms", took.as_secs_f64() * 1e3);
            Cell::new(text).set_alignment(CellAlignment::Right)
        }));
        table.add_row(row);
    }
}

/// Runs a plan. Returns the time from plan to evidence, and the evidence.
async fn run(agent: &Agent, plan: &Plan) -> (Duration, StageEvidence) {
    let begun = Instant::now();
    let mut session = agent.build(plan.clone()).await.expect("a lab");
    let evidence = single_stage(session.probe().await.expect("evidence"));
    let took = begun.elapsed();
    assert_eq!(evidence.packets_missed + evidence.trace_missed, 0);
    drop(session);
    // The agent answers requests in order: once the empty lab is built, the previous lab is
    // removed.
    drop(agent.build(Plan::default()).await);
    (took, evidence)
}

fn median(mut took: Vec<Duration>) -> Duration {
    took.sort_unstable();
    took[took.len() / 2]
}

fn plan(name: &str) -> Plan {
    let chosen =
        select_labs(&[name.to_owned()], &svclab_test_support::topologies()).expect("a lab");
    let case = &chosen[0].scenario.cases()[chosen[0].cases[0]];
    let prepared = prepare(&chosen[0], case, Duration::from_secs(3));
    prepared.expect("the case can be prepared").plan
}
