//! Parses and prints versions of kube-proxy as users write them. The submodules record the
//! differences between versions, and how the rules of each were verified.

pub mod change;
pub mod history;
pub mod provenance;

use std::fmt;
use std::str::FromStr;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::release::parse_numbers;
use change::VersionRange;

/// Oldest supported minor version.
pub(crate) const OLDEST_MINOR: u8 = 9;
/// Newest supported minor version.
pub(crate) const NEWEST_MINOR: u8 = 36;

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
    #[error("kube-proxy {0} is not supported: use v1.{OLDEST_MINOR} to v1.{NEWEST_MINOR}")]
    Unsupported(String),
}

impl Version {
    /// Creates `v1.MINOR`, which means its newest patch release.
    ///
    /// # Errors
    ///
    /// Returns [`VersionError::Unsupported`] outside [`OLDEST_MINOR`] to [`NEWEST_MINOR`].
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
        json_schema!({
            "type": "string",
            "description": "A kube-proxy version, v1.9 to v1.36, with or without a patch number.",
            "pattern": r"^v?1\.(9|[12][0-9]|3[0-6])(\.[0-9]+)?$"
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
        for text in ["v1.8", "v1.37", "v1.99.1", "v1.256"] {
            let error = text.parse::<Version>().unwrap_err();
            assert_eq!(
                error.to_string(),
                format!("kube-proxy {text} is not supported: use v1.9 to v1.36")
            );
        }
    }
}
