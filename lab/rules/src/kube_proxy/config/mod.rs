//! Defines the kube-proxy configuration of a lab file, with the field names of
//! `KubeProxyConfiguration`.

pub(super) mod file;
pub(super) mod flags;
mod timeout;

use std::net::IpAddr;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use ipnetwork::IpNetwork;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};
pub use svclab_model::plan::Mode;
use thiserror::Error;
pub use timeout::{Timeout, TimeoutError};

use super::history::DUAL_STACK;
use super::version::Version;
use svclab_ruleset::Family;

/// kube-proxy of one node.
///
/// Names and defaults are those of `KubeProxyConfiguration` (flattened). The fields `version`,
/// `bindLoadBalancerIPs`, `randomFully`, `accounting`, `binary`, `timeout` and `args` are
/// additions: they describe the program and the node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each bool is an independent option of kube-proxy"
)]
pub struct KubeProxy {
    /// Version of kube-proxy: `v1.18`, or `v1.18.2`.
    pub version: Version,
    /// Backend that kube-proxy writes rules with.
    #[serde(default)]
    pub mode: Mode,
    /// Pod addresses: `10.244.0.0/16`, or one network per IP family,
    /// `10.244.0.0/16,fd00:10:244::/56`. Without it, kube-proxy cannot distinguish pods from other
    /// sources.
    #[serde(
        default,
        rename = "clusterCIDR",
        skip_serializing_if = "Option::is_none"
    )]
    pub cluster_cidr: Option<Cidrs>,
    /// Method by which kube-proxy detects traffic from local pods.
    #[serde(default)]
    pub detect_local_mode: DetectLocalMode,
    /// Bridge of the pods, for `detectLocalMode: BridgeInterface`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bridge_interface: Option<String>,
    /// Name prefix of the pods' interfaces, for `detectLocalMode: InterfaceNamePrefix`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interface_name_prefix: Option<String>,
    /// Whether to masquerade all traffic to cluster IPs. In nftables mode this is the setting of
    /// the configuration file: up to v1.30 that mode ignores the flag.
    #[serde(default)]
    pub masquerade_all: bool,
    /// Bit of the packet mark that requests masquerading, 0 to 31.
    #[serde(
        default = "default_masquerade_bit",
        deserialize_with = "deserialize_masquerade_bit"
    )]
    #[schemars(range(min = 0, max = 31))]
    pub masquerade_bit: u8,
    /// Whether load balancer addresses are bound to `kube-ipvs0` (ipvs mode). TKE's kube-proxy does
    /// not bind them.
    #[serde(default = "yes", rename = "bindLoadBalancerIPs")]
    pub bind_load_balancer_ips: bool,
    /// Addresses of the node that serve node ports: networks, or `primary`. Empty means all
    /// addresses; in nftables mode, from v1.30 on, `primary`.
    #[serde(default)]
    pub node_port_addresses: Vec<NodePortAddress>,
    /// Scheduler of virtual servers (ipvs mode). Empty means `rr`.
    #[serde(default)]
    pub ipvs_scheduler: String,
    /// IPVS timeout of an idle TCP connection, as `15m` (ipvs mode, from v1.18). Default: the
    /// kernel's own.
    #[serde(default, skip_serializing_if = "Timeout::is_zero")]
    pub tcp_timeout: Timeout,
    /// IPVS timeout of a TCP connection after a FIN, as `2m` (ipvs mode, from v1.18). Default: the
    /// kernel's own.
    #[serde(default, skip_serializing_if = "Timeout::is_zero")]
    pub tcp_fin_timeout: Timeout,
    /// IPVS timeout of an idle UDP flow, as `5m` (ipvs mode, from v1.18). Default: the kernel's
    /// own.
    #[serde(default, skip_serializing_if = "Timeout::is_zero")]
    pub udp_timeout: Timeout,
    /// Whether an interface answers ARP only for its own addresses (ipvs mode).
    #[serde(default, rename = "strictARP")]
    pub strict_arp: bool,
    /// Whether node ports answer on 127.0.0.0/8 (iptables mode, from v1.26).
    #[serde(default = "yes")]
    pub localhost_node_ports: bool,
    /// `conntrack.tcpBeLiberal`: whether to keep packets in conntrack state INVALID (from v1.29).
    #[serde(default)]
    pub tcp_be_liberal: bool,
    /// Whether the node's iptables supports `--random-fully` (1.6.2 and newer do).
    #[serde(default = "yes")]
    pub random_fully: bool,
    /// Whether the node's kernel has nfacct, whose counters kube-proxy uses from v1.31 on.
    #[serde(default = "yes")]
    pub accounting: bool,
    /// Path of a kube-proxy program, relative to the lab file. The program runs on the node in
    /// place of generated rules; its flags follow from this configuration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub binary: Option<PathBuf>,
    /// Maximum time in which the program must write its rules, at the start and after each step, as
    /// `5m`. Default: 2 minutes.
    #[serde(
        default,
        with = "sync_timeout",
        skip_serializing_if = "Option::is_none"
    )]
    #[schemars(with = "String")]
    pub timeout: Option<Duration>,
    /// Further flags of the program, after the generated ones.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub args: Vec<String>,
}

