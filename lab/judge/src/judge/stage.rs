//! Compares the probes of each stage, and the traffic shifts after its step, with expectations.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::Duration;

use crate::judge::Judge;
use crate::judge::probe::{self, ProbeOutcome};
use crate::judge::traffic_shift::{ProbeShift, StepContext, TrafficShift};
use svclab_model::evidence::{Attempt, Evidence};
use svclab_model::plan::{Lifetime, Probe};
use svclab_scenario::expectation::{Expected, ProbeExpectation};
use svclab_scenario::lab;

/// Result of a stage.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct StageOutcome {
    /// Result of the step that leads to the stage. `None` for the first stage.
    pub step: Option<StepOutcome>,
    /// Results of the probes that the lab declares for the stage.
    pub probes: Vec<ProbeOutcome>,
}

/// Result of a step.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct StepOutcome {
    /// Name of the step in the lab.
    pub name: String,
    /// Duration in microseconds until all programs had applied the change. For rules that svclab
    /// generates, the time that svclab needed; otherwise the time that real kube-proxies needed.
    pub applied_us: u64,
    /// Traffic shifts of the probes that the step affects.
    pub shifts: Vec<TrafficShift>,
    /// Names of the probes whose last result was possible only before the step.
    pub unmoved: Vec<String>,
    /// Number of packets since the change that were not captured. Without them, a later shift may
    /// be unknown.
    pub packets_missed: u64,
    /// Maximum delay of the traffic shifts; `None` if the lab states none.
    pub within: Option<Duration>,
}

impl StepOutcome {
    /// Whether the expectation is met. Without traffic shifts, with traffic that did not shift, or
    /// with packets that were not captured, an expectation is not met.
    #[must_use]
    pub fn holds(&self) -> bool {
        let is_in_time = |within| self.shift_delay().is_some_and(|delay| delay <= within);
        let has_all_shifts = self.unmoved.is_empty() && self.packets_missed == 0;
        self.within
            .is_none_or(|within| has_all_shifts && is_in_time(within))
    }

    /// Returns the delay until the traffic of all probes had shifted. `None` if no traffic shifted.
    #[must_use]
    pub fn shift_delay(&self) -> Option<Duration> {
        let delays = self.shifts.iter().map(|shift| shift.delay_us);
        delays.max().map(Duration::from_micros)
    }
}

impl Judge<'_> {
    /// Returns the results of each stage.
    pub(super) fn check_stages(
        &self,
        expected: &Expected,
        evidence: &Evidence,
    ) -> Vec<StageOutcome> {
        let stages = self.case.spec.probes_by_stage().enumerate();
        stages
            .map(|(stage, probes)| StageOutcome {
                step: self.check_step(stage, expected, evidence),
                probes: probes
                    .iter()
                    .map(|(name, probe)| {
                        let expected = expected.probes.get(name);
                        self.check_probe((name, probe), stage, expected, evidence)
                    })
                    .collect(),
            })
            .collect()
    }

    /// Returns the traffic shifts after the step of a stage. `None` without a step, or if evidence
    /// of the step is neither present nor expected.
    fn check_step(
        &self,
        stage: usize,
        expected: &Expected,
        evidence: &Evidence,
    ) -> Option<StepOutcome> {
        let before = stage.checked_sub(1)?;
        let step = self.case.spec.steps.get(before)?;
        let within = expected.steps.get(&step.name).map(|step| step.within);
        let mut outcome = StepOutcome {
            name: step.name.clone(),
            within,
            ..StepOutcome::default()
        };
        let seen = evidence.stages.get(stage);
        let Some((seen, step)) = seen.and_then(|seen| Some((seen, seen.step.as_ref()?))) else {
            // Without evidence of the step, its expectation is not met.
            return within.is_some().then_some(outcome);
        };
        let [before, after] = [before, stage].map(|stage| self.case.stages[stage]);
        let clusters = (before.cluster, after.cluster);
        let earlier = self.attempts_before(stage, evidence);
        let change = StepContext::new(clusters, after.plan, earlier, seen, step);
        outcome.applied_us = step.applied_at.saturating_sub(step.changed_at) / 1000;
        let planned = self.case.plan.stages.get(stage);
        let probes = planned.map(|planned| planned.probes_with(Lifetime::Stage));
        for probe in probes.into_iter().flatten() {
            match change.traffic_shift(probe) {
                ProbeShift::Unaffected => {}
                ProbeShift::Moved(shift) => outcome.shifts.push(shift),
                ProbeShift::NotMoved => outcome.unmoved.push(probe.name.clone()),
            }
        }
        outcome.packets_missed = step.packets_missed.saturating_add(seen.packets_missed);
        Some(outcome)
    }

    /// Returns the attempts on new connections before a stage, each with its probe.
    fn attempts_before<'e>(
        &'e self,
        stage: usize,
        evidence: &'e Evidence,
    ) -> Vec<(&'e Probe, &'e Attempt)> {
        let stages = self.case.plan.stages.iter().zip(&evidence.stages);
        stages
            .take(stage)
            .flat_map(|(planned, seen)| {
                seen.attempts.iter().filter_map(|attempt| {
                    let mut probes = planned.probes.iter();
                    let probe = probes.find(|probe| probe.name == attempt.probe)?;
                    (probe.lifetime != Lifetime::Reused).then_some((probe, attempt))
                })
            })
            .collect()
    }

    /// Compares the attempts of a probe with an expectation. A probe whose connections stay open
    /// across a step is judged by its attempts after the step.
    fn check_probe(
        &self,
        (name, probe): (&String, &lab::Probe),
        declared_in: usize,
        expected: Option<&ProbeExpectation>,
        evidence: &Evidence,
    ) -> ProbeOutcome {
        let stage = self.case.plan.stage_of(name).unwrap_or(declared_in);
        let seen = evidence.stages.get(stage);
        let attempts = seen.map_or(&[][..], |seen| &seen.attempts);
        let book = &self.address_books[stage];
        let (mut observed, sources) = probe::summarize(attempts, name, book);
        if expected.is_none_or(|expected| expected.source_port.is_none()) {
            observed.source_ports.clear();
        }
        let addresses_of = |names: Vec<&str>| -> Vec<BTreeSet<IpAddr>> {
            let names = names.into_iter();
            names
                .map(|name| self.addresses(name).unwrap_or_default())
                .collect()
        };
        let source_groups = expected
            .and_then(ProbeExpectation::sources)
            .map(addresses_of);
        let holds = expected.is_none_or(|expected| {
            probe::meets_expectation(expected, &observed, &sources, source_groups.as_deref())
        });
        let step = stage.checked_sub(1);
        let step = step.and_then(|step| self.case.spec.steps.get(step));
        ProbeOutcome {
            name: name.to_owned(),
            from: probe.from.clone(),
            to: probe.to.clone(),
            step: step.map(|step| step.name.clone()),
            expected: expected.cloned(),
            observed,
            holds,
        }
    }
}
