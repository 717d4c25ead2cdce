//! Models the chains of a namespace as lists of rules, and the effect of commands on them. The model
//! gives the rules that a script creates, without a kernel.

use std::fmt;

use indexmap::IndexMap;

use super::command::{Command, Verb};
use super::rule::Rule;
use super::script::{IptablesScript, Table, TableScript};

/// Chains of each table, in the order of first use.
///
/// A rule is its text after the chain name (`-s 10.0.0.0/8 -j RETURN`). Rules are equal if their
/// texts are equal: a component that searches for its own rule writes the same text each time.
/// Built-in chains need not be declared.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Chains {
    /// Tables by name.
    pub tables: IndexMap<Table, TableChains>,
}

/// Chains of one table.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TableChains {
    /// Rules by chain, in order.
    pub chains: IndexMap<String, Vec<String>>,
    /// Policies that were set, by chain. The policy of any other built-in chain is `ACCEPT`.
    pub policies: IndexMap<String, String>,
}

/// Command that iptables rejects.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ChainsError {
    /// `-D` of a rule that the chain does not contain, or a rule number out of range.
    #[error("cannot run `{command}` in table {table}: the rule does not exist")]
    NoSuchRule {
        /// Table of the command.
        table: Table,
        /// Text of the command.
        command: String,
    },
    /// `-N` of a chain that exists.
    #[error("cannot run `{command}` in table {table}: the chain exists")]
    ChainExists {
        /// Table of the command.
        table: Table,
        /// Text of the command.
        command: String,
    },
    /// `-X` of a chain that is built in, has rules, or is the target of a rule.
    #[error(
        "cannot run `{command}` in table {table}: the chain is built in, has rules, or is the \
         target of a rule"
    )]
    ChainInUse {
        /// Table of the command.
        table: Table,
        /// Text of the command.
        command: String,
    },
    /// Command for a chain that is neither built in nor declared.
    #[error("cannot run `{command}` in table {table}: the chain does not exist; declare it first")]
    NoSuchChain {
        /// Table of the command.
        table: Table,
        /// Text of the command.
        command: String,
    },
}

impl Chains {
    /// Creates a namespace without rules.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the chains that a script creates in an empty namespace.
    ///
    /// # Errors
    ///
    /// Returns the first command that fails.
    pub fn from_script(script: &IptablesScript) -> Result<Self, ChainsError> {
        let mut chains = Self::new();
        chains.load(script)?;
        Ok(chains)
    }

    /// Returns the rules of a chain in order, or an empty slice if the chain does not exist.
    #[must_use]
    pub fn rules(&self, table: Table, chain: &str) -> &[String] {
        let chains = self.tables.get(&table).map(|of| &of.chains);
        chains
            .and_then(|chains| chains.get(chain))
            .map_or(&[], Vec::as_slice)
    }

    /// Whether the chain exists: built in, declared, or with rules.
    #[must_use]
    pub fn has_chain(&self, table: Table, chain: &str) -> bool {
        let tables = self.tables.get(&table);
        table.is_built_in(chain) || tables.is_some_and(|of| of.chains.contains_key(chain))
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
        let mut tables = script.tables();
        tables.try_for_each(|(table, block)| self.load_table(table, block))
    }

    /// Loads one table of a script.
    ///
    /// # Errors
    ///
    /// Returns the first command that fails; earlier changes are not rolled back.
    pub fn load_table(&mut self, table: Table, block: &TableScript) -> Result<(), ChainsError> {
        let of = self.tables.entry(table).or_default();
        for chain in &block.chains {
            of.chains.insert(chain.clone(), Vec::new());
        }
        of.policies.extend(block.policies.iter().cloned());
        let mut commands = block.commands.iter();
        commands.try_for_each(|command| self.apply(table, command))
    }

