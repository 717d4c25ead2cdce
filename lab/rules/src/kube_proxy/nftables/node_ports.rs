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
    On(Vec<IpAddr>),
}

impl NodePorts {
    /// Returns the addresses on which `proxy` serves node ports of `family` on `node`.
    pub fn of(proxy: &KubeProxy, node: &Node<'_>, family: Family) -> Self {
        let version = proxy.version;
        let mut asked: Vec<NodePortAddress> = proxy
            .node_port_addresses
            .iter()
            .copied()
            .filter(|address| match address {
                NodePortAddress::Primary => true,
                NodePortAddress::Within(network) => Family::of(network.ip()) == family,
            })
            .collect();
        let primary = [NodePortAddress::Primary];
        if version.has(&NFT_NODE_PORTS_WITHOUT_PRIMARY) {
            if proxy.node_port_addresses.is_empty() {
                asked.extend(primary);
            }
            // kube-proxy drops `primary` for a family without a primary address.
            asked.retain(|address| *address != primary[0] || node.ip.is_some());
        } else if asked.is_empty() && version.has(&NFT_NODE_PORTS_ON_PRIMARY) {
            asked.extend(primary);
        }
        let is_all = |address: &NodePortAddress| matches!(address, NodePortAddress::Within(network) if network.prefix() == 0);
        if asked.is_empty() || asked.iter().any(is_all) {
            return Self::All;
        }
        let mut on: Vec<IpAddr> = node
            .interfaces
            .iter()
            .copied()
            .filter(|ip| !ip.is_loopback())
            .filter(|ip| asked.iter().any(|address| address.covers(*ip, node.ip)))
            .collect();
        on.sort_unstable();
        on.dedup();
        Self::On(on)
    }
}
