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

    /// Whether the attempt succeeded: a server answered.
    #[must_use]
    pub const fn is_success(self) -> bool {
        matches!(self, Self::Connected | Self::Answered)
    }

    /// Whether no answer of the server arrived in time.
    #[must_use]
    pub const fn is_unanswered(self) -> bool {
        matches!(self, Self::Timeout | Self::Silent)
    }

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
    /// Answers to further datagrams of the same socket.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub further_answers: Vec<Answer>,
    /// Progress of the exchange, for probes with a payload or several datagrams.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress: Option<Progress>,
    /// Local address of the probe's socket.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub local_address: Option<SocketAddr>,
    /// Time from the first packet to the verdict.
    pub duration: Duration,
    /// Time from the start of the first exchange to this one, for a UDP connection that was open across
    /// a step. The kernel's own time since the last packet is at most as long.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle: Option<Duration>,
    /// Whether the verdict is a timeout that was reported early, because the evidence proves that
    /// no answer can arrive.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub settled: bool,
    /// Error message of the operating system. Absent if there was no error.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// Answer of a server to a datagram.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Answer {
    /// Name that the server sent.
    pub endpoint: String,
    /// Source address that the server saw.
    pub seen_source: SocketAddr,
}

/// Progress of the exchange of an attempt. The unit is bytes of payload for TCP, and datagrams for
/// UDP and ping.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "camelCase")]
pub struct Progress {
    /// Amount that the source passed to its kernel.
    pub sent: u64,
    /// Amount of it that the other end acknowledged. TCP only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub acknowledged: Option<u64>,
    /// Amount that the source received.
    pub received: u64,
    /// Amount that a complete exchange has in each direction.
    pub expected: u64,
}

impl Attempt {
    /// Returns the names of the servers that answered.
    pub fn endpoints(&self) -> impl Iterator<Item = &str> {
        let further = self.further_answers.iter();
        let further = further.map(|answer| answer.endpoint.as_str());
        self.endpoint.as_deref().into_iter().chain(further)
    }

    /// Returns the source addresses that servers saw.
    pub fn seen_sources(&self) -> impl Iterator<Item = SocketAddr> {
        let further = self.further_answers.iter();
        let further = further.map(|answer| answer.seen_source);
        self.seen_source.into_iter().chain(further)
    }
}
