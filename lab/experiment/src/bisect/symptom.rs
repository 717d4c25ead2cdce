//! What is looked at in a trial: in what becomes of a probe good and bad differ, how many
//! connections tell them apart, and how sure that is.
//!
//! Round robin and random balancing make what becomes of one connection a matter of
//! chance. How often a symptom shows in good and in bad is estimated from connections made
//! in each, with bounds that hold with a stated probability (Clopper and Pearson, 1934);
//! a trial has as many connections as tell the worst of these bounds apart with a stated
//! probability, by the tails of the binomial distribution. That holds for what is not a
//! matter of chance, too: what always connected may yet fail now and then.

use std::collections::BTreeSet;

use schemars::JsonSchema;
use serde::Serialize;
use thiserror::Error;

use super::narrow::Like;
use crate::verify::{Outcome, Tally};
use svclab_model::evidence::Verdict;

/// With which probability the bounds of what good and bad do may be wrong, all together.
const BOUNDS: f64 = 2e-4;

/// With which probability all trials together may be wrong.
const TRIALS: f64 = 8e-4;

/// So many connections in one trial and no more.
pub const MOST: u32 = 512;

/// What of an outcome tells good and bad apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum Level {
    /// What the caller experienced.
    Verdict,
    /// And who answered.
    Endpoint,
    /// And the source that the one who answered saw.
    Source,
}

/// What tells good and bad apart.
#[derive(Debug, Clone, PartialEq)]
pub struct Symptom {
    /// The probe.
    pub probe: String,
    /// What of its outcomes counts.
    pub level: Level,
    /// The outcomes, as far as they count, that are more frequent in bad.
    pub outcomes: BTreeSet<Outcome>,
    /// Those of good that are not.
    pub well: BTreeSet<Outcome>,
    /// How many connections a trial has.
    pub connections: u32,
    /// From how many connections with such an outcome on a trial is like bad.
    pub from: u32,
    /// With which probability one trial is taken for the other.
    pub mistaken: f64,
    /// Whether good never and bad always showed it.
    pub certain: bool,
}

/// Why good and bad cannot be told apart.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Alike {
    /// Nothing that was tried came out otherwise.
    #[error("good and bad behave alike")]
    Same,
    /// They differ by chance, or too little to tell in [`MOST`] connections.
    #[error("good and bad cannot be told apart by {0} connections")]
    Faint(u32),
}

impl Level {
    /// What of an outcome counts.
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
    /// What tells two tallies of a probe apart, where `differences` are narrowed: what the
    /// caller experienced, and only where that is the same who answered, and then which
    /// source was seen. `last` takes what of these can be told at all.
    ///
    /// # Errors
    ///
    /// When nothing does.
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
        // Whether a neighbour that does not answer is told of in time is up to its kernel.
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
        // Each of two bounds on each side.
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

    /// What a trial with this tally is like.
    #[must_use]
    pub fn like(&self, tally: &Tally) -> Like {
        let shown = self.count(tally);
        // What was seen in neither says nothing.
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

    /// How many connections show it.
    #[must_use]
    pub fn count(&self, tally: &Tally) -> u64 {
        let shown = tally
            .iter()
            .filter(|(outcome, _)| self.outcomes.contains(&self.level.of(outcome)));
        shown.map(|(_, count)| count).sum()
    }

    /// With which probability an answer that so many trials led to is wrong, at most.
    #[must_use]
    pub fn wrong(&self, trials: usize) -> f64 {
        let trials = f64::from(u32::try_from(trials).unwrap_or(u32::MAX));
        BOUNDS + trials * self.mistaken
    }
}

/// How many trials are planned for among so many differences: for three that act together.
fn trials(differences: usize) -> f64 {
    f64::from(3 * (differences.max(1).ilog2() + 3) + 8)
}

/// The fewest connections, and from how many with the symptom on a trial is bad, that take
/// neither for the other with more than a probability; none if [`MOST`] are too few.
fn apart(good: f64, bad: f64, mistaken: f64) -> Option<(u32, u32)> {
    if good >= bad {
        return None;
    }
    (1..=MOST).find_map(|connections| {
        // The lowest number that good hardly reaches.
        let from =
            (1..=connections).find(|from| 1.0 - below(*from, connections, good) <= mistaken)?;
        (below(from, connections, bad) <= mistaken).then_some((connections, from))
    })
}

/// With which probability fewer than `from` of `all` show what each shows with `chance`.
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

/// The highest chance with which `shown` or fewer of `all` are seen with a probability of
/// `wrong`.
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
        // No answer is no answer, whoever tells of it; another end is neither.
        let ended = |verdict| {
            let mut tally = Tally::default();
            (0..all).for_each(|_| tally.count(Outcome::of(verdict)));
            tally
        };
        assert_eq!(symptom.like(&ended(Verdict::Unreachable)), Like::Bad);
        assert_eq!(symptom.like(&ended(Verdict::Refused)), Like::Neither);
        // So it is where good is what is not answered.
        let blocked = of(&tally(0, 64), &tally(64, 0)).unwrap();
        assert_eq!(blocked.like(&ended(Verdict::Unreachable)), Like::Good);
        assert!(blocked.well.contains(&Outcome::of(Verdict::Unreachable)));
        // One that a busy machine lost says nothing.
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
        // By a few connections it cannot be told.
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
        // With none of 29, at most 10 in 100 with a probability of 1 in 20 (the rule of
        // three, nearly).
        let bound = upper(0, 29, 0.05);
        assert!((bound - (1.0 - 0.05_f64.powf(1.0 / 29.0))).abs() < 1e-9);
    }
}
