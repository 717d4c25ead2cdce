//! Runs and compares both sides of every case.

use std::collections::BTreeSet;
use std::future::Future;

use futures_util::stream::{self, StreamExt as _};
use indexmap::IndexMap;
use tokio::sync::mpsc;

use super::case_comparison::{AFFINITY_CONNECTIONS, CaseComparison, Runs};
use super::document::{
    ChangedFlow, ComparedFlow, FailedCase, FlowShift, RulesDiffer, SCHEMA, ShiftTimes, SideName,
    SyncTimes, UndecidedFlow, Verification,
};
use super::pairs::{CasePair, PreparedPairs};
use super::pool::{failed_on_new, find_pool};
use super::shares::{FlowDraws, Shares};
use super::side::Side;
use crate::Progress;
use crate::comparison::{DrawUnit, Draws, Likeness};
use crate::statistics::{LOOKS, Threshold, parts};
use svclab_model::evidence::{RejectedRequest, refused};
use svclab_runner::run::Prepared;
use svclab_runner::run::execute::pool::{Pool, Pools};
use svclab_runner::run::tasks::catch_panic;
use svclab_runner::run::{RunOptions, to_run_error};

/// Number of connections of a flow in the second run. Each later run has four times as many.
const FIRST_DRAW_CONNECTIONS: u32 = 64;

/// Number of clients that are drawn at once if a service chooses by client.
const CLIENTS_PER_DRAW: usize = 32;

/// Maximum number of connections of a flow in one run.
const MAX_CONNECTIONS: u32 = 4096;

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
    let pairs = found.pairs.iter();
    let both = pairs.flat_map(|pair| [&pair.against, &pair.new]);
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
        undecided: Vec::new(),
        compared: Vec::new(),
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
                verification.flows += compared_case.flows.len();
                verification.compared.extend(compared_case.flows);
                verification.changed.extend(compared_case.changed);
                verification.undecided.extend(compared_case.undecided);
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
    [verification.against.sync, verification.new.sync] = sync_times.map(SyncTimes::from_times);
    let shifts = verification.shifts.iter();
    let against = shifts
        .clone()
        .filter_map(|shift| shift.against_us)
        .collect();
    let new = shifts.filter_map(|shift| shift.new_us).collect();
    verification.against.shift_times = ShiftTimes::from_times(against);
    verification.new.shift_times = ShiftTimes::from_times(new);
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

struct ComparedCase {
    flows: Vec<ComparedFlow>,
    /// Outcomes of each flow in the first run of the case.
    drawn: Runs,
    changed: Vec<ChangedFlow>,
    undecided: Vec<UndecidedFlow>,
    rules: Vec<RulesDiffer>,
    moved: Vec<FlowShift>,
    /// Sync times of kube-proxies in milliseconds, by side.
    sync_ms: [Vec<u64>; 2],
    /// Requests that the API servers refused, by side.
    refused: [Vec<RejectedRequest>; 2],
}

/// Compares a case. If no kernel can make its steps, only the stage before them is compared.
async fn compare_case(pair: &CasePair, pools: &Pools, threshold: Threshold) -> ComparisonResult {
    match (find_pool(pair, pools).await, pair.new.plan.steps().next()) {
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

/// Compares a case with agents of one kernel.
async fn compare_on(
    pair: &CasePair,
    pool: &Pool,
    threshold: Threshold,
) -> Result<ComparedCase, FailedCase> {
    let _room = pool.acquire_room(&pair.new.plan).await;
    let agent = pool.agent().await;
    let agent = agent.map_err(|error| failed_on_new(pair, to_run_error(&error)))?;
    let comparison = CaseComparison::new(pair, agent);
    let both = comparison.run_once().await?;
    let first = comparison.tallies(&both);
    let mut flows: IndexMap<String, Draws> = IndexMap::new();
    for (probe, tallies) in &first {
        let mut draws = pair.draws(probe);
        draws.add(tallies.clone());
        flows.insert(probe.clone(), draws);
    }
    let mut connections = FIRST_DRAW_CONNECTIONS;
    for looks in LOOKS.windows(2) {
        let by_connection = undecided(&flows, DrawUnit::Connection, threshold);
        let mut by_run = undecided(&flows, DrawUnit::Run, threshold);
        let mut runs = Vec::new();
        if !by_connection.is_empty() {
            runs.extend(comparison.draw(&by_connection, connections, 1).await?);
        }
        for probe in by_run.clone() {
            let drawn = comparison.draw_clients(&probe, CLIENTS_PER_DRAW, AFFINITY_CONNECTIONS);
            if let Some(clients) = drawn.await? {
                by_run.remove(&probe);
                runs.extend(clients);
            }
        }
        if !by_run.is_empty() {
            let draws = comparison.draw(&by_run, AFFINITY_CONNECTIONS, looks[1] - looks[0]);
            runs.extend(draws.await?);
        }
        if runs.is_empty() {
            break;
        }
        for (probe, tallies) in runs.into_iter().flatten() {
            if let Some(draws) = flows.get_mut(&probe) {
                draws.add(tallies);
            }
        }
        connections = (connections * 4).min(MAX_CONNECTIONS);
    }
    let likely = flows
        .iter()
        .map(|(probe, draws)| (probe, draws.likeness(threshold)));
    let changed: Vec<(&String, f64)> = likely
        .filter_map(|(probe, likeness)| match likeness {
            Likeness::Changed(chance) => Some((probe, chance)),
            // The maximum number of draws was made.
            Likeness::Same | Likeness::Unsure => None,
        })
        .collect();
    let suspects: BTreeSet<String> = changed.iter().map(|(probe, _)| (*probe).clone()).collect();
    let mut matches = comparison.one_sided_matches(&suspects).await?;
    let outcomes = |probe: &str| {
        let sides = flows[probe].connections();
        sides.map(|side| side.to_outcome_counts())
    };
    let changed = changed.into_iter().map(|(probe, chance)| {
        let [against, new] = outcomes(probe);
        ChangedFlow {
            flow: comparison.flow(probe),
            against,
            new,
            matches: matches.remove(probe).unwrap_or_default(),
            error_per_billion: parts(chance, 1e9),
        }
    });
    let unsure = flows
        .iter()
        .filter(|(_, draws)| draws.likeness(threshold) == Likeness::Unsure);
    let undecided = unsure.map(|(probe, draws)| {
        let [against, new] = outcomes(probe);
        UndecidedFlow {
            flow: comparison.flow(probe),
            against,
            new,
            has_other_verdict: draws.has_other_verdict(),
        }
    });
    let compared = flows.keys().map(|probe| {
        let [against, new] = outcomes(probe);
        ComparedFlow {
            flow: comparison.flow(probe),
            against,
            new,
            is_changed: suspects.contains(probe),
            reason: comparison.reason(probe),
        }
    });
    Ok(ComparedCase {
        flows: compared.collect(),
        changed: changed.collect(),
        undecided: undecided.collect(),
        drawn: first,
        rules: comparison.rule_differences(&both),
        moved: comparison.traffic_shifts(&both),
        refused: both.each_ref().map(|evidence| evidence.refused.clone()),
        sync_ms: both.map(|evidence| evidence.synced_ms.into_values().collect()),
    })
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
