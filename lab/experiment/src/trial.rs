//! Outcomes of one trial: from the evidence of a lab's probes to the number of connections by
//! outcome.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::net::IpAddr;

use indexmap::IndexMap;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use svclab_judge::AddressBook;
use svclab_model::evidence::{Attempt, Evidence, Verdict};
use svclab_model::plan::{Lifetime, Plan};

/// Outcome of one connection.
#[derive(
    Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "camelCase")]
pub struct ConnectionOutcome {
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
    pub initial_endpoint: Option<String>,
}

/// Outcome with the number of its connections.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct OutcomeCount {
    /// Outcome of the connections.
    #[serde(flatten)]
    pub outcome: ConnectionOutcome,
    /// Number of connections.
    pub connections: u64,
}

impl ConnectionOutcome {
    /// Creates an outcome from a verdict alone.
    #[must_use]
    pub const fn from_verdict(verdict: Verdict) -> Self {
        Self {
            verdict,
            endpoint: None,
            source: None,
            initial_endpoint: None,
        }
    }

    fn from_attempt(attempt: &Attempt, name_of: impl FnOnce(IpAddr) -> String) -> Self {
        Self {
            verdict: attempt.verdict,
            endpoint: attempt.endpoint.clone(),
            source: attempt.seen_source.map(|source| name_of(source.ip())),
            initial_endpoint: None,
        }
    }
}

impl fmt::Display for ConnectionOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.verdict)?;
        if let Some(endpoint) = &self.endpoint {
            write!(f, " to {endpoint}")?;
        }
        if let Some(source) = &self.source {
            write!(f, " from {source}")?;
        }
        if let Some(at_first) = &self.initial_endpoint {
            write!(f, " (at first {at_first})")?;
        }
        Ok(())
    }
}

/// Number of connections by outcome.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Tally {
    counts: BTreeMap<ConnectionOutcome, u64>,
    first: Option<ConnectionOutcome>,
}

impl Tally {
    pub(crate) fn count(&mut self, outcome: ConnectionOutcome) {
        self.extend([(outcome, 1)]);
    }

    pub(crate) fn add(&mut self, other: &Self) {
        if self.first.is_none() {
            self.first.clone_from(&other.first);
        }
        self.extend(
            other
                .iter()
                .map(|(outcome, count)| (outcome.clone(), count)),
        );
    }

    /// Returns the outcome of the connection that was counted first.
    pub(crate) const fn first(&self) -> Option<&ConnectionOutcome> {
        self.first.as_ref()
    }

    pub(crate) const fn counts(&self) -> &BTreeMap<ConnectionOutcome, u64> {
        &self.counts
    }

    pub(crate) fn total(&self) -> u64 {
        self.counts.values().sum()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&ConnectionOutcome, u64)> {
        self.counts.iter().map(|(outcome, count)| (outcome, *count))
    }

    pub(crate) fn to_outcome_counts(&self) -> Vec<OutcomeCount> {
        let counts = self.iter().map(|(outcome, connections)| OutcomeCount {
            outcome: outcome.clone(),
            connections,
        });
        counts.collect()
    }
}

impl Extend<(ConnectionOutcome, u64)> for Tally {
    fn extend<T: IntoIterator<Item = (ConnectionOutcome, u64)>>(&mut self, counts: T) {
        for (outcome, count) in counts.into_iter().filter(|(_, count)| *count > 0) {
            self.first.get_or_insert_with(|| outcome.clone());
            *self.counts.entry(outcome).or_default() += count;
        }
    }
}

/// Counts the outcomes of each probe of a case, in the order of its stages. `books` contains the
/// address book of each stage. A probe whose connections stay open across a step is counted after
/// the step.
pub(crate) fn tallies<'b>(
    plan: &Plan,
    evidence: &Evidence,
    books: impl IntoIterator<Item = AddressBook<'b>>,
) -> IndexMap<String, Tally> {
    let mut all = IndexMap::new();
    let mut before: &[Attempt] = &[];
    let stages = plan.stages.iter().zip(&evidence.stages).zip(books);
    for ((stage, seen), book) in stages {
        for probe in &stage.probes {
            let opened = match probe.lifetime {
                Lifetime::Opened => continue,
                Lifetime::Reused => before,
                Lifetime::Stage => &[],
            };
            let tally = tally(&probe.name, &seen.attempts, opened, &book);
            all.insert(probe.name.clone(), tally);
        }
        before = &seen.attempts;
    }
    all
}

/// Counts the outcomes of one probe's connections. `opened` contains the attempts before the step,
/// for connections that were open across it.
fn tally(probe: &str, attempts: &[Attempt], opened: &[Attempt], book: &AddressBook<'_>) -> Tally {
    let of_probe = |attempt: &&Attempt| attempt.probe == probe;
    let opened = opened.iter().filter(of_probe);
    let first: HashMap<u32, &Attempt> = opened.map(|attempt| (attempt.index, attempt)).collect();
    let mut tally = Tally::default();
    for attempt in attempts.iter().filter(of_probe) {
        let first = first.get(&attempt.index);
        let at_first = first.and_then(|first| first.endpoint.clone());
        tally.count(ConnectionOutcome {
            initial_endpoint: at_first.filter(|name| attempt.endpoint.as_ref() != Some(name)),
            ..ConnectionOutcome::from_attempt(attempt, |ip| book.name_of(ip))
        });
    }
    tally
}