    /// Runs one command. `-D` without a number deletes the first rule with the same text, otherwise
    /// the first with the same meaning.
    ///
    /// # Errors
    ///
    /// Fails if a rule or chain does not exist.
    pub fn apply(&mut self, table: Table, command: &Command) -> Result<(), ChainsError> {
        let text = || command.to_string();
        match (command.verb, self.has_chain(table, &command.chain)) {
            (Verb::NewChain, true) => {
                let command = text();
                return Err(ChainsError::ChainExists { table, command });
            }
            (Verb::NewChain, false) => {
                self.clear(table, &command.chain);
                return Ok(());
            }
            (Verb::DeleteChain, true) => {
                if self.is_in_use(table, &command.chain) {
                    let command = text();
                    return Err(ChainsError::ChainInUse { table, command });
                }
                let of = self.tables.entry(table).or_default();
                of.chains.shift_remove(&command.chain);
                return Ok(());
            }
            (_, false) => {
                let command = text();
                return Err(ChainsError::NoSuchChain { table, command });
            }
            (_, true) => {}
        }
        let rules = self.chain(table, &command.chain);
        let rule = &command.rule;
        let index = command.number.and_then(|number| number.checked_sub(1));
        let done = match command.verb {
            Verb::Append => {
                rules.push(rule.clone());
                true
            }
            Verb::Insert => {
                let index = index.unwrap_or(0);
                let is_valid = index <= rules.len();
                if is_valid {
                    rules.insert(index, rule.clone());
                }
                is_valid
            }
            Verb::Delete => {
                let equal = || rules.iter().position(|known| known == rule);
                let found = index
                    .or_else(equal)
                    .or_else(|| find_equivalent(rules, rule));
                let found = found.filter(|index| *index < rules.len());
                found.map(|index| rules.remove(index)).is_some()
            }
            Verb::Flush | Verb::NewChain | Verb::DeleteChain => {
                rules.clear();
                true
            }
        };
        if done {
            return Ok(());
        }
        let command = text();
        Err(ChainsError::NoSuchRule { table, command })
    }

    /// Whether the kernel refuses to delete a chain.
    fn is_in_use(&self, table: Table, chain: &str) -> bool {
        let jumps_here = |rule: &String| {
            let words: Vec<&str> = rule.split_whitespace().collect();
            words.windows(2).any(|pair| {
                matches!(pair, ["-j" | "--jump" | "-g" | "--goto", target] if *target == chain)
            })
        };
        let chains = self.tables.get(&table).map(|of| &of.chains);
        table.is_built_in(chain)
            || !self.rules(table, chain).is_empty()
            || chains.is_some_and(|chains| chains.values().flatten().any(jumps_here))
    }

    /// Appends a rule to a chain.
    pub fn append(&mut self, table: Table, chain: &str, rule: &str) {
        self.chain(table, chain).push(rule.to_owned());
    }

    /// Inserts a rule at the top of a chain.
    pub fn insert(&mut self, table: Table, chain: &str, rule: &str) {
        self.chain(table, chain).insert(0, rule.to_owned());
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
        let chains = &mut self.tables.entry(table).or_default().chains;
        // Most chains exist, and then their name is not copied.
        let index = match chains.get_index_of(chain) {
            Some(index) => index,
            None => chains.insert_full(chain.to_owned(), Vec::new()).0,
        };
        &mut chains[index]
    }
}

/// Returns the position of a rule with the same meaning, as iptables compares rules.
fn find_equivalent(rules: &[String], rule: &str) -> Option<usize> {
    let wanted = Rule::from_words(rule).ok()?;
    let is_same =
        |known: &String| Rule::from_words(known.as_str()).is_ok_and(|known| known == wanted);
    rules.iter().position(is_same)
}

