//! Chooses the probe result that separates good from bad, the number of connections per trial, and
//! the error probability.
//!
//! With round robin or random balancing, chance decides the result of a single connection.
//! Connections in good and in bad give bounds of the symptom's frequency on each side, which hold
//! with a stated probability (Clopper and Pearson, 1934). A trial has enough connections to
//! separate the worst of these bounds with a stated probability, by the tails of the binomial
//! distribution. Results without randomness are treated alike, because a connection that always
//! succeeded may still fail occasionally.

use std::collections::BTreeSet;

use schemars::JsonSchema;
use serde::Serialize;
use thiserror::Error;

use super::narrow::Like;
use crate::verify::{Outcome, Tally};
use svclab_model::evidence::Verdict;

/// Probability that any of the bounds estimated for good and bad is wrong.
const BOUNDS: f64 = 2e-4;

/// Probability that any trial is classified wrongly.
const TRIALS: f64 = 8e-4;

/// Maximum number of connections per trial.
pub const MOST: u32 = 512;

/// Part of an outcome that separates good from bad.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum Level {
    /// Verdict only.
    Verdict,
    /// Verdict and endpoint that answered.
    Endpoint,
    /// Verdict and source that the endpoint received.
    Source,
}

/// Probe result that separates good from bad.
#[derive(Debug, Clone, PartialEq)]
pub struct Symptom {
    /// Probe name.
    pub probe: String,
    /// Part of the outcomes that counts.
    pub level: Level,
    /// Outcomes, reduced to `level`, that are more frequent in bad.
    pub outcomes: BTreeSet<Outcome>,
    /// Outcomes of good, reduced to `level`, that are not more frequent in bad.
    pub well: BTreeSet<Outcome>,
    /// Number of connections per trial.
    pub connections: u32,
    /// Minimum number of connections with an outcome of `outcomes` that makes a trial bad.
    pub from: u32,
    /// Probability that one trial is classified wrongly.
    pub mistaken: f64,
    /// Whether the outcomes occurred in no connection of good and in all connections of bad.
    pub certain: bool,
}

/// Reason why good and bad cannot be separated.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Alike {
    /// No outcome is more frequent in bad.
    #[error("good and bad behave alike")]
    Same,
    /// They differ only by chance, or too little to be separated by [`MOST`] connections.
    #[error("good and bad cannot be told apart by {0} connections")]
    Faint(u32),
}

impl Level {
    /// Reduces an outcome to the part that counts.
    #[must_use]
    pub fn of(self, outcome: &Outcome) -> Outcome {
        Outcome {
            verdict: outcome.verdict,
            endpoint: outcome.endpoint.clone().filter(|_| self == Self::Endpoint),
            source: outcome.source.clone().filter(|_| self == Self::Source),
            at_first: None,
        }
    }
}

impl Symptom {
    /// Finds the symptom of a probe from its tallies in good and bad. `differences` is the number
    /// of differences to narrow down.
    ///
    /// The verdict has priority, then the endpoint, then the source. If a level differs too little
    /// to be separated, more connections are needed: the next level is tried only if `last` is set.
    ///
    /// # Errors
    ///
    /// Returns [`Alike`] if no level separates good from bad.
    pub fn of(
        probe: &str,
        good: &Tally,
        bad: &Tally,
        differences: usize,
        last: bool,
    ) -> Result<Self, Alike> {
        let mut faint = None;
        for level in [Level::Verdict, Level::Endpoint, Level::Source] {
            match Self::at(level, probe, good, bad, differences) {
                Ok(symptom) => return Ok(symptom),
                Err(Alike::Same) => {}
                Err(more) if last => faint = Some(more),
                Err(more) => return Err(more),
            }
        }
        Err(faint.unwrap_or(Alike::Same))
    }

