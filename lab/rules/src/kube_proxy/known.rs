//! Records how the rules of each version of kube-proxy were verified.

use std::fmt;

use super::config::Mode;
use super::history::NFTABLES_MODE;
use super::version::{OLDEST_MINOR, Version};

/// Evidence for the rules of a version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Known {
    /// Releases of kube-proxy that were run and whose rules were recorded.
    Recorded(&'static [&'static str]),
    /// Release whose source was read.
    Read(&'static str),
}

impl fmt::Display for Known {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Recorded(releases) => write!(f, "recorded: {}", releases.join(", ")),
            Self::Read(release) => write!(f, "read in the source of {release}"),
        }
    }
}

use Known::{Read, Recorded};

/// `pkg/proxy/iptables/proxier.go`, from v1.9 on.
const IPTABLES: [Known; 28] = [
    Read("v1.9.4"),
    Read("v1.10.6"),
    Read("v1.11.1"),
    Read("v1.12.2"),
    Read("v1.13.5"),
    Recorded(&["v1.14.0"]),
    Read("v1.15.5"),
    Read("v1.16.15"),
    Read("v1.17.17"),
    Recorded(&["v1.18.2"]),
    Read("v1.19.12"),
    Recorded(&["v1.20.2"]),
    Read("v1.21.2"),
    Recorded(&["v1.22.0-rc.0"]),
    Recorded(&["v1.23.4"]),
    Recorded(&["v1.24.3"]),
    Recorded(&["v1.25.1"]),
    Recorded(&["v1.26.0"]),
    Read("v1.27.1"),
    Recorded(&["v1.28.3"]),
    Read("v1.29.1"),
    Recorded(&["v1.30.3", "v1.30.5"]),
    Read("v1.31.14"),
    Read("v1.32.13"),
    Read("v1.33.13"),
    Read("v1.34.9"),
    Read("v1.35.6"),
    Recorded(&["v1.36.2"]),
];

/// `pkg/proxy/ipvs/proxier.go`, from v1.9 on.
const IPVS: [Known; 28] = [
    Read("v1.9.4"),
    Read("v1.10.6"),
    Read("v1.11.1"),
    Read("v1.12.2"),
    Read("v1.13.5"),
    Read("v1.14.6"),
    Read("v1.15.5"),
    Read("v1.16.15"),
    Read("v1.17.17"),
    Recorded(&["v1.18.2"]),
    Read("v1.19.12"),
    Recorded(&["v1.20.2"]),
    Read("v1.21.2"),
    Read("v1.22.0-rc.0"),
    Recorded(&["v1.23.4"]),
    Read("v1.24.0"),
    Recorded(&["v1.25.1"]),
    Read("v1.26.0"),
    Read("v1.27.1"),
    Recorded(&["v1.28.3"]),
    Read("v1.29.1"),
    Recorded(&["v1.30.5"]),
    Read("v1.31.14"),
    Read("v1.32.13"),
    Read("v1.33.13"),
    Read("v1.34.9"),
    Read("v1.35.6"),
    Recorded(&["v1.36.2"]),
];

/// `pkg/proxy/nftables/proxier.go`, from v1.29 on.
const NFTABLES: [Known; 8] = [
    Read("v1.29.1"),
    Recorded(&["v1.30.5"]),
    Read("v1.31.14"),
    Read("v1.32.13"),
    Read("v1.33.13"),
    Read("v1.34.9"),
    Read("v1.35.6"),
    Recorded(&["v1.36.2"]),
];

/// Returns the evidence for the rules of a version in a mode, or `None` if the version does not
/// have the mode.
#[must_use]
pub fn known(version: Version, mode: Mode) -> Option<Known> {
    let (of, first): (&[Known], u8) = match mode {
        Mode::Iptables => (&IPTABLES, OLDEST_MINOR),
        Mode::Ipvs => (&IPVS, OLDEST_MINOR),
        Mode::Nftables => (&NFTABLES, NFTABLES_MODE.came()?),
    };
    let at = version.number().checked_sub(first)?;
    of.get(usize::from(at)).copied()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kube_proxy::version::NEWEST_MINOR;
    use std::collections::BTreeSet;
    use std::path::Path;

    fn recordings(mode: Mode) -> BTreeSet<u8> {
        let home = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/recorded/kube-proxy");
        let entries = std::fs::read_dir(home).unwrap().flatten();
        entries
            .filter(|entry| entry.path().join(mode.to_string()).is_dir())
            .map(|entry| entry.file_name().into_string().unwrap())
            .map(|name| name.parse::<Version>().unwrap().number())
            .collect()
    }

    #[test]
    fn what_is_called_recorded_was() {
        for mode in [Mode::Iptables, Mode::Ipvs, Mode::Nftables] {
            let called: BTreeSet<u8> = (OLDEST_MINOR..=NEWEST_MINOR)
                .filter(|minor| {
                    let version = Version::minor(*minor).unwrap();
                    matches!(known(version, mode), Some(Recorded(_)))
                })
                .collect();
            assert_eq!(called, recordings(mode), "{mode}");
        }
    }

    #[test]
    fn a_recorded_or_read_release_is_of_its_version() {
        for mode in [Mode::Iptables, Mode::Ipvs, Mode::Nftables] {
            let oldest = if mode == Mode::Nftables {
                29
            } else {
                OLDEST_MINOR
            };
            for minor in oldest..=NEWEST_MINOR {
                let version = Version::minor(minor).unwrap();
                match known(version, mode).unwrap() {
                    Recorded(releases) => {
                        let of = |release: &&str| release.starts_with(&format!("v1.{minor}."));
                        assert!(releases.iter().all(of), "{mode} {releases:?}");
                    }
                    Read(release) => {
                        assert!(
                            release.starts_with(&format!("v1.{minor}.")),
                            "{mode} {release}"
                        );
                    }
                }
            }
        }
    }
}
