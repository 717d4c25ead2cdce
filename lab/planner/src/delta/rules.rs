//! Compares the iptables rules of two plans. Output: the shortest list of commands for
//! `iptables-restore --noflush`.

use std::ops::Range;

use indexmap::IndexSet;
use similar::{Algorithm, DiffOp, capture_diff_slices};

use svclab_ruleset::iptables::chains::{Chains, TableChains};
use svclab_ruleset::iptables::command::Command;
use svclab_ruleset::iptables::script::{IptablesScript, Table, TableScript};

/// Returns the script that changes the first rules into the second. It is empty if they are equal.
/// Rules are compared as written.
#[must_use]
pub fn diff(current: &Chains, wanted: &Chains) -> IptablesScript {
    let tables: IndexSet<Table> = current
        .tables
        .keys()
        .chain(wanted.tables.keys())
        .copied()
        .collect();
    let none = TableChains::default();
    let mut script = IptablesScript::new();
    for table in tables {
        let old = current.tables.get(&table).unwrap_or(&none);
        let new = wanted.tables.get(&table).unwrap_or(&none);
        let changes = diff_table(table, old, new);
        if !changes.is_empty() {
            *script.table_mut(table) = changes;
        }
    }
    script
}

/// Returns the commands for the differences: new chains, changed policies, changed rules, and
/// removed chains.
fn diff_table(table: Table, old: &TableChains, new: &TableChains) -> TableScript {
    let mut script = TableScript::default();
    let none = Vec::new();
    for name in new.chains.keys() {
        // Built-in chains always exist and are not declared.
        if !old.chains.contains_key(name) && !table.is_built_in(name) {
            script.declare_chain(name);
        }
    }
    for chain in table.built_in_chains() {
        let policy = |of: &TableChains| {
            of.policies
                .get(*chain)
                .map_or("ACCEPT", String::as_str)
                .to_owned()
        };
        let wanted = policy(new);
        if policy(old) != wanted {
            script.policies.push(((*chain).to_owned(), wanted));
        }
    }
    let commands = &mut script.commands;
    let mut removed = Vec::new();
    for (name, rules) in &old.chains {
        match new.chains.get(name) {
            Some(wanted) => write_chain_changes(commands, name, rules, wanted),
            None if table.is_built_in(name) => write_chain_changes(commands, name, rules, &none),
            None => {
                commands.push(Command::flush(name));
                removed.push(name);
            }
        }
    }
    for (name, rules) in &new.chains {
        if !old.chains.contains_key(name) {
            write_chain_changes(commands, name, &none, rules);
        }
    }
    commands.extend(removed.into_iter().map(Command::delete_chain));
    script
}

/// Changes a chain from its end, because a rule number refers to the chain at the time of the
/// command.
fn write_chain_changes(
    commands: &mut Vec<Command>,
    chain: &str,
    current: &[String],
    wanted: &[String],
) {
    if current == wanted {
        return;
    }
    let steps = chain_changes(current, wanted);
    for (index, (old, new)) in steps.iter().enumerate().rev() {
        for _ in old.clone() {
            commands.push(Command::delete_at(chain, old.start + 1));
        }
        for (rule, number) in wanted[new.clone()].iter().zip(old.start + 1..) {
            // Appends only if no rule follows.
            commands.push(if index + 1 == steps.len() && old.end == current.len() {
                Command::append(chain, rule)
            } else {
                Command::insert_at(chain, number, rule)
            });
        }
    }
}

