//! Parses and prints releases of components as upstream tags them: `v0.25.1`.

use std::{fmt, str::FromStr};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Release of a component, ordered by its numbers.
///
/// The text form is `v0.25.1`. The `v` and a missing last number can be omitted: `1.18` means
/// `v1.18.0`. Pre-releases are not supported, because labs do not need release candidates.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(try_from = "String", into = "String")]
#[schemars(rename = "Version", with = "String", extend("pattern" = r"^v?[0-9]+\.[0-9]+(\.[0-9]+)?$"))]
pub struct Release {
    /// Major version.
    pub major: u16,
    /// Minor version.
    pub minor: u16,
    /// Patch release.
    pub patch: u16,
}

impl Release {
    /// Creates `v{major}.{minor}.{patch}`.
    #[must_use]
    pub const fn new(major: u16, minor: u16, patch: u16) -> Self {
        Self {
            major,
            minor,
            patch,
        }
    }
}

/// Text that is not a version.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a version: write the upstream tag, such as v0.25.1")]
pub struct ReleaseError(String);

impl FromStr for Release {
    type Err = ReleaseError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (major, minor, patch) =
            parse_numbers(text).ok_or_else(|| ReleaseError(text.to_owned()))?;
        Ok(Self::new(major, minor, patch.unwrap_or(0)))
    }
}

/// Parses `v0.25.1`, without the `v` or the last number too. Returns `None` for other texts.
pub(crate) fn parse_numbers(text: &str) -> Option<(u16, u16, Option<u16>)> {
    let numbers = text.strip_prefix('v').unwrap_or(text).split('.');
    let numbers = numbers.map(|number| {
        // Parsing as `u16` alone would accept `+1`.
        let is_plain = number.bytes().all(|byte| byte.is_ascii_digit());
        number.parse().ok().filter(|_| is_plain)
    });
    match numbers.collect::<Option<Vec<u16>>>()?[..] {
        [major, minor] => Some((major, minor, None)),
        [major, minor, patch] => Some((major, minor, Some(patch))),
        _ => None,
    }
}

impl TryFrom<String> for Release {
    type Error = ReleaseError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<Release> for String {
    fn from(version: Release) -> Self {
        version.to_string()
    }
}

impl fmt::Display for Release {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "v{}.{}.{}", self.major, self.minor, self.patch)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn version_upstream_tag_parses() {
        for (text, version) in [
            ("v0.25.1", Release::new(0, 25, 1)),
            ("0.11.0", Release::new(0, 11, 0)),
            ("v1.18", Release::new(1, 18, 0)),
        ] {
            assert_eq!(text.parse(), Ok(version), "{text}");
        }
        for text in ["", "v", "v1", "v1.2.3.4", "v1.+2", "v1.2.3-rc1", "v1..2"] {
            assert!(text.parse::<Release>().is_err(), "{text}");
        }
    }

    #[test]
    fn version_comparison_is_numeric() {
        assert!(Release::new(0, 9, 1) < Release::new(0, 10, 0));
        assert!(Release::new(0, 25, 1) < Release::new(0, 25, 2));
    }

    #[test]
    fn version_json_round_trip_is_equal() {
        let version: Release = serde_json::from_str("\"v0.25\"").expect("valid version");
        assert_eq!(
            serde_json::to_string(&version).expect("a version serializes to a string"),
            "\"v0.25.0\""
        );
        assert!(serde_json::from_str::<Release>("\"latest\"").is_err());
    }
}
