//! Describes expected and observed results.

use std::collections::BTreeSet;
use std::fmt::Display;
use std::time::Duration;

use crate::text::{count, join};
use svclab_judge::{
    Check, ClaimDifference, LinkContent, Observed, ProbeOutcome, SetContent, StepOutcome,
    TrafficShift, render_duration,
};
use svclab_scenario::expectation::{ANY, LinkExpectation, ProbeExpectation, SetExpectation};

/// Describes the expected result of a probe in one line, in the notation of the lab.
pub(crate) fn describe_expectation(expected: &ProbeExpectation) -> String {
    if expected.any {
        return ANY.to_owned();
    }
    let verdicts = expected.verdicts().into_iter();
    let mut parts: Vec<String> = verdicts
        .filter_map(|(name, count)| Some(format!("{name} {}", count?)))
        .collect();
    if let Some(pods) = &expected.endpoints {
        parts.push(format!("endpoints {}", join_or_none(pods)));
    }
    if let Some(sources) = expected.sources() {
        parts.push(format!("source {}", join_or_none(sources)));
    }
    if let Some(port) = expected.source_port {
        parts.push(format!("port {}", port.as_str()));
    }
    parts.join(", ")
}

/// Describes the observed results of a probe in one line, in the same notation. Returns `nothing`
/// if nothing was observed.
#[must_use]
pub fn describe_observed(observed: &Observed) -> String {
    let verdicts = observed.verdicts.iter();
    let mut parts: Vec<String> = verdicts
        .map(|(verdict, count)| format!("{verdict} {count}"))
        .collect();
    if !observed.endpoints.is_empty() {
        parts.push(format!("endpoints {}", join(&observed.endpoints, " and ")));
    }
    if !observed.seen_sources.is_empty() {
        parts.push(format!("source {}", join(&observed.seen_sources, " and ")));
    }
    if !observed.source_ports.is_empty() {
        let kept_or_changed = observed.source_ports.iter().map(|port| port.as_str());
        parts.push(format!("port {}", join(kept_or_changed, " and ")));
    }
    if parts.is_empty() {
        return "nothing".to_owned();
    }
    parts.join(", ")
}

fn join_or_none(items: impl IntoIterator<Item = impl Display>) -> String {
    match join(items, " and ") {
        none if none.is_empty() => "none".to_owned(),
        names => names,
    }
}

/// Describes the expectation and the observation of a check.
pub(crate) fn describe_check(check: &Check) -> (String, String) {
    match check {
        Check::Packets {
            expected,
            count,
            missed,
        } => (
            format!("{} × {expected}", expected.count),
            format!("{count} ×{}", describe_missed_packets(*missed)),
        ),
        Check::Retransmissions {
            expected,
            max_wait,
            intervals,
            missed,
        } => {
            let missed = describe_missed_packets(*missed);
            (
                format!(
                    "{expected}, retransmitted after {}, within {}",
                    describe_intervals(expected.resent.as_deref().unwrap_or_default()),
                    describe_intervals(&[*max_wait])
                ),
                match intervals.as_deref() {
                    None => "no matching packet".to_owned(),
                    Some([]) => format!("not retransmitted{missed}"),
                    Some(intervals) => format!("after {}{missed}", describe_intervals(intervals)),
                },
            )
        }
        Check::Counter { expected, increase } => (
            format!("{} grows by {}", expected.counter, expected.grows),
            format!("by {increase}"),
        ),
        Check::Rule {
            expected,
            hits,
            missed,
        } => (
            format!(
                "{} packets match {} {} `{}`",
                expected.hits, expected.table, expected.chain, expected.rule
            ),
            match (hits, missed) {
                (None, _) => "no such rule".to_owned(),
                (Some(hits), 0) => hits.to_string(),
                (Some(hits), _) => format!(
                    "{hits}, but {} not recorded",
                    count(*missed, "trace event was", "trace events were")
                ),
            },
        ),
        Check::Chain { expected, rules } => (
            format!(
                "{} {} has the {} expected rules",
                expected.table,
                expected.chain,
                expected.is.len()
            ),
            match rules {
                None => "no such chain".to_owned(),
                Some(_) if check.holds() => "the expected rules".to_owned(),
                Some(rules) => describe_first_difference(&expected.is, rules),
            },
        ),
        Check::Set { expected, observed } => describe_set(expected, observed.as_ref()),
        Check::VirtualServer { expected, lines } => (
            format!("{} is {}", expected.server, describe_server(&expected.is)),
            describe_server(lines),
        ),
        Check::Link { expected, observed } => describe_link(expected, observed.as_ref()),
    }
}

fn describe_missed_packets(missed: u64) -> String {
    match missed {
        0 => String::new(),
        _ => format!(
            ", but {} not captured",
            count(missed, "packet was", "packets were")
        ),
    }
}

