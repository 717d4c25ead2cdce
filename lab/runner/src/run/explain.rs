//! Runs cases and records everything that happens in them.

use std::collections::BTreeSet;
use std::future::Future;
use std::sync::Arc;
use std::time::Instant;

use futures_util::stream::{self, StreamExt as _};

use super::execute::pool::Pools;
use super::execute::result::judged_result;
use super::execute::{CaseEvidence, RunOptions, try_case, without_settling};
use super::kernel_error::to_run_error;
use super::prepare::{Prepared, refit};
use super::tasks::catch_panic;
use crate::results::{CaseResult, ErrorKind, RunError};
use svclab_journey::journey::Journey;
use svclab_judge::Judgement;
use svclab_model::evidence::Evidence;
use svclab_model::plan::{EvidenceRequest, Probe};

/// Case that ran with all of its namespaces watched.
#[derive(Debug)]
pub struct ExplainedCase {
    /// Case with the files, cluster and plan it was built from.
    pub prepared: Prepared,
    /// Release of the kernel that the case ran in.
    pub kernel: String,
    /// Time from the first namespace to the last verdict, in milliseconds.
    pub duration_ms: u64,
    /// Evidence of the case.
    pub evidence: Evidence,
    /// Judgement of the evidence by the expectations of the case.
    pub judgement: Judgement,
    /// Journeys of each stage, in the order in which their connections started.
    pub journeys: Vec<Vec<Journey>>,
}

impl ExplainedCase {
    /// Returns the result and the evidence of the case, as those of a run.
    #[must_use]
    pub fn into_result(self) -> (CaseResult, Arc<CaseEvidence>) {
        let prepared = Arc::new(self.prepared);
        let mut result = judged_result(&prepared, self.judgement, &self.evidence);
        result.kernel = self.kernel;
        result.duration_ms = self.duration_ms;
        let evidence = CaseEvidence::new(&prepared, &result.kernel, &self.evidence);
        (result, Arc::new(evidence))
    }
}

/// Runs cases in parallel, each with all of its namespaces watched. Returns the results in the
/// order of `cases`. An error contains the ID of its case. `None` if `cancelled` ends first.
pub async fn explain(
    cases: Vec<Prepared>,
    options: &RunOptions,
    cancelled: impl Future<Output = ()>,
) -> Option<Vec<Result<ExplainedCase, (String, RunError)>>> {
    let pools = Pools::new(options, &cases);
    let all_cases = async {
        stream::iter(cases)
            .map(|prepared| async {
                let case = prepared.case.id.clone();
                let explained = Box::pin(catch_panic(explain_case(prepared, &pools))).await;
                explained
                    .and_then(|explained| explained)
                    .map_err(|error| (case, error))
            })
            .buffered(options.jobs.max(1))
            .collect()
            .await
    };
    tokio::select! {
        biased;
        explained = all_cases => Some(explained),
        () = cancelled => None,
    }
}

/// Returns the error for a requested probe name that none of `probes` has.
#[must_use]
pub fn unknown_probe_error<'p>(
    name: &str,
    probes: impl IntoIterator<Item = &'p Probe>,
) -> RunError {
    let names: BTreeSet<&str> = probes
        .into_iter()
        .map(|probe| probe.name.as_str())
        .collect();
    let names: Vec<&str> = names.into_iter().collect();
    RunError {
        kind: ErrorKind::Input,
        message: format!("there is no probe `{name}`"),
        remedy: Some(format!("name one of these: {}", names.join(", "))),
    }
}

async fn explain_case(mut prepared: Prepared, pools: &Pools) -> Result<ExplainedCase, RunError> {
    // Retransmissions are part of the evidence, so timeouts are not settled early.
    prepared = without_settling(&prepared);
    prepared.plan.evidence = EvidenceRequest::everything(&prepared.plan);
    let pools_of_case = match pools.pools_for_case(&prepared).await {
        Ok(found) => found,
        Err(error) => {
            prepared = refit::without_unsupported(&prepared, &error)
                .unwrap_or_else(|| Err(to_run_error(&error)))?;
            let again = pools.pools_for_case(&prepared).await;
            again.map_err(|error| to_run_error(&error))?
        }
    };
    // One kernel suffices to record the packets of a case that should run in several.
    let Some(pool) = pools_of_case.into_iter().next() else {
        return Err(RunError {
            kind: ErrorKind::Bug,
            message: "no kernel was found for the case".to_owned(),
            remedy: None,
        });
    };
    let room = pool.acquire_room(&prepared.plan).await;
    if let Some(room) = &room {
        room.share_machine().await;
    }
    let begun = Instant::now();
    let agent = pool.agent().await.map_err(|error| to_run_error(&error))?;
    let (judgement, evidence, _session) = match try_case(&prepared, &agent, room.as_ref()).await {
        Ok(tried) => tried,
        Err(error) => {
            prepared = refit::without_rejected(&prepared, &error, &agent)
                .await
                .unwrap_or_else(|| Err(to_run_error(&error)))?;
            let again = try_case(&prepared, &agent, room.as_ref()).await;
            again.map_err(|error| to_run_error(&error))?
        }
    };
    let kernel = agent.environment().kernel.clone();
    let journeys = prepared.journeys(&evidence);
    refit::record_probes(&mut prepared, &journeys);
    Ok(ExplainedCase {
        prepared,
        kernel,
        duration_ms: u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX),
        evidence,
        judgement,
        journeys,
    })
}
