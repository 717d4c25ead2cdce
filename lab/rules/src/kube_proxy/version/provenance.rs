//! Records how the rules of each version of kube-proxy were verified.

use std::fmt;

use super::Version;
use super::change::VersionRange;
use super::history::NFTABLES_MODE;
use super::supported::OLDEST_MINOR;
use svclab_model::plan::Mode;

/// Evidence for the rules of a version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Provenance {
    /// Releases of kube-proxy that were run and whose rules were recorded.
    Recorded(&'static [&'static str]),
    /// Release whose source was read.
    Read(&'static str),
}

impl fmt::Display for Provenance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Recorded(releases) => write!(
                f,
                "verified against recorded rules of {}",
                releases.join(", ")
            ),
            Self::Read(release) => write!(f, "verified against the source code of {release}"),
        }
    }
}

use Provenance::{Read, Recorded};

/// Versions with iptables and ipvs mode.
const ALL_MINORS: VersionRange = VersionRange::since(OLDEST_MINOR);

/// `pkg/proxy/iptables/proxier.go`, from the oldest version on.
const IPTABLES: [Provenance; ALL_MINORS.count_minors()] = [
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

/// `pkg/proxy/ipvs/proxier.go`, from the oldest version on.
const IPVS: [Provenance; ALL_MINORS.count_minors()] = [
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

/// `pkg/proxy/nftables/proxier.go`, from the first version with nftables mode on.
const NFTABLES: [Provenance; NFTABLES_MODE.count_minors()] = [
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
pub fn provenance(version: Version, mode: Mode) -> Option<Provenance> {
    let (entries, first_minor): (&[Provenance], u8) = match mode {
        Mode::Iptables => (&IPTABLES, OLDEST_MINOR),
        Mode::Ipvs => (&IPVS, OLDEST_MINOR),
        Mode::Nftables => (&NFTABLES, NFTABLES_MODE.first_minor()?),
    };
    let index = version.minor_number().checked_sub(first_minor)?;
    entries.get(usize::from(index)).copied()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use std::path::Path;

    fn recordings(mode: Mode) -> BTreeSet<u8> {
        let home = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/recorded/kube-proxy");
        let entries = std::fs::read_dir(home).unwrap().flatten();
        entries
            .filter(|entry| entry.path().join(mode.to_string()).is_dir())
            .map(|entry| entry.file_name().into_string().unwrap())
            .map(|name| name.parse::<Version>().unwrap().minor_number())
            .collect()
    }

    #[test]
    fn provenance_recorded_versions_match_recordings() {
        for mode in [Mode::Iptables, Mode::Ipvs, Mode::Nftables] {
            let recorded: BTreeSet<u8> = Version::minors()
                .filter(|version| matches!(provenance(*version, mode), Some(Recorded(_))))
                .map(Version::minor_number)
                .collect();
            assert_eq!(recorded, recordings(mode), "{mode}");
        }
    }

    #[test]
    fn provenance_releases_match_their_minor_version() {
        for mode in [Mode::Iptables, Mode::Ipvs, Mode::Nftables] {
            let has_mode =
                |version: &Version| mode != Mode::Nftables || version.has(&NFTABLES_MODE);
            for version in Version::minors().filter(has_mode) {
                let prefix = format!("{version}.");
                match provenance(version, mode).unwrap() {
                    Recorded(releases) => {
                        let is_of_minor = |release: &&str| release.starts_with(&prefix);
                        assert!(releases.iter().all(is_of_minor), "{mode} {releases:?}");
                    }
                    Read(release) => assert!(release.starts_with(&prefix), "{mode} {release}"),
                }
            }
        }
    }
}
