//! Decides which connections have the wanted result: they succeed, at the wanted endpoint, with the
//! wanted source.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use super::success::Outcome;
use svclab_judge::{AddressBook, is_name_suffix};
use svclab_model::evidence::{Attempt, Evidence};
use svclab_model::plan::Lifetime;
use svclab_runner::run::prepare::Prepared;
use svclab_scenario::count::Count;
use svclab_scenario::expectation::ProbeExpectation;

/// Wanted results of probes, by probe name. Connections of other probes only have to succeed.
#[derive(Debug, Clone, Default)]
pub(super) struct Goals(BTreeMap<String, ProbeExpectation>);

impl Goals {
    /// Returns the results that a case expects of probes whose connections all succeed, and a
    /// requested result in place of that of its probe. The endpoints and sources of a probe that the
    /// case expects to fail in part are those of the failure.
    pub(super) fn new(prepared: &Prepared, requested: Option<(&str, &ProbeExpectation)>) -> Self {
        let expected = &prepared.case.expected().expected.probes;
        let succeed = expected.iter().filter(|(_, result)| succeeds(result));
        let mut goals: BTreeMap<String, ProbeExpectation> = succeed
            .map(|(probe, result)| (probe.clone(), result.clone()))
            .collect();
        if let Some((probe, result)) = requested {
            goals.insert(probe.to_owned(), result.clone());
        }
        Self(goals)
    }

    /// Returns the wanted result of a probe. `None` if its connections only have to succeed.
    pub(super) fn of_probe(&self, probe: &str) -> Option<&ProbeExpectation> {
        let goal = self.0.get(probe)?;
        (goal.endpoints.is_some() || goal.sources().is_some()).then_some(goal)
    }

    /// Compares the connections of all probes, including those of steps, with the goals. A
    /// connection that is open across a step counts after the step, too.
    pub(super) fn compare(&self, prepared: &Prepared, evidence: &Evidence) -> Outcome {
        let mut outcome = Outcome::default();
        let stages = evidence.stages.iter().zip(prepared.books()).enumerate();
        for (index, (stage, book)) in stages {
            let mut by_probe: BTreeMap<&str, Vec<&Attempt>> = BTreeMap::new();
            for attempt in &stage.attempts {
                by_probe.entry(&attempt.probe).or_default().push(attempt);
            }
            for (probe, attempts) in by_probe {
                let planned = prepared.plan.stages.get(index);
                let mut planned = planned.into_iter().flat_map(|stage| &stage.probes);
                // The endpoint after the step counts.
                let is_opened =
                    planned.any(|own| own.name == probe && own.lifetime == Lifetime::Opened);
                let goal = self.of_probe(probe).filter(|_| !is_opened);
                outcome.add(index, probe, &attempts, goal.map(|goal| (goal, &book)));
            }
        }
        outcome
    }
}

/// Whether a case expects that all connections of a probe succeed.
fn succeeds(expected: &ProbeExpectation) -> bool {
    let verdicts = expected.verdicts();
    let mut counted = verdicts
        .iter()
        .filter_map(|(verdict, count)| Some((*verdict, (*count)?)));
    let is_success = |(verdict, count): (&str, Count)| {
        matches!(verdict, "connected" | "answered") != (count == Count::exactly(0))
    };
    !expected.any && counted.all(is_success)
}

