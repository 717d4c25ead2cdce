//! Where packets went: each followed across interfaces and namespaces, through NAT,
//! tunnels and IPVS, with the rules that it met, to its end.

mod flight;
mod follow;
mod hop;
mod native;
mod rules;
mod settings;
mod sighting;
mod visit;

use std::net::{IpAddr, SocketAddr};

use serde::{Deserialize, Serialize};

pub use flight::Kind;
pub use follow::{came_by, journeys};

use svclab_model::evidence::{self, Flow};
use svclab_model::plan::Backend;

/// One connection of a probe and all packets that belong to it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Journey {
    /// The probe, by name.
    pub probe: String,
    /// Which of its connections, from 0.
    pub number: u32,
    /// What became of it.
    pub verdict: evidence::Verdict,
    /// What the system said when it would not call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// From where to where it called, as its own socket has it; none if it never had
    /// an address.
    pub called: Option<Flow>,
    /// The namespace it called from.
    pub from: String,
    /// Its packets, each with its way, in the order in which they set out.
    pub flights: Vec<Flight>,
}

/// A packet's way from where it set out to its end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Flight {
    /// What it is.
    pub kind: Kind,
    /// When it set out, in nanoseconds since the epoch.
    pub time: u64,
    /// Which it repeats, counted in the journey's flights from 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub repeats: Option<usize>,
    /// Whether it goes the way of the call, not of its answers.
    pub outward: bool,
    /// Namespace by namespace.
    pub hops: Vec<Hop>,
    /// How it ended.
    pub end: End,
    /// Of an ICMP error, its code, which says what cannot be reached (RFC 792, RFC 4443).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<u8>,
    /// Why the kernel dropped it, in its own word, though it answered it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// What one namespace did with a packet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Hop {
    /// The namespace.
    pub namespace: String,
    /// The interfaces it was seen on, in order: those it came in by, then those it
    /// left by.
    pub seen: Vec<Seen>,
    /// Its addresses as it came, or as it set out.
    pub before: Flow,
    /// Its addresses as it left, or as it ended.
    pub after: Flow,
    /// What rewrote it, if it was rewritten.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rewritten: Option<Rewritten>,
    /// The rules it met, in order.
    pub met: Vec<Step>,
}

/// A packet on an interface.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Seen {
    /// The interface.
    pub interface: String,
    /// Whether it left by it.
    pub out: bool,
    /// Whether it was wrapped by a tunnel there.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub wrapped: bool,
    /// Which packet of [`svclab_model::evidence::Evidence::packets`] that is.
    pub packet: usize,
}

/// What rewrote a packet's addresses.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum Rewritten {
    /// These rules, by their places in [`Hop::met`].
    ByRules(Vec<usize>),
    /// IPVS, and perhaps rules besides.
    ByIpvs {
        /// What it was sent to.
        server: SocketAddr,
        /// The real server that was chosen.
        real: SocketAddr,
        /// The rules that rewrote its source.
        rules: Vec<usize>,
    },
    /// The kernel remembers the connection, which a packet before this one began.
    AsRemembered,
    /// It is not known.
    Unknown,
}

/// A rule that a packet met.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Step {
    /// Which of the kernel's two filters it is of.
    pub by: Backend,
    /// The table, led by its family if it is one that no iptables knows: `inet fw`, `ip
    /// kube-proxy`.
    pub table: String,
    /// The chain.
    pub chain: String,
    /// The rule's number in its chain, from 1; none at the chain's end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub number: Option<u32>,
    /// The rule's own text from its first match on; none where the rules were not
    /// read or have changed since.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
    /// Its target: `RETURN`; of a chain's end, `return` or `policy`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
    /// The entries of sets and maps by which it matched: `KUBE-CLUSTER-IP
    /// 10.96.0.1,tcp:443`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub entries: Vec<String>,
    /// The service and its port that it is for, `ns1/nginx:http`, in kube-proxy's own
    /// table of nftables. Rules of iptables say it in their comments.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service: Option<String>,
    /// The packet's addresses at that moment.
    pub flow: Flow,
    /// Its mark at that moment.
    pub mark: u32,
    /// Whether it ended the packet.
    pub dropped: bool,
}

/// How a packet ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum End {
    /// In a socket.
    Delivered,
    /// The kernel there answered it with an error or a reset, of these flights.
    Answered(Vec<usize>),
    /// A rule dropped it: the last of its last hop.
    ByRule,
    /// The kernel dropped it and says why.
    Dropped {
        /// The kernel's word: `IP_RPFILTER`.
        reason: String,
        /// The kernel's function.
        place: Option<String>,
        /// The settings that decide on it, as they were.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        settings: Vec<Setting>,
    },
    /// The kernel does not say what it did with it, but it counted so many of this
    /// kind in that namespace while so many packets were lost there.
    Counted {
        /// The counter: `TcpExtIPReversePathFilter`.
        counter: String,
        /// By how much it grew.
        by: u64,
        /// How many packets were lost there.
        lost: u64,
        /// The settings that decide on it, as they were.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        settings: Vec<Setting>,
    },
    /// It left by an interface from which nobody got it.
    Gone,
    /// When watching ended, it waited there for this neighbour, its destination or the
    /// gateway to it, to say its hardware address.
    Waiting(IpAddr),
    /// It came there, and what became of it is not known.
    Unknown,
}

/// A setting of a namespace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Setting {
    /// `net.ipv4.conf.eth0.rp_filter`.
    pub name: String,
    /// Its value.
    pub value: String,
}

/// The socket address of a frame's end.
fn socket(address: IpAddr, port: Option<u16>) -> SocketAddr {
    SocketAddr::new(address, port.unwrap_or(0))
}
