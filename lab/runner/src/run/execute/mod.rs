//! Runs prepared cases in parallel and collects their results.

mod case;
mod case_evidence;
mod control;
mod event;
pub(super) mod flows;
pub mod idle;
pub mod pool;
mod rejected_rule;
pub(super) mod result;
mod room;

use std::collections::HashSet;
use std::future::Future;
use std::path::PathBuf;
use std::sync::{Arc, Weak};

use tokio::sync::{Semaphore, mpsc};

use super::kernel_error::to_run_error;
use super::prepare::{Prepared, refit};
use super::tasks::{Tasks, catch_panic};
use crate::kernel::{KernelChoice, Session};
use crate::results::flows::tables;
use crate::results::{
    CaseResult, CaseStatus, NotRunCase, Results, RunError, RunStart, ShardFacts, StopReason,
    Warning,
};
use case::run_case;
use pool::{Pool, Pools};
use result::{cli_name, split_ended, without_verdict};

pub use case::{run_on_agent, try_case, without_settling};
pub use case_evidence::CaseEvidence;
pub use control::RunControl;
pub use event::Event;
pub use room::Room;

/// Options of a run: kernels, parallelism and evidence.
#[derive(Debug, Clone)]
pub struct RunOptions {
    /// Kernels in which plans may run.
    pub kernels: KernelChoice,
    /// Path of the agent program, for a caller that is not `svclab` itself. `None` for the running
    /// executable.
    pub agent: Option<PathBuf>,
    /// Maximum number of cases that run at the same time.
    pub jobs: usize,
    /// Number of agents per kernel. Each agent has 1 thread.
    pub agents: usize,
    /// Whether the lab of a failed case keeps running until its session is dropped.
    pub keep: bool,
    /// Whether the result of each case is sent with its full evidence.
    pub with_evidence: bool,
    /// Command that started the run, as a shell reads it.
    pub command: String,
    /// Part of the cases to run. `None` for all.
    pub shard: Option<ShardSelection>,
    /// Options that repeat cases, limit their time, or end the run early.
    pub control: RunControl,
    /// Callback that prints why labs run in a guest and not on this host.
    pub notice: Option<fn(&str)>,
}

/// Part of the given cases, one of several that other runs share.
#[derive(Debug, Clone)]
pub struct ShardSelection {
    /// Number of the shard, from 1.
    pub number: usize,
    /// Number of all shards.
    pub count: usize,
    /// Name of each given case on the command line.
    pub names: Vec<String>,
    /// Whether each given case belongs to the shard.
    pub is_selected: Vec<bool>,
}

/// Failed case whose lab keeps running.
#[derive(Debug)]
pub struct KeptCase {
    /// ID of the case.
    pub case: String,
    /// Names of its namespaces, in the order of the plan.
    pub namespaces: Vec<String>,
    /// Session of the lab. Dropping the session removes the lab.
    pub session: Session,
}

/// Case to run, or the result of a case that cannot run because its lab is invalid.
pub type RunInput = Result<Prepared, Box<CaseResult>>;

