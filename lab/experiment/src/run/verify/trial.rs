//! Runs and compares both sides of every case.

use std::collections::BTreeSet;
use std::future::Future;
use std::sync::Arc;

use futures_util::stream::{self, StreamExt as _};
use indexmap::IndexMap;
use tokio::sync::mpsc;

use super::bench::{AFFINITY_CONNECTIONS, CaseComparison};
use super::pairs::{CasePair, PreparedPairs};
use super::shares::{FlowDraws, Shares};
use super::side::Side;
use crate::verify::{
    ChangedFlow, DrawUnit, Draws, FailedCase, FlowShift, LOOKS, Likeness, OutcomeCount,
    RulesDiffer, SCHEMA, ShiftTimes, SideName, SyncTimes, Tally, Threshold, Verification,
};
use svclab_model::evidence::{RejectedRequest, refused};
use svclab_runner::results::RunError;
use svclab_runner::run::Prepared;
use svclab_runner::run::execute::{RunOptions, to_run_error};
use svclab_runner::run::pool::{Pool, Pools};
use svclab_runner::run::tasks::catch_panic;

/// Number of connections of a flow in the second run. Each later run has four times as many.
const FIRST_DRAW_CONNECTIONS: u32 = 64;

/// Number of clients that are drawn at once if a service chooses by client.
const CLIENTS_PER_DRAW: usize = 32;

/// Maximum number of connections of a flow in one run.
const MAX_CONNECTIONS: u32 = 4096;

/// Progress of the verification.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Progress {
    /// This case started.
    Started(String),
    /// This case ended.
    Ended(String),
}

/// Compares all pairs, several in parallel, and sends the progress. If the run is cancelled, the
/// result covers only the finished cases.
pub async fn verify(
    found: PreparedPairs,
    against: &Side,
    new: &Side,
    options: &RunOptions,
    progress: &mpsc::UnboundedSender<Progress>,
    cancelled: impl Future<Output = ()>,
) -> Verification {
    let both = found
        .pairs
        .iter()
        .flat_map(|pair| [&pair.against, &pair.new]);
    let cases: Vec<Prepared> = both.cloned().collect();
    let pools = Pools::new(options, &cases);
    let threshold = Threshold::for_flows(found.pairs.iter().map(CasePair::flows).sum());
    let mut compared = Vec::new();
    let mut shares = Shares::default();
    let mut not_drawn = Vec::new();
    let comparison = async {
        let mut running = stream::iter(&found.pairs)
            .map(async |pair: &CasePair| {
                let case = pair.new.case.id.clone();
                // The receiver may no longer exist.
                let _ = progress.send(Progress::Started(case.clone()));
                let result = Box::pin(catch_panic(compare_case(pair, &pools, threshold))).await;
                let result = result.unwrap_or_else(|error| {
                    let (case, side) = (case.clone(), SideName::New);
                    (Err(FailedCase { case, side, error }), None)
                });
                let _ = progress.send(Progress::Ended(case));
                result
            })
            .buffered(options.jobs.max(1));
        while let Some(result) = running.next().await {
            compared.push(result);
        }
        shares = Shares::new(first_draws(&found.pairs, &compared));
        not_drawn = shares.draw(&found.pairs, &pools, options.jobs).await;
    };
    let interrupted = tokio::select! {
        biased;
        () = comparison => false,
        () = cancelled => true,
    };
    let mut verification = Verification {
        schema: SCHEMA.to_owned(),
        against: against.to_side_info(),
        new: new.to_side_info(),
        cases: 0,
        flows: 0,
        changed: Vec::new(),
        shares: shares.differing(&found.pairs),
        rules: Vec::new(),
        shifts: Vec::new(),
        failed: found.failed.into_iter().chain(not_drawn).collect(),
        not_compared: found.not_compared,
        interrupted,
    };
    let mut sync_times = [Vec::new(), Vec::new()];
    for (result, step_error) in compared {
        verification.failed.extend(step_error);
        match result {
            Ok(compared_case) => {
                verification.cases += 1;
                verification.flows += compared_case.flows;
                verification.changed.extend(compared_case.changed);
                verification.rules.extend(compared_case.rules);
                verification.shifts.extend(compared_case.moved);
                for (all, own) in sync_times.iter_mut().zip(compared_case.sync_ms) {
                    all.extend(own);
                }
                let [against, new] = compared_case.refused;
                refused::merge(&mut verification.against.refused, &against);
                refused::merge(&mut verification.new.refused, &new);
            }
            Err(failed) => verification.failed.push(failed),
        }
    }
    let [first, second] = sync_times.map(SyncTimes::from_times);
    verification.against.sync = first;
    verification.new.sync = second;
    let shift_times = |of: fn(&FlowShift) -> Option<u64>| {
        ShiftTimes::from_times(verification.shifts.iter().filter_map(of).collect())
    };
    let [first, second] = [
        shift_times(|moved| moved.against_us),
        shift_times(|moved| moved.new_us),
    ];
    verification.against.shift_times = first;
    verification.new.shift_times = second;
    verification
}

