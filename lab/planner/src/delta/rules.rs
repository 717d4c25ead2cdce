//! Compares the iptables rules of two plans. Output: the shortest list of commands for
//! `iptables-restore --noflush`.

use std::fmt::Write as _;
use std::ops::Range;

use indexmap::{IndexMap, IndexSet};
use similar::{Algorithm, DiffOp, capture_diff_slices};

/// Chains of one table, as far as a script determines them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Table<'a> {
    /// Rules of each chain, as written.
    pub chains: IndexMap<&'a str, Vec<String>>,
    /// Policies of chains, where the script sets them.
    pub policies: IndexMap<&'a str, &'a str>,
    /// Lines of the script, for a table that is rebuilt.
    lines: Vec<&'a str>,
    /// Whether the script contains a command whose effect depends on other state.
    pub opaque: bool,
}

/// Returns the input for `iptables-restore --noflush` that changes the rules of the first script,
/// as loaded into a new namespace, into those of the second. The input is empty if both give the
/// same rules.
///
/// Rules are compared as written. A table is flushed and rebuilt if either script uses a command
/// other than `-A`, `-I`, `-D`, `-F`, `-N`, `-X` and `-P`.
#[must_use]
pub fn diff(current: &str, wanted: &str) -> String {
    if current == wanted {
        return String::new();
    }
    let (current, wanted) = (parse(current), parse(wanted));
    let names: IndexSet<&str> = current.keys().chain(wanted.keys()).copied().collect();
    let empty = Table::default();
    let mut batches = String::new();
    for name in names {
        let old = current.get(name).unwrap_or(&empty);
        let new = wanted.get(name).unwrap_or(&empty);
        let same = old.lines == new.lines;
        let commands = if same {
            String::new()
        } else if old.opaque || new.opaque || !new.policies.keys().eq(old.policies.keys()) {
            rebuild_commands(old, new)
        } else {
            change_commands(old, new)
        };
        if !commands.is_empty() {
            let _ = write!(batches, "*{name}\n{commands}COMMIT\n");
        }
    }
    batches
}

/// Returns the commands that flush a table and fill it again.
fn rebuild_commands(old: &Table<'_>, new: &Table<'_>) -> String {
    let mut commands = "-F\n-X\n".to_owned();
    for chain in old.policies.keys() {
        let _ = writeln!(commands, "-P {chain} ACCEPT");
    }
    for line in &new.lines {
        let _ = writeln!(commands, "{line}");
    }
    commands
}

/// Returns the commands for the differences: new chains, changed policies, changed rules, and
/// removed chains.
fn change_commands(old: &Table<'_>, new: &Table<'_>) -> String {
    let mut commands = String::new();
    let none = Vec::new();
    for name in new.chains.keys() {
        // Built-in chains always exist and are not declared.
        if !old.chains.contains_key(name) && !is_built_in(name) {
            let _ = writeln!(commands, ":{name} - [0:0]");
        }
    }
    for (chain, policy) in &new.policies {
        if old.policies.get(chain) != Some(policy) {
            let _ = writeln!(commands, "-P {chain} {policy}");
        }
    }
    let mut removed = Vec::new();
    for (name, rules) in &old.chains {
        match new.chains.get(name) {
            Some(wanted) => write_chain_changes(&mut commands, name, rules, wanted),
            None if is_built_in(name) => write_chain_changes(&mut commands, name, rules, &none),
            None => {
                let _ = writeln!(commands, "-F {name}");
                removed.push(*name);
            }
        }
    }
    for (name, rules) in &new.chains {
        if !old.chains.contains_key(name) {
            write_chain_changes(&mut commands, name, &none, rules);
        }
    }
    for name in removed {
        let _ = writeln!(commands, "-X {name}");
    }
    commands
}

