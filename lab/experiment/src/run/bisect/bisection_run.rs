//! State of a running bisection: its input, labs and finished trials.

use indexmap::IndexMap;

use super::baseline::Baseline;
use super::error::BisectError;
use super::lab_pool::{LabPool, RunningTrial};
use super::task::Task;
use super::trial_lab::{ProbeMode, SlowNotice, TrialRequest, TrialResult, tallies};
use crate::bisect::document::{LabOrigin, Purpose, Trial};
use crate::bisect::{DifferenceMask, Pair, TrialClass};
use crate::verify::{OutcomeCount, Tally};
use svclab_model::evidence::Evidence;
use svclab_model::plan::Probe;

/// Running bisection.
pub struct BisectionRun<'t, F> {
    pub task: &'t Task,
    pub pair: Pair,
    /// Probes that both sides have.
    pub probes: Vec<Probe>,
    pub labs: LabPool,
    /// Finished trials, in the order in which they ended.
    pub finished: Vec<Trial>,
    /// Callback for each finished trial, with the total number of differences.
    pub on_trial: &'t mut F,
}

impl<F: FnMut(&Trial, usize)> BisectionRun<'_, F> {
    /// Returns the selection in which the differences of `set`, and no others, have the value
    /// `there`.
    pub fn mask(&self, set: &[usize], there: bool) -> DifferenceMask {
        let indices = 0..self.pair.len();
        indices.map(|index| set.contains(&index) == there).collect()
    }

    /// Starts a trial of the good or bad side.
    pub fn start_baseline(&self, good: bool, probes: &[Probe], mode: ProbeMode) -> RunningTrial {
        let request = TrialRequest {
            plan: self.pair.plan(&self.mask(&[], good)),
            probes: probes.to_vec(),
            mode,
            new_lab: mode == ProbeMode::Full,
        };
        self.labs.start(request, None)
    }

    /// Waits for the trial of a side.
    ///
    /// # Errors
    ///
    /// Returns an error if the side cannot be built, or if the agent is lost.
    pub async fn finish_baseline(
        &mut self,
        good: bool,
        probes: &[Probe],
        trial: RunningTrial,
    ) -> Result<Evidence, BisectError> {
        match trial.finish().await? {
            TrialResult::Finished(evidence, reached) => {
                let tallies = self.tallies(&evidence);
                let outcomes = match probes {
                    [probe] => outcome_counts(tallies.get(&probe.name)),
                    _ => Vec::new(),
                };
                self.push_trial(Trial {
                    purpose: Purpose::Baseline,
                    as_bad: if good { 0 } else { self.pair.len() },
                    lab_origin: reached,
                    outcomes,
                    class: if good {
                        TrialClass::Good
                    } else {
                        TrialClass::Bad
                    },
                    refused: None,
                });
                Ok(*evidence)
            }
            TrialResult::Refused(why) => {
                let name = if good {
                    &self.task.good_name
                } else {
                    &self.task.bad_name
                };
                Err(BisectError::BuildFailed {
                    name: name.clone(),
                    why,
                })
            }
        }
    }

    /// Starts a trial of a selection. A narrowing trial has `doubt` and may use any lab. A
    /// verification has none and uses a newly built lab.
    pub fn start_trial(
        &self,
        mask: &DifferenceMask,
        baseline: &Baseline,
        mode: ProbeMode,
        doubt: Option<SlowNotice>,
    ) -> RunningTrial {
        let request = TrialRequest {
            plan: self.pair.plan(mask),
            probes: vec![baseline.probe.clone()],
            mode,
            new_lab: doubt.is_none(),
        };
        self.labs.start(request, doubt)
    }

    /// Records a trial's result and returns its classification.
    pub fn record(
        &mut self,
        mask: &DifferenceMask,
        result: TrialResult,
        purpose: Purpose,
        classify: impl FnOnce(&Tally) -> TrialClass,
        baseline: &Baseline,
    ) -> TrialClass {
        let as_bad = mask.iter().filter(|is_bad| **is_bad).count();
        let trial = match result {
            TrialResult::Finished(evidence, reached) => {
                let tallies = self.tallies(&evidence);
                let tally = tallies.get(&baseline.probe.name);
                Trial {
                    purpose,
                    as_bad,
                    lab_origin: reached,
                    outcomes: outcome_counts(tally),
                    class: tally.map_or(TrialClass::Neither, classify),
                    refused: None,
                }
            }
            TrialResult::Refused(why) => Trial {
                purpose,
                as_bad,
                lab_origin: LabOrigin::Refused,
                outcomes: Vec::new(),
                class: TrialClass::Neither,
                refused: Some(why),
            },
        };
        let class = trial.class;
        self.push_trial(trial);
        class
    }

    /// Counts the outcomes of each probe.
    pub fn tallies(&self, evidence: &Evidence) -> IndexMap<String, Tally> {
        tallies(&self.task.good, evidence)
    }

    fn push_trial(&mut self, trial: Trial) {
        (self.on_trial)(&trial, self.pair.len());
        self.finished.push(trial);
    }
}

/// Returns the outcomes of a probe with their numbers of connections.
pub fn outcome_counts(tally: Option<&Tally>) -> Vec<OutcomeCount> {
    let outcomes = tally.into_iter().flat_map(Tally::iter);
    let counts = outcomes.map(|(outcome, connections)| OutcomeCount {
        outcome: outcome.clone(),
        connections,
    });
    counts.collect()
}
