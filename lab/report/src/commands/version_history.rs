//! Prints the history of a kube-proxy version: where its rules are known from, what it added and
//! what it removed.

use std::fmt::Write as _;

use crate::text::push_wrapped;
use svclab_rules::kube_proxy::change::HistoryEntry;
use svclab_rules::kube_proxy::history::{
    CONNTRACK, IPTABLES_NODE, IPTABLES_SERVICES, IPVS, IPVS_KERNEL, KUBELET, NFTABLES, OBJECTS,
};
use svclab_rules::kube_proxy::provenance::provenance;
use svclab_rules::kube_proxy::{Mode, Version};

/// Parts of the history with their titles.
const PARTS: [(&str, &[HistoryEntry]); 8] = [
    ("services, endpoints and nodes, in every mode", OBJECTS),
    ("deleted conntrack entries, in every mode", CONNTRACK),
    ("iptables mode, rules of the node", IPTABLES_NODE),
    ("iptables mode, rules of each service", IPTABLES_SERVICES),
    ("ipvs mode", IPVS),
    ("ipvs mode, kernel settings", IPVS_KERNEL),
    ("nftables mode", NFTABLES),
    ("kubelet on the same node", KUBELET),
];

/// Renders the history of a version as text with lines of at most `width` columns.
#[must_use]
pub fn version_history(version: Version, width: usize) -> String {
    let mut text = format!("kube-proxy {version}\n\n");
    for mode in [Mode::Iptables, Mode::Ipvs, Mode::Nftables] {
        let provenance = provenance(version, mode).map_or_else(
            || "not in this version".to_owned(),
            |known| known.to_string(),
        );
        let _ = writeln!(text, "  {:<9} {provenance}", mode.to_string());
    }
    let number = version.minor_number();
    let titles = [
        (format!("added in v1.{number}"), ChangeMoment::Added),
        (format!("removed in v1.{number}"), ChangeMoment::Removed),
        (
            format!("added in a patch release of v1.{number}"),
            ChangeMoment::Patched,
        ),
    ];
    for (title, moment) in titles {
        for (part, changes) in PARTS {
            let matching = changes.iter().filter(|noted| moment.matches(noted, number));
            for (index, noted) in matching.enumerate() {
                if index == 0 {
                    let _ = write!(text, "\n{title}: {part}\n\n");
                }
                let entry = format!(
                    "{}{}",
                    moment.patch_prefix(noted, number),
                    noted.text.trim()
                );
                push_wrapped(&mut text, "  - ", &entry, width);
            }
        }
    }
    text
}

/// Relation between a version and a change.
#[derive(Debug, Clone, Copy)]
enum ChangeMoment {
    Added,
    Removed,
    Patched,
}

impl ChangeMoment {
    fn matches(self, noted: &HistoryEntry, number: u8) -> bool {
        match self {
            Self::Added => noted.versions.first_minor() == Some(number),
            Self::Removed => noted.versions.removed_in() == Some(number),
            Self::Patched => noted
                .versions
                .backports()
                .iter()
                .any(|(minor, _)| *minor == number),
        }
    }

    /// Returns the patch release that first had the change, as a prefix; empty unless `Patched`.
    fn patch_prefix(self, noted: &HistoryEntry, number: u8) -> String {
        let mut early = noted.versions.backports().iter();
        match (self, early.find(|(minor, _)| *minor == number)) {
            (Self::Patched, Some((_, patch))) => format!("v1.{number}.{patch}: "),
            _ => String::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn version_history_selected_versions_match_snapshots() {
        for version in ["v1.18", "v1.20", "v1.33"] {
            let version: Version = version.parse().unwrap();
            insta::assert_snapshot!(version.to_string(), version_history(version, 100));
        }
    }

    #[test]
    fn version_history_contains_every_change() {
        let text: String = Version::minors()
            .map(|version| version_history(version, 100_000))
            .collect();
        for (_, changes) in PARTS {
            for noted in changes {
                let words: Vec<&str> = noted.text.split_whitespace().collect();
                assert!(text.contains(&words.join(" ")), "{}", noted.name);
            }
        }
    }
}
