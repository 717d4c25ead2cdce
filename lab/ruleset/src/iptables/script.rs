//! Builds the input of `iptables-restore`: tables, declarations of chains, and commands in the
//! order in which a component issues them.

use std::collections::HashSet;
use std::fmt;

use serde::{Deserialize, Serialize};

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
    /// Policies of built-in chains, each a chain and `ACCEPT` or `DROP`. The last policy of a chain
    /// applies.
    pub policies: Vec<(String, &'static str)>,
    /// Commands for `iptables-restore`, `-A CHAIN …`, `-I CHAIN …`, `-D CHAIN …` or `-F CHAIN`,
    /// without a line end.
    pub commands: Vec<String>,
}

/// Input of `iptables-restore` from one or more components, with one block per table. The blocks
/// are in the order of first use.
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

    /// Whether the script changes nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.tables.iter().all(|(_, script)| {
            script.chains.is_empty() && script.policies.is_empty() && script.commands.is_empty()
        })
    }

    /// Appends the script of a component that writes later.
    pub fn append(&mut self, later: Self) {
        for (table, script) in later.tables {
            let block = self.table_mut(table);
            let mut declared: HashSet<String> = block.chains.iter().cloned().collect();
            for chain in script.chains {
                if declared.insert(chain.clone()) {
                    block.chains.push(chain);
                }
            }
            block.policies.extend(script.policies);
            block.commands.extend(script.commands);
        }
    }
}

impl TableScript {
    /// Declares a chain.
    pub fn declare_chain(&mut self, name: impl Into<String>) {
        self.chains.push(name.into());
    }

    /// Sets the policy of a built-in chain.
    pub fn set_policy(&mut self, chain: impl Into<String>, policy: &'static str) {
        self.policies.push((chain.into(), policy));
    }

    /// Appends a command.
    pub fn push_command(&mut self, command: impl Into<String>) {
        self.commands.push(command.into());
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
