//! Reads rules and their packet counters from saved iptables rules.

use svclab_model::evidence::SavedRules;
use svclab_scenario::expectation::RuleExpectation;

/// Returns the rules of a chain in order, without counters. The rules of both address families and
/// of both backends follow each other in the order of `saved`. `None` if no saved rules have the
/// chain.
pub(crate) fn chain_rules(
    saved: &[SavedRules],
    netns: &str,
    table: &str,
    chain: &str,
) -> Option<Vec<String>> {
    let prefix = format!("-A {chain} ");
    let mut found: Option<Vec<String>> = None;
    for line in table_lines(saved, netns, table) {
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
}

/// Returns the number of packets that matched rules of a chain whose text contains `rule.rule`.
/// `None` if there is no such rule, or if its counter cannot be parsed.
pub(crate) fn count_hits(saved: &[SavedRules], netns: &str, rule: &RuleExpectation) -> Option<u64> {
    let prefix = format!("-A {} ", rule.chain);
    let counters = table_lines(saved, netns, &rule.table).filter_map(|line| {
        let (counters, appended) = split_counter(line)?;
        let text = appended.strip_prefix(&prefix)?;
        text.contains(rule.rule.trim()).then_some(counters)
    });
    let packets = counters.map(|counters| counters.split(':').next()?.parse::<u64>().ok());
    // An unparsable counter makes the sum meaningless.
    packets.reduce(|sum, packets| Some(sum?.saturating_add(packets?)))?
}

/// Returns the lines of a table in all saved rules of a namespace.
fn table_lines<'s>(
    saved: &'s [SavedRules],
    netns: &str,
    table: &str,
) -> impl Iterator<Item = &'s str> {
    let own = saved.iter().filter(move |rules| rules.namespace == netns);
    own.flat_map(move |rules| {
        let mut is_in_table = false;
        rules.text.lines().filter(move |line| {
            if let Some(name) = line.strip_prefix('*') {
                is_in_table = name.trim() == table;
            }
            is_in_table
        })
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
    fn chain_rules_both_families_and_backends_count() {
        let saved = |backend, ip_version, rules: &str| SavedRules {
            namespace: "n".to_owned(),
            backend,
            ip_version,
            text: format!("*nat\n:A - [0:0]\n{rules}COMMIT\n"),
        };
        let all = [
            saved(Backend::Nft, 4, ""),
            saved(Backend::Nft, 6, "[0:0] -A A -j SIX\n"),
            saved(Backend::Legacy, 4, "[2:9] -A A -j LEGACY\n"),
        ];
        let rules = |saved: &[SavedRules], table| chain_rules(saved, "n", table, "A");
        let expected = ["-j SIX", "-j LEGACY"].map(str::to_owned);
        assert_eq!(rules(&all, "nat").unwrap(), expected);
        assert_eq!(rules(&all[..1], "nat").unwrap(), Vec::<String>::new());
        assert_eq!(rules(&all, "filter"), None);
        assert_eq!(rules(&all[1..2], "nat").unwrap(), expected[..1]);
    }
}
