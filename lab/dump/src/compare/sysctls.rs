//! Compares sysctls of the network.

use super::super::difference::DumpLocation;
use super::{Comparison, union_of_names, value_change};
use svclab_ruleset::sysctl::Sysctls;

/// Sysctls that count or have random values.
const VOLATILE_SYSCTLS: [&str; 3] = [
    "net.netfilter.nf_conntrack_count",
    "net.nf_conntrack_count",
    "net.ipv4.tcp_fastopen_key",
];

pub(super) fn compare(comparison: &mut Comparison<'_>, first: &Sysctls, second: &Sysctls) {
    for key in union_of_names(first.keys(), second.keys()) {
        if !key.starts_with("net.")
            || VOLATILE_SYSCTLS.contains(&key.as_str())
            || key.ends_with(".stable_secret")
        {
            continue;
        }
        let values = |sysctls: &Sysctls| {
            let lines = sysctls.get(key)?.values.iter();
            let lines = lines.map(|line| {
                let words: Vec<&str> = line.split_ascii_whitespace().collect();
                words.join(" ")
            });
            Some(lines.collect::<Vec<_>>().join(" | "))
        };
        let (first_value, second_value) = (values(first), values(second));
        if let Some(change) = value_change(key, first_value.as_deref(), second_value.as_deref()) {
            comparison.add_difference(DumpLocation::Sysctls, change, None);
        }
    }
}
