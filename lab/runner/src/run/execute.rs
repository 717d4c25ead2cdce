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
use super::select::name_to_run_again;
use super::tasks::{Tasks, caught};
use crate::kernel::{Agent, Choice, KernelError, Session, Tries, agent_program};
use crate::results::flows::tables;
use crate::results::journeys::{CaseJourneys, Head};
use crate::results::seen::{self, Document, Seen};
use crate::results::{CaseResult, Event, Outcome, Results, RunError, Trouble, Warning};
use svclab_diagnostic::Rendering;
use svclab_diagnostic::bug;
use svclab_diagnostic::shortage;
use svclab_judge::{ClaimOutcome, ClaimVerdict, Judgement};
use svclab_model::evidence::Evidence;
use svclab_model::protocol::{Failure, Fault};
use svclab_planner::cluster::{Problem, place};

/// Options of a run: kernels, parallelism and evidence.
#[derive(Debug, Clone)]
pub struct Options {
    /// Kernels in which plans may run.
    pub kernels: Choice,
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
    pub see: bool,
    /// Callback that prints why labs run in a guest and not on this host.
    pub notice: Option<fn(&str)>,
}

/// Failed case whose lab keeps running.
#[derive(Debug)]
pub struct Kept {
    /// ID of the case.
    pub case: String,
    /// Names of its namespaces, in the order of the plan.
    pub namespaces: Vec<String>,
    /// Session of the lab. Dropping the session removes the lab.
    pub session: Session,
}

/// Case to run, or the result of a case that cannot run because its lab is invalid.
pub type Given = Result<Prepared, Box<CaseResult>>;

/// Runs the cases and sends events to `events`. Returns the results and the labs that keep running.
///
/// Agents start on demand. A lost agent is replaced for later cases.
///
/// If `enough` ends first, unfinished cases are cancelled and no lab keeps running. The results
/// then contain the finished cases only.
pub async fn execute(
    cases: Vec<Given>,
    options: &Options,
    events: &mpsc::UnboundedSender<Event>,
    enough: impl Future<Output = ()>,
) -> (Results, Vec<Kept>) {
    let begun = Instant::now();
    let mut running = Run::default();
    let mut cases_to_run = Vec::new();
    for (at, case) in cases.into_iter().enumerate() {
        match case {
            Ok(prepared) => {
                running.places.push(at);
                cases_to_run.push(prepared);
            }
            Err(wrong) => running.wrong.push((at, *wrong)),
        }
    }
    let pools = Pools::new(options, &cases_to_run);
    let with_flows = flows::declared(&cases_to_run);
    let warnings = warnings(&cases_to_run);
    let is_interrupted = tokio::select! {
        biased;
        () = running.all(cases_to_run, &pools, options, events) => false,
        () = enough => true,
    };
    if is_interrupted {
        running.kept.clear();
    }
    running.results.sort_by_key(|(place, _)| *place);
    let cases = running.results.into_iter().map(|(_, result)| result);
    let mut results = Results::new(pools.tools().await, cases.collect());
    results.begun = Some(running.begun);
    results.interrupted = is_interrupted;
    results.warnings = warnings;
    results.flows = tables(&with_flows, &results.cases);
    // The receiver may have been dropped. The results are returned in any case.
    let _ = events.send(Event::Over {
        results: Box::new(results.clone()),
        took: begun.elapsed(),
    });
    (results, running.kept)
}

/// Progress and results of a run.
#[derive(Default)]
struct Run {
    /// Index of each runnable case in the given list.
    places: Vec<usize>,
    /// Results of cases that cannot run, each with its index in the given list.
    wrong: Vec<(usize, CaseResult)>,
    /// Number of started runs. A case starts once for each kernel that it runs in.
    begun: usize,
    /// Results, each with the index of its case and the number of its run.
    results: Vec<((usize, usize), CaseResult)>,
    kept: Vec<Kept>,
}

