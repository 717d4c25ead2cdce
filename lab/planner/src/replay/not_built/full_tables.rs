//! Reports tables of the kernel that were full on the node.

use super::super::known_sysctls::CONNTRACK_MAX;
use super::super::report::{FileLine, OmittedItem};
use svclab_dump::NodeDump;
use svclab_ruleset::neighbour::State;
use svclab_ruleset::sysctl::Sysctls;
use svclab_ruleset::tool::Format;

/// Percentage of the maximum from which a table counts as full: entries that are being removed
/// count, too, and a dump shows only those of one network namespace.
const FULL_PERCENT: u64 = 95;

/// Maximum numbers of neighbours, with the family (Linux v6.12, `net/core/neighbour.c`,
/// `neigh_alloc`).
const NEIGHBOUR_MAX: [(&str, bool); 2] = [
    ("net.ipv4.neigh.default.gc_thresh3", true),
    ("net.ipv6.neigh.default.gc_thresh3", false),
];

/// Returns the maximum of each table that was full as an omitted item.
pub fn full_tables(dump: &NodeDump, sysctls: &Sysctls) -> Vec<OmittedItem> {
    let neighbours = NEIGHBOUR_MAX
        .into_iter()
        .filter_map(|(key, is_ipv4)| full_neighbour_table(dump, sysctls, key, is_ipv4));
    let connections = full_conntrack_table(dump, sysctls);
    connections.into_iter().chain(neighbours).collect()
}

/// Returns a numeric sysctl with its line.
fn number(sysctls: &Sysctls, key: &str) -> Option<(u64, u32)> {
    let setting = sysctls.get(key)?;
    Some((setting.values.first()?.trim().parse().ok()?, setting.line))
}

fn is_full(count: u64, maximum: u64) -> bool {
    count.saturating_mul(100) >= maximum.saturating_mul(FULL_PERCENT)
}

fn full_conntrack_table(dump: &NodeDump, sysctls: &Sysctls) -> Option<OmittedItem> {
    let mut names = CONNTRACK_MAX.iter();
    let (maximum, line) = names.find_map(|key| number(sysctls, key))?;
    let (count, _) = number(sysctls, "net.netfilter.nf_conntrack_count")?;
    if !is_full(count, maximum) {
        return None;
    }
    let location = FileLine::in_dump(dump, Format::Sysctls, line)?;
    let item = OmittedItem::new(
        Some(location),
        format!("{} = {maximum}", CONNTRACK_MAX[0]),
        "only the first network namespace of a kernel has this limit",
    );
    Some(item.with_effect(format!(
        "the node tracked {count} connections; the kernel drops packets of further connections \
         (table full)"
    )))
}

/// Permanent entries, and those without resolution, do not count.
fn full_neighbour_table(
    dump: &NodeDump,
    sysctls: &Sysctls,
    key: &str,
    is_ipv4: bool,
) -> Option<OmittedItem> {
    let (maximum, line) = number(sysctls, key)?;
    let neighbours = dump.neighbours.iter().flatten();
    let counted = neighbours.filter(|neighbour| {
        let is_resolved = !matches!(neighbour.state, State::Permanent | State::NoArp);
        is_resolved && neighbour.address.is_ipv4() == is_ipv4
    });
    let count = u64::try_from(counted.count()).unwrap_or(u64::MAX);
    if !is_full(count, maximum) {
        return None;
    }
    let location = FileLine::in_dump(dump, Format::Sysctls, line)?;
    let item = OmittedItem::new(
        Some(location),
        format!("{key} = {maximum}"),
        "all network namespaces of a kernel share this limit",
    );
    Some(item.with_effect(format!(
        "the node had {count} neighbours; the kernel drops packets to further ones (table full)"
    )))
}
