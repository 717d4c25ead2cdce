//! Defines a real kube-proxy that runs on a node.

use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Backend;

/// Address of the API server that a node's kube-proxy connects to. The address is on the node
/// itself, so that API traffic uses no network.
pub const API_ADDRESS: SocketAddr =
    SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 16443);

/// Proxy mode of kube-proxy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// Chains of iptables.
    #[default]
    Iptables,
    /// Virtual servers of IPVS, with ipsets and some iptables rules.
    Ipvs,
    /// Nftables tables, one for each IP family (from v1.29).
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

/// Name of the table that kube-proxy writes in nftables mode, in the families `ip` and `ip6`
/// (kubernetes v1.31.0, `pkg/proxy/nftables/proxier.go`, `kubeProxyTable`).
pub const NFTABLES_TABLE: &str = "kube-proxy";

/// Real kube-proxy that runs in a node's namespace instead of generated rules.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RealProxy {
    /// Namespace of the node.
    pub namespace: String,
    /// Path of the program on the host.
    pub program: String,
    /// Arguments of the program, without its name.
    pub arguments: Vec<String>,
    /// Content of the configuration file, for settings that have no flag. `None` if flags suffice.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config: Option<String>,
    /// Proxy mode.
    pub mode: Mode,
    /// Backend of the `iptables` programs that kube-proxy finds.
    pub backend: Backend,
    /// Minimum number of objects kube-proxy must receive before its rules count as complete.
    pub sync_target: SyncTarget,
    /// Timeout for writing the rules.
    pub sync_timeout: Duration,
}

/// Number of objects that a kube-proxy receives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SyncTarget {
    /// Number of services.
    pub services: u64,
    /// Number of endpoint slices, or of `Endpoints` objects.
    pub endpoints: u64,
}
