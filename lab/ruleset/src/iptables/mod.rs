//! The rules of a node as `iptables-save` prints them: read, and compared by
//! what they mean.
//!
//! [`Dump::parse`] reads a dump, [`Dump::of_script`] says what a
//! [`Script`](crate::iptables::script::Script) leaves behind in an empty namespace,
//! [`compare()`] tells two dumps apart.

mod apply;
mod canonical;
mod known;
mod parse;
mod pieces;
pub mod rule;
pub mod script;
pub mod words;

pub use apply::ApplyError;
pub use parse::ParseError;
pub use rule::Rule;

use std::fmt;

use crate::iptables::script::Table;

/// What one `iptables-save` printed.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Dump {
    /// Its tables, in the order they were printed.
    pub tables: Vec<TableDump>,
}

/// One table of a [`Dump`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableDump {
    /// Which table.
    pub table: Table,
    /// Its chains, in the order they were printed.
    pub chains: Vec<Chain>,
}

/// One chain of a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chain {
    /// Its name.
    pub name: String,
    /// What a built-in chain does with packets that reach its end: `ACCEPT` or
    /// `DROP`. Chains of components have none.
    pub policy: Option<String>,
    /// Its rules, in order.
    pub rules: Vec<Rule>,
    /// The line that declares it, from 1; 0 if it is of no file.
    pub line: u32,
}

/// As `iptables-save` writes it and `iptables-restore` reads it, each rule as it was
/// written, with its counters if it has any.
impl fmt::Display for Dump {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for TableDump { table, chains } in &self.tables {
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
                    writeln!(f, "-A {name} {}", rule.written().trim_ascii())?;
                }
            }
            writeln!(f, "COMMIT")?;
        }
        Ok(())
    }
}

impl Dump {
    /// The table called `table`, if it was printed.
    #[must_use]
    pub fn table(&self, table: Table) -> Option<&TableDump> {
        self.tables.iter().find(|dump| dump.table == table)
    }

    /// The chain `chain` of `table`, if it was printed.
    #[must_use]
    pub fn chain(&self, table: Table, chain: &str) -> Option<&Chain> {
        let chains = &self.table(table)?.chains;
        chains.iter().find(|found| found.name == chain)
    }
}
