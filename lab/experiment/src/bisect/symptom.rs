//! Chooses the probe result that separates good from bad, the number of connections per trial, and
//! the error probability.
//!
//! With round robin or random balancing, chance decides the result of a single connection.
//! Connections in good and in bad give bounds of the symptom's frequency on each side, which hold
//! with a stated probability (Clopper and Pearson, 1934). A trial has enough connections to
//! separate the worst of these bounds with a stated probability, by the tails of the binomial
//! distribution. Results without randomness are treated alike, because a connection that always
//! succeeded may still fail occasionally.

use std::collections::{BTreeMap, BTreeSet};

use schemars::JsonSchema;
use serde::Serialize;
use thiserror::Error;

use super::narrow::TrialClass;
use crate::statistics::binomial::{separating_sample, upper_bound};
use crate::trial::{ConnectionOutcome, Tally};
use svclab_model::evidence::Verdict;

/// Probability that any of the bounds estimated for good and bad is wrong.
const BOUNDS_ERROR_PROBABILITY: f64 = 2e-4;

/// Probability that any trial is classified wrongly.
const TRIALS_ERROR_PROBABILITY: f64 = 8e-4;

/// Maximum number of connections per trial.
pub(super) const MAX_CONNECTIONS: u32 = 512;

/// Minimum number of connections that show whether several endpoints answer. All draw the same of two
/// with a probability of 2⁻³¹.
const MIN_SPREAD_CONNECTIONS: u32 = 32;

type Outcomes = BTreeSet<ConnectionOutcome>;

/// Part of an outcome that separates good from bad.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum OutcomeDetail {
    /// Verdict only.
    Verdict,
    /// Verdict, and whether one endpoint answered or several, if session affinity draws the
    /// endpoint.
    Spread,
    /// Verdict and endpoint that answered.
    Endpoint,
    /// Verdict and source that the endpoint received.
    Source,
}

/// Probe result that separates good from bad.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Symptom {
    pub(super) probe: String,
    /// Part of the outcomes that counts.
    pub(super) level: OutcomeDetail,
    /// Outcomes, reduced to `level`, that are more frequent in bad.
    pub(super) outcomes: Outcomes,
    /// Outcomes of good, reduced to `level`, that are not more frequent in bad.
    pub(super) good_outcomes: Outcomes,
    /// Number of connections per trial.
    pub(super) connections: u32,
    /// Minimum number of connections with an outcome of `outcomes` that makes a trial bad if chance
    /// decides about the outcomes.
    pub(super) threshold: u32,
    /// Probability that one trial is classified wrongly.
    pub(super) error_probability: f64,
    /// Whether the outcomes occurred in no connection of good and in all connections of bad.
    pub(super) is_deterministic: bool,
}

/// Reason why good and bad cannot be separated.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Indistinguishable {
    /// No outcome is more frequent in bad.
    #[error("good and bad behave the same")]
    Same,
    /// They differ only by chance, or too little to be separated by `MAX_CONNECTIONS` connections.
    #[error("cannot distinguish good from bad with {0} connections")]
    TooSimilar(u32),
}

impl OutcomeDetail {
    /// Counts the connections by the part of the outcome that counts.
    pub(super) fn reduce(self, tally: &Tally) -> BTreeMap<ConnectionOutcome, u64> {
        let spread = || {
            let endpoints = tally.iter();
            let mut endpoints = endpoints.filter_map(|(outcome, _)| outcome.endpoint.as_ref());
            let first = endpoints.next();
            if endpoints.all(|other| Some(other) == first) {
                "one endpoint"
            } else {
                "several endpoints"
            }
        };
        let mut counts = BTreeMap::new();
        for (outcome, count) in tally.iter() {
            let endpoint = outcome.endpoint.clone();
            let reduced = ConnectionOutcome {
                verdict: outcome.verdict,
                endpoint: match self {
                    Self::Spread => endpoint.map(|_| spread().to_owned()),
                    Self::Endpoint => endpoint,
                    Self::Verdict | Self::Source => None,
                },
                source: outcome.source.clone().filter(|_| self == Self::Source),
                initial_endpoint: None,
            };
            *counts.entry(reduced).or_default() += count;
        }
        counts
    }
}

