//! Defines network interfaces.

use std::net::IpAddr;

use crate::bridge_port::PortSettings;
use ipnetwork::IpNetwork;
use serde::{Deserialize, Serialize};
use svclab_ruleset::Mac;

/// Interface of a namespace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Link {
    /// Interface name, at most 15 bytes, unique in the namespace.
    pub name: String,
    /// Type of the interface.
    pub kind: LinkKind,
    /// Link-layer address, fixed so that static neighbour entries can name it.
    pub mac: Mac,
    /// Addresses with prefix lengths. Host bits are kept.
    pub addresses: Vec<IpNetwork>,
    /// Bridge that the interface is a port of. `None` if it is not a bridge port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bridge: Option<String>,
    /// Settings of the bridge port.
    #[serde(default, skip_serializing_if = "PortSettings::is_default")]
    pub port: PortSettings,
    /// Whether the interface stays down, as kube-proxy leaves `kube-ipvs0`. Its addresses are local
    /// to the node nevertheless.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub down: bool,
    /// MTU in bytes. `None` leaves the choice to the kernel.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mtu: Option<u32>,
}

/// MTU of an interface without another one, in bytes (Linux v6.12, `include/uapi/linux/if_ether.h`,
/// `ETH_DATA_LEN`).
pub const ETHERNET_MTU: u32 = 1500;

/// Smallest MTU of an interface with IPv6, in bytes (RFC 8200).
pub const IPV6_MIN_MTU: u32 = 1280;

impl Link {
    /// Whether the interface is a bridge port that is up and does not forward.
    #[must_use]
    pub const fn is_disabled_port(&self) -> bool {
        self.bridge.is_some() && !self.down && !self.port.forwarding
    }

    /// Whether the interface is a veth whose peer is in the namespace `name`.
    #[must_use]
    pub fn is_veth_to(&self, name: &str) -> bool {
        matches!(&self.kind, LinkKind::Veth { namespace, .. } if namespace == name)
    }
}

/// Type of an interface.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase", tag = "is")]
pub enum LinkKind {
    /// End of a veth pair between two namespaces. Each end names the other end.
    Veth {
        /// Namespace of the peer.
        namespace: String,
        /// Name of the peer interface in that namespace.
        peer: String,
    },
    /// Linux bridge.
    Bridge,
    /// Dummy interface, which only holds addresses.
    Dummy,
    /// Vxlan device with static forwarding entries, as flannel sets it up.
    Vxlan {
        /// VXLAN network identifier (VNI).
        vni: u32,
        /// UDP port of the tunnel.
        port: u16,
        /// Name of the underlay interface.
        dev: String,
        /// Source address in the underlay.
        local: IpAddr,
    },
}
