//! Runs the good and the bad side, and finds the symptom that separates them.

use std::collections::BTreeSet;
use std::time::Duration;

use indexmap::IndexMap;

use super::bench::Way;
use super::error::BisectError;
use super::trials::{Trials, times};
use crate::bisect::document::{Shown, Trial};
use crate::bisect::{Alike, Level, Like, Symptom};
use crate::verify::{Outcome, Tally};
use svclab_model::plan::Probe;

/// Number of connections per probe on each side: initial and maximum.
const AT_FIRST: u32 = 64;
pub const AT_MOST: u32 = 512;

/// Symptom of good and bad, and how trials observe it.
pub struct Ends {
    pub symptom: Symptom,
    pub probe: Probe,
    pub shown: Shown,
    /// Maximum wait of each connection of a trial.
    pub patience: Duration,
}

/// Outcomes with the full maximum wait, for symptoms without randomness.
pub struct Slow {
    good: BTreeSet<Outcome>,
}

impl Ends {
    /// Returns the probe mode of narrowing trials.
    pub fn way(&self) -> Way {
        Way::Quick {
            connections: self.symptom.connections,
            patience: self.patience,
        }
    }

    /// Returns the outcomes with the full maximum wait, or `None` if they do not separate good from
    /// bad.
    pub fn slow(&self, good: Option<&Tally>, bad: Option<&Tally>) -> Option<Slow> {
        let [good, bad] = [good, bad].map(|tally| {
            tally
                .map(|tally| outcomes(&self.symptom, tally))
                .unwrap_or_default()
        });
        (self.symptom.certain && good.is_disjoint(&bad)).then_some(Slow { good })
    }
}

impl Slow {
    /// Classifies a trial with the full maximum wait.
    pub fn like(&self, symptom: &Symptom, tally: &Tally) -> Like {
        let seen = outcomes(symptom, tally);
        // If good is the side without answers, timeout and unreachable are equivalent.
        if seen.is_subset(&self.good) || seen.is_subset(&symptom.well) {
            Like::Good
        } else if seen.is_disjoint(&self.good) {
            Like::Bad
        } else {
            Like::Neither
        }
    }
}

/// Returns the outcomes of a tally, reduced to the part that counts.
fn outcomes(symptom: &Symptom, tally: &Tally) -> BTreeSet<Outcome> {
    tally
        .iter()
        .map(|(outcome, _)| symptom.level.of(outcome))
        .collect()
}

impl<F: FnMut(&Trial, usize)> Trials<'_, F> {
    /// Runs both sides with this maximum wait until their results can be separated.
    ///
    /// # Errors
    ///
    /// Returns an error if the results cannot be separated, or if one side cannot run.
    pub async fn told_apart(&mut self, patience: Duration) -> Result<Ends, BisectError> {
        let probes = self.probes.clone();
        let mut connections = AT_FIRST;
        loop {
            let way = Way::Quick {
                connections,
                patience,
            };
            let looking = self.look_at_end(true, &probes, way);
            let seen_good = self.end(true, &probes, looking).await?;
            let looking = self.look_at_end(false, &probes, way);
            let seen_bad = self.end(false, &probes, looking).await?;
            let one = self.tallies(&seen_good);
            let other = self.tallies(&seen_bad);
            let mut all: Vec<Symptom> = Vec::new();
            let mut worst = Alike::Same;
            for probe in &probes {
                let empty = Tally::default();
                let of = |tallies: &IndexMap<String, Tally>| {
                    tallies.get(&probe.name).unwrap_or(&empty).clone()
                };
                match Symptom::of(
                    &probe.name,
                    &of(&one),
                    &of(&other),
                    self.pair.len(),
                    connections >= AT_MOST,
                ) {
                    Ok(symptom) => all.push(symptom),
                    Err(Alike::Same) => {}
                    Err(faint) => worst = faint,
                }
            }
            all.sort_by_key(|symptom| (symptom.level, symptom.connections));
            // Verdicts have priority over endpoints and sources, as soon as they can be separated.
            let enough = worst == Alike::Same
                || connections >= AT_MOST
                || all
                    .first()
                    .is_some_and(|first| first.level == Level::Verdict);
            let mut all = all.into_iter().filter(|_| enough);
            if let Some(symptom) = all.next()
                && let Some(probe) = probes.iter().find(|probe| probe.name == symptom.probe)
            {
                let seen = |all: &IndexMap<String, Tally>| times(all.get(&symptom.probe));
                let shown = Shown {
                    probe: symptom.probe.clone(),
                    from: probe.from.clone(),
                    to: destination(probe),
                    by: symptom.level,
                    good: seen(&one),
                    bad: seen(&other),
                    others: all.map(|symptom| symptom.probe).collect(),
                };
                return Ok(Ends {
                    probe: probe.clone(),
                    symptom,
                    shown,
                    patience,
                });
            }
            if worst == Alike::Same || connections >= AT_MOST {
                return Err(BisectError::Alike {
                    alike: worst,
                    good: self.task.good_name.clone(),
                    bad: self.task.bad_name.clone(),
                    differences: counted(self.pair.len()),
                    seen: all_seen(&one),
                });
            }
            connections *= 2;
        }
    }
}

fn destination(probe: &Probe) -> String {
    match probe.to.port {
        0 => probe.to.address.to_string(),
        _ => probe.to.socket().to_string(),
    }
}

/// Returns the number of differences as text.
pub fn counted(differences: usize) -> String {
    match differences {
        1 => "1 difference".to_owned(),
        _ => format!("{differences} differences"),
    }
}

fn all_seen(tallies: &IndexMap<String, Tally>) -> String {
    let each = tallies.iter().map(|(probe, tally)| {
        let all: Vec<String> = tally
            .iter()
            .map(|(outcome, _)| outcome.to_string())
            .collect();
        format!("{probe} {}", all.join(" or "))
    });
    each.collect::<Vec<_>>().join(", ")
}
