//! Runs a case without any change until a probe fails.

use std::pin::pin;

use futures_util::stream::{self, StreamExt as _};

use crate::bench::LabChoice;
use crate::draws::affinity_runs;
use crate::why::case_labs::CaseLabs;
use crate::why::goals::Goals;
use crate::why::success::Outcome;
use svclab_model::evidence::Evidence;
use svclab_runner::kernel::KernelError;
use svclab_runner::run::prepare::Prepared;

/// Number of runs that take place at once.
const MAX_PARALLEL_RUNS: usize = 4;

/// Results of a case without any change.
pub(super) struct Unchanged {
    /// Full evidence of the worst run.
    pub(super) evidence: Evidence,
    /// Failures of the worst run, and the minimum counts of all runs.
    pub(super) outcome: Outcome,
    /// Number of runs.
    pub(super) runs: u32,
}

/// Runs a case until a probe fails, at most `max_runs` times: a run may draw the endpoints that work.
/// If probes fail and the case has clients with session affinity, runs it as often as it takes to draw
/// each endpoint: all connections of such a client may have drawn one.
pub(super) async fn run_unchanged(
    labs: &CaseLabs<'_>,
    prepared: &Prepared,
    goals: &Goals,
    max_runs: u32,
) -> Result<Unchanged, KernelError> {
    let run = || async {
        let (evidence, _) = labs.run(prepared, true, LabChoice::Any).await?;
        let outcome = goals.compare(prepared, &evidence);
        Ok::<_, KernelError>((evidence, outcome))
    };
    let (mut evidence, mut outcome) = run().await?;
    let mut runs = 1;
    while runs < max_runs && outcome.failing_probes().is_empty() {
        (evidence, outcome) = run().await?;
        runs += 1;
    }
    let affinity = affinity_runs(prepared);
    let further = match affinity.values().max() {
        Some(runs) if !outcome.failing_probes().is_empty() => runs - 1,
        _ => 0,
    };
    let mut least = outcome.clone();
    let mut results = pin!(
        stream::iter(0..further)
            .map(|_| run())
            .buffer_unordered(MAX_PARALLEL_RUNS)
    );
    while let Some(result) = results.next().await {
        let (other, now) = result?;
        runs += 1;
        least.lower_counts(&now);
        if now.is_worse_than(&outcome) {
            (evidence, outcome) = (other, now);
        }
    }
    outcome.lower_counts(&least);
    Ok(Unchanged {
        evidence,
        outcome,
        runs,
    })
}
