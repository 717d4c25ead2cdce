//! Defines the changes that an operator can make to a lab or to the state of its nodes.

mod apply;
mod covering;
mod describe;
mod edit;
mod error;
mod node_commands;
mod objects;
mod replacement;
mod side_effect;

pub(super) use covering::covering_networks;
pub use error::ChangeError;
use ipnetwork::{IpNetwork, Ipv4Network};
pub(super) use node_commands::PROGRAMS;
pub use objects::{PolicyField, ServiceField};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use std::collections::BTreeMap;
use std::net::SocketAddr;

use crate::bisect::Difference;
use svclab_model::plan::{Backend, Forwarding, Neighbour, NodeCommand, Route, RoutingRule};
use svclab_ruleset::Protocol;

/// Change that may be the fix.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(
    tag = "what",
    rename_all = "camelCase",
    rename_all_fields = "camelCase"
)]
pub enum ProposedChange {
    /// Sets a traffic policy of a service to `Cluster`.
    ClusterPolicy {
        /// Service: `NAMESPACE/NAME`.
        service: String,
        /// Policy field: `externalTrafficPolicy` or `internalTrafficPolicy`.
        field: PolicyField,
    },
    /// Sets a traffic policy of a service to `Local`.
    LocalPolicy {
        /// Service: `NAMESPACE/NAME`.
        service: String,
        /// Policy field: `externalTrafficPolicy` or `internalTrafficPolicy`.
        field: PolicyField,
    },
    /// Changes a field of a service.
    ServiceField {
        /// Service: `NAMESPACE/NAME`.
        service: String,
        /// Field and its new value.
        field: ServiceField,
    },
    /// Makes a pod ready, so that services send traffic to the pod.
    MakePodReady {
        /// Pod: `NAMESPACE/NAME`.
        pod: String,
    },
    /// Sets labels of a pod, so that a service selects it.
    LabelPod {
        /// Pod: `NAMESPACE/NAME`.
        pod: String,
        /// Labels to set.
        labels: BTreeMap<String, String>,
    },
    /// Lets a container of a pod listen on another port.
    ContainerPort {
        /// Pod: `NAMESPACE/NAME`.
        pod: String,
        /// Current port.
        port: u16,
        /// New port.
        wanted: u16,
    },
    /// Lets flannel masquerade packets to other networks.
    FlannelMasquerade,
    /// Sets the network of flannel to the pod networks.
    FlannelNetwork {
        /// Network in CIDR notation.
        #[schemars(with = "String")]
        network: Ipv4Network,
    },
    /// Adds a route to the router between nodes.
    AddFabricRoute {
        /// Destination network.
        #[schemars(with = "String")]
        to: IpNetwork,
        /// Node that receives the packets.
        via: String,
    },
    /// Runs kube-proxy on all nodes, with default settings.
    RunKubeProxy {
        /// Networks in the format of `--cluster-cidr`. Absent if the pod networks are unknown.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        networks: Option<String>,
    },
    /// Sets the cluster CIDR of kube-proxy to the pod networks.
    ClusterCidr {
        /// Networks in the format of `--cluster-cidr`.
        networks: String,
    },
    /// Starts kube-proxy with `--masquerade-all`.
    MasqueradeAll,
    /// Starts kube-proxy without `--masquerade-all`.
    MasqueradeFew,
    /// Starts kube-proxy with `--conntrack-tcp-be-liberal`.
    BeLiberal,
    /// Starts kube-proxy with `--nodeport-addresses=0.0.0.0/0,::/0`. The default of the nftables mode
    /// is the primary addresses of a node.
    AllNodePortAddresses,
    /// Starts kube-proxy with `--iptables-localhost-nodeports`, the default.
    LocalhostNodePorts,
    /// Starts kube-proxy with `--ipvs-strict-arp`.
    StrictArp,
    /// Lets the underlay forward packets whose source is not an address of the sending node.
    AllowForeignSources,
    /// Does not run one of the manual commands on a node. Only for commands whose changes the state of
    /// a node does not contain: others can be undone object by object.
    UndoManualCommand {
        /// Command with its node.
        #[schemars(with = "serde_json::Value")]
        command: Box<NodeCommand>,
    },
    /// Undoes the manual changes on a node.
    UndoManualChanges {
        /// Node name.
        node: String,
    },
    /// Restarts kube-proxy on a dumped node, so that its rules are generated again.
    RestartProxy {
        /// Node name.
        node: String,
    },
    /// Lets a load balancer forward from its own address.
    UseOwnSource {
        /// Load balancer name.
        balancer: String,
    },
    /// Lets a load balancer keep the source of the client.
    KeepSource {
        /// Load balancer name.
        balancer: String,
    },
    /// Stops a load balancer from forwarding a packet to the backend that sent it.
    SkipOwnSource {
        /// Load balancer name.
        balancer: String,
    },
    /// Adds a health check of the backends to a load balancer.
    AddHealthCheck {
        /// Load balancer name.
        balancer: String,
    },
    /// Lets a load balancer forward to the node ports of its backends.
    ForwardToNodePorts {
        /// Load balancer name.
        balancer: String,
    },
    /// Lets a load balancer forward to pods.
    ForwardToPods {
        /// Load balancer name.
        balancer: String,
    },
    /// Removes the security group of a load balancer.
    RemoveSecurityGroup {
        /// Load balancer name.
        balancer: String,
    },
    /// Adds a node to the backends of a load balancer.
    AddBackend {
        /// Load balancer name.
        balancer: String,
        /// Node name.
        node: String,
    },
    /// Removes a node from the backends of a load balancer.
    RemoveBackend {
        /// Load balancer name.
        balancer: String,
        /// Node name.
        node: String,
    },
    /// Sets sysctls.
    SetSysctl {
        /// Names of nodes, pods and external hosts.
        namespaces: Vec<String>,
        /// Sysctls: `net.ipv4.conf.all.rp_filter`.
        keys: Vec<String>,
        /// New value.
        value: String,
    },
    /// Deletes an iptables rule.
    DeleteRule {
        /// Node, pod or external host.
        namespace: String,
        /// iptables variant of the rule: legacy or nft.
        #[schemars(with = "String")]
        backend: Backend,
        /// Whether the rule is for IPv6 (`ip6tables`).
        v6: bool,
        /// Table name.
        table: String,
        /// Chain name.
        chain: String,
        /// Number of the rule in the chain, from 1.
        number: u32,
        /// Text of the rule, from its first match on.
        rule: String,
    },
    /// Deletes an entry of an ipset.
    DeleteSetEntry {
        /// Node, pod or external host.
        namespace: String,
        /// Set name.
        set: String,
        /// Entry in the format of `ipset`.
        entry: String,
    },
    /// Deletes an nftables rule.
    DeleteNftRule {
        /// Node, pod or external host.
        namespace: String,
        /// Table with its family: `ip kube-proxy`.
        table: String,
        /// Chain name.
        chain: String,
        /// Number of the rule in the chain, from 1.
        number: u32,
        /// Text of the rule.
        rule: String,
    },
    /// Removes a network from `nonMasqueradeCIDRs` of ip-masq-agent.
    MasqueradeNetwork {
        /// Network in CIDR notation.
        #[schemars(with = "String")]
        network: Ipv4Network,
    },
    /// Adds a network to `nonMasqueradeCIDRs` of ip-masq-agent.
    NonMasqueradeNetwork {
        /// Network in CIDR notation.
        #[schemars(with = "String")]
        network: Ipv4Network,
    },
    /// Deletes a queueing discipline of an interface. In place of the root, the kernel sets its
    /// default. `clsact` and `ingress` have only filters.
    DeleteQueue {
        /// Node, pod or external host.
        namespace: String,
        /// Interface name.
        link: String,
        /// Place of the discipline as `tc` names it: `root`, `clsact` or `ingress`.
        parent: String,
    },
    /// Turns VLAN filtering of a bridge off. Labs have no VLANs of bridge ports.
    DisableVlanFiltering {
        /// Node, pod or external host.
        namespace: String,
        /// Name of the bridge.
        bridge: String,
    },
    /// Deletes the conntrack entries of connections to an address.
    DeleteConnections {
        /// Node, pod or external host.
        namespace: String,
        /// Protocol of the connections.
        #[schemars(with = "String")]
        protocol: Protocol,
        /// Address and port before translation.
        destination: SocketAddr,
    },
    /// Deletes a route.
    DeleteRoute {
        /// Node, pod or external host.
        namespace: String,
        /// Route to delete.
        #[schemars(with = "serde_json::Value")]
        route: Box<Route>,
    },
    /// Adds a route.
    AddRoute {
        /// Node, pod or external host.
        namespace: String,
        /// Route to add.
        #[schemars(with = "serde_json::Value")]
        route: Box<Route>,
    },
    /// Deletes a routing rule (`ip rule`), which selects the routing table.
    DeleteRoutingRule {
        /// Node, pod or external host.
        namespace: String,
        /// Rule to delete.
        #[schemars(with = "serde_json::Value")]
        rule: Box<RoutingRule>,
    },
    /// Deletes an element of an nftables set or map.
    DeleteNftElement {
        /// Node, pod or external host.
        namespace: String,
        /// Table with its family: `ip kube-proxy`.
        table: String,
        /// Set or map name.
        set: String,
        /// Key of the element.
        key: String,
    },
    /// Sets the policy of a built-in chain of iptables or of a base chain of nftables to accept.
    AcceptPolicy {
        /// Node, pod or external host.
        namespace: String,
        /// iptables variant of the chain: legacy or nft.
        #[schemars(with = "String")]
        backend: Backend,
        /// Whether the chain is for IPv6 (`ip6tables`).
        v6: bool,
        /// Table name. A table of nftables has its family: `inet fw`.
        table: String,
        /// Chain name.
        chain: String,
    },
    /// Sets an interface up.
    SetLinkUp {
        /// Node, pod or external host.
        namespace: String,
        /// Interface name.
        link: String,
    },
    /// Sets the MTU of an interface.
    SetMtu {
        /// Node, pod or external host.
        namespace: String,
        /// Interface name.
        link: String,
        /// MTU in bytes.
        mtu: u32,
    },
    /// Changes a setting of a bridge port.
    SetPort {
        /// Node, pod or external host.
        namespace: String,
        /// Name of the port.
        link: String,
        /// Name of the setting in iproute2: `hairpin`, `isolated`, `learning`, `flood` or `locked`.
        setting: String,
        /// Value of the setting.
        on: bool,
    },
    /// Sets a static neighbour entry.
    SetNeighbour {
        /// Node, pod or external host.
        namespace: String,
        /// Neighbour entry.
        #[schemars(with = "serde_json::Value")]
        neighbour: Box<Neighbour>,
    },
    /// Sets a forwarding entry of a VXLAN device.
    SetForwarding {
        /// Node, pod or external host.
        namespace: String,
        /// Forwarding entry.
        #[schemars(with = "serde_json::Value")]
        entry: Box<Forwarding>,
    },
    /// Deletes a forwarding entry of a bridge.
    DeleteForwarding {
        /// Node, pod or external host.
        namespace: String,
        /// Forwarding entry.
        #[schemars(with = "serde_json::Value")]
        entry: Box<Forwarding>,
    },
    /// Deletes an address of an interface.
    DeleteAddress {
        /// Node, pod or external host.
        namespace: String,
        /// Interface name.
        link: String,
        /// Address with its prefix length.
        #[schemars(with = "String")]
        address: IpNetwork,
    },
    /// Sets the weight of all real servers of an IPVS virtual server to 1.
    EnableRealServers {
        /// Node, pod or external host.
        namespace: String,
        /// Address and port of the virtual server.
        server: SocketAddr,
    },
    /// Restores objects that differ from what the components of the lab write. Objects that depend
    /// on each other are restored together.
    Restore {
        /// Differences: `good` as the components write the object, and `bad` as it is.
        differences: Vec<Difference>,
    },
}

