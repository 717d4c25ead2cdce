//! Defines facts about the packets of an attempt. A report renders each fact as a sentence.

use std::net::{IpAddr, SocketAddr};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::cause::Cause;
use super::fault::Fault;
use super::icmp_meaning::IcmpMeaning;
use super::rules::RuleReference;
use super::service_reasons::{
    MasqueradeOption, MissingEndpointReason, NoEndpointReason, NodePortGap, ReplyGap,
    ServicePolicy, UntranslatedReason,
};
use crate::address_book::AddressBook;
use crate::deviation::Deviation;
use svclab_journey::journey::Kind;
use svclab_model::evidence::AddressPair;

/// Fact about the packets of an attempt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(
    tag = "fact",
    rename_all = "camelCase",
    rename_all_fields = "camelCase"
)]
pub enum Fact {
    /// No packet of the connection was captured.
    NothingCaptured,
    /// No packet of the connection was captured: the source waited for the hardware address of its
    /// next hop.
    NeighbourAwaited {
        /// Namespace of the source.
        namespace: String,
        /// Address of the next hop.
        neighbour: IpAddr,
    },
    /// The kernel of the source rejected the connection before it sent a packet.
    NothingSent {
        /// Namespace of the source.
        namespace: String,
        /// Error of the operating system; absent if it is unknown.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        error: Option<String>,
        /// Whether the error means that no route leads to the destination.
        no_route: bool,
        /// Route that refuses the destination, or the absence of a route.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        fault: Option<Fault>,
    },
    /// The packet reached its destination.
    Reached {
        /// Kind of the packet.
        packet: Kind,
        /// Namespace that received the packet.
        namespace: String,
        /// Destination address on arrival.
        destination: NamedAddress,
        /// Source address on arrival; absent if it is the source address of the attempt.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        source: Option<NamedAddress>,
    },
    /// A kernel answered the packet with an error or a reset.
    Rejected {
        /// Kind of the packet.
        packet: Kind,
        /// Namespace whose kernel answered.
        namespace: String,
        /// Destination address at that place.
        destination: NamedAddress,
        /// Answer of the kernel.
        rejection: Rejection,
        /// Namespaces that rewrote the request but did not receive this reply.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        bypassed: Vec<String>,
    },
    /// The packet was lost.
    Lost {
        /// Kind of the packet.
        packet: Kind,
        /// Last namespace of the packet.
        namespace: String,
        /// Interface through which the packet entered the namespace; absent if it was sent there.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        ingress: Option<String>,
        /// Source address on arrival in the namespace.
        source: NamedAddress,
        /// Destination address at the end of the packet.
        destination: NamedAddress,
        /// Ends of the tunnel in which the packet was lost; absent outside of tunnels.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        tunnel: Option<Box<TunnelEnds>>,
        /// Cause of the loss.
        cause: Cause,
        /// Namespaces that rewrote the request but did not receive this reply.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        bypassed: Vec<String>,
    },
    /// The reply was delivered to a namespace that did not send the request.
    Misdelivered {
        /// Kind of the reply.
        packet: Kind,
        /// Namespace that received the reply.
        namespace: String,
        /// Destination address of the reply.
        destination: NamedAddress,
        /// Namespaces that rewrote the request but did not receive this reply.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        bypassed: Vec<String>,
    },
    /// The source received the reply with the expected addresses.
    ReplyReceived {
        /// Kind of the reply.
        packet: Kind,
        /// Namespace that sent the reply.
        sender: String,
        /// Namespace of the source.
        receiver: String,
    },
    /// The source received a reset or an error.
    Refused {
        /// Kind of the reply.
        packet: Kind,
        /// Namespace that sent the reply.
        sender: String,
    },
    /// The source received the reply with other addresses than those of the connection.
    UnexpectedAddresses {
        /// Kind of the reply.
        packet: Kind,
        /// Namespace of the source.
        namespace: String,
        /// Source address of the reply.
        source: NamedAddress,
        /// Destination address of the reply; absent unless it is the address that differs.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        destination: Option<NamedAddress>,
        /// Whether the source answered the reply with a reset.
        reset: bool,
        /// Namespaces that rewrote the request but did not receive this reply.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        bypassed: Vec<String>,
    },
    /// The request arrived, and no reply was sent.
    NoReply,
    /// A namespace that translated the request sent the reply on without translating it back.
    ReplyNotTranslated {
        /// Name of the namespace.
        namespace: String,
        /// Source address of the reply.
        source: NamedAddress,
        /// Reason for the missing translation.
        reason: ReplyGap,
    },
    /// A namespace rewrote the destination of the request but not the source.
    KeptSource {
        /// Namespace that rewrote the destination.
        namespace: String,
        /// Source address that was kept.
        source: IpAddr,
        /// Whether the packet was sent to the same address: the kernel uses the destination as the
        /// source if it is an address of the node, as IPVS mode makes it (Linux v6.12,
        /// `net/ipv4/route.c`, `ip_route_output_key_hash_rcu`).
        #[serde(default)]
        is_destination: bool,
        /// Reason for the missing rewrite.
        reason: KeptSourceReason,
    },
    /// A request to a service left a node without translation.
    NotTranslated {
        /// Namespace of the node.
        namespace: String,
        /// Address of the service.
        destination: NamedAddress,
        /// Namespace and name of the service.
        service: String,
        /// Reason for the missing translation.
        reason: UntranslatedReason,
    },
    /// A node translated a request by a conntrack entry that existed before the first packet.
    TranslatedByEntry {
        /// Namespace of the node.
        namespace: String,
        /// Address of the service.
        destination: NamedAddress,
        /// Address after translation.
        server: NamedAddress,
        /// Addresses of the entry in request direction.
        original: AddressPair,
        /// Addresses of the expected reply.
        reply: AddressPair,
    },
    /// A node replaced the source address of a request.
    Masqueraded {
        /// Namespace of the node.
        namespace: String,
        /// New source address.
        source: NamedAddress,
        /// Rule that replaced the source address.
        rule: RuleReference,
        /// Rule that marked the packet, or the jump to that rule; absent if no rule did.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        marked_by: Option<RuleReference>,
        /// Option of kube-proxy for which the packet was marked; absent if it is unknown.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        option: Option<MasqueradeOption>,
    },
    /// A node sent a request of a pod to a machine outside of the cluster with the pod's address.
    NotMasqueraded {
        /// Namespace of the node.
        namespace: String,
        /// Source address of the pod.
        source: NamedAddress,
        /// Destination address outside of the cluster.
        destination: NamedAddress,
        /// Whether flannel runs without `ipMasq`.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        flannel: bool,
    },
    /// A load balancer chose a backend.
    Balanced {
        /// Name of the load balancer.
        balancer: String,
        /// Namespace to which the request was sent; absent if the request was lost there.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        backend: Option<String>,
        /// Source address that the load balancer gave to the request; absent if it kept the source.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        source: Option<NamedAddress>,
    },
    /// A property of the service limits its endpoints.
    LimitedEndpoints {
        /// Namespace and name of the service.
        service: String,
        /// The property.
        policy: ServicePolicy,
    },
    /// The source of a request is not in the source ranges of a service.
    OutsideSourceRanges {
        /// Namespace and name of the service.
        service: String,
        /// Source address of the request.
        source: NamedAddress,
    },
    /// The service with the address of a request has no such port.
    NoServicePort {
        /// Namespace and name of the service.
        service: String,
        /// Port of the request, with its protocol: `tcp 80`.
        port: String,
        /// Ports of the service, with their protocols.
        ports: Vec<String>,
    },
    /// No service has the port of a request to a node.
    NoNodePort {
        /// Port of the request.
        port: u16,
        /// Node ports of services, each with the namespace and name of the service.
        others: Vec<(String, u16)>,
    },
    /// A node does not serve the node port of a service as the request needs it.
    NodePortNotServed {
        /// Name of the node.
        node: String,
        /// Requested address of the node.
        address: IpAddr,
        /// Requested port.
        port: u16,
        /// Namespace and name of the service.
        service: String,
        /// Reason.
        because: NodePortGap,
    },
    /// A service has no endpoint for a request that a node dropped or refused.
    NoEndpoint {
        /// Namespace and name of the service.
        service: String,
        /// Name of the node.
        node: String,
        /// Reason.
        reason: NoEndpointReason,
    },
    /// No server listens on the port of a request to an endpoint.
    NotListening {
        /// Name of the endpoint.
        endpoint: String,
        /// Port and protocol of the request at the endpoint, such as `53/udp`.
        port: String,
        /// Ports on which servers listen, with their protocols.
        listening: Vec<String>,
    },
    /// No pod, node or host has the address of an endpoint.
    UnknownEndpoint {
        /// Namespace and name of the service.
        service: String,
        /// Address of the endpoint.
        address: SocketAddr,
    },
    /// An expected endpoint gets no connections of a service.
    MissingEndpoint {
        /// Namespace and name of the service.
        service: String,
        /// Name of the endpoint.
        endpoint: String,
        /// Reason.
        reason: MissingEndpointReason,
    },
    /// The fabric has no route to an address outside of all subnets.
    NotInFabric {
        /// Destination address of the packet.
        destination: NamedAddress,
    },
    /// A packet met an object that differs from the lab.
    Deviates {
        /// Namespace of the object.
        namespace: String,
        /// Object, as in the lab and as observed.
        #[serde(flatten)]
        deviation: Deviation,
    },
    /// A manual command whose changes the evidence does not contain.
    UnreadCommand {
        /// Namespace in which the command ran.
        namespace: String,
        /// Command with its arguments.
        command: String,
    },
}

