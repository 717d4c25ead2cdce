//! Decides whether rules of iptables give the same result for a retransmission.

use svclab_ruleset::iptables::Rule;

/// Matches that give the same result for identical packets, as long as sysctls, sets and addresses
/// do not change.
const DETERMINISTIC_MATCHES: [&str; 25] = [
    "addrtype",
    "ah",
    "bpf",
    "comment",
    "conntrack",
    "dscp",
    "ecn",
    "esp",
    "icmp",
    "icmp6",
    "iprange",
    "length",
    "mac",
    "mark",
    "multiport",
    // `nfacct` only counts, unless its object has a quota, and no lab sets a quota (Linux v6.12,
    // `net/netfilter/xt_nfacct.c`, `nfacct_mt`).
    "nfacct",
    "owner",
    "physdev",
    "pkttype",
    "rpfilter",
    "sctp",
    "set",
    "state",
    "tcp",
    "udp",
];

/// Targets that always do the same to identical packets.
pub(super) const DETERMINISTIC_TARGETS: [&str; 8] = [
    "ACCEPT", "CT", "DNAT", "DROP", "MARK", "NOTRACK", "RETURN", "TCPMSS",
];

/// Checks that a rule is deterministic. The flag states whether the connection has received a reply
/// since the first packet.
pub(super) fn check_rule(rule: &Rule, is_replied: bool) -> Result<(), String> {
    let parts = rule.parts();
    let nondeterministic = parts
        .matches
        .iter()
        .find(|module| !DETERMINISTIC_MATCHES.contains(&module.name.as_ref()));
    if let Some(module) = nondeterministic {
        return Err(format!("`-m {}` may have another result", module.name));
    }
    let matches_state = parts
        .matches
        .iter()
        .any(|module| matches!(module.name.as_ref(), "conntrack" | "state"));
    let target = rule.target();
    if is_replied && matches_state && !matches!(target.as_deref(), Some("ACCEPT" | "DROP")) {
        return Err("a rule matches on the reply state of the connection".to_owned());
    }
    Ok(())
}

/// Whether the destination of a rule leaves no choice.
pub(super) fn has_one_destination(rule: &Rule) -> bool {
    let parts = rule.parts();
    let options = parts.target.iter().flat_map(|target| &target.options);
    options
        .filter(|choice| choice.name == "--to-destination")
        .flat_map(|choice| &choice.values)
        .all(|to| !to.contains('-'))
        && !rule.source_text().contains("--random")
}
