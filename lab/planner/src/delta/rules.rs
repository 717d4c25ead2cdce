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
pub fn between(there: &str, wanted: &str) -> String {
    if there == wanted {
        return String::new();
    }
    let (there, wanted) = (read(there), read(wanted));
    let names: IndexSet<&str> = there.keys().chain(wanted.keys()).copied().collect();
    let empty = Table::default();
    let mut batches = String::new();
    for name in names {
        let old = there.get(name).unwrap_or(&empty);
        let new = wanted.get(name).unwrap_or(&empty);
        let same = old.lines == new.lines;
        let commands = if same {
            String::new()
        } else if old.opaque || new.opaque || !new.policies.keys().eq(old.policies.keys()) {
            anew(old, new)
        } else {
            changed(old, new)
        };
        if !commands.is_empty() {
            let _ = write!(batches, "*{name}\n{commands}COMMIT\n");
        }
    }
    batches
}

/// Returns the commands that flush a table and fill it again.
fn anew(old: &Table<'_>, new: &Table<'_>) -> String {
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
fn changed(old: &Table<'_>, new: &Table<'_>) -> String {
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
    let mut gone = Vec::new();
    for (name, rules) in &old.chains {
        match new.chains.get(name) {
            Some(wanted) => edit(&mut commands, name, rules, wanted),
            None if is_built_in(name) => edit(&mut commands, name, rules, &none),
            None => {
                let _ = writeln!(commands, "-F {name}");
                gone.push(*name);
            }
        }
    }
    for (name, rules) in &new.chains {
        if !old.chains.contains_key(name) {
            edit(&mut commands, name, &none, rules);
        }
    }
    for name in gone {
        let _ = writeln!(commands, "-X {name}");
    }
    commands
}

/// Changes a chain from its end, because a rule number refers to the chain at the time of the
/// command.
fn edit(commands: &mut String, chain: &str, there: &[String], wanted: &[String]) {
    if there == wanted {
        return;
    }
    let steps = steps(there, wanted);
    for (at, (old, new)) in steps.iter().enumerate().rev() {
        for _ in old.clone() {
            let _ = writeln!(commands, "-D {chain} {}", old.start + 1);
        }
        for (rule, number) in wanted[new.clone()].iter().zip(old.start + 1..) {
            // Appends only if no rule follows.
            let _ = if at + 1 == steps.len() && old.end == there.len() {
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
fn steps(there: &[String], wanted: &[String]) -> Vec<(Range<usize>, Range<usize>)> {
    let (mut old, mut new) = (0, 0);
    let mut steps = Vec::new();
    for step in capture_diff_slices(Algorithm::Myers, there, wanted) {
        let (goes, comes) = (step.old_range().len(), step.new_range().len());
        if !matches!(step, DiffOp::Equal { .. }) {
            steps.push((old..old + goes, new..new + comes));
        }
        old += goes;
        new += comes;
    }
    steps
}

/// Whether a chain is built in.
#[must_use]
pub fn is_built_in(chain: &str) -> bool {
    ["PREROUTING", "INPUT", "FORWARD", "OUTPUT", "POSTROUTING"].contains(&chain)
}

/// Parses a script into the resulting tables, as far as the text determines them.
pub fn read(text: &str) -> IndexMap<&str, Table<'_>> {
    let mut tables: IndexMap<&str, Table<'_>> = IndexMap::new();
    let mut open = "";
    for line in text.lines().map(str::trim) {
        if let Some(name) = line.strip_prefix('*') {
            open = name.trim();
            tables.entry(open).or_default();
        } else if !line.is_empty() && line != "COMMIT" && !line.starts_with('#') {
            tables.entry(open).or_default().follow(line);
        }
    }
    tables
}

impl<'a> Table<'a> {
    /// Returns the lines of the script for this table.
    pub fn lines(&self) -> impl Iterator<Item = &'a str> {
        self.lines.iter().copied()
    }

    fn follow(&mut self, line: &'a str) {
        self.lines.push(line);
        if self.understand(line).is_none() {
            self.opaque = true;
        }
    }

    /// Applies one line; `None` if its effect is not determined.
    fn understand(&mut self, line: &'a str) -> Option<()> {
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
        let (number, rule) = numbered(rest);
        match command {
            "-A" => rules.push(rest.to_owned()),
            "-I" => {
                let at = number.unwrap_or(1).checked_sub(1)?;
                (at <= rules.len()).then(|| rules.insert(at, rule.to_owned()))?;
            }
            "-D" => {
                let at = match number {
                    Some(number) if rule.is_empty() => number.checked_sub(1)?,
                    _ => rules.iter().position(|known| known == rest)?,
                };
                (at < rules.len()).then(|| rules.remove(at))?;
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
fn numbered(rest: &str) -> (Option<usize>, &str) {
    let (first, others) = rest.split_once(' ').unwrap_or((rest, ""));
    first
        .parse()
        .map_or((None, rest), |number| (Some(number), others))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Returns the chains after a script and then a batch.
    fn after<'a>(first: &'a str, batch: &'a str) -> IndexMap<&'a str, Vec<String>> {
        let mut tables = read(first);
        let mut open = "";
        for line in batch.lines() {
            if let Some(name) = line.strip_prefix('*') {
                open = name;
            } else if line == "-F" || line == "-X" {
                let table = tables.entry(open).or_default();
                *table = Table::default();
            } else if line != "COMMIT" {
                tables.entry(open).or_default().follow(line);
            }
        }
        let table = tables.swap_remove("nat").unwrap_or_default();
        assert!(!table.opaque, "{batch}");
        filled(table.chains)
    }

    /// Removes empty built-in chains, which exist in any case.
    fn filled(mut chains: IndexMap<&str, Vec<String>>) -> IndexMap<&str, Vec<String>> {
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
        fn a_batch_turns_one_script_s_rules_into_another_s(there in script(), wanted in script()) {
            let batch = between(&there, &wanted);
            let expected = read(&wanted).swap_remove("nat").unwrap_or_default().chains;
            prop_assert_eq!(after(&there, &batch), filled(expected), "{}", batch);
        }
    }

    #[test]
    fn one_rule_in_a_long_chain_is_one_command() {
        let rule = |at: usize| format!("-A KUBE-SERVICES -d 10.0.0.{at} -j X\n");
        let text = |without: usize| -> String {
            let rules: String = (0..200).filter(|at| *at != without).map(rule).collect();
            format!("*nat\n:KUBE-SERVICES - [0:0]\n{rules}COMMIT\n")
        };
        assert_eq!(
            between(&text(999), &text(120)),
            "*nat\n-D KUBE-SERVICES 121\nCOMMIT\n"
        );
        assert_eq!(
            between(&text(120), &text(999)),
            "*nat\n-I KUBE-SERVICES 121 -d 10.0.0.120 -j X\nCOMMIT\n"
        );
        assert_eq!(
            between(&text(199), &text(999)),
            "*nat\n-A KUBE-SERVICES -d 10.0.0.199 -j X\nCOMMIT\n"
        );
    }

    #[test]
    fn what_was_typed_by_hand_is_followed() {
        let made = "*nat\n:X - [0:0]\n-A X -j A\n-A X -j B\nCOMMIT\n";
        let typed = "*nat\n:X - [0:0]\n-A X -j A\n-A X -j B\n-D X -j A\n-I X 1 -j C\nCOMMIT\n";
        assert_eq!(between(made, typed), "*nat\n-D X 1\n-I X 1 -j C\nCOMMIT\n");
        assert_eq!(between(made, ""), "*nat\n-F X\n-X X\nCOMMIT\n");
    }

    #[test]
    fn a_command_that_cannot_be_followed_fills_its_table_anew() {
        let made = "*nat\n:X - [0:0]\n-A X -j A\nCOMMIT\n*filter\n-A INPUT -j DROP\nCOMMIT\n";
        let typed =
            "*nat\n:X - [0:0]\n-A X -j A\n-R X 1 -j B\nCOMMIT\n*filter\n-A INPUT -j DROP\nCOMMIT\n";
        assert_eq!(
            between(made, typed),
            "*nat\n-F\n-X\n:X - [0:0]\n-A X -j A\n-R X 1 -j B\nCOMMIT\n"
        );
    }
}
