//! Runs the good and the bad side, and finds the symptom that separates them.

use std::collections::BTreeSet;
use std::time::Duration;

use super::bisection_run::{BisectionRun, Observation};
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
    /// Whether other probes seem to differ, but need more connections for proof.
    pub(super) is_undecided: bool,
    /// Maximum wait of each connection of a trial.
    pub(super) max_wait: Duration,
}

/// Both sides, run with a number of connections.
struct Round {
    mode: ProbeMode,
    good: Observation,
    bad: Observation,
}

/// Outcomes with the full maximum wait, for symptoms without randomness.
pub(super) struct FullOutcomes {
    good: BTreeSet<ConnectionOutcome>,
}

impl Baseline {
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
        good: &Observation,
        bad: &Observation,
    ) -> Option<FullOutcomes> {
        let [good, bad] = [good, bad].map(|observation| {
            let tally = observation.tallies.get(&self.symptom.probe);
            tally.map_or_else(BTreeSet::new, |tally| {
                reduced_outcomes(&self.symptom, tally)
            })
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

fn reduced_outcomes(symptom: &Symptom, tally: &Tally) -> BTreeSet<ConnectionOutcome> {
    symptom.level.reduce(tally).into_keys().collect()
}

impl<F: FnMut(&Trial)> BisectionRun<'_, F> {
    /// Whether the bad side has the symptom whichever endpoint a probe draws.
    async fn is_certain(
        &mut self,
        symptom: &Symptom,
        mode: ProbeMode,
    ) -> Result<bool, BisectError> {
        let draws = self.task.draws.get(&symptom.probe).copied();
        for _ in 1..draws.unwrap_or(1) {
            let trial = self.start_baseline(false, mode);
            let again = self.finish_baseline(false, trial).await?;
            let tally = again.tallies.get(&symptom.probe);
            if tally.is_none_or(|tally| symptom.classify(tally) != TrialClass::Bad) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Runs both sides with this maximum wait until their results can be separated.
    pub(super) async fn distinguish(
        &mut self,
        max_wait: Duration,
    ) -> Result<Baseline, BisectError> {
        let mut connections = INITIAL_CONNECTIONS;
        let mut rounds: Vec<Round> = Vec::new();
        loop {
            let mode = ProbeMode::Quick {
                connections,
                max_wait,
            };
            let trial = self.start_baseline(true, mode);
            let good = self.finish_baseline(true, trial).await?;
            let trial = self.start_baseline(false, mode);
            let bad = self.finish_baseline(false, trial).await?;
            let round = Round { mode, good, bad };
            if rounds.last().is_some_and(|last| round.has_new_losses(last))
                && let Some(baseline) = self.use_earlier(&mut rounds, max_wait).await?
            {
                return Ok(baseline);
            }
            let is_last = connections >= MAX_CONNECTIONS;
            let (symptoms, worst) = self.symptoms(&round, is_last);
            // Verdicts have priority over endpoints and sources, as soon as they can be separated.
            let best = symptoms.first().map(|symptom| symptom.level);
            let is_final = worst == Indistinguishable::Same || is_last;
            let is_enough = is_final || best == Some(OutcomeDetail::Verdict);
            let mut drawn = Vec::new();
            if is_enough {
                match self.usable(&round, symptoms, &worst, max_wait).await? {
                    Ok(baseline) => return Ok(baseline),
                    Err(probes) => drawn = probes,
                }
            }
            if is_final {
                if let Some(baseline) = self.use_earlier(&mut rounds, max_wait).await? {
                    return Ok(baseline);
                }
                return Err(BisectError::Indistinguishable {
                    reason: worst,
                    good: self.task.good_name.clone(),
                    bad: self.task.bad_name.clone(),
                    differences: describe_count(self.pair.len()),
                    outcomes: describe_outcomes(&round.good, &drawn),
                    unexamined: Box::new(self.task.unexamined.clone()),
                });
            }
            rounds.push(round);
            connections *= 2;
        }
    }

    /// Returns the baseline that an earlier round gives without more connections. On a busy machine,
    /// many connections are lost on both sides, and fewer show more.
    async fn use_earlier(
        &mut self,
        rounds: &mut Vec<Round>,
        max_wait: Duration,
    ) -> Result<Option<Baseline>, BisectError> {
        // A round is examined once: this may take trials.
        while let Some(round) = rounds.pop() {
            let (symptoms, worst) = self.symptoms(&round, true);
            if let Ok(baseline) = self.usable(&round, symptoms, &worst, max_wait).await? {
                return Ok(Some(baseline));
            }
        }
        Ok(None)
    }

    /// Returns the symptoms of all probes, the best first, and why others have none. With `last`,
    /// more connections are no option.
    fn symptoms(&self, round: &Round, last: bool) -> (Vec<Symptom>, Indistinguishable) {
        let mut symptoms: Vec<Symptom> = Vec::new();
        let mut worst = Indistinguishable::Same;
        let empty = Tally::default();
        for Probe { name, .. } in &self.probes {
            let [good, bad] =
                [&round.good, &round.bad].map(|side| side.tallies.get(name).unwrap_or(&empty));
            let affinity = self.task.draws.contains_key(name);
            match Symptom::from_tallies(name, good, bad, self.pair.len(), affinity, last) {
                Ok(symptom) => symptoms.push(symptom),
                Err(Indistinguishable::Same) => {}
                Err(faint) => worst = faint,
            }
        }
        symptoms.sort_by_key(|symptom| (symptom.level, symptom.connections));
        (symptoms, worst)
    }

    /// Returns the baseline of the first symptom that does not depend on the endpoint that a probe
    /// draws, else the probes whose symptoms do.
    async fn usable(
        &mut self,
        round: &Round,
        symptoms: Vec<Symptom>,
        worst: &Indistinguishable,
        max_wait: Duration,
    ) -> Result<Result<Baseline, Vec<String>>, BisectError> {
        let mut drawn = Vec::new();
        for symptom in &symptoms {
            if !self.is_certain(symptom, round.mode).await? {
                drawn.push(symptom.probe.clone());
            }
        }
        let is_usable = |symptom: &Symptom| !drawn.contains(&symptom.probe);
        let mut ranked = symptoms.into_iter().filter(is_usable);
        let Some(symptom) = ranked.next() else {
            return Ok(Err(drawn));
        };
        let mut probes = self.probes.iter();
        let Some(probe) = probes.find(|probe| probe.name == symptom.probe) else {
            return Ok(Err(drawn));
        };
        let report = SymptomReport {
            probe: symptom.probe.clone(),
            from: probe.namespace.clone(),
            to: destination(probe),
            detail: symptom.level,
            good: round.good.outcome_counts(&symptom.probe),
            bad: round.bad.outcome_counts(&symptom.probe),
            other_probes: ranked.map(|symptom| symptom.probe).collect(),
        };
        Ok(Ok(Baseline {
            probe: probe.clone(),
            symptom,
            report,
            is_undecided: *worst != Indistinguishable::Same,
            max_wait,
        }))
    }
}

impl Round {
    /// Whether a probe lost connections in good, but none with fewer connections: more connections
    /// only make the machine busier.
    fn has_new_losses(&self, fewer: &Self) -> bool {
        self.good.tallies.iter().any(|(probe, tally)| {
            let before = fewer.good.tallies.get(probe);
            has_losses(tally) && before.is_some_and(|before| !has_losses(before))
        })
    }
}

fn has_losses(tally: &Tally) -> bool {
    let mut outcomes = tally.iter();
    outcomes.any(|(outcome, _)| outcome.verdict.is_unanswered())
}

fn destination(probe: &Probe) -> String {
    match probe.target.port {
        0 => probe.target.address.to_string(),
        _ => probe.target.socket().to_string(),
    }
}

/// `drawn` are the probes whose endpoint decides about their outcome.
fn describe_outcomes(observation: &Observation, drawn: &[String]) -> String {
    let each = observation.tallies.iter().map(|(probe, tally)| {
        let outcomes = tally.iter().map(|(outcome, _)| outcome.to_string());
        let outcomes: Vec<String> = outcomes.collect();
        let note = if drawn.contains(probe) {
            " (not compared: one endpoint of several fails, and session affinity draws it once per lab)"
        } else {
            ""
        };
        format!("{probe} {}{note}", outcomes.join(" or "))
    });
    each.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use svclab_model::evidence::Verdict;

    fn observation(verdicts: &[Verdict]) -> Observation {
        let mut tally = Tally::default();
        for verdict in verdicts {
            tally.count(ConnectionOutcome::from_verdict(*verdict));
        }
        Observation {
            tallies: [("call".to_owned(), tally)].into_iter().collect(),
            slowest_answer: Duration::ZERO,
        }
    }

    #[test]
    fn losses_of_good_are_new_if_fewer_connections_had_none() {
        let round = |good: &[Verdict]| Round {
            mode: ProbeMode::Full,
            good: observation(good),
            bad: observation(&[Verdict::Timeout]),
        };
        let answered = round(&[Verdict::Connected]);
        for lost in [Verdict::Timeout, Verdict::Silent] {
            let lost = round(&[Verdict::Connected, lost]);
            assert!(lost.has_new_losses(&answered));
            assert!(!lost.has_new_losses(&lost));
            assert!(!answered.has_new_losses(&lost));
        }
        assert!(!answered.has_new_losses(&answered));
    }
}
