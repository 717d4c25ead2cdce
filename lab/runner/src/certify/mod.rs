//! Certificates: compare the network state of a machine, and state that may depend on it, before
//! and after a run.
//!
//! Only configuration counts. What a machine changes by itself does not: counters, timers, the
//! states of neighbours and carriers, and objects with an expiry time (leases, cached routes,
//! members of sets with a timeout). The functions in [`lines`] remove these, one function for each
//! source.

mod certifier;
pub mod lines;
mod machine;
mod processes;

pub use certifier::Certifier;
pub use machine::read_state;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sha2::Digest as _;

/// Section of the machine state that is read and compared as a whole.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum Section {
    /// Interfaces, without carrier state and counters.
    Links,
    /// Addresses without an expiry time.
    Addresses,
    /// Routes that were added by a user or program.
    Routes,
    /// Routing rules (`ip rule`).
    Rules,
    /// Permanent neighbours and proxied neighbours.
    Neighbours,
    /// Rule set of nftables.
    Nftables,
    /// Rules as the nft-backed iptables lists them, IPv4 and IPv6.
    IptablesNft,
    /// Tables of legacy iptables, IPv4 and IPv6.
    IptablesLegacy,
    /// Sets of ipset.
    Ipset,
    /// IPVS virtual servers and their real servers.
    Ipvs,
    /// All sysctls under `/proc/sys`.
    Sysctls,
    /// Loaded kernel modules.
    Modules,
    /// Processes that the run started and that still run.
    Processes,
    /// Mounts of the process (`/proc/self/mountinfo`).
    Mounts,
    /// File names in `/run`, `/run/lock` and `/run/netns`.
    Run,
}

impl Section {
    /// All sections, in the order of output.
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

    /// Returns the name of the section.
    #[must_use]
    pub const fn name(self) -> &'static str {
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

impl fmt::Display for Section {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Entries of a section, one line each, or the reason why the section could not be read.
pub type SectionLines = Result<Vec<String>, String>;

/// State of a machine at one moment.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct MachineState {
    parts: BTreeMap<Section, SectionLines>,
}

impl MachineState {
    /// Adds the entries of a section.
    #[must_use]
    pub fn with(mut self, part: Section, found: SectionLines) -> Self {
        self.parts.insert(part, found);
        self
    }

