//! Builds the input of `iptables-restore`: tables, declarations of chains, and commands in the
//! order in which a component issues them.

use std::collections::HashSet;
use std::fmt;

use serde::{Deserialize, Serialize};

use super::command::{Command, CommandError, Verb};
use crate::input::{InputError, ProgramInput};

/// Table of iptables.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Table {
    /// `raw`: before connection tracking.
    Raw,
    /// `mangle`: marks and header changes.
    Mangle,
    /// `nat`: address translation.
    Nat,
    /// `filter`: accepting and dropping.
    Filter,
    /// `security`: labels of mandatory access control.
    Security,
}

impl Table {
    /// Returns the table for the name in a dump: `nat`. `None` for an unknown name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Some(match name {
            "raw" => Self::Raw,
            "mangle" => Self::Mangle,
            "nat" => Self::Nat,
            "filter" => Self::Filter,
            "security" => Self::Security,
            _ => return None,
        })
    }

    /// Returns the built-in chains of the table, in the order in which a packet can pass them.
    #[must_use]
    pub fn built_in_chains(self) -> &'static [&'static str] {
        match self {
            Self::Raw => &["PREROUTING", "OUTPUT"],
            Self::Mangle => &["PREROUTING", "INPUT", "FORWARD", "OUTPUT", "POSTROUTING"],
            Self::Nat => &["PREROUTING", "INPUT", "OUTPUT", "POSTROUTING"],
            Self::Filter | Self::Security => &["INPUT", "FORWARD", "OUTPUT"],
        }
    }

    /// Returns the hook and the priority of a built-in chain, as nftables prints them:
    /// `("prerouting", -100)` (Linux v6.12, `include/uapi/linux/netfilter_ipv4.h`,
    /// `enum nf_ip_hook_priorities`). `None` for other chains.
    #[must_use]
    pub fn hook(self, chain: &str) -> Option<(String, i32)> {
        let priority = match (self, chain) {
            (Self::Raw, _) => -300,
            (Self::Mangle, _) => -150,
            (Self::Nat, "PREROUTING" | "OUTPUT") => -100,
            (Self::Nat, _) => 100,
            (Self::Filter, _) => 0,
            (Self::Security, _) => 50,
        };
        let is_built_in = self.is_built_in(chain);
        is_built_in.then(|| (chain.to_ascii_lowercase(), priority))
    }

    /// Whether the kernel itself calls the chain from a hook of the table.
    #[must_use]
    pub fn is_built_in(self, chain: &str) -> bool {
        self.built_in_chains().contains(&chain)
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Raw => "raw",
            Self::Mangle => "mangle",
            Self::Nat => "nat",
            Self::Filter => "filter",
            Self::Security => "security",
        })
    }
}

/// Part of an [`IptablesScript`] for one table.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TableScript {
    /// Chains to create, empty. Built-in chains are not declared, so they keep their policy unless
    /// `policies` changes it.
    pub chains: Vec<String>,
    /// Policies of built-in chains, each a chain and its policy. The last policy of a chain
    /// applies.
    pub policies: Vec<(String, String)>,
    /// Commands, after the declarations.
    pub commands: Vec<Command>,
}

/// Input of `iptables-restore --noflush` from one or more components, with one block per table. The
/// blocks are in the order of first use.
///
/// On a node, components write their rules one after another. [`IptablesScript::append`] keeps this
/// order within each table, so `-I` and `-A` have the same result. The kernel commits each table
/// only once.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct IptablesScript {
    tables: Vec<(Table, TableScript)>,
}

impl IptablesScript {
    /// Creates a script that changes nothing.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the block of a table. `None` if the script has none.
    #[must_use]
    pub fn table(&self, table: Table) -> Option<&TableScript> {
        let found = self.tables.iter().find(|(name, _)| *name == table);
        found.map(|(_, script)| script)
    }

    /// Returns the block of a table. Creates the block if necessary.
    pub fn table_mut(&mut self, table: Table) -> &mut TableScript {
        let index = self
            .tables
            .iter()
            .position(|(name, _)| *name == table)
            .unwrap_or_else(|| {
                self.tables.push((table, TableScript::default()));
                self.tables.len() - 1
            });
        &mut self.tables[index].1
    }

    /// Returns the blocks in the order of first use.
    pub fn tables(&self) -> impl Iterator<Item = (Table, &TableScript)> {
        self.tables.iter().map(|(table, script)| (*table, script))
    }

    /// Returns the blocks in the order of first use.
    pub fn tables_mut(&mut self) -> impl Iterator<Item = (Table, &mut TableScript)> {
        self.tables
            .iter_mut()
            .map(|(table, script)| (*table, script))
    }

