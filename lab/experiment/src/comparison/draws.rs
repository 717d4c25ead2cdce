//! Collects independent draws of one flow on both sides and decides whether the sides differ.

use std::collections::{BTreeMap, BTreeSet};

use crate::statistics::{Threshold, p_value};
use crate::trial::{ConnectionOutcome, Tally};

/// P-value from which on a flow whose outcomes differ is not tried again. It limits the cost of a
/// comparison and does not affect the probability of a false alarm.
const SAME_P_VALUE: f64 = 0.2;

/// Numbers of draws per side from which on [`SAME_P_VALUE`] decides.
const MIN_CONNECTIONS: u64 = 256;
const MIN_RUNS: usize = 8;

/// P-value for a flow drawn by connection that has the same outcomes on both sides. Wrong shares
/// are found by service, over all its flows.
const SAME_OUTCOMES_P_VALUE: f64 = 1e-3;

/// Number of runs that a difference needs if several endpoints may answer and each run has only one
/// outcome. In one run, a dependence of connections that the lab does not show would look the same.
const MIN_CONFIRMING_RUNS: usize = 4;

/// Unit of independent draws.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DrawUnit {
    /// Each connection.
    Connection,
    /// Each run of the case. Its connections depend on each other, because a client stays with its
    /// endpoint or because one change of a step affects all of them.
    Run,
}

/// Result of comparing the sides of a flow.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Likeness {
    /// Nothing indicates a difference.
    Same,
    /// The sides differ, possibly by chance. More draws are needed to decide.
    Unsure,
    /// The sides differ. The value is the probability that two equal sides differ so much.
    Changed(f64),
}

/// Outcomes of one flow in each run of its case, on both sides.
#[derive(Debug, Clone)]
pub(crate) struct Draws {
    unit: DrawUnit,
    /// Whether more than one endpoint may answer.
    has_choice: bool,
    /// Tallies of the reference side and the new side, by run.
    runs: Vec<[Tally; 2]>,
}

impl Draws {
    pub(crate) const fn new(unit: DrawUnit, has_choice: bool) -> Self {
        Self {
            unit,
            has_choice,
            runs: Vec::new(),
        }
    }

    pub(crate) fn add(&mut self, run: [Tally; 2]) {
        self.runs.push(run);
    }

    pub(crate) const fn unit(&self) -> DrawUnit {
        self.unit
    }

    /// Returns the tally of all connections of each side.
    pub(crate) fn connections(&self) -> [Tally; 2] {
        let mut totals = [Tally::default(), Tally::default()];
        for run in &self.runs {
            for (total, tally) in totals.iter_mut().zip(run) {
                total.add(tally);
            }
        }
        totals
    }

    /// Whether one side has a verdict that the other side never has.
    pub(crate) fn has_other_verdict(&self) -> bool {
        let [against, new] = self.connections().map(|tally| {
            let outcomes = tally.counts().keys();
            outcomes
                .map(|outcome| outcome.verdict)
                .collect::<BTreeSet<_>>()
        });
        against != new
    }

    pub(crate) fn likeness(&self, threshold: Threshold) -> Likeness {
        let (p_value, is_alike, likely, enough_draws) = match self.unit {
            DrawUnit::Connection => {
                let [against, new] = self.connections();
                let (p_value, is_alike) = compare(against.counts(), new.counts());
                let likely = if is_alike {
                    SAME_OUTCOMES_P_VALUE
                } else {
                    SAME_P_VALUE
                };
                let draws = against.total().min(new.total());
                (p_value, is_alike, likely, draws >= MIN_CONNECTIONS)
            }
            DrawUnit::Run => {
                let (p_value, is_alike) = self.compare_runs();
                (p_value, is_alike, SAME_P_VALUE, self.runs.len() >= MIN_RUNS)
            }
        };
        if threshold.is_below(p_value) && self.is_confirmed() {
            Likeness::Changed(p_value)
        } else if p_value >= likely && (is_alike || enough_draws) {
            Likeness::Same
        } else {
            Likeness::Unsure
        }
    }

    /// Compares the runs by each outcome: whether a run had the outcome, and whether its first
    /// connection did. Also compares whether a run had several outcomes, as without session
    /// affinity.
    fn compare_runs(&self) -> (f64, bool) {
        let [against, new] = self.connections();
        let outcomes: BTreeSet<&ConnectionOutcome> =
            against.counts().keys().chain(new.counts().keys()).collect();
        let is_mixed = |tally: &Tally| tally.counts().len() > 1;
        let mut tests = vec![self.compare_runs_by(is_mixed)];
        for outcome in outcomes {
            tests.push(self.compare_runs_by(|tally| tally.counts().contains_key(outcome)));
            tests.push(self.compare_runs_by(|tally| tally.first() == Some(outcome)));
        }
        let mixed = [0, 1].map(|side| self.runs.iter().any(|run| is_mixed(&run[side])));
        let is_alike = against.counts().keys().eq(new.counts().keys()) && mixed[0] == mixed[1];
        let least = tests.iter().copied().fold(1.0, f64::min);
        let test_count = u32::try_from(tests.len()).unwrap_or(u32::MAX);
        ((least * f64::from(test_count)).min(1.0), is_alike)
    }

    fn compare_runs_by(&self, has_property: impl Fn(&Tally) -> bool) -> f64 {
        let counts = [0, 1].map(|side| {
            let mut counts: BTreeMap<bool, u64> = BTreeMap::new();
            for run in &self.runs {
                *counts.entry(has_property(&run[side])).or_default() += 1;
            }
            counts
        });
        p_value(&counts[0], &counts[1])
    }

    /// Whether connections are known to be independent, or whether the difference was the same in
    /// several runs. Always true if only one endpoint may answer.
    fn is_confirmed(&self) -> bool {
        let mut tallies = self.runs.iter().flatten();
        self.unit == DrawUnit::Run
            || !self.has_choice
            || self.runs.len() >= MIN_CONFIRMING_RUNS
            || tallies.any(|tally| tally.counts().len() > 1)
    }
}

/// Returns the p-value of two samples, and whether both have the same kinds of outcomes.
fn compare<K: Ord>(left: &BTreeMap<K, u64>, right: &BTreeMap<K, u64>) -> (f64, bool) {
    (p_value(left, right), left.keys().eq(right.keys()))
}

#[cfg(test)]
mod tests;
