//! What a difference between versions of kube-proxy is, as data.

use super::version::{NEWEST_MINOR, OLDEST_MINOR};

/// A behaviour that only some versions of kube-proxy have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Change {
    /// The first minor version that has it.
    since: u8,
    /// The last minor version that has it.
    until: u8,
    /// Patch releases of earlier minor versions, `(minor, patch)`, from which on
    /// they have it too.
    early: &'static [(u8, u8)],
}

impl Change {
    /// Whether `v1.minor` has it, at that patch release or, without one, at its
    /// newest.
    pub(super) fn holds(&self, minor: u8, patch: Option<u8>) -> bool {
        let early = |&(of, from): &(u8, u8)| of == minor && patch.is_none_or(|own| own >= from);
        (self.since..=self.until).contains(&minor) || self.early.iter().any(early)
    }

    /// The first minor version that has it; none when it was there before the known
    /// ones.
    #[must_use]
    pub fn came(&self) -> Option<u8> {
        (self.since > OLDEST_MINOR).then_some(self.since)
    }

    /// The first minor version that has it no more; none when it is still there.
    #[must_use]
    pub fn went(&self) -> Option<u8> {
        (self.until < NEWEST_MINOR).then_some(self.until + 1)
    }

    /// Patch releases of earlier minor versions, `(minor, patch)`, from which on
    /// they have it too.
    #[must_use]
    pub const fn early_in(&self) -> &'static [(u8, u8)] {
        self.early
    }

    /// Came with `minor` and stayed.
    pub(super) const fn since(minor: u8) -> Self {
        Self {
            since: minor,
            until: NEWEST_MINOR,
            early: &[],
        }
    }

    /// Was there before the known versions and went after `minor`.
    pub(super) const fn until(minor: u8) -> Self {
        Self {
            since: OLDEST_MINOR,
            until: minor,
            early: &[],
        }
    }

    /// Came with `first` and went after `last`.
    pub(super) const fn between(first: u8, last: u8) -> Self {
        Self {
            since: first,
            until: last,
            early: &[],
        }
    }

    /// Was also in patch releases of earlier minor versions.
    pub(super) const fn early(self, early: &'static [(u8, u8)]) -> Self {
        Self { early, ..self }
    }
}

/// A change as history tells it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Noted {
    /// What the code calls it.
    pub name: &'static str,
    /// When it came and went.
    pub change: Change,
    /// What it is, and where that was read.
    pub text: &'static str,
}

/// Names changes, each with what its documentation says, and lists them.
macro_rules! history {
    (
        $(#[doc = $about:literal])+
        $list:ident;
        $($(#[doc = $doc:literal])+ pub const $name:ident: Change = $change:expr;)*
    ) => {
        $($(#[doc = $doc])+ pub const $name: Change = $change;)*
        $(#[doc = $about])+
        pub const $list: &[Noted] = &[$(Noted {
            name: stringify!($name),
            change: $name,
            text: concat!($($doc),+),
        }),*];
    };
}
pub(super) use history;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kube_proxy::Version;

    const MIDDLE: Change = Change::between(20, 24);
    const EARLY: Change = Change::since(19).early(&[(16, 11), (17, 7), (18, 4)]);

    #[test]
    fn a_change_is_there_from_its_first_to_its_last_version() {
        let at = |minor| Version::minor(minor).unwrap();
        assert!(!at(19).has(&MIDDLE));
        assert!(at(20).has(&MIDDLE));
        assert!(at(24).has(&MIDDLE));
        assert!(!at(25).has(&MIDDLE));
    }

    #[test]
    fn some_patch_releases_have_a_change_early() {
        let has = |text: &str| text.parse::<Version>().unwrap().has(&EARLY);
        assert!(!has("v1.18.3") && has("v1.18.4") && has("v1.18") && has("v1.19.0"));
        assert!(!has("v1.15"));
    }
}
