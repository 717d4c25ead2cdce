//! Defines the network state of a namespace as read from the kernel: interfaces, routes, routing
//! rules, neighbours and forwarding entries.

use std::net::IpAddr;

use ipnetwork::IpNetwork;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::bridge_port::PortSettings;
use crate::routing::{MultipathRoute, Route, RoutingRule};
use svclab_ruleset::Mac;

/// Routing state of a namespace, read through netlink.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NetworkState {
    /// Routes of all tables, except those to broadcast and multicast addresses.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub routes: Vec<Route>,
    /// Multipath routes of all tables.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub multipath_routes: Vec<MultipathRoute>,
    /// Routing rules, with those that the kernel adds itself, in the order of the kernel.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub routing_rules: Vec<RoutingRule>,
    /// Neighbours.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub neighbours: Vec<NeighbourEntry>,
    /// Forwarding entries of bridges and tunnels for unicast addresses.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub forwarding: Vec<ForwardingEntry>,
    /// Queueing disciplines that the kernel did not create itself.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub queues: Vec<Queue>,
}

/// Interface read back from the kernel.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LinkState {
    /// Interface name.
    pub name: String,
    /// Interface flags (`IFF_UP` and others, Linux v6.12 `include/uapi/linux/if.h`).
    pub flags: u32,
    /// Addresses with prefix lengths.
    #[schemars(with = "Vec<String>")]
    pub addresses: Vec<IpNetwork>,
    /// Type of the interface, such as `veth`; absent for interfaces without one, such as `lo`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// Hardware address; absent for interfaces without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub mac: Option<Mac>,
    /// MTU in bytes.
    #[serde(default)]
    pub mtu: u32,
    /// Bridge of a bridge port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bridge: Option<String>,
    /// Settings of a bridge port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<PortSettings>,
    /// Whether a bridge filters by VLAN.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub filters_vlans: bool,
    /// Properties of a VXLAN device.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vxlan: Option<VxlanState>,
}

impl LinkState {
    /// Whether the interface is set up (`IFF_UP`).
    #[must_use]
    pub const fn is_up(&self) -> bool {
        self.flags & 1 != 0
    }

    /// Whether the interface resolves neighbours, that is, lacks `IFF_NOARP`.
    #[must_use]
    pub const fn resolves_neighbours(&self) -> bool {
        self.flags & (1 << 7) == 0
    }
}

/// Properties of a VXLAN device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct VxlanState {
    /// VXLAN network identifier (VNI).
    pub vni: u32,
    /// Destination UDP port.
    pub port: u16,
    /// Source address in the underlay; absent if the route decides.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub local: Option<IpAddr>,
}

/// Neighbour read back from the kernel.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NeighbourEntry {
    /// IP address of the neighbour.
    pub address: IpAddr,
    /// Interface name.
    pub interface: String,
    /// Hardware address; absent if it is not resolved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub mac: Option<Mac>,
    /// Whether the entry is permanent, so that the kernel never resolves the address.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub permanent: bool,
}

/// Forwarding entry read back from the kernel.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ForwardingEntry {
    /// Tunnel device, or port of a bridge.
    pub interface: String,
    /// Destination hardware address of the frames.
    #[schemars(with = "String")]
    pub mac: Mac,
    /// Tunnel end that receives the frames; absent for an entry of a bridge.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remote: Option<IpAddr>,
    /// Whether the entry was added and not learned.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub permanent: bool,
}

/// Queueing discipline read back from the kernel.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Queue {
    /// Interface name.
    pub interface: String,
    /// Name of the discipline, such as `netem`; `clsact` holds filters of both directions.
    pub kind: String,
    /// Number of packets that the discipline dropped since its creation.
    pub dropped: u32,
}
