//! Defines the data type of a difference between versions of kube-proxy.

use super::supported::{NEWEST_MINOR, OLDEST_MINOR};

/// Behaviour that only some versions of kube-proxy have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VersionRange {
    /// First minor version with the behaviour.
    since: u8,
    /// Last minor version with the behaviour.
    until: u8,
    /// Backports: `(minor, patch)` pairs. Each earlier minor version `minor` has the behaviour from
    /// that patch release on.
    backports: &'static [(u8, u8)],
}

impl VersionRange {
    /// Whether `v1.minor` has the behaviour. Without a patch number, its newest patch release
    /// decides.
    pub(super) fn includes(&self, minor: u8, patch: Option<u16>) -> bool {
        let is_backported = |&(backport_minor, first_patch): &(u8, u8)| {
            backport_minor == minor && patch.is_none_or(|patch| patch >= u16::from(first_patch))
        };
        (self.since..=self.until).contains(&minor) || self.backports.iter().any(is_backported)
    }

    /// Returns the first minor version with the behaviour, or `None` if [`OLDEST_MINOR`] already
    /// has it.
    #[must_use]
    pub fn first_minor(&self) -> Option<u8> {
        (self.since > OLDEST_MINOR).then_some(self.since)
    }

    /// Returns the first minor version without the behaviour, or `None` if [`NEWEST_MINOR`] still
    /// has it.
    #[must_use]
    pub fn removed_in(&self) -> Option<u8> {
        (self.until < NEWEST_MINOR).then_some(self.until + 1)
    }

    /// Returns the number of minor versions with the behaviour, without backports.
    pub(super) const fn count_minors(&self) -> usize {
        (self.until - self.since + 1) as usize
    }

    /// Returns the backports: `(minor, patch)` pairs. Each earlier minor version `minor` has the
    /// behaviour from that patch release on.
    #[must_use]
    pub const fn backports(&self) -> &'static [(u8, u8)] {
        self.backports
    }

    /// Creates a change that `minor` introduces and [`NEWEST_MINOR`] still has.
    pub(super) const fn since(minor: u8) -> Self {
        Self {
            since: minor,
            until: NEWEST_MINOR,
            backports: &[],
        }
    }

    /// Creates a change that [`OLDEST_MINOR`] already has and that `minor` is the last to have.
    pub(in crate::kube_proxy) const fn until(minor: u8) -> Self {
        Self {
            since: OLDEST_MINOR,
            until: minor,
            backports: &[],
        }
    }

    /// Creates a change that `first` introduces and that `last` is the last to have.
    pub(super) const fn between(first: u8, last: u8) -> Self {
        Self {
            since: first,
            until: last,
            backports: &[],
        }
    }

    /// Adds backports to patch releases of earlier minor versions.
    pub(super) const fn with_backports(self, early: &'static [(u8, u8)]) -> Self {
        Self {
            backports: early,
            ..self
        }
    }
}

/// Named and documented change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HistoryEntry {
    /// Name of the constant in [`super::history`].
    pub name: &'static str,
    /// First and last versions with the behaviour.
    pub versions: VersionRange,
    /// Documentation of the constant: the behaviour and its sources.
    pub text: &'static str,
}

/// Defines the constants of changes and a list of them, each with its doc comment as text.
macro_rules! history {
    (
        $(#[doc = $about:literal])+
        $list:ident;
        $($(#[doc = $doc:literal])+ pub const $name:ident: Change = $change:expr;)*
    ) => {
        $($(#[doc = $doc])+ pub const $name: VersionRange = $change;)*
        $(#[doc = $about])+
        pub const $list: &[HistoryEntry] = &[$(HistoryEntry {
            name: stringify!($name),
            versions: $name,
            text: concat!($($doc),+),
        }),*];
    };
}
pub(super) use history;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kube_proxy::Version;

    const MIDDLE: VersionRange = VersionRange::between(20, 24);
    const EARLY: VersionRange =
        VersionRange::since(19).with_backports(&[(16, 11), (17, 7), (18, 4)]);

    #[test]
    fn version_range_includes_first_and_last_minor() {
        let version = |minor| Version::from_minor(minor).unwrap();
        assert!(!version(19).has(&MIDDLE));
        assert!(version(20).has(&MIDDLE));
        assert!(version(24).has(&MIDDLE));
        assert!(!version(25).has(&MIDDLE));
    }

    #[test]
    fn version_range_backport_includes_patch_release() {
        let has = |text: &str| text.parse::<Version>().unwrap().has(&EARLY);
        assert!(!has("v1.18.3") && has("v1.18.4") && has("v1.18") && has("v1.19.0"));
        assert!(!has("v1.15"));
    }
}