impl Symptom {
    /// Finds the symptom of a probe from its tallies in good and bad. `differences` is the number
    /// of differences to narrow down. With `affinity`, chance decides which endpoint answers all
    /// connections.
    ///
    /// The verdict has priority, then the endpoint, then the source. If a level differs too little
    /// to be separated, more connections are needed: the next level is tried only if `last` is set.
    pub(super) fn from_tallies(
        probe: &str,
        good: &Tally,
        bad: &Tally,
        differences: usize,
        affinity: bool,
        last: bool,
    ) -> Result<Self, Indistinguishable> {
        let mut faint = None;
        let by_endpoint = if affinity {
            OutcomeDetail::Spread
        } else {
            OutcomeDetail::Endpoint
        };
        for level in [OutcomeDetail::Verdict, by_endpoint, OutcomeDetail::Source] {
            match Self::from_tallies_at(level, probe, good, bad, differences) {
                Ok(symptom) => return Ok(symptom),
                Err(Indistinguishable::Same) => {}
                Err(more) if last => faint = Some(more),
                Err(more) => return Err(more),
            }
        }
        Err(faint.unwrap_or(Indistinguishable::Same))
    }

    fn from_tallies_at(
        level: OutcomeDetail,
        probe: &str,
        good: &Tally,
        bad: &Tally,
        differences: usize,
    ) -> Result<Self, Indistinguishable> {
        let (good, bad) = (level.reduce(good), level.reduce(bad));
        let (good_total, bad_total) = (good.values().sum::<u64>(), bad.values().sum::<u64>());
        if good_total == 0 || bad_total == 0 {
            return Err(Indistinguishable::Same);
        }
        let count_of = |counts: &BTreeMap<ConnectionOutcome, u64>, outcome: &ConnectionOutcome| {
            counts.get(outcome).copied().unwrap_or(0)
        };
        let outcomes = good.keys().chain(bad.keys()).cloned();
        let (mut symptom, mut good_outcomes): (Outcomes, Outcomes) =
            outcomes.partition(|outcome| {
                count_of(&bad, outcome) * good_total > count_of(&good, outcome) * bad_total
            });
        if symptom.is_empty() {
            return Err(Indistinguishable::Same);
        }
        // Timeout and unreachable are equivalent: whether the kernel reports an unresolved
        // neighbour before the probe ends depends on the kernel.
        let unanswered =
            [Verdict::Timeout, Verdict::Unreachable].map(ConnectionOutcome::from_verdict);
        let has_unanswered =
            |set: &Outcomes| unanswered.iter().any(|outcome| set.contains(outcome));
        if has_unanswered(&symptom) && !has_unanswered(&good_outcomes) {
            symptom.extend(unanswered);
        } else if has_unanswered(&good_outcomes) && !has_unanswered(&symptom) {
            good_outcomes.extend(unanswered);
        }
        let count = |counts| -> u64 {
            let shown = symptom.iter().map(|outcome| count_of(counts, outcome));
            shown.sum()
        };
        let (in_good, in_bad) = (count(&good), count(&bad));
        // Good and bad each have two bounds.
        let wrong = BOUNDS_ERROR_PROBABILITY / 4.0;
        let most_good = upper_bound(in_good, good_total, wrong);
        let least_bad = 1.0 - upper_bound(bad_total - in_bad, bad_total, wrong);
        let error_probability = TRIALS_ERROR_PROBABILITY / planned_trials(differences);
        let sample = separating_sample(most_good, least_bad, error_probability, MAX_CONNECTIONS);
        let (connections, threshold) =
            sample.ok_or(Indistinguishable::TooSimilar(MAX_CONNECTIONS))?;
        // Fewer connections may all draw the same endpoint.
        let connections = match level {
            OutcomeDetail::Spread => connections.max(MIN_SPREAD_CONNECTIONS),
            _ => connections,
        };
        Ok(Self {
            probe: probe.to_owned(),
            level,
            outcomes: symptom,
            good_outcomes,
            connections,
            threshold,
            error_probability,
            is_deterministic: in_good == 0 && in_bad == bad_total,
        })
    }

