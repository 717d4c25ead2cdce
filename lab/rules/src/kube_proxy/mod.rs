//! What kube-proxy writes on a node, by version.
//!
//! [`KubeProxy`] is what a user says about it, [`Objects`] what it sees of the
//! cluster, [`rules`] what it then writes. [`version`] is its history.

use std::net::IpAddr;

use ipnetwork::IpNetwork;
use k8s_openapi::api::core::v1 as core;
use k8s_openapi::api::discovery::v1 as discovery;
use k8s_openapi::api::networking::v1 as networking;
use thiserror::Error;

pub mod change;
pub mod config;
mod config_file;
pub mod conntrack;
pub mod endpoints;
pub mod family;
mod flags;
pub mod history;
mod iptables;
pub mod ipvs;
pub mod known;
pub mod nftables;
pub mod node_ports;
pub mod services;
pub mod topology;
pub mod version;

pub use config::{
    Cidrs, ConfigError, DetectLocalMode, KubeProxy, Mode, NodePortAddress, sync_timeout,
};
pub use config_file::{config_file, is_needed as needs_config_file};
pub use family::Family;
pub use flags::flags;
pub use iptables::chains;
pub use ipvs::IpvsRules;
pub use version::{Version, VersionError};

use endpoints::EndpointMap;
use svclab_ruleset::ipset::IpsetError;
use svclab_ruleset::iptables::script::Script;
use svclab_ruleset::nft;
use topology::Place;

/// What kube-proxy sees of a cluster, and of the node it runs on.
#[derive(Debug, Clone, Copy)]
pub struct Objects<'a> {
    /// The name of the node it runs on.
    pub node: &'a str,
    /// The cluster's nodes; only the one called `node` is looked at.
    pub nodes: &'a [core::Node],
    /// The cluster's services.
    pub services: &'a [core::Service],
    /// The cluster's endpoint slices. Versions that watched `Endpoints` read
    /// from these what the endpoints controller would have written.
    pub endpoint_slices: &'a [discovery::EndpointSlice],
    /// The networks that cluster IPs are taken from, for nftables mode from v1.33 on.
    pub service_cidrs: &'a [networking::ServiceCIDR],
    /// The addresses of all the node's interfaces, for `nodePortAddresses`.
    /// Without it (empty) those of the `Node` object and the loopback ones
    /// stand in.
    pub interface_addresses: &'a [IpAddr],
}

/// What one kube-proxy writes in one IP family.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Rules {
    /// What it hands to `iptables-restore` or `ip6tables-restore`.
    ///
    /// Up to v1.24 it may lead packets to nat `KUBE-MARK-DROP`, whose rule is
    /// the kubelet's; up to v1.19 it also leaves it to the kubelet to make that
    /// chain.
    pub script: Script,
    /// The names of the nfacct objects that must exist before the script is
    /// loaded.
    pub accounting: Vec<&'static str>,
}

