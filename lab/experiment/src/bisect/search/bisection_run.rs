//! State of a running bisection: its input, labs and finished trials.

use std::sync::Arc;

use indexmap::IndexMap;

use super::baseline::Baseline;
use super::probe_mode::ProbeMode;
use super::running_trial::{RunningTrial, TrialResult};
use crate::bench::{self, Bench, Kernel, LabChoice, LabOrigin, SlowNotice};
use crate::bisect::document::{Purpose, Trial};
use crate::bisect::error::BisectError;
use crate::bisect::narrow::{DifferenceMask, TrialClass};
use crate::bisect::{Pair, Task};
use crate::trial::{OutcomeCount, Tally, tallies_of_plan};
use svclab_model::evidence::Evidence;
use svclab_model::plan::{EvidenceRequest, Plan, Probe};

/// Running bisection.
pub(super) struct BisectionRun<'t, F> {
    pub(super) task: &'t Task,
    pub(super) pair: Pair,
    /// Probes that both sides have.
    pub(super) probes: Vec<Probe>,
    pub(super) bench: Arc<Bench>,
    pub(super) kernel: Kernel,
    /// Finished trials, in the order in which they ended.
    pub(super) finished: Vec<Trial>,
    /// Callback for each finished trial, with the total number of differences.
    pub(super) on_trial: &'t mut F,
}

impl<F: FnMut(&Trial, usize)> BisectionRun<'_, F> {
    /// Returns the selection in which the differences of `set`, and no others, have the value
    /// `there`.
    pub(super) fn mask(&self, set: &[usize], there: bool) -> DifferenceMask {
        let indices = 0..self.pair.len();
        indices.map(|index| set.contains(&index) == there).collect()
    }

    /// Starts a trial of the good or bad side.
    pub(super) fn start_baseline(&self, good: bool, mode: ProbeMode) -> RunningTrial {
        let lab = match mode {
            ProbeMode::Full => LabChoice::New,
            ProbeMode::Quick { .. } => LabChoice::Any,
        };
        self.start(&self.mask(&[], good), &self.probes, mode, lab, None)
    }

    fn start(
        &self,
        mask: &DifferenceMask,
        probes: &[Probe],
        mode: ProbeMode,
        lab: LabChoice,
        notice: Option<SlowNotice>,
    ) -> RunningTrial {
        let plan = Plan {
            probes: probes.iter().map(|probe| mode.apply(probe)).collect(),
            evidence: EvidenceRequest::default(),
            ..self.pair.plan(mask)
        };
        let case = String::new();
        RunningTrial::start(
            &self.bench,
            &self.kernel,
            bench::Trial {
                case,
                plan,
                lab,
                notice,
            },
        )
    }

    /// Waits for the trial of a side.
    pub(super) async fn finish_baseline(
        &mut self,
        good: bool,
        trial: RunningTrial,
    ) -> Result<Evidence, BisectError> {
        match trial.finish().await? {
            TrialResult::Finished(evidence, reached) => {
                let tallies = self.tallies(&evidence);
                let outcomes = match self.probes.as_slice() {
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

    /// Starts a trial of a selection. A narrowing trial has a notice and may use any lab. A
    /// verification has none and uses a newly built lab.
    pub(super) fn start_trial(
        &self,
        mask: &DifferenceMask,
        baseline: &Baseline,
        mode: ProbeMode,
        notice: Option<SlowNotice>,
    ) -> RunningTrial {
        let lab = match notice {
            Some(_) => LabChoice::Any,
            None => LabChoice::New,
        };
        let probes = std::slice::from_ref(&baseline.probe);
        self.start(mask, probes, mode, lab, notice)
    }

    /// Records a trial's result and returns its classification.
    pub(super) fn record(
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
    pub(super) fn tallies(&self, evidence: &Evidence) -> IndexMap<String, Tally> {
        tallies_of_plan(&self.task.good, evidence)
    }

    fn push_trial(&mut self, trial: Trial) {
        (self.on_trial)(&trial, self.pair.len());
        self.finished.push(trial);
    }
}

pub(super) fn outcome_counts(tally: Option<&Tally>) -> Vec<OutcomeCount> {
    tally.map_or_else(Vec::new, Tally::to_outcome_counts)
}