    /// Returns the maximum number of connections with the symptom in a good trial, and the minimum in
    /// a bad one. Without randomness, a trial between both sides, such as one in which one of two
    /// endpoints fails, is like neither; a few connections lost on a busy machine prove nothing.
    fn limits(&self) -> (u64, u64) {
        let threshold = u64::from(self.threshold);
        if !self.is_deterministic {
            return (threshold.saturating_sub(1), threshold);
        }
        let few = u64::from(self.connections) / 5;
        (few, u64::from(self.connections) - few)
    }

    pub(super) fn classify(&self, tally: &Tally) -> TrialClass {
        let (mut shown, mut unknown) = (0, 0);
        for (outcome, count) in self.level.reduce(tally) {
            if self.outcomes.contains(&outcome) {
                shown += count;
            } else if !self.good_outcomes.contains(&outcome) {
                // Outcomes that occurred neither in good nor in bad prove nothing.
                unknown += count;
            }
        }
        let (max_good, min_bad) = self.limits();
        if shown >= min_bad {
            TrialClass::Bad
        } else if shown + unknown <= max_good {
            TrialClass::Good
        } else {
            TrialClass::Neither
        }
    }

    /// Returns an upper bound of the probability that a result of `trials` trials is wrong.
    pub(super) fn total_error_probability(&self, trials: usize) -> f64 {
        let trials = f64::from(u32::try_from(trials).unwrap_or(u32::MAX));
        BOUNDS_ERROR_PROBABILITY + trials * self.error_probability
    }
}

/// Returns the number of trials that the error probability is divided by: those needed to find
/// three differences that act together.
fn planned_trials(differences: usize) -> f64 {
    f64::from(3 * (differences.max(1).ilog2() + 3) + 8)
}

#[cfg(test)]
mod tests {
    use statrs::distribution::{Binomial, DiscreteCDF};

    use super::*;

    fn tally(connected: u32, timeout: u32) -> Tally {
        let mut tally = Tally::default();
        for (verdict, count) in [(Verdict::Connected, connected), (Verdict::Timeout, timeout)] {
            (0..count).for_each(|_| tally.count(ConnectionOutcome::from_verdict(verdict)));
        }
        tally
    }

    fn find_symptom(good: &Tally, bad: &Tally) -> Result<Symptom, Indistinguishable> {
        Symptom::from_tallies("call", good, bad, 1000, false, true)
    }

    #[test]
    fn symptom_of_affinity_is_spread_over_endpoints() {
        let answered = |counts: &[(&str, u32)]| {
            let mut tally = Tally::default();
            for (endpoint, count) in counts {
                let outcome = ConnectionOutcome {
                    endpoint: Some((*endpoint).to_owned()),
                    ..ConnectionOutcome::from_verdict(Verdict::Connected)
                };
                (0..*count).for_each(|_| tally.count(outcome.clone()));
            }
            tally
        };
        let (spread, one) = (answered(&[("a", 30), ("b", 34)]), answered(&[("a", 64)]));
        let find = |good, bad| Symptom::from_tallies("call", good, bad, 1000, true, true);
        let symptom = find(&spread, &one).unwrap();
        assert_eq!(symptom.level, OutcomeDetail::Spread);
        assert!(symptom.is_deterministic && symptom.connections >= 32);
        // The other endpoint is drawn as well.
        assert_eq!(symptom.classify(&answered(&[("b", 32)])), TrialClass::Bad);
        let both = answered(&[("a", 20), ("b", 12)]);
        assert_eq!(symptom.classify(&both), TrialClass::Good);
        let opposite = find(&one, &spread).unwrap();
        assert_eq!(opposite.classify(&both), TrialClass::Bad);
        // Chance alone separates two sides with affinity.
        let other = answered(&[("b", 64)]);
        assert_eq!(find(&one, &other), Err(Indistinguishable::Same));
    }

