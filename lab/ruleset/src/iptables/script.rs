//! The input of one `iptables-restore`: tables, the chains they declare, and
//! the commands that fill them, in the order a component would issue them.

use std::collections::HashSet;
use std::fmt;

use serde::{Deserialize, Serialize};

/// A table of iptables.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Table {
    /// Before connection tracking.
    Raw,
    /// Marks and header changes.
    Mangle,
    /// Address translation.
    Nat,
    /// Accepting and dropping.
    Filter,
    /// Labels of mandatory access control.
    Security,
}

impl Table {
    /// The table called `name` in a dump: `nat`.
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

    /// The chains that the kernel itself calls, in the order a packet can meet
    /// them.
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

/// One table's share of a [`Script`].
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TableScript {
    /// Chains of the component's own, created empty. Built-in chains are not
    /// declared: their policy stays as it is, unless `policies` changes it.
    pub chains: Vec<String>,
    /// The policies of built-in chains, each a chain and `ACCEPT` or `DROP`; the last
    /// one of a chain counts.
    pub policies: Vec<(String, &'static str)>,
    /// Commands as `iptables-restore` reads them, `-A CHAIN …`, `-I CHAIN …`,
    /// `-D CHAIN …` or `-F CHAIN`, without a line end.
    pub commands: Vec<String>,
}

/// What one or several components hand to `iptables-restore`, one block a
/// table, in the order the tables were first named.
///
/// Components write one after the other on a real node; [`Script::append`]
/// keeps that order within each table, so that `-I` and `-A` land where they
/// would have landed, while the kernel commits each table once.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Script {
    tables: Vec<(Table, TableScript)>,
}

impl Script {
    /// A script that changes nothing.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The block of `table`, made if it is not there yet.
    pub fn table(&mut self, table: Table) -> &mut TableScript {
        let at = self
            .tables
            .iter()
            .position(|(name, _)| *name == table)
            .unwrap_or_else(|| {
                self.tables.push((table, TableScript::default()));
                self.tables.len() - 1
            });
        &mut self.tables[at].1
    }

    /// The blocks, in the order they were first named.
    pub fn tables(&self) -> impl Iterator<Item = (Table, &TableScript)> {
        self.tables.iter().map(|(table, script)| (*table, script))
    }

    /// Whether there is nothing to load.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.tables.iter().all(|(_, script)| {
            script.chains.is_empty() && script.policies.is_empty() && script.commands.is_empty()
        })
    }

    /// Adds what a component that started later writes.
    pub fn append(&mut self, later: Self) {
        for (table, script) in later.tables {
            let block = self.table(table);
            let mut known: HashSet<String> = block.chains.iter().cloned().collect();
            for chain in script.chains {
                if known.insert(chain.clone()) {
                    block.chains.push(chain);
                }
            }
            block.policies.extend(script.policies);
            block.commands.extend(script.commands);
        }
    }
}

impl TableScript {
    /// Declares a chain of the component's own.
    pub fn chain(&mut self, name: impl Into<String>) {
        self.chains.push(name.into());
    }

    /// Sets the policy of a built-in chain.
    pub fn policy(&mut self, chain: impl Into<String>, policy: &'static str) {
        self.policies.push((chain.into(), policy));
    }

    /// Adds one command.
    pub fn command(&mut self, command: impl Into<String>) {
        self.commands.push(command.into());
    }
}

impl fmt::Display for Script {
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
