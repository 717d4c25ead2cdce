//! Summarizes the attempts of a probe and compares them with its expectation.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use crate::address_book::AddressBook;
use svclab_model::evidence::{Attempt, Verdict};
use svclab_scenario::expectation::{ProbeExpectation, SourcePort};

/// Observed results of a probe's attempts.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Observed {
    /// Number of attempts for each verdict; a verdict without attempts is absent.
    #[serde(flatten)]
    pub verdicts: BTreeMap<Verdict, u32>,
    /// Endpoints that answered.
    pub endpoints: BTreeSet<String>,
    /// Source addresses that the endpoints received, by name if they have one.
    pub seen_sources: BTreeSet<String>,
    /// Whether source ports were kept or changed on the way to the endpoints; absent without an
    /// expectation about source ports.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub source_ports: BTreeSet<SourcePort>,
}

/// Result of a probe, with its expectation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProbeOutcome {
    /// Name of the probe in the lab.
    pub name: String,
    /// Source of the probe.
    pub from: String,
    /// Target of the probe.
    pub to: String,
    /// Step after which the probe ran, or across which its connections were open.
    pub step: Option<String>,
    /// Expectation. `None` only for a probe that the expectations of a claim do not mention.
    pub expected: Option<ProbeExpectation>,
    /// Observed results.
    pub observed: Observed,
    /// Whether the expectation is met.
    pub holds: bool,
}

impl ProbeOutcome {
    /// Whether other endpoints answered than expected.
    #[must_use]
    pub fn has_unexpected_endpoints(&self) -> bool {
        let expected = self.expected.as_ref();
        expected.is_some_and(|expected| !endpoints_hold(expected, &self.observed))
    }

    /// Returns the expected endpoints that did not answer.
    #[must_use]
    pub fn missing_endpoints(&self) -> Vec<String> {
        let expected = self.expected.as_ref();
        let expected = expected.and_then(|expected| expected.endpoints.as_ref());
        let is_missing = |name: &&String| {
            let mut seen = self.observed.endpoints.iter();
            !seen.any(|seen| is_name_suffix(seen, name))
        };
        let expected = expected.into_iter().flatten();
        expected.filter(is_missing).cloned().collect()
    }

    /// Whether the endpoints received another source than expected, or another source port.
    #[must_use]
    pub fn has_unexpected_sources(&self) -> bool {
        let is_other = |expected: &ProbeExpectation| {
            !verdicts_hold(expected, &self.observed) || !endpoints_hold(expected, &self.observed)
        };
        !self.holds && !self.expected.as_ref().is_none_or(is_other)
    }
}

/// Returns the observed results of one probe, and the source addresses that endpoints received.
#[must_use]
pub fn summarize(
    attempts: &[Attempt],
    probe: &str,
    book: &AddressBook<'_>,
) -> (Observed, BTreeSet<IpAddr>) {
    let mut observed = Observed::default();
    let mut sources = BTreeSet::new();
    for attempt in attempts.iter().filter(|attempt| attempt.probe == probe) {
        *observed.verdicts.entry(attempt.verdict).or_insert(0) += 1;
        let endpoints = attempt.endpoints().map(str::to_owned);
        observed.endpoints.extend(endpoints);
        for source in attempt.seen_sources() {
            sources.insert(source.ip());
            observed.seen_sources.insert(book.name_of(source.ip()));
            if let Some(local) = attempt.local_address {
                observed
                    .source_ports
                    .insert(if local.port() == source.port() {
                        SourcePort::Kept
                    } else {
                        SourcePort::Changed
                    });
            }
        }
    }
    (observed, sources)
}

/// Whether the observation meets the expectation. `sources` are the addresses behind
/// `observed.seen_sources`. `expected_sources` are the addresses of each expected name.
pub(super) fn meets_expectation(
    expected: &ProbeExpectation,
    observed: &Observed,
    sources: &BTreeSet<IpAddr>,
    expected_sources: Option<&[BTreeSet<IpAddr>]>,
) -> bool {
    let sources_hold = expected_sources.is_none_or(|groups| {
        groups
            .iter()
            .all(|group| sources.iter().any(|seen| group.contains(seen)))
            && sources
                .iter()
                .all(|seen| groups.iter().any(|group| group.contains(seen)))
    });
    let port_holds = expected
        .source_port
        .is_none_or(|port| observed.source_ports.iter().eq([&port]));
    verdicts_hold(expected, observed)
        && endpoints_hold(expected, observed)
        && sources_hold
        && port_holds
}

fn verdicts_hold(expected: &ProbeExpectation, observed: &Observed) -> bool {
    let counts = expected.verdicts();
    let has_counts = counts.iter().any(|(_, count)| count.is_some());
    !has_counts
        || Verdict::ALL.iter().all(|verdict| {
            let seen = observed.verdicts.get(verdict).copied().unwrap_or(0);
            let wanted = counts
                .iter()
                .find(|(name, _)| *name == verdict.name())
                .and_then(|(_, count)| *count);
            wanted.map_or(seen == 0, |count| count.contains(seen))
        })
}

