//! Who answers and what is tried.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use svclab_ruleset::ipvs::Transport;

/// A server in a namespace, on every address it has.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Server {
    /// The namespace it listens in.
    pub namespace: String,
    /// Who it says it is: the pod's or host's name as a user writes it.
    pub name: String,
    /// Only on this address; on all of them when absent. Two host-network pods
    /// may not share a port, so this is rarely needed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<IpAddr>,
    /// TCP or UDP.
    pub protocol: Protocol,
    /// The port.
    pub port: u16,
    /// What it does with who comes.
    pub kind: ServerKind,
}

/// What a server does with who comes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ServerKind {
    /// Answers with its name and the peer's address as it saw it.
    Answers,
    /// Listens and never accepts, as kube-proxy did on node ports up to 1.23 to
    /// keep others away from them.
    Holds,
    /// Answers HTTP as kube-proxy does on a service's `healthCheckNodePort`.
    Health {
        /// `NAMESPACE/NAME`.
        service: String,
        /// How many endpoints of the service are on the node.
        local_endpoints: usize,
    },
    /// Connects to one of these for each who comes, in turn, and to the next
    /// when one does not answer: a balancer on layer 7.
    Forwards {
        /// Where it connects to.
        backends: Vec<SocketAddr>,
        /// How long it waits before it tries the next.
        retry_after: Duration,
    },
}

/// What a probe speaks.
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
pub enum Protocol {
    /// Connects, asks who is there, reads the answer.
    #[default]
    Tcp,
    /// Sends one datagram, waits for one.
    Udp,
    /// An ICMP echo request.
    Ping,
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Tcp => "tcp",
            Self::Udp => "udp",
            Self::Ping => "ping",
        })
    }
}

impl TryFrom<Protocol> for Transport {
    type Error = Protocol;

    fn try_from(protocol: Protocol) -> Result<Self, Protocol> {
        match protocol {
            Protocol::Tcp => Ok(Self::Tcp),
            Protocol::Udp => Ok(Self::Udp),
            Protocol::Ping => Err(protocol),
        }
    }
}

/// How long probes wait that say nothing of it themselves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Patience {
    /// At most so long.
    pub longest: Duration,
    /// And no longer than it takes to prove that nothing can come any more.
    pub settle: bool,
}

impl Patience {
    /// Two retransmissions of a TCP segment, unless it is proven before that nothing
    /// can come.
    pub const SETTLED: Self = Self {
        longest: Duration::from_secs(3),
        settle: true,
    };

    /// So long and no shorter.
    #[must_use]
    pub const fn of(longest: Duration) -> Self {
        Self {
            longest,
            settle: false,
        }
    }
}

impl From<Duration> for Patience {
    fn from(longest: Duration) -> Self {
        Self::of(longest)
    }
}

/// `settled`, or how long.
impl fmt::Display for Patience {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.settle {
            return f.write_str("settled");
        }
        let longest = humantime::format_duration(self.longest).to_string();
        f.write_str(&longest.replace(' ', ""))
    }
}

/// How many connections a probe opens.
pub type Count = u32;

/// One exchange to try, possibly several times.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Probe {
    /// As the lab names it.
    pub name: String,
    /// The namespace it starts in.
    pub from: String,
    /// Where it goes.
    pub to: Target,
    /// What it speaks.
    pub protocol: Protocol,
    /// How often; all are begun in order, without waiting for each other.
    pub connections: Count,
    /// The source address it insists on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bind: Option<IpAddr>,
    /// How long an answer is waited for.
    pub patience: Duration,
    /// Whether a timeout is told as soon as what was seen proves it. In a case with
    /// such a probe the agent watches everything, whatever the plan says of it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub settle: bool,
    /// Begun only when this probe is over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
}

/// Where a probe goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Target {
    /// The address.
    pub address: IpAddr,
    /// The port; 0 for a ping.
    pub port: u16,
}

impl Target {
    /// As a socket address.
    #[must_use]
    pub const fn socket(self) -> SocketAddr {
        SocketAddr::new(self.address, self.port)
    }
}
