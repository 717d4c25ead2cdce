//! Selects the addresses on which nftables mode serves node ports: all addresses of the node, or
//! some. Loopback addresses are never included.
//!
//! Follows `NodePortAddresses` of kubernetes/kubernetes `pkg/proxy/util/nodeport_addresses.go`, and
//! the conversion of `nodePortAddresses` in `cmd/kube-proxy/app`.

use std::net::IpAddr;

use crate::kube_proxy::history::{NFT_NODE_PORTS_ON_PRIMARY, NFT_NODE_PORTS_WITHOUT_PRIMARY};
use crate::kube_proxy::{Family, KubeProxy, Node, NodePortAddress};

/// Addresses of a node that serve node ports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum NodePorts {
    /// Every address except loopback addresses.
    All,
    /// Listed addresses, sorted.
    Listed(Vec<IpAddr>),
}

impl NodePorts {
    /// Returns the addresses on which `proxy` serves node ports of `family` on `node`.
    pub(crate) fn new(proxy: &KubeProxy, node: &Node<'_>, family: Family) -> Self {
        let version = proxy.version;
        let mut entries: Vec<NodePortAddress> = proxy
            .node_port_addresses
            .iter()
            .copied()
            .filter(|address| match address {
                NodePortAddress::Primary => true,
                NodePortAddress::Network(network) => Family::from_ip(network.ip()) == family,
            })
            .collect();
        let primary = [NodePortAddress::Primary];
        if version.has(&NFT_NODE_PORTS_WITHOUT_PRIMARY) {
            if proxy.node_port_addresses.is_empty() {
                entries.extend(primary);
            }
            // kube-proxy drops `primary` for a family without a primary address.
            entries.retain(|address| *address != primary[0] || node.ip.is_some());
        } else if entries.is_empty() && version.has(&NFT_NODE_PORTS_ON_PRIMARY) {
            entries.extend(primary);
        }
        let covers_all_addresses = |address: &NodePortAddress| matches!(address, NodePortAddress::Network(network) if network.prefix() == 0);
        if entries.is_empty() || entries.iter().any(covers_all_addresses) {
            return Self::All;
        }
        let mut addresses: Vec<IpAddr> = node
            .interfaces
            .iter()
            .copied()
            .filter(|ip| !ip.is_loopback())
            .filter(|ip| entries.iter().any(|address| address.covers(*ip, node.ip)))
            .collect();
        addresses.sort_unstable();
        addresses.dedup();
        Self::Listed(addresses)
    }
}
