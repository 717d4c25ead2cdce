//! Runs the good and the bad side, and finds the symptom that separates them.

use std::collections::BTreeSet;
use std::time::Duration;

use indexmap::IndexMap;

use super::bisection_run::{BisectionRun, outcome_counts};
use super::probe_mode::ProbeMode;
use crate::bisect::document::{SymptomReport, Trial};
use crate::bisect::error::{BisectError, describe_count};
use crate::bisect::narrow::TrialClass;
use crate::bisect::symptom::{Indistinguishable, MAX_CONNECTIONS, OutcomeDetail, Symptom};
use crate::trial::{ConnectionOutcome, Tally};
use svclab_model::plan::Probe;

/// Initial number of connections per probe on each side.
const INITIAL_CONNECTIONS: u32 = 64;

/// Symptom of good and bad, and how trials observe it.
pub(super) struct Baseline {
    pub(super) symptom: Symptom,
    pub(super) probe: Probe,
    pub(super) report: SymptomReport,
    /// Maximum wait of each connection of a trial.
    pub(super) max_wait: Duration,
}

/// Outcomes with the full maximum wait, for symptoms without randomness.
pub(super) struct FullOutcomes {
    good: BTreeSet<ConnectionOutcome>,
}

impl Baseline {
    /// Returns the probe mode of narrowing trials.
    pub(super) fn probe_mode(&self) -> ProbeMode {
        ProbeMode::Quick {
            connections: self.symptom.connections,
            max_wait: self.max_wait,
        }
    }

    /// Returns the outcomes with the full maximum wait, or `None` if they do not separate good from
    /// bad.
    pub(super) fn full_outcomes(
        &self,
        good: Option<&Tally>,
        bad: Option<&Tally>,
    ) -> Option<FullOutcomes> {
        let [good, bad] = [good, bad].map(|tally| {
            tally
                .map(|tally| reduced_outcomes(&self.symptom, tally))
                .unwrap_or_default()
        });
        (self.symptom.is_deterministic && good.is_disjoint(&bad)).then_some(FullOutcomes { good })
    }
}

impl FullOutcomes {
    /// Classifies a trial with the full maximum wait.
    pub(super) fn classify(&self, symptom: &Symptom, tally: &Tally) -> TrialClass {
        let observed = reduced_outcomes(symptom, tally);
        // If good is the side without answers, timeout and unreachable are equivalent.
        if observed.is_subset(&self.good) || observed.is_subset(&symptom.good_outcomes) {
            TrialClass::Good
        } else if observed.is_disjoint(&self.good) {
            TrialClass::Bad
        } else {
            TrialClass::Neither
        }
    }
}

/// Returns the outcomes of a tally, reduced to the part that counts.
fn reduced_outcomes(symptom: &Symptom, tally: &Tally) -> BTreeSet<ConnectionOutcome> {
    tally
        .iter()
        .map(|(outcome, _)| symptom.level.reduce(outcome))
        .collect()
}

impl<F: FnMut(&Trial, usize)> BisectionRun<'_, F> {
    /// Runs both sides with this maximum wait until their results can be separated.
    pub(super) async fn distinguish(
        &mut self,
        max_wait: Duration,
    ) -> Result<Baseline, BisectError> {
        let probes = self.probes.clone();
        let mut connections = INITIAL_CONNECTIONS;
        loop {
            let mode = ProbeMode::Quick {
                connections,
                max_wait,
            };
            let trial = self.start_baseline(true, mode);
            let good_tallies = self.finish_baseline(true, trial).await?;
            let good_tallies = self.tallies(&good_tallies);
            let trial = self.start_baseline(false, mode);
            let bad_tallies = self.finish_baseline(false, trial).await?;
            let bad_tallies = self.tallies(&bad_tallies);
            let mut symptoms: Vec<Symptom> = Vec::new();
            let mut worst = Indistinguishable::Same;
            for probe in &probes {
                let empty = Tally::default();
                let tally_in = |tallies: &IndexMap<String, Tally>| {
                    tallies.get(&probe.name).unwrap_or(&empty).clone()
                };
                match Symptom::from_tallies(
                    &probe.name,
                    &tally_in(&good_tallies),
                    &tally_in(&bad_tallies),
                    self.pair.len(),
                    connections >= MAX_CONNECTIONS,
                ) {
                    Ok(symptom) => symptoms.push(symptom),
                    Err(Indistinguishable::Same) => {}
                    Err(faint) => worst = faint,
                }
            }
            symptoms.sort_by_key(|symptom| (symptom.level, symptom.connections));
            // Verdicts have priority over endpoints and sources, as soon as they can be separated.
            let enough = worst == Indistinguishable::Same
                || connections >= MAX_CONNECTIONS
                || symptoms
                    .first()
                    .is_some_and(|first| first.level == OutcomeDetail::Verdict);
            let mut ranked = symptoms.into_iter().filter(|_| enough);
            if let Some(symptom) = ranked.next()
                && let Some(probe) = probes.iter().find(|probe| probe.name == symptom.probe)
            {
                let counts =
                    |tallies: &IndexMap<String, Tally>| outcome_counts(tallies.get(&symptom.probe));
                let report = SymptomReport {
                    probe: symptom.probe.clone(),
                    from: probe.namespace.clone(),
                    to: destination(probe),
                    detail: symptom.level,
                    good: counts(&good_tallies),
                    bad: counts(&bad_tallies),
                    other_probes: ranked.map(|symptom| symptom.probe).collect(),
                };
                return Ok(Baseline {
                    probe: probe.clone(),
                    symptom,
                    report,
                    max_wait,
                });
            }
            if worst == Indistinguishable::Same || connections >= MAX_CONNECTIONS {
                return Err(BisectError::Indistinguishable {
                    reason: worst,
                    good: self.task.good_name.clone(),
                    bad: self.task.bad_name.clone(),
                    differences: describe_count(self.pair.len()),
                    outcomes: describe_outcomes(&good_tallies),
                });
            }
            connections *= 2;
        }
    }
}

fn destination(probe: &Probe) -> String {
    match probe.target.port {
        0 => probe.target.address.to_string(),
        _ => probe.target.socket().to_string(),
    }
}

fn describe_outcomes(tallies: &IndexMap<String, Tally>) -> String {
    let each = tallies.iter().map(|(probe, tally)| {
        let outcomes: Vec<String> = tally
            .iter()
            .map(|(outcome, _)| outcome.to_string())
            .collect();
        format!("{probe} {}", outcomes.join(" or "))
    });
    each.collect::<Vec<_>>().join(", ")
}
