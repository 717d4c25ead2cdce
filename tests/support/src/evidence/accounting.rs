//! Runs cases with and without full evidence. Reports how every packet ended and whether the
//! verdicts are the same.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::time::Duration;

use futures_util::StreamExt as _;
use svclab_journey::journey::{Journey, PathEnd};
use svclab_model::evidence::Evidence;
use svclab_model::plan::{EvidenceRequest, Plan};
use svclab_runner::kernel::Agent;
use svclab_runner::run::Prepared;

/// Counts of the ways in which packets ended.
#[derive(Debug, Default)]
pub struct PacketAccount {
    /// Number of packets by kind of end.
    ends: BTreeMap<&'static str, usize>,
    /// Descriptions of packets whose end is unknown.
    pub unknown: Vec<String>,
    /// Unexpected results, with or without full evidence, and evidence that was missed.
    pub wrong: Vec<String>,
}

impl PacketAccount {
    fn from_journeys(case: &str, journeys: &[Journey]) -> Self {
        let mut account = Self::default();
        for journey in journeys {
            for flight in &journey.packets {
                let end = match flight.end {
                    PathEnd::Delivered => "delivered",
                    PathEnd::Rejected(_) => "answered",
                    PathEnd::DroppedByRule => "dropped by a rule",
                    PathEnd::Dropped { .. } => "dropped with the kernel's reason",
                    PathEnd::CountedDrop { .. } => "dropped and counted",
                    PathEnd::NotReceived => "not received",
                    PathEnd::Waiting(_) => "waiting for a neighbour",
                    PathEnd::Unknown => "unknown",
                };
                *account.ends.entry(end).or_default() += 1;
                if flight.end == PathEnd::Unknown {
                    let hop = flight.hops.last().map(|hop| (&hop.namespace, hop.after));
                    let (namespace, flow) = hop.expect("a packet has a hop");
                    account.unknown.push(format!(
                        "{case} {} #{}: {} {flow} in {namespace}",
                        journey.probe,
                        journey.number,
                        flight.kind.label()
                    ));
                }
            }
        }
        account
    }

    /// Adds the counts of `other`.
    pub fn add(&mut self, other: Self) {
        for (end, count) in other.ends {
            *self.ends.entry(end).or_default() += count;
        }
        self.unknown.extend(other.unknown);
        self.wrong.extend(other.wrong);
    }

    /// Prints the counts to standard error directly, which libtest does not capture.
    pub fn print(&self, kernel: &str) {
        let packets: usize = self.ends.values().sum();
        let ends: Vec<String> = self
            .ends
            .iter()
            .map(|(end, count)| format!("{count} {end}"))
            .collect();
        // In hundredths of a percent.
        let share = self.unknown.len() * 10_000 / packets.max(1);
        let (percent, hundredths) = (share / 100, share % 100);
        let _ = writeln!(
            std::io::stderr(),
            "{kernel}: {packets} packets: {}; the end of {percent}.{hundredths:02} % is unknown",
            ends.join(", ")
        );
    }
}

/// Runs every case with and without full evidence, and returns how every packet ended. With
/// `patience`, probes with full evidence wait that long: a slow kernel needs more time to trace
/// many connections.
pub async fn account_for_packets(
    agent: &Agent,
    cases: Vec<Prepared>,
    at_once: usize,
    patience: Option<Duration>,
) -> PacketAccount {
    let accounts: Vec<PacketAccount> = futures_util::stream::iter(cases)
        .map(async |case| run_both(agent, &case, patience).await)
        .buffer_unordered(at_once)
        .collect()
        .await;
    let mut total = PacketAccount::default();
    for account in accounts {
        total.add(account);
    }
    total
}

async fn run_both(agent: &Agent, case: &Prepared, patience: Option<Duration>) -> PacketAccount {
    let id = &case.case.id;
    let judge = case.judge().expect("the case can be judged");
    let mut watched = Plan {
        evidence: EvidenceRequest::everything(&case.plan),
        ..case.plan.clone()
    };
    for probe in watched.probes_mut() {
        probe.max_wait = patience.unwrap_or(probe.max_wait);
    }
    let evidence = run(agent, watched).await;
    let mut account = PacketAccount::from_journeys(id, &case.journeys(&evidence).concat());
    let judgement = judge.judge(&evidence);
    if !judgement.holds() {
        let wrong = format!("{id}, watched: {judgement:#?}");
        account.wrong.push(wrong);
    }
    let stages = evidence.stages.iter();
    let left_out: u64 = stages
        .map(|stage| stage.packets_missed + stage.trace_missed + stage.drops.missed())
        .sum();
    if left_out > 0 {
        account
            .wrong
            .push(format!("{id}: {left_out} events missed"));
    }
    // Without full evidence, only the verdicts can be compared.
    let unwatched = Plan {
        evidence: EvidenceRequest::default(),
        ..case.plan.clone()
    };
    let unwatched = run(agent, unwatched).await;
    let judgement = judge.judge(&unwatched);
    let wrong = judgement.probes().filter(|probe| !probe.holds);
    let wrong = wrong.map(|probe| format!("{id}, unwatched: {probe:#?}"));
    account.wrong.extend(wrong);
    account
}

async fn run(agent: &Agent, plan: Plan) -> Evidence {
    let mut session = agent.build(plan).await.expect("a lab");
    session.probe().await.expect("evidence")
}