/// Returns the ranges of removed rules and of the rules that replace them, in order of the chain.
/// The positions are counted here: those that the crate `similar` reports for pure insertions and
/// deletions are inexact (similar v2.7, after its compaction).
pub(crate) fn chain_changes(
    current: &[String],
    wanted: &[String],
) -> Vec<(Range<usize>, Range<usize>)> {
    let (mut old, mut new) = (0, 0);
    let mut steps = Vec::new();
    for step in capture_diff_slices(Algorithm::Myers, current, wanted) {
        let (removed, added) = (step.old_range().len(), step.new_range().len());
        if !matches!(step, DiffOp::Equal { .. }) {
            steps.push((old..old + removed, new..new + added));
        }
        old += removed;
        new += added;
    }
    steps
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use svclab_ruleset::input::ProgramInput as _;

    fn script(text: &str) -> IptablesScript {
        IptablesScript::parse(text).expect("valid script")
    }

    fn chains(text: &str) -> Chains {
        Chains::from_script(&script(text)).expect("valid commands")
    }

    fn diff_texts(current: &str, wanted: &str) -> String {
        diff(&chains(current), &chains(wanted)).to_string()
    }

    /// Removes empty built-in chains, which exist in any case.
    fn without_empty_built_in(mut chains: Chains) -> Chains {
        for (table, of) in &mut chains.tables {
            of.chains
                .retain(|name, rules| !table.is_built_in(name) || !rules.is_empty());
            of.chains.sort_unstable_keys();
        }
        chains
    }

    fn any_script() -> impl Strategy<Value = String> {
        let chain = prop::sample::select(vec!["OUTPUT", "KUBE-A", "KUBE-B", "KUBE-C"]);
        let rules = prop::collection::vec(
            prop::sample::select(vec!["-j A", "-j B", "-s 10.0.0.1 -j C", "-d 1.1.1.1 -j D"]),
            0..8,
        );
        prop::collection::hash_map(chain, rules, 0..4).prop_map(|chains| {
            let mut script = IptablesScript::new();
            let block = script.table_mut(Table::Nat);
            for chain in chains.keys().filter(|chain| !Table::Nat.is_built_in(chain)) {
                block.declare_chain(*chain);
            }
            for (chain, rules) in &chains {
                for rule in rules {
                    block.append(*chain, *rule);
                }
            }
            script.to_string()
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig {
            cases: 2000,
            failure_persistence: None,
            ..ProptestConfig::default()
        })]

        #[test]
        fn rules_diff_applied_gives_wanted_rules(there in any_script(), wanted in any_script()) {
            let mut changed = chains(&there);
            let batch = diff(&changed, &chains(&wanted));
            changed.load(&batch).expect("valid commands");
            prop_assert_eq!(
                without_empty_built_in(changed),
                without_empty_built_in(chains(&wanted)),
                "{}",
                batch
            );
        }
    }

    #[test]
    fn rules_diff_one_rule_is_one_command() {
        let rule = |index: usize| format!("-A KUBE-SERVICES -d 10.0.0.{index} -j X\n");
        let text = |without: usize| -> String {
            let rules: String = (0..200).filter(|at| *at != without).map(rule).collect();
            format!("*nat\n:KUBE-SERVICES - [0:0]\n{rules}COMMIT\n")
        };
        assert_eq!(
            diff_texts(&text(999), &text(120)),
            "*nat\n-D KUBE-SERVICES 121\nCOMMIT\n"
        );
        assert_eq!(
            diff_texts(&text(120), &text(999)),
            "*nat\n-I KUBE-SERVICES 121 -d 10.0.0.120 -j X\nCOMMIT\n"
        );
        assert_eq!(
            diff_texts(&text(199), &text(999)),
            "*nat\n-A KUBE-SERVICES -d 10.0.0.199 -j X\nCOMMIT\n"
        );
    }

    #[test]
    fn rules_diff_manual_commands_are_applied() {
        let original = "*nat\n:X - [0:0]\n-A X -j A\n-A X -j B\nCOMMIT\n";
        let changed_by_hand =
            "*nat\n:X - [0:0]\n-A X -j A\n-A X -j B\n-D X -j A\n-I X 1 -j C\nCOMMIT\n";
        assert_eq!(
            diff_texts(original, changed_by_hand),
            "*nat\n-D X 1\n-I X 1 -j C\nCOMMIT\n"
        );
        assert_eq!(diff_texts(original, ""), "*nat\n-F X\n-X X\nCOMMIT\n");
    }

    #[test]
    fn rules_diff_unset_policy_is_accept() {
        let drop = "*filter\n:FORWARD DROP [0:0]\nCOMMIT\n";
        assert_eq!(diff_texts("", drop), drop);
        assert_eq!(
            diff_texts(drop, "*nat\nCOMMIT\n"),
            "*filter\n:FORWARD ACCEPT [0:0]\nCOMMIT\n"
        );
        assert_eq!(
            diff_texts("", "*filter\n:FORWARD ACCEPT [0:0]\nCOMMIT\n"),
            ""
        );
    }
}
