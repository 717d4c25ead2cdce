//! A node's chains as a list of rules each, and what a [`Script`] does to them:
//! enough of iptables to say in which order rules stand once several components
//! have written, without a kernel.

use std::fmt;

use indexmap::IndexMap;

use svclab_ruleset::iptables::script::{Script, Table};

/// The rules of each chain of a node, in order.
///
/// A rule is its text after the chain's name (`-s 10.0.0.0/8 -j RETURN`). Two
/// rules are the same when their texts are: components that look for a rule of
/// their own write it the same way each time. Built-in chains need not be
/// declared.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Chains(IndexMap<(Table, String), Vec<String>>);

/// A command the node would have refused, or one this model does not know.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ChainsError {
    /// `-D` of a rule that is not there.
    #[error("table {table}: `{command}`: no such rule in that chain")]
    NoSuchRule {
        /// The command's table.
        table: Table,
        /// The command as written.
        command: String,
    },
    /// A rule for a chain that is neither built in nor declared.
    #[error("table {table}: `{command}`: no such chain; declare it first")]
    NoSuchChain {
        /// The command's table.
        table: Table,
        /// The command as written.
        command: String,
    },
    /// Anything but `-A`, `-I`, `-D` and `-F`.
    #[error("table {table}: `{command}`: only -A, -I, -D and -F are modelled")]
    Unknown {
        /// The command's table.
        table: Table,
        /// The command as written.
        command: String,
    },
}

impl Chains {
    /// A node on which nothing was ever written.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The rules of one chain, first to last; none if there is no such chain.
    #[must_use]
    pub fn rules(&self, table: Table, chain: &str) -> &[String] {
        self.0
            .get(&(table, chain.to_owned()))
            .map_or(&[], Vec::as_slice)
    }

    /// Whether the chain is there: built in, declared, or written to before.
    #[must_use]
    pub fn has_chain(&self, table: Table, chain: &str) -> bool {
        is_built_in(table, chain) || self.0.contains_key(&(table, chain.to_owned()))
    }

    /// Whether the chain holds this rule.
    #[must_use]
    pub fn has_rule(&self, table: Table, chain: &str, rule: &str) -> bool {
        self.rules(table, chain).iter().any(|known| known == rule)
    }

    /// Loads a script the way `iptables-restore --noflush` does: a declared
    /// chain is made, or emptied if it was there, and then the commands run in
    /// order.
    ///
    /// # Errors
    ///
    /// The first command that would fail, by its text; nothing is rolled back.
    pub fn load(&mut self, script: &Script) -> Result<(), ChainsError> {
        for (table, block) in script.tables() {
            for chain in &block.chains {
                self.0.insert((table, chain.clone()), Vec::new());
            }
            for command in &block.commands {
                self.run(table, command)?;
            }
        }
        Ok(())
    }

    /// Runs one command, `-A CHAIN RULE`, `-I CHAIN [NUMBER] RULE`, `-D CHAIN
    /// RULE` or `-F CHAIN`. `-D` takes the first of equal rules.
    ///
    /// # Errors
    ///
    /// A rule or chain that is not there, or a command this model does not know.
    pub fn run(&mut self, table: Table, command: &str) -> Result<(), ChainsError> {
        let unknown = || ChainsError::Unknown {
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
                let (place, rule) = place_of(rule);
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

    /// Puts a rule at the end of a chain.
    pub fn append(&mut self, table: Table, chain: &str, rule: &str) {
        self.chain(table, chain).push(rule.to_owned());
    }

    /// Puts a rule before the one that is at `place`, counted from nought.
    ///
    /// # Panics
    ///
    /// If there is no such place, as [`Vec::insert`].
    pub fn insert(&mut self, table: Table, chain: &str, place: usize, rule: &str) {
        self.chain(table, chain).insert(place, rule.to_owned());
    }

    /// Takes the first of equal rules out of a chain; says whether there was
    /// one.
    pub fn delete(&mut self, table: Table, chain: &str, rule: &str) -> bool {
        let rules = self.chain(table, chain);
        let place = rules.iter().position(|known| known == rule);
        place.map(|place| rules.remove(place)).is_some()
    }

    /// Makes a chain, or empties it if it is there.
    pub fn clear(&mut self, table: Table, chain: &str) {
        self.chain(table, chain).clear();
    }

    fn chain(&mut self, table: Table, chain: &str) -> &mut Vec<String> {
        self.0.entry((table, chain.to_owned())).or_default()
    }
}

impl fmt::Display for Chains {
    /// One `-A` line a rule, as `iptables-save` prints them, table by table.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for ((table, chain), rules) in &self.0 {
            for rule in rules {
                writeln!(f, "{table}: -A {chain} {rule}")?;
            }
        }
        Ok(())
    }
}

