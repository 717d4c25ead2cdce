//! One exchange and what became of it.

use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// What became of one exchange, as the one who asked experienced it.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    schemars::JsonSchema,
)]
#[serde(rename_all = "camelCase")]
pub enum Verdict {
    /// TCP: connected and told who answered.
    Connected,
    /// UDP and ping: an answer came.
    Answered,
    /// RST, or ICMP port unreachable.
    Refused,
    /// Any other ICMP error, or no route at all.
    Unreachable,
    /// Cut off after connecting.
    Reset,
    /// Connected, and then nobody said a word.
    Silent,
    /// Nothing came back in time.
    Timeout,
}

impl Verdict {
    /// All of them, in the order reports list them.
    pub const ALL: [Self; 7] = [
        Self::Connected,
        Self::Answered,
        Self::Refused,
        Self::Unreachable,
        Self::Reset,
        Self::Silent,
        Self::Timeout,
    ];

    /// The word users write and read.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Connected => "connected",
            Self::Answered => "answered",
            Self::Refused => "refused",
            Self::Unreachable => "unreachable",
            Self::Reset => "reset",
            Self::Silent => "silent",
            Self::Timeout => "timeout",
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

/// One connection of one probe.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Attempt {
    /// The probe, by name.
    pub probe: String,
    /// Which of its connections, from 0.
    pub number: u32,
    /// What became of it.
    pub verdict: Verdict,
    /// Who answered, by the name the server gave.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<String>,
    /// The peer address that server saw.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seen_source: Option<SocketAddr>,
    /// The address it left its own socket with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub local: Option<SocketAddr>,
    /// From the first packet to the verdict.
    pub took: Duration,
    /// Whether it is a timeout that was told before the probe's patience was over,
    /// because what was seen proves it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub settled: bool,
    /// The system's own words where it gave an error.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}