fn endpoints_hold(expected: &ProbeExpectation, observed: &Observed) -> bool {
    expected.endpoints.as_ref().is_none_or(|pods| {
        pods.iter().all(|pod| {
            observed
                .endpoints
                .iter()
                .any(|seen| is_name_suffix(seen, pod))
        }) && observed
            .endpoints
            .iter()
            .all(|seen| pods.iter().any(|pod| is_name_suffix(seen, pod)))
    })
}

/// Whether `written` is the name `full` or a suffix of its parts: `web`, `default/web` and
/// `pod/default/web` for `pod/default/web`.
#[must_use]
pub fn is_name_suffix(full: &str, written: &str) -> bool {
    full == written
        || full
            .strip_suffix(written)
            .is_some_and(|front| front.ends_with('/'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use svclab_scenario::count::Count;

    fn observed(verdicts: &[(Verdict, u32)], endpoints: &[&str]) -> Observed {
        Observed {
            verdicts: verdicts.iter().copied().collect(),
            endpoints: endpoints.iter().map(|&pod| pod.to_owned()).collect(),
            seen_sources: BTreeSet::new(),
            source_ports: BTreeSet::new(),
        }
    }

    #[test]
    fn probe_any_expectation_always_holds() {
        let expected = ProbeExpectation {
            any: true,
            ..ProbeExpectation::default()
        };
        assert!(meets(&expected, &observed(&[(Verdict::Timeout, 1)], &[])));
        assert!(meets(
            &expected,
            &observed(&[(Verdict::Connected, 1)], &["web"])
        ));
    }

    fn meets(expected: &ProbeExpectation, observed: &Observed) -> bool {
        meets_expectation(expected, observed, &BTreeSet::new(), None)
    }

    #[test]
    fn probe_unlisted_verdict_must_not_occur() {
        let expected = ProbeExpectation {
            connected: Some(Count::exactly(4)),
            ..Default::default()
        };
        assert!(meets(&expected, &observed(&[(Verdict::Connected, 4)], &[])));
        assert!(!meets(
            &expected,
            &observed(&[(Verdict::Connected, 4), (Verdict::Timeout, 1)], &[])
        ));
        assert!(!meets(
            &expected,
            &observed(&[(Verdict::Connected, 4), (Verdict::Silent, 1)], &[])
        ));
        assert!(!meets(
            &expected,
            &observed(&[(Verdict::Connected, 3)], &[])
        ));
    }

    #[test]
    fn probe_endpoints_compare_as_set_by_suffix() {
        let expected = ProbeExpectation {
            endpoints: Some(vec!["web-a".to_owned(), "default/web-b".to_owned()]),
            ..Default::default()
        };
        let both = ["pod/default/web-a", "pod/default/web-b"];
        assert!(meets(
            &expected,
            &observed(&[(Verdict::Connected, 2)], &both)
        ));
        assert!(!meets(
            &expected,
            &observed(&[(Verdict::Connected, 2)], &both[..1])
        ));
        assert!(!meets(
            &expected,
            &observed(
                &[],
                &[
                    "pod/default/web-a",
                    "pod/default/web-b",
                    "pod/default/web-c"
                ]
            )
        ));
        assert!(!is_name_suffix("pod/default/my-web-a", "web-a"));
    }

    #[test]
    fn probe_source_port_mixed_fails() {
        let expected = ProbeExpectation {
            source_port: Some(SourcePort::Kept),
            ..Default::default()
        };
        let meets_ports = |ports: &[SourcePort]| {
            let observed = Observed {
                source_ports: ports.iter().copied().collect(),
                ..Observed::default()
            };
            meets(&expected, &observed)
        };
        assert!(meets_ports(&[SourcePort::Kept]));
        assert!(!meets_ports(&[SourcePort::Changed]));
        assert!(!meets_ports(&[SourcePort::Kept, SourcePort::Changed]));
        assert!(!meets_ports(&[]));
    }

    #[test]
    fn probe_sources_each_and_no_other_must_be_seen() {
        let address = |text: &str| text.parse::<IpAddr>().unwrap();
        let expected = ProbeExpectation::default();
        let node = BTreeSet::from([address("10.0.0.1"), address("fd00::1")]);
        let meets_sources = |sources: &[&str]| {
            let sources = sources.iter().map(|source| address(source)).collect();
            meets_expectation(
                &expected,
                &Observed::default(),
                &sources,
                Some(std::slice::from_ref(&node)),
            )
        };
        assert!(meets_sources(&["10.0.0.1"]));
        assert!(!meets_sources(&["10.0.0.1", "10.0.0.2"]));
        assert!(!meets_sources(&[]));
    }
}
