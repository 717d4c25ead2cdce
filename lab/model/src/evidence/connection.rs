//! What a kernel remembers of connections: conntrack's entries, and IPVS's.

use std::fmt;
use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

/// Addresses and ports as a packet has them at some place, or as a connection is known
/// by; of what has no ports they are 0, of an echo both are its identifier.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    Hash,
    PartialOrd,
    Ord,
    Serialize,
    Deserialize,
    schemars::JsonSchema,
)]
pub struct Flow {
    /// From where.
    pub source: SocketAddr,
    /// To where.
    pub destination: SocketAddr,
}

impl Flow {
    /// As an answer has them.
    #[must_use]
    pub const fn reversed(self) -> Self {
        Self {
            source: self.destination,
            destination: self.source,
        }
    }
}

impl fmt::Display for Flow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} > {}", bare(self.source), bare(self.destination))
    }
}

/// An address with its port, if it has one.
#[must_use]
pub fn bare(address: SocketAddr) -> String {
    match address.port() {
        0 => address.ip().to_string(),
        _ => address.to_string(),
    }
}

/// An entry of conntrack's.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Connection {
    /// The namespace.
    pub namespace: String,
    /// The IP protocol by number: 6 is TCP.
    pub protocol: u8,
    /// As its first packet was, before anything was rewritten.
    pub original: Flow,
    /// As an answer must be to belong to it.
    pub reply: Flow,
    /// Its mark.
    #[serde(default)]
    pub mark: u32,
    /// Its status bits (`IPS_CONFIRMED` and its like, Linux v6.12
    /// `include/uapi/linux/netfilter/nf_conntrack_common.h`).
    pub status: u32,
    /// Of TCP, its state as conntrack names it: `SYN_SENT`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<String>,
    /// In how many seconds it would be forgotten when it was read; none of what was
    /// forgotten by then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires: Option<u32>,
}

/// An entry of IPVS's: to which real server it sends a client.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Balanced {
    /// The namespace.
    pub namespace: String,
    /// The IP protocol by number.
    pub protocol: u8,
    /// The client.
    pub client: SocketAddr,
    /// The virtual server, or what the packet was sent to where a mark made it one.
    pub server: SocketAddr,
    /// The real server.
    pub real: SocketAddr,
    /// Its state as IPVS names it: `SYN_RECV`.
    #[serde(default)]
    pub state: String,
    /// In how many seconds it would be forgotten when it was read.
    #[serde(default)]
    pub expires: u32,
}
