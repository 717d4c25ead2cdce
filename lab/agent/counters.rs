//! The kernel's own counters of a namespace.

use std::collections::BTreeMap;
use std::fs;

use super::failure;
use super::netns::NetNs;
use crate::protocol::Failure;

/// Where they are. `/proc/net` would be those of the process's first thread.
const FILES: [&str; 2] = [
    "/proc/thread-self/net/netstat",
    "/proc/thread-self/net/snmp",
];

/// Every counter by the name `nstat` gives it: `TcpExtIPReversePathFilter`.
///
/// # Errors
///
/// When the namespace cannot be entered.
pub fn read(ns: &NetNs, name: &str) -> Result<BTreeMap<String, i64>, Failure> {
    ns.enter(|| {
        FILES
            .iter()
            .filter_map(|file| fs::read_to_string(file).ok())
            .flat_map(|text| parse(&text))
            .collect()
    })
    .map_err(|error| failure::entering(name, &error))
}

/// Pairs of lines, the first with names, the second with numbers, both led by
/// the name of their group.
fn parse(text: &str) -> Vec<(String, i64)> {
    let lines: Vec<&str> = text.lines().collect();
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

/// What grew, and by how much.
#[must_use]
pub fn growth(
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
    fn counters_are_named_as_nstat_names_them() {
        let text = "TcpExt: SyncookiesSent IPReversePathFilter\nTcpExt: 0 3\nIpExt: InNoRoutes\nIpExt: 1\n";
        let read: BTreeMap<_, _> = parse(text).into_iter().collect();
        assert_eq!(read["TcpExtIPReversePathFilter"], 3);
        assert_eq!(read["IpExtInNoRoutes"], 1);
    }

    #[test]
    fn growth_leaves_out_what_stood_still() {
        let before = BTreeMap::from([("a".to_owned(), 1), ("b".to_owned(), 5)]);
        let after = BTreeMap::from([
            ("a".to_owned(), 4),
            ("b".to_owned(), 5),
            ("c".to_owned(), 2),
        ]);
        assert_eq!(
            growth(&before, &after),
            BTreeMap::from([("a".to_owned(), 3), ("c".to_owned(), 2)])
        );
    }
}
