//! Finds rules, set entries and chain policies that may be the cause.

use super::Failures;
use crate::why::change::ProposedChange;
use svclab_journey::journey::{Hop, PacketPath, PathEnd, RuleMatch, SysctlValue};
use svclab_planner::build::SOURCE_CHECK;
use svclab_planner::cluster::{FABRIC, INTERNET};

/// Targets that lead to other rules and do nothing else are those of user-defined chains. These
/// targets of user-defined rules change or end packets.
const ACTING_TARGETS: [&str; 17] = [
    "ACCEPT",
    "RETURN",
    "DROP",
    "REJECT",
    "DNAT",
    "SNAT",
    "REDIRECT",
    "MASQUERADE",
    "NETMAP",
    "MARK",
    "CONNMARK",
    "CT",
    "NOTRACK",
    "TTL",
    "HL",
    "TCPMSS",
    "TPROXY",
];

/// Returns the deletion of rules that decided about a packet: rules that dropped it, rules that
/// returned before masquerading, and rules that marked it for the drop. Also returns changes of the
/// policies and sysctls that dropped it.
pub(super) fn deciding_changes(failures: &Failures<'_>) -> Vec<ProposedChange> {
    let mut changes = Vec::new();
    for packet in failures.packets() {
        changes.extend(end_changes(packet));
    }
    for hop in failures.hops() {
        let early_returns = hop.matches.iter().filter(|step| is_early_return(step));
        changes.extend(early_returns.flat_map(|step| rule_changes(hop, step)));
    }
    changes
}

/// Returns the changes of what ended a packet.
fn end_changes(flight: &PacketPath) -> Vec<ProposedChange> {
    let Some(last) = flight.hops.last() else {
        return Vec::new();
    };
    match &flight.end {
        PathEnd::DroppedByRule => {
            let decisive = last.matches.last().into_iter();
            let mut changes: Vec<ProposedChange> =
                decisive.flat_map(|step| rule_changes(last, step)).collect();
            // An earlier rule marked the packet for the drop.
            let marking = last
                .matches
                .windows(2)
                .filter(|pair| pair[0].mark != pair[1].mark);
            for pair in marking {
                changes.extend(rule_changes(last, &pair[0]));
                let chain = &pair[0].chain;
                let jump = |step: &&RuleMatch| step.target.as_ref() == Some(chain);
                let jump = last.matches.iter().rev().find(jump);
                changes.extend(jump.into_iter().flat_map(|step| rule_changes(last, step)));
            }
            changes
        }
        PathEnd::Dropped { settings, .. } | PathEnd::CountedDrop { settings, .. } => {
            deciding_sysctls(last, settings).into_iter().collect()
        }
        _ => Vec::new(),
    }
}

/// Returns the deletion of every other rule that the packets matched and that acts on them.
pub(super) fn matched_rules(failures: &Failures<'_>) -> Vec<ProposedChange> {
    let steps = failures
        .hops()
        .flat_map(|hop| hop.matches.iter().map(move |step| (hop, step)));
    let acting = steps.filter(|(_, step)| {
        // The target of a rule of nftables is its text.
        let target = step.target.as_deref().unwrap_or_default();
        ACTING_TARGETS.contains(&target) || step.table.contains(' ')
    });
    acting
        .flat_map(|(hop, step)| rule_changes(hop, step))
        .collect()
}

/// Returns the deletion of a rule and of the set entries by which the rule matched. For the end of
/// a chain, returns the change of its policy.
fn rule_changes(hop: &Hop, step: &RuleMatch) -> Vec<ProposedChange> {
    // An operator cannot edit the rules of the network between nodes.
    if hop.namespace == FABRIC || hop.namespace == INTERNET {
        let is_source_check = step.chain.starts_with(SOURCE_CHECK);
        let change = is_source_check.then_some(ProposedChange::AllowForeignSources);
        return change.into_iter().collect();
    }
    let namespace = || hop.namespace.clone();
    let (table, chain) = (step.table.clone(), step.chain.clone());
    let v6 = step.flow.source.is_ipv6();
    let is_nftables = table.contains(' ');
    let mut changes = Vec::new();
    let entries = step.entries.iter();
    for (set, entry) in entries.filter_map(|entry| entry.split_once(' ')) {
        let (namespace, set) = (namespace(), set.to_owned());
        changes.push(if is_nftables {
            ProposedChange::DeleteNftElement {
                namespace,
                table: table.clone(),
                set,
                key: entry.to_owned(),
            }
        } else {
            ProposedChange::DeleteSetEntry {
                namespace,
                set,
                entry: entry.to_owned(),
            }
        });
    }
    let (Some(number), Some(rule)) = (step.number, step.rule.clone()) else {
        if step.number.is_none() && step.dropped {
            changes.push(ProposedChange::AcceptPolicy {
                namespace: namespace(),
                backend: step.backend,
                v6,
                table,
                chain,
            });
        }
        return changes;
    };
    changes.push(if is_nftables {
        ProposedChange::DeleteNftRule {
            namespace: namespace(),
            table,
            chain,
            number,
            rule,
        }
    } else {
        ProposedChange::DeleteRule {
            namespace: namespace(),
            backend: step.backend,
            v6,
            table,
            chain,
            number,
            rule,
        }
    });
    changes
}

/// Returns the change of the sysctls that decided about a packet.
fn deciding_sysctls(hop: &Hop, settings: &[SysctlValue]) -> Option<ProposedChange> {
    let name = &settings.first()?.name;
    let is_restriction = name.ends_with(".rp_filter") || name.ends_with(".disable_ipv6");
    let keys = settings.iter().map(|setting| setting.name.clone());
    Some(ProposedChange::SetSysctl {
        namespaces: vec![hop.namespace.clone()],
        keys: keys.collect(),
        value: if is_restriction { "0" } else { "1" }.to_owned(),
    })
}

/// Whether a rule ended the evaluation of a chain before other rules, as in a return before
/// masquerading. Excludes rules that only check for a mark.
pub(super) fn is_early_return(step: &RuleMatch) -> bool {
    step.rule.is_some()
        && matches!(step.target.as_deref(), Some("RETURN" | "ACCEPT"))
        && !step.matches_mark()
}
