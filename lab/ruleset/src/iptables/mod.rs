//! Parses the rules of a node as `iptables-save` prints them, and renders them.
//!
//! [`IptablesRules::parse`] parses the output of `iptables-save`. [`IptablesRules::from_script`]
//! computes the rules that an [`IptablesScript`](script::IptablesScript) creates in an empty
//! namespace. The crate `svclab-dump` compares two sets of rules.

mod apply;
mod canonical;
pub mod chains;
mod classify;
pub mod command;
mod extensions;
mod parse;
pub mod parts;
pub mod rule;
pub mod script;
pub mod words;

pub use apply::ApplyError;
pub use parse::ParseError;
pub use rule::Rule;

use std::fmt;

use crate::iptables::script::Table;

/// Output of one `iptables-save`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct IptablesRules {
    /// Tables in printed order.
    pub tables: Vec<TableRules>,
}

/// Table of [`IptablesRules`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableRules {
    /// Name of the table.
    pub table: Table,
    /// Chains in printed order.
    pub chains: Vec<Chain>,
}

/// Chain of a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chain {
    /// Name, unique in the table.
    pub name: String,
    /// Policy of a built-in chain for packets that reach its end: `ACCEPT` or `DROP`. `None` for
    /// other chains.
    pub policy: Option<String>,
    /// Rules in order of evaluation.
    pub rules: Vec<Rule>,
    /// Line number of the declaration, from 1. 0 if the chain was not parsed from a file.
    pub line: u32,
}

/// Formats the rules as `iptables-save` prints them and `iptables-restore` reads them. Each rule
/// keeps its source text and its counters.
impl fmt::Display for IptablesRules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for TableRules { table, chains } in &self.tables {
            writeln!(f, "*{table}")?;
            for chain in chains {
                let policy = chain.policy.as_deref().unwrap_or("-");
                writeln!(f, ":{} {policy} [0:0]", chain.name)?;
            }
            for Chain { name, rules, .. } in chains {
                for rule in rules {
                    if let (Some(packets), Some(bytes)) = (rule.packets, rule.bytes) {
                        write!(f, "[{packets}:{bytes}] ")?;
                    }
                    writeln!(f, "-A {name} {}", rule.source_text().trim_ascii())?;
                }
            }
            writeln!(f, "COMMIT")?;
        }
        Ok(())
    }
}

impl IptablesRules {
    /// Returns the content of a table. `None` if the table was not printed.
    #[must_use]
    pub fn table(&self, table: Table) -> Option<&TableRules> {
        self.tables.iter().find(|dump| dump.table == table)
    }

    /// Returns a chain of a table. `None` if the chain was not printed.
    #[must_use]
    pub fn chain(&self, table: Table, chain: &str) -> Option<&Chain> {
        let chains = &self.table(table)?.chains;
        chains.iter().find(|candidate| candidate.name == chain)
    }
}
