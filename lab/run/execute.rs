//! Running prepared cases, several at once.

use std::future::Future;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use anstream::adapter::strip_str;
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinSet;

use super::flows;
use super::pool::{Pool, Pools};
use super::prepare::{Prepared, problems_to_diagnostics};
use super::refit;
use crate::cluster::{Problem, place};
use crate::evidence::Evidence;
use crate::explain::{ClaimOutcome, ClaimVerdict, Judgement};
use crate::kernel::{Agent, Choice, KernelError, Session, Tries};
use crate::protocol::{Failure, Fault};
use crate::report::flows::tables;
use crate::report::journey::Telling;
use crate::report::journeys::{CaseJourneys, Head};
use crate::report::seen::{self, Document, Seen};
use crate::report::{CaseResult, Event, Outcome, Results, RunError, Trouble};
use crate::scenario::Rendering;
use crate::shortage;

/// How to run.
#[derive(Debug, Clone)]
pub struct Options {
    /// Where the plans run.
    pub kernels: Choice,
    /// The program that is the agents: `svclab`, for one that is not it. Without it, the
    /// one that runs.
    pub agent: Option<PathBuf>,
    /// How many cases stand at once.
    pub jobs: usize,
    /// How many agents of each kernel serve them; each has one thread.
    pub agents: usize,
    /// Whether a case that failed is left standing until the run's sessions are
    /// dropped.
    pub keep: bool,
    /// Whether all that was seen of each case is told of with it.
    pub see: bool,
}

/// A case that was left standing.
#[derive(Debug)]
pub struct Kept {
    /// The case.
    pub case: String,
    /// Its namespaces, in the plan's order.
    pub namespaces: Vec<String>,
    /// Its session; dropping it takes it away.
    pub session: Session,
}

/// Runs the cases and tells `events` what happens. Returns the results, and what
/// was left standing.
///
/// Agents are started as they are needed; one that is lost is replaced for the
/// cases that come after.
///
/// When `enough` ends first, what has not ended is given up, and nothing is left
/// standing; the results are those of the cases that had ended.
pub async fn execute(
    cases: Vec<Prepared>,
    options: &Options,
    events: &mpsc::UnboundedSender<Event>,
    enough: impl Future<Output = ()>,
) -> (Results, Vec<Kept>) {
    let begun = Instant::now();
    let pools = Pools::new(options, &cases);
    let with_flows = flows::declared(&cases);
    let (mut results, mut kept) = (Vec::new(), Vec::new());
    let is_interrupted = tokio::select! {
        biased;
        () = all(cases, &pools, options, events, &mut results, &mut kept) => false,
        () = enough => true,
    };
    if is_interrupted {
        kept.clear();
    }
    results.sort_by_key(|(at, _)| *at);
    let cases = results.into_iter().map(|(_, result)| result).collect();
    let mut results = Results::new(pools.tools().await, cases);
    results.interrupted = is_interrupted;
    results.flows = tables(&with_flows, &results.cases);
    // Who listens may have gone away; the results are returned all the same.
    let _ = events.send(Event::Over {
        results: Box::new(results.clone()),
        took: begun.elapsed(),
    });
    (results, kept)
}

/// Runs all cases, and notes which came to what as they end.
async fn all(
    cases: Vec<Prepared>,
    pools: &Pools,
    options: &Options,
    events: &mpsc::UnboundedSender<Event>,
    results: &mut Vec<(usize, CaseResult)>,
    kept: &mut Vec<Kept>,
) {
    let mut runs = Vec::new();
    for prepared in cases {
        let mut prepared = prepared;
        let mut found = pools.of_case(&prepared).await;
        if let Err(error) = &found
            && let Some(Ok(fitting)) = refit::as_far_as_had(&prepared, error)
        {
            prepared = fitting;
            found = pools.of_case(&prepared).await;
        }
        let prepared = Arc::new(prepared);
        match found {
            Ok(found) => runs.extend(
                found
                    .into_iter()
                    .map(|pool| (Arc::clone(&prepared), Ok(pool))),
            ),
            Err(error) => runs.push((prepared, Err(error))),
        }
    }
    let _ = events.send(Event::Begun { cases: runs.len() });
    let gate = Arc::new(Semaphore::new(options.jobs.max(1)));
    let mut running = JoinSet::new();
    for (at, (prepared, pool)) in runs.into_iter().enumerate() {
        let (gate, events) = (Arc::clone(&gate), events.clone());
        let see = options.see;
        running.spawn(async move {
            let _room = match &pool {
                Ok(pool) => pool.place(&prepared.plan).await,
                Err(_) => None,
            };
            let _place = gate.acquire().await;
            let _ = events.send(Event::Started {
                case: prepared.case.id.clone(),
            });
            let (prepared, result, stood) = one(prepared, pool).await;
            let seen = stood
                .as_ref()
                .filter(|_| see)
                .map(|(_, evidence)| Arc::new(seen(&prepared, &result, evidence)));
            let session = stood.map(|(session, _)| session);
            let namespaces = prepared
                .plan
                .namespaces
                .iter()
                .map(|ns| ns.name.clone())
                .collect();
            let _ = events.send(Event::Finished {
                result: Box::new(result.clone()),
                seen,
            });
            (
                at,
                result,
                session.map(|session| Kept {
                    case: prepared.case.id.clone(),
                    namespaces,
                    session,
                }),
            )
        });
    }
    while let Some(ended) = running.join_next().await {
        // A task only ends without its value when it panicked, which is then
        // already told of on standard error.
        if let Ok((at, result, standing)) = ended {
            if options.keep && result.result == Outcome::Fail {
                kept.extend(standing);
            }
            results.push((at, result));
        }
    }
}

