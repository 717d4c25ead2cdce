//! Models the chains of a node as lists of rules, and the effect of an [`IptablesScript`] on them.
//! The model gives the order of rules that several components write, without a kernel.

use std::fmt;

use indexmap::IndexMap;

use svclab_ruleset::iptables::script::{IptablesScript, Table};

/// Rules of each chain of a node, in order.
///
/// A rule is its text after the chain name (`-s 10.0.0.0/8 -j RETURN`). Rules are equal if their
/// texts are equal: a component that searches for its own rule writes the same text each time.
/// Built-in chains need not be declared.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Chains(IndexMap<(Table, String), Vec<String>>);

/// Command that iptables rejects or that the model does not support.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ChainsError {
    /// `-D` of a rule that the chain does not contain.
    #[error("cannot run `{command}` in table {table}: the rule does not exist")]
    NoSuchRule {
        /// Table of the command.
        table: Table,
        /// Text of the command.
        command: String,
    },
    /// Rule for a chain that is neither built in nor declared.
    #[error("cannot run `{command}` in table {table}: the chain does not exist; declare it first")]
    NoSuchChain {
        /// Table of the command.
        table: Table,
        /// Text of the command.
        command: String,
    },
    /// Command other than `-A`, `-I`, `-D` and `-F`.
    #[error("cannot run `{command}` in table {table}: only -A, -I, -D and -F are supported")]
    Unsupported {
        /// Table of the command.
        table: Table,
        /// Text of the command.
        command: String,
    },
}

impl Chains {
    /// Creates a node without rules.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the rules of a chain in order, or an empty slice if the chain does not exist.
    #[must_use]
    pub fn rules(&self, table: Table, chain: &str) -> &[String] {
        self.0
            .get(&(table, chain.to_owned()))
            .map_or(&[], Vec::as_slice)
    }

    /// Whether the chain exists: built in, declared, or with rules.
    #[must_use]
    pub fn has_chain(&self, table: Table, chain: &str) -> bool {
        is_built_in(table, chain) || self.0.contains_key(&(table, chain.to_owned()))
    }

    /// Whether the chain contains this rule.
    #[must_use]
    pub fn has_rule(&self, table: Table, chain: &str, rule: &str) -> bool {
        self.rules(table, chain)
            .iter()
            .any(|candidate| candidate == rule)
    }

    /// Loads a script as `iptables-restore --noflush` does: creates or empties each declared chain,
    /// then runs the commands in order.
    ///
    /// # Errors
    ///
    /// Returns the first command that fails; earlier changes are not rolled back.
    pub fn load(&mut self, script: &IptablesScript) -> Result<(), ChainsError> {
        for (table, block) in script.tables() {
            for chain in &block.chains {
                self.0.insert((table, chain.clone()), Vec::new());
            }
            for command in &block.commands {
                self.apply_command(table, command)?;
            }
        }
        Ok(())
    }

    /// Runs one command: `-A CHAIN RULE`, `-I CHAIN [NUMBER] RULE`, `-D CHAIN RULE` or `-F CHAIN`.
    /// `-D` deletes the first of equal rules.
    ///
    /// # Errors
    ///
    /// Fails if a rule or chain does not exist, or if the model does not support the command.
    pub fn apply_command(&mut self, table: Table, command: &str) -> Result<(), ChainsError> {
        let unknown = || ChainsError::Unsupported {
            table,
            command: command.to_owned(),
        };
        let (verb, rest) = command.split_once(' ').ok_or_else(unknown)?;
        let (chain, rule) = rest.split_once(' ').unwrap_or((rest, ""));
        if !self.has_chain(table, chain) {
            return Err(ChainsError::NoSuchChain {
                table,
                command: command.to_owned(),
            });
        }
        match verb {
            "-A" => self.append(table, chain, rule),
            "-I" => {
                let (place, rule) = parse_position(rule);
                if place > self.rules(table, chain).len() {
                    return Err(unknown());
                }
                self.insert(table, chain, place, rule);
            }
            "-D" => {
                if !self.delete(table, chain, rule) {
                    return Err(ChainsError::NoSuchRule {
                        table,
                        command: command.to_owned(),
                    });
                }
            }
            "-F" => self.clear(table, chain),
            _ => return Err(unknown()),
        }
        Ok(())
    }

    /// Appends a rule to a chain.
    pub fn append(&mut self, table: Table, chain: &str, rule: &str) {
        self.chain(table, chain).push(rule.to_owned());
    }

