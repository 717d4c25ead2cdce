//! Commands of `nft` that remove objects of a ruleset.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Removal of a table or of a part of it. Renders itself as a command for `nft -f`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Removal {
    /// Family and name of the table: `ip kube-proxy`.
    pub table: String,
    /// Removed part of the table.
    pub part: TablePart,
}

/// Part of a table that a command removes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum TablePart {
    /// Table with everything in it.
    Whole,
    /// Rules of the chain with this name. The chain remains.
    Rules(String),
    /// Empty chain with this name.
    Chain(String),
    /// Set with this name.
    Set(String),
    /// Map with this name.
    Map(String),
    /// Element of a set or map.
    Element {
        /// Name of the set or map.
        set: String,
        /// Key of the element, without options.
        key: String,
    },
}

impl fmt::Display for Removal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { table, part } = self;
        match part {
            TablePart::Whole => write!(f, "delete table {table}"),
            TablePart::Rules(chain) => write!(f, "flush chain {table} {chain}"),
            TablePart::Chain(chain) => write!(f, "delete chain {table} {chain}"),
            TablePart::Set(set) => write!(f, "delete set {table} {set}"),
            TablePart::Map(map) => write!(f, "delete map {table} {map}"),
            TablePart::Element { set, key } => {
                write!(f, "delete element {table} {set} {{ {key} }}")
            }
        }
    }
}