/// Returns the case as it was tried, what came of it, and what stood.
async fn one(
    mut prepared: Arc<Prepared>,
    pool: Result<Arc<Pool>, KernelError>,
) -> (Arc<Prepared>, CaseResult, Option<(Session, Evidence)>) {
    let mut result = CaseResult {
        lab: prepared.case.lab.clone(),
        case: prepared.case.id.clone(),
        named: if prepared.named == prepared.case.id {
            String::new()
        } else {
            prepared.named.clone()
        },
        kernel: String::new(),
        result: Outcome::Error,
        duration_ms: 0,
        claims: Vec::new(),
        probes: Vec::new(),
        flows: Vec::new(),
        wire: Vec::new(),
        counters: Vec::new(),
        rules: Vec::new(),
        held: Vec::new(),
        steps: Vec::new(),
        refused: Vec::new(),
        refused_left_out: 0,
        error: None,
        place: prepared.place(),
    };
    let pool = match pool {
        Ok(pool) => pool,
        Err(error) => {
            result.error = Some(trouble(&error));
            result.claims = prepared.unsettled();
            return (prepared, result, None);
        }
    };
    pool.release().clone_into(&mut result.kernel);
    let agent = match pool.agent().await {
        Ok(agent) => agent,
        Err(error) => {
            result.error = Some(trouble(&error));
            result.claims = prepared.unsettled();
            return (prepared, result, None);
        }
    };
    result.kernel.clone_from(&agent.surroundings().kernel);
    let begun = Instant::now();
    let judged = try_as_far_as_taken(&mut prepared, &agent).await;
    result.duration_ms = u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX);
    match judged {
        Ok((judgement, evidence, session)) => {
            result.result = if judgement.holds() {
                Outcome::Pass
            } else {
                Outcome::Fail
            };
            result.flows = flows::outcomes(&prepared, &judgement);
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
            (
                result.probes,
                result.wire,
                result.counters,
                result.rules,
                result.held,
                result.steps,
                result.claims,
            ) = (probes, wire, counters, rules, held, steps, claims);
            let last = evidence.last();
            result.refused.clone_from(&last.refused);
            result.refused_left_out = last.refused_left_out;
            result.place = flows::place(&result).or(result.place);
            (prepared, result, Some((session, evidence)))
        }
        Err(error) => {
            result.error = Some(error);
            (prepared, result, None)
        }
    }
}

/// Tries a case; without what a kernel refuses of its dumps, where that may be left out.
/// `prepared` is then what was tried.
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

/// Whether something is expected besides the probes' verdicts that did not come, of a
/// case whose timeouts were settled: it may be of what is sent again.
fn may_want_more(judgement: &Judgement, evidence: &Evidence) -> bool {
    let refuted = |claim: &ClaimOutcome| claim.verdict == ClaimVerdict::Refuted;
    let later = evidence.steps.iter().map(|step| &*step.evidence);
    let mut attempts = std::iter::once(evidence)
        .chain(later)
        .flat_map(|seen| &seen.attempts);
    attempts.any(|attempt| attempt.settled)
        && (judgement.checks().any(|check| !check.holds) || judgement.claims.iter().any(refuted))
}

/// The same case, in which timeouts are waited for.
pub(super) fn waiting(prepared: &Prepared) -> Prepared {
    let mut waiting = prepared.clone();
    let of_steps = waiting.plan.steps.iter_mut();
    let of_steps = of_steps.flat_map(|step| &mut step.probes);
    for probe in waiting.plan.probes.iter_mut().chain(of_steps) {
        probe.settle = false;
    }
    waiting
}

/// All that was seen of a case that was watched.
fn seen(prepared: &Prepared, result: &CaseResult, evidence: &Evidence) -> Seen {
    let books = prepared.books();
    let expected = Some(result.result == Outcome::Pass);
    let head = Head::of(
        result.case.clone(),
        result.kernel.clone(),
        expected,
        evidence,
    );
    let telling = |book| Telling {
        book,
        verbose: false,
        brief: false,
    };
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
    let mut text = telling(books[0]).case(&head, connections.iter().map(|told| &told.journey));
    for (step, book) in steps.iter().zip(books.iter().skip(1)) {
        let told = step.connections.iter().map(|told| &told.journey);
        text += &telling(*book).step(&step.step, told);
    }
    let interfaces = prepared.plan.namespaces.iter().flat_map(|namespace| {
        let links = namespace.links.iter().map(|link| link.name.as_str());
        links
            .chain(["lo"])
            .map(|link| (namespace.name.clone(), link.to_owned()))
    });
    Seen {
        interfaces: interfaces.collect(),
        text: strip_str(&text).to_string(),
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

/// A rule that a program refused and that the lab's file holds, shown where it
/// stands there.
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
    let message = shown
        .iter()
        .map(|diagnostic| diagnostic.render(&prepared.sources, Rendering::default()))
        .collect::<String>();
    Some(RunError {
        trouble: Trouble::Input,
        message: message.trim_end().to_owned(),
        remedy: None,
    })
}

/// Builds a case, runs its probes, and holds what was seen against what is expected.
/// The lab stands as long as its session.
pub(super) async fn try_one(
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

/// What a user is told of an error, and what to do about it.
#[must_use]
pub fn trouble(error: &KernelError) -> RunError {
    let (trouble, remedy) = match error {
        KernelError::Start { source, .. } => {
            let remedy = shortage::remedy(source).map(str::to_owned);
            (Trouble::Machine, remedy)
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
        KernelError::Protocol { .. } => (Trouble::Bug, None),
        KernelError::Lost(lost) if lost.starved => {
            (Trouble::Machine, Some(shortage::OF_MEMORY.to_owned()))
        }
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
