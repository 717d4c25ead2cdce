//! Compares sysctls of the network.

use super::super::difference::Place;
use super::{Comparison, names, value};
use svclab_ruleset::sysctl::Sysctls;

/// Sysctls that count or have random values.
const COUNTED: [&str; 3] = [
    "net.netfilter.nf_conntrack_count",
    "net.nf_conntrack_count",
    "net.ipv4.tcp_fastopen_key",
];

pub(super) fn compare(to: &mut Comparison<'_>, first: &Sysctls, second: &Sysctls) {
    for key in names(first.keys(), second.keys()) {
        if !key.starts_with("net.")
            || COUNTED.contains(&key.as_str())
            || key.ends_with(".stable_secret")
        {
            continue;
        }
        let said = |sysctls: &Sysctls| {
            let lines = sysctls.get(key)?.values.iter();
            let lines = lines.map(|line| {
                let words: Vec<&str> = line.split_ascii_whitespace().collect();
                words.join(" ")
            });
            Some(lines.collect::<Vec<_>>().join(" | "))
        };
        let (one, other) = (said(first), said(second));
        if let Some(change) = value(key, one.as_deref(), other.as_deref()) {
            to.differ(Place::Sysctls, change, None);
        }
    }
}