/// Method by which kube-proxy detects traffic from local pods.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize, JsonSchema)]
pub enum DetectLocalMode {
    /// Source address in the cluster CIDR.
    #[default]
    ClusterCIDR,
    /// Source address in the node's pod CIDR.
    NodeCIDR,
    /// Input interface is the pods' bridge.
    BridgeInterface,
    /// Input interface has the configured name prefix.
    InterfaceNamePrefix,
}

/// At most one network of each IP family, separated by a comma.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Cidrs(Vec<IpNetwork>);

/// Error of parsing a network or a list of networks.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ConfigError {
    /// Text is not a network.
    #[error("`{0}` is not a network: write it as 10.244.0.0/16")]
    Network(String),
    /// Two networks have the same IP family.
    #[error("`{0}` has more than one network of the same IP family")]
    Family(String),
}

impl Cidrs {
    /// Returns the network of `family`, or `None` if there is none.
    #[must_use]
    pub fn for_family(&self, family: Family) -> Option<IpNetwork> {
        self.0
            .iter()
            .copied()
            .find(|cidr| Family::from_ip(cidr.ip()) == family)
    }
}

impl FromStr for Cidrs {
    type Err = ConfigError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let cidrs: Vec<IpNetwork> = text
            .split(',')
            .map(|part| parse_network(part.trim()))
            .collect::<Result<_, _>>()?;
        for family in [Family::V4, Family::V6] {
            let same = cidrs.iter().filter(|c| Family::from_ip(c.ip()) == family);
            if same.count() > 1 {
                return Err(ConfigError::Family(text.to_owned()));
            }
        }
        Ok(Self(cidrs))
    }
}

impl TryFrom<String> for Cidrs {
    type Error = ConfigError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<Cidrs> for String {
    fn from(cidrs: Cidrs) -> Self {
        let texts: Vec<String> = cidrs.0.iter().map(ToString::to_string).collect();
        texts.join(",")
    }
}

impl JsonSchema for Cidrs {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "ClusterCIDR".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string",
            "description": "Network, or one network per IP family, separated by a comma.",
            "examples": ["10.244.0.0/16", "10.244.0.0/16,fd00:10:244::/56"]
        })
    }
}

/// Addresses of the node that serve node ports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum NodePortAddress {
    /// Primary address of the node in each IP family (from v1.31, as the only entry).
    Primary,
    /// Addresses in a network.
    Network(IpNetwork),
}

impl NodePortAddress {
    /// Whether the entry covers the node's address `ip`. `primary` is the node's primary address.
    #[must_use]
    pub fn covers(self, ip: IpAddr, primary: Option<IpAddr>) -> bool {
        match self {
            Self::Primary => primary == Some(ip),
            Self::Network(network) => network.contains(ip),
        }
    }
}

impl TryFrom<String> for NodePortAddress {
    type Error = ConfigError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        if text == "primary" {
            Ok(Self::Primary)
        } else {
            parse_network(&text).map(Self::Network)
        }
    }
}

impl From<NodePortAddress> for String {
    fn from(address: NodePortAddress) -> Self {
        match address {
            NodePortAddress::Primary => "primary".to_owned(),
            NodePortAddress::Network(network) => network.to_string(),
        }
    }
}

impl JsonSchema for NodePortAddress {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "NodePortAddress".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string",
            "description": "Network, or `primary` for the node's primary address.",
            "examples": ["192.168.50.0/24", "primary"]
        })
    }
}

/// Parses a network. The prefix length is mandatory, as in kube-proxy.
fn parse_network(text: &str) -> Result<IpNetwork, ConfigError> {
    let bad = || ConfigError::Network(text.to_owned());
    if !text.contains('/') {
        return Err(bad());
    }
    text.parse().map_err(|_| bad())
}

/// Parses the maximum time in which a kube-proxy must write its rules: 1 s to 1 h.
///
/// # Errors
///
/// Returns a message if the text is not a time in this range.
pub fn sync_timeout(text: &str) -> Result<Duration, String> {
    let time = humantime::parse_duration(text).ok();
    time.filter(|time| (Duration::from_secs(1)..=Duration::from_hours(1)).contains(time))
        .ok_or_else(|| format!("`{text}` is not a time from 1s to 1h: write it as 90s or 5m"))
}

mod sync_timeout {
    use std::time::Duration;

    use serde::{Deserialize, Deserializer, Serializer, de::Error as _};