/// Why no rules can be written.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum KubeProxyError {
    /// A field of a service that the API server would not have accepted.
    #[error("service {service}: {field} `{value}` is not valid")]
    Service {
        /// `namespace/name`.
        service: String,
        /// The field.
        field: &'static str,
        /// What it says.
        value: String,
    },
    /// A field of an endpoint slice that the API server would not have accepted.
    #[error("endpoint slice {slice}: {field} `{value}` is not valid")]
    EndpointSlice {
        /// `namespace/name`.
        slice: String,
        /// The field.
        field: &'static str,
        /// What it says.
        value: String,
    },
    /// No node of that name.
    #[error("there is no Node `{0}` for kube-proxy to run on")]
    NoSuchNode(String),
    /// A network of a node that is none.
    #[error("node {node}: podCIDR `{value}` is not a network")]
    PodCidr {
        /// The node's name.
        node: String,
        /// What it says.
        value: String,
    },
    /// A way to tell local traffic that lacks its parameter.
    #[error("kube-proxy: detectLocalMode {mode:?} needs {field}")]
    DetectLocal {
        /// The way.
        mode: DetectLocalMode,
        /// The parameter.
        field: &'static str,
    },
    /// A way to tell local traffic that the version does not know.
    #[error("kube-proxy {version}: detectLocalMode {mode:?} is not known before v1.{since}")]
    DetectLocalUnknown {
        /// The version.
        version: Version,
        /// The way.
        mode: DetectLocalMode,
        /// The first minor version that knows it.
        since: u8,
    },
    /// Another mode than the one that was asked for.
    #[error("kube-proxy: these are not the rules of mode {0}")]
    Mode(Mode),
    /// A mode that the version does not have.
    #[error("kube-proxy {version}: mode {mode} is not known before v1.{since}")]
    ModeUnknown {
        /// The version.
        version: Version,
        /// The mode.
        mode: Mode,
        /// The first minor version that has it.
        since: u8,
    },
    /// A network of a `ServiceCIDR` that is none.
    #[error("service CIDR {name}: `{value}` is not a network")]
    ServiceCidr {
        /// The object's name.
        name: String,
        /// What it says.
        value: String,
    },
    /// Sets that cannot stand together.
    #[error("kube-proxy: {0}")]
    Sets(#[from] IpsetError),
}

/// What `proxy`, in its iptables mode, writes for `family` where it sees
/// `objects`.
///
/// # Errors
///
/// See [`KubeProxyError`].
pub fn rules(
    proxy: &KubeProxy,
    objects: &Objects<'_>,
    family: Family,
) -> Result<Rules, KubeProxyError> {
    if proxy.mode != Mode::Iptables {
        return Err(KubeProxyError::Mode(proxy.mode));
    }
    let node = Node::find(objects, family)?;
    let ports = services::service_ports(objects.services, proxy.version, family)?;
    let endpoints = EndpointMap::new(objects.endpoint_slices, objects.node, proxy.version, family)?;
    iptables::rules(proxy, &node, &ports, &endpoints, family)
}

/// What `proxy`, in its ipvs mode, leaves on the node for `family` where it sees
/// `objects`.
///
/// It is what one sync leaves on a node without anything of kube-proxy's; see
/// [`ipvs`].
///
/// # Errors
///
/// See [`KubeProxyError`].
pub fn ipvs_rules(
    proxy: &KubeProxy,
    objects: &Objects<'_>,
    family: Family,
) -> Result<IpvsRules, KubeProxyError> {
    if proxy.mode != Mode::Ipvs {
        return Err(KubeProxyError::Mode(proxy.mode));
    }
    let node = Node::find(objects, family)?;
    let ports = services::service_ports(objects.services, proxy.version, family)?;
    let endpoints = EndpointMap::new(objects.endpoint_slices, objects.node, proxy.version, family)?;
    ipvs::rules(proxy, &node, &ports, &endpoints, family)
}

/// What `proxy`, in its nftables mode, writes for `family` where it sees `objects`.
///
/// # Errors
///
/// See [`KubeProxyError`].
pub fn nftables_rules(
    proxy: &KubeProxy,
    objects: &Objects<'_>,
    family: Family,
) -> Result<nft::Table, KubeProxyError> {
    let version = proxy.version;
    if proxy.mode != Mode::Nftables {
        return Err(KubeProxyError::Mode(proxy.mode));
    }
    if let Some(since) = history::NFTABLES_MODE.came()
        && !version.has(&history::NFTABLES_MODE)
    {
        return Err(KubeProxyError::ModeUnknown {
            version,
            mode: proxy.mode,
            since,
        });
    }
    let node = Node::find(objects, family)?;
    let ports = services::service_ports(objects.services, version, family)?;
    let endpoints = EndpointMap::new(objects.endpoint_slices, objects.node, version, family)?;
    let cidrs = nftables::service_cidrs(objects.service_cidrs, version, family)?;
    nftables::rules(proxy, &node, &ports, &endpoints, &cidrs, family)
}

