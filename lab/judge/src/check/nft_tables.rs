//! Reads native nftables tables, and counts how many packets matched their rules. Most rules have
//! no counter, so the kernel's trace events are counted.

use std::collections::BTreeMap;

use crate::check::SetContent;
use svclab_model::evidence::trace::TracePoint;
use svclab_model::evidence::{KernelState, StageEvidence, TraceEvent};
use svclab_model::plan::Backend;
use svclab_ruleset::nft::Table;
use svclab_ruleset::nft::{canonical, parse, tables};
use svclab_scenario::expectation::RuleExpectation;

/// Returns the table with a family and name, such as `ip kube-proxy`, from the output of
/// `nft list ruleset`.
fn find_table(held: &KernelState, name: &str) -> Option<Table> {
    let (_, text) = tables(&held.nft).find(|(known, _)| *known == name)?;
    let ruleset = parse(text).ok()?;
    ruleset.tables.into_iter().next()
}

/// Returns the rules of a chain in order, with their comments. `None` if the chain does not exist.
pub(crate) fn chain_rules(held: &KernelState, name: &str, chain: &str) -> Option<Vec<String>> {
    let table = find_table(held, name)?;
    let rules = table.chain(chain)?.rules.iter();
    Some(rules.map(ToString::to_string).collect())
}

/// Whether two lists of rules have the same meaning, regardless of the notation of `nft`.
pub(crate) fn is_equivalent(left: &[String], right: &[String]) -> bool {
    let canonical_rules =
        |rules: &[String]| -> Vec<String> { rules.iter().map(|rule| canonical(rule)).collect() };
    canonical_rules(left) == canonical_rules(right)
}

/// Returns the type of a set or map, such as `ipv4_addr . inet_service : verdict`, and its entries
/// without comments. `None` if it does not exist.
pub(crate) fn find_set(held: &KernelState, name: &str, set: &str) -> Option<SetContent> {
    let table = find_table(held, name)?;
    let set = table.set(set)?;
    let kind = set.type_line.trim_start_matches("type ").to_owned();
    let entries = set.elements.iter().map(|element| match &element.value {
        Some(value) => format!("{} : {value}", element.key),
        None => element.key.clone(),
    });
    let members = entries.collect();
    Some(SetContent { kind, members })
}

/// Returns the number of packets that matched rules of a chain whose text contains `rule.rule`.
/// `None` if there is no such rule.
pub(crate) fn count_hits(
    evidence: &StageEvidence,
    netns: &str,
    rule: &RuleExpectation,
) -> Option<u64> {
    let rules = chain_rules(evidence.kernel_state.get(netns)?, &rule.table, &rule.chain)?;
    let (family, name) = rule.table.split_once(' ')?;
    let mut counts: BTreeMap<u32, u64> = BTreeMap::new();
    let is_in_chain = |event: &&TraceEvent| {
        let is_family = match family {
            "ip" => !event.inet && event.ip_version == 4,
            "ip6" => !event.inet && event.ip_version == 6,
            _ => event.inet,
        };
        is_family
            && event.backend == Backend::Nft
            && (event.namespace.as_str(), event.table.as_str()) == (netns, name)
            && event.chain == rule.chain
    };
    for step in evidence.trace.iter().filter(is_in_chain) {
        if let TracePoint::Rule(number) = step.point {
            *counts.entry(number).or_default() += 1;
        }
    }
    let counts_of_matches = rules
        .iter()
        .zip(1..)
        .filter(|(text, _)| text.contains(rule.rule.trim()))
        .map(|(_, number)| counts.get(&number).copied().unwrap_or(0));
    counts_of_matches.reduce(u64::saturating_add)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use svclab_scenario::count::Count;

    const TEXT: &str = "\
table ip other {
	chain a {
	}
}
table ip kube-proxy {
	map services {
		type inet_proto . inet_service : verdict
		elements = { tcp . 80 comment \"ns/web:p\" : drop, udp . 53 : goto a }
	}

	chain a {
		meta mark set meta mark | 0x00004000
		tcp dport 80 drop comment \"why\"
		tcp dport 81 drop
	}
}
";

    fn kernel_state() -> KernelState {
        KernelState {
            nft: TEXT.to_owned(),
            ..KernelState::default()
        }
    }

    #[test]
    fn chain_rules_compare_by_meaning() {
        let rules = chain_rules(&kernel_state(), "ip kube-proxy", "a").unwrap();
        let written = [
            "mark set mark or 0x4000",
            "tcp dport 80 drop comment \"why\"",
            "tcp dport 81 drop",
        ]
        .map(str::to_owned);
        assert!(is_equivalent(&rules, &written));
        assert!(!is_equivalent(&rules, &written[..2]));
        assert_eq!(chain_rules(&kernel_state(), "ip6 kube-proxy", "a"), None);
        assert_eq!(chain_rules(&kernel_state(), "ip kube-proxy", "b"), None);
        assert_eq!(
            chain_rules(&kernel_state(), "ip other", "a"),
            Some(Vec::new())
        );
    }

    #[test]
    fn find_set_map_returns_type_and_entries() {
        let found = find_set(&kernel_state(), "ip kube-proxy", "services").unwrap();
        assert_eq!(found.kind, "inet_proto . inet_service : verdict");
        let expected = ["tcp . 80 : drop", "udp . 53 : goto a"].map(str::to_owned);
        assert_eq!(found.members, BTreeSet::from(expected));
        assert_eq!(find_set(&kernel_state(), "ip other", "services"), None);
    }

    #[test]
    fn count_hits_trace_events_counted_by_rule() {
        let trace_event = |ip, number| TraceEvent {
            namespace: "node-1".to_owned(),
            backend: Backend::Nft,
            trace_id: 0,
            packet: None,
            ip_version: ip,
            input: None,
            output: None,
            mark: 0,
            table: "kube-proxy".to_owned(),
            inet: false,
            chain: "a".to_owned(),
            point: TracePoint::Rule(number),
            verdict: None,
        };
        let evidence = StageEvidence {
            trace: vec![
                trace_event(4, 1),
                trace_event(4, 2),
                trace_event(4, 2),
                trace_event(6, 2),
                trace_event(4, 3),
            ],
            kernel_state: [("node-1".to_owned(), kernel_state())].into(),
            ..StageEvidence::default()
        };
        let hits_of = |text: &str| {
            let rule = RuleExpectation {
                on: "node-1".to_owned(),
                table: "ip kube-proxy".to_owned(),
                chain: "a".to_owned(),
                rule: text.to_owned(),
                hits: Count::exactly(1),
            };
            count_hits(&evidence, "node-1", &rule)
        };
        assert_eq!(hits_of("dport 80 drop"), Some(2));
        assert_eq!(hits_of("drop"), Some(3));
        assert_eq!(hits_of("accept"), None);
    }
}