    #[expect(clippy::ref_option, reason = "serde passes a reference to the field")]
    pub(crate) fn serialize<S: Serializer>(
        time: &Option<Duration>,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        let time = time.unwrap_or_default();
        to.collect_str(&humantime::format_duration(time))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Option<Duration>, D::Error> {
        let text = String::deserialize(from)?;
        super::sync_timeout(&text)
            .map(Some)
            .map_err(D::Error::custom)
    }
}

fn yes() -> bool {
    true
}

fn default_masquerade_bit() -> u8 {
    14
}

/// Deserializes the number of a bit of a packet mark, 0 to 31.
fn deserialize_masquerade_bit<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u8, D::Error> {
    let bit = u8::deserialize(deserializer)?;
    if bit < 32 {
        Ok(bit)
    } else {
        Err(D::Error::custom(format!(
            "bit {bit} of the packet mark does not exist: use a bit from 0 to 31"
        )))
    }
}

impl KubeProxy {
    /// Creates the configuration of a kube-proxy that runs without any flag.
    #[must_use]
    pub fn new(version: Version) -> Self {
        Self {
            version,
            mode: Mode::default(),
            cluster_cidr: None,
            detect_local_mode: DetectLocalMode::default(),
            bridge_interface: None,
            interface_name_prefix: None,
            masquerade_all: false,
            masquerade_bit: default_masquerade_bit(),
            bind_load_balancer_ips: true,
            node_port_addresses: Vec::new(),
            ipvs_scheduler: String::new(),
            tcp_timeout: Timeout::default(),
            tcp_fin_timeout: Timeout::default(),
            udp_timeout: Timeout::default(),
            strict_arp: false,
            localhost_node_ports: true,
            tcp_be_liberal: false,
            random_fully: true,
            accounting: true,
            binary: None,
            timeout: None,
            args: Vec::new(),
        }
    }

    /// Returns the first minor version that accepts cluster CIDRs of both IP families, if there are
    /// two and this version does not accept them. Older ones do with a feature gate (Kubernetes
    /// v1.20.8, `pkg/proxy/apis/config/validation/validation.go`).
    #[must_use]
    pub fn lacks_dual_stack(&self) -> Option<u8> {
        let cidrs = self.cluster_cidr.as_ref()?;
        let mut families = [Family::V4, Family::V6].into_iter();
        let has_both = families.all(|family| cidrs.for_family(family).is_some());
        let mut args = self.args.iter();
        let is_gated = args.any(|argument| argument.contains("IPv6DualStack=true"));
        let is_refused = has_both && !is_gated && !self.version.has(&DUAL_STACK);
        DUAL_STACK.first_minor().filter(|_| is_refused)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse_config(json: &str) -> Result<KubeProxy, serde_json::Error> {
        serde_json::from_str(json)
    }

    #[test]
    fn kube_proxy_only_version_has_defaults() {
        let config = parse_config(r#"{"version": "v1.20"}"#).unwrap();
        assert_eq!(config, KubeProxy::new("v1.20".parse().unwrap()));
    }

    #[test]
    fn kube_proxy_json_uses_upstream_field_names() {
        let read = parse_config(
            r#"{"version": "v1.18.2", "mode": "ipvs", "clusterCIDR": "10.244.0.0/16,fd00::/56",
                "masqueradeAll": true, "masqueradeBit": 15, "bindLoadBalancerIPs": false,
                "nodePortAddresses": ["192.168.50.0/24", "primary"], "ipvsScheduler": "wrr",
                "tcpTimeout": "15m", "timeout": "5m", "strictARP": true, "localhostNodePorts": false, "randomFully": false}"#,
        )
        .unwrap();
        assert_eq!(read.mode, Mode::Ipvs);
        let cidrs = read.cluster_cidr.as_ref().unwrap();
        assert_eq!(
            cidrs.for_family(Family::V6).unwrap().to_string(),
            "fd00::/56"
        );
        assert_eq!(read.tcp_timeout.seconds(), 900);
        assert_eq!(read.timeout, Some(Duration::from_mins(5)));
        assert!(read.strict_arp && !read.bind_load_balancer_ips);
        let back: KubeProxy = serde_json::from_str(&serde_json::to_string(&read).unwrap()).unwrap();
        assert_eq!(back, read);
    }

    #[test]
    fn kube_proxy_invalid_json_returns_error() {
        for wrong in [
            r#"{"version": "v1.20", "clusterCidr": "10.0.0.0/8"}"#,
            r#"{"version": "v1.20", "clusterCIDR": "10.0.0.0"}"#,
            r#"{"version": "v1.20", "clusterCIDR": "10.0.0.0/8,11.0.0.0/8"}"#,
            r#"{"version": "v1.99"}"#,
            r#"{"version": "v1.20", "timeout": "0s"}"#,
            r#"{"version": "v1.20", "timeout": "2h"}"#,
            r#"{"version": "v1.20", "timeout": "soon"}"#,
            r#"{"mode": "ipvs"}"#,
        ] {
            parse_config(wrong).unwrap_err();
        }
    }

    #[test]
    fn kube_proxy_schema_has_upstream_field_names() {
        let schema = schemars::schema_for!(KubeProxy);
        let text = serde_json::to_string(&schema).unwrap();
        assert!(text.contains("clusterCIDR") && text.contains("strictARP"));
    }
}