/// The IP families that `proxy` writes rules for: both from v1.21 on, before
/// that the one of its cluster CIDR, or else of the node's first address.
///
/// Before v1.21 it was the family of the address that kube-proxy was told to bind
/// (IPv4 unless told; the node's own from v1.20 on), which nothing here says; but a
/// cluster CIDR of another family was an error from v1.10 on.
/// (`cmd/kube-proxy/app/server_others.go` v1.9.0 to v1.20.8.)
#[must_use]
pub fn families(proxy: &KubeProxy, objects: &Objects<'_>) -> Vec<Family> {
    if proxy.version.has(&history::DUAL_STACK) {
        return vec![Family::V4, Family::V6];
    }
    let of_cidr = [Family::V4, Family::V6].into_iter().find(|family| {
        let cidrs = proxy.cluster_cidr.as_ref();
        cidrs.is_some_and(|cidrs| cidrs.of(*family).is_some())
    });
    let of_node = || {
        let node = objects
            .nodes
            .iter()
            .find(|node| named(node, objects.node))?;
        addresses(node).first().copied().map(Family::of)
    };
    vec![of_cidr.or_else(of_node).unwrap_or(Family::V4)]
}

/// The node kube-proxy runs on, in one IP family.
#[derive(Debug)]
struct Node<'a> {
    name: &'a str,
    object: &'a core::Node,
    /// Its address, by which kube-proxy tells whether a source range admits the
    /// node itself.
    ip: Option<IpAddr>,
    /// The addresses of its interfaces.
    interfaces: Vec<IpAddr>,
}

impl<'a> Node<'a> {
    fn find(objects: &Objects<'a>, family: Family) -> Result<Self, KubeProxyError> {
        let object = objects
            .nodes
            .iter()
            .find(|node| named(node, objects.node))
            .ok_or_else(|| KubeProxyError::NoSuchNode(objects.node.to_owned()))?;
        let own = addresses(object);
        let mut interfaces: Vec<IpAddr> = if objects.interface_addresses.is_empty() {
            let loopback = [
                IpAddr::V4(std::net::Ipv4Addr::LOCALHOST),
                IpAddr::V6(std::net::Ipv6Addr::LOCALHOST),
            ];
            loopback.into_iter().chain(own.iter().copied()).collect()
        } else {
            objects.interface_addresses.to_vec()
        };
        interfaces.retain(|ip| Family::of(*ip) == family);
        Ok(Self {
            name: objects.node,
            object,
            ip: own.into_iter().find(|ip| Family::of(*ip) == family),
            interfaces,
        })
    }

    /// Whether source ranges let the node itself in, by the address that
    /// kube-proxy thinks it has.
    fn is_admitted(&self, ranges: &[IpNetwork], version: Version, family: Family) -> bool {
        let node = if version.has(&history::BIND_ADDRESS_FOR_NODE) {
            Some(family.unspecified())
        } else {
            self.ip
        };
        node.is_some_and(|node| ranges.iter().any(|range| range.contains(node)))
    }

    fn place(&self) -> Place<'a> {
        let labels = self.object.metadata.labels.as_ref();
        Place {
            node: self.name,
            zone: labels
                .and_then(|labels| labels.get("topology.kubernetes.io/zone"))
                .map(String::as_str),
        }
    }
}

fn named(node: &core::Node, name: &str) -> bool {
    node.metadata.name.as_deref() == Some(name)
}

/// The addresses of a node, internal ones first, as `GetNodeHostIPs` of
/// kubernetes/kubernetes `pkg/util/node` prefers them.
fn addresses(node: &core::Node) -> Vec<IpAddr> {
    let listed = node
        .status
        .as_ref()
        .and_then(|status| status.addresses.as_deref())
        .unwrap_or(&[]);
    let of_type = |type_: &'static str| {
        listed
            .iter()
            .filter(move |address| address.type_ == type_)
            .filter_map(|address| address.address.parse().ok())
    };
    of_type("InternalIP").chain(of_type("ExternalIP")).collect()
}
