//! Reads the kernel's network counters of a namespace.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use crate::net::netns::NetNs;
use crate::runtime::failure;
use svclab_diagnostic::suggest::did_you_mean;
use svclab_model::protocol::{Failure, FailureKind, NSTAT, RejectedInput};

/// Files with the counters. `/proc/net` would show those of the process's first thread. A kernel
/// without IPv6 lacks the last.
const COUNTER_FILES: [&str; 3] = [
    "/proc/thread-self/net/netstat",
    "/proc/thread-self/net/snmp",
    "/proc/thread-self/net/snmp6",
];

/// File with the statistics of conntrack, one row per processor.
const CONNTRACK_FILE: &str = "/proc/thread-self/net/stat/nf_conntrack";

/// Counters of conntrack that show lost packets, by their names in `conntrack -S`. The other columns
/// are constant, or grow with each connection (Linux v6.12, `net/netfilter/nf_conntrack_standalone.c`,
/// `ct_cpu_seq_show`).
const CONNTRACK_COUNTERS: [&str; 4] = ["insert_failed", "drop", "early_drop", "invalid"];

/// Returns every counter by its `nstat` name, such as `TcpExtIPReversePathFilter`, and those of
/// conntrack with a prefix: `conntrack.insert_failed`.
pub(crate) fn read(ns: &NetNs, name: &str) -> Result<BTreeMap<String, i64>, Failure> {
    ns.enter(|| {
        COUNTER_FILES
            .iter()
            .filter_map(|file| fs::read_to_string(file).ok())
            .flat_map(|text| parse(&text))
            .chain(
                fs::read_to_string(CONNTRACK_FILE)
                    .iter()
                    .flat_map(|text| parse_conntrack(text)),
            )
            .collect()
    })
    .map_err(|error| failure::cannot_enter(name, &error))
}

/// Checks that the kernel has all counters that the expectations name.
///
/// # Errors
///
/// When a counter is missing.
pub(crate) fn check(
    named: Option<&BTreeSet<String>>,
    counters: &BTreeMap<String, i64>,
    namespace: &str,
) -> Result<(), Failure> {
    let mut named = named.into_iter().flatten();
    let missing =
        named.find(|name| !counters.contains_key(*name) && !is_printed_only_if_nonzero(name));
    let Some(name) = missing else {
        return Ok(());
    };
    let message = format!("the kernel has no counter `{name}` in {namespace}");
    // Another kernel may have a counter without a similar name.
    let Some(similar) = did_you_mean(name, counters.keys().map(String::as_str)) else {
        return Err(Failure {
            kind: FailureKind::Machine,
            message,
            remedy: Some(format!(
                "use a name that `nstat -az` prints, one of `conntrack.{}`, or another kernel",
                CONNTRACK_COUNTERS.join("`, `conntrack.")
            )),
            rejected: None,
        });
    };
    Err(Failure {
        kind: FailureKind::Input,
        rejected: Some(Box::new(RejectedInput {
            namespace: namespace.to_owned(),
            program: NSTAT.to_owned(),
            line: name.clone(),
            line_number: 0,
            related_lines: Vec::new(),
            message: similar.clone(),
        })),
        message,
        remedy: Some(similar),
    })
}

/// Whether the kernel prints the counter only when it exceeds 0 (Linux v6.12, `net/ipv4/proc.c`,
/// `icmpmsg_put`; `net/ipv6/proc.c`, `snmp6_seq_show_icmpv6msg`).
fn is_printed_only_if_nonzero(name: &str) -> bool {
    let prefixes = [
        "IcmpMsgInType",
        "IcmpMsgOutType",
        "Icmp6InType",
        "Icmp6OutType",
    ];
    prefixes.iter().any(|prefix| {
        let number = name.strip_prefix(prefix);
        number.is_some_and(|number| number.parse::<u8>().is_ok())
    })
}

/// Parses the counters of a file, in one of two formats. Either each line has a name and a number,
/// or pairs of lines have names in the first and numbers in the second, after the name of their
/// group.
fn parse(text: &str) -> Vec<(String, i64)> {
    let lines: Vec<&str> = text.lines().collect();
    if !text.contains(':') {
        let counters = lines.iter().filter_map(|line| line.split_once('\t'));
        return counters
            .filter_map(|(name, number)| {
                Some((name.trim().to_owned(), number.trim().parse().ok()?))
            })
            .collect();
    }
    lines
        .chunks_exact(2)
        .filter_map(|pair| {
            let (group, names) = pair[0].split_once(':')?;
            let (_, numbers) = pair[1].split_once(':')?;
            Some(
                names
                    .split_whitespace()
                    .zip(numbers.split_whitespace())
                    .filter_map(move |(name, number)| {
                        Some((format!("{group}{name}"), number.parse().ok()?))
                    }),
            )
        })
        .flatten()
        .collect()
}