/// Returns the draws of flows before the steps, for cases with a result.
fn first_draws(pairs: &[CasePair], compared: &[ComparisonResult]) -> Vec<FlowDraws> {
    let mut draws = Vec::new();
    for (case, (pair, (ended, _))) in pairs.iter().zip(compared).enumerate() {
        let flows = ended.iter().flat_map(|compared| &compared.drawn);
        draws.extend(flows.filter_map(|(probe, tallies)| {
            Some(FlowDraws {
                case,
                probe: probe.clone(),
                group: pair.spread(probe, tallies)?,
                tallies: tallies.clone(),
            })
        }));
    }
    draws
}

/// Result of a case, and the error that prevented the comparison of its steps.
type ComparisonResult = (Result<ComparedCase, FailedCase>, Option<FailedCase>);

/// Compared case.
struct ComparedCase {
    flows: usize,
    /// Outcomes of each flow in the first run of the case.
    drawn: Vec<(String, [Tally; 2])>,
    changed: Vec<ChangedFlow>,
    rules: Vec<RulesDiffer>,
    moved: Vec<FlowShift>,
    /// Sync times of kube-proxies in milliseconds, by side.
    sync_ms: [Vec<u64>; 2],
    /// Requests that the API servers refused, by side.
    refused: [Vec<RejectedRequest>; 2],
}

/// Compares a case. If no kernel can make its steps, only the stage before them is compared.
async fn compare_case(pair: &CasePair, pools: &Pools, threshold: Threshold) -> ComparisonResult {
    match (find_pool(pair, pools).await, pair.new.plan.steps.first()) {
        (Ok(pool), _) => (compare_on(pair, &pool, threshold).await, None),
        (Err(failed), None) => (Err(failed), None),
        (Err(mut step_error), Some(first)) => {
            let shorter = pair.without_steps();
            match find_pool(&shorter, pools).await {
                Ok(pool) => {
                    let message = &mut step_error.error.message;
                    message.insert_str(0, &format!("from step {} on: ", first.name));
                    (
                        compare_on(&shorter, &pool, threshold).await,
                        Some(step_error),
                    )
                }
                // No kernel can run the stage before the steps either.
                Err(failed) => (Err(failed), None),
            }
        }
    }
}

pub fn failed_on_new(pair: &CasePair, error: RunError) -> FailedCase {
    FailedCase {
        case: pair.new.case.id.clone(),
        side: SideName::New,
        error,
    }
}

/// Returns the pool that compares a case. If the case requires several kernels, the first is
/// enough.
pub async fn find_pool(pair: &CasePair, pools: &Pools) -> Result<Arc<Pool>, FailedCase> {
    let found = pools.pools_for_case(&pair.new).await;
    let found = found.map_err(|error| failed_on_new(pair, to_run_error(&error)))?;
    let first = found.into_iter().next();
    first.ok_or_else(|| failed_on_new(pair, RunError::no_kernel()))
}

