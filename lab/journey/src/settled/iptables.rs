//! Decides whether rules of iptables give the same result for a retransmission.

use super::ConntrackState;
use super::sets::FixedSets;
use svclab_ruleset::iptables::Rule;
use svclab_ruleset::iptables::parts::MatchModule;

/// Matches that give the same result for identical packets, as long as sysctls and addresses do not
/// change. `bpf` is absent: a program can draw at random, and can read the time.
const DETERMINISTIC_MATCHES: [&str; 23] = [
    "addrtype",
    "ah",
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
    "state",
    "tcp",
    "udp",
];

/// Targets that always do the same to identical packets.
pub(super) const DETERMINISTIC_TARGETS: [&str; 8] = [
    "ACCEPT", "CT", "DNAT", "DROP", "MARK", "NOTRACK", "RETURN", "TCPMSS",
];

/// Checks that a rule is deterministic, given the conntrack state of the connection and the sets
/// with permanent entries.
pub(super) fn check_rule(
    rule: &Rule,
    state: ConntrackState,
    sets: Option<&FixedSets>,
) -> Result<(), String> {
    let parts = rule.parts();
    let nondeterministic = parts.matches.iter().find(|module| match &*module.name {
        "set" => !sets.is_some_and(|sets| sets.is_fixed_match(module)),
        "conntrack" => !is_fixed_conntrack_match(module, state),
        name => !DETERMINISTIC_MATCHES.contains(&name),
    });
    if let Some(module) = nondeterministic {
        return Err(format!("`-m {}` may have another result", module.name));
    }
    let matches_state = parts
        .matches
        .iter()
        .any(|module| matches!(module.name.as_ref(), "conntrack" | "state"));
    let target = rule.target();
    let is_replied = state == ConntrackState::Replied;
    if is_replied && matches_state && !matches!(target.as_deref(), Some("ACCEPT" | "DROP")) {
        return Err("a rule matches on the reply state of the connection".to_owned());
    }
    Ok(())
}

/// Whether `-m conntrack` depends neither on the time nor on the confirmation of the entry. The kernel
/// confirms an entry after the rules for the first packet.
fn is_fixed_conntrack_match(module: &MatchModule<'_>, state: ConntrackState) -> bool {
    module.options.iter().all(|option| match &*option.name {
        "--ctexpire" => false,
        "--ctstatus" => state == ConntrackState::NoEntry,
        _ => true,
    })
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn check_rule_changing_result_fails() {
        use ConntrackState::{NoEntry, Unreplied};
        for (words, state, expected) in [
            ("-p tcp --dport 80 -j DROP", NoEntry, true),
            ("-m conntrack --ctstate NEW -j DROP", Unreplied, true),
            ("-m conntrack --ctstatus CONFIRMED -j ACCEPT", NoEntry, true),
            (
                "-m conntrack --ctstatus CONFIRMED -j ACCEPT",
                Unreplied,
                false,
            ),
            ("-m conntrack --ctexpire 1:9 -j ACCEPT", NoEntry, false),
            ("-m set --match-set c src -j DROP", NoEntry, false),
            ("-m bpf --bytecode \"1,6 0 0 1\" -j DROP", NoEntry, false),
            ("-m time --timestart 10:00 -j DROP", NoEntry, false),
            ("-m limit --limit 1/sec -j ACCEPT", NoEntry, false),
        ] {
            let result = check_rule(&Rule::from_words(words).unwrap(), state, None);
            assert_eq!(result.is_ok(), expected, "{words}: {result:?}");
        }
    }
}