    #[test]
    fn symptom_deterministic_needs_few_connections() {
        let symptom = find_symptom(&tally(64, 0), &tally(0, 64)).unwrap();
        assert!(
            symptom.is_deterministic && symptom.connections <= 32,
            "{symptom:?}"
        );
        let count = symptom.connections;
        assert_eq!(symptom.classify(&tally(count, 0)), TrialClass::Good);
        assert_eq!(symptom.classify(&tally(0, count)), TrialClass::Bad);
        // Unreachable is equivalent to timeout. Any other verdict matches neither side.
        let ended = |verdict| {
            let mut tally = Tally::default();
            (0..count).for_each(|_| tally.count(ConnectionOutcome::from_verdict(verdict)));
            tally
        };
        assert_eq!(
            symptom.classify(&ended(Verdict::Unreachable)),
            TrialClass::Bad
        );
        assert_eq!(
            symptom.classify(&ended(Verdict::Refused)),
            TrialClass::Neither
        );
        // The equivalence also holds if good is the side without answers.
        let blocked = find_symptom(&tally(0, 64), &tally(64, 0)).unwrap();
        assert_eq!(
            blocked.classify(&ended(Verdict::Unreachable)),
            TrialClass::Good
        );
        assert!(
            blocked
                .good_outcomes
                .contains(&ConnectionOutcome::from_verdict(Verdict::Unreachable))
        );
        // A single connection lost on a busy machine proves nothing.
        assert_eq!(symptom.classify(&tally(count - 1, 1)), TrialClass::Good);
        // Half of the connections are like neither side.
        let half = count / 2;
        for shown in [half - 3, half, half + 3] {
            let mixed = symptom.classify(&tally(count - shown, shown));
            assert_eq!(mixed, TrialClass::Neither, "{shown} of {count}");
        }
        assert!(symptom.total_error_probability(20) <= 1e-3);
    }

    #[test]
    fn symptom_random_sample_separates_sides() {
        for (good, bad) in [
            ((256, 0), (128, 128)),
            ((128, 128), (0, 256)),
            ((400, 112), (112, 400)),
        ] {
            let symptom = find_symptom(&tally(good.0, good.1), &tally(bad.0, bad.1)).unwrap();
            assert!(!symptom.is_deterministic && symptom.threshold > 1);
            let chance = |(connected, timeout): (u32, u32)| {
                let frequency = f64::from(timeout) / f64::from(connected + timeout);
                Binomial::new(frequency, symptom.connections.into()).unwrap()
            };
            let below = u64::from(symptom.threshold - 1);
            assert!(chance(good).sf(below) <= symptom.error_probability);
            assert!(chance(bad).cdf(below) <= symptom.error_probability);
        }
        // 8 connections are too few to separate the sides.
        assert_eq!(
            find_symptom(&tally(4, 4), &tally(0, 8)),
            Err(Indistinguishable::TooSimilar(MAX_CONNECTIONS))
        );
    }

    #[test]
    fn symptom_similar_tallies_return_error() {
        assert_eq!(
            find_symptom(&tally(32, 0), &tally(32, 0)),
            Err(Indistinguishable::Same)
        );
        assert_eq!(
            find_symptom(&tally(260, 252), &tally(252, 260)),
            Err(Indistinguishable::TooSimilar(MAX_CONNECTIONS))
        );
    }
}
