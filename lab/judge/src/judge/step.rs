//! Compares the traffic shifts after steps with expectations.

use std::time::Duration;

use crate::judge::Judge;
use crate::judge::traffic_shift::{StepContext, TrafficShift};
use svclab_model::evidence::{Attempt, Evidence};
use svclab_model::plan::Probe;
use svclab_scenario::expectation::Expected;

/// Result of a step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StepOutcome {
    /// Name of the step in the lab.
    pub name: String,
    /// Duration in microseconds until all programs had applied the change. For rules that svclab
    /// generates, the time that svclab needed; otherwise the time that real kube-proxies needed.
    pub applied_us: u64,
    /// Traffic shifts of the probes that the step affects.
    pub shifts: Vec<TrafficShift>,
    /// Maximum delay of the traffic shifts; `None` if the lab states none.
    pub within: Option<Duration>,
}

impl StepOutcome {
    /// Whether the expectation is met. Without traffic shifts, an expectation is not met.
    #[must_use]
    pub fn holds(&self) -> bool {
        let is_in_time = |within| self.shift_delay().is_some_and(|delay| delay <= within);
        self.within.is_none_or(is_in_time)
    }

    /// Returns the delay until the traffic of all probes had shifted. `None` if no traffic shifted.
    #[must_use]
    pub fn shift_delay(&self) -> Option<Duration> {
        let delays = self.shifts.iter().map(|shift| shift.delay_us);
        delays.max().map(Duration::from_micros)
    }
}

impl<'a> Judge<'a> {
    /// Returns the traffic shifts after each step, with the expectations.
    pub(super) fn check_steps(&self, expected: &Expected, evidence: &Evidence) -> Vec<StepOutcome> {
        let stages = std::iter::once(&self.case.initial).chain(&self.case.later_stages);
        let mut outcomes = Vec::new();
        for (index, (before, after)) in stages.zip(&self.case.later_stages).enumerate() {
            let step = self.case.spec.steps.get(index);
            let within = step.and_then(|step| Some(expected.steps.get(&step.name)?.within));
            let Some(step_evidence) = evidence.steps.get(index) else {
                // Without evidence of the step, its expectation is not met.
                outcomes.extend(step.filter(|_| within.is_some()).map(|step| StepOutcome {
                    name: step.name.clone(),
                    applied_us: 0,
                    shifts: Vec::new(),
                    within,
                }));
                continue;
            };
            let earlier = self.attempts_before(index, evidence);
            let clusters = (before.cluster, after.cluster);
            let change = StepContext::new(clusters, after.plan, earlier, step_evidence);
            let probes = self.plan.steps.get(index).map(|step| &step.probes);
            let applied = step_evidence
                .applied_at
                .saturating_sub(step_evidence.changed_at);
            outcomes.push(StepOutcome {
                name: step_evidence.name.clone(),
                applied_us: applied / 1000,
                shifts: probes
                    .into_iter()
                    .flatten()
                    .filter_map(|probe| change.traffic_shift(probe))
                    .collect(),
                within,
            });
        }
        outcomes
    }

    /// Returns the attempts before a step, each with its probe.
    fn attempts_before<'e>(
        &self,
        index: usize,
        evidence: &'e Evidence,
    ) -> Vec<(&'e Probe, &'e Attempt)>
    where
        'a: 'e,
    {
        let first = std::iter::once((&self.plan.probes, &evidence.attempts));
        let steps = self.plan.steps.iter().zip(&evidence.steps).take(index);
        let later = steps.map(|(step, seen)| (&step.probes, &seen.evidence.attempts));
        let opened = self.plan.steps.iter().map(|step| &step.open);
        let stages = first.chain(later).zip(opened);
        stages
            .flat_map(|((probes, attempts), open)| {
                attempts.iter().filter_map(move |attempt| {
                    let mut candidates = probes.iter().chain(open);
                    let probe = candidates.find(|probe| probe.name == attempt.probe)?;
                    Some((probe, attempt))
                })
            })
            .collect()
    }
}
