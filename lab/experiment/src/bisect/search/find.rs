//! Runs a complete bisection, from the two sides to a verified result.

use std::sync::Arc;
use std::time::Instant;

use super::baseline::{Baseline, FullOutcomes};
use super::bisection_run::BisectionRun;
use super::narrowing::NarrowingResult;
use super::probe_mode::ProbeMode;
use super::running_trial::RunningTrial;
use crate::bench::{Bench, Kernel};
use crate::bisect::Pair;
use crate::bisect::document::{Bisection, Purpose, SCHEMA, Trial};
use crate::bisect::error::BisectError;
use crate::bisect::narrow::{Culprits, TrialClass};
use crate::bisect::task::{Task, common_probes};
use crate::statistics::parts;
use svclab_model::evidence::Evidence;
use svclab_runner::kernel::Agent;

/// Maximum number of repetitions if the verification fails, each with a longer wait.
const MAX_REPETITIONS: u32 = 3;

/// Factor between the maximum waits of two repetitions.
const WAIT_FACTOR: u32 = 4;

/// Finds the decisive differences, in up to `labs` labs at once: see
/// [`parallel_labs`](super::parallel_labs).
///
/// Reports each finished trial to the callback, with the total number of differences.
///
/// # Errors
///
/// See [`BisectError`].
pub async fn find(
    task: &Task,
    agent: &Agent,
    labs: usize,
    on_trial: &mut impl FnMut(&Trial, usize),
) -> Result<Bisection, BisectError> {
    let started = Instant::now();
    let pair = Pair::new(&task.good, &task.bad)?;
    if pair.is_empty() {
        return Err(BisectError::NoDifferences {
            good: task.good_name.clone(),
            bad: task.bad_name.clone(),
        });
    }
    let mut trials = BisectionRun {
        task,
        probes: common_probes(task)?,
        pair,
        bench: Arc::new(Bench::new(labs)),
        kernel: Kernel::Agent(agent.clone()),
        finished: Vec::new(),
        on_trial,
    };
    let (baseline, Culprits { breaks, fixes }) = trials.search().await?;
    let error_probability = baseline
        .symptom
        .total_error_probability(trials.finished.len());
    Ok(Bisection {
        schema: SCHEMA.to_owned(),
        good: task.good_name.clone(),
        bad: task.bad_name.clone(),
        base: task.base.clone(),
        kernel: agent.environment().kernel.clone(),
        symptom: baseline.report,
        differences: trials.pair.len(),
        breaks: trials.pair.describe(&breaks),
        fixes: trials.pair.describe(&fixes),
        declared_by: Vec::new(),
        trials: trials.finished,
        error_per_million: parts(error_probability, 1e6),
        duration_ms: u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX),
    })
}

/// Trial of the bad side with the full maximum wait, which runs in the background.
enum FullBadTrial {
    Running(RunningTrial),
    Finished(Box<Evidence>),
}

impl<F: FnMut(&Trial, usize)> BisectionRun<'_, F> {
    /// Finds the symptom and the decisive differences.
    async fn search(&mut self) -> Result<(Baseline, Culprits), BisectError> {
        let trial = self.start_baseline(true, ProbeMode::Full);
        let full_good = self.finish_baseline(true, trial).await?;
        let mut full_bad = FullBadTrial::Running(self.start_baseline(false, ProbeMode::Full));
        let mut max_wait = ProbeMode::sufficient_wait(&[&full_good]);
        let mut probe = String::new();
        for _ in 0..=MAX_REPETITIONS {
            let found = match self.distinguish(max_wait).await {
                Ok(baseline) => {
                    let found = self.narrow_down(&baseline).await?;
                    Ok((baseline, found))
                }
                Err(alike @ BisectError::Indistinguishable { .. }) => Err(alike),
                Err(error) => return Err(error),
            };
            let bad = match full_bad {
                FullBadTrial::Running(looking) => {
                    Box::new(self.finish_baseline(false, looking).await?)
                }
                FullBadTrial::Finished(seen) => seen,
            };
            let needed = ProbeMode::sufficient_wait(&[&full_good, &bad]);
            let (good_tallies, bad_tallies) = (self.tallies(&full_good), self.tallies(&bad));
            full_bad = FullBadTrial::Finished(bad);
            let full = found.as_ref().ok().and_then(|(ends, _)| {
                let probe_name = &ends.symptom.probe;
                ends.full_outcomes(good_tallies.get(probe_name), bad_tallies.get(probe_name))
            });
            // The bad side answers late, and the wait may have been too short for the answer.
            if needed > max_wait && full.is_none() {
                max_wait = needed;
                continue;
            }
            let (baseline, found) = found?;
            let probe_name = &baseline.symptom.probe;
            probe.clone_from(probe_name);
            let narrowed = found.narrowed.clone();
            if self.verify(&baseline, found, full.as_ref()).await? {
                return Ok((baseline, narrowed));
            }
            max_wait *= WAIT_FACTOR;
        }
        Err(BisectError::Unstable { probe })
    }

    /// Whether the result holds in newly built labs: with the full maximum wait if the symptom has
    /// no randomness.
    async fn verify(
        &mut self,
        baseline: &Baseline,
        found: NarrowingResult,
        full: Option<&FullOutcomes>,
    ) -> Result<bool, BisectError> {
        let mode = if full.is_some() {
            ProbeMode::Full
        } else {
            baseline.probe_mode()
        };
        let Culprits { breaks, fixes } = found.narrowed;
        let started = found.verification.filter(|(begun, _)| *begun == mode);
        let started = started.map(|(_, looking)| looking);
        let broken = (self.mask(&breaks, true), TrialClass::Bad, started);
        let fixed = (self.mask(&fixes, false), TrialClass::Good, None);
        let mut trials = Vec::new();
        for (chosen, expected, started) in [fixed, broken] {
            // Both sides themselves already ran with the full maximum wait.
            if chosen.iter().all(|is_bad| *is_bad) || !chosen.iter().any(|there| *there) {
                continue;
            }
            let trial = started.unwrap_or_else(|| self.start_trial(&chosen, baseline, mode, None));
            trials.push((chosen, expected, trial));
        }
        for (chosen, wanted, looking) in trials {
            let classify = |tally: &_| match full {
                Some(slow) => slow.classify(&baseline.symptom, tally),
                None => baseline.symptom.classify(tally),
            };
            let result = looking.finish().await?;
            if self.record(&chosen, result, Purpose::Verification, classify, baseline) != wanted {
                return Ok(false);
            }
        }
        Ok(true)
    }
}