/// Runs the cases and sends events to `events`. Returns the results and the labs that keep running.
///
/// Agents start on demand. A lost agent is replaced for later cases.
///
/// If `cancelled` ends first, or [`RunControl`] ends the run, unfinished cases are cancelled. The
/// results list them as not run. After `cancelled`, no lab keeps running.
pub async fn execute(
    cases: Vec<RunInput>,
    options: &RunOptions,
    events: &mpsc::UnboundedSender<Event>,
    cancelled: impl Future<Output = ()>,
) -> (Results, Vec<KeptCase>) {
    let start = RunStart::now();
    let mut running = RunState::default();
    let mut cases_to_run = Vec::new();
    for (index, case) in cases.into_iter().enumerate() {
        match case {
            Ok(prepared) => {
                running.indices.push(index);
                cases_to_run.push(prepared);
            }
            Err(wrong) => running.invalid.push((index, *wrong)),
        }
    }
    let declared_flows = flows::declared_flows(running.indices.iter().copied().zip(&cases_to_run));
    let warnings = warnings(&cases_to_run);
    if let Some(shard) = &options.shard {
        let is_selected = |index: usize| shard.is_selected.get(index) == Some(&true);
        let selected = running.indices.iter().copied().zip(cases_to_run);
        (running.indices, cases_to_run) = selected.filter(|(index, _)| is_selected(*index)).unzip();
        running.invalid.retain(|(index, _)| is_selected(*index));
    }
    let each_once = running.indices.iter().zip(&cases_to_run);
    running.planned = each_once
        .map(|(index, case)| ((*index, 0), not_run_case(case, "")))
        .collect();
    running.started = running.planned.len() + running.invalid.len();
    let pools = Pools::new(options, &cases_to_run);
    let (is_interrupted, stopped) = tokio::select! {
        biased;
        stopped = running.run_all(cases_to_run, &pools, options, events) => (false, stopped),
        () = cancelled => (true, None),
        reason = options.control.run_timeout() => (false, Some(reason)),
    };
    if is_interrupted {
        running.kept.clear();
    }
    let not_run = running.not_run();
    running.results.sort_by_key(|(place, _)| *place);
    let (positions, cases): (Vec<_>, Vec<_>) = running.results.into_iter().unzip();
    let mut results = Results::new(pools.tools().await, cases);
    results.begun = Some(running.started);
    results.interrupted = is_interrupted;
    results.stopped = stopped.filter(|_| !not_run.is_empty());
    results.not_run = not_run;
    results.warnings = warnings;
    let mut facts = start.facts(options.jobs, options.command.clone());
    facts.flaky_fails = options.control.flaky_fails;
    facts.shard = options.shard.as_ref().map(|shard| ShardFacts {
        number: shard.number,
        count: shard.count,
        cases: shard.names.clone(),
        flows: declared_flows.clone(),
    });
    results.run = Some(facts);
    let indices = positions.into_iter().map(|(index, _)| index);
    let indexed: Vec<(usize, &CaseResult)> = indices.zip(&results.cases).collect();
    results.flows = tables(&declared_flows, &indexed);
    // The receiver may have been dropped. The results are returned in any case.
    let _ = events.send(Event::RunEnded {
        results: Box::new(results.clone()),
        duration: start.elapsed(),
    });
    (results, running.kept)
}

/// Index of a case, and the number of its run.
type Position = (usize, usize);

/// Progress and results of a run.
#[derive(Default)]
struct RunState {
    /// Index of each runnable case in the given list.
    indices: Vec<usize>,
    /// Results of cases that cannot run, each with its index in the given list.
    invalid: Vec<(usize, CaseResult)>,
    /// Cases to run, each once for each kernel that it runs in.
    planned: Vec<(Position, NotRunCase)>,
    /// Number of cases to run, including those that cannot run.
    started: usize,
    results: Vec<(Position, CaseResult)>,
    kept: Vec<KeptCase>,
}

impl RunState {
    /// Runs all cases and records each result when its run ends. Returns a reason if a result ends
    /// the run.
    async fn run_all(
        &mut self,
        cases: Vec<Prepared>,
        pools: &Pools,
        options: &RunOptions,
        events: &mpsc::UnboundedSender<Event>,
    ) -> Option<StopReason> {
        let mut runs = Vec::new();
        for (index, prepared) in self.indices.iter().zip(cases) {
            let (prepared, pools_of_case) = find_pools(prepared, pools).await;
            match pools_of_case {
                Ok(found) => {
                    let each = found.into_iter();
                    runs.extend(each.map(|pool| (*index, Arc::clone(&prepared), Ok(pool))));
                }
                Err(error) => runs.push((*index, prepared, Err(error))),
            }
        }
        let planned = runs
            .iter()
            .enumerate()
            .map(|(number, (index, prepared, pool))| {
                let kernel = pool.as_ref().map_or("", |pool| pool.release());
                ((*index, number), not_run_case(prepared, kernel))
            });
        self.planned = planned.collect();
        self.started = runs.len() + self.invalid.len();
        let _ = events.send(Event::RunStarted {
            cases: self.started,
        });
        let invalid = std::mem::take(&mut self.invalid);
        let has_invalid = !invalid.is_empty();
        for (index, result) in invalid {
            let _ = events.send(Event::CaseStarted {
                case: result.case.clone(),
            });
            self.finish_case((index, 0), result, None, events);
        }
        if has_invalid && options.control.fail_fast {
            return Some(StopReason::FailFast);
        }
        let gate = Arc::new(Semaphore::new(options.jobs.max(1)));
        let mut running = Tasks::default();
        let mut started = Vec::new();
        for (number, (index, prepared, pool)) in runs.into_iter().enumerate() {
            // A weak reference: a pool ends with its last case, so that other pools have room.
            let weak_pool = pool.as_ref().ok().map(Arc::downgrade);
            started.push((index, Arc::clone(&prepared), weak_pool));
            let (gate, events) = (Arc::clone(&gate), events.clone());
            let (with_evidence, control) = (options.with_evidence, options.control);
            running.spawn(number, async move {
                let room = match &pool {
                    Ok(pool) => pool.acquire_room(&prepared.plan).await,
                    Err(_) => None,
                };
                let _place = gate.acquire().await;
                let _ = events.send(Event::CaseStarted {
                    case: prepared.case.id.clone(),
                });
                split_ended(
                    run_case(prepared, pool, room.as_ref(), &control).await,
                    with_evidence,
                )
            });
        }
        while let Some((number, ended)) = running.next().await {
            let (index, prepared, pool) = &started[number];
            let (result, seen, standing) = match ended {
                Ok(ended) => ended,
                Err(panicked) => (
                    after_panic(prepared, pool.as_ref(), panicked).await,
                    None,
                    None,
                ),
            };
            if options.keep && result.result == CaseStatus::Fail {
                self.kept.extend(standing);
            }
            let ends_run = options.control.stops_after(&result);
            self.finish_case((*index, number), result, seen, events);
            if ends_run {
                // Dropping the tasks cancels the running cases.
                return Some(StopReason::FailFast);
            }
        }
        None
    }

