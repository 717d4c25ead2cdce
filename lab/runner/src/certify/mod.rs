//! Certificates: what a machine's network, and what may hang on it, is made of
//! before a run and after it, and what the difference is.
//!
//! What counts is what somebody set. What a living machine changes by itself
//! does not: counters, timers, the states of neighbours and carriers, and
//! whatever the kernel will take away at a time that was set beforehand (leases,
//! cached routes, members of sets with a timeout). Which lines are left out
//! stands in [`lines`], a function for each source.

pub mod lines;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sha2::Digest as _;

/// A part of a machine that is looked at as a whole.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum Part {
    /// Interfaces.
    Links,
    /// Addresses without an end.
    Addresses,
    /// Routes that somebody added.
    Routes,
    /// Routing rules.
    Rules,
    /// Permanent neighbours, and those that are answered for.
    Neighbours,
    /// The rule set of nftables.
    Nftables,
    /// What the nft-backed iptables says of it, IPv4 and IPv6.
    IptablesNft,
    /// The tables of the older iptables, IPv4 and IPv6.
    IptablesLegacy,
    /// Sets.
    Ipset,
    /// Virtual services and their real servers.
    Ipvs,
    /// Everything under `/proc/sys`.
    Sysctls,
    /// Loaded modules.
    Modules,
    /// Processes that the run started.
    Processes,
    /// Mounts.
    Mounts,
    /// Names in `/run`, `/run/lock` and `/run/netns`.
    Run,
}

impl Part {
    /// All of them, in the order in which they are told.
    pub const ALL: [Self; 15] = [
        Self::Links,
        Self::Addresses,
        Self::Routes,
        Self::Rules,
        Self::Neighbours,
        Self::Nftables,
        Self::IptablesNft,
        Self::IptablesLegacy,
        Self::Ipset,
        Self::Ipvs,
        Self::Sysctls,
        Self::Modules,
        Self::Processes,
        Self::Mounts,
        Self::Run,
    ];

    /// What it is called.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Links => "links",
            Self::Addresses => "addresses",
            Self::Routes => "routes",
            Self::Rules => "rules",
            Self::Neighbours => "neighbours",
            Self::Nftables => "nftables",
            Self::IptablesNft => "iptables-nft",
            Self::IptablesLegacy => "iptables-legacy",
            Self::Ipset => "ipset",
            Self::Ipvs => "ipvs",
            Self::Sysctls => "sysctls",
            Self::Modules => "modules",
            Self::Processes => "processes",
            Self::Mounts => "mounts",
            Self::Run => "run",
        }
    }
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

/// What was found of a part: its entries, a line each, or why it could not be
/// read.
pub type Found = Result<Vec<String>, String>;

/// A machine at one moment.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct State {
    parts: BTreeMap<Part, Found>,
}

impl State {
    /// Notes what was found of a part.
    #[must_use]
    pub fn with(mut self, part: Part, found: Found) -> Self {
        self.parts.insert(part, found);
        self
    }

    /// The SHA-256 of all entries, in hexadecimal. Two states have the same if
    /// and only if nothing that counts differs.
    #[must_use]
    pub fn digest(&self) -> String {
        let mut hasher = sha2::Sha256::new();
        let mut feed = |text: &str| {
            hasher.update(text.len().to_be_bytes());
            hasher.update(text);
        };
        for (part, found) in &self.parts {
            feed(part.word());
            match found {
                Ok(lines) => {
                    feed(&format!("{} entries", lines.len()));
                    for line in lines {
                        feed(line);
                    }
                }
                Err(why) => feed(&format!("unread: {why}")),
            }
        }
        data_encoding::HEXLOWER.encode(&hasher.finalize())
    }
}

/// What a run did to the machine outside of its labs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Certificate {
    /// Whether the machine was after the run as it was before.
    pub unchanged: bool,
    /// The SHA-256 of what was found before.
    pub before: String,
    /// The SHA-256 of what was found afterwards; the same if nothing changed.
    pub after: String,
    /// By part, how many entries were compared.
    pub compared: BTreeMap<Part, usize>,
    /// By part, why it could not be read and was not compared.
    pub unread: BTreeMap<Part, String>,
    /// By part, what differs.
    pub changes: BTreeMap<Part, Change>,
}

/// How a part differs.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Change {
    /// What was there before and is no more.
    pub gone: Vec<String>,
    /// What is there and was not before.
    pub come: Vec<String>,
}