    fn at(
        level: Level,
        probe: &str,
        good: &Tally,
        bad: &Tally,
        differences: usize,
    ) -> Result<Self, Alike> {
        let outcomes: BTreeSet<Outcome> = good
            .iter()
            .chain(bad.iter())
            .map(|(outcome, _)| level.of(outcome))
            .collect();
        let of = |tally: &Tally, outcome: &Outcome| -> u64 {
            let own = tally.iter().filter(|(seen, _)| level.of(seen) == *outcome);
            own.map(|(_, count)| count).sum()
        };
        let (all_good, all_bad) = (good.all(), bad.all());
        if all_good == 0 || all_bad == 0 {
            return Err(Alike::Same);
        }
        let (mut symptom, mut well): (BTreeSet<Outcome>, BTreeSet<Outcome>) = outcomes
            .into_iter()
            .partition(|outcome| of(bad, outcome) * all_good > of(good, outcome) * all_bad);
        if symptom.is_empty() {
            return Err(Alike::Same);
        }
        // Timeout and unreachable are equivalent: whether the kernel reports an unresolved
        // neighbour before the probe ends depends on the kernel.
        let unanswered = [Verdict::Timeout, Verdict::Unreachable].map(Outcome::of);
        let any = |all: &BTreeSet<Outcome>| unanswered.iter().any(|outcome| all.contains(outcome));
        if any(&symptom) && !any(&well) {
            symptom.extend(unanswered);
        } else if any(&well) && !any(&symptom) {
            well.extend(unanswered);
        }
        let count = |tally| {
            symptom
                .iter()
                .map(|outcome| of(tally, outcome))
                .sum::<u64>()
        };
        let (in_good, in_bad) = (count(good), count(bad));
        // Good and bad each have two bounds.
        let wrong = BOUNDS / 4.0;
        let (never, always) = (in_good == 0, in_bad == all_bad);
        let most_good = upper(in_good, all_good, wrong);
        let least_bad = 1.0 - upper(all_bad - in_bad, all_bad, wrong);
        let mistaken = TRIALS / trials(differences);
        let (connections, from) =
            apart(most_good, least_bad, mistaken).ok_or(Alike::Faint(MOST))?;
        Ok(Self {
            probe: probe.to_owned(),
            level,
            outcomes: symptom,
            well,
            connections,
            from,
            mistaken,
            certain: never && always,
        })
    }

    /// Classifies a trial by its tally.
    #[must_use]
    pub fn like(&self, tally: &Tally) -> Like {
        let shown = self.count(tally);
        // Outcomes that occurred neither in good nor in bad prove nothing.
        let strange = tally
            .iter()
            .map(|(outcome, count)| (self.level.of(outcome), count))
            .filter(|(outcome, _)| {
                !self.outcomes.contains(outcome) && !self.well.contains(outcome)
            });
        let strange: u64 = strange.map(|(_, count)| count).sum();
        if shown >= u64::from(self.from) {
            Like::Bad
        } else if shown + strange < u64::from(self.from) {
            Like::Good
        } else {
            Like::Neither
        }
    }

    /// Returns the number of connections that show the symptom.
    #[must_use]
    pub fn count(&self, tally: &Tally) -> u64 {
        let shown = tally
            .iter()
            .filter(|(outcome, _)| self.outcomes.contains(&self.level.of(outcome)));
        shown.map(|(_, count)| count).sum()
    }

    /// Returns an upper bound of the probability that a result of `trials` trials is wrong.
    #[must_use]
    pub fn wrong(&self, trials: usize) -> f64 {
        let trials = f64::from(u32::try_from(trials).unwrap_or(u32::MAX));
        BOUNDS + trials * self.mistaken
    }
}

/// Returns the number of trials that the error probability is divided by: those needed to find
/// three differences that act together.
fn trials(differences: usize) -> f64 {
    f64::from(3 * (differences.max(1).ilog2() + 3) + 8)
}

/// Returns the smallest number of connections, and the minimum number of those with the symptom
/// that makes a trial bad. With these numbers, the probability of confusing the sides is at most
/// `mistaken`. Returns `None` if [`MOST`] connections are too few.
fn apart(good: f64, bad: f64, mistaken: f64) -> Option<(u32, u32)> {
    if good >= bad {
        return None;
    }
    (1..=MOST).find_map(|connections| {
        // The smallest threshold that good reaches only with the probability `mistaken`.
        let from =
            (1..=connections).find(|from| 1.0 - below(*from, connections, good) <= mistaken)?;
        (below(from, connections, bad) <= mistaken).then_some((connections, from))
    })
}

/// Returns the probability that fewer than `from` of `all` connections show the symptom, if each
/// shows it with the probability `chance`.
fn below(from: u32, all: u32, chance: f64) -> f64 {
    if chance <= 0.0 {
        return 1.0;
    }
    if chance >= 1.0 {
        return if from > all { 1.0 } else { 0.0 };
    }
    let mut term = f64::from(all) * (1.0 - chance).ln();
    let mut sum = 0.0;
    for shown in 0..from.min(all + 1) {
        sum += term.exp();
        term += (f64::from(all - shown) / f64::from(shown + 1)).ln() + chance.ln()
            - (1.0 - chance).ln();
    }
    sum.min(1.0)
}