    /// Returns the cases to run that have no result.
    fn not_run(&mut self) -> Vec<NotRunCase> {
        let ended: HashSet<Position> = self.results.iter().map(|(place, _)| *place).collect();
        let planned = std::mem::take(&mut self.planned).into_iter();
        let without_result = planned.filter(|(place, _)| !ended.contains(place));
        without_result.map(|(_, case)| case).collect()
    }

    /// Records the result of an ended case and sends it.
    fn finish_case(
        &mut self,
        position: Position,
        result: CaseResult,
        seen: Option<Arc<CaseEvidence>>,
        events: &mpsc::UnboundedSender<Event>,
    ) {
        let _ = events.send(Event::CaseEnded {
            result: Box::new(result.clone()),
            evidence: seen,
        });
        self.results.push((position, result));
    }
}

/// Finds the pools for a case. Omits the dump lines that need missing modules, if the user permits
/// it.
async fn find_pools(
    mut prepared: Prepared,
    pools: &Pools,
) -> (Arc<Prepared>, Result<Vec<Arc<Pool>>, RunError>) {
    let mut pools_of_case = catch_panic(pools.pools_for_case(&prepared)).await;
    if let Ok(Err(error)) = &pools_of_case
        && let Some(Ok(fitting)) = refit::without_unsupported(&prepared, error)
    {
        prepared = fitting;
        pools_of_case = catch_panic(pools.pools_for_case(&prepared)).await;
    }
    let found = pools_of_case.and_then(|found| found.map_err(|error| to_run_error(&error)));
    (Arc::new(prepared), found)
}

/// Returns a case that did not run in the kernel of this release.
fn not_run_case(prepared: &Prepared, kernel: &str) -> NotRunCase {
    NotRunCase {
        lab: prepared.case.lab.clone(),
        case: prepared.case.id.clone(),
        named: cli_name(prepared),
        kernel: kernel.to_owned(),
    }
}

/// Returns the result of a case whose task panicked.
async fn after_panic(
    prepared: &Prepared,
    pool: Option<&Weak<Pool>>,
    panicked: RunError,
) -> CaseResult {
    let mut result = without_verdict(prepared, panicked);
    if let Some(pool) = pool.and_then(Weak::upgrade) {
        pool.release().clone_into(&mut result.kernel);
        // The release of the host's kernel is known to an agent only.
        if let Ok(Ok(agent)) = catch_panic(pool.agent()).await {
            result.kernel.clone_from(&agent.environment().kernel);
        }
    }
    result
}

/// Returns the warnings about the lab files, each once.
fn warnings(cases: &[Prepared]) -> Vec<Warning> {
    let mut labs = HashSet::new();
    let first = cases.iter().filter(|case| {
        let source = case.sources.iter().next();
        let file = source.map(|(_, source)| source.name().to_owned());
        labs.insert((case.case.lab.clone(), file))
    });
    first.flat_map(|case| case.warnings.clone()).collect()
}
