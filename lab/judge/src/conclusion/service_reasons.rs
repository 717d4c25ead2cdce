//! Defines reasons for what happened to a request on its way to an endpoint of a service.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::rules::RuleReference;
use svclab_journey::journey::SysctlValue;
use svclab_model::evidence::AddressPair;
use svclab_ruleset::Family;

/// Reason why a node did not translate the address of a service.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(
    tag = "because",
    rename_all = "camelCase",
    rename_all_fields = "camelCase"
)]
pub enum UntranslatedReason {
    /// The lab has no kube-proxy on the node.
    NoProxy,
    /// A conntrack entry existed before the packet, so that no rule of the table nat applied.
    Entry {
        /// Addresses of the entry in request direction.
        original: AddressPair,
        /// Addresses of the expected reply.
        reply: AddressPair,
    },
    /// The load balancer address has `ipMode: Proxy`, so that kube-proxy writes no rules for it.
    ProxiedAddress,
    /// kube-proxy in ipvs mode does not bind load balancer addresses to the node
    /// (`bindLoadBalancerIPs: false`). IPVS translates only packets to addresses of the node.
    UnboundAddress,
    /// kube-proxy runs in ipvs mode, and no interface of the node has the address. IPVS translates
    /// received packets only if their destination is an address of the node (Linux v6.12,
    /// `net/netfilter/ipvs/ip_vs_core.c`, `ip_vs_ops4`: hook `LOCAL_IN`).
    NoAddress,
    /// kube-proxy runs in ipvs mode, and IPVS has no virtual server at the address and port.
    NoVirtualServer,
    /// kube-proxy ignores the service.
    Ignored {
        /// Reason, as a predicate that follows the name of the service.
        reason: String,
    },
    /// No rule translated the packet.
    NoRule {
        /// Last chain of kube-proxy for translations that the packet passed; absent without one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        chain: Option<String>,
    },
}

/// Reason why a node did not translate a reply back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(
    tag = "because",
    rename_all = "camelCase",
    rename_all_fields = "camelCase"
)]
pub enum ReplyGap {
    /// A bridge forwarded the reply between two of its ports without netfilter.
    Bridge {
        /// Name of the bridge.
        bridge: String,
        /// Sysctl that disables netfilter for bridged packets.
        sysctl: SysctlValue,
    },
    /// A rule excluded the reply from connection tracking.
    NotTracked {
        /// Rule that the reply matched.
        rule: RuleReference,
    },
    /// No conntrack entry of the connection existed at the end of the stage.
    NoEntry,
    /// The evidence does not show the reason.
    Unknown,
}

/// Option of kube-proxy for which a rule marks packets for masquerading.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum MasqueradeOption {
    /// `masqueradeAll` marks all packets to cluster IPs.
    MasqueradeAll,
    /// `clusterCIDR` marks packets from other sources.
    ClusterCidr,
}

/// Reason why a node does not serve the node port of a service.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum NodePortGap {
    /// The port is for this protocol, such as `tcp`.
    Protocol(String),
    /// The service has no cluster IP of this family.
    Family(Family),
    /// The address is a loopback address.
    Loopback,
    /// `nodePortAddresses` of kube-proxy does not select the address.
    Address,
}

/// Property of a service that limits its endpoints.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum ServicePolicy {
    /// `internalTrafficPolicy: Local`.
    InternalLocal,
    /// `externalTrafficPolicy: Local`.
    ExternalLocal,
    /// `sessionAffinity: ClientIP`.
    ClientIp,
}

/// Reason why a service has no endpoint for a request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum NoEndpointReason {
    /// No slice of the service has an endpoint.
    Empty,
    /// No endpoint is ready. Contains the names of the endpoints.
    NotReady(Vec<String>),
    /// The endpoints have no port for the port of the service with this number: no container has a
    /// port with the name in `targetPort`.
    NoPort(u16),
    /// A policy excludes the endpoints on other nodes.
    OnlyOnOtherNodes(ServicePolicy),
}

/// Reason why an endpoint gets no connections of a service.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum MissingEndpointReason {
    /// The endpoint is not ready.
    NotReady,
    /// No slice of the service has the endpoint: the selector does not match its labels.
    NotSelected,
}