/// Compares a case with agents of one kernel.
async fn compare_on(
    pair: &CasePair,
    pool: &Pool,
    threshold: Threshold,
) -> Result<ComparedCase, FailedCase> {
    let _room = pool.acquire_room(&pair.new.plan).await;
    let agent = pool.agent().await;
    let agent = agent.map_err(|error| failed_on_new(pair, to_run_error(&error)))?;
    let bench = CaseComparison::new(pair, agent);
    let both = bench.run_once().await?;
    let first: Vec<(String, [Tally; 2])> = bench.tallies(&both).collect();
    let mut flows: IndexMap<String, Draws> = IndexMap::new();
    for (probe, tallies) in &first {
        let mut draws = pair.draws(probe);
        draws.add(tallies.clone());
        flows.insert(probe.clone(), draws);
    }
    let probes: BTreeSet<String> = flows.keys().cloned().collect();
    let mut connections = FIRST_DRAW_CONNECTIONS;
    for looks in LOOKS.windows(2) {
        let by_connection = undecided(&flows, DrawUnit::Connection, threshold);
        let by_run = undecided(&flows, DrawUnit::Run, threshold);
        let mut by_lab = BTreeSet::new();
        let mut again = Vec::new();
        if !by_connection.is_empty() {
            let run = bench.run_connections(&by_connection, connections).await?;
            again.push((run, &by_connection));
        }
        for probe in by_run {
            match bench
                .run_clients(&probe, CLIENTS_PER_DRAW, AFFINITY_CONNECTIONS)
                .await?
            {
                Some(clients) => {
                    let run = |tallies| (IndexMap::from([(probe.clone(), tallies)]), &probes);
                    again.extend(clients.into_iter().map(run));
                }
                None => {
                    by_lab.insert(probe);
                }
            }
        }
        if !by_lab.is_empty() {
            let runs = bench.run_repeatedly(&by_lab, looks[1] - looks[0]).await?;
            again.extend(runs.into_iter().map(|run| (run, &by_lab)));
        }
        if again.is_empty() {
            break;
        }
        for (run, suspects) in again {
            for (probe, tallies) in run {
                if let Some(draws) = flows.get_mut(&probe).filter(|_| suspects.contains(&probe)) {
                    draws.add(tallies);
                }
            }
        }
        connections = (connections * 4).min(MAX_CONNECTIONS);
    }
    let changed: Vec<(&String, f64)> = flows
        .iter()
        .filter_map(|(probe, draws)| match draws.likeness(threshold) {
            Likeness::Changed(chance) => Some((probe, chance)),
            // The maximum number of draws was made.
            Likeness::Same | Likeness::Unsure => None,
        })
        .collect();
    let suspects: BTreeSet<String> = changed.iter().map(|(probe, _)| (*probe).clone()).collect();
    let mut matches = bench.one_sided_matches(&suspects).await?;
    let changed = changed.into_iter().map(|(probe, chance)| {
        let [against, new] = flows[probe].connections();
        ChangedFlow {
            flow: bench.flow(probe),
            against: outcome_counts(&against),
            new: outcome_counts(&new),
            matches: matches.remove(probe).unwrap_or_default(),
            error_per_billion: billionths(chance),
        }
    });
    Ok(ComparedCase {
        flows: flows.len(),
        changed: changed.collect(),
        drawn: first,
        rules: bench.rule_differences(&both),
        moved: bench.traffic_shifts(&both),
        // Refused requests accumulate: the last stage includes those of all earlier ones.
        refused: both
            .each_ref()
            .map(|evidence| evidence.last().refused.clone()),
        sync_ms: both.map(|evidence| evidence.synced_ms.into_values().collect()),
    })
}

pub fn billionths(chance: f64) -> u64 {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a probability in billionths is between 0 and a billion"
    )]
    let billionths = (chance * 1e9).ceil() as u64;
    if chance < 1e-9 { 0 } else { billionths }
}

fn outcome_counts(tally: &Tally) -> Vec<OutcomeCount> {
    let counts = tally.iter().map(|(outcome, connections)| OutcomeCount {
        outcome: outcome.clone(),
        connections,
    });
    counts.collect()
}

/// Returns the probes drawn by `unit` that need more draws for a decision.
fn undecided(
    flows: &IndexMap<String, Draws>,
    unit: DrawUnit,
    threshold: Threshold,
) -> BTreeSet<String> {
    let undecided_flows = flows
        .iter()
        .filter(|(_, draws)| draws.unit() == unit && draws.likeness(threshold) == Likeness::Unsure);
    undecided_flows.map(|(probe, _)| probe.clone()).collect()
}