/// Origin of the state that a change modifies.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "camelCase")]
pub enum Origin {
    /// Configured by an operator, or not written by any component: a flag, a field, a sysctl or a
    /// custom rule. The change persists.
    Configured,
    /// Generated by a component, such as a rule or set entry of kube-proxy. The change shows where
    /// a connection is decided, but the component restores the original.
    Generated,
}

impl ProposedChange {
    /// Whether kube-proxy generates its rules on node `on` again because of the change.
    #[must_use]
    pub fn restarts(&self, on: &str) -> bool {
        match self {
            Self::ClusterPolicy { .. }
            | Self::LocalPolicy { .. }
            | Self::ServiceField { .. }
            | Self::MakePodReady { .. }
            | Self::LabelPod { .. }
            | Self::ContainerPort { .. }
            | Self::RunKubeProxy { .. }
            | Self::ClusterCidr { .. }
            | Self::MasqueradeAll
            | Self::MasqueradeFew
            | Self::BeLiberal
            | Self::AllNodePortAddresses
            | Self::LocalhostNodePorts
            | Self::StrictArp => true,
            Self::RestartProxy { node } => node == on,
            _ => false,
        }
    }

    /// Whether flanneld writes its rules again because of the change.
    #[must_use]
    pub const fn restarts_flanneld(&self) -> bool {
        matches!(self, Self::FlannelMasquerade | Self::FlannelNetwork { .. })
    }

