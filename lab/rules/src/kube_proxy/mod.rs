//! Computes the rules that kube-proxy writes on a node, by version.
//!
//! The input is [`KubeProxy`], the configuration from the lab, and [`Objects`], the cluster's
//! objects. The output is the rule set of one IP family: [`rules`], [`ipvs_rules`] or
//! [`nftables_rules`]. [`history`] lists the differences between versions.

use std::net::IpAddr;

use ipnetwork::IpNetwork;
use thiserror::Error;

mod config;
pub mod conntrack;
mod endpoints;
mod iptables;
pub mod ipvs;
pub mod nftables;
pub mod node_ports;
pub mod services;
mod topology;
mod version;

pub use config::file::{config_file, is_needed as needs_config_file};
pub use config::flags::{flags, reserved_flag, settings};
pub use config::{
    Cidrs, ConfigError, DetectLocalMode, KubeProxy, Mode, NodePortAddress, Timeout, TimeoutError,
    sync_timeout,
};
pub use iptables::chains;
pub use ipvs::IpvsRules;
pub use svclab_ruleset::Family;
pub use version::{Version, VersionError, change, history, provenance};

use crate::objects::{self, EndpointSlice, Service, ServiceCidr};
use endpoints::EndpointMap;
use svclab_ruleset::ipset::IpsetError;
use svclab_ruleset::iptables::script::IptablesScript;
use svclab_ruleset::nft;
use topology::NodeLocality;

/// Objects of a cluster that kube-proxy reads, and the node it runs on.
#[derive(Debug, Clone, Copy)]
pub struct Objects<'a> {
    /// Name of the node that kube-proxy runs on.
    pub node: &'a str,
    /// Nodes of the cluster; only the node named `node` is used.
    pub nodes: &'a [objects::Node],
    /// Services of the cluster.
    pub services: &'a [Service],
    /// Endpoint slices of the cluster. For versions that watch `Endpoints`, the objects that the
    /// endpoints controller would write are derived from these slices.
    pub endpoint_slices: &'a [EndpointSlice],
    /// Networks from which cluster IPs are allocated, for nftables mode from v1.33 on.
    pub service_cidrs: &'a [ServiceCidr],
    /// Addresses of all interfaces of the node, for `nodePortAddresses`. If empty, the addresses of
    /// the `Node` object and the loopback addresses are used.
    pub interface_addresses: &'a [IpAddr],
}

/// Rules of kube-proxy's iptables mode for one IP family.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Rules {
    /// Input of `iptables-restore` or `ip6tables-restore`.
    ///
    /// Up to v1.24, rules can jump to nat `KUBE-MARK-DROP`, whose rule the kubelet writes. Up to
    /// v1.19 the kubelet also creates that chain.
    pub script: IptablesScript,
    /// Names of the nfacct objects that must exist before the script is loaded.
    pub accounting: Vec<&'static str>,
}

/// Error of computing the rules.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum KubeProxyError {
    /// Field of a service has a value that the API server rejects.
    #[error("service {service}: {field} `{value}` is not valid")]
    Service {
        /// Service, as `namespace/name`.
        service: String,
        /// Name of the field.
        field: &'static str,
        /// Invalid value.
        value: String,
    },
    /// Field of an endpoint slice has a value that the API server rejects.
    #[error("endpoint slice {slice}: {field} `{value}` is not valid")]
    EndpointSlice {
        /// Endpoint slice, as `namespace/name`.
        slice: String,
        /// Name of the field.
        field: &'static str,
        /// Invalid value.
        value: String,
    },
    /// No node has the name [`Objects::node`].
    #[error("cannot compute the rules of kube-proxy: Node `{0}` does not exist")]
    NoSuchNode(String),
    /// Pod CIDR of a node is not a network.
    #[error("node {node}: podCIDR `{value}` is not a network")]
    PodCidr {
        /// Node name.
        node: String,
        /// Invalid value.
        value: String,
    },
    /// `detectLocalMode` needs a parameter that is not set.
    #[error("kube-proxy: detectLocalMode {mode:?} requires {field}")]
    MissingDetectLocalField {
        /// Configured `detectLocalMode`.
        mode: DetectLocalMode,
        /// Name of the missing parameter.
        field: &'static str,
    },
    /// `detectLocalMode` has a value that the version does not support.
    #[error("kube-proxy {version}: detectLocalMode {mode:?} is not supported before v1.{since}")]
    UnsupportedDetectLocalMode {
        /// Version of kube-proxy.
        version: Version,
        /// Configured `detectLocalMode`.
        mode: DetectLocalMode,
        /// First minor version that supports the value.
        since: u8,
    },
    /// Configuration has another mode than the called function computes.
    #[error("kube-proxy: the called function does not compute rules of mode {0}")]
    WrongMode(Mode),
    /// Version does not have the configured mode.
    #[error("kube-proxy {version}: mode {mode} is not supported before v1.{since}")]
    UnsupportedMode {
        /// Version of kube-proxy.
        version: Version,
        /// Configured mode.
        mode: Mode,
        /// First minor version that has the mode.
        since: u8,
    },
    /// Entry of a `ServiceCIDR` object is not a network.
    #[error("service CIDR {name}: `{value}` is not a network")]
    ServiceCidr {
        /// Name of the object.
        name: String,
        /// Invalid value.
        value: String,
    },
    /// Sets of ipvs mode conflict or are invalid.
    #[error("kube-proxy: {0}")]
    Sets(#[from] IpsetError),
}

