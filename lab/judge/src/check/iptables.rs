//! Reads rules and their packet counters from saved iptables rules.

use svclab_model::evidence::SavedRules;
use svclab_scenario::expectation::RuleExpectation;

/// Returns the rules of a chain in order, without counters. The rules are those of the first saved
/// rules that have the chain; IPv4 precedes IPv6. `None` if no saved rules have the chain.
pub(crate) fn chain_rules(
    saved: &[SavedRules],
    netns: &str,
    table: &str,
    chain: &str,
) -> Option<Vec<String>> {
    let prefix = format!("-A {chain} ");
    let chain_in = |saved: &SavedRules| {
        let mut found: Option<Vec<String>> = None;
        for line in table_lines(saved, table) {
            if let Some(declared) = line.strip_prefix(':') {
                if declared.split(' ').next() == Some(chain) {
                    found.get_or_insert_default();
                }
            } else if let Some((_, appended)) = split_counter(line)
                && let (Some(rules), Some(rule)) = (found.as_mut(), appended.strip_prefix(&prefix))
            {
                rules.push(rule.to_owned());
            }
        }
        found
    };
    let mut own: Vec<&SavedRules> = saved_in(saved, netns).collect();
    own.sort_by_key(|rules| rules.ip_version);
    own.into_iter().find_map(chain_in)
}

/// Returns the number of packets that matched rules of a chain whose text contains `rule.rule`.
/// `None` if there is no such rule, or if its counter cannot be parsed.
pub(crate) fn count_hits(saved: &[SavedRules], netns: &str, rule: &RuleExpectation) -> Option<u64> {
    let prefix = format!("-A {} ", rule.chain);
    let lines = saved_in(saved, netns).flat_map(|rules| table_lines(rules, &rule.table));
    let counters = lines.filter_map(|line| {
        let (counters, appended) = split_counter(line)?;
        let text = appended.strip_prefix(&prefix)?;
        text.contains(rule.rule.trim()).then_some(counters)
    });
    let packets = counters.map(|counters| counters.split(':').next()?.parse::<u64>().ok());
    // An unparsable counter makes the sum meaningless.
    packets.reduce(|sum, packets| Some(sum?.saturating_add(packets?)))?
}

/// Returns the saved rules of a namespace.
fn saved_in<'s>(saved: &'s [SavedRules], netns: &str) -> impl Iterator<Item = &'s SavedRules> {
    saved.iter().filter(move |rules| rules.namespace == netns)
}

/// Returns the lines of a table.
fn table_lines<'s>(saved: &'s SavedRules, table: &str) -> impl Iterator<Item = &'s str> {
    let mut is_in_table = false;
    saved.text.lines().filter(move |line| {
        if let Some(name) = line.strip_prefix('*') {
            is_in_table = name.trim() == table;
        }
        is_in_table
    })
}

/// Splits `[packets:bytes] -A CHAIN …` into the counters and the rule.
fn split_counter(line: &str) -> Option<(&str, &str)> {
    line.strip_prefix('[')?.split_once("] ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use svclab_model::plan::Backend;
    use svclab_scenario::count::Count;

    #[test]
    fn count_hits_several_rules_adds_counters() {
        let text = "*filter\n[9:1] -A POSTROUTING -j RETURN\nCOMMIT\n*nat\n:POSTROUTING ACCEPT [0:0]\n\
                    [3:180] -A POSTROUTING ! -s 10.0.0.0/20 -d 10.0.2.0/24 -j RETURN\n\
                    [1:60] -A POSTROUTING -s 10.0.0.0/20 -d 10.0.0.0/20 -j RETURN\nCOMMIT\n";
        let saved = [SavedRules {
            namespace: "n".to_owned(),
            backend: Backend::Nft,
            ip_version: 4,
            text: text.to_owned(),
        }];
        let hits_of = |rule: &str| {
            let rule = RuleExpectation {
                on: "n".to_owned(),
                table: "nat".to_owned(),
                chain: "POSTROUTING".to_owned(),
                rule: rule.to_owned(),
                hits: Count::exactly(1),
            };
            count_hits(&saved, "n", &rule)
        };
        assert_eq!(
            hits_of("! -s 10.0.0.0/20 -d 10.0.2.0/24 -j RETURN"),
            Some(3)
        );
        assert_eq!(hits_of("-j RETURN"), Some(4));
        assert_eq!(hits_of("-j MASQUERADE"), None);
    }

    #[test]
    fn chain_rules_first_saved_rules_with_the_chain_count() {
        let saved = |backend, ip_version, rules: &str| SavedRules {
            namespace: "n".to_owned(),
            backend,
            ip_version,
            text: format!("*nat\n:A - [0:0]\n{rules}COMMIT\n"),
        };
        let other = SavedRules {
            text: "*nat\n:B - [0:0]\nCOMMIT\n".to_owned(),
            ..saved(Backend::Nft, 4, "")
        };
        let all = [
            other,
            saved(Backend::Nft, 6, "[0:0] -A A -j SIX\n"),
            saved(Backend::Legacy, 4, "[2:9] -A A -j LEGACY\n"),
        ];
        let rules = |saved: &[SavedRules], table| chain_rules(saved, "n", table, "A");
        assert_eq!(rules(&all, "nat").unwrap(), ["-j LEGACY"]);
        assert_eq!(rules(&all[..2], "nat").unwrap(), ["-j SIX"]);
        assert_eq!(rules(&all[..1], "nat"), None);
        assert_eq!(rules(&all, "filter"), None);
    }
}