impl Certificate {
    /// Compares a machine after a run with what it was before. A part that could
    /// be read only once has changed.
    #[must_use]
    pub fn of(before: &State, after: &State) -> Self {
        let mut certificate = Self {
            unchanged: true,
            before: before.digest(),
            after: after.digest(),
            compared: BTreeMap::new(),
            unread: BTreeMap::new(),
            changes: BTreeMap::new(),
        };
        let nothing = Ok(Vec::new());
        let parts: BTreeSet<Part> = before
            .parts
            .keys()
            .chain(after.parts.keys())
            .copied()
            .collect();
        for part in parts {
            let of = |state: &State| state.parts.get(&part).unwrap_or(&nothing).clone();
            match (of(before), of(after)) {
                (Ok(before), Ok(after)) => {
                    certificate.compared.insert(part, before.len());
                    if let Some(change) = change(&before, &after) {
                        certificate.changes.insert(part, change);
                    }
                }
                (Err(before), Err(after)) => {
                    if before != after {
                        let (gone, come) = (vec![unreadable(&before)], vec![unreadable(&after)]);
                        certificate.changes.insert(part, Change { gone, come });
                    }
                    certificate.unread.insert(part, after);
                }
                (Ok(gone), Err(why)) => {
                    let come = vec![unreadable(&why)];
                    certificate.changes.insert(part, Change { gone, come });
                }
                (Err(why), Ok(come)) => {
                    let gone = vec![unreadable(&why)];
                    certificate.changes.insert(part, Change { gone, come });
                }
            }
        }
        certificate.unchanged = certificate.changes.is_empty();
        certificate
    }
}

fn unreadable(why: &str) -> String {
    format!("(it cannot be read: {why})")
}

/// How lists differ. The order counts, for rules are met in theirs: where both
/// hold the same lines, those that stand elsewhere are told.
fn change(before: &[String], after: &[String]) -> Option<Change> {
    if before == after {
        return None;
    }
    let only = |these: &[String], those: &[String]| -> Vec<String> {
        let mut count: BTreeMap<&str, usize> = BTreeMap::new();
        for line in those {
            *count.entry(line).or_default() += 1;
        }
        these
            .iter()
            .filter(|line| match count.get_mut(line.as_str()) {
                Some(left @ 1..) => {
                    *left -= 1;
                    false
                }
                _ => true,
            })
            .cloned()
            .collect()
    };
    let (mut gone, mut come) = (only(before, after), only(after, before));
    if gone.is_empty() && come.is_empty() {
        let moved = before.iter().zip(after).filter(|(was, is)| was != is);
        (gone, come) = moved.map(|(was, is)| (was.clone(), is.clone())).unzip();
    }
    Some(Change { gone, come })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(lines: &[&str]) -> State {
        let lines = lines.iter().map(|line| (*line).to_owned()).collect();
        State::default().with(Part::Links, Ok(lines))
    }

    #[test]
    fn the_same_is_unchanged_and_has_the_same_digest() {
        let certificate = Certificate::of(&state(&["lo", "eth0"]), &state(&["lo", "eth0"]));
        assert!(certificate.unchanged);
        assert_eq!(certificate.before, certificate.after);
        assert_eq!(certificate.compared[&Part::Links], 2);
        assert_eq!(certificate.changes, BTreeMap::new());
    }

    #[test]
    fn what_came_what_went_and_what_moved_is_named() {
        for [before, after, gone, come] in [
            [&["lo"][..], &["lo", "veth1"], &[], &["veth1"]],
            [&["lo", "eth0"], &["lo"], &["eth0"], &[]],
            [&["lo", "lo"], &["lo"], &["lo"], &[]],
            [&["a", "b", "c"], &["b", "a", "c"], &["a", "b"], &["b", "a"]],
        ] {
            let certificate = Certificate::of(&state(before), &state(after));
            assert!(!certificate.unchanged, "{before:?} {after:?}");
            assert_ne!(certificate.before, certificate.after);
            let change = &certificate.changes[&Part::Links];
            assert_eq!(
                (&*change.gone, &*change.come),
                (&*owned(gone), &*owned(come))
            );
        }
    }

    fn owned(lines: &[&str]) -> Vec<String> {
        lines.iter().map(|line| (*line).to_owned()).collect()
    }

    #[test]
    fn what_cannot_be_read_is_said_and_is_no_change_unless_it_was_read_once() {
        let unread = State::default().with(Part::Links, Err("only root may".to_owned()));
        let certificate = Certificate::of(&unread, &unread);
        assert!(certificate.unchanged);
        assert_eq!(certificate.unread[&Part::Links], "only root may");
        assert!(!certificate.compared.contains_key(&Part::Links));
        for (before, after) in [(&unread, &state(&["lo"])), (&state(&["lo"]), &unread)] {
            assert!(!Certificate::of(before, after).unchanged);
        }
    }

    #[test]
    fn lines_are_kept_apart_in_the_digest() {
        assert_ne!(state(&["ab", "c"]).digest(), state(&["a", "bc"]).digest());
        assert_ne!(state(&["a"]).digest(), state(&["a", ""]).digest());
        let elsewhere = State::default().with(Part::Routes, Ok(owned(&["a"])));
        assert_ne!(state(&["a"]).digest(), elsewhere.digest());
    }

    #[test]
    fn a_part_has_one_word_everywhere() {
        for part in Part::ALL {
            assert_eq!(serde_json::to_value(part).unwrap(), part.word());
        }
    }
}
