//! Parses the IPVS timeouts of the configuration.

use std::str::FromStr;
use std::time::Duration;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// Longest timeout that every kernel accepts, in seconds: `INT_MAX / HZ`, where `HZ` is at most
/// 1000. (Linux v6.12, `ip_vs_set_timeout` in `net/netfilter/ipvs/ip_vs_ctl.c`.)
const MAX_SECONDS: u32 = i32::MAX.cast_unsigned() / 1000;

/// IPVS timeout in whole seconds; 0 keeps the kernel's default.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Timeout(u32);

/// Error of parsing a [`Timeout`].
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("`{0}` is not a valid IPVS timeout: write it as 900s or 15m")]
pub struct TimeoutError(String);

impl Timeout {
    /// Returns the timeout in seconds.
    #[must_use]
    pub const fn seconds(self) -> u32 {
        self.0
    }

    /// Whether the timeout keeps the kernel's default.
    #[must_use]
    pub const fn is_zero(&self) -> bool {
        self.0 == 0
    }
}

impl FromStr for Timeout {
    type Err = TimeoutError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let invalid = || TimeoutError(text.to_owned());
        let time = text.parse::<humantime::Duration>().map_err(|_| invalid())?;
        let seconds = u32::try_from(time.as_secs()).map_err(|_| invalid())?;
        if seconds > MAX_SECONDS {
            return Err(invalid());
        }
        Ok(Self(seconds))
    }
}

impl TryFrom<String> for Timeout {
    type Error = TimeoutError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<Timeout> for String {
    fn from(timeout: Timeout) -> Self {
        humantime::format_duration(Duration::from_secs(timeout.0.into())).to_string()
    }
}

impl JsonSchema for Timeout {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "IPVSTimeout".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string",
            "description": "Time in whole seconds. 0s keeps the kernel default.",
            "examples": ["900s", "15m"]
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timeout_kube_proxy_texts_parse() {
        for (text, seconds) in [("15m0s", 900), ("900s", 900), ("1h", 3600), ("0s", 0)] {
            assert_eq!(
                text.parse::<Timeout>().unwrap().seconds(),
                seconds,
                "{text}"
            );
        }
        let longest = String::from(Timeout(MAX_SECONDS));
        assert_eq!(longest.parse(), Ok(Timeout(MAX_SECONDS)));
        let longer = String::from(Timeout(MAX_SECONDS + 1));
        assert!(
            longer.parse::<Timeout>().is_err(),
            "{longer} exceeds the maximum"
        );
        assert_eq!(
            "soon".parse::<Timeout>().unwrap_err().to_string(),
            "`soon` is not a valid IPVS timeout: write it as 900s or 15m"
        );
        "200years".parse::<Timeout>().unwrap_err();
    }
}
