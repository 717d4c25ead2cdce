//! What of a replayed node is real, what stands in, and what is missing.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use serde::{Deserialize, Serialize};

use super::ways::InChain;

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
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LeftOut {
    /// Where it stands in the dump, if it is one line.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<At>,
    /// What it is.
    pub what: String,
    /// Why.
    pub because: String,
    /// What may come out otherwise for that; empty if nothing does.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub affects: String,
    /// Of a rule, the chain that it stood in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub in_chain: Option<InChain>,
    /// The probes of which packets came to that chain; none before anything was tried.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub passed_by: Option<BTreeSet<String>>,
    /// The word by which what is real counts it: `setting`, or the file of rules.
    #[serde(skip)]
    pub(super) counted_as: String,
}

/// A line of a dump.
#[derive(
    Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, schemars::JsonSchema,
)]
pub struct At {
    /// The file; one in a tarball behind a colon.
    pub file: String,
    /// The line, from 1.
    pub line: u32,
}

impl LeftOut {
    /// Something of which nothing more is known than that it is not there.
    #[must_use]
    pub fn of(at: Option<At>, what: impl Into<String>, because: impl Into<String>) -> Self {
        Self {
            at,
            what: what.into(),
            because: because.into(),
            affects: AS_IF_NOT.to_owned(),
            ..Self::default()
        }
    }

    /// By which word what is real counts it.
    #[must_use]
    pub(super) fn counted_as(mut self, word: impl Into<String>) -> Self {
        self.counted_as = word.into();
        self
    }

    /// Of a rule, what stands in its chain and how packets come there.
    #[must_use]
    pub fn in_chain(mut self, chain: InChain) -> Self {
        self.affects = if chain.by.is_empty() {
            format!("nothing: no chain leads to {chain}")
        } else {
            format!("packets in {chain} {FARE}")
        };
        self.in_chain = Some(chain);
        self
    }

    /// Notes the probes of which packets came to the chain that it stood in.
    pub fn seen(&mut self, by: impl Fn(&InChain) -> BTreeSet<String>) {
        self.passed_by = self.in_chain.as_ref().map(by);
    }
}

/// How packets fare without something.
const FARE: &str = "fare as if it were not there";

/// The same of whoever met it.
const AS_IF_NOT: &str = "packets fare as if it were not there";

impl LeftOut {
    /// In lines: what it is and where, why, and what that means. What is of no line is told
    /// in one.
    #[must_use]
    pub fn lines(&self) -> Vec<String> {
        let Some(at) = &self.at else {
            let affects = match self.affects.as_str() {
                "" => String::new(),
                affects => format!("; {affects}"),
            };
            return vec![format!("{}: {}{affects}", self.what, self.because)];
        };
        let led = self.in_chain.as_ref().is_some_and(|at| !at.by.is_empty());
        let passed = match self.passed_by.as_ref().filter(|_| led) {
            None => String::new(),
            Some(probes) if probes.is_empty() => "; no packet of a probe came there".to_owned(),
            Some(probes) => {
                let probes: Vec<&str> = probes.iter().map(String::as_str).collect();
                format!("; packets of {} came there", probes.join(", "))
            }
        };
        let affects = format!("{}{passed}", self.affects);
        let lines = [
            format!("{at}: {}", self.what),
            self.because.clone(),
            affects,
        ];
        lines.into_iter().filter(|line| !line.is_empty()).collect()
    }
}

/// `FILE:LINE`
impl std::fmt::Display for At {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}", self.file, self.line)
    }
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
            ..LeftOut::default()
        });
    }
}

impl Account {
    /// Notes what a kernel refused of what was to be real.
    pub fn without(&mut self, left: Vec<LeftOut>) {
        for real in &mut self.real {
            let words: Vec<&str> = real.split(' ').collect();
            let of_it = |one: &&LeftOut| {
                let word = one.counted_as.as_str();
                let is_it = |own: &&str| {
                    own.strip_prefix(word)
                        .is_some_and(|rest| matches!(rest, "" | "s" | "es"))
                };
                !word.is_empty() && words.iter().any(is_it)
            };
            match left.iter().filter(of_it).count() {
                0 => {}
                count => {
                    let _ = write!(real, ", but for {count} that the kernel refuses");
                }
            }
        }
        self.left_out.extend(left);
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
            for (at, line) in left.lines().into_iter().enumerate() {
                let (word, indent) = if at == 0 { (word, "") } else { ("", "  ") };
                writeln!(f, "  {word:<9}  {indent}{line}")?;
            }
        }
        Ok(())
    }
}
