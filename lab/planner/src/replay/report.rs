//! Reports which parts of a replayed node come from the dump, which are simulated, which are
//! omitted, and which files are not read.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use super::chain_paths::ChainPaths;
use svclab_dump::{Gap, NodeDump, OwnHardwareAddresses};
use svclab_ruleset::tool::Format;

/// Replay report of a dumped node.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ReplayReport {
    /// Name of the node.
    pub node: String,
    /// Replayed parts, built as dumped, such as `83 rules of iptables-nft-save`.
    pub replayed: Vec<String>,
    /// Simulated parts, used for data that the dump lacks.
    pub simulated: Vec<String>,
    /// Omitted parts, which were dumped but are not built.
    pub omitted: Vec<OmittedItem>,
    /// Files of the dump that are not read.
    pub unread: Vec<Gap>,
    /// Hardware addresses of the node. The lab has others.
    #[serde(skip)]
    pub hardware_addresses: OwnHardwareAddresses,
}

/// A dumped item that is not built.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct OmittedItem {
    /// Line in the dump, if the item is a single line.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub location: Option<FileLine>,
    /// Description of the item.
    pub description: String,
    /// Reason for the omission.
    pub reason: String,
    /// Possible effect on results; empty if there is none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub affects: String,
    /// Chain of an omitted rule.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chain: Option<ChainPaths>,
    /// Probes with packets that reached the chain; absent before a run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reached_by: Option<BTreeSet<String>>,
    /// Whether a whole table or file is omitted. No verdict is then possible.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_whole_table: bool,
    /// Word that counts such items in the replayed parts: `sysctl`, or the file of the rules.
    #[serde(skip)]
    pub(super) counted_as: String,
    /// Next hops of which nothing shows whether they reply, if the item is their silence.
    #[serde(skip)]
    pub(super) unseen_next_hops: BTreeSet<UnseenNextHop>,
}

/// Next hop of a route that neither the neighbours of the dump nor the lab have. Renders
/// `ADDRESS on INTERFACE`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct UnseenNextHop {
    /// Address of the next hop.
    pub address: IpAddr,
    /// Name of the interface to the next hop.
    pub interface: String,
}

impl UnseenNextHop {
    /// Describes the assumption that the next hop of a node does not reply.
    #[must_use]
    pub fn describe_silence(&self, node: &str) -> String {
        format!(
            "next hop {self} of {node} does not reply; the dump does not show whether it exists"
        )
    }

    /// Describes the assumption that the next hop of a node replies.
    #[must_use]
    pub fn describe_reply(&self, node: &str) -> String {
        format!("next hop {self} of {node} replies; the dump does not show whether it exists")
    }
}

impl std::fmt::Display for UnseenNextHop {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} on {}", self.address, self.interface)
    }
}

/// A line of a dump.
#[derive(
    Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "camelCase")]
pub struct FileLine {
    /// Name of the file; a file in an archive follows the archive name and a colon.
    pub file: String,
    /// Line number, from 1.
    pub line: u32,
}

impl FileLine {
    /// Returns a line of the output in this format; `None` if the dump has no such output.
    pub(super) fn in_dump(dump: &NodeDump, format: Format, line: u32) -> Option<Self> {
        let file = dump.files.get(&format)?.clone();
        Some(Self { file, line })
    }
}

impl OmittedItem {
    /// Creates an item with the default effect: packets pass as if the item did not exist.
    #[must_use]
    pub fn new(
        location: Option<FileLine>,
        description: impl Into<String>,
        reason: impl Into<String>,
    ) -> Self {
        Self {
            location,
            description: description.into(),
            reason: reason.into(),
            affects: DEFAULT_EFFECT.to_owned(),
            ..Self::default()
        }
    }

    /// Sets the possible effect on results.
    #[must_use]
    pub(super) fn with_effect(mut self, affects: impl Into<String>) -> Self {
        self.affects = affects.into();
        self
    }

    /// Sets the word that counts such items in the replayed parts.
    #[must_use]
    pub(super) fn with_count_word(mut self, word: impl Into<String>) -> Self {
        self.counted_as = word.into();
        self
    }

