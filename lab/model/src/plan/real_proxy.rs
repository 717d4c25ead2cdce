//! A real kube-proxy on a node.

use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Backend;

/// Where the API server is that a node's kube-proxy talks to: on the node itself, so
/// that nothing of it is on any network.
pub const API: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 16443);

/// What kube-proxy writes rules with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// Chains of iptables.
    #[default]
    Iptables,
    /// Virtual servers of IPVS, with ipsets and some iptables.
    Ipvs,
    /// A table of nftables for each IP family (from v1.29).
    Nftables,
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Iptables => "iptables",
            Self::Ipvs => "ipvs",
            Self::Nftables => "nftables",
        })
    }
}

/// The table that kube-proxy writes in nftables mode, in the families `ip` and `ip6`
/// (kubernetes v1.31.0, `pkg/proxy/nftables/proxier.go`, `kubeProxyTable`).
pub const NFTABLES_TABLE: &str = "kube-proxy";

/// A kube-proxy that runs in a node's namespace in place of generated rules.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RealProxy {
    /// The node's namespace.
    pub namespace: String,
    /// The program, by its path in this machine.
    pub program: String,
    /// What it is told.
    pub arguments: Vec<String>,
    /// Its configuration file, where flags do not say everything.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config: Option<String>,
    /// What it writes rules with.
    pub mode: Mode,
    /// Which iptables it finds by that name.
    pub backend: Backend,
    /// How many of the objects it hears of at least before it has written all rules.
    pub hears: Heard,
    /// After which time it is taken not to come to write rules any more.
    pub within: Duration,
}

/// How many objects a kube-proxy hears of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Heard {
    /// Services.
    pub services: u64,
    /// Endpoint slices, or `Endpoints`.
    pub endpoints: u64,
}
