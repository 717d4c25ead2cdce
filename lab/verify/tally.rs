//! What became of a probe's connections, each for itself, and how many came to what.

use std::collections::BTreeMap;
use std::fmt;

use indexmap::IndexMap;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::evidence::{Evidence, Verdict};
use crate::explain::Book;
use crate::plan::Plan;

/// What became of one connection.
#[derive(
    Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "camelCase")]
pub struct Outcome {
    /// What the caller experienced.
    pub verdict: Verdict,
    /// Who answered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<String>,
    /// The source that the one who answered saw, by name where it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.verdict)?;
        if let Some(endpoint) = &self.endpoint {
            write!(f, " to {endpoint}")?;
        }
        if let Some(source) = &self.source {
            write!(f, " from {source}")?;
        }
        Ok(())
    }
}

/// How many connections came to which outcome.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Tally(BTreeMap<Outcome, u64>);

impl Tally {
    /// Counts one more.
    pub fn count(&mut self, outcome: Outcome) {
        *self.0.entry(outcome).or_default() += 1;
    }

    /// Both together.
    pub fn add(&mut self, other: &Self) {
        for (outcome, count) in &other.0 {
            *self.0.entry(outcome.clone()).or_default() += count;
        }
    }

    /// How many connections there were.
    #[must_use]
    pub fn all(&self) -> u64 {
        self.0.values().sum()
    }

    /// How many came to this.
    #[must_use]
    pub fn of(&self, outcome: &Outcome) -> u64 {
        self.0.get(outcome).copied().unwrap_or(0)
    }

    /// What was seen, with how often.
    pub fn iter(&self) -> impl Iterator<Item = (&Outcome, u64)> {
        self.0.iter().map(|(outcome, count)| (outcome, *count))
    }
}

/// What became of each of a plan's probes, in their order.
#[must_use]
pub fn tallies(plan: &Plan, evidence: &Evidence, book: &Book<'_>) -> IndexMap<String, Tally> {
    let mut all: IndexMap<String, Tally> = plan
        .probes
        .iter()
        .map(|probe| (probe.name.clone(), Tally::default()))
        .collect();
    for attempt in &evidence.attempts {
        let source = attempt.seen_source.map(|source| book.name(source.ip()));
        all.entry(attempt.probe.clone())
            .or_default()
            .count(Outcome {
                verdict: attempt.verdict,
                endpoint: attempt.endpoint.clone(),
                source,
            });
    }
    all
}
