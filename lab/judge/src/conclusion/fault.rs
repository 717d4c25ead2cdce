//! Defines the objects that cause drops: routes, neighbours, interfaces, bridge ports and rules.

use std::net::{IpAddr, SocketAddr};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::rules::RuleReference;
use crate::state::route_lookup::RouteLookup;
use svclab_model::plan::Mac;

/// Object that caused the loss of a packet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(
    tag = "object",
    rename_all = "camelCase",
    rename_all_fields = "camelCase"
)]
pub enum Fault {
    /// Route to the destination, or its absence.
    Route {
        /// Lookup of the destination.
        lookup: RouteLookup,
    },
    /// Route to the source, or its absence.
    SourceRoute {
        /// Lookup of the source.
        lookup: RouteLookup,
    },
    /// Neighbour that does not reply.
    Neighbour {
        /// Address of the neighbour.
        address: IpAddr,
        /// Interface of the neighbour.
        interface: String,
    },
    /// Neighbour that cannot reply, because the host with its address is not behind the bridge.
    UnconnectedNeighbour {
        /// Address of the neighbour.
        address: IpAddr,
        /// Bridge to which the packet was routed.
        bridge: String,
        /// Interface with the address.
        owner: InterfaceName,
    },
    /// Interface whose MTU is too small.
    Mtu {
        /// Namespace of the interface.
        namespace: String,
        /// Name of the interface.
        interface: String,
        /// MTU in bytes.
        mtu: u32,
        /// Length of the IP packet in bytes.
        length: u32,
    },
    /// TTL or hop limit of the packet.
    Ttl {
        /// TTL at the last capture.
        ttl: u8,
        /// Rule that set the TTL; absent if no rule did.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        set_by: Option<RuleReference>,
    },
    /// Routing loop in which the TTL expired.
    RoutingLoop {
        /// Names of the namespaces, in the order of one round.
        namespaces: Vec<String>,
        /// Number of rounds.
        rounds: u32,
    },
    /// Hardware address to which the frame was sent.
    HardwareAddress {
        /// Destination hardware address of the frame.
        #[schemars(with = "String")]
        address: Mac,
        /// Interface with this hardware address; absent if there is none.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        owner: Option<InterfaceName>,
        /// Interface at the other end of the link.
        receiver: InterfaceName,
        /// Neighbour whose static entry has this hardware address.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        neighbour: Option<IpAddr>,
        /// Bridge whose static forwarding entry sends frames to this address to the receiver.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        bridge: Option<String>,
    },
    /// Bridge port through which the frame came and would have to leave.
    Hairpin {
        /// Name of the bridge.
        bridge: String,
        /// Name of the port.
        port: String,
    },
    /// Bridge port that leads to the destination.
    BridgePort {
        /// Name of the bridge.
        bridge: String,
        /// Name of the port.
        port: String,
        /// Whether the port is down.
        down: bool,
    },
    /// Bridge port that received the frame or leads to the destination, and does not have the
    /// spanning tree state `forwarding`.
    DisabledPort {
        /// Name of the bridge.
        bridge: String,
        /// Name of the port.
        port: String,
    },
    /// Two bridge ports that exchange no frames, because both are isolated.
    IsolatedPorts {
        /// Name of the bridge.
        bridge: String,
        /// Name of the port that received the frame.
        ingress: String,
        /// Name of the port that leads to the destination.
        port: String,
    },
    /// Bridge port to the destination that does not flood, for a hardware address that the bridge
    /// does not know.
    UnknownHardwareAddress {
        /// Name of the bridge.
        bridge: String,
        /// Name of the port that leads to the destination.
        port: String,
        /// Destination hardware address of the frame; absent if it was not captured.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[schemars(with = "Option<String>")]
        address: Option<Mac>,
    },
    /// Bridge port that receives only frames from known hardware addresses.
    LockedPort {
        /// Name of the bridge.
        bridge: String,
        /// Name of the port.
        port: String,
    },
    /// Bridge port to whose other end the frame was addressed, although that end sent it.
    ReturnedFrame {
        /// Sender and owner of the destination address.
        sender: InterfaceName,
        /// Destination hardware address of the frame.
        #[schemars(with = "String")]
        address: Mac,
        /// Whether the sender resolves no neighbours (ARP is off).
        without_arp: bool,
    },
    /// Interface whose MTU is too small for IPv6.
    NoIpv6 {
        /// Name of the interface.
        interface: String,
        /// MTU in bytes.
        mtu: u32,
    },
    /// Interface that is down.
    Down {
        /// The interface.
        interface: InterfaceName,
    },
    /// Dummy interface, which discards all packets.
    Dummy {
        /// Name of the interface.
        interface: String,
    },
    /// VXLAN interface without a forwarding entry.
    Vxlan {
        /// Name of the interface.
        interface: String,
        /// Next hop of the packet.
        neighbour: IpAddr,
        /// Hardware address of the next hop; absent if the neighbour has no entry.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[schemars(with = "Option<String>")]
        address: Option<Mac>,
    },
    /// Tunnel end that did not reply: the next hop of the frames of a VXLAN interface.
    VxlanRemote {
        /// Name of the VXLAN interface.
        interface: String,
        /// Next hop of the packet.
        neighbour: IpAddr,
        /// Hardware address of the next hop.
        #[schemars(with = "String")]
        address: Mac,
        /// Tunnel end to which the forwarding entry of this address leads.
        remote: IpAddr,
    },
    /// Rule of a chain that is hooked to a device, before the kernel traces packets.
    IngressRule {
        /// Rule that drops packets.
        rule: RuleReference,
        /// Device of the chain.
        device: String,
    },
    /// Rule that sends packets to a queue (`NFQUEUE`).
    QueueRule {
        /// The rule.
        rule: RuleReference,
    },
    /// Connection that conntrack could not add: another connection has its addresses after the
    /// translation.
    UsedAddresses {
        /// Translated destination.
        destination: SocketAddr,
        /// Number of connections that the namespace could not add (`insert_failed`).
        failed_inserts: u64,
        /// Rule that translated the source; absent if only the destination was translated.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        rule: Option<RuleReference>,
    },
    /// `IPsec` policy for packets to an address.
    IpsecPolicy {
        /// Destination address of the packet.
        destination: IpAddr,
    },
    /// IPVS virtual server without a real server that accepts connections.
    VirtualServer {
        /// Address and port of the virtual server.
        address: SocketAddr,
        /// Number of real servers, all with weight 0.
        servers: usize,
    },
}

/// Interface of a namespace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct InterfaceName {
    /// Name of the namespace.
    pub namespace: String,
    /// Name of the interface.
    pub interface: String,
}

impl InterfaceName {
    pub(crate) fn new(namespace: &str, interface: &str) -> Self {
        Self {
            namespace: namespace.to_owned(),
            interface: interface.to_owned(),
        }
    }
}
