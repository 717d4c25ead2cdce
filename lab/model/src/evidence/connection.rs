//! Defines the connection state of a kernel: conntrack entries and IPVS connections.

use std::fmt;
use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

/// Source and destination of a packet or a connection. Ports are 0 for a protocol without ports.
/// For an ICMP echo, both ports are the identifier.
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
#[serde(rename_all = "camelCase")]
pub struct AddressPair {
    /// Source address and port.
    pub source: SocketAddr,
    /// Destination address and port.
    pub destination: SocketAddr,
}

impl AddressPair {
    /// Returns the same addresses in reply direction.
    #[must_use]
    pub const fn reversed(self) -> Self {
        Self {
            source: self.destination,
            destination: self.source,
        }
    }
}

/// Connection that a layer 7 load balancer made for a client.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RelayedConnection {
    /// Namespace of the load balancer.
    pub namespace: String,
    /// Connection of the client, as the load balancer sees it.
    pub client: AddressPair,
    /// Connection of the load balancer to a backend, whether the backend answered or not.
    pub backend: AddressPair,
}

impl fmt::Display for AddressPair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} > {}",
            format_address(self.source),
            format_address(self.destination)
        )
    }
}

/// Formats an address with its port. A port of 0 is omitted.
#[must_use]
pub fn format_address(address: SocketAddr) -> String {
    match address.port() {
        0 => address.ip().to_string(),
        _ => address.to_string(),
    }
}

/// Conntrack entry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ConntrackEntry {
    /// Namespace whose conntrack holds the entry.
    pub namespace: String,
    /// IP protocol number: 6 is TCP.
    pub protocol: u8,
    /// Addresses of the first packet, before NAT.
    pub original: AddressPair,
    /// Addresses that a reply must have to belong to the entry.
    pub reply: AddressPair,
    /// Packet mark stored in the entry (connmark).
    #[serde(default)]
    pub mark: u32,
    /// Status bits (`IPS_CONFIRMED` and others, Linux v6.12
    /// `include/uapi/linux/netfilter/nf_conntrack_common.h`).
    pub status: u32,
    /// TCP state as conntrack prints it: `SYN_SENT`. Absent for other protocols.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<String>,
    /// Seconds until the entry expires, at the time of reading. Absent for an entry that was
    /// deleted before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires: Option<u32>,
}

/// IPVS connection, which maps a client to a real server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct IpvsConnection {
    /// Namespace whose IPVS holds the connection.
    pub namespace: String,
    /// IP protocol number: 6 is TCP.
    pub protocol: u8,
    /// Address of the client.
    pub client: SocketAddr,
    /// Address of the virtual server. For a virtual server that a mark selects, the original
    /// destination of the packet.
    pub virtual_server: SocketAddr,
    /// Address of the real server.
    pub real_server: SocketAddr,
    /// State as IPVS prints it: `SYN_RECV`.
    #[serde(default)]
    pub state: String,
    /// Seconds until the connection expires, at the time of reading.
    #[serde(default)]
    pub expires: u32,
}
