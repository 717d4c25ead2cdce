//! Runs prepared cases in parallel and collects their results.

use std::borrow::Cow;
use std::collections::HashSet;
use std::future::Future;
use std::path::PathBuf;
use std::sync::{Arc, Weak};
use std::time::Instant;

use tokio::sync::{Semaphore, mpsc};

use super::flows;
use super::pool::{Pool, Pools};
use super::prepare::{Prepared, problems_to_diagnostics};
use super::refit;
use super::select::rerun_name;
use super::tasks::{Tasks, catch_panic};
use crate::kernel::{Agent, KernelChoice, KernelError, RunCount, Session, agent_program};
use crate::results::case_evidence::{self, CaseEvidence, EvidenceDocument};
use crate::results::flows::tables;
use crate::results::journeys::{CaseHead, CaseJourneys};
use crate::results::{CaseResult, CaseStatus, ErrorKind, Event, Results, RunError, Warning};
use svclab_diagnostic::Rendering;
use svclab_diagnostic::bug;
use svclab_diagnostic::shortage;
use svclab_judge::{ClaimOutcome, ClaimVerdict, Judgement};
use svclab_model::evidence::Evidence;
use svclab_model::protocol::{Failure, FailureKind};
use svclab_planner::cluster::{Problem, place};

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
    /// Callback that prints why labs run in a guest and not on this host.
    pub notice: Option<fn(&str)>,
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
/// If `cancelled` ends first, unfinished cases are cancelled and no lab keeps running. The results
/// then contain the finished cases only.
pub async fn execute(
    cases: Vec<RunInput>,
    options: &RunOptions,
    events: &mpsc::UnboundedSender<Event>,
    cancelled: impl Future<Output = ()>,
) -> (Results, Vec<KeptCase>) {
    let begun = Instant::now();
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
    let pools = Pools::new(options, &cases_to_run);
    let declared_flows = flows::declared_flows(&cases_to_run);
    let warnings = warnings(&cases_to_run);
    let is_interrupted = tokio::select! {
        biased;
        () = running.run_all(cases_to_run, &pools, options, events) => false,
        () = cancelled => true,
    };
    if is_interrupted {
        running.kept.clear();
    }
    running.results.sort_by_key(|(place, _)| *place);
    let cases = running.results.into_iter().map(|(_, result)| result);
    let mut results = Results::new(pools.tools().await, cases.collect());
    results.begun = Some(running.started);
    results.interrupted = is_interrupted;
    results.warnings = warnings;
    results.flows = tables(&declared_flows, &results.cases);
    // The receiver may have been dropped. The results are returned in any case.
    let _ = events.send(Event::RunEnded {
        results: Box::new(results.clone()),
        duration: begun.elapsed(),
    });
    (results, running.kept)
}

/// Progress and results of a run.
#[derive(Default)]
struct RunState {
    /// Index of each runnable case in the given list.
    indices: Vec<usize>,
    /// Results of cases that cannot run, each with its index in the given list.
    invalid: Vec<(usize, CaseResult)>,
    /// Number of started runs. A case starts once for each kernel that it runs in.
    started: usize,
    /// Results, each with the index of its case and the number of its run.
    results: Vec<((usize, usize), CaseResult)>,
    kept: Vec<KeptCase>,
}

