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
pub enum Serving {
    /// Every address of the node.
    All,
    /// Addresses that one of these entries covers.
    Within(Vec<NodePortAddress>),
}

impl Serving {
    /// Returns the addresses on which `proxy` serves node ports of `family`.
    #[must_use]
    pub fn of(proxy: &KubeProxy, family: Family) -> Self {
        let version = proxy.version;
        let by_family = version.has(&NODE_PORT_ADDRESSES_BY_FAMILY);
        let asked: Vec<NodePortAddress> = proxy
            .node_port_addresses
            .iter()
            .copied()
            .filter(|address| match address {
                NodePortAddress::Primary => true,
                NodePortAddress::Within(network) => {
                    !by_family || Family::of(network.ip()) == family
                }
            })
            .collect();
        let is_all = |address: &NodePortAddress| matches!(address, NodePortAddress::Within(network) if network.prefix() == 0);
        let all = asked.is_empty() || asked.iter().any(is_all);
        if all || !version.has(&NODE_PORT_ADDRESSES) {
            Self::All
        } else {
            Self::Within(asked)
        }
    }

    /// Whether the node's address `ip` serves node ports. `primary` is the node's primary address.
    #[must_use]
    pub fn covers(&self, ip: IpAddr, primary: Option<IpAddr>) -> bool {
        match self {
            Self::All => true,
            Self::Within(asked) => asked.iter().any(|address| address.covers(ip, primary)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn serving(version: &str, addresses: &[&str], family: Family) -> Serving {
        let mut proxy = KubeProxy::new(version.parse().unwrap());
        proxy.node_port_addresses = addresses
            .iter()
            .map(|text| (*text).to_owned().try_into().unwrap())
            .collect();
        Serving::of(&proxy, family)
    }

    fn within(networks: &[&str]) -> Serving {
        let networks = networks.iter().map(|text| text.parse().unwrap());
        Serving::Within(networks.map(NodePortAddress::Within).collect())
    }

    #[test]
    fn node_port_addresses_are_obeyed_from_1_10() {
        let asked = ["192.0.2.0/24"];
        assert_eq!(serving("v1.9", &asked, Family::V4), Serving::All);
        assert_eq!(serving("v1.10", &asked, Family::V4), within(&asked));
        assert_eq!(serving("v1.10", &[], Family::V4), Serving::All);
    }

    #[test]
    fn from_1_19_the_other_familys_addresses_do_not_count() {
        for (version, asked, serves) in [
            ("v1.18", "192.0.2.0/24", within(&["192.0.2.0/24"])),
            ("v1.19", "192.0.2.0/24", Serving::All),
            ("v1.18", "0.0.0.0/0", Serving::All),
        ] {
            assert_eq!(serving(version, &[asked], Family::V6), serves, "{version}");
        }
        let both = ["0.0.0.0/0", "2001:db8::/64"];
        assert_eq!(serving("v1.18", &both, Family::V6), Serving::All);
        assert_eq!(
            serving("v1.19", &both, Family::V6),
            within(&["2001:db8::/64"])
        );
    }
}
