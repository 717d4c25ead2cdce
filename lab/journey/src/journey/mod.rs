//! Follows packets across interfaces and namespaces, through NAT, tunnels and IPVS, to their end.
//! Input: a plan and its evidence. Output: one [`Journey`] for each attempt, with the rules that
//! its packets matched.

mod connection_index;
mod ends;
mod follow;
mod followed;
mod grouped;
mod hop;
mod hop_matches;
mod nftables;
mod packet_index;
mod rules;
mod settings;
mod sighting;
#[cfg(test)]
mod tests;
mod track;

use std::net::{IpAddr, SocketAddr};

use serde::{Deserialize, Serialize};

pub use ends::unresolved_next_hop;
pub use follow::journeys;
pub use hop::ingress_interface;
pub use track::Kind;

use svclab_model::evidence::{self, AddressPair};
use svclab_model::plan::{Backend, Mac, NFTABLES_TABLE};

/// An attempt of a probe and all packets that belong to it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Journey {
    /// Name of the probe.
    pub probe: String,
    /// Number of the attempt, from 0.
    pub number: u32,
    /// Result of the attempt.
    pub verdict: evidence::Verdict,
    /// Error of the operating system if it rejected the connection before sending a packet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Progress of the exchange, for probes with a payload or several datagrams.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub progress: Option<evidence::Progress>,
    /// Addresses of the connection in the source's own socket; absent if the socket never had an
    /// address.
    pub addresses: Option<AddressPair>,
    /// Namespace of the source.
    pub from: String,
    /// Packets of the attempt, in the order in which they were sent.
    pub packets: Vec<PacketPath>,
}

impl AsRef<Self> for Journey {
    fn as_ref(&self) -> &Self {
        self
    }
}

/// Packet path: one packet from its sender to its end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PacketPath {
    /// Kind of the packet.
    pub kind: Kind,
    /// Time of sending, in nanoseconds since the Unix epoch. For a packet that no interface carried,
    /// the time at which the kernel dropped it; 0 if that is unknown.
    pub time: u64,
    /// Index, from 0, of the packet in this journey of which this packet is a retransmission.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retransmission_of: Option<usize>,
    /// Whether the packet travels in request direction; otherwise in reply direction.
    pub direction: bool,
    /// Hops of the packet, one for each namespace it passed, in order. Of a routing loop, only the
    /// last round is included.
    pub hops: Vec<Hop>,
    /// Routing loop of the packet; absent if there was none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub routing_loop: Option<RoutingLoop>,
    /// End of the packet.
    pub end: PathEnd,
    /// Code of an ICMP error, which states what is unreachable (RFC 792, RFC 4443).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<u8>,
    /// Drop reason of the kernel for a packet that the kernel also answered.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Headers at the last capture; absent if no interface carried the packet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub header: Option<PacketHeader>,
    /// Packet that carried this packet through a tunnel where this packet ended; absent if it did
    /// not end in a tunnel.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tunnel: Option<TunnelPacket>,
}

/// Outer packet of a tunnel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TunnelPacket {
    /// Addresses and ports of the outer packet.
    pub addresses: AddressPair,
    /// Headers of the outer packet.
    pub header: PacketHeader,
}

/// Namespaces that forward a packet to each other.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RoutingLoop {
    /// Names of the namespaces, in the order of one round.
    pub namespaces: Vec<String>,
    /// Number of rounds.
    pub rounds: u32,
}

/// Fields of the headers of a captured packet. Inside a tunnel, these are those of the inner packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PacketHeader {
    /// TTL or hop limit.
    pub ttl: u8,
    /// Length of the IP packet in bytes.
    pub length: u32,
    /// Whether routers must not fragment the packet.
    pub dont_fragment: bool,
    /// Destination hardware address; absent inside a tunnel.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub destination_mac: Option<Mac>,
}

/// Part of a packet path inside one namespace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Hop {
    /// Name of the namespace.
    pub namespace: String,
    /// Interfaces that the packet crossed, in order: first those that received it, then those that
    /// sent it.
    pub crossings: Vec<Crossing>,
    /// Addresses as received, or as sent if the packet was sent here.
    pub before: AddressPair,
    /// Addresses as sent on, or at the end of the packet.
    pub after: AddressPair,
    /// Addresses of the tunnel packet that carried the packet into the namespace or out of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tunnel: Option<AddressPair>,
    /// Cause of an address rewrite; absent if they were not rewritten.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rewritten: Option<Rewrite>,
    /// Rules that the packet matched, in order.
    pub matches: Vec<RuleMatch>,
}

/// Crossing of an interface by a packet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Crossing {
    /// Name of the interface.
    pub interface: String,
    /// Whether the packet was sent through the interface; otherwise it was received.
    pub out: bool,
    /// Whether the packet was encapsulated by a tunnel there.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub encapsulated: bool,
    /// Index of the packet in `packets` of the evidence.
    pub packet: usize,
}