    /// Whether the change concerns the state of a node, and not the lab or the configuration of a
    /// component. Such a change is made by commands on the node.
    #[must_use]
    pub const fn is_on_node(&self) -> bool {
        matches!(
            self,
            Self::SetSysctl { .. }
                | Self::DeleteRule { .. }
                | Self::DeleteSetEntry { .. }
                | Self::DeleteNftRule { .. }
                | Self::DeleteRoute { .. }
                | Self::DeleteQueue { .. }
                | Self::DisableVlanFiltering { .. }
                | Self::DeleteConnections { .. }
                | Self::AddRoute { .. }
                | Self::DeleteRoutingRule { .. }
                | Self::DeleteNftElement { .. }
                | Self::AcceptPolicy { .. }
                | Self::SetLinkUp { .. }
                | Self::SetMtu { .. }
                | Self::SetPort { .. }
                | Self::DeleteForwarding { .. }
                | Self::SetNeighbour { .. }
                | Self::SetForwarding { .. }
                | Self::DeleteAddress { .. }
                | Self::EnableRealServers { .. }
                | Self::UndoManualCommand { .. }
                | Self::Restore { .. }
        )
    }

    /// Whether commands on a node make the change. The end of a manual command has none, because its
    /// effect is unknown.
    pub(super) const fn is_made_by_commands(&self) -> bool {
        self.is_on_node() && !matches!(self, Self::UndoManualCommand { .. })
    }

    /// Returns the position of a rule to delete. Rules of one chain are deleted from the end,
    /// because a deletion moves the rules after it.
    pub(super) const fn deleted_position(&self) -> Option<u32> {
        match self {
            Self::DeleteRule { number, .. } | Self::DeleteNftRule { number, .. } => Some(*number),
            _ => None,
        }
    }

    /// Whether the change rewrites a whole set of rules, of which only few may matter.
    #[must_use]
    pub const fn rewrites_rules(&self) -> bool {
        matches!(
            self,
            Self::RestartProxy { .. } | Self::UndoManualChanges { .. }
        )
    }
}