/// Describes intervals: `1 s, 2.02 s`.
fn describe_intervals(intervals: &[Duration]) -> String {
    let seconds = intervals.iter().map(|interval| {
        let hundredths = format!("{:.2}", interval.as_secs_f64());
        let short = hundredths.trim_end_matches('0').trim_end_matches('.');
        format!("{short} s")
    });
    join(seconds, ", ")
}

fn describe_first_difference(expected: &[String], observed: &[String]) -> String {
    let pairs = expected.iter().zip(observed);
    let index = pairs.take_while(|(wanted, seen)| wanted == seen).count();
    let rule = |rules: &[String]| {
        let rule = rules.get(index).map(|rule| format!("`{rule}`"));
        rule.unwrap_or_else(|| "absent".to_owned())
    };
    format!(
        "{}; rule {} is {}, expected {}",
        count(observed.len(), "rule", "rules"),
        index + 1,
        rule(observed),
        rule(expected)
    )
}

fn describe_set(expected: &SetExpectation, observed: Option<&SetContent>) -> (String, String) {
    let (separator, table) = match &expected.table {
        Some(table) => ("; ", format!("{table} ")),
        None => (" ", String::new()),
    };
    let describe = |kind: &str, members: String| format!("{kind} {{{members}}}");
    (
        format!(
            "{table}{} is {}",
            expected.set,
            describe(&expected.kind, join_sorted(&expected.members, separator))
        ),
        observed.map_or_else(
            || "no such set".to_owned(),
            |seen| describe(&seen.kind, join(&seen.members, separator)),
        ),
    )
}

fn describe_server<'l>(lines: impl IntoIterator<Item = &'l String>) -> String {
    let lines: BTreeSet<&String> = lines.into_iter().collect();
    match join(lines.iter().map(|line| format!("`{line}`")), " ") {
        none if none.is_empty() => "no virtual server".to_owned(),
        lines => lines,
    }
}

fn describe_link(expected: &LinkExpectation, observed: Option<&LinkContent>) -> (String, String) {
    let describe = |flags: String, addresses: String| format!("<{flags}> with {{{addresses}}}");
    (
        describe(
            join_sorted(&expected.flags, ","),
            join_sorted(&expected.addresses, " "),
        ),
        observed.map_or_else(
            || "no such interface".to_owned(),
            |seen| describe(join(&seen.flags, ","), join_sorted(&seen.addresses, " ")),
        ),
    )
}

/// Joins items without duplicates in the order of their texts.
fn join_sorted(items: impl IntoIterator<Item = impl Display>, separator: &str) -> String {
    let texts: BTreeSet<String> = items.into_iter().map(|item| item.to_string()).collect();
    join(texts, separator)
}

/// Describes the maximum delay of traffic shifts.
pub(crate) fn describe_within(within: Duration) -> String {
    format!("within {}", humantime::format_duration(within))
}

/// Describes the traffic shifts after a step, the probes whose traffic did not shift, and the number
/// of packets that were not captured.
pub(crate) fn describe_shifts(
    shifts: &[TrafficShift],
    unmoved: &[String],
    packets_missed: u64,
) -> String {
    let shifts = shifts.iter().map(|shift| {
        let delay = render_duration(Duration::from_micros(shift.delay_us));
        format!("{} to {} after {delay}", shift.probe, shift.to)
    });
    let mut parts = vec![match join(shifts, ", ") {
        none if none.is_empty() => "no traffic moved".to_owned(),
        shifts => shifts,
    }];
    if !unmoved.is_empty() {
        parts.push(format!("{} did not move", unmoved.join(", ")));
    }
    if packets_missed > 0 {
        parts.push(format!("{packets_missed} packets were not captured"));
    }
    parts.join("; ")
}

/// Describes the claimed and the observed result.
pub(crate) fn describe_difference(difference: &ClaimDifference) -> String {
    let (name, (claimed, seen)) = match difference {
        ClaimDifference::Probe(probe) => (probe.name.clone(), describe_probe(probe)),
        ClaimDifference::Check(check) => (check.target(), describe_check(check)),
        ClaimDifference::Step(step) => (step.name.clone(), describe_step(step)),
    };
    format!("{name}: claimed {claimed}; seen {seen}")
}

/// Describes the expectation, empty if there is none, and the observation of a probe.
pub(crate) fn describe_probe(probe: &ProbeOutcome) -> (String, String) {
    let expected = probe.expected.as_ref().map(describe_expectation);
    (
        expected.unwrap_or_default(),
        describe_observed(&probe.observed),
    )
}

/// Describes the expectation, empty if there is none, and the observation of a step.
pub(crate) fn describe_step(step: &StepOutcome) -> (String, String) {
    let expected = step.within.map(describe_within);
    let observed = describe_shifts(&step.shifts, &step.unmoved, step.packets_missed);
    (expected.unwrap_or_default(), observed)
}

#[cfg(test)]
mod tests {
    use serde::de::DeserializeOwned;
    use serde_json::{Value, json};

    use super::*;

    fn expectation<T: DeserializeOwned>(value: Value) -> T {
        serde_json::from_value(value).unwrap()
    }

