//! Summarizes the attempts of a probe and compares them with its expectation.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use super::book::Book;
use svclab_model::evidence::{Attempt, Verdict};
use svclab_scenario::expectation::{ANY, ProbeExpectation, SourcePort};

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
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ProbeOutcome {
    /// Name of the probe in the lab.
    pub name: String,
    /// Source of the probe.
    pub from: String,
    /// Target of the probe.
    pub to: String,
    /// Step after which the probe ran, or across which its connections were open.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<String>,
    /// Expectation in the notation of the lab, or `any`. Absent only for a probe that the
    /// expectations of a claim do not mention.
    pub expected: Option<String>,
    /// Observed results.
    pub observed: Observed,
    /// Whether the expectation is met.
    pub holds: bool,
}

/// Returns the observed results of one probe, and the source addresses that endpoints received.
#[must_use]
pub fn observe(attempts: &[Attempt], probe: &str, book: &Book<'_>) -> (Observed, BTreeSet<IpAddr>) {
    let mut observed = Observed::default();
    let mut sources = BTreeSet::new();
    for attempt in attempts.iter().filter(|attempt| attempt.probe == probe) {
        *observed.verdicts.entry(attempt.verdict).or_insert(0) += 1;
        observed.endpoints.extend(attempt.endpoint.clone());
        if let Some(source) = attempt.seen_source {
            sources.insert(source.ip());
            observed.seen_sources.insert(book.name(source.ip()));
            if let Some(local) = attempt.local {
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
#[must_use]
pub fn holds(
    expected: &ProbeExpectation,
    observed: &Observed,
    sources: &BTreeSet<IpAddr>,
    expected_sources: Option<&[BTreeSet<IpAddr>]>,
) -> bool {
    let counts = expected.verdicts();
    let says_counts = counts.iter().any(|(_, count)| count.is_some());
    let verdicts_hold = !says_counts
        || Verdict::ALL.iter().all(|verdict| {
            let seen = observed.verdicts.get(verdict).copied().unwrap_or(0);
            let wanted = counts
                .iter()
                .find(|(name, _)| *name == verdict.word())
                .and_then(|(_, count)| *count);
            wanted.map_or(seen == 0, |count| count.contains(seen))
        });
    let endpoints_hold = expected.endpoints.as_ref().is_none_or(|pods| {
        pods.iter()
            .all(|pod| observed.endpoints.iter().any(|seen| is_called(seen, pod)))
            && observed
                .endpoints
                .iter()
                .all(|seen| pods.iter().any(|pod| is_called(seen, pod)))
    });
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
    verdicts_hold && endpoints_hold && sources_hold && port_holds
}

/// Whether `written` is the name `full` or a suffix of its parts: `web`, `default/web` and
/// `pod/default/web` for `pod/default/web`.
#[must_use]
pub fn is_called(full: &str, written: &str) -> bool {
    full == written
        || full
            .strip_suffix(written)
            .is_some_and(|front| front.ends_with('/'))
}

/// Renders an expectation in one line, in the notation of the lab.
#[must_use]
pub fn expected_words(expected: &ProbeExpectation) -> String {
    if expected.any {
        return ANY.to_owned();
    }
    let mut words: Vec<String> = expected
        .verdicts()
        .iter()
        .filter_map(|(name, count)| count.map(|count| format!("{name} {count}")))
        .collect();
    if let Some(pods) = &expected.endpoints {
        words.push(format!("endpoints {}", list(pods.iter())));
    }
    if let Some(sources) = expected.sources() {
        words.push(format!("source {}", list(sources.iter())));
    }
    if let Some(port) = expected.source_port {
        words.push(format!("port {}", port.word()));
    }
    words.join(", ")
}

/// Renders the observed results in one line, in the same notation.
#[must_use]
pub fn observed_words(observed: &Observed) -> String {
    let mut words: Vec<String> = observed
        .verdicts
        .iter()
        .map(|(verdict, count)| format!("{verdict} {count}"))
        .collect();
    if !observed.endpoints.is_empty() {
        words.push(format!("endpoints {}", list(observed.endpoints.iter())));
    }
    if !observed.seen_sources.is_empty() {
        words.push(format!("source {}", list(observed.seen_sources.iter())));
    }
    if !observed.source_ports.is_empty() {
        let ports = observed.source_ports.iter().map(|port| port.word());
        words.push(format!("port {}", list(ports)));
    }
    words.join(", ")
}

fn list(items: impl Iterator<Item = impl AsRef<str>>) -> String {
    let items: Vec<String> = items.map(|item| item.as_ref().to_owned()).collect();
    if items.is_empty() {
        "none".to_owned()
    } else {
        items.join(" and ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use svclab_scenario::count::Count;

    fn seen(verdicts: &[(Verdict, u32)], endpoints: &[&str]) -> Observed {
        Observed {
            verdicts: verdicts.iter().copied().collect(),
            endpoints: endpoints.iter().map(|&pod| pod.to_owned()).collect(),
            seen_sources: BTreeSet::new(),
            source_ports: BTreeSet::new(),
        }
    }

    #[test]
    fn any_outcome_holds_and_is_named() {
        let expected = ProbeExpectation {
            any: true,
            ..ProbeExpectation::default()
        };
        assert!(check(&expected, &seen(&[(Verdict::Timeout, 1)], &[])));
        assert!(check(
            &expected,
            &seen(&[(Verdict::Connected, 1)], &["web"])
        ));
        assert_eq!(expected_words(&expected), "any");
    }

    fn check(expected: &ProbeExpectation, observed: &Observed) -> bool {
        holds(expected, observed, &BTreeSet::new(), None)
    }

    #[test]
    fn a_verdict_that_is_not_named_is_expected_never() {
        let expected = ProbeExpectation {
            connected: Some(Count::exactly(4)),
            ..Default::default()
        };
        assert!(check(&expected, &seen(&[(Verdict::Connected, 4)], &[])));
        assert!(!check(
            &expected,
            &seen(&[(Verdict::Connected, 4), (Verdict::Timeout, 1)], &[])
        ));
        assert!(!check(
            &expected,
            &seen(&[(Verdict::Connected, 4), (Verdict::Silent, 1)], &[])
        ));
        assert!(!check(&expected, &seen(&[(Verdict::Connected, 3)], &[])));
    }

    #[test]
    fn endpoints_are_a_set_and_may_be_called_by_their_last_name() {
        let expected = ProbeExpectation {
            endpoints: Some(vec!["web-a".to_owned(), "default/web-b".to_owned()]),
            ..Default::default()
        };
        let both = ["pod/default/web-a", "pod/default/web-b"];
        assert!(check(&expected, &seen(&[(Verdict::Connected, 2)], &both)));
        assert!(!check(
            &expected,
            &seen(&[(Verdict::Connected, 2)], &both[..1])
        ));
        assert!(!check(
            &expected,
            &seen(
                &[],
                &[
                    "pod/default/web-a",
                    "pod/default/web-b",
                    "pod/default/web-c"
                ]
            )
        ));
        assert!(!is_called("pod/default/my-web-a", "web-a"));
    }

    #[test]
    fn every_port_is_kept_or_none_is() {
        let expected = ProbeExpectation {
            source_port: Some(SourcePort::Kept),
            ..Default::default()
        };
        let ask = |ports: &[SourcePort]| {
            let observed = Observed {
                source_ports: ports.iter().copied().collect(),
                ..Observed::default()
            };
            check(&expected, &observed)
        };
        assert!(ask(&[SourcePort::Kept]));
        assert!(!ask(&[SourcePort::Changed]));
        assert!(!ask(&[SourcePort::Kept, SourcePort::Changed]));
        assert!(!ask(&[]));
    }

    #[test]
    fn sources_hold_when_each_name_was_seen_and_nothing_else() {
        let of = |text: &str| text.parse::<IpAddr>().unwrap();
        let expected = ProbeExpectation::default();
        let node = BTreeSet::from([of("10.0.0.1"), of("fd00::1")]);
        let ask = |sources: &[&str]| {
            let sources = sources.iter().map(|source| of(source)).collect();
            holds(
                &expected,
                &Observed::default(),
                &sources,
                Some(std::slice::from_ref(&node)),
            )
        };
        assert!(ask(&["10.0.0.1"]));
        assert!(!ask(&["10.0.0.1", "10.0.0.2"]));
        assert!(!ask(&[]));
    }
}