/// Changes a chain from its end, because a rule number refers to the chain at the time of the
/// command.
fn write_chain_changes(commands: &mut String, chain: &str, current: &[String], wanted: &[String]) {
    if current == wanted {
        return;
    }
    let steps = chain_changes(current, wanted);
    for (index, (old, new)) in steps.iter().enumerate().rev() {
        for _ in old.clone() {
            let _ = writeln!(commands, "-D {chain} {}", old.start + 1);
        }
        for (rule, number) in wanted[new.clone()].iter().zip(old.start + 1..) {
            // Appends only if no rule follows.
            let _ = if index + 1 == steps.len() && old.end == current.len() {
                writeln!(commands, "-A {chain} {rule}")
            } else {
                writeln!(commands, "-I {chain} {number} {rule}")
            };
        }
    }
}

/// Returns the ranges of removed rules and of the rules that replace them, in order of the chain.
/// The positions are counted here: those that the crate `similar` reports for pure insertions and
/// deletions are inexact (similar v2.7, after its compaction).
fn chain_changes(current: &[String], wanted: &[String]) -> Vec<(Range<usize>, Range<usize>)> {
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

/// Whether a chain is built in.
#[must_use]
pub fn is_built_in(chain: &str) -> bool {
    ["PREROUTING", "INPUT", "FORWARD", "OUTPUT", "POSTROUTING"].contains(&chain)
}

/// Parses a script into the resulting tables, as far as the text determines them.
pub fn parse(text: &str) -> IndexMap<&str, Table<'_>> {
    let mut tables: IndexMap<&str, Table<'_>> = IndexMap::new();
    let mut table_name = "";
    for line in text.lines().map(str::trim) {
        if let Some(name) = line.strip_prefix('*') {
            table_name = name.trim();
            tables.entry(table_name).or_default();
        } else if !line.is_empty() && line != "COMMIT" && !line.starts_with('#') {
            tables.entry(table_name).or_default().add_line(line);
        }
    }
    tables
}

impl<'a> Table<'a> {
    /// Returns the lines of the script for this table.
    pub fn lines(&self) -> impl Iterator<Item = &'a str> {
        self.lines.iter().copied()
    }

    fn add_line(&mut self, line: &'a str) {
        self.lines.push(line);
        if self.apply_line(line).is_none() {
            self.opaque = true;
        }
    }

    /// Applies one line; `None` if its effect is not determined.
    fn apply_line(&mut self, line: &'a str) -> Option<()> {
        if let Some(declared) = line.strip_prefix(':') {
            let mut words = declared.split_whitespace();
            let (chain, policy) = (words.next()?, words.next()?);
            self.chains.entry(chain).or_default().clear();
            if policy != "-" {
                self.policies.insert(chain, policy);
            }
            return Some(());
        }
        // Counters of `iptables-save -c` are ignored.
        let counted = line
            .strip_prefix('[')
            .and_then(|rest| rest.split_once("] "));
        let line = counted.map_or(line, |(_, rule)| rule);
        let (command, rest) = line.split_once(' ')?;
        let (chain, rest) = rest.split_once(' ').unwrap_or((rest, ""));
        if command == "-N" {
            self.chains.insert(chain, Vec::new());
            return Some(());
        }
        if is_built_in(chain) {
            self.chains.entry(chain).or_default();
        }
        let rules = self.chains.get_mut(chain)?;
        let (number, rule) = split_number(rest);
        match command {
            "-A" => rules.push(rest.to_owned()),
            "-I" => {
                let index = number.unwrap_or(1).checked_sub(1)?;
                (index <= rules.len()).then(|| rules.insert(index, rule.to_owned()))?;
            }
            "-D" => {
                let index = match number {
                    Some(number) if rule.is_empty() => number.checked_sub(1)?,
                    _ => rules.iter().position(|known| known == rest)?,
                };
                (index < rules.len()).then(|| rules.remove(index))?;
            }
            "-F" => rules.clear(),
            "-X" => drop(self.chains.shift_remove(chain)),
            "-P" => drop(self.policies.insert(chain, rest)),
            _ => return None,
        }
        Some(())
    }
}

