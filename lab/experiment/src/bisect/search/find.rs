//! Runs a complete bisection, from the two sides to a verified result.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::time::timeout_at;

use super::baseline::{Baseline, FullOutcomes};
use super::bisection_run::BisectionRun;
use super::narrowing::NarrowingResult;
use super::probe_mode::ProbeMode;
use crate::bench::{AgentSource, Bench};
use crate::bisect::Pair;
use crate::bisect::document::{Bisection, Purpose, SCHEMA, SymptomFinding, Trial};
use crate::bisect::error::BisectError;
use crate::bisect::narrow::{Culprits, TrialClass};
use crate::bisect::task::{Task, common_probes};
use crate::statistics::parts;
use svclab_model::plan::Plan;
use svclab_runner::kernel::Agent;

/// Maximum number of repetitions if the verification fails, each with a longer wait.
const MAX_REPETITIONS: u32 = 3;

/// Factor between the maximum waits of two repetitions.
const WAIT_FACTOR: u32 = 4;

/// Maximum number of symptoms after the first.
const MAX_FURTHER: usize = 8;

/// Maximum time for all symptoms after the first: this multiple of the time for the first.
const FURTHER_TIME_FACTOR: u32 = 2;

/// Time for all symptoms after the first, if the first took little time.
const MIN_FURTHER_TIME: Duration = Duration::from_secs(90);

/// Symptom with its differences, and what the search took.
struct SearchResult {
    finding: SymptomFinding,
    trials: Vec<Trial>,
    error_probability: f64,
    /// Plan of the bad side with the differences that fix it as in good.
    fixed: Plan,
    /// Whether other probes differ, or may differ.
    others_differ: bool,
}

/// Finds the decisive differences, in up to `labs` labs at once: see
/// [`parallel_labs`](super::parallel_labs). Other probes may differ for other reasons. So the search
/// goes on with the differences found so far as in good, until no probe differs or the time is over:
/// if a whole component is missing, each probe fails for rules of its own.
///
/// Reports each finished trial to the callback.
///
/// # Errors
///
/// See [`BisectError`].
pub async fn find(
    task: &Task,
    agent: &Agent,
    labs: usize,
    on_trial: &mut impl FnMut(&Trial),
) -> Result<Bisection, BisectError> {
    let started = Instant::now();
    let first = find_symptom(task, agent, labs, on_trial).await?;
    let time = (started.elapsed() * FURTHER_TIME_FACTOR).max(MIN_FURTHER_TIME);
    let deadline = Instant::now() + time;
    let (mut error_probability, mut bad) = (first.error_probability, first.fixed);
    let mut others_differ = first.others_differ;
    let mut found = Bisection {
        schema: SCHEMA.to_owned(),
        good: task.good_name.clone(),
        bad: task.bad_name.clone(),
        base: task.base.clone(),
        kernel: agent.environment().kernel.clone(),
        finding: first.finding,
        further: Vec::new(),
        unexamined: None,
        declared_by: Vec::new(),
        assumed: task.assumed.clone(),
        not_tried: task.unexamined.not_tried.clone(),
        trials: first.trials,
        error_per_million: 0,
        duration_ms: 0,
    };
    while others_differ {
        if found.further.len() == MAX_FURTHER {
            found.unexamined = Some(format!("the limit of {MAX_FURTHER} further symptoms"));
            break;
        }
        let rest = Task {
            bad,
            ..task.clone()
        };
        let search = find_symptom(&rest, agent, labs, on_trial);
        let next = match timeout_at(deadline.into(), search).await {
            Ok(Ok(next)) => next,
            Err(_) => {
                let seconds = time.as_secs();
                found.unexamined = Some(format!("the limit of {seconds} s for further symptoms"));
                break;
            }
            Ok(Err(BisectError::Indistinguishable { .. } | BisectError::NoDifferences { .. })) => {
                break;
            }
            Ok(Err(error)) => {
                found.unexamined = Some(error.to_string());
                break;
            }
        };
        error_probability = error_probability.max(next.error_probability);
        others_differ = next.others_differ;
        found.further.push(next.finding);
        found.trials.extend(next.trials);
        bad = next.fixed;
    }
    found.error_per_million = parts(error_probability, 1e6);
    found.duration_ms = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
    Ok(found)
}

