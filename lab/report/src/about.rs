//! Prints the history of a kube-proxy version: where its rules are known from, what it added and
//! what it removed.

use std::fmt::Write as _;

use super::words::wrap;
use svclab_rules::kube_proxy::change::Noted;
use svclab_rules::kube_proxy::history::{
    CONNTRACK, IPTABLES_NODE, IPTABLES_SERVICES, IPVS, IPVS_KERNEL, KUBELET, NFTABLES, OBJECTS,
};
use svclab_rules::kube_proxy::known::known;
use svclab_rules::kube_proxy::{Mode, Version};

/// Parts of the history with their titles.
const PARTS: [(&str, &[Noted]); 8] = [
    ("what is made of the objects, in every mode", OBJECTS),
    ("flows that are forgotten, in every mode", CONNTRACK),
    ("iptables mode, once for the node", IPTABLES_NODE),
    ("iptables mode, for each service", IPTABLES_SERVICES),
    ("ipvs mode", IPVS),
    ("ipvs mode, settings of the kernel", IPVS_KERNEL),
    ("nftables mode", NFTABLES),
    ("the kubelet beside it", KUBELET),
];

/// Renders the history of a version as text with lines of at most `width` columns.
#[must_use]
pub fn about(version: Version, width: usize) -> String {
    let mut text = format!("kube-proxy {version}\n\n");
    for mode in [Mode::Iptables, Mode::Ipvs, Mode::Nftables] {
        let how = known(version, mode).map_or_else(
            || "not in this version".to_owned(),
            |known| known.to_string(),
        );
        let _ = writeln!(text, "  {:<9} {how}", mode.to_string());
    }
    let number = version.number();
    let titles = [
        (format!("came with v1.{number}"), Moment::Came),
        (format!("went with v1.{number}"), Moment::Went),
        (
            format!("came with a patch release of v1.{number}"),
            Moment::Early,
        ),
    ];
    for (title, moment) in titles {
        for (part, changes) in PARTS {
            let told = changes.iter().filter(|noted| moment.is_of(noted, number));
            for (at, noted) in told.enumerate() {
                if at == 0 {
                    let _ = write!(text, "\n{title}: {part}\n\n");
                }
                let said = format!("{}{}", moment.from(noted, number), noted.text.trim());
                for (line, words) in wrap(&said, width.saturating_sub(4)).iter().enumerate() {
                    let begun = if line == 0 { "  - " } else { "    " };
                    let _ = writeln!(text, "{begun}{words}");
                }
            }
        }
    }
    text
}

/// Relation between a version and a change.
#[derive(Debug, Clone, Copy)]
enum Moment {
    Came,
    Went,
    Early,
}

impl Moment {
    fn is_of(self, noted: &Noted, number: u8) -> bool {
        match self {
            Self::Came => noted.change.came() == Some(number),
            Self::Went => noted.change.went() == Some(number),
            Self::Early => noted.change.early_in().iter().any(|(of, _)| *of == number),
        }
    }

    /// Returns the patch release that first had the change, as a prefix; empty unless `Early`.
    fn from(self, noted: &Noted, number: u8) -> String {
        let mut early = noted.change.early_in().iter();
        match (self, early.find(|(of, _)| *of == number)) {
            (Self::Early, Some((_, patch))) => format!("v1.{number}.{patch}: "),
            _ => String::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_told_by_what_came_and_went() {
        for version in ["v1.18", "v1.20", "v1.33"] {
            let version: Version = version.parse().unwrap();
            insta::assert_snapshot!(version.to_string(), about(version, 100));
        }
    }

    #[test]
    fn every_change_is_told_somewhere() {
        let told: String = (9..=36)
            .map(|minor| about(Version::minor(minor).unwrap(), 100_000))
            .collect();
        for (_, changes) in PARTS {
            for noted in changes {
                let words: Vec<&str> = noted.text.split_whitespace().collect();
                assert!(told.contains(&words.join(" ")), "{}", noted.name);
            }
        }
    }
}