    /// Marks the item as a whole table or file.
    #[must_use]
    pub const fn as_whole_table(mut self) -> Self {
        self.is_whole_table = true;
        self
    }

    /// Sets the chain of an omitted rule, and its effect from the jumps to the chain.
    #[must_use]
    pub fn with_chain(mut self, chain: ChainPaths) -> Self {
        self.affects = if chain.paths.is_empty() {
            format!("{NO_EFFECT}: no jump leads to {chain}")
        } else {
            format!("packets in {chain} {EFFECT_IN_CHAIN}")
        };
        self.chain = Some(chain);
        self
    }

    /// Sets the probes whose packets reached the chain of the rule.
    pub fn set_reached_by(&mut self, probes_at: impl Fn(&ChainPaths) -> BTreeSet<String>) {
        self.reached_by = self.chain.as_ref().map(probes_at);
    }
}

/// Effect of an omission inside a chain.
const EFFECT_IN_CHAIN: &str = "pass as if the rule did not exist";

/// Beginning of the effect of an omission that packets cannot notice.
const NO_EFFECT: &str = "no effect";

/// Effect of any other omission.
const DEFAULT_EFFECT: &str = "packets pass as if it did not exist";

impl OmittedItem {
    /// Whether packets may go another way because the item is not built.
    #[must_use]
    pub fn may_affect_packets(&self) -> bool {
        !self.affects.is_empty() && !self.affects.starts_with(NO_EFFECT)
    }

    /// Renders the description with its location, the reason and the effect as lines. An item
    /// without a location gives one line.
    #[must_use]
    pub fn render_lines(&self) -> Vec<String> {
        let Some(location) = &self.location else {
            let affects = match self.affects.as_str() {
                "" => String::new(),
                affects => format!("; {affects}"),
            };
            return vec![format!("{}: {}{affects}", self.description, self.reason)];
        };
        let has_jumps = self.chain.as_ref().is_some_and(|at| !at.paths.is_empty());
        let reached = match self.reached_by.as_ref().filter(|_| has_jumps) {
            None => String::new(),
            Some(probes) if probes.is_empty() => {
                "; no packet of a probe reached the chain".to_owned()
            }
            Some(probes) => {
                let probes: Vec<&str> = probes.iter().map(String::as_str).collect();
                format!("; packets of {} reached the chain", probes.join(", "))
            }
        };
        let affects = format!("{}{reached}", self.affects);
        let lines = [
            format!("{location}: {}", self.description),
            self.reason.clone(),
            affects,
        ];
        lines.into_iter().filter(|line| !line.is_empty()).collect()
    }
}

/// Renders `FILE:LINE`.
impl std::fmt::Display for FileLine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}", self.file, self.line)
    }
}

impl ReplayReport {
    pub(super) fn new(node: &str) -> Self {
        Self {
            node: node.to_owned(),
            ..Self::default()
        }
    }

    pub(super) fn add_replayed(&mut self, description: impl Into<String>) {
        self.replayed.push(description.into());
    }

    pub(super) fn add_simulated(&mut self, description: impl Into<String>) {
        self.simulated.push(description.into());
    }

    /// Adds an omitted item.
    pub fn add_omitted(
        &mut self,
        description: impl Into<String>,
        reason: impl Into<String>,
        affects: impl Into<String>,
    ) {
        self.omitted.push(OmittedItem {
            description: description.into(),
            reason: reason.into(),
            affects: affects.into(),
            ..OmittedItem::default()
        });
    }
}

impl ReplayReport {
    /// Returns the next hops that reply in the lab although nothing shows whether they exist.
    #[must_use]
    pub fn unseen_next_hops(&self) -> BTreeSet<&UnseenNextHop> {
        let items = self.omitted.iter();
        items.flat_map(|item| &item.unseen_next_hops).collect()
    }

    /// Removes the items of these next hops from the omitted parts.
    pub fn forget_unseen_next_hops(&mut self) {
        self.omitted.retain(|item| item.unseen_next_hops.is_empty());
    }

