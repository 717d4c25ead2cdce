//! Counts the outcomes of a probe's connections.

use std::collections::{BTreeMap, HashMap};
use std::fmt;

use indexmap::IndexMap;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use svclab_judge::Book;
use svclab_model::evidence::{Attempt, Evidence, Verdict};
use svclab_model::plan::{Plan, Probe};

/// Outcome of one connection.
#[derive(
    Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "camelCase")]
pub struct Outcome {
    /// Verdict.
    pub verdict: Verdict,
    /// Endpoint that answered; absent if none did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<String>,
    /// Source that the endpoint received, by name if the address has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// For a connection that was open across a step, the endpoint that answered before the step;
    /// absent if it still answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at_first: Option<String>,
}

impl Outcome {
    /// Creates an outcome from a verdict alone.
    #[must_use]
    pub const fn of(verdict: Verdict) -> Self {
        Self {
            verdict,
            endpoint: None,
            source: None,
            at_first: None,
        }
    }
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
        if let Some(at_first) = &self.at_first {
            write!(f, " (at first {at_first})")?;
        }
        Ok(())
    }
}

/// Number of connections by outcome.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Tally {
    counts: BTreeMap<Outcome, u64>,
    first: Option<Outcome>,
}

impl Tally {
    /// Counts one connection.
    pub fn count(&mut self, outcome: Outcome) {
        self.first.get_or_insert_with(|| outcome.clone());
        *self.counts.entry(outcome).or_default() += 1;
    }

    /// Adds the counts of another tally.
    pub fn add(&mut self, other: &Self) {
        if self.first.is_none() {
            self.first.clone_from(&other.first);
        }
        for (outcome, count) in &other.counts {
            *self.counts.entry(outcome.clone()).or_default() += count;
        }
    }

    /// Returns the outcome of the connection that was counted first, or `None` without connections.
    #[must_use]
    pub const fn first(&self) -> Option<&Outcome> {
        self.first.as_ref()
    }

    /// Returns the number of connections by outcome.
    #[must_use]
    pub const fn counts(&self) -> &BTreeMap<Outcome, u64> {
        &self.counts
    }

    /// Returns the number of all connections.
    #[must_use]
    pub fn all(&self) -> u64 {
        self.counts.values().sum()
    }

    /// Returns the number of connections with an outcome.
    #[must_use]
    pub fn of(&self, outcome: &Outcome) -> u64 {
        self.counts.get(outcome).copied().unwrap_or(0)
    }

    /// Iterates over the outcomes with their numbers of connections.
    pub fn iter(&self) -> impl Iterator<Item = (&Outcome, u64)> {
        self.counts.iter().map(|(outcome, count)| (outcome, *count))
    }
}

impl Extend<(Outcome, u64)> for Tally {
    fn extend<T: IntoIterator<Item = (Outcome, u64)>>(&mut self, counts: T) {
        for (outcome, count) in counts.into_iter().filter(|(_, count)| *count > 0) {
            self.first.get_or_insert_with(|| outcome.clone());
            *self.counts.entry(outcome).or_default() += count;
        }
    }
}

