//! State of a running bisection: its input, labs and finished trials.

use std::sync::Arc;
use std::time::Duration;

use indexmap::IndexMap;

use super::probe_mode::ProbeMode;
use super::running_trial::{RunningTrial, TrialResult};
use crate::bench::{AgentSource, Bench, LabChoice, LabOrigin, SlowNotice, TrialRequest};
use crate::bisect::document::{Purpose, Trial};
use crate::bisect::error::BisectError;
use crate::bisect::narrow::{DifferenceMask, TrialClass};
use crate::bisect::{Pair, Task};
use crate::trial::{OutcomeCount, Tally, tallies_of_plan};
use svclab_model::evidence::Evidence;
use svclab_model::plan::{EvidenceRequest, Plan, Probe, Stage};

pub(super) struct BisectionRun<'t, F> {
    pub(super) task: &'t Task,
    pub(super) pair: Pair,
    /// Probes that both sides have.
    pub(super) probes: Vec<Probe>,
    pub(super) bench: Arc<Bench>,
    pub(super) agents: AgentSource,
    /// Finished trials, in the order in which they ended.
    pub(super) finished: Vec<Trial>,
    /// Number of finished trials that do not count, because the search was repeated after them.
    pub(super) discarded: usize,
    /// Callback for each finished trial.
    pub(super) on_trial: &'t mut F,
}

/// Result of the probes of a trial.
pub(super) struct Observation {
    /// Outcomes of each probe.
    pub(super) tallies: IndexMap<String, Tally>,
    pub(super) slowest_answer: Duration,
}

impl<F: FnMut(&Trial)> BisectionRun<'_, F> {
    /// Returns the selection in which the differences of `set`, and no others, have the value
    /// `there`.
    pub(super) fn mask(&self, set: &[usize], there: bool) -> DifferenceMask {
        let indices = 0..self.pair.len();
        indices.map(|index| set.contains(&index) == there).collect()
    }

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
        let probes = probes.iter().map(|probe| mode.apply(probe)).collect();
        let plan = Plan {
            stages: vec![Stage::new(probes)],
            evidence: EvidenceRequest::default(),
            ..self.pair.plan(mask)
        };
        let trial = TrialRequest {
            case: String::new(),
            plan,
            lab,
            notice,
        };
        RunningTrial::start(&self.bench, &self.agents, trial)
    }

    pub(super) async fn finish_baseline(
        &mut self,
        good: bool,
        trial: RunningTrial,
    ) -> Result<Observation, BisectError> {
        let (class, as_bad, name) = if good {
            (TrialClass::Good, 0, &self.task.good_name)
        } else {
            (TrialClass::Bad, self.pair.len(), &self.task.bad_name)
        };
        let (observation, lab_origin) = match trial.finish().await? {
            TrialResult::Finished(evidence, origin) => (self.observe(&evidence), origin),
            TrialResult::Refused(why) => {
                let name = name.clone();
                return Err(BisectError::BuildFailed { name, why });
            }
            TrialResult::NotProbed(failure, _) => {
                return Err(BisectError::NotProbed {
                    name: name.clone(),
                    failure,
                });
            }
        };
        self.push_trial(Trial {
            purpose: Purpose::Baseline,
            as_bad,
            differences: self.pair.len(),
            lab_origin,
            outcomes: match self.probes.as_slice() {
                [probe] => observation.outcome_counts(&probe.name),
                _ => Vec::new(),
            },
            class,
            refused: None,
        });
        Ok(observation)
    }

    /// Starts a trial of a selection. A narrowing trial has a notice and may use any lab. A
    /// verification has none and uses a newly built lab.
    pub(super) fn start_trial(
        &self,
        mask: &DifferenceMask,
        probe: &Probe,
        mode: ProbeMode,
        notice: Option<SlowNotice>,
    ) -> RunningTrial {
        let lab = match notice {
            Some(_) => LabChoice::Any,
            None => LabChoice::New,
        };
        self.start(mask, std::slice::from_ref(probe), mode, lab, notice)
    }

    /// Records a trial's result and returns its classification.
    pub(super) fn record(
        &mut self,
        mask: &DifferenceMask,
        result: TrialResult,
        purpose: Purpose,
        classify: impl FnOnce(&Tally) -> TrialClass,
        probe: &Probe,
    ) -> TrialClass {
        let mut trial = Trial {
            purpose,
            as_bad: mask.iter().filter(|is_bad| **is_bad).count(),
            differences: self.pair.len(),
            lab_origin: LabOrigin::Refused,
            outcomes: Vec::new(),
            class: TrialClass::Neither,
            refused: None,
        };
        match result {
            TrialResult::Finished(evidence, origin) => {
                let observation = self.observe(&evidence);
                trial.lab_origin = origin;
                trial.outcomes = observation.outcome_counts(&probe.name);
                if let Some(tally) = observation.tallies.get(&probe.name) {
                    trial.class = classify(tally);
                }
            }
            TrialResult::Refused(why) => trial.refused = Some(why),
            TrialResult::NotProbed(failure, origin) => {
                trial.lab_origin = origin;
                trial.refused = Some(failure.message);
            }
        }
        let class = trial.class;
        self.push_trial(trial);
        class
    }

    fn observe(&self, evidence: &Evidence) -> Observation {
        let attempts = evidence.attempts();
        let answered = attempts.filter(|attempt| !attempt.verdict.is_unanswered());
        let slowest = answered.map(|attempt| attempt.duration).max();
        Observation {
            tallies: tallies_of_plan(&self.task.good, evidence),
            slowest_answer: slowest.unwrap_or_default(),
        }
    }

    fn push_trial(&mut self, trial: Trial) {
        (self.on_trial)(&trial);
        self.finished.push(trial);
    }
}

impl Observation {
    pub(super) fn outcome_counts(&self, probe: &str) -> Vec<OutcomeCount> {
        let tally = self.tallies.get(probe);
        tally.map_or_else(Vec::new, Tally::to_outcome_counts)
    }
}