/// Returns the largest chance per connection for which `shown` or fewer of `all` connections occur
/// with a probability of at least `wrong`.
fn upper(shown: u64, all: u64, wrong: f64) -> f64 {
    let small = |number: u64| u32::try_from(number).unwrap_or(u32::MAX);
    if shown >= all {
        return 1.0;
    }
    let (mut low, mut high) = (0.0_f64, 1.0_f64);
    for _ in 0..60 {
        let middle = low.midpoint(high);
        if below(small(shown) + 1, small(all), middle) > wrong {
            low = middle;
        } else {
            high = middle;
        }
    }
    high
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tally(connected: u32, timeout: u32) -> Tally {
        let mut tally = Tally::default();
        for (verdict, count) in [(Verdict::Connected, connected), (Verdict::Timeout, timeout)] {
            (0..count).for_each(|_| tally.count(Outcome::of(verdict)));
        }
        tally
    }

    fn of(good: &Tally, bad: &Tally) -> Result<Symptom, Alike> {
        Symptom::of("call", good, bad, 1000, true)
    }

    #[test]
    fn what_always_shows_takes_few_connections() {
        let symptom = of(&tally(64, 0), &tally(0, 64)).unwrap();
        assert!(symptom.certain && symptom.connections <= 32, "{symptom:?}");
        let all = symptom.connections;
        assert_eq!(symptom.like(&tally(all, 0)), Like::Good);
        assert_eq!(symptom.like(&tally(0, all)), Like::Bad);
        // Unreachable is equivalent to timeout. Any other verdict matches neither side.
        let ended = |verdict| {
            let mut tally = Tally::default();
            (0..all).for_each(|_| tally.count(Outcome::of(verdict)));
            tally
        };
        assert_eq!(symptom.like(&ended(Verdict::Unreachable)), Like::Bad);
        assert_eq!(symptom.like(&ended(Verdict::Refused)), Like::Neither);
        // The equivalence also holds if good is the side without answers.
        let blocked = of(&tally(0, 64), &tally(64, 0)).unwrap();
        assert_eq!(blocked.like(&ended(Verdict::Unreachable)), Like::Good);
        assert!(blocked.well.contains(&Outcome::of(Verdict::Unreachable)));
        // A single connection lost on a busy machine proves nothing.
        assert_eq!(symptom.like(&tally(all - 1, 1)), Like::Good);
        assert!(symptom.wrong(20) <= 1e-3);
    }

    #[test]
    fn what_shows_by_chance_takes_as_many_as_tell_it_apart() {
        for (good, bad) in [
            ((256, 0), (128, 128)),
            ((128, 128), (0, 256)),
            ((400, 112), (112, 400)),
        ] {
            let symptom = of(&tally(good.0, good.1), &tally(bad.0, bad.1)).unwrap();
            assert!(!symptom.certain && symptom.from > 1);
            let chance = |(connected, timeout): (u32, u32)| {
                f64::from(timeout) / f64::from(connected + timeout)
            };
            let (from, all) = (symptom.from, symptom.connections);
            assert!(1.0 - below(from, all, chance(good)) <= symptom.mistaken);
            assert!(below(from, all, chance(bad)) <= symptom.mistaken);
        }
        // 8 connections are too few to separate the sides.
        assert_eq!(of(&tally(4, 4), &tally(0, 8)), Err(Alike::Faint(MOST)));
    }

    #[test]
    fn what_is_alike_is_no_symptom() {
        assert_eq!(of(&tally(32, 0), &tally(32, 0)), Err(Alike::Same));
        assert_eq!(
            of(&tally(260, 252), &tally(252, 260)),
            Err(Alike::Faint(MOST))
        );
    }

    #[test]
    fn tails_are_those_of_the_binomial_distribution() {
        assert!((below(1, 2, 0.5) - 0.25).abs() < 1e-12);
        assert!((below(2, 3, 0.5) - 0.5).abs() < 1e-12);
        // With 0 of 29, the chance is at most about 10 % at a probability of 1 in 20 (rule of
        // three).
        let bound = upper(0, 29, 0.05);
        assert!((bound - (1.0 - 0.05_f64.powf(1.0 / 29.0))).abs() < 1e-9);
    }
}
