//! Defines the result of one attempt of a probe.

use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Result of one attempt, as the source of the probe observes it.
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
    /// TCP: the connection was established and the server sent its name.
    Connected,
    /// UDP and ping: a reply arrived.
    Answered,
    /// RST, or ICMP port unreachable.
    Refused,
    /// Any other ICMP error, or no route.
    Unreachable,
    /// The connection was reset after it was established.
    Reset,
    /// The connection was established, but the server sent no data.
    Silent,
    /// No reply arrived in time.
    Timeout,
}

impl Verdict {
    /// All verdicts, in the order in which reports list them.
    pub const ALL: [Self; 7] = [
        Self::Connected,
        Self::Answered,
        Self::Refused,
        Self::Unreachable,
        Self::Reset,
        Self::Silent,
        Self::Timeout,
    ];

    /// Returns the verdict as labs and reports write it.
    #[must_use]
    pub const fn name(self) -> &'static str {
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
        f.write_str(self.name())
    }
}

/// Attempt of a probe: one of its connections.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Attempt {
    /// Probe name from the lab.
    pub probe: String,
    /// Index of the attempt within the probe, from 0.
    pub index: u32,
    /// Result of the attempt.
    pub verdict: Verdict,
    /// Name that the server sent. Absent if no server replied.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<String>,
    /// Source address that the server saw. Absent if no server replied.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seen_source: Option<SocketAddr>,
    /// Local address of the probe's socket.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub local_address: Option<SocketAddr>,
    /// Time from the first packet to the verdict.
    pub duration: Duration,
    /// Whether the verdict is a timeout that was reported early, because the evidence proves that
    /// no answer can arrive.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub settled: bool,
    /// Error message of the operating system. Absent if there was no error.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}