    /// Inserts a rule at `index`, which starts at 0.
    ///
    /// # Panics
    ///
    /// Panics if the index is greater than the number of rules, like [`Vec::insert`].
    pub fn insert(&mut self, table: Table, chain: &str, index: usize, rule: &str) {
        self.chain(table, chain).insert(index, rule.to_owned());
    }

    /// Deletes the first of equal rules from a chain. Returns whether the chain contained the rule.
    pub fn delete(&mut self, table: Table, chain: &str, rule: &str) -> bool {
        let rules = self.chain(table, chain);
        let place = rules.iter().position(|known| known == rule);
        place.map(|place| rules.remove(place)).is_some()
    }

    /// Creates a chain, or empties an existing one.
    pub fn clear(&mut self, table: Table, chain: &str) {
        self.chain(table, chain).clear();
    }

    fn chain(&mut self, table: Table, chain: &str) -> &mut Vec<String> {
        self.0.entry((table, chain.to_owned())).or_default()
    }
}

impl fmt::Display for Chains {
    /// Writes one `-A` line per rule, as `iptables-save` prints them, table by table.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for ((table, chain), rules) in &self.0 {
            for rule in rules {
                writeln!(f, "{table}: -A {chain} {rule}")?;
            }
        }
        Ok(())
    }
}

/// Parses the optional position of `-I CHAIN 3 RULE`. Returns the index, which starts at 0, and the
/// rule.
fn parse_position(rule: &str) -> (usize, &str) {
    match rule.split_once(' ') {
        Some((number, rest)) => match number.parse::<usize>() {
            Ok(number) if number > 0 => (number - 1, rest),
            _ => (0, rule),
        },
        None => (0, rule),
    }
}

/// Whether the kernel itself calls the chain from a hook of the table.
fn is_built_in(table: Table, chain: &str) -> bool {
    table.built_in_chains().contains(&chain)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chains(commands: &[&str]) -> Result<Chains, ChainsError> {
        let mut chains = Chains::new();
        for command in commands {
            chains.apply_command(Table::Nat, command)?;
        }
        Ok(chains)
    }

    #[test]
    fn chains_insert_and_append_keep_order() {
        let chains = chains(&[
            "-A OUTPUT -j RETURN",
            "-I OUTPUT -j ACCEPT",
            "-I OUTPUT 2 -s 10.0.0.1 -j ACCEPT",
        ])
        .expect("valid commands");
        assert_eq!(
            chains.rules(Table::Nat, "OUTPUT"),
            ["-j ACCEPT", "-s 10.0.0.1 -j ACCEPT", "-j RETURN"]
        );
    }

    #[test]
    fn chains_delete_removes_first_equal_rule() {
        let chains = chains(&[
            "-A OUTPUT -j RETURN",
            "-A OUTPUT -j ACCEPT",
            "-A OUTPUT -j RETURN",
            "-D OUTPUT -j RETURN",
        ])
        .expect("valid commands");
        assert_eq!(
            chains.rules(Table::Nat, "OUTPUT"),
            ["-j ACCEPT", "-j RETURN"]
        );
    }

    #[test]
    fn chains_invalid_command_returns_error() {
        assert!(matches!(
            chains(&["-D OUTPUT -j RETURN"]),
            Err(ChainsError::NoSuchRule { .. })
        ));
        assert!(matches!(
            chains(&["-A MINE -j RETURN"]),
            Err(ChainsError::NoSuchChain { .. })
        ));
        // The nat table has no FORWARD chain.
        assert!(matches!(
            chains(&["-A FORWARD -j RETURN"]),
            Err(ChainsError::NoSuchChain { .. })
        ));
        assert!(matches!(
            chains(&["-X OUTPUT"]),
            Err(ChainsError::Unsupported { .. })
        ));
        assert!(matches!(
            chains(&["-I OUTPUT 2 -j RETURN"]),
            Err(ChainsError::Unsupported { .. })
        ));
    }

    #[test]
    fn chains_load_declared_chain_is_emptied() {
        let mut script = IptablesScript::new();
        script.table_mut(Table::Nat).declare_chain("MINE");
        script
            .table_mut(Table::Nat)
            .push_command("-A MINE -j RETURN");
        let mut chains = Chains::new();
        chains.load(&script).expect("valid script");
        chains.load(&script).expect("valid script");
        assert_eq!(chains.rules(Table::Nat, "MINE"), ["-j RETURN"]);
    }
}
