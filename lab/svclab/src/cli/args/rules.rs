//! What kube-proxy writes: `rules`.

use std::path::PathBuf;

use clap::Args;

use super::PlaceArguments;
use svclab_model::plan::Backend;
use svclab_rules::kube_proxy::{
    Cidrs, ConfigError, DetectLocalMode, Mode, NodePortAddress, Version,
};

/// Of kube-proxy, arguments are called as its own flags are.
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a switch of kube-proxy's, of its surroundings or of the printing"
)]
#[derive(Debug, Args)]
#[command(arg_required_else_help = true)]
pub struct RulesArguments {
    /// The cluster's objects, YAML or JSON, as `kubectl get -o yaml` prints them:
    /// nodes, services, endpoint slices, or pods that services select, service CIDRs
    #[arg(value_name = "FILE", required_unless_present = "about")]
    pub files: Vec<PathBuf>,
    /// Say how well a version is known, what came with it and what went
    #[arg(long, value_name = "VERSION", exclusive = true)]
    pub about: Option<Version>,
    /// Its version, v1.9 to v1.36
    #[arg(long, value_name = "VERSION", required_unless_present = "about")]
    pub kube_version: Option<Version>,
    /// The node it runs on; without it, the only one there is
    #[arg(long, value_name = "NAME")]
    pub node: Option<String>,
    /// What it writes rules with: `iptables`, `ipvs` or, from v1.29 on, `nftables`
    #[arg(long, value_name = "MODE", default_value = "iptables", value_parser = mode)]
    pub proxy_mode: Mode,
    /// The pods' addresses, one network of each IP family
    #[arg(long, value_name = "CIDR")]
    pub cluster_cidr: Option<Cidrs>,
    /// Masquerade all traffic to cluster IPs; nftables mode heeds it from v1.31 on
    #[arg(long)]
    pub masquerade_all: bool,
    /// The bit of the packet mark that asks for masquerading; nftables mode does not
    /// heed it
    #[arg(long, value_name = "BIT", default_value_t = 14, value_parser = clap::value_parser!(u8).range(0..=31))]
    pub iptables_masquerade_bit: u8,
    /// How it tells traffic of the cluster's own pods: `ClusterCIDR`, from v1.18 on
    /// `NodeCIDR`, from v1.24 on `BridgeInterface` and `InterfaceNamePrefix`
    #[arg(long, value_name = "MODE", default_value = "ClusterCIDR", value_parser = detect_local_mode)]
    pub detect_local_mode: DetectLocalMode,
    /// The pods' bridge, for `BridgeInterface`
    #[arg(long, value_name = "NAME")]
    pub pod_bridge_interface: Option<String>,
    /// How pods' interfaces are called, for `InterfaceNamePrefix`
    #[arg(long, value_name = "PREFIX")]
    pub pod_interface_name_prefix: Option<String>,
    /// The node's addresses that serve node ports: networks, or `primary`
    #[arg(long, value_name = "CIDR", value_delimiter = ',', value_parser = node_port_address)]
    pub nodeport_addresses: Vec<NodePortAddress>,
    /// Whether node ports answer on 127.0.0.0/8
    #[arg(long, value_name = "BOOL", default_value_t = true, action = clap::ArgAction::Set)]
    pub iptables_localhost_nodeports: bool,
    /// Keep packets that conntrack calls invalid
    #[arg(long)]
    pub conntrack_tcp_be_liberal: bool,
    /// The scheduler of virtual servers
    #[arg(long, value_name = "NAME", default_value = "")]
    pub ipvs_scheduler: String,
    /// Answer ARP only for addresses of the interface asked
    #[arg(long)]
    pub ipvs_strict_arp: bool,
    /// The node's iptables does not know --random-fully
    #[arg(long)]
    pub no_random_fully: bool,
    /// The node's kernel has no nfacct
    #[arg(long)]
    pub no_nfacct: bool,
    /// Load it all in a namespace of a kernel's, read it back, and write what was
    /// read to files there: iptables-save, ip6tables-save, ipset-save, nft,
    /// ipvsadm-Sn, ip-addr
    #[arg(long, value_name = "DIR")]
    pub loaded: Option<PathBuf>,
    /// Which iptables loads it
    #[arg(long, value_name = "WHICH", default_value = "nft", value_parser = backend)]
    pub iptables: Backend,
    #[command(flatten)]
    pub place: PlaceArguments,
    /// Name what kube-proxy passes by, and what is no object of its
    #[arg(short, long)]
    pub verbose: bool,
}

/// A mode that can be written.
pub(super) fn mode(text: &str) -> Result<Mode, String> {
    match text {
        "iptables" => Ok(Mode::Iptables),
        "ipvs" => Ok(Mode::Ipvs),
        "nftables" => Ok(Mode::Nftables),
        _ => Err("there are iptables, ipvs and, from v1.29 on, nftables".to_owned()),
    }
}

fn detect_local_mode(text: &str) -> Result<DetectLocalMode, String> {
    match text {
        "ClusterCIDR" => Ok(DetectLocalMode::ClusterCIDR),
        "NodeCIDR" => Ok(DetectLocalMode::NodeCIDR),
        "BridgeInterface" => Ok(DetectLocalMode::BridgeInterface),
        "InterfaceNamePrefix" => Ok(DetectLocalMode::InterfaceNamePrefix),
        _ => Err(
            "there are ClusterCIDR, NodeCIDR, BridgeInterface and InterfaceNamePrefix".to_owned(),
        ),
    }
}

fn node_port_address(text: &str) -> Result<NodePortAddress, ConfigError> {
    text.to_owned().try_into()
}

fn backend(text: &str) -> Result<Backend, String> {
    match text {
        "nft" => Ok(Backend::Nft),
        "legacy" => Ok(Backend::Legacy),
        _ => Err("there are nft and legacy".to_owned()),
    }
}