    fn strings(items: &[&str]) -> BTreeSet<String> {
        items.iter().map(|&item| item.to_owned()).collect()
    }

    fn described(check: &Check) -> String {
        let (expected, observed) = describe_check(check);
        format!("{expected} | {observed}")
    }

    #[test]
    fn describe_expectation_any_is_a_keyword() {
        let expected = ProbeExpectation {
            any: true,
            ..ProbeExpectation::default()
        };
        assert_eq!(describe_expectation(&expected), "any");
    }

    #[test]
    fn describe_check_packets_counts_missed_packets() {
        let check = |missed| Check::Packets {
            expected: expectation(json!({"on": "n/eth0", "see": "SYN", "count": 2})),
            count: 1,
            missed,
        };
        insta::assert_snapshot!(described(&check(0)), @"2 × SYN | 1 ×");
        insta::assert_snapshot!(described(&check(1)), @"2 × SYN | 1 ×, but 1 packet was not captured");
        insta::assert_snapshot!(described(&check(2)), @"2 × SYN | 1 ×, but 2 packets were not captured");
    }

    #[test]
    fn describe_check_intervals_have_no_trailing_zeros() {
        let check = |intervals: Option<&[u64]>| {
            let intervals = intervals?.iter();
            Some(intervals.map(|each| Duration::from_millis(*each)).collect())
        };
        let check = |intervals| Check::Retransmissions {
            expected: expectation(json!({"on": "n/eth0", "see": "SYN", "resent": ["1s", "2s"]})),
            max_wait: Duration::from_secs(8),
            intervals: check(intervals),
            missed: 0,
        };
        insta::assert_snapshot!(
            described(&check(Some(&[1000, 2019, 4100]))),
            @"SYN, retransmitted after 1 s, 2 s, within 8 s | after 1 s, 2.02 s, 4.1 s"
        );
        insta::assert_snapshot!(
            described(&check(Some(&[]))),
            @"SYN, retransmitted after 1 s, 2 s, within 8 s | not retransmitted"
        );
        insta::assert_snapshot!(
            described(&check(None)),
            @"SYN, retransmitted after 1 s, 2 s, within 8 s | no matching packet"
        );
    }

    #[test]
    fn describe_check_chain_first_difference_is_named() {
        let check = |rules: Option<&[&str]>| {
            let rules = rules.map(|rules| rules.iter().map(|&rule| rule.to_owned()).collect());
            let expected = json!({"on": "n", "table": "nat", "chain": "A", "is": ["-j B", "-j C"]});
            let expected = expectation(expected);
            described(&Check::Chain { expected, rules })
        };
        insta::assert_snapshot!(check(None), @"nat A has the 2 expected rules | no such chain");
        insta::assert_snapshot!(
            check(Some(&["-j B", "-j C"])),
            @"nat A has the 2 expected rules | the expected rules"
        );
        insta::assert_snapshot!(
            check(Some(&["-j B"])),
            @"nat A has the 2 expected rules | 1 rule; rule 2 is absent, expected `-j C`"
        );
    }

    #[test]
    fn describe_check_state_lists_all_members() {
        let set = |table: Option<&str>, observed| Check::Set {
            expected: expectation(json!({
                "on": "n", "table": table, "set": "A", "type": "hash:ip,port",
                "members": ["10.0.0.2,tcp:80", "10.0.0.1,tcp:80"],
            })),
            observed,
        };
        let content = SetContent {
            kind: "hash:ip,port".to_owned(),
            members: strings(&["10.0.0.2,tcp:80"]),
        };
        insta::assert_snapshot!(
            described(&set(None, Some(content))),
            @"A is hash:ip,port {10.0.0.1,tcp:80 10.0.0.2,tcp:80} | hash:ip,port {10.0.0.2,tcp:80}"
        );
        insta::assert_snapshot!(
            described(&set(Some("ip t"), None)),
            @"ip t A is hash:ip,port {10.0.0.1,tcp:80; 10.0.0.2,tcp:80} | no such set"
        );
        let server = Check::VirtualServer {
            expected: expectation(json!({
                "on": "n", "server": "10.20.0.1:443", "is": ["-A -t 10.20.0.1:443 -s rr"],
            })),
            lines: BTreeSet::new(),
        };
        insta::assert_snapshot!(
            described(&server),
            @"10.20.0.1:443 is `-A -t 10.20.0.1:443 -s rr` | no virtual server"
        );
        let link = Check::Link {
            expected: expectation(json!({
                "on": "n/kube-ipvs0", "flags": ["NOARP", "BROADCAST", "UP"],
                "addresses": ["10.20.0.1/32"],
            })),
            observed: Some(LinkContent {
                flags: strings(&["BROADCAST", "NOARP"]),
                addresses: ["10.20.0.1/32".parse().unwrap()].into(),
            }),
        };
        insta::assert_snapshot!(
            described(&link),
            @"<BROADCAST,NOARP,UP> with {10.20.0.1/32} | <BROADCAST,NOARP> with {10.20.0.1/32}"
        );
    }
}