/// Counts the outcomes of each probe of a plan without a cluster. A source is
/// named after the node, pod or host of the plan that has its address.
pub(crate) fn tallies_of_plan(plan: &Plan, evidence: &Evidence) -> IndexMap<String, Tally> {
    let mut names: HashMap<IpAddr, String> = HashMap::new();
    for namespace in &plan.namespaces {
        for (index, link) in namespace.links.iter().enumerate() {
            for address in &link.addresses {
                names.entry(address.ip()).or_insert_with(|| match index {
                    0 => namespace.name.clone(),
                    _ => format!("{}/{}", namespace.name, link.name),
                });
            }
        }
    }
    let name_of = |ip: IpAddr| names.get(&ip).cloned().unwrap_or_else(|| ip.to_string());
    let mut counts: IndexMap<String, Tally> = IndexMap::new();
    for attempt in evidence.attempts() {
        let outcome = ConnectionOutcome::from_attempt(attempt, name_of);
        counts
            .entry(attempt.probe.clone())
            .or_default()
            .count(outcome);
    }
    counts
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;
    use std::time::Duration;

    use super::*;
    use svclab_model::evidence::StageEvidence;
    use svclab_model::plan::{Probe, ProbeProtocol, Stage, Target};
    use svclab_planner::cluster::Cluster;

    fn attempt(probe: &str, number: u32, verdict: Verdict, by: Option<&str>) -> Attempt {
        Attempt {
            idle: None,
            probe: probe.to_owned(),
            index: number,
            verdict,
            endpoint: by.map(str::to_owned),
            seen_source: None,
            further_answers: Vec::new(),
            progress: None,
            local_address: None,
            duration: Duration::ZERO,
            settled: false,
            error: None,
        }
    }

    fn probe(name: &str, lifetime: Lifetime) -> Probe {
        Probe {
            name: name.to_owned(),
            namespace: "client".to_owned(),
            target: Target {
                address: [10, 96, 0, 10].into(),
                port: 53,
            },
            protocol: ProbeProtocol::Udp,
            connections: 1,
            concurrency: None,
            bind: None,
            source_port: None,
            bytes: None,
            datagrams: NonZeroU32::MIN,
            max_wait: Duration::from_secs(1),
            settle: false,
            after: None,
            lifetime,
        }
    }

    fn render(tally: &Tally) -> Vec<String> {
        tally
            .iter()
            .map(|(outcome, count)| format!("{count} {outcome}"))
            .collect()
    }

    /// The opening of a connection before a step is not counted separately. Its outcome includes
    /// the endpoint that answered then.
    #[test]
    fn tallies_open_probe_has_initial_endpoint() {
        use Verdict::{Answered, Connected, Silent};
        let plan = Plan {
            stages: vec![
                Stage::new(vec![
                    probe("call", Lifetime::Stage),
                    probe("stay", Lifetime::Opened),
                ]),
                Stage::new(vec![
                    probe("callLeft", Lifetime::Stage),
                    probe("stay", Lifetime::Reused),
                ]),
            ],
            ..Plan::default()
        };
        let after = StageEvidence {
            attempts: vec![
                attempt("callLeft", 0, Connected, Some("b")),
                attempt("stay", 0, Answered, Some("b")),
                attempt("stay", 1, Answered, Some("b")),
                attempt("stay", 2, Silent, None),
            ],
            ..StageEvidence::default()
        };
        let before = StageEvidence {
            attempts: vec![
                attempt("call", 0, Connected, Some("a")),
                attempt("stay", 0, Answered, Some("a")),
                attempt("stay", 1, Answered, Some("b")),
                attempt("stay", 2, Answered, Some("a")),
            ],
            ..StageEvidence::default()
        };
        let evidence = Evidence {
            stages: vec![before, after],
            ..Evidence::default()
        };
        let cluster = Cluster::default();
        let book = AddressBook::new(&cluster, &plan);
        let counts = tallies(&plan, &evidence, [book, book]);
        let rendered: Vec<(&str, Vec<String>)> = counts
            .iter()
            .map(|(probe, tally)| (probe.as_str(), render(tally)))
            .collect();
        let strings = |all: &[&str]| all.iter().map(|&word| word.to_owned()).collect();
        assert_eq!(
            rendered,
            [
                ("call", strings(&["1 connected to a"])),
                ("callLeft", strings(&["1 connected to b"])),
                (
                    "stay",
                    strings(&[
                        "1 answered to b",
                        "1 answered to b (at first a)",
                        "1 silent (at first a)"
                    ])
                ),
            ]
        );
    }
}
