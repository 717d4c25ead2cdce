//! Finds the IP sets whose entries stay the same while probes wait.

use std::borrow::Cow;
use std::collections::HashSet;

use svclab_ruleset::input::ProgramInput as _;
use svclab_ruleset::ipset::saved::{SavedSet, Sets};
use svclab_ruleset::iptables::IptablesRules;
use svclab_ruleset::iptables::parts::MatchModule;

/// Options of `-m set` whose result depends only on the packet and on the entries. The other options
/// compare the counters of an entry, which packets increase (iptables v1.8.9,
/// `extensions/libxt_set.c`, `set_opts_v4`).
const FIXED_OPTIONS: [&str; 4] = [
    "--match-set",
    "--return-nomatch",
    "--update-counters",
    "--update-subcounters",
];

/// Names of the sets of a namespace whose entries neither expire nor depend on packets.
#[derive(Debug, Default)]
pub(super) struct FixedSets(HashSet<String>);

impl FixedSets {
    /// Finds the sets in the output of `ipset save`. The rules are those of the namespace. None is
    /// fixed if the text cannot be parsed, or if a rule with the target SET changes entries.
    pub(super) fn new<'r>(text: &str, rules: impl Iterator<Item = &'r IptablesRules>) -> Self {
        let Ok(sets) = Sets::parse(text) else {
            return Self::default();
        };
        let changes_entries = rules
            .flat_map(|rules| &rules.tables)
            .flat_map(|table| &table.chains)
            .flat_map(|chain| &chain.rules)
            .any(|rule| rule.target().as_deref() == Some("SET"));
        if changes_entries {
            return Self::default();
        }
        let has_fixed_members = |set: &SavedSet| {
            let mut members = set.entries.keys();
            &*set.kind != "list:set"
                || members.all(|member| sets.get(member).is_some_and(keeps_entries))
        };
        let fixed = sets
            .iter()
            .filter(|(_, set)| keeps_entries(set) && has_fixed_members(set));
        Self(fixed.map(|(name, _)| name.clone()).collect())
    }

    /// Whether `-m set` gives the same result for identical packets.
    pub(super) fn is_fixed_match(&self, module: &MatchModule<'_>) -> bool {
        let is_fixed_set = |name: &Cow<'_, str>| self.0.contains(name.as_ref());
        module.options.iter().all(|option| {
            FIXED_OPTIONS.contains(&option.name.as_ref())
                && (option.name != "--match-set" || option.values.first().is_some_and(is_fixed_set))
        })
    }
}

/// Whether no entry of a set can expire. Entries have a timeout only if their set has one.
fn keeps_entries(set: &SavedSet) -> bool {
    !set.options.has("timeout")
}

#[cfg(test)]
mod tests {
    use svclab_ruleset::iptables::Rule;

    use super::*;

    const SETS: &str = "create plain hash:ip family inet\nadd plain 203.0.113.9\n\
                        create counted hash:ip family inet counters\n\
                        create expiring hash:ip family inet timeout 0\n\
                        add expiring 203.0.113.9 timeout 2\n\
                        create lists list:set size 8\nadd lists plain\n\
                        create mixed list:set size 8\nadd mixed plain\nadd mixed expiring\n";

    fn is_fixed(sets: &str, rules: &str, words: &str) -> bool {
        let rules = IptablesRules::parse(rules).unwrap();
        let fixed = FixedSets::new(sets, [&rules].into_iter());
        let rule = Rule::from_words(words).unwrap();
        let parts = rule.parts();
        fixed.is_fixed_match(parts.match_module("set").unwrap())
    }

    #[test]
    fn is_fixed_match_expiring_or_counted_is_false() {
        for (words, expected) in [
            ("-m set --match-set plain src -j DROP", true),
            ("-m set ! --match-set plain src -j DROP", true),
            (
                "-m set --match-set counted src ! --update-counters -j DROP",
                true,
            ),
            ("-m set --match-set lists src -j DROP", true),
            (
                "-m set --match-set counted src --packets-gt 1 -j ACCEPT",
                false,
            ),
            (
                "-m set --match-set counted src ! --bytes-eq 0 -j ACCEPT",
                false,
            ),
            ("-m set --match-set expiring src -j DROP", false),
            ("-m set --match-set mixed src -j DROP", false),
            ("-m set --match-set unknown src -j DROP", false),
        ] {
            assert_eq!(is_fixed(SETS, "", words), expected, "{words}");
        }
    }

    #[test]
    fn is_fixed_match_unknown_or_changing_sets_is_false() {
        let words = "-m set --match-set plain src -j DROP";
        let adds = "*raw\n:PREROUTING ACCEPT [0:0]\n\
                    -A PREROUTING -j SET --add-set counted src\nCOMMIT\n";
        assert!(!is_fixed(SETS, adds, words));
        assert!(!is_fixed("create plain hash:new famly inet\n", "", words));
    }
}