    /// Whether omitted parts or files that are not read may affect packets.
    #[must_use]
    pub fn has_unknown_effects(&self) -> bool {
        self.omitted.iter().any(OmittedItem::may_affect_packets)
            || self.unread.iter().any(Gap::may_affect_packets)
    }

    /// Returns the whole tables and files that are omitted.
    pub fn lost_tables(&self) -> impl Iterator<Item = &OmittedItem> {
        self.omitted.iter().filter(|item| item.is_whole_table)
    }

    /// Moves items that the kernel rejected from the replayed to the omitted parts.
    pub fn add_rejected(&mut self, rejected: Vec<OmittedItem>) {
        for real in &mut self.replayed {
            let words: Vec<&str> = real.split(' ').collect();
            let is_counted_here = |one: &&OmittedItem| {
                let word = one.counted_as.as_str();
                // Counted words are printed in singular or plural: `entry`, `entries`.
                let stem = word.strip_suffix('y').unwrap_or(word);
                let is_counted = |own: &&str| {
                    let ending = own.strip_prefix(stem);
                    *own == word
                        || ending.is_some_and(|ending| matches!(ending, "s" | "es" | "ies"))
                };
                !word.is_empty() && words.iter().any(is_counted)
            };
            match rejected.iter().filter(is_counted_here).count() {
                0 => {}
                count => {
                    let _ = write!(real, ", except {count} that the kernel rejects");
                }
            }
        }
        self.omitted.extend(rejected);
    }
}

/// Renders a count with the noun in singular or plural.
pub(super) fn count_noun(count: usize, singular: &str, plural: &str) -> String {
    match count {
        0 => format!("no {plural}"),
        1 => format!("1 {singular}"),
        number => format!("{number} {plural}"),
    }
}

/// Renders the first names and the number of the others.
pub(super) fn list_names(names: &[String]) -> String {
    const MAX_NAMES: usize = 6;
    let first = names[..names.len().min(MAX_NAMES)].join(", ");
    match names.len().checked_sub(MAX_NAMES) {
        Some(more) if more > 0 => format!("{first} and {more} more"),
        _ => first,
    }
}

/// Joins the words of a text with single spaces.
pub(super) fn join_words(text: &str) -> String {
    text.split_ascii_whitespace().collect::<Vec<_>>().join(" ")
}

/// Renders the report as lines of text.
impl std::fmt::Display for ReplayReport {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(f, "{}", self.node)?;
        for (word, lines) in [("replayed", &self.replayed), ("simulated", &self.simulated)] {
            for (index, line) in lines.iter().enumerate() {
                let word = if index == 0 { word } else { "" };
                writeln!(f, "  {word:<9}  {line}")?;
            }
        }
        for (index, omitted) in self.omitted.iter().enumerate() {
            let word = if index == 0 { "omitted" } else { "" };
            for (index, line) in omitted.render_lines().into_iter().enumerate() {
                let (word, indent) = if index == 0 { (word, "") } else { ("", "  ") };
                writeln!(f, "  {word:<9}  {indent}{line}")?;
            }
        }
        for (index, gap) in self.unread.iter().enumerate() {
            let word = if index == 0 { "unread" } else { "" };
            writeln!(f, "  {word:<9}  {}", gap.describe())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn add_rejected_counts_items_of_each_word() {
        let mut report = ReplayReport::new("node-1");
        report.replayed = [
            "12 rules of iptables-save",
            "2 sets with 3 entries",
            "1 route",
        ]
        .map(str::to_owned)
        .to_vec();
        let item = |word: &str| OmittedItem::new(None, "x", "y").with_count_word(word.to_owned());
        report.add_rejected(vec![
            item("iptables-save"),
            item("entry"),
            item("entry"),
            item("address"),
        ]);
        assert_eq!(
            report.replayed,
            [
                "12 rules of iptables-save, except 1 that the kernel rejects",
                "2 sets with 3 entries, except 2 that the kernel rejects",
                "1 route"
            ]
        );
        assert_eq!(report.omitted.len(), 4);
    }
}