/// Computes the rules that `proxy` writes in iptables mode for `family` and `objects`.
///
/// # Errors
///
/// Returns a [`KubeProxyError`] if the mode is not iptables, or if the configuration or an object
/// is invalid.
pub fn rules(
    proxy: &KubeProxy,
    objects: &Objects<'_>,
    family: Family,
) -> Result<Rules, KubeProxyError> {
    if proxy.mode != Mode::Iptables {
        return Err(KubeProxyError::WrongMode(proxy.mode));
    }
    let node = Node::find(objects, family)?;
    let ports = services::service_ports(objects.services, proxy.version, family)?;
    let endpoints = EndpointMap::new(objects, &ports, proxy.version, family)?;
    iptables::rules(proxy, &node, &ports, &endpoints, family)
}

/// Computes the rules that `proxy` writes in ipvs mode for `family` and `objects`.
///
/// The result is the state after one sync on a node without earlier state of kube-proxy; see
/// [`ipvs`].
///
/// # Errors
///
/// Returns a [`KubeProxyError`] if the mode is not ipvs, or if the configuration or an object is
/// invalid.
pub fn ipvs_rules(
    proxy: &KubeProxy,
    objects: &Objects<'_>,
    family: Family,
) -> Result<IpvsRules, KubeProxyError> {
    if proxy.mode != Mode::Ipvs {
        return Err(KubeProxyError::WrongMode(proxy.mode));
    }
    let node = Node::find(objects, family)?;
    let ports = services::service_ports(objects.services, proxy.version, family)?;
    let endpoints = EndpointMap::new(objects, &ports, proxy.version, family)?;
    ipvs::rules(proxy, &node, &ports, &endpoints, family)
}

/// Computes the table that `proxy` writes in nftables mode for `family` and `objects`.
///
/// # Errors
///
/// Returns a [`KubeProxyError`] if the mode is not nftables or the version does not have it, or if
/// the configuration or an object is invalid.
pub fn nftables_rules(
    proxy: &KubeProxy,
    objects: &Objects<'_>,
    family: Family,
) -> Result<nft::Table, KubeProxyError> {
    let version = proxy.version;
    if proxy.mode != Mode::Nftables {
        return Err(KubeProxyError::WrongMode(proxy.mode));
    }
    if let Some(since) = history::NFTABLES_MODE.first_minor()
        && !version.has(&history::NFTABLES_MODE)
    {
        return Err(KubeProxyError::UnsupportedMode {
            version,
            mode: proxy.mode,
            since,
        });
    }
    let node = Node::find(objects, family)?;
    let ports = services::service_ports(objects.services, version, family)?;
    let endpoints = EndpointMap::new(objects, &ports, version, family)?;
    let cidrs = nftables::service_cidrs(objects.service_cidrs, version, family)?;
    nftables::rules(proxy, &node, &ports, &endpoints, &cidrs, family)
}

/// Returns the IP families for which `proxy` writes rules: both from v1.21 on. Before v1.21 it is
/// the family of the cluster CIDR or, without one, of the node's first address.
///
/// Before v1.21, kube-proxy used the family of its bind address. That is IPv4 by default, and the
/// node's own from v1.20 on. [`KubeProxy`] has no bind address, but from v1.10 on a cluster CIDR of
/// another family is an error. (`cmd/kube-proxy/app/server_others.go` v1.9.0 to v1.20.8.)
#[must_use]
pub fn families(proxy: &KubeProxy, objects: &Objects<'_>) -> Vec<Family> {
    if proxy.version.has(&history::DUAL_STACK) {
        return vec![Family::V4, Family::V6];
    }
    let cidr_family = [Family::V4, Family::V6].into_iter().find(|family| {
        let cidrs = proxy.cluster_cidr.as_ref();
        cidrs.is_some_and(|cidrs| cidrs.for_family(*family).is_some())
    });
    let node_family = || {
        let mut nodes = objects.nodes.iter();
        let node = nodes.find(|node| node.name == objects.node)?;
        node.ips.first().copied().map(Family::from_ip)
    };
    vec![cidr_family.or_else(node_family).unwrap_or(Family::V4)]
}

/// Node that kube-proxy runs on, in one IP family.
#[derive(Debug)]
struct Node<'a> {
    name: &'a str,
    object: &'a objects::Node,
    /// Address of the node, with which kube-proxy checks whether a source range admits the node
    /// itself.
    ip: Option<IpAddr>,
    /// Addresses of the node's interfaces in this family.
    interfaces: Vec<IpAddr>,
}

impl<'a> Node<'a> {
    fn find(objects: &Objects<'a>, family: Family) -> Result<Self, KubeProxyError> {
        let object = objects
            .nodes
            .iter()
            .find(|node| node.name == objects.node)
            .ok_or_else(|| KubeProxyError::NoSuchNode(objects.node.to_owned()))?;
        let mut interfaces: Vec<IpAddr> = if objects.interface_addresses.is_empty() {
            let own_addresses = object.ips.iter().copied();
            [family.localhost()]
                .into_iter()
                .chain(own_addresses)
                .collect()
        } else {
            objects.interface_addresses.to_vec()
        };
        interfaces.retain(|ip| Family::from_ip(*ip) == family);
        Ok(Self {
            name: objects.node,
            object,
            ip: object
                .ips
                .iter()
                .copied()
                .find(|ip| Family::from_ip(*ip) == family),
            interfaces,
        })
    }

    /// Whether source ranges admit the node itself, by the address that kube-proxy uses for the
    /// node.
    fn is_admitted(&self, ranges: &[IpNetwork], version: Version, family: Family) -> bool {
        let node = if version.has(&history::BIND_ADDRESS_FOR_NODE) {
            Some(family.unspecified())
        } else {
            self.ip
        };
        node.is_some_and(|node| ranges.iter().any(|range| range.contains(node)))
    }

    fn locality(&self) -> NodeLocality<'a> {
        NodeLocality {
            node: self.name,
            zone: self.object.zone.as_deref(),
        }
    }
}