    /// Returns the SHA-256 of all entries, in hexadecimal. Two states have the same digest if and
    /// only if no compared entry differs.
    #[must_use]
    pub fn digest(&self) -> String {
        let mut hasher = sha2::Sha256::new();
        let mut feed = |text: &str| {
            hasher.update(text.len().to_be_bytes());
            hasher.update(text);
        };
        for (part, found) in &self.parts {
            feed(part.name());
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

/// Changes that a run made to the machine outside of its labs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Certificate {
    /// Whether the state of the machine is the same before and after the run.
    pub unchanged: bool,
    /// SHA-256 of the state before the run, in hexadecimal.
    pub before: String,
    /// SHA-256 of the state after the run. Equal to `before` if nothing changed.
    pub after: String,
    /// Number of compared entries by section.
    pub compared: BTreeMap<Section, usize>,
    /// Sections that could not be read and were not compared, each with the reason.
    pub unread: BTreeMap<Section, String>,
    /// Differences by section.
    pub changes: BTreeMap<Section, SectionDiff>,
}

/// Difference of a section.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SectionDiff {
    /// Lines that existed before the run but not after it.
    pub removed: Vec<String>,
    /// Lines that exist after the run but did not before.
    pub added: Vec<String>,
}

impl Certificate {
    /// Compares the states of a machine before and after a run. A section that could be read only
    /// once counts as changed.
    #[must_use]
    pub fn compare(before: &MachineState, after: &MachineState) -> Self {
        let mut certificate = Self {
            unchanged: true,
            before: before.digest(),
            after: after.digest(),
            compared: BTreeMap::new(),
            unread: BTreeMap::new(),
            changes: BTreeMap::new(),
        };
        let nothing = Ok(Vec::new());
        let parts: BTreeSet<Section> = before
            .parts
            .keys()
            .chain(after.parts.keys())
            .copied()
            .collect();
        for part in parts {
            let lines_of =
                |state: &MachineState| state.parts.get(&part).unwrap_or(&nothing).clone();
            let change = match (lines_of(before), lines_of(after)) {
                (Ok(before), Ok(after)) => {
                    certificate.compared.insert(part, before.len());
                    diff_lines(&before, &after)
                }
                (Err(before), Err(after)) => {
                    certificate.unread.insert(part, after.clone());
                    (before != after).then(|| SectionDiff {
                        removed: unreadable(&before),
                        added: unreadable(&after),
                    })
                }
                (Ok(before), Err(after)) => Some(SectionDiff {
                    removed: before,
                    added: unreadable(&after),
                }),
                (Err(before), Ok(after)) => Some(SectionDiff {
                    removed: unreadable(&before),
                    added: after,
                }),
            };
            certificate
                .changes
                .extend(change.map(|change| (part, change)));
        }
        certificate.unchanged = certificate.changes.is_empty();
        certificate
    }
}

fn unreadable(why: &str) -> Vec<String> {
    vec![format!("(unreadable: {why})")]
}

/// Returns the difference of two lists; `None` if they are equal. The order counts, because rules
/// match in order: if both lists have the same lines, returns the lines at changed positions.
fn diff_lines(before: &[String], after: &[String]) -> Option<SectionDiff> {
    if before == after {
        return None;
    }
    let lines_only_in = |lines: &[String], other_lines: &[String]| -> Vec<String> {
        let mut count: BTreeMap<&str, usize> = BTreeMap::new();
        for line in other_lines {
            *count.entry(line).or_default() += 1;
        }
        lines
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
    let (mut gone, mut come) = (lines_only_in(before, after), lines_only_in(after, before));
    if gone.is_empty() && come.is_empty() {
        let moved = before.iter().zip(after).filter(|(was, is)| was != is);
        (gone, come) = moved.map(|(was, is)| (was.clone(), is.clone())).unzip();
    }
    Some(SectionDiff {
        removed: gone,
        added: come,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(lines: &[&str]) -> MachineState {
        let lines = lines.iter().map(|line| (*line).to_owned()).collect();
        MachineState::default().with(Section::Links, Ok(lines))
    }

    #[test]
    fn certificate_equal_states_is_unchanged() {
        let certificate = Certificate::compare(&state(&["lo", "eth0"]), &state(&["lo", "eth0"]));
        assert!(certificate.unchanged);
        assert_eq!(certificate.before, certificate.after);
        assert_eq!(certificate.compared[&Section::Links], 2);
        assert_eq!(certificate.changes, BTreeMap::new());
    }

    #[test]
    fn certificate_changed_lines_are_listed() {
        for [before, after, gone, come] in [
            [&["lo"][..], &["lo", "veth1"], &[], &["veth1"]],
            [&["lo", "eth0"], &["lo"], &["eth0"], &[]],
            [&["lo", "lo"], &["lo"], &["lo"], &[]],
            [&["a", "b", "c"], &["b", "a", "c"], &["a", "b"], &["b", "a"]],
        ] {
            let certificate = Certificate::compare(&state(before), &state(after));
            assert!(!certificate.unchanged, "{before:?} {after:?}");
            assert_ne!(certificate.before, certificate.after);
            let change = &certificate.changes[&Section::Links];
            assert_eq!(
                (&*change.removed, &*change.added),
                (&*owned(gone), &*owned(come))
            );
        }
    }

    fn owned(lines: &[&str]) -> Vec<String> {
        lines.iter().map(|line| (*line).to_owned()).collect()
    }

    #[test]
    fn certificate_section_read_once_counts_as_changed() {
        let unread = MachineState::default().with(Section::Links, Err("only root may".to_owned()));
        let certificate = Certificate::compare(&unread, &unread);
        assert!(certificate.unchanged);
        assert_eq!(certificate.unread[&Section::Links], "only root may");
        assert!(!certificate.compared.contains_key(&Section::Links));
        for (before, after) in [(&unread, &state(&["lo"])), (&state(&["lo"]), &unread)] {
            assert!(!Certificate::compare(before, after).unchanged);
        }
    }

    #[test]
    fn digest_depends_on_line_boundaries() {
        assert_ne!(state(&["ab", "c"]).digest(), state(&["a", "bc"]).digest());
        assert_ne!(state(&["a"]).digest(), state(&["a", ""]).digest());
        let elsewhere = MachineState::default().with(Section::Routes, Ok(owned(&["a"])));
        assert_ne!(state(&["a"]).digest(), elsewhere.digest());
    }

    #[test]
    fn section_name_equals_serialized_name() {
        for part in Section::ALL {
            assert_eq!(serde_json::to_value(part).unwrap(), part.name());
        }
    }
}