    /// Whether the script changes nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.tables.iter().all(|(_, script)| script.is_empty())
    }

    /// Appends the script of a component that writes later.
    pub fn append(&mut self, later: Self) {
        for (table, script) in later.tables {
            let block = self.table_mut(table);
            let mut declared: HashSet<String> = block.chains.iter().cloned().collect();
            let deleted = block.deleted_chains();
            for chain in script.chains {
                if deleted.contains(&chain) {
                    block.push(Command::new_chain(chain));
                } else if declared.insert(chain.clone()) {
                    block.chains.push(chain);
                }
            }
            block.policies.extend(script.policies);
            block.commands.extend(script.commands);
        }
    }

    /// Adds a line of `iptables-save` or `iptables-restore`. `table` is the table of the line, and
    /// is set by a line that starts a table.
    ///
    /// # Errors
    ///
    /// See [`LineError`].
    pub fn add_line(&mut self, table: &mut Option<Table>, line: &str) -> Result<(), LineError> {
        let line = line.trim();
        if let Some(name) = line.strip_prefix('*') {
            let unknown = || LineError::UnknownTable(name.to_owned());
            *table = Some(Table::from_name(name.trim()).ok_or_else(unknown)?);
            return Ok(());
        }
        if line.is_empty() || line.starts_with('#') || line == "COMMIT" {
            return Ok(());
        }
        let table = table.ok_or_else(|| LineError::OutsideTable(line.to_owned()))?;
        let block = self.table_mut(table);
        if let Some(declared) = line.strip_prefix(':') {
            return block.declare(table, declared);
        }
        block.push(line.parse()?);
        Ok(())
    }
}

/// Error for a line that `iptables-restore` or svclab does not accept.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LineError {
    /// The table does not exist.
    #[error("`{0}` is not a table; the tables are raw, mangle, nat, filter and security")]
    UnknownTable(String),
    /// No line started a table before.
    #[error("`{0}` is before the first table")]
    OutsideTable(String),
    /// The line declares no chain.
    #[error("`:{0}` declares no chain")]
    NoChain(String),
    /// A built-in chain needs a policy.
    #[error("`:{line}` sets no policy; the policy of `{chain}` is ACCEPT or DROP")]
    NoPolicy {
        /// Line without its colon.
        line: String,
        /// Name of the chain.
        chain: String,
    },
    /// Only built-in chains have a policy.
    #[error(
        "`:{line}`: `{chain}` is not a built-in chain of table {table} and has no policy; write \
         `:{chain} -`"
    )]
    NotBuiltIn {
        /// Line without its colon.
        line: String,
        /// Name of the chain.
        chain: String,
        /// Table of the line.
        table: Table,
    },
    /// The line is neither a declaration nor a supported command.
    #[error(transparent)]
    Command(#[from] CommandError),
}

impl TableScript {
    /// Declares a chain.
    pub fn declare_chain(&mut self, name: impl Into<String>) {
        self.chains.push(name.into());
    }

    /// Adds a command.
    pub fn push(&mut self, command: Command) {
        self.commands.push(command);
    }

    /// Appends a rule to a chain, given by the words after the chain name.
    pub fn append(&mut self, chain: impl Into<String>, rule: impl Into<String>) {
        self.push(Command::append(chain, rule));
    }

    /// Inserts a rule at the top of a chain, given by the words after the chain name.
    pub fn insert(&mut self, chain: impl Into<String>, rule: impl Into<String>) {
        self.push(Command::insert(chain, rule));
    }

    /// Returns the chains that the block creates, also those that it deletes again.
    pub fn created_chains(&self) -> impl Iterator<Item = &str> {
        let commands = self.commands.iter();
        let created = commands.filter(|command| command.verb == Verb::NewChain);
        let created = created.map(|command| command.chain.as_str());
        self.chains.iter().map(String::as_str).chain(created)
    }

    /// Returns the built-in chains that the block sets a policy of or adds rules to.
    pub fn used_built_in_chains(&self, table: Table) -> impl Iterator<Item = &str> {
        let policies = self.policies.iter().map(|(chain, _)| chain.as_str());
        let rules = self.commands.iter().map(|command| command.chain.as_str());
        policies
            .chain(rules)
            .filter(move |chain| table.is_built_in(chain))
    }

    /// Returns the chains that the commands delete and do not create again. The rendered block
    /// declares its chains before all commands.
    fn deleted_chains(&self) -> HashSet<String> {
        let mut deleted = HashSet::new();
        for command in &self.commands {
            match command.verb {
                Verb::DeleteChain => {
                    deleted.insert(command.chain.clone());
                }
                Verb::NewChain => {
                    deleted.remove(&command.chain);
                }
                Verb::Append | Verb::Insert | Verb::Delete | Verb::Flush => {}
            }
        }
        deleted
    }