/// Finds the symptom that separates the sides best, and the differences that cause it.
async fn find_symptom(
    task: &Task,
    agent: &Agent,
    labs: usize,
    on_trial: &mut impl FnMut(&Trial),
) -> Result<SearchResult, BisectError> {
    let pair = Pair::new(&task.good, &task.bad)?;
    if pair.is_empty() {
        return Err(BisectError::NoDifferences {
            good: task.good_name.clone(),
            bad: task.bad_name.clone(),
            unexamined: Box::new(task.unexamined.clone()),
        });
    }
    let mut trials = BisectionRun {
        task,
        probes: common_probes(task)?,
        pair,
        bench: Arc::new(Bench::new(labs)),
        agents: AgentSource::Agent(agent.clone()),
        finished: Vec::new(),
        discarded: 0,
        on_trial,
    };
    let (baseline, Culprits { breaks, fixes }) = trials.search().await?;
    let error_probability = baseline
        .symptom
        .total_error_probability(trials.finished.len() - trials.discarded);
    let fixed = Plan {
        case: task.bad.case.clone(),
        stages: task.bad.stages.clone(),
        evidence: task.bad.evidence.clone(),
        ..trials.pair.plan(&trials.mask(&fixes, false))
    };
    let others_differ = baseline.is_undecided || !baseline.report.other_probes.is_empty();
    Ok(SearchResult {
        others_differ,
        finding: SymptomFinding {
            symptom: baseline.report,
            differences: trials.pair.len(),
            breaks: trials.pair.describe(&breaks),
            fixes: trials.pair.describe(&fixes),
        },
        trials: trials.finished,
        error_probability,
        fixed,
    })
}

impl<F: FnMut(&Trial)> BisectionRun<'_, F> {
    /// Finds the symptom and the decisive differences.
    async fn search(&mut self) -> Result<(Baseline, Culprits), BisectError> {
        let trial = self.start_baseline(true, ProbeMode::Full);
        let full_good = self.finish_baseline(true, trial).await?;
        // This trial runs in the background until the first result.
        let mut bad_trial = Some(self.start_baseline(false, ProbeMode::Full));
        let mut full_bad = None;
        let mut max_wait = ProbeMode::sufficient_wait(full_good.slowest_answer);
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
            if let Some(trial) = bad_trial.take() {
                full_bad = Some(self.finish_baseline(false, trial).await?);
            }
            let slowest = full_bad.iter().chain([&full_good]);
            let slowest = slowest.map(|side| side.slowest_answer).max();
            let needed = ProbeMode::sufficient_wait(slowest.unwrap_or_default());
            let full = found.as_ref().ok().zip(full_bad.as_ref());
            let full =
                full.and_then(|((baseline, _), bad)| baseline.full_outcomes(&full_good, bad));
            // The bad side answers late, and the wait may have been too short for the answer.
            if needed > max_wait && full.is_none() {
                max_wait = needed;
                self.discarded = self.finished.len();
                continue;
            }
            let (baseline, found) = found?;
            probe.clone_from(&baseline.symptom.probe);
            let narrowed = found.narrowed.clone();
            if self.verify(&baseline, found, full.as_ref()).await? {
                return Ok((baseline, narrowed));
            }
            max_wait *= WAIT_FACTOR;
            self.discarded = self.finished.len();
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
        let started = found.verification.filter(|(started, _)| *started == mode);
        let started = started.map(|(_, trial)| trial);
        let broken = (self.mask(&breaks, true), TrialClass::Bad, started);
        let fixed = (self.mask(&fixes, false), TrialClass::Good, None);
        let mut trials = Vec::new();
        for (chosen, expected, started) in [fixed, broken] {
            // Both sides themselves already ran with the full maximum wait.
            if chosen.iter().all(|is_bad| *is_bad) || !chosen.iter().any(|there| *there) {
                continue;
            }
            let trial =
                started.unwrap_or_else(|| self.start_trial(&chosen, &baseline.probe, mode, None));
            trials.push((chosen, expected, trial));
        }
        for (chosen, wanted, trial) in trials {
            let classify = |tally: &_| match full {
                Some(slow) => slow.classify(&baseline.symptom, tally),
                None => baseline.symptom.classify(tally),
            };
            let result = trial.finish().await?;
            if self.record(
                &chosen,
                result,
                Purpose::Verification,
                classify,
                &baseline.probe,
            ) != wanted
            {
                return Ok(false);
            }
        }
        Ok(true)
    }
}
