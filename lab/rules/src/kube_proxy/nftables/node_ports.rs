//! Where nftables mode serves node ports: on all addresses of the node, or on some.
//! It never does on loopback addresses.
//!
//! Follows `NodePortAddresses` of kubernetes/kubernetes
//! `pkg/proxy/util/nodeport_addresses.go` and what `cmd/kube-proxy/app` makes of
//! `nodePortAddresses` before it gets there.

use std::net::IpAddr;

use crate::kube_proxy::history::{NFT_NODE_PORTS_ON_PRIMARY, NFT_NODE_PORTS_WITHOUT_PRIMARY};
use crate::kube_proxy::{Family, KubeProxy, Node, NodePortAddress};

/// The addresses of a node that serve node ports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum NodePorts {
    /// Every address but loopback ones.
    All,
    /// These, sorted.
    On(Vec<IpAddr>),
}

impl NodePorts {
    /// Where `proxy` serves node ports of `family` on `node`.
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
            // What a family lacks is not asked for.
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