impl RunState {
    /// Runs all cases and records each result when its run ends.
    async fn run_all(
        &mut self,
        cases: Vec<Prepared>,
        pools: &Pools,
        options: &RunOptions,
        events: &mpsc::UnboundedSender<Event>,
    ) {
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
        self.started = runs.len() + self.invalid.len();
        let _ = events.send(Event::RunStarted {
            cases: self.started,
        });
        for (index, result) in std::mem::take(&mut self.invalid) {
            let _ = events.send(Event::CaseStarted {
                case: result.case.clone(),
            });
            self.finish_case((index, 0), result, None, events);
        }
        let gate = Arc::new(Semaphore::new(options.jobs.max(1)));
        let mut running = Tasks::default();
        let mut started = Vec::new();
        for (number, (index, prepared, pool)) in runs.into_iter().enumerate() {
            // A weak reference: a pool ends with its last case, so that other pools have room.
            let weak_pool = pool.as_ref().ok().map(Arc::downgrade);
            started.push((index, Arc::clone(&prepared), weak_pool));
            let (gate, events) = (Arc::clone(&gate), events.clone());
            let with_evidence = options.with_evidence;
            running.spawn(number, async move {
                let _room = match &pool {
                    Ok(pool) => pool.acquire_room(&prepared.plan).await,
                    Err(_) => None,
                };
                let _place = gate.acquire().await;
                let _ = events.send(Event::CaseStarted {
                    case: prepared.case.id.clone(),
                });
                split_ended(run_case(prepared, pool).await, with_evidence)
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
            self.finish_case((*index, number), result, seen, events);
        }
    }

    /// Records the result of an ended case and sends it.
    fn finish_case(
        &mut self,
        position: (usize, usize),
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
) -> (Arc<Prepared>, Result<Vec<Arc<Pool>>, PlacementError>) {
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

/// Error of a case that no kernel can run.
type PlacementError = RunError;

/// Splits an ended case into its result, its evidence if `with_evidence` is set, and its running
/// lab.
fn split_ended(
    (prepared, result, lab): (Arc<Prepared>, CaseResult, Option<(Session, Evidence)>),
    with_evidence: bool,
) -> (CaseResult, Option<Arc<CaseEvidence>>, Option<KeptCase>) {
    let seen = lab
        .as_ref()
        .filter(|_| with_evidence)
        .map(|(_, evidence)| Arc::new(evidence_document(&prepared, &result, evidence)));
    let names = prepared.plan.namespaces.iter().map(|ns| ns.name.clone());
    let kept = lab.map(|(session, _)| KeptCase {
        case: prepared.case.id.clone(),
        namespaces: names.collect(),
        session,
    });
    (result, seen, kept)
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

/// Returns the result of a case without a verdict.
fn without_verdict(prepared: &Prepared, error: RunError) -> CaseResult {
    CaseResult {
        named: cli_name(prepared),
        location: prepared.expectation_location(),
        claims: prepared.unsettled_claims(),
        ..CaseResult::without_verdict(&prepared.case.lab, &prepared.case.id, error)
    }
}

/// Returns the name of a case on the command line; empty if it equals the case ID.
fn cli_name(prepared: &Prepared) -> String {
    let case = &prepared.case;
    let file = prepared.sources.iter().next();
    let file = file.map_or(Cow::default(), |(_, source)| source.path());
    let rest = case.id.strip_prefix(&case.lab).unwrap_or_default();
    let lab = prepared
        .cli_name
        .strip_suffix(rest)
        .unwrap_or(&prepared.cli_name);
    let named = format!("{}{rest}", rerun_name(lab, &file));
    let named = Some(named).filter(|named| *named != case.id);
    named.unwrap_or_default()
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

/// Runs a case. Returns the case as it ran, its result, and the session and evidence of its lab.
async fn run_case(
    mut prepared: Arc<Prepared>,
    pool: Result<Arc<Pool>, PlacementError>,
) -> (Arc<Prepared>, CaseResult, Option<(Session, Evidence)>) {
    let pool = match pool {
        Ok(pool) => pool,
        Err(error) => {
            let result = without_verdict(&prepared, error);
            return (prepared, result, None);
        }
    };
    let agent = match pool.agent().await {
        Ok(agent) => agent,
        Err(error) => {
            let mut result = without_verdict(&prepared, to_run_error(&error));
            pool.release().clone_into(&mut result.kernel);
            return (prepared, result, None);
        }
    };
    let (result, lab) = try_on_agent(&mut prepared, &agent).await;
    (prepared, result, lab)
}

/// Runs a case on an agent of the caller, in the same way as [`execute`]. Returns the result and
/// the evidence.
pub async fn run_on_agent(
    agent: &Agent,
    prepared: Prepared,
) -> (CaseResult, Option<Arc<CaseEvidence>>) {
    let mut prepared = Arc::new(prepared);
    let (result, lab) = try_on_agent(&mut prepared, agent).await;
    let (result, seen, _) = split_ended((prepared, result, lab), true);
    (result, seen)
}

/// Runs a case on an agent. Sets `prepared` to the case as it ran.
async fn try_on_agent(
    prepared: &mut Arc<Prepared>,
    agent: &Agent,
) -> (CaseResult, Option<(Session, Evidence)>) {
    let begun = Instant::now();
    let judged = try_without_rejected(prepared, agent).await;
    let (mut result, lab) = match judged {
        Ok((judgement, evidence, session)) => {
            let result = judged_result(prepared, judgement, &evidence);
            (result, Some((session, evidence)))
        }
        Err(error) => (without_verdict(prepared, error), None),
    };
    result.kernel.clone_from(&agent.environment().kernel);
    result.duration_ms = u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX);
    (result, lab)
}

/// Returns the result of a case with a verdict.
fn judged_result(prepared: &Prepared, judgement: Judgement, evidence: &Evidence) -> CaseResult {
    let last = evidence.last();
    let result = if judgement.holds() {
        CaseStatus::Pass
    } else {
        CaseStatus::Fail
    };
    let flows = flows::flow_results(prepared, &judgement);
    let Judgement {
        probes,
        wire,
        counters,
        rules,
        kernel_state: held,
        steps,
        claims,
        doubt: _,
    } = judgement;
    let mut result = CaseResult {
        lab: prepared.case.lab.clone(),
        case: prepared.case.id.clone(),
        named: cli_name(prepared),
        kernel: String::new(),
        result,
        duration_ms: 0,
        claims,
        probes,
        flows,
        wire,
        counters,
        rules,
        kernel_state: held,
        steps,
        refused: last.refused.clone(),
        refused_missed: last.refused_missed,
        error: None,
        location: None,
    };
    result.location =
        flows::failed_flow_location(&result).or_else(|| prepared.expectation_location());
    result
}

/// Runs a case. Omits the dump lines that the kernel rejects, if the user permits it. Sets
/// `prepared` to the case as it ran.
async fn try_without_rejected(
    prepared: &mut Arc<Prepared>,
    agent: &Agent,
) -> Result<(Judgement, Evidence, Session), RunError> {
    let mut tried = try_case(prepared, agent).await;
    if let Err(error) = &tried
        && let Some(fitting) = refit::without_rejected(prepared, error, agent).await
    {
        *prepared = Arc::new(fitting?);
        tried = try_case(prepared, agent).await;
    }
    let tried = match tried {
        Ok((judgement, evidence, _)) if needs_full_wait(&judgement, &evidence) => {
            try_case(&without_settling(prepared), agent).await
        }
        tried => tried,
    };
    tried.map_err(|error| locate_in_lab(prepared, &error).unwrap_or_else(|| to_run_error(&error)))
}

/// Whether a case with settled timeouts failed an expectation other than the verdict of a probe.
/// The expectation may concern retransmissions, which follow only after the timeout was settled.
fn needs_full_wait(judgement: &Judgement, evidence: &Evidence) -> bool {
    let refuted = |claim: &ClaimOutcome| claim.verdict == ClaimVerdict::Refuted;
    let later = evidence.steps.iter().map(|step| &*step.evidence);
    let mut attempts = std::iter::once(evidence)
        .chain(later)
        .flat_map(|seen| &seen.attempts);
    attempts.any(|attempt| attempt.settled)
        && (judgement.checks().any(|check| !check.holds()) || judgement.claims.iter().any(refuted))
}

/// Returns the case with all timeouts waited for instead of settled.
#[must_use]
pub fn without_settling(prepared: &Prepared) -> Prepared {
    let mut waiting = prepared.clone();
    let of_steps = waiting.plan.steps.iter_mut();
    let of_steps = of_steps.flat_map(|step| &mut step.probes);
    for probe in waiting.plan.probes.iter_mut().chain(of_steps) {
        probe.settle = false;
    }
    waiting
}

/// Returns the evidence of a case in the form that is sent, with the case.
fn evidence_document(
    prepared: &Arc<Prepared>,
    result: &CaseResult,
    evidence: &Evidence,
) -> CaseEvidence {
    let books = prepared.books();
    let head = CaseHead::new(result.case.clone(), result.kernel.clone(), None, evidence);
    let mut journeys_by_stage = prepared.journeys(evidence).into_iter();
    let first = journeys_by_stage.next().unwrap_or_default();
    let names = prepared.steps.iter().map(|step| step.name.clone());
    let steps: Vec<_> = names
        .zip(journeys_by_stage)
        .zip(books.iter().skip(1))
        .collect();
    let steps = steps
        .into_iter()
        .map(|((name, journeys), book)| (name, journeys, *book));
    let CaseJourneys {
        head,
        connections,
        steps,
    } = CaseJourneys::new(head, first, &books[0]).with_steps(steps);
    let interfaces = prepared.plan.namespaces.iter().flat_map(|namespace| {
        let links = namespace.links.iter().map(|link| link.name.as_str());
        links
            .chain(["lo"])
            .map(|link| (namespace.name.clone(), link.to_owned()))
    });
    CaseEvidence {
        interfaces: interfaces.collect(),
        prepared: Arc::clone(prepared),
        document: EvidenceDocument {
            schema: case_evidence::SCHEMA.to_owned(),
            case: head.case,
            kernel: head.kernel,
            evidence: evidence.clone(),
            connections,
            steps,
        },
    }
}

/// Returns an error that shows a rejected rule at its location in the lab file. `None` if the lab
/// file does not contain the rule.
fn locate_in_lab(prepared: &Prepared, error: &KernelError) -> Option<RunError> {
    let KernelError::RequestFailed(failure) = error else {
        return None;
    };
    let rejected = failure.rejected.as_ref()?;
    let node = prepared
        .cluster
        .nodes
        .iter()
        .find(|node| node.name == rejected.namespace)?;
    let (list, field) = if rejected.program == "ipset" {
        (&node.leftovers.ipset, "ipset")
    } else {
        (&node.leftovers.iptables, "iptables")
    };
    let index = list.iter().position(|line| line.trim() == rejected.line)?;
    let problem = Problem::in_lab(
        place!["spec", "nodes", &node.name, "leftovers", field, index],
        format!(
            "{} rejects this line on node `{}`",
            rejected.program, node.name
        ),
    )
    .with_help(format!("it printed: {}", rejected.message));
    let diagnostics = problems_to_diagnostics(&prepared.case, &[problem]);
    let message = prepared
        .sources
        .redact(diagnostics)
        .iter()
        .map(|diagnostic| diagnostic.render(&prepared.sources, Rendering::default()))
        .collect::<String>();
    Some(RunError {
        kind: ErrorKind::Input,
        message: message.trim_end().to_owned(),
        remedy: None,
    })
}

/// Builds a case, runs its probes and judges the evidence. The lab runs as long as its session
/// exists.
///
/// # Errors
///
/// When the lab cannot be built or probed, or when the machine was too busy for a verdict.
pub async fn try_case(
    prepared: &Prepared,
    agent: &Agent,
) -> Result<(Judgement, Evidence, Session), KernelError> {
    let mut retries = RunCount::default();
    loop {
        match try_once(prepared, agent).await {
            Err(error) if retries.should_retry(&error) => {}
            tried => return tried,
        }
    }
}

async fn try_once(
    prepared: &Prepared,
    agent: &Agent,
) -> Result<(Judgement, Evidence, Session), KernelError> {
    let mut session = agent.build(prepared.plan.clone()).await?;
    let evidence = session.probe().await?;
    let judge = prepared.judge().map_err(|problems| {
        let message = problems
            .iter()
            .map(|problem| problem.message.as_str())
            .collect::<Vec<_>>()
            .join("; ");
        KernelError::RequestFailed(Failure {
            kind: FailureKind::Bug,
            message,
            remedy: None,
            rejected: None,
        })
    })?;
    let judgement = judge.judge(&evidence);
    match &judgement.doubt {
        Some(reason) => Err(KernelError::RequestFailed(Failure::too_busy(
            "an expectation",
            reason,
        ))),
        None => Ok((judgement, evidence, session)),
    }
}

/// Converts a kernel error to an error for the user, with its help.
#[must_use]
pub fn to_run_error(error: &KernelError) -> RunError {
    let (kind, remedy) = match error {
        KernelError::AgentSpawn { source, .. } => {
            let missing = || {
                let is_missing = source.kind() == std::io::ErrorKind::NotFound;
                is_missing.then(|| {
                    format!(
                        "install {} in the directory of svclab, or set {} to its path",
                        agent_program::NAME,
                        agent_program::PATH_VARIABLE
                    )
                })
            };
            let remedy = shortage::remedy(source).map(str::to_owned);
            (ErrorKind::Machine, remedy.or_else(missing))
        }
        KernelError::AgentSetup(failure) | KernelError::RequestFailed(failure) => {
            let trouble = match failure.kind {
                FailureKind::Input => ErrorKind::Input,
                FailureKind::Machine | FailureKind::TooBusy => ErrorKind::Machine,
                FailureKind::Bug => ErrorKind::Bug,
            };
            (trouble, failure.remedy.clone())
        }
        KernelError::Missing(missing) | KernelError::GuestMissing { missing, .. } => {
            (ErrorKind::Machine, missing.remedy())
        }
        KernelError::HostMissing(missing) => {
            let guest = "or omit --kernel host to run the lab in a guest kernel";
            let remedies = missing.remedy().into_iter().chain([guest.to_owned()]);
            let remedy = remedies.collect::<Vec<_>>().join("\n");
            (ErrorKind::Machine, Some(remedy))
        }
        KernelError::NoGuest(error) if error.is_loss() => (ErrorKind::Lost, error.remedy()),
        KernelError::NoGuest(error) => (ErrorKind::Machine, error.remedy()),
        KernelError::NoKernel { host, guest } => {
            let remedies: Vec<String> = [to_run_error(host).remedy, guest.remedy()]
                .into_iter()
                .flatten()
                .collect();
            let remedy = (!remedies.is_empty()).then(|| remedies.join("\nor "));
            (ErrorKind::Machine, remedy)
        }
        KernelError::NotEnoughMemory(error) => {
            (ErrorKind::Machine, Some(error.remedy().to_owned()))
        }
        KernelError::ProtocolVersion { .. } => (
            ErrorKind::Machine,
            Some(format!(
                "install svclab and {} of the same release",
                agent_program::NAME
            )),
        ),
        KernelError::Lost(lost) if bug::is_agent_panic(&lost.stderr) => {
            (ErrorKind::Bug, Some(bug::REMEDY.to_owned()))
        }
        KernelError::Lost(lost) if lost.is_out_of_memory => {
            (ErrorKind::Machine, Some(shortage::MEMORY_REMEDY.to_owned()))
        }
        KernelError::Lost(lost) if lost.is_silent() => (
            ErrorKind::Lost,
            Some(
                "run the command again, with `--jobs 1` if the machine is busy; if the error \
                 repeats, report it with the lab file"
                    .to_owned(),
            ),
        ),
        KernelError::Lost(_) => (
            ErrorKind::Lost,
            Some(
                "run the command again; if the error repeats, report it with the lab file"
                    .to_owned(),
            ),
        ),
    };
    RunError {
        kind,
        message: error.to_string(),
        remedy,
    }
}
