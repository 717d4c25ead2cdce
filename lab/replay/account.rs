//! What of a replayed node is real, what stands in, and what is missing.

use serde::{Deserialize, Serialize};

/// What became of what was dumped of a node.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Account {
    /// The node.
    pub node: String,
    /// What is as it was dumped: `83 rules of iptables-nft-save`.
    pub real: Vec<String>,
    /// What stands in for what was not dumped.
    pub stands_in: Vec<String>,
    /// What was dumped and is not built.
    pub left_out: Vec<LeftOut>,
}

/// Something that was dumped and is not built.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LeftOut {
    /// What it is.
    pub what: String,
    /// Why.
    pub because: String,
    /// What may come out otherwise for that; empty if nothing does.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub affects: String,
}

impl Account {
    pub(super) fn of(node: &str) -> Self {
        Self {
            node: node.to_owned(),
            ..Self::default()
        }
    }

    pub(super) fn is_real(&mut self, what: impl Into<String>) {
        self.real.push(what.into());
    }

    pub(super) fn stands_in(&mut self, what: impl Into<String>) {
        self.stands_in.push(what.into());
    }

    /// Something was dumped and is not built.
    pub fn left_out(
        &mut self,
        what: impl Into<String>,
        because: impl Into<String>,
        affects: impl Into<String>,
    ) {
        self.left_out.push(LeftOut {
            what: what.into(),
            because: because.into(),
            affects: affects.into(),
        });
    }
}

/// How many there are of something.
pub(super) fn counted(count: usize, one: &str, several: &str) -> String {
    match count {
        0 => format!("no {several}"),
        1 => format!("1 {one}"),
        more => format!("{more} {several}"),
    }
}

/// For people, lines ended.
impl std::fmt::Display for Account {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(f, "{}", self.node)?;
        for (word, lines) in [("real", &self.real), ("stands in", &self.stands_in)] {
            for (at, line) in lines.iter().enumerate() {
                let word = if at == 0 { word } else { "" };
                writeln!(f, "  {word:<9}  {line}")?;
            }
        }
        for (at, left) in self.left_out.iter().enumerate() {
            let word = if at == 0 { "left out" } else { "" };
            write!(f, "  {word:<9}  {}: {}", left.what, left.because)?;
            if !left.affects.is_empty() {
                write!(f, "; {}", left.affects)?;
            }
            writeln!(f)?;
        }
        Ok(())
    }
}