impl Run {
    /// Runs all cases and records each result when its run ends.
    async fn all(
        &mut self,
        cases: Vec<Prepared>,
        pools: &Pools,
        options: &Options,
        events: &mpsc::UnboundedSender<Event>,
    ) {
        let mut runs = Vec::new();
        for (at, prepared) in self.places.iter().zip(cases) {
            let (prepared, found) = placed(prepared, pools).await;
            match found {
                Ok(found) => {
                    let each = found.into_iter();
                    runs.extend(each.map(|pool| (*at, Arc::clone(&prepared), Ok(pool))));
                }
                Err(error) => runs.push((*at, prepared, Err(error))),
            }
        }
        self.begun = runs.len() + self.wrong.len();
        let _ = events.send(Event::Begun { cases: self.begun });
        for (at, result) in std::mem::take(&mut self.wrong) {
            let _ = events.send(Event::Started {
                case: result.case.clone(),
            });
            self.over((at, 0), result, None, events);
        }
        let gate = Arc::new(Semaphore::new(options.jobs.max(1)));
        let mut running = Tasks::default();
        let mut begun = Vec::new();
        for (number, (at, prepared, pool)) in runs.into_iter().enumerate() {
            // A weak reference: a pool ends with its last case, so that other pools have room.
            let held = pool.as_ref().ok().map(Arc::downgrade);
            begun.push((at, Arc::clone(&prepared), held));
            let (gate, events) = (Arc::clone(&gate), events.clone());
            let see = options.see;
            running.spawn(number, async move {
                let _room = match &pool {
                    Ok(pool) => pool.place(&prepared.plan).await,
                    Err(_) => None,
                };
                let _place = gate.acquire().await;
                let _ = events.send(Event::Started {
                    case: prepared.case.id.clone(),
                });
                ended(one(prepared, pool).await, see)
            });
        }
        while let Some((number, ended)) = running.next().await {
            let (at, prepared, pool) = &begun[number];
            let (result, seen, standing) = match ended {
                Ok(ended) => ended,
                Err(panicked) => (
                    after_panic(prepared, pool.as_ref(), panicked).await,
                    None,
                    None,
                ),
            };
            if options.keep && result.result == Outcome::Fail {
                self.kept.extend(standing);
            }
            self.over((*at, number), result, seen, events);
        }
    }

    /// Records the result of an ended case and sends it.
    fn over(
        &mut self,
        place: (usize, usize),
        result: CaseResult,
        seen: Option<Arc<Seen>>,
        events: &mpsc::UnboundedSender<Event>,
    ) {
        let _ = events.send(Event::Finished {
            result: Box::new(result.clone()),
            seen,
        });
        self.results.push((place, result));
    }
}

/// Finds the pools for a case. Omits the dump lines that need missing modules, if the user permits
/// it.
async fn placed(
    mut prepared: Prepared,
    pools: &Pools,
) -> (Arc<Prepared>, Result<Vec<Arc<Pool>>, Unplaced>) {
    let mut found = caught(pools.of_case(&prepared)).await;
    if let Ok(Err(error)) = &found
        && let Some(Ok(fitting)) = refit::as_far_as_had(&prepared, error)
    {
        prepared = fitting;
        found = caught(pools.of_case(&prepared)).await;
    }
    let found = found.and_then(|found| found.map_err(|error| trouble(&error)));
    (Arc::new(prepared), found)
}

/// Error of a case that no kernel can run.
type Unplaced = RunError;

