//! Reads native nftables tables, and counts how many packets matched their rules. Most rules have
//! no counter, so the kernel's trace events are counted.

use std::collections::{BTreeMap, BTreeSet};

use svclab_model::evidence::met::At;
use svclab_model::evidence::{Evidence, Held, Met};
use svclab_model::plan::Backend;
use svclab_ruleset::nft::Table;
use svclab_ruleset::nft::{canonical, parse, tables};
use svclab_scenario::expectation::RuleExpectation;

/// Returns the table with a family and name, such as `ip kube-proxy`, from the output of
/// `nft list ruleset`.
fn table(held: &Held, name: &str) -> Option<Table> {
    let (_, text) = tables(&held.nft).find(|(known, _)| *known == name)?;
    let ruleset = parse(text).ok()?;
    ruleset.tables.into_iter().next()
}

/// Returns the rules of a chain in order, with their comments. `None` if the chain does not exist.
pub fn rules_of(held: &Held, name: &str, chain: &str) -> Option<Vec<String>> {
    let table = table(held, name)?;
    let rules = table.chain(chain)?.rules.iter();
    Some(rules.map(ToString::to_string).collect())
}

/// Whether two lists of rules have the same meaning, regardless of the notation of `nft`.
pub fn are_same(one: &[String], other: &[String]) -> bool {
    let means =
        |rules: &[String]| -> Vec<String> { rules.iter().map(|rule| canonical(rule)).collect() };
    means(one) == means(other)
}

/// Returns the type of a set or map, such as `ipv4_addr . inet_service : verdict`, and its entries
/// without comments. `None` if it does not exist.
pub fn set_of(held: &Held, name: &str, set: &str) -> Option<(String, BTreeSet<String>)> {
    let table = table(held, name)?;
    let set = table.set(set)?;
    let kind = set.holds.trim_start_matches("type ");
    let entries = set.elements.iter().map(|element| match &element.value {
        Some(value) => format!("{} : {value}", element.key),
        None => element.key.clone(),
    });
    Some((kind.to_owned(), entries.collect()))
}

/// Returns the number of packets that matched rules of a chain whose text contains `rule.rule`.
/// `None` if there is no such rule.
pub fn hits(evidence: &Evidence, netns: &str, rule: &RuleExpectation) -> Option<u64> {
    let rules = rules_of(evidence.held.get(netns)?, &rule.table, &rule.chain)?;
    let (family, name) = rule.table.split_once(' ')?;
    let mut met: BTreeMap<u32, u64> = BTreeMap::new();
    let is_here = |met: &&Met| {
        let ip = match family {
            "ip" => !met.inet && met.ip == 4,
            "ip6" => !met.inet && met.ip == 6,
            _ => met.inet,
        };
        ip && met.by == Backend::Nft
            && (met.namespace.as_str(), met.table.as_str()) == (netns, name)
            && met.chain == rule.chain
    };
    for step in evidence.met.iter().filter(is_here) {
        if let At::Rule(number) = step.at {
            *met.entry(number).or_default() += 1;
        }
    }
    let wanted = rules
        .iter()
        .zip(1..)
        .filter(|(text, _)| text.contains(rule.rule.trim()))
        .map(|(_, number)| met.get(&number).copied().unwrap_or(0));
    wanted.reduce(u64::saturating_add)
}

#[cfg(test)]
mod tests {
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

    fn held() -> Held {
        Held {
            nft: TEXT.to_owned(),
            ..Held::default()
        }
    }

    #[test]
    fn a_chain_is_what_its_rules_mean() {
        let found = rules_of(&held(), "ip kube-proxy", "a").unwrap();
        let written = [
            "mark set mark or 0x4000",
            "tcp dport 80 drop comment \"why\"",
            "tcp dport 81 drop",
        ]
        .map(str::to_owned);
        assert!(are_same(&found, &written));
        assert!(!are_same(&found, &written[..2]));
        assert_eq!(rules_of(&held(), "ip6 kube-proxy", "a"), None);
        assert_eq!(rules_of(&held(), "ip kube-proxy", "b"), None);
        assert_eq!(rules_of(&held(), "ip other", "a"), Some(Vec::new()));
    }

    #[test]
    fn a_map_is_its_type_and_its_entries() {
        let (kind, entries) = set_of(&held(), "ip kube-proxy", "services").unwrap();
        assert_eq!(kind, "inet_proto . inet_service : verdict");
        let wanted = ["tcp . 80 : drop", "udp . 53 : goto a"].map(str::to_owned);
        assert_eq!(entries, BTreeSet::from(wanted));
        assert_eq!(set_of(&held(), "ip other", "services"), None);
    }

    #[test]
    fn steps_are_counted_by_rule() {
        let met = |ip, number| Met {
            namespace: "node-1".to_owned(),
            by: Backend::Nft,
            pass: 0,
            packet: None,
            ip,
            input: None,
            output: None,
            mark: 0,
            table: "kube-proxy".to_owned(),
            inet: false,
            chain: "a".to_owned(),
            at: At::Rule(number),
            verdict: None,
        };
        let evidence = Evidence {
            met: vec![met(4, 1), met(4, 2), met(4, 2), met(6, 2), met(4, 3)],
            held: [("node-1".to_owned(), held())].into(),
            ..Evidence::default()
        };
        let of = |text: &str| {
            let rule = RuleExpectation {
                on: "node-1".to_owned(),
                table: "ip kube-proxy".to_owned(),
                chain: "a".to_owned(),
                rule: text.to_owned(),
                hits: Count::exactly(1),
            };
            hits(&evidence, "node-1", &rule)
        };
        assert_eq!(of("dport 80 drop"), Some(2));
        assert_eq!(of("drop"), Some(3));
        assert_eq!(of("accept"), None);
    }
}