/// Counts the outcomes of each probe of a case: probes before the steps, then those of each step
/// and those open across it. `books` contains the address books before the steps and after each.
#[must_use]
pub fn tallies(plan: &Plan, evidence: &Evidence, books: &[Book<'_>]) -> IndexMap<String, Tally> {
    let later = evidence.steps.iter().map(|step| &*step.evidence);
    let seen: Vec<&[Attempt]> = std::iter::once(evidence)
        .chain(later)
        .map(|seen| seen.attempts.as_slice())
        .collect();
    let attempts = |at: usize| seen.get(at).copied().unwrap_or_default();
    let mut all = IndexMap::new();
    let mut tell = |probes: &[Probe], spoken: &[Attempt], opened: &[Attempt], book| {
        for probe in probes {
            let tally = tally(&probe.name, spoken, opened, book);
            all.insert(probe.name.clone(), tally);
        }
    };
    for (at, book) in books.iter().enumerate() {
        let Some(made) = at.checked_sub(1) else {
            tell(&plan.probes, attempts(at), &[], book);
            continue;
        };
        let Some(step) = plan.steps.get(made) else {
            break;
        };
        tell(&step.probes, attempts(at), &[], book);
        tell(&step.open, attempts(at), attempts(made), book);
    }
    all
}

/// Counts the outcomes of one probe's connections. `opened` contains the attempts before the step,
/// for connections that were open across it.
fn tally(probe: &str, attempts: &[Attempt], opened: &[Attempt], book: &Book<'_>) -> Tally {
    let first: HashMap<u32, &Attempt> = opened
        .iter()
        .filter(|attempt| attempt.probe == probe)
        .map(|attempt| (attempt.number, attempt))
        .collect();
    let mut tally = Tally::default();
    for attempt in attempts.iter().filter(|attempt| attempt.probe == probe) {
        let source = attempt.seen_source.map(|source| book.name(source.ip()));
        let first = first.get(&attempt.number);
        let at_first = first.and_then(|first| first.endpoint.clone());
        tally.count(Outcome {
            verdict: attempt.verdict,
            source,
            at_first: at_first.filter(|name| attempt.endpoint.as_ref() != Some(name)),
            endpoint: attempt.endpoint.clone(),
        });
    }
    tally
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use svclab_model::evidence::StepEvidence;
    use svclab_model::plan::{Backend, Protocol, Step, Target};
    use svclab_planner::cluster::{Cluster, Fabric};
    use svclab_scenario::lab::{FabricKind, ForeignSources};

    fn attempt(probe: &str, number: u32, verdict: Verdict, by: Option<&str>) -> Attempt {
        Attempt {
            probe: probe.to_owned(),
            number,
            verdict,
            endpoint: by.map(str::to_owned),
            seen_source: None,
            local: None,
            took: Duration::ZERO,
            settled: false,
            error: None,
        }
    }

    fn probe(name: &str) -> Probe {
        Probe {
            name: name.to_owned(),
            from: "client".to_owned(),
            to: Target {
                address: [10, 96, 0, 10].into(),
                port: 53,
            },
            protocol: Protocol::Udp,
            connections: 1,
            bind: None,
            patience: Duration::from_secs(1),
            settle: false,
            after: None,
        }
    }

    /// Returns a cluster in which no address has a name.
    fn nobody() -> Cluster {
        Cluster {
            nodes: Vec::new(),
            pods: Vec::new(),
            hosts: Vec::new(),
            services: Vec::new(),
            slices: Vec::new(),
            service_cidrs: Vec::new(),
            serving: Vec::new(),
            balancers: Vec::new(),
            fabric: Fabric {
                kind: FabricKind::Routed,
                subnets: Vec::new(),
                foreign_sources: ForeignSources::Pass,
                routes: Vec::new(),
            },
            backend: Backend::Nft,
            flannel: None,
            calico: None,
            ip_masq_agent: None,
            docker: None,
        }
    }

    fn told(tally: &Tally) -> Vec<String> {
        tally
            .iter()
            .map(|(outcome, count)| format!("{count} {outcome}"))
            .collect()
    }

    /// The opening of a connection before a step is not counted separately. Its outcome includes
    /// the endpoint that answered then.
    #[test]
    fn what_is_open_across_a_step_is_told_with_it() {
        use Verdict::{Answered, Connected, Silent};
        let plan = Plan {
            probes: vec![probe("call")],
            steps: vec![Step {
                name: "leaves".to_owned(),
                open: vec![probe("stay")],
                probes: vec![probe("callLeft")],
                ..Step::default()
            }],
            ..Plan::default()
        };
        let after = Evidence {
            attempts: vec![
                attempt("callLeft", 0, Connected, Some("b")),
                attempt("stay", 0, Answered, Some("b")),
                attempt("stay", 1, Answered, Some("b")),
                attempt("stay", 2, Silent, None),
            ],
            ..Evidence::default()
        };
        let evidence = Evidence {
            attempts: vec![
                attempt("call", 0, Connected, Some("a")),
                attempt("stay", 0, Answered, Some("a")),
                attempt("stay", 1, Answered, Some("b")),
                attempt("stay", 2, Answered, Some("a")),
            ],
            steps: vec![StepEvidence {
                name: "leaves".to_owned(),
                evidence: Box::new(after),
                ..StepEvidence::default()
            }],
            ..Evidence::default()
        };
        let cluster = nobody();
        let book = Book::new(&cluster, &plan);
        let all = tallies(&plan, &evidence, &[book, book]);
        let all: Vec<(&str, Vec<String>)> = all
            .iter()
            .map(|(probe, tally)| (probe.as_str(), told(tally)))
            .collect();
        let words = |all: &[&str]| all.iter().map(|&word| word.to_owned()).collect();
        assert_eq!(
            all,
            [
                ("call", words(&["1 connected to a"])),
                ("callLeft", words(&["1 connected to b"])),
                (
                    "stay",
                    words(&[
                        "1 answered to b",
                        "1 answered to b (at first a)",
                        "1 silent (at first a)"
                    ])
                ),
            ]
        );
    }
}