    /// Whether the block changes nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.chains.is_empty() && self.policies.is_empty() && self.commands.is_empty()
    }

    /// Adds a line `:CHAIN POLICY [PACKETS:BYTES]`, without its colon. `iptables-restore --noflush`
    /// sets the policy of a built-in chain and keeps its rules. It creates any other chain, or
    /// flushes the existing chain (iptables v1.8.9 `iptables/iptables-restore.c`,
    /// `ip46tables_restore_main`).
    fn declare(&mut self, table: Table, declared: &str) -> Result<(), LineError> {
        let mut words = declared.split_whitespace();
        let name = words.next().unwrap_or_default();
        if name.starts_with('-') || name.is_empty() {
            return Err(LineError::NoChain(declared.to_owned()));
        }
        match (table.is_built_in(name), words.next()) {
            (true, Some(policy @ ("ACCEPT" | "DROP"))) => {
                self.policies.push((name.to_owned(), policy.to_owned()));
            }
            (true, Some("-")) => {}
            (false, Some("-")) if self.deleted_chains().contains(name) => {
                self.push(Command::new_chain(name));
            }
            (false, Some("-")) if self.chains.iter().any(|known| known == name) => {
                self.push(Command::flush(name));
            }
            (false, Some("-")) => self.declare_chain(name),
            (true, _) => {
                return Err(LineError::NoPolicy {
                    line: declared.to_owned(),
                    chain: name.to_owned(),
                });
            }
            (false, _) => {
                return Err(LineError::NotBuiltIn {
                    line: declared.to_owned(),
                    chain: name.to_owned(),
                    table,
                });
            }
        }
        Ok(())
    }
}

impl fmt::Display for IptablesScript {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (table, script) in &self.tables {
            writeln!(f, "*{table}")?;
            for chain in &script.chains {
                writeln!(f, ":{chain} - [0:0]")?;
            }
            for (chain, policy) in &script.policies {
                writeln!(f, ":{chain} {policy} [0:0]")?;
            }
            for command in &script.commands {
                writeln!(f, "{command}")?;
            }
            writeln!(f, "COMMIT")?;
        }
        Ok(())
    }
}

impl ProgramInput for IptablesScript {
    fn parse(text: &str) -> Result<Self, InputError> {
        let (mut script, mut table) = (Self::new(), None);
        for line in text.lines() {
            let added = script.add_line(&mut table, line);
            added.map_err(|error| InputError(error.to_string()))?;
            // A table without rules is loaded, too.
            if let Some(table) = table {
                script.table_mut(table);
            }
        }
        Ok(script)
    }

    fn render(&self) -> String {
        self.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn script_parse_keeps_text() {
        let text = "*raw\nCOMMIT\n*nat\n:MINE - [0:0]\n:OUTPUT DROP [0:0]\n-A MINE -j RETURN\n\
                    -F MINE\nCOMMIT\n";
        assert_eq!(IptablesScript::parse(text).unwrap().to_string(), text);
    }

    #[test]
    fn script_parse_policy_of_built_in_chain_is_set() {
        let text = "*filter\n:FORWARD DROP [12:720]\n:INPUT - [0:0]\nCOMMIT\n";
        assert_eq!(
            IptablesScript::parse(text).unwrap().to_string(),
            "*filter\n:FORWARD DROP [0:0]\nCOMMIT\n"
        );
    }

    #[test]
    fn script_parse_known_chain_is_flushed() {
        let text = "*nat\n:X - [0:0]\n-A X -j RETURN\n:X - [0:0]\n";
        assert_eq!(
            IptablesScript::parse(text).unwrap().to_string(),
            "*nat\n:X - [0:0]\n-A X -j RETURN\n-F X\nCOMMIT\n"
        );
    }

    #[test]
    fn script_deleted_chain_is_created_again() {
        let text = "*nat\n:X - [0:0]\n-X X\n:X - [0:0]\n-A X -j RETURN\n";
        let mut script = IptablesScript::parse(text).unwrap();
        let mut expected = "*nat\n:X - [0:0]\n-X X\n-N X\n-A X -j RETURN\n".to_owned();
        assert_eq!(script.to_string(), format!("{expected}COMMIT\n"));
        let later = IptablesScript::parse("*nat\n-F X\n-X X\n").unwrap();
        script.append(later);
        script.append(IptablesScript::parse("*nat\n:X - [0:0]\n-A X -j DROP\n").unwrap());
        expected += "-F X\n-X X\n-N X\n-A X -j DROP\n";
        assert_eq!(script.to_string(), format!("{expected}COMMIT\n"));
        let chains = super::super::chains::Chains::from_script(&script).unwrap();
        assert_eq!(chains.rules(Table::Nat, "X"), ["-j DROP"]);
    }

    #[test]
    fn script_parse_invalid_line_returns_error() {
        let messages = [
            "*nut",
            "-A INPUT -j DROP",
            "*filter\n:FORWARD REJECT",
            "*filter\n:FORWARD",
            "*filter\n:MINE DROP",
            "*filter\n:MINE",
            "*filter\n:PREROUTING DROP",
            "*filter\n:",
            "*filter\niptables -F",
        ]
        .map(|text| IptablesScript::parse(text).unwrap_err().to_string());
        insta::assert_snapshot!(messages.join("\n"));
    }
}