/// Parses the statistics of conntrack: a line of names, and a line of hexadecimal numbers for each
/// processor. Returns their sums.
fn parse_conntrack(text: &str) -> Vec<(String, i64)> {
    let mut lines = text.lines();
    let names: Vec<&str> = lines
        .next()
        .unwrap_or_default()
        .split_whitespace()
        .collect();
    let rows: Vec<Vec<i64>> = lines
        .map(|line| {
            let numbers = line.split_whitespace();
            numbers
                .filter_map(|number| i64::from_str_radix(number, 16).ok())
                .collect()
        })
        .collect();
    let columns = names.iter().enumerate();
    columns
        .filter(|(_, name)| CONNTRACK_COUNTERS.contains(name))
        .map(|(column, name)| {
            let sum = rows.iter().filter_map(|row| row.get(column)).sum();
            (format!("conntrack.{name}"), sum)
        })
        .collect()
}

/// Returns the counters that changed, with the differences.
pub(crate) fn diff(
    before: &BTreeMap<String, i64>,
    after: &BTreeMap<String, i64>,
) -> BTreeMap<String, i64> {
    after
        .iter()
        .map(|(name, now)| (name.clone(), now - before.get(name).copied().unwrap_or(0)))
        .filter(|(_, by)| *by != 0)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counter_names_match_nstat() {
        let text = "TcpExt: SyncookiesSent IPReversePathFilter\nTcpExt: 0 3\nIpExt: InNoRoutes\nIpExt: 1\n";
        let read: BTreeMap<_, _> = parse(text).into_iter().collect();
        assert_eq!(read["TcpExtIPReversePathFilter"], 3);
        assert_eq!(read["IpExtInNoRoutes"], 1);
        let text = "Ip6InReceives                   \t5\nIcmp6OutType135                 \t1\n";
        let read: BTreeMap<_, _> = parse(text).into_iter().collect();
        assert_eq!(read["Ip6InReceives"], 5);
        assert_eq!(read["Icmp6OutType135"], 1);
    }

    #[test]
    fn conntrack_counters_are_sums_of_processors() {
        let text = "entries  clashres found insert_failed drop\n\
                    00000002  00000000 00000000 00000003 00000001\n\
                    00000002  00000000 00000000 0000000a 00000000\n";
        let read: BTreeMap<_, _> = parse_conntrack(text).into_iter().collect();
        let expected = [("conntrack.drop", 1), ("conntrack.insert_failed", 13)];
        assert_eq!(
            read,
            expected.map(|(name, sum)| (name.to_owned(), sum)).into()
        );
    }

    #[test]
    fn missing_counter_returns_error() {
        let known = BTreeMap::from([("TcpOutRsts".to_owned(), 0)]);
        let check = |name: &str| {
            let named = BTreeSet::from([name.to_owned()]);
            check(Some(&named), &known, "node-1").map_err(|failure| failure.message)
        };
        assert_eq!(check("TcpOutRsts"), Ok(()));
        assert_eq!(check("IcmpMsgInType3"), Ok(()));
        for name in ["TcpOutRst", "Tcp", "IcmpMsgInType", "IcmpMsgInType256"] {
            let message = format!("the kernel has no counter `{name}` in node-1");
            assert_eq!(check(name), Err(message));
        }
    }

    #[test]
    fn diff_omits_unchanged_counters() {
        let before = BTreeMap::from([("a".to_owned(), 1), ("b".to_owned(), 5)]);
        let after = BTreeMap::from([
            ("a".to_owned(), 4),
            ("b".to_owned(), 5),
            ("c".to_owned(), 2),
        ]);
        assert_eq!(
            diff(&before, &after),
            BTreeMap::from([("a".to_owned(), 3), ("c".to_owned(), 2)])
        );
    }

    #[test]
    fn misspelt_counter_is_error_of_input() {
        let known = BTreeMap::from([("TcpOutRsts".to_owned(), 0)]);
        let kind = |name: &str| {
            let named = BTreeSet::from([name.to_owned()]);
            check(Some(&named), &known, "node-1").unwrap_err().kind
        };
        assert_eq!(kind("TcpOutRst"), FailureKind::Input);
        assert_eq!(kind("TcpExtNoSuch"), FailureKind::Machine);
    }
}