/// Splits the leading rule number from the rest.
fn split_number(rest: &str) -> (Option<usize>, &str) {
    let (first, rest_of_rule) = rest.split_once(' ').unwrap_or((rest, ""));
    first
        .parse()
        .map_or((None, rest), |number| (Some(number), rest_of_rule))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Returns the chains after a script and then a batch.
    fn chains_after<'a>(first: &'a str, batch: &'a str) -> IndexMap<&'a str, Vec<String>> {
        let mut tables = parse(first);
        let mut open = "";
        for line in batch.lines() {
            if let Some(name) = line.strip_prefix('*') {
                open = name;
            } else if line == "-F" || line == "-X" {
                let table = tables.entry(open).or_default();
                *table = Table::default();
            } else if line != "COMMIT" {
                tables.entry(open).or_default().add_line(line);
            }
        }
        let table = tables.swap_remove("nat").unwrap_or_default();
        assert!(!table.opaque, "{batch}");
        without_empty_built_in(table.chains)
    }

    /// Removes empty built-in chains, which exist in any case.
    fn without_empty_built_in(
        mut chains: IndexMap<&str, Vec<String>>,
    ) -> IndexMap<&str, Vec<String>> {
        chains.retain(|name, rules| !is_built_in(name) || !rules.is_empty());
        chains
    }

    fn script() -> impl Strategy<Value = String> {
        let chain = prop::sample::select(vec!["OUTPUT", "KUBE-A", "KUBE-B", "KUBE-C"]);
        let rules = prop::collection::vec(
            prop::sample::select(vec!["-j A", "-j B", "-s 10.0.0.1 -j C", "-d 1.1.1.1 -j D"]),
            0..8,
        );
        prop::collection::hash_map(chain, rules, 0..4).prop_map(|chains| {
            let mut text = "*nat\n".to_owned();
            for chain in chains.keys().filter(|chain| !is_built_in(chain)) {
                let _ = writeln!(text, ":{chain} - [0:0]");
            }
            for (chain, rules) in &chains {
                for rule in rules {
                    let _ = writeln!(text, "-A {chain} {rule}");
                }
            }
            text.push_str("COMMIT\n");
            text
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig {
            cases: 2000,
            failure_persistence: None,
            ..ProptestConfig::default()
        })]

        #[test]
        fn rules_diff_applied_gives_wanted_rules(there in script(), wanted in script()) {
            let batch = diff(&there, &wanted);
            let expected = parse(&wanted).swap_remove("nat").unwrap_or_default().chains;
            prop_assert_eq!(chains_after(&there, &batch), without_empty_built_in(expected), "{}", batch);
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
            diff(&text(999), &text(120)),
            "*nat\n-D KUBE-SERVICES 121\nCOMMIT\n"
        );
        assert_eq!(
            diff(&text(120), &text(999)),
            "*nat\n-I KUBE-SERVICES 121 -d 10.0.0.120 -j X\nCOMMIT\n"
        );
        assert_eq!(
            diff(&text(199), &text(999)),
            "*nat\n-A KUBE-SERVICES -d 10.0.0.199 -j X\nCOMMIT\n"
        );
    }

    #[test]
    fn rules_diff_manual_commands_are_applied() {
        let original = "*nat\n:X - [0:0]\n-A X -j A\n-A X -j B\nCOMMIT\n";
        let changed_by_hand =
            "*nat\n:X - [0:0]\n-A X -j A\n-A X -j B\n-D X -j A\n-I X 1 -j C\nCOMMIT\n";
        assert_eq!(
            diff(original, changed_by_hand),
            "*nat\n-D X 1\n-I X 1 -j C\nCOMMIT\n"
        );
        assert_eq!(diff(original, ""), "*nat\n-F X\n-X X\nCOMMIT\n");
    }

    #[test]
    fn rules_diff_unsupported_command_rebuilds_table() {
        let original = "*nat\n:X - [0:0]\n-A X -j A\nCOMMIT\n*filter\n-A INPUT -j DROP\nCOMMIT\n";
        let changed_by_hand =
            "*nat\n:X - [0:0]\n-A X -j A\n-R X 1 -j B\nCOMMIT\n*filter\n-A INPUT -j DROP\nCOMMIT\n";
        assert_eq!(
            diff(original, changed_by_hand),
            "*nat\n-F\n-X\n:X - [0:0]\n-A X -j A\n-R X 1 -j B\nCOMMIT\n"
        );
    }
}
