//! Parses and prints versions of kube-proxy as users write them. The submodules record the
//! differences between versions, and how the rules of each were verified.

pub mod change;
pub mod history;
pub mod provenance;
mod supported;

use std::fmt;
use std::str::FromStr;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::release::parse_numbers;
use change::VersionRange;
use supported::{NEWEST_MINOR, OLDEST_MINOR};

/// Version of kube-proxy, `v1.18` or `v1.18.2`.
///
/// Without a patch number, the version means the newest patch release of its minor version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Version {
    minor: u8,
    patch: Option<u16>,
}

/// Error of parsing a [`Version`].
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum VersionError {
    /// Text is not of the form `v1.MINOR` or `v1.MINOR.PATCH`.
    #[error("`{0}` is not a kube-proxy version: write it as v1.18 or v1.18.2")]
    Form(String),
    /// Version is outside the supported range.
    #[error("kube-proxy {0} is not supported: use {oldest} to {newest}",
        oldest = Version::OLDEST, newest = Version::NEWEST)]
    Unsupported(String),
}

impl Version {
    /// Oldest supported minor version.
    pub const OLDEST: Self = Self {
        minor: OLDEST_MINOR,
        patch: None,
    };
    /// Newest supported minor version.
    pub const NEWEST: Self = Self {
        minor: NEWEST_MINOR,
        patch: None,
    };

    /// Returns every supported minor version, the oldest first.
    pub fn minors() -> impl Iterator<Item = Self> {
        (OLDEST_MINOR..=NEWEST_MINOR).map(|minor| Self { minor, patch: None })
    }

    /// Creates `v1.MINOR`, which means its newest patch release.
    ///
    /// # Errors
    ///
    /// Returns [`VersionError::Unsupported`] outside [`Self::OLDEST`] to [`Self::NEWEST`].
    pub fn from_minor(minor: u8) -> Result<Self, VersionError> {
        if (OLDEST_MINOR..=NEWEST_MINOR).contains(&minor) {
            Ok(Self { minor, patch: None })
        } else {
            Err(VersionError::Unsupported(format!("v1.{minor}")))
        }
    }

    /// Returns the minor version, the number after `v1.`.
    #[must_use]
    pub const fn minor_number(self) -> u8 {
        self.minor
    }

    /// Whether this version has the behaviour `change`.
    #[must_use]
    pub fn has(self, change: &VersionRange) -> bool {
        change.includes(self.minor, self.patch)
    }
}

impl FromStr for Version {
    type Err = VersionError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let Some((1, minor, patch)) = parse_numbers(text) else {
            return Err(VersionError::Form(text.to_owned()));
        };
        let supported = |minor: &u8| (OLDEST_MINOR..=NEWEST_MINOR).contains(minor);
        match u8::try_from(minor).ok().filter(supported) {
            Some(minor) => Ok(Self { minor, patch }),
            None => Err(VersionError::Unsupported(text.to_owned())),
        }
    }
}

impl TryFrom<String> for Version {
    type Error = VersionError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<Version> for String {
    fn from(version: Version) -> Self {
        version.to_string()
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.patch {
            Some(patch) => write!(f, "v1.{}.{patch}", self.minor),
            None => write!(f, "v1.{}", self.minor),
        }
    }
}

impl JsonSchema for Version {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "KubeProxyVersion".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let minors: Vec<String> = Self::minors()
            .map(|version| version.minor.to_string())
            .collect();
        json_schema!({
            "type": "string",
            "description": format!(
                "A kube-proxy version, {} to {}, with or without a patch number.",
                Self::OLDEST,
                Self::NEWEST,
            ),
            "pattern": format!(r"^v?1\.({})(\.[0-9]+)?$", minors.join("|"))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn version_both_forms_round_trip() {
        for text in ["v1.9", "v1.18", "v1.18.2", "v1.36.2", "v1.18.256"] {
            assert_eq!(text.parse::<Version>().unwrap().to_string(), text);
        }
        assert_eq!("1.20".parse::<Version>().unwrap().to_string(), "v1.20");
    }

    #[test]
    fn version_invalid_text_returns_error() {
        for text in [
            "",
            "v1",
            "v2.3",
            "v1.x",
            "v1.18.",
            "v1.18.2.1",
            "v1.+9",
            "latest",
        ] {
            assert_eq!(
                text.parse::<Version>(),
                Err(VersionError::Form(text.to_owned()))
            );
        }
        let (older, newer) = (OLDEST_MINOR - 1, NEWEST_MINOR + 1);
        for minor in [
            format!("{older}"),
            format!("{newer}"),
            "99.1".to_owned(),
            "256".to_owned(),
        ] {
            let text = format!("v1.{minor}");
            let error = text.parse::<Version>().unwrap_err();
            assert_eq!(
                error.to_string(),
                format!(
                    "kube-proxy {text} is not supported: use v1.{OLDEST_MINOR} to v1.{NEWEST_MINOR}"
                )
            );
        }
    }
}