impl Outcome {
    fn add(
        &mut self,
        stage: usize,
        probe: &str,
        attempts: &[&Attempt],
        goal: Option<(&ProbeExpectation, &AddressBook<'_>)>,
    ) {
        let check = goal.map(|(goal, book)| GoalCheck::new(goal, book));
        let mut counts = [(0, 0); 2];
        for attempt in attempts {
            let is_connected = attempt.verdict.is_success();
            let is_wanted = is_connected && check.as_ref().is_none_or(|check| check.holds(attempt));
            for (count, holds) in counts.iter_mut().zip([is_connected, is_wanted]) {
                count.0 += u32::from(holds);
                count.1 += 1;
            }
            if !is_wanted {
                self.failures
                    .insert((stage, probe.to_owned(), attempt.index));
            }
        }
        // A connection is missing at each endpoint or from each source that never occurs.
        let [_, wanted] = &mut counts;
        if let Some(check) = check.filter(|_| wanted.0 == wanted.1) {
            let missing = check.missing(attempts);
            wanted.0 = wanted.0.saturating_sub(missing);
            if missing > 0 {
                let all = attempts
                    .iter()
                    .map(|own| (stage, probe.to_owned(), own.index));
                self.failures.extend(all);
            }
        }
        for (sums, count) in [&mut self.connected, &mut self.wanted]
            .into_iter()
            .zip(counts)
        {
            let sum = sums.entry(probe.to_owned()).or_default();
            sum.0 += count.0;
            sum.1 += count.1;
        }
    }
}

/// Wanted result of a probe, with the addresses of the wanted sources.
struct GoalCheck<'g> {
    endpoints: Option<&'g [String]>,
    sources: Option<Vec<BTreeSet<IpAddr>>>,
}

impl<'g> GoalCheck<'g> {
    fn new(goal: &'g ProbeExpectation, book: &AddressBook<'_>) -> Self {
        let sources = goal.sources().map(|names| {
            let addresses = names.into_iter().map(|name| book.addresses(name));
            addresses.map(Result::unwrap_or_default).collect()
        });
        Self {
            endpoints: goal.endpoints.as_deref(),
            sources,
        }
    }

    /// Whether an attempt was answered by a wanted endpoint that saw a wanted source.
    fn holds(&self, attempt: &Attempt) -> bool {
        let is_endpoint = self.endpoints.is_none_or(|names| {
            attempt
                .endpoints()
                .all(|seen| names.iter().any(|name| is_name_suffix(seen, name)))
        });
        let is_source = self.sources.as_ref().is_none_or(|groups| {
            let mut sources = attempt.seen_sources();
            sources.all(|seen| groups.iter().any(|group| group.contains(&seen.ip())))
        });
        is_endpoint && is_source
    }

    /// Returns the number of wanted endpoints that never answered, or of wanted sources that never
    /// occurred, whichever is greater.
    fn missing(&self, attempts: &[&Attempt]) -> u32 {
        let endpoints = self.endpoints.iter().copied().flatten();
        let endpoints = endpoints.filter(|name| {
            let mut seen = attempts.iter().flat_map(|attempt| attempt.endpoints());
            !seen.any(|seen| is_name_suffix(seen, name))
        });
        let sources = self.sources.iter().flatten().filter(|group| {
            let mut seen = attempts.iter().flat_map(|attempt| attempt.seen_sources());
            !seen.any(|seen| group.contains(&seen.ip()))
        });
        let missing = endpoints.count().max(sources.count());
        u32::try_from(missing).unwrap_or(u32::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn succeeds_expected_failures_set_no_goal() {
        for (expected, is_goal) in [
            (r#"{"connected": 8, "endpoints": ["a"]}"#, true),
            (r#"{"connected": 8, "timeout": 0}"#, true),
            (r#"{"endpoints": ["a"]}"#, true),
            (r#"{"connected": 4, "reset": 4, "endpoints": ["a"]}"#, false),
            (r#"{"connected": ">=1", "timeout": ">=1"}"#, false),
            (r#"{"connected": 0}"#, false),
            (r#"{"timeout": 8}"#, false),
        ] {
            let parsed: ProbeExpectation = serde_json::from_str(expected).expect("an expectation");
            assert_eq!(succeeds(&parsed), is_goal, "{expected}");
        }
        let any = ProbeExpectation {
            any: true,
            ..ProbeExpectation::default()
        };
        assert!(!succeeds(&any));
    }
}
