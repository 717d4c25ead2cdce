//! Arguments of `rules`.

use std::path::PathBuf;

use clap::Args;

use super::KernelArguments;
use svclab_model::plan::Backend;
use svclab_rules::kube_proxy::{
    Cidrs, ConfigError, DetectLocalMode, Mode, NodePortAddress, Version,
};

/// Arguments of `svclab rules`. Arguments for kube-proxy have the names of its flags.
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is an independent flag of kube-proxy, its environment or the output"
)]
#[derive(Debug, Args)]
#[command(arg_required_else_help = true)]
pub(crate) struct RulesArguments {
    /// Objects of the cluster, YAML or JSON in the format of `kubectl get -o yaml`: nodes,
    /// services, service CIDRs, endpoint slices. Pods that services select may replace endpoint
    /// slices
    #[arg(value_name = "FILE", required_unless_present = "history")]
    pub(crate) files: Vec<PathBuf>,
    /// Print how a version's rules are verified, and what changed in that version
    #[arg(long, alias = "about", value_name = "VERSION", exclusive = true)]
    pub(crate) history: Option<Version>,
    #[arg(
        long,
        value_name = "VERSION",
        required_unless_present = "history",
        help = format!("Version of kube-proxy, {} to {}", Version::OLDEST, Version::NEWEST)
    )]
    pub(crate) kube_version: Option<Version>,
    /// Name of the node; default: the only node in the files
    #[arg(long, value_name = "NAME")]
    pub(crate) node: Option<String>,
    /// Proxy mode: `iptables`, `ipvs` or, from v1.29, `nftables`
    #[arg(long, value_name = "MODE", default_value = "iptables", value_parser = parse_mode)]
    pub(crate) proxy_mode: Mode,
    /// Addresses of the pods: one network of each address family
    #[arg(long, value_name = "CIDR")]
    pub(crate) cluster_cidr: Option<Cidrs>,
    /// Masquerade all traffic to cluster IPs; has an effect in nftables mode from v1.31
    #[arg(long)]
    pub(crate) masquerade_all: bool,
    /// Bit of the packet mark that requests masquerading; has no effect in nftables mode
    #[arg(long, value_name = "BIT", default_value_t = 14, value_parser = clap::value_parser!(u8).range(0..=31))]
    pub(crate) iptables_masquerade_bit: u8,
    /// Detection of traffic from the cluster's own pods: `ClusterCIDR`, from v1.18 `NodeCIDR`, from
    /// v1.24 `BridgeInterface` and `InterfaceNamePrefix`
    #[arg(long, value_name = "MODE", default_value = "ClusterCIDR", value_parser = parse_detect_local_mode)]
    pub(crate) detect_local_mode: DetectLocalMode,
    /// Bridge of the pods, for `BridgeInterface`
    #[arg(long, value_name = "NAME")]
    pub(crate) pod_bridge_interface: Option<String>,
    /// Name prefix of the pods' interfaces, for `InterfaceNamePrefix`
    #[arg(long, value_name = "PREFIX")]
    pub(crate) pod_interface_name_prefix: Option<String>,
    /// Node addresses that serve node ports: networks, or `primary`
    #[arg(long, value_name = "CIDR", value_delimiter = ',', value_parser = parse_node_port_address)]
    pub(crate) nodeport_addresses: Vec<NodePortAddress>,
    /// Whether node ports answer on 127.0.0.0/8
    #[arg(long, value_name = "BOOL", default_value_t = true, action = clap::ArgAction::Set)]
    pub(crate) iptables_localhost_nodeports: bool,
    /// Keep packets that conntrack classifies as invalid
    #[arg(long)]
    pub(crate) conntrack_tcp_be_liberal: bool,
    /// IPVS scheduler of the virtual servers
    #[arg(long, value_name = "NAME", default_value = "")]
    pub(crate) ipvs_scheduler: String,
    /// Answer ARP requests only for addresses of the receiving interface
    #[arg(long)]
    pub(crate) ipvs_strict_arp: bool,
    /// Assume that iptables on the node does not support --random-fully
    #[arg(long)]
    pub(crate) no_random_fully: bool,
    /// Assume that the node's kernel does not support nfacct
    #[arg(long)]
    pub(crate) no_nfacct: bool,
    /// Load the rules into a namespace and write what the kernel returns to this directory:
    /// iptables-save, ip6tables-save, ipset-save, nft, ipvsadm-Sn, ip-addr
    #[arg(long, alias = "loaded", value_name = "DIR")]
    pub(crate) read_back: Option<PathBuf>,
    /// iptables variant that loads the rules: `nft` or `legacy`
    #[arg(long, value_name = "WHICH", default_value = "nft", value_parser = parse_backend)]
    pub(crate) iptables: Backend,
    #[command(flatten)]
    pub(crate) kernels: KernelArguments,
    /// Also print the objects that kube-proxy ignores
    #[arg(short, long)]
    pub(crate) verbose: bool,
}

/// Parses a proxy mode that svclab supports.
pub(super) fn parse_mode(text: &str) -> Result<Mode, String> {
    match text {
        "iptables" => Ok(Mode::Iptables),
        "ipvs" => Ok(Mode::Ipvs),
        "nftables" => Ok(Mode::Nftables),
        _ => Err("expected iptables, ipvs or, from v1.29, nftables".to_owned()),
    }
}

fn parse_detect_local_mode(text: &str) -> Result<DetectLocalMode, String> {
    match text {
        "ClusterCIDR" => Ok(DetectLocalMode::ClusterCIDR),
        "NodeCIDR" => Ok(DetectLocalMode::NodeCIDR),
        "BridgeInterface" => Ok(DetectLocalMode::BridgeInterface),
        "InterfaceNamePrefix" => Ok(DetectLocalMode::InterfaceNamePrefix),
        _ => {
            Err("expected ClusterCIDR, NodeCIDR, BridgeInterface or InterfaceNamePrefix".to_owned())
        }
    }
}

fn parse_node_port_address(text: &str) -> Result<NodePortAddress, ConfigError> {
    text.to_owned().try_into()
}

fn parse_backend(text: &str) -> Result<Backend, String> {
    match text {
        "nft" => Ok(Backend::Nft),
        "legacy" => Ok(Backend::Legacy),
        _ => Err("expected nft or legacy".to_owned()),
    }
}
