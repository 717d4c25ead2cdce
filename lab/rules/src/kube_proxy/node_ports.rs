//! Evaluates `nodePortAddresses`: the node addresses on which kube-proxy serves node ports, in
//! every mode.
//!
//! Follows `GetNodeAddresses` of kubernetes/kubernetes `pkg/proxy/util/utils.go` (v1.10.0 to
//! v1.27.1) and `NodePortAddresses` of `pkg/proxy/util/nodeport_addresses.go` after it.

use std::net::IpAddr;

use super::history::{NODE_PORT_ADDRESSES, NODE_PORT_ADDRESSES_BY_FAMILY};
use super::{Family, KubeProxy, NodePortAddress};

/// Addresses of a node that serve node ports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NodePortSelection {
    /// Every address of the node.
    All,
    /// Addresses that one of these entries covers.
    Matching(Vec<NodePortAddress>),
}

impl NodePortSelection {
    /// Returns the addresses on which `proxy` serves node ports of `family`.
    #[must_use]
    pub fn new(proxy: &KubeProxy, family: Family) -> Self {
        let version = proxy.version;
        let by_family = version.has(&NODE_PORT_ADDRESSES_BY_FAMILY);
        let entries: Vec<NodePortAddress> = proxy
            .node_port_addresses
            .iter()
            .copied()
            .filter(|address| match address {
                NodePortAddress::Primary => true,
                NodePortAddress::Network(network) => {
                    !by_family || Family::from_ip(network.ip()) == family
                }
            })
            .collect();
        let covers_all_addresses = |address: &NodePortAddress| matches!(address, NodePortAddress::Network(network) if network.prefix() == 0);
        let serves_all = entries.is_empty() || entries.iter().any(covers_all_addresses);
        if serves_all || !version.has(&NODE_PORT_ADDRESSES) {
            Self::All
        } else {
            Self::Matching(entries)
        }
    }

    /// Whether the node's address `ip` serves node ports. `primary` is the node's primary address.
    #[must_use]
    pub fn covers(&self, ip: IpAddr, primary: Option<IpAddr>) -> bool {
        match self {
            Self::All => true,
            Self::Matching(configured) => {
                configured.iter().any(|address| address.covers(ip, primary))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn selection(version: &str, addresses: &[&str], family: Family) -> NodePortSelection {
        let mut proxy = KubeProxy::new(version.parse().unwrap());
        proxy.node_port_addresses = addresses
            .iter()
            .map(|text| (*text).to_owned().try_into().unwrap())
            .collect();
        NodePortSelection::new(&proxy, family)
    }

    fn matching(networks: &[&str]) -> NodePortSelection {
        let networks = networks.iter().map(|text| text.parse().unwrap());
        NodePortSelection::Matching(networks.map(NodePortAddress::Network).collect())
    }

    #[test]
    fn selection_before_1_10_ignores_addresses() {
        let configured = ["192.0.2.0/24"];
        assert_eq!(
            selection("v1.9", &configured, Family::V4),
            NodePortSelection::All
        );
        assert_eq!(
            selection("v1.10", &configured, Family::V4),
            matching(&configured)
        );
        assert_eq!(selection("v1.10", &[], Family::V4), NodePortSelection::All);
    }

    #[test]
    fn selection_from_1_19_ignores_other_family() {
        for (version, configured, serves) in [
            ("v1.18", "192.0.2.0/24", matching(&["192.0.2.0/24"])),
            ("v1.19", "192.0.2.0/24", NodePortSelection::All),
            ("v1.18", "0.0.0.0/0", NodePortSelection::All),
        ] {
            assert_eq!(
                selection(version, &[configured], Family::V6),
                serves,
                "{version}"
            );
        }
        let both = ["0.0.0.0/0", "2001:db8::/64"];
        assert_eq!(
            selection("v1.18", &both, Family::V6),
            NodePortSelection::All
        );
        assert_eq!(
            selection("v1.19", &both, Family::V6),
            matching(&["2001:db8::/64"])
        );
    }
}