/// Returns the script that creates these chains in an empty namespace.
impl From<&Chains> for IptablesScript {
    fn from(chains: &Chains) -> Self {
        let mut script = Self::new();
        for (table, of) in &chains.tables {
            let block = script.table_mut(*table);
            let declared = of.chains.keys().filter(|name| !table.is_built_in(name));
            block.chains = declared.cloned().collect();
            let policies = of.policies.iter();
            block.policies = policies
                .map(|(chain, policy)| (chain.clone(), policy.clone()))
                .collect();
            for (chain, rules) in &of.chains {
                let rules = rules.iter();
                block
                    .commands
                    .extend(rules.map(|rule| Command::append(chain, rule)));
            }
        }
        script
    }
}

impl fmt::Display for Chains {
    /// Writes one `-A` line per rule, as `iptables-save` prints them, table by table.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (table, TableChains { chains, .. }) in &self.tables {
            for (chain, rules) in chains {
                for rule in rules {
                    writeln!(f, "{table}: -A {chain} {rule}")?;
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::input::ProgramInput as _;

    fn chains(commands: &[&str]) -> Result<Chains, ChainsError> {
        let mut chains = Chains::new();
        for command in commands {
            let command = command.parse().expect("supported command");
            chains.apply(Table::Nat, &command)?;
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
    fn chains_delete_compares_rules_by_meaning() {
        let chains = chains(&[
            "-A OUTPUT -d 10.0.0.1 -p tcp --dport 80 -j RETURN",
            "-D OUTPUT -p tcp -d 10.0.0.1/32 -m tcp --dport 80 -j RETURN",
        ])
        .expect("valid commands");
        assert!(chains.rules(Table::Nat, "OUTPUT").is_empty());
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
        for commands in [
            &["-X OUTPUT"] as &[&str],
            &["-N MINE", "-A MINE -j RETURN", "-X MINE"],
            &["-N MINE", "-A OUTPUT -s 10.0.0.1 -j MINE", "-X MINE"],
        ] {
            assert!(
                matches!(chains(commands), Err(ChainsError::ChainInUse { .. })),
                "{commands:?}"
            );
        }
        assert!(matches!(
            chains(&["-N OUTPUT"]),
            Err(ChainsError::ChainExists { .. })
        ));
        assert!(matches!(
            chains(&["-N MINE", "-X MINE", "-F MINE"]),
            Err(ChainsError::NoSuchChain { .. })
        ));
        // The nat table has no FORWARD chain.
        assert!(matches!(
            chains(&["-A FORWARD -j RETURN"]),
            Err(ChainsError::NoSuchChain { .. })
        ));
        assert!(matches!(
            chains(&["-I OUTPUT 2 -j RETURN"]),
            Err(ChainsError::NoSuchRule { .. })
        ));
        assert!(matches!(
            chains(&["-D OUTPUT 1"]),
            Err(ChainsError::NoSuchRule { .. })
        ));
    }

    #[test]
    fn chains_load_declared_chain_is_emptied() {
        let mut script = IptablesScript::new();
        script.table_mut(Table::Nat).declare_chain("MINE");
        script.table_mut(Table::Nat).append("MINE", "-j RETURN");
        let mut chains = Chains::new();
        chains.load(&script).expect("valid script");
        chains.load(&script).expect("valid script");
        assert_eq!(chains.rules(Table::Nat, "MINE"), ["-j RETURN"]);
    }

    #[test]
    fn chains_script_creates_same_chains() {
        let text = "*filter\n:MINE - [0:0]\n:INPUT DROP [0:0]\n-A MINE -j A\n-I MINE 1 -j B\n\
                    -A INPUT -j MINE\nCOMMIT\n";
        let script = IptablesScript::parse(text).expect("valid script");
        let chains = Chains::from_script(&script).expect("valid commands");
        let again = IptablesScript::from(&chains);
        assert_eq!(
            again.to_string(),
            "*filter\n:MINE - [0:0]\n:INPUT DROP [0:0]\n-A MINE -j B\n-A MINE -j A\n\
             -A INPUT -j MINE\nCOMMIT\n"
        );
        assert_eq!(Chains::from_script(&again), Ok(chains));
    }
}