/// Where `-I CHAIN 3 RULE` puts its rule, counted from nought, and the rule.
fn place_of(rule: &str) -> (usize, &str) {
    match rule.split_once(' ') {
        Some((number, rest)) => match number.parse::<usize>() {
            Ok(number) if number > 0 => (number - 1, rest),
            _ => (0, rule),
        },
        None => (0, rule),
    }
}

/// The chains the kernel itself calls, by table.
fn is_built_in(table: Table, chain: &str) -> bool {
    table.built_in_chains().contains(&chain)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chains(commands: &[&str]) -> Result<Chains, ChainsError> {
        let mut chains = Chains::new();
        for command in commands {
            chains.run(Table::Nat, command)?;
        }
        Ok(chains)
    }

    #[test]
    fn inserts_come_first_and_appends_last() {
        let chains = chains(&[
            "-A OUTPUT -j RETURN",
            "-I OUTPUT -j ACCEPT",
            "-I OUTPUT 2 -s 10.0.0.1 -j ACCEPT",
        ])
        .expect("three rules");
        assert_eq!(
            chains.rules(Table::Nat, "OUTPUT"),
            ["-j ACCEPT", "-s 10.0.0.1 -j ACCEPT", "-j RETURN"]
        );
    }

    #[test]
    fn deletes_the_first_of_equal_rules() {
        let chains = chains(&[
            "-A OUTPUT -j RETURN",
            "-A OUTPUT -j ACCEPT",
            "-A OUTPUT -j RETURN",
            "-D OUTPUT -j RETURN",
        ])
        .expect("a deletion");
        assert_eq!(
            chains.rules(Table::Nat, "OUTPUT"),
            ["-j ACCEPT", "-j RETURN"]
        );
    }

    #[test]
    fn refuses_what_iptables_refuses() {
        assert!(matches!(
            chains(&["-D OUTPUT -j RETURN"]),
            Err(ChainsError::NoSuchRule { .. })
        ));
        assert!(matches!(
            chains(&["-A MINE -j RETURN"]),
            Err(ChainsError::NoSuchChain { .. })
        ));
        // nat has no FORWARD.
        assert!(matches!(
            chains(&["-A FORWARD -j RETURN"]),
            Err(ChainsError::NoSuchChain { .. })
        ));
        assert!(matches!(
            chains(&["-X OUTPUT"]),
            Err(ChainsError::Unknown { .. })
        ));
        assert!(matches!(
            chains(&["-I OUTPUT 2 -j RETURN"]),
            Err(ChainsError::Unknown { .. })
        ));
    }

    #[test]
    fn a_declared_chain_starts_empty() {
        let mut script = Script::new();
        script.table(Table::Nat).chain("MINE");
        script.table(Table::Nat).command("-A MINE -j RETURN");
        let mut chains = Chains::new();
        chains.load(&script).expect("first");
        chains.load(&script).expect("again");
        assert_eq!(chains.rules(Table::Nat, "MINE"), ["-j RETURN"]);
    }
}
