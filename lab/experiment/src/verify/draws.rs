//! Collects independent draws of one flow on both sides and decides whether the sides differ.

use std::collections::{BTreeMap, BTreeSet};

use super::chance::{Threshold, p_value};
use super::tally::{Outcome, Tally};

/// P-value from which on a flow whose outcomes differ is not tried again. It limits the cost of a
/// comparison and does not affect the probability of a false alarm.
const LIKELY: f64 = 0.2;

/// P-value for a flow drawn by connection that has the same outcomes on both sides. Wrong shares
/// are found by service, over all its flows.
const UNLIKELY: f64 = 1e-3;

/// Number of runs that a difference needs if several endpoints may answer and each run has only one
/// outcome. In one run, a dependence of connections that the lab does not show would look the same.
const CONFIRMING: usize = 4;

/// Unit of independent draws.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// Each connection.
    Connection,
    /// Each run of the case. Its connections depend on each other, because a client stays with its
    /// endpoint or because one change of a step affects all of them.
    Run,
}

impl Unit {
    /// Number of draws from which on [`LIKELY`] decides.
    const fn few(self) -> u64 {
        match self {
            Self::Connection => 256,
            Self::Run => 8,
        }
    }
}

/// Result of comparing the sides of a flow.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Likeness {
    /// Nothing indicates a difference.
    Same,
    /// The sides differ, possibly by chance. More draws are needed to decide.
    Unsure,
    /// The sides differ. The value is the probability that two equal sides differ so much.
    Changed(f64),
}

/// Outcomes of one flow in each run of its case, on both sides.
#[derive(Debug, Clone)]
pub struct Draws {
    unit: Unit,
    /// Whether more than one endpoint may answer.
    has_choice: bool,
    /// Tallies of the reference side and the new side, by run.
    runs: Vec<[Tally; 2]>,
}

impl Draws {
    /// Creates draws without a run.
    #[must_use]
    pub const fn new(unit: Unit, has_choice: bool) -> Self {
        Self {
            unit,
            has_choice,
            runs: Vec::new(),
        }
    }

    /// Adds the tallies of a run.
    pub fn add(&mut self, run: [Tally; 2]) {
        self.runs.push(run);
    }

    /// Returns the unit of independent draws.
    #[must_use]
    pub const fn unit(&self) -> Unit {
        self.unit
    }

    /// Returns the tally of all connections of each side.
    #[must_use]
    pub fn connections(&self) -> [Tally; 2] {
        let mut all = [Tally::default(), Tally::default()];
        for run in &self.runs {
            for (all, own) in all.iter_mut().zip(run) {
                all.add(own);
            }
        }
        all
    }

    /// Compares both sides.
    #[must_use]
    pub fn likeness(&self, threshold: Threshold) -> Likeness {
        let (p_value, is_alike) = match self.unit {
            Unit::Connection => {
                let [one, other] = self.connections();
                compare(one.counts(), other.counts())
            }
            Unit::Run => self.compare_runs(),
        };
        let likely = match self.unit {
            Unit::Connection if is_alike => UNLIKELY,
            _ => LIKELY,
        };
        if threshold.is_below(p_value) && self.is_confirmed() {
            Likeness::Changed(p_value)
        } else if p_value >= likely && (is_alike || self.len() >= self.unit.few()) {
            Likeness::Same
        } else {
            Likeness::Unsure
        }
    }

    /// Compares the runs by each outcome: whether a run had the outcome, and whether its first
    /// connection did. Also compares whether a run had several outcomes, as without session
    /// affinity.
    fn compare_runs(&self) -> (f64, bool) {
        let [one, other] = self.connections();
        let outcomes: BTreeSet<&Outcome> =
            one.counts().keys().chain(other.counts().keys()).collect();
        let is_mixed = |tally: &Tally| tally.counts().len() > 1;
        let mut tests = vec![self.compare_runs_by(is_mixed)];
        for outcome in outcomes {
            tests.push(self.compare_runs_by(|tally| tally.counts().contains_key(outcome)));
            tests.push(self.compare_runs_by(|tally| tally.first() == Some(outcome)));
        }
        let mixed = [0, 1].map(|side| self.runs.iter().any(|run| is_mixed(&run[side])));
        let is_alike = one.counts().keys().eq(other.counts().keys()) && mixed[0] == mixed[1];
        let least = tests.iter().copied().fold(1.0, f64::min);
        let all = u32::try_from(tests.len()).unwrap_or(u32::MAX);
        ((least * f64::from(all)).min(1.0), is_alike)
    }

    fn compare_runs_by(&self, is_so: impl Fn(&Tally) -> bool) -> f64 {
        let counts = [0, 1].map(|side| {
            let mut counts: BTreeMap<bool, u64> = BTreeMap::new();
            for run in &self.runs {
                *counts.entry(is_so(&run[side])).or_default() += 1;
            }
            counts
        });
        p_value(&counts[0], &counts[1])
    }

    /// Number of draws on the side that has fewer.
    fn len(&self) -> u64 {
        match self.unit {
            Unit::Connection => {
                let [one, other] = self.connections();
                one.all().min(other.all())
            }
            Unit::Run => u64::try_from(self.runs.len()).unwrap_or(u64::MAX),
        }
    }

    /// Whether connections are known to be independent, or whether the difference was the same in
    /// several runs. Always true if only one endpoint may answer.
    fn is_confirmed(&self) -> bool {
        let mut tallies = self.runs.iter().flatten();
        self.unit == Unit::Run
            || !self.has_choice
            || self.runs.len() >= CONFIRMING
            || tallies.any(|tally| tally.counts().len() > 1)
    }
}

/// Returns the p-value of two samples, and whether both have the same kinds of outcomes.
fn compare<K: Ord>(one: &BTreeMap<K, u64>, other: &BTreeMap<K, u64>) -> (f64, bool) {
    (p_value(one, other), one.keys().eq(other.keys()))
}

/// Counts connections by the endpoint that they reached; `None` for those that reached none.
#[must_use]
pub fn by_endpoint(counts: &BTreeMap<Outcome, u64>) -> BTreeMap<Option<String>, u64> {
    let mut endpoints = BTreeMap::new();
    for (outcome, count) in counts {
        *endpoints.entry(outcome.endpoint.clone()).or_default() += count;
    }
    endpoints
}

#[cfg(test)]
#[path = "draws_tests.rs"]
mod tests;