/// Answer of a kernel that does not deliver a packet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "by", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum Rejection {
    /// ICMP error whose code has a meaning.
    Icmp {
        /// Meaning of the code.
        meaning: IcmpMeaning,
        /// Drop reason of the kernel; absent if the kernel gave none.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
        /// Object at fault; absent if the evidence does not show it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        fault: Option<Fault>,
    },
    /// Another error, or a reset.
    Packet {
        /// Kind of the answer; absent if it was not captured.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        packet: Option<Kind>,
        /// Object at fault; absent if the evidence does not show it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        fault: Option<Fault>,
    },
}

impl Fact {
    /// Whether the fact states what happened to a packet. Other facts state reasons.
    #[must_use]
    pub const fn is_event(&self) -> bool {
        matches!(
            self,
            Self::NothingCaptured
                | Self::NeighbourAwaited { .. }
                | Self::NothingSent { .. }
                | Self::Reached { .. }
                | Self::Rejected { .. }
                | Self::Lost { .. }
                | Self::Misdelivered { .. }
                | Self::ReplyReceived { .. }
                | Self::Refused { .. }
                | Self::UnexpectedAddresses { .. }
                | Self::NoReply
        )
    }
}

/// Addresses of a tunnel packet, without ports.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TunnelEnds {
    /// Source address.
    pub source: NamedAddress,
    /// Destination address.
    pub destination: NamedAddress,
}

/// Reason why a namespace kept the source address of a request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(
    tag = "because",
    rename_all = "camelCase",
    rename_all_fields = "camelCase"
)]
pub enum KeptSourceReason {
    /// Rules returned before a rule could mark or masquerade the packet.
    Returned {
        /// Rules that returned.
        rules: Vec<RuleReference>,
    },
    /// No rule marked the packet for masquerading.
    NotMarked,
    /// No rule marked the packet to a cluster IP for masquerading, because kube-proxy has neither
    /// `clusterCIDR` nor `masqueradeAll`.
    NoClusterCidr,
    /// The packet was marked, but not masqueraded.
    MarkedOnly,
}

/// Address with the name that users give to it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NamedAddress {
    /// IP address and port; port 0 if the packet has no ports.
    pub address: SocketAddr,
    /// Name of the pod, node, host, service or interface; absent if the address has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

impl NamedAddress {
    pub(super) fn new(address: SocketAddr, book: &AddressBook<'_>) -> Self {
        let name = book.name_of(address.ip());
        let name = (name != address.ip().to_string()).then_some(name);
        Self { address, name }
    }
}