/// Splits an ended case into its result, its evidence if `see` is set, and its running lab.
fn ended(
    (prepared, result, stood): (Arc<Prepared>, CaseResult, Option<(Session, Evidence)>),
    see: bool,
) -> (CaseResult, Option<Arc<Seen>>, Option<Kept>) {
    let seen = stood
        .as_ref()
        .filter(|_| see)
        .map(|(_, evidence)| Arc::new(seen(&prepared, &result, evidence)));
    let names = prepared.plan.namespaces.iter().map(|ns| ns.name.clone());
    let kept = stood.map(|(session, _)| Kept {
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
    let mut result = blank(prepared, panicked);
    if let Some(pool) = pool.and_then(Weak::upgrade) {
        pool.release().clone_into(&mut result.kernel);
        // The release of the host's kernel is known to an agent only.
        if let Ok(Ok(agent)) = caught(pool.agent()).await {
            result.kernel.clone_from(&agent.surroundings().kernel);
        }
    }
    result
}

/// Returns the result of a case without a verdict.
fn blank(prepared: &Prepared, error: RunError) -> CaseResult {
    CaseResult {
        named: named(prepared),
        place: prepared.place(),
        claims: prepared.unsettled(),
        ..CaseResult::without_verdict(&prepared.case.lab, &prepared.case.id, error)
    }
}

/// Returns the name of a case on the command line; empty if it equals the case ID.
fn named(prepared: &Prepared) -> String {
    let case = &prepared.case;
    let file = prepared.sources.iter().next();
    let file = file.map_or(Cow::default(), |(_, source)| source.path());
    let rest = case.id.strip_prefix(&case.lab).unwrap_or_default();
    let lab = prepared.named.strip_suffix(rest).unwrap_or(&prepared.named);
    let named = format!("{}{rest}", name_to_run_again(lab, &file));
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
async fn one(
    mut prepared: Arc<Prepared>,
    pool: Result<Arc<Pool>, Unplaced>,
) -> (Arc<Prepared>, CaseResult, Option<(Session, Evidence)>) {
    let pool = match pool {
        Ok(pool) => pool,
        Err(error) => {
            let result = blank(&prepared, error);
            return (prepared, result, None);
        }
    };
    let agent = match pool.agent().await {
        Ok(agent) => agent,
        Err(error) => {
            let mut result = blank(&prepared, trouble(&error));
            pool.release().clone_into(&mut result.kernel);
            return (prepared, result, None);
        }
    };
    let (result, stood) = on_agent(&mut prepared, &agent).await;
    (prepared, result, stood)
}

/// Runs a case on an agent of the caller, in the same way as [`execute`]. Returns the result and
/// the evidence.
pub async fn run_on(agent: &Agent, prepared: Prepared) -> (CaseResult, Option<Arc<Seen>>) {
    let mut prepared = Arc::new(prepared);
    let (result, stood) = on_agent(&mut prepared, agent).await;
    let (result, seen, _) = ended((prepared, result, stood), true);
    (result, seen)
}

/// Runs a case on an agent. Sets `prepared` to the case as it ran.
async fn on_agent(
    prepared: &mut Arc<Prepared>,
    agent: &Agent,
) -> (CaseResult, Option<(Session, Evidence)>) {
    let begun = Instant::now();
    let judged = try_as_far_as_taken(prepared, agent).await;
    let (mut result, stood) = match judged {
        Ok((judgement, evidence, session)) => {
            let result = judged_result(prepared, judgement, &evidence);
            (result, Some((session, evidence)))
        }
        Err(error) => (blank(prepared, error), None),
    };
    result.kernel.clone_from(&agent.surroundings().kernel);
    result.duration_ms = u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX);
    (result, stood)
}

/// Returns the result of a case with a verdict.
fn judged_result(prepared: &Prepared, judgement: Judgement, evidence: &Evidence) -> CaseResult {
    let last = evidence.last();
    let result = if judgement.holds() {
        Outcome::Pass
    } else {
        Outcome::Fail
    };
    let flows = flows::outcomes(prepared, &judgement);
    let Judgement {
        probes,
        wire,
        counters,
        rules,
        held,
        steps,
        claims,
        doubtful: _,
    } = judgement;
    let mut result = CaseResult {
        lab: prepared.case.lab.clone(),
        case: prepared.case.id.clone(),
        named: named(prepared),
        kernel: String::new(),
        result,
        duration_ms: 0,
        claims,
        probes,
        flows,
        wire,
        counters,
        rules,
        held,
        steps,
        refused: last.refused.clone(),
        refused_left_out: last.refused_left_out,
        error: None,
        place: None,
    };
    result.place = flows::place(&result).or_else(|| prepared.place());
    result
}

/// Runs a case. Omits the dump lines that the kernel rejects, if the user permits it. Sets
/// `prepared` to the case as it ran.
async fn try_as_far_as_taken(
    prepared: &mut Arc<Prepared>,
    agent: &Agent,
) -> Result<(Judgement, Evidence, Session), RunError> {
    let mut tried = try_one(prepared, agent).await;
    if let Err(error) = &tried
        && let Some(fitting) = refit::as_far_as_taken(prepared, error, agent).await
    {
        *prepared = Arc::new(fitting?);
        tried = try_one(prepared, agent).await;
    }
    let tried = match tried {
        Ok((judgement, evidence, _)) if may_want_more(&judgement, &evidence) => {
            try_one(&waiting(prepared), agent).await
        }
        tried => tried,
    };
    tried.map_err(|error| in_the_lab(prepared, &error).unwrap_or_else(|| trouble(&error)))
}

/// Whether a case with settled timeouts failed an expectation other than the verdict of a probe.
/// The expectation may concern retransmissions, which follow only after the timeout was settled.
fn may_want_more(judgement: &Judgement, evidence: &Evidence) -> bool {
    let refuted = |claim: &ClaimOutcome| claim.verdict == ClaimVerdict::Refuted;
    let later = evidence.steps.iter().map(|step| &*step.evidence);
    let mut attempts = std::iter::once(evidence)
        .chain(later)
        .flat_map(|seen| &seen.attempts);
    attempts.any(|attempt| attempt.settled)
        && (judgement.checks().any(|check| !check.holds) || judgement.claims.iter().any(refuted))
}

/// Returns the case with all timeouts waited for instead of settled.
#[must_use]
pub fn waiting(prepared: &Prepared) -> Prepared {
    let mut waiting = prepared.clone();
    let of_steps = waiting.plan.steps.iter_mut();
    let of_steps = of_steps.flat_map(|step| &mut step.probes);
    for probe in waiting.plan.probes.iter_mut().chain(of_steps) {
        probe.settle = false;
    }
    waiting
}

/// Returns the evidence of a case in the form that is sent, with the case.
fn seen(prepared: &Arc<Prepared>, result: &CaseResult, evidence: &Evidence) -> Seen {
    let books = prepared.books();
    let head = Head::of(result.case.clone(), result.kernel.clone(), None, evidence);
    let mut all = prepared.journeys(evidence).into_iter();
    let first = all.next().unwrap_or_default();
    let names = prepared.steps.iter().map(|step| step.name.clone());
    let steps: Vec<_> = names.zip(all).zip(books.iter().skip(1)).collect();
    let steps = steps
        .into_iter()
        .map(|((name, told), book)| (name, told, *book));
    let CaseJourneys {
        head,
        connections,
        steps,
    } = CaseJourneys::of(head, first, &books[0]).with_steps(steps);
    let interfaces = prepared.plan.namespaces.iter().flat_map(|namespace| {
        let links = namespace.links.iter().map(|link| link.name.as_str());
        links
            .chain(["lo"])
            .map(|link| (namespace.name.clone(), link.to_owned()))
    });
    Seen {
        interfaces: interfaces.collect(),
        prepared: Arc::clone(prepared),
        document: Document {
            schema: seen::SCHEMA.to_owned(),
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
fn in_the_lab(prepared: &Prepared, error: &KernelError) -> Option<RunError> {
    let KernelError::Failed(failure) = error else {
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
    let at = list.iter().position(|line| line.trim() == rejected.line)?;
    let problem = Problem::in_lab(
        place!["spec", "nodes", &node.name, "leftovers", field, at],
        format!(
            "{} refuses this line on node `{}`",
            rejected.program, node.name
        ),
    )
    .help(format!("it said: {}", rejected.said));
    let shown = problems_to_diagnostics(&prepared.case, &[problem]);
    let message = prepared
        .sources
        .redact(shown)
        .iter()
        .map(|diagnostic| diagnostic.render(&prepared.sources, Rendering::default()))
        .collect::<String>();
    Some(RunError {
        trouble: Trouble::Input,
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
pub async fn try_one(
    prepared: &Prepared,
    agent: &Agent,
) -> Result<(Judgement, Evidence, Session), KernelError> {
    let mut runs = Tries::default();
    loop {
        match try_once(prepared, agent).await {
            Err(error) if runs.again(&error) => {}
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
        KernelError::Failed(Failure {
            fault: Fault::Bug,
            message,
            remedy: None,
            rejected: None,
        })
    })?;
    let judgement = judge.judge(&evidence);
    match &judgement.doubtful {
        Some(why) => Err(KernelError::Failed(Failure::slow("an expectation", why))),
        None => Ok((judgement, evidence, session)),
    }
}

/// Converts a kernel error to an error for the user, with its help.
#[must_use]
pub fn trouble(error: &KernelError) -> RunError {
    let (trouble, remedy) = match error {
        KernelError::Start { source, .. } => {
            let missing = || {
                let is_missing = source.kind() == std::io::ErrorKind::NotFound;
                is_missing.then(|| {
                    format!(
                        "install {} beside svclab, or name it by the variable {}",
                        agent_program::NAME,
                        agent_program::VARIABLE
                    )
                })
            };
            let remedy = shortage::remedy(source).map(str::to_owned);
            (Trouble::Machine, remedy.or_else(missing))
        }
        KernelError::Unable(failure) | KernelError::Failed(failure) => {
            let trouble = match failure.fault {
                Fault::Input => Trouble::Input,
                Fault::Machine | Fault::Slow => Trouble::Machine,
                Fault::Bug => Trouble::Bug,
            };
            (trouble, failure.remedy.clone())
        }
        KernelError::Missing(missing) | KernelError::GuestLacks { missing, .. } => {
            (Trouble::Machine, missing.remedy())
        }
        KernelError::HostLacks(missing) => {
            let guest = "or leave out --kernel host, and it runs in a guest kernel";
            let remedies = missing.remedy().into_iter().chain([guest.to_owned()]);
            let remedy = remedies.collect::<Vec<_>>().join("\n");
            (Trouble::Machine, Some(remedy))
        }
        KernelError::Guest(error) if error.is_loss() => (Trouble::Lost, error.remedy()),
        KernelError::Guest(error) => (Trouble::Machine, error.remedy()),
        KernelError::Nowhere { host, guest } => {
            let remedies: Vec<String> = [trouble(host).remedy, guest.remedy()]
                .into_iter()
                .flatten()
                .collect();
            let remedy = (!remedies.is_empty()).then(|| remedies.join("\nor "));
            (Trouble::Machine, remedy)
        }
        KernelError::NoRoom(error) => (Trouble::Machine, Some(error.remedy().to_owned())),
        KernelError::Protocol { .. } => (
            Trouble::Machine,
            Some(format!(
                "install svclab and {} of one release",
                agent_program::NAME
            )),
        ),
        KernelError::Lost(lost) if bug::is_of_agent(&lost.said) => {
            (Trouble::Bug, Some(bug::REMEDY.to_owned()))
        }
        KernelError::Lost(lost) if lost.starved => {
            (Trouble::Machine, Some(shortage::OF_MEMORY.to_owned()))
        }
        KernelError::Lost(lost) if lost.was_silent() => (
            Trouble::Lost,
            Some(
                "run it again, with `--jobs 1` if the machine is busy; if it happens again, report \
                 it with the lab file"
                    .to_owned(),
            ),
        ),
        KernelError::Lost(_) => (
            Trouble::Lost,
            Some("run it again; if it happens again, report it with the lab file".to_owned()),
        ),
    };
    RunError {
        trouble,
        message: error.to_string(),
        remedy,
    }
}