/// Cause of an address rewrite.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum Rewrite {
    /// Rules, as indices into `matches` of the hop.
    ByRules(Vec<usize>),
    /// IPVS, possibly together with rules.
    ByIpvs {
        /// Address of the virtual server.
        server: SocketAddr,
        /// Address of the selected real server.
        real: SocketAddr,
        /// Rules that rewrote the source, as indices into `matches` of the hop.
        rules: Vec<usize>,
    },
    /// The conntrack entry of the connection, which an earlier packet created.
    Conntrack,
    /// The cause is unknown.
    Unknown,
}

/// Match of a rule by a packet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RuleMatch {
    /// Backend of the table: legacy iptables or `nf_tables`.
    pub backend: Backend,
    /// Name of the table. A table that iptables cannot print is prefixed with its family:
    /// `inet fw`, `ip kube-proxy`.
    pub table: String,
    /// Name of the chain.
    pub chain: String,
    /// Number of the rule in its chain, from 1; absent at the end of the chain.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub number: Option<u32>,
    /// Text of the rule from its first match on. Absent if the rules were not read back or have
    /// changed since.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
    /// Target of the rule, such as `RETURN`. At the end of a chain: `return` or `policy`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
    /// Entries of sets and maps that matched, such as `KUBE-CLUSTER-IP 10.96.0.1,tcp:443`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub entries: Vec<String>,
    /// Service port of the rule, such as `ns1/nginx:http`, for tables of kube-proxy in nftables
    /// mode. Rules of iptables have it in their comments.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service: Option<String>,
    /// Number of packets that the rule had matched at the end of the stage, by its counter. Absent
    /// if the rule has no counter.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub packets: Option<u64>,
    /// Addresses of the packet at the match.
    pub flow: AddressPair,
    /// Mark of the packet at the match.
    pub mark: u32,
    /// Whether the rule ended the packet.
    pub dropped: bool,
    /// Texts of the rules before it in its chain, if the rule ended the packet and there are only a
    /// few.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub earlier: Vec<String>,
}

impl RuleMatch {
    /// Whether the rule is in a chain of kube-proxy, or leads to one.
    #[must_use]
    pub fn is_of_kube_proxy(&self) -> bool {
        let native_table = self.table.split_once(' ').map(|(_, table)| table);
        self.chain.starts_with("KUBE-")
            || self
                .target
                .as_ref()
                .is_some_and(|target| target.starts_with("KUBE-"))
            || native_table == Some(NFTABLES_TABLE)
    }

    /// Whether the rule excludes the packet from connection tracking.
    #[must_use]
    pub fn is_untracking(&self) -> bool {
        let rule = self.rule.as_deref().unwrap_or_default();
        self.target.as_deref() == Some("NOTRACK")
            || rule.contains("-j CT --notrack")
            || rule.split(' ').any(|word| word == "notrack")
    }

    /// Whether the rule matches packets by an earlier mark.
    #[must_use]
    pub fn matches_mark(&self) -> bool {
        let rule = self.rule.as_deref().unwrap_or_default();
        rule.contains("--mark") || rule.starts_with("meta mark & ")
    }
}

/// End of a packet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum PathEnd {
    /// Delivered to a socket.
    Delivered,
    /// Rejected: the receiving kernel replied with an error or a reset. Lists the indices of these
    /// replies in the journey.
    Rejected(Vec<usize>),
    /// Dropped by a rule: the last rule match of the last hop.
    DroppedByRule,
    /// Dropped by the kernel, with a reported reason.
    Dropped {
        /// Reason as the kernel names it, such as `IP_RPFILTER`.
        reason: String,
        /// Kernel function that dropped the packet.
        function: Option<String>,
        /// Sysctls that control this drop, with their values at that time.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        settings: Vec<SysctlValue>,
    },
    /// Counted drop: the kernel reported no reason, but a counter of the namespace grew while
    /// packets were lost there.
    CountedDrop {
        /// Name of the counter, such as `TcpExtIPReversePathFilter`.
        counter: String,
        /// Increase of the counter.
        increase: u64,
        /// Number of packets lost in the namespace.
        lost: u64,
        /// Sysctls that control this drop, with their values at that time.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        settings: Vec<SysctlValue>,
    },
    /// Sent through an interface, but not received in any namespace.
    NotReceived,
    /// Still queued when recording ended: this neighbour, the destination or its gateway, had not
    /// resolved to a hardware address.
    Waiting(IpAddr),
    /// Received, but its end was not recorded.
    Unknown,
}

/// A sysctl of a namespace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SysctlValue {
    /// Name of the sysctl, such as `net.ipv4.conf.eth0.rp_filter`.
    pub name: String,
    /// Value of the sysctl.
    pub value: String,
}

/// Returns a socket address; port 0 if the frame has no ports.
fn socket_address(address: IpAddr, port: Option<u16>) -> SocketAddr {
    SocketAddr::new(address, port.unwrap_or(0))
}
