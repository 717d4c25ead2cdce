//! Reads rules and their packet counters from saved iptables rules.

use svclab_model::evidence::SavedRules;
use svclab_scenario::expectation::RuleExpectation;

/// Returns the rules of a chain in order, without counters. `None` if the table or the chain does
/// not exist.
#[must_use]
pub fn chain_rules(
    saved: &[SavedRules],
    netns: &str,
    table: &str,
    chain: &str,
) -> Option<Vec<String>> {
    let text = &saved
        .iter()
        .find(|rules| rules.namespace == netns && rules.ip_version == 4)?
        .text;
    let prefix = format!("-A {chain} ");
    let mut is_in_table = false;
    let mut found = None;
    for line in text.lines() {
        if let Some(name) = line.strip_prefix('*') {
            is_in_table = name.trim() == table;
        } else if is_in_table
            && line
                .strip_prefix(':')
                .and_then(|line| line.split(' ').next())
                == Some(chain)
        {
            found = Some(Vec::new());
        } else if is_in_table
            && let Some((_, appended)) = line
                .strip_prefix('[')
                .and_then(|line| line.split_once("] "))
            && let (Some(rules), Some(rule)) = (found.as_mut(), appended.strip_prefix(&prefix))
        {
            rules.push(rule.to_owned());
        }
    }
    found
}

/// Returns the number of packets that matched rules of a chain whose text contains `rule.rule`.
/// `None` if there is no such rule.
#[must_use]
pub fn count_hits(saved: &[SavedRules], netns: &str, rule: &RuleExpectation) -> Option<u64> {
    saved
        .iter()
        .filter(|rules| rules.namespace == netns)
        .filter_map(|rules| count_hits_in_text(&rules.text, rule))
        .reduce(u64::saturating_add)
}

fn count_hits_in_text(text: &str, rule: &RuleExpectation) -> Option<u64> {
    let prefix = format!("-A {} ", rule.chain);
    let mut table = "";
    let mut found: Option<u64> = None;
    for line in text.lines() {
        if let Some(name) = line.strip_prefix('*') {
            table = name.trim();
        }
        if table != rule.table {
            continue;
        }
        // Format: `[packets:bytes] -A CHAIN …`
        let Some((counter, appended)) = line
            .strip_prefix('[')
            .and_then(|line| line.split_once("] "))
        else {
            continue;
        };
        let Some(rule_text) = appended.strip_prefix(&prefix) else {
            continue;
        };
        if rule_text.contains(rule.rule.trim()) {
            // An unparsable counter makes the sum meaningless.
            let packets: u64 = counter.split(':').next()?.parse().ok()?;
            found = Some(found.unwrap_or(0).saturating_add(packets));
        }
    }
    found
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
}
