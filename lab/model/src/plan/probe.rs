//! Defines the servers and the probes of a plan.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::num::{NonZeroU16, NonZeroU32};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use svclab_ruleset::Protocol;

/// Server in a namespace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Server {
    /// Namespace that the server listens in.
    pub namespace: String,
    /// Name in the server's replies: the name of the pod or external host in the lab.
    pub name: String,
    /// Address to listen on. `None` listens on all addresses. Host-network pods on one node cannot
    /// share a port, so this field is rarely set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<IpAddr>,
    /// TCP or UDP.
    pub protocol: ProbeProtocol,
    /// Port to listen on.
    pub port: u16,
    /// Behaviour of the server.
    pub kind: ServerKind,
}

impl Server {
    /// Whether the server is a layer 7 load balancer with this address.
    #[must_use]
    pub fn is_layer7_at(&self, address: SocketAddr) -> bool {
        matches!(self.kind, ServerKind::L7Proxy { .. })
            && self.port == address.port()
            && self.address.is_none_or(|own| own == address.ip())
    }
}

/// Behaviour of a server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum ServerKind {
    /// Replies with its name and the peer address that it sees.
    Identify,
    /// Listens but never accepts. kube-proxy up to 1.23 did this on node ports, so that no other
    /// program could use them.
    ListenOnly,
    /// Replies over HTTP as kube-proxy does on a service's `healthCheckNodePort`.
    Health {
        /// Service as `NAMESPACE/NAME`.
        service: String,
        /// Number of endpoints of the service on the node.
        local_endpoints: usize,
    },
    /// Connects to a backend for each client, in turn, and to the next backend if one does not
    /// answer. This is a layer 7 load balancer.
    L7Proxy {
        /// Addresses of the backends.
        backends: Vec<SocketAddr>,
        /// Time to wait for a backend before trying the next.
        retry_after: Duration,
    },
}

/// Protocol of a probe.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Default,
    Serialize,
    Deserialize,
    schemars::JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum ProbeProtocol {
    /// Connects over TCP, asks for the server name and reads the reply.
    #[default]
    Tcp,
    /// Sends one UDP datagram and waits for one reply.
    Udp,
    /// Sends an ICMP echo request.
    Ping,
}

impl fmt::Display for ProbeProtocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Tcp => "tcp",
            Self::Udp => "udp",
            Self::Ping => "ping",
        })
    }
}

impl TryFrom<ProbeProtocol> for Protocol {
    type Error = ProbeProtocol;

    fn try_from(protocol: ProbeProtocol) -> Result<Self, ProbeProtocol> {
        match protocol {
            ProbeProtocol::Tcp => Ok(Self::Tcp),
            ProbeProtocol::Udp => Ok(Self::Udp),
            ProbeProtocol::Ping => Err(protocol),
        }
    }
}

/// Default maximum time that probes wait for a reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MaxWait {
    /// Maximum time to wait.
    pub limit: Duration,
    /// Whether to stop earlier, once the evidence proves that no answer can arrive.
    pub settle: bool,
}

impl MaxWait {
    /// Waits for the first retransmissions of a TCP segment, and less if the evidence proves that no
    /// answer can arrive.
    ///
    /// The time lies between the time after which the kernel reports a neighbour that does not answer,
    /// 3 s (Linux v6.12, `net/ipv4/arp.c`, `arp_tbl`: 3 requests, 1 s apart), and the SYN that follows
    /// at 4 s or later. At 3 s exactly, the load of the machine would decide which comes first.
    pub const SETTLED: Self = Self {
        limit: Duration::from_millis(3500),
        settle: true,
    };

    /// Creates a maximum time without early end.
    #[must_use]
    pub const fn fixed(limit: Duration) -> Self {
        Self {
            limit,
            settle: false,
        }
    }
}

impl From<Duration> for MaxWait {
    fn from(limit: Duration) -> Self {
        Self::fixed(limit)
    }
}

/// Formats the value as `settled` or as a duration.
impl fmt::Display for MaxWait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.settle {
            return f.write_str("settled");
        }
        let longest = humantime::format_duration(self.limit).to_string();
        f.write_str(&longest.replace(' ', ""))
    }
}

/// Maximum number of payload bytes of a request over TCP. svclab does not measure throughput.
pub const MAX_STREAM_BYTES: u32 = 1 << 20;

/// Maximum number of payload bytes of a datagram or an echo request: of IPv4, without the headers
/// of 20 and 8 bytes.
pub const MAX_DATAGRAM_BYTES: u32 = 65_507;

/// Number of connections of a probe.
pub type Count = u32;

/// Exchange to try, one or more times.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Probe {
    /// Probe name from the lab.
    pub name: String,
    /// Namespace of the source.
    pub namespace: String,
    /// Destination of the probe.
    pub target: Target,
    /// Protocol of the probe.
    pub protocol: ProbeProtocol,
    /// Number of connections. The agent starts them in order, without waiting for the previous one.
    pub connections: Count,
    /// Maximum number of connections that run at the same time; `None` for all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub concurrency: Option<NonZeroU32>,
    /// Source address to bind to. `None` leaves the choice to the kernel.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bind: Option<IpAddr>,
    /// Source port of the first connection; the next connections have the next ports. `None` leaves
    /// the choice to the kernel.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source_port: Option<NonZeroU16>,
    /// Minimum number of payload bytes of each request and of each answer. `None` for requests and
    /// answers that are as short as possible.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<NonZeroU32>,
    /// Number of datagrams, or echo requests, that each socket sends one right after the other.
    #[serde(default = "one_datagram", skip_serializing_if = "is_one_datagram")]
    pub datagrams: NonZeroU32,
    /// Maximum time to wait for an answer.
    pub max_wait: Duration,
    /// Whether a timeout is reported as soon as the evidence proves it. If a case has such a probe,
    /// the agent records all evidence, independent of the plan.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub settle: bool,
    /// Probe that must end before this probe starts. `None` starts the probe at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
    /// Stages in which the connections of the probe are open.
    #[serde(default, skip_serializing_if = "Lifetime::is_stage")]
    pub lifetime: Lifetime,
}

/// Stages in which the connections of a probe are open.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Lifetime {
    /// This stage only.
    #[default]
    Stage,
    /// From the end of this stage, after its other probes, until the next stage.
    Opened,
    /// From the previous stage. The probe runs another exchange on each connection, after the new
    /// probes of this stage.
    Reused,
}

impl Lifetime {
    /// Whether the connections end in the stage in which they start. Used as a serde predicate.
    #[must_use]
    pub fn is_stage(&self) -> bool {
        *self == Self::Stage
    }
}

const fn one_datagram() -> NonZeroU32 {
    NonZeroU32::MIN
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde passes a reference"
)]
const fn is_one_datagram(number: &NonZeroU32) -> bool {
    number.get() == 1
}

impl Probe {
    /// Returns the source port of a connection; `None` if the kernel chooses it.
    #[must_use]
    pub fn source_port_of(&self, connection: u32) -> Option<u16> {
        let first = self.source_port?.get();
        let offset = u16::try_from(connection).unwrap_or(u16::MAX);
        Some(first.saturating_add(offset))
    }
}

/// Destination of a probe.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Target {
    /// Destination IP address.
    pub address: IpAddr,
    /// Destination port, 0 for ping.
    pub port: u16,
}

impl Target {
    /// Returns the address and port as a socket address.
    #[must_use]
    pub const fn socket(self) -> SocketAddr {
        SocketAddr::new(self.address, self.port)
    }
}
