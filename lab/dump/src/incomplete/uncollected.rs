//! Names the state of a node that decides about packets, and that a dump does not contain.

use svclab_ruleset::tool::Format;

/// State that not every dump contains.
const OPTIONAL: [(&str, Format); 7] = [
    ("tables of nftables", Format::Nft),
    ("sets", Format::Sets),
    ("virtual servers of IPVS", Format::VirtualServers),
    ("queueing disciplines", Format::Qdiscs),
    ("traffic filters", Format::TrafficFilters),
    ("tracked connections", Format::Connections),
    ("IPsec policies", Format::IpsecPolicies),
];

/// State that no dump contains.
const NEVER_COLLECTED: [&str; 4] = [
    "BPF programs",
    "rules of ebtables",
    "rules of arptables",
    "VLANs of bridges",
];

/// Returns the state that is not in a dump, such as ``tracked connections (`conntrack -L`)``. `has`
/// states which formats the dump contains.
#[must_use]
pub fn uncollected_state(has: impl Fn(Format) -> bool) -> Vec<String> {
    let absent = OPTIONAL.into_iter().filter(|(_, format)| !has(*format));
    let absent = absent.map(|(state, format)| format!("{state} (`{}`)", format.command()));
    let never = NEVER_COLLECTED.map(str::to_owned);
    absent.chain(never).collect()
}
