//! Runs one case on an agent, again if the kernel rejects a part of a dump or the machine is busy.

use std::sync::Arc;
use std::time::Duration;

use super::case_evidence::CaseEvidence;
use super::control::{RunControl, case_timeout_error};
use super::pool::Pool;
use super::rejected_rule::locate_in_lab;
use super::result::{judged_result, split_ended, without_verdict};
use super::room::{Room, Stopwatch};
use crate::kernel::{Agent, KernelError, RunCount, Session};
use crate::results::{CaseResult, CaseStatus, RunError};
use crate::run::kernel_error::to_run_error;
use crate::run::prepare::{Prepared, refit};
use svclab_judge::{ClaimOutcome, ClaimVerdict, Judgement};
use svclab_model::evidence::Evidence;
use svclab_model::protocol::{Failure, FailureKind};

/// Runs a case in its room, again if it does not pass and `control` permits it. Returns the case as
/// it ran, its result, and the session and evidence of its last lab.
pub(super) async fn run_case(
    mut prepared: Arc<Prepared>,
    pool: Result<Arc<Pool>, RunError>,
    room: Option<&Room>,
    control: &RunControl,
) -> (Arc<Prepared>, CaseResult, Option<(Session, Evidence)>) {
    let pool = match pool {
        Ok(pool) => pool,
        Err(error) => {
            let result = without_verdict(&prepared, error);
            return (prepared, result, None);
        }
    };
    let mut failed_tries = Vec::new();
    loop {
        if let Some(room) = room {
            room.share_machine().await;
        }
        let (mut result, lab) = match pool.agent().await {
            Ok(agent) => try_on_agent(&mut prepared, (&agent, room), control.case_timeout).await,
            Err(error) => {
                let mut result = without_verdict(&prepared, to_run_error(&error));
                pool.release().clone_into(&mut result.kernel);
                (result, None)
            }
        };
        if control.should_retry(&result, failed_tries.len() + 1) {
            failed_tries.push(result);
            continue;
        }
        if result.result == CaseStatus::Pass && !failed_tries.is_empty() {
            result.result = CaseStatus::Flaky;
        }
        result.failed_tries = failed_tries;
        return (prepared, result, lab);
    }
}

/// Runs a case on an agent of the caller, in the same way as [`execute`]. Returns the result and
/// the evidence.
pub async fn run_on_agent(
    agent: &Agent,
    prepared: Prepared,
) -> (CaseResult, Option<Arc<CaseEvidence>>) {
    let mut prepared = Arc::new(prepared);
    let (result, lab) = try_on_agent(&mut prepared, (agent, None), None).await;
    let (result, seen, _) = split_ended((prepared, result, lab), true);
    (result, seen)
}

/// Runs a case on an agent, for at most the given time. Sets `prepared` to the case as it ran.
async fn try_on_agent(
    prepared: &mut Arc<Prepared>,
    (agent, room): (&Agent, Option<&Room>),
    limit: Option<Duration>,
) -> (CaseResult, Option<(Session, Evidence)>) {
    let stopwatch = Stopwatch::start(room);
    let trial = Box::pin(try_without_rejected(prepared, agent, room));
    let judged = match limit {
        // Dropping the trial drops its session, and the agent removes the lab.
        Some(limit) => stopwatch
            .limit(limit, trial)
            .await
            .unwrap_or_else(|| Err(case_timeout_error(limit))),
        None => trial.await,
    };
    let (mut result, lab) = match judged {
        Ok((judgement, evidence, session)) => {
            let result = judged_result(prepared, judgement, &evidence);
            (result, Some((session, evidence)))
        }
        Err(error) => (without_verdict(prepared, error), None),
    };
    result.kernel.clone_from(&agent.environment().kernel);
    result.duration_ms = u64::try_from(stopwatch.elapsed().as_millis()).unwrap_or(u64::MAX);
    (result, lab)
}

/// Runs a case. Omits the dump lines that the kernel rejects, if the user permits it. Sets
/// `prepared` to the case as it ran.
async fn try_without_rejected(
    prepared: &mut Arc<Prepared>,
    agent: &Agent,
    room: Option<&Room>,
) -> Result<(Judgement, Evidence, Session), RunError> {
    let mut tried = try_case(prepared, agent, room).await;
    if let Err(error) = &tried
        && let Some(fitting) = refit::without_rejected(prepared, error, agent).await
    {
        *prepared = Arc::new(fitting?);
        tried = try_case(prepared, agent, room).await;
    }
    let tried = match tried {
        Ok((judgement, evidence, _)) if needs_full_wait(&judgement, &evidence) => {
            try_case(&without_settling(prepared), agent, room).await
        }
        tried => tried,
    };
    tried.map_err(|error| locate_in_lab(prepared, &error).unwrap_or_else(|| to_run_error(&error)))
}

/// Whether a case with settled timeouts failed an expectation other than the verdict of a probe.
/// The expectation may concern retransmissions, which follow only after the timeout was settled.
fn needs_full_wait(judgement: &Judgement, evidence: &Evidence) -> bool {
    let refuted = |claim: &ClaimOutcome| claim.verdict == ClaimVerdict::Refuted;
    evidence.attempts().any(|attempt| attempt.settled)
        && (judgement.checks().any(|check| !check.holds()) || judgement.claims.iter().any(refuted))
}

/// Returns the case with all timeouts waited for instead of settled.
#[must_use]
pub fn without_settling(prepared: &Prepared) -> Prepared {
    let mut waiting = prepared.clone();
    for probe in waiting.plan.probes_mut() {
        probe.settle = false;
    }
    waiting
}

/// Builds a case in its room, runs its probes and judges the evidence. If the machine was too busy,
/// the case runs again, without other labs beside it. The lab runs as long as its session exists.
///
/// # Errors
///
/// When the lab cannot be built or probed, or when the machine was too busy for a verdict.
pub async fn try_case(
    prepared: &Prepared,
    agent: &Agent,
    room: Option<&Room>,
) -> Result<(Judgement, Evidence, Session), KernelError> {
    let mut retries = RunCount::default();
    loop {
        match try_once(prepared, agent, room).await {
            Err(error) if retries.should_retry(&error) => {}
            tried => return tried,
        }
        // The other labs of this run are often what keeps the machine busy.
        if let Some(room) = room {
            room.claim_machine().await;
        }
    }
}

async fn try_once(
    prepared: &Prepared,
    agent: &Agent,
    room: Option<&Room>,
) -> Result<(Judgement, Evidence, Session), KernelError> {
    let mut session = agent.build(prepared.plan.clone()).await?;
    let evidence = match room {
        Some(room) => room.finish_probes(session.probe()).await?,
        None => session.probe().await?,
    };
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
