//! Reads rules and their packet counters from saved iptables rules.

use svclab_model::evidence::SavedRules;
use svclab_scenario::expectation::RuleExpectation;

/// Returns the rules of a chain in order, without counters. `None` if the table or the chain does
/// not exist.
#[must_use]
pub fn rules_of(
    saved: &[SavedRules],
    netns: &str,
    table: &str,
    chain: &str,
) -> Option<Vec<String>> {
    let text = &saved
        .iter()
        .find(|rules| rules.namespace == netns && rules.ip == 4)?
        .text;
    let prefix = format!("-A {chain} ");
    let mut inside = false;
    let mut found = None;
    for line in text.lines() {
        if let Some(name) = line.strip_prefix('*') {
            inside = name.trim() == table;
        } else if inside
            && line
                .strip_prefix(':')
                .and_then(|line| line.split(' ').next())
                == Some(chain)
        {
            found = Some(Vec::new());
        } else if inside
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
pub fn hits(saved: &[SavedRules], netns: &str, rule: &RuleExpectation) -> Option<u64> {
    saved
        .iter()
        .filter(|rules| rules.namespace == netns)
        .filter_map(|rules| in_text(&rules.text, rule))
        .reduce(u64::saturating_add)
}

fn in_text(text: &str, rule: &RuleExpectation) -> Option<u64> {
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
        let Some(own) = appended.strip_prefix(&prefix) else {
            continue;
        };
        if own.contains(rule.rule.trim()) {
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
    fn counters_of_matching_rules_are_added() {
        let text = "*filter\n[9:1] -A POSTROUTING -j RETURN\nCOMMIT\n*nat\n:POSTROUTING ACCEPT [0:0]\n\
                    [3:180] -A POSTROUTING ! -s 10.0.0.0/20 -d 10.0.2.0/24 -j RETURN\n\
                    [1:60] -A POSTROUTING -s 10.0.0.0/20 -d 10.0.0.0/20 -j RETURN\nCOMMIT\n";
        let saved = [SavedRules {
            namespace: "n".to_owned(),
            backend: Backend::Nft,
            ip: 4,
            text: text.to_owned(),
        }];
        let of = |rule: &str| {
            let rule = RuleExpectation {
                on: "n".to_owned(),
                table: "nat".to_owned(),
                chain: "POSTROUTING".to_owned(),
                rule: rule.to_owned(),
                hits: Count::exactly(1),
            };
            hits(&saved, "n", &rule)
        };
        assert_eq!(of("! -s 10.0.0.0/20 -d 10.0.2.0/24 -j RETURN"), Some(3));
        assert_eq!(of("-j RETURN"), Some(4));
        assert_eq!(of("-j MASQUERADE"), None);
    }
}
