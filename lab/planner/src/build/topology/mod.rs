//! Collects namespaces, links, routes and neighbours of a plan.

pub(crate) mod disabled_ipv6;
pub(crate) mod fabric;
pub(crate) mod node;
pub(crate) mod overlay;
pub(crate) mod pod;
pub(crate) mod sysctls;

use std::net::IpAddr;

use indexmap::IndexMap;
use ipnetwork::IpNetwork;
use sha2::{Digest, Sha256};

use svclab_model::plan::{
    Forwarding, ForwardingTarget, Link, LinkKind, Mac, Namespace, Neighbour, PortSettings, Route,
};

/// Maximum length of an interface name in bytes.
const MAX_INTERFACE_NAME: usize = 15;

/// Maximum number of interfaces on a bridge for which all have neighbour entries for each other. On
/// a larger bridge, only the router, which is first, and each other interface have entries.
const MAX_FULL_MESH: usize = 64;

/// An interface of a namespace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Port {
    /// Name of the namespace.
    pub namespace: String,
    /// Name of the interface.
    pub dev: String,
}

impl Port {
    pub fn new(namespace: impl Into<String>, dev: impl Into<String>) -> Self {
        Self {
            namespace: namespace.into(),
            dev: dev.into(),
        }
    }
}

/// Namespaces so far, and the link-layer segments between them.
#[derive(Debug, Default)]
pub struct Topology {
    namespaces: IndexMap<String, Namespace>,
    segments: Vec<Vec<Port>>,
}

impl Topology {
    /// Returns the namespace with the name, and creates the namespace if needed.
    pub fn namespace(&mut self, name: &str) -> &mut Namespace {
        self.namespaces
            .entry(name.to_owned())
            .or_insert_with(|| Namespace {
                name: name.to_owned(),
                ..Namespace::default()
            })
    }

    pub fn link(&mut self, port: &Port, kind: LinkKind, addresses: Vec<IpNetwork>) -> &mut Link {
        let link = Link {
            name: port.dev.clone(),
            kind,
            mac: Mac::from_names(&port.namespace, &port.dev),
            addresses,
            bridge: None,
            port: PortSettings::default(),
            down: false,
            mtu: None,
        };
        let links = &mut self.namespace(&port.namespace).links;
        links.push(link);
        let last = links.len() - 1;
        &mut links[last]
    }

    /// Adds a veth pair between two namespaces.
    pub fn veth_pair(
        &mut self,
        left: &Port,
        left_addresses: Vec<IpNetwork>,
        right: &Port,
        right_addresses: Vec<IpNetwork>,
    ) {
        let kind_of_end = |peer_port: &Port| LinkKind::Veth {
            namespace: peer_port.namespace.clone(),
            peer: peer_port.dev.clone(),
        };
        self.link(left, kind_of_end(right), left_addresses);
        self.link(right, kind_of_end(left), right_addresses);
    }

    /// Returns an existing interface.
    pub fn link_mut(&mut self, port: &Port) -> Option<&mut Link> {
        self.namespaces
            .get_mut(&port.namespace)?
            .links
            .iter_mut()
            .find(|link| link.name == port.dev)
    }

    /// Declares that these interfaces share a link-layer segment. The router's interface comes
    /// first.
    pub fn segment(&mut self, ports: Vec<Port>) {
        self.segments.push(ports);
    }

    pub fn route(&mut self, namespace: &str, to: IpNetwork, via: Option<IpAddr>, dev: &str) {
        self.namespace(namespace).routes.push(Route {
            via,
            ..Route::new(to, dev)
        });
    }

    /// Adds a neighbour entry outside of any segment.
    pub fn neighbour(&mut self, port: &Port, address: IpAddr, mac: Mac) {
        self.namespace(&port.namespace).neighbours.push(Neighbour {
            address,
            mac,
            dev: port.dev.clone(),
        });
    }

    /// Adds a forwarding entry of a tunnel.
    pub fn forward(&mut self, port: &Port, mac: Mac, to: IpAddr) {
        self.namespace(&port.namespace).forwarding.push(Forwarding {
            dev: port.dev.clone(),
            mac,
            to: ForwardingTarget::Remote(to),
        });
    }

    /// Returns the namespaces, with the neighbour entries of all segments.
    pub fn finish(mut self) -> Vec<Namespace> {
        let interfaces: Vec<(Port, Mac, Vec<IpAddr>)> = self
            .namespaces
            .values()
            .flat_map(|namespace| {
                namespace.links.iter().map(|link| {
                    let addresses = link.addresses.iter().map(IpNetwork::ip).collect();
                    (Port::new(&namespace.name, &link.name), link.mac, addresses)
                })
            })
            .collect();
        let mut neighbours = Vec::new();
        for segment in &self.segments {
            for (index, port) in segment.iter().enumerate() {
                for (peer_index, peer) in segment.iter().enumerate() {
                    let has_neighbour =
                        segment.len() <= MAX_FULL_MESH || index == 0 || peer_index == 0;
                    if index == peer_index || !has_neighbour {
                        continue;
                    }
                    let Some((_, mac, addresses)) =
                        interfaces.iter().find(|(port, ..)| port == peer)
                    else {
                        continue;
                    };
                    neighbours.extend(
                        addresses
                            .iter()
                            .map(|address| (port.clone(), *address, *mac)),
                    );
                }
            }
        }
        for (port, address, mac) in neighbours {
            self.neighbour(&port, address, mac);
        }
        self.namespaces.into_values().collect()
    }
}

/// Returns the destination of a default route in the family of an address.
#[must_use]
pub fn default_destination(family_of: IpAddr) -> IpNetwork {
    let any: IpAddr = match family_of {
        IpAddr::V4(_) => std::net::Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => std::net::Ipv6Addr::UNSPECIFIED.into(),
    };
    IpNetwork::new(any, 0).unwrap_or_else(|_| any.into())
}

/// Returns the interface name for an object. A name that is too long or has other characters is
/// truncated and gets a unique suffix.
#[must_use]
pub fn interface_name(name: &str) -> String {
    let plain: String = name
        .chars()
        .map(|letter| {
            if letter.is_ascii_alphanumeric() || "-_.".contains(letter) {
                letter
            } else {
                '-'
            }
        })
        .collect();
    if plain.len() <= MAX_INTERFACE_NAME && plain == name {
        return plain;
    }
    let digest = data_encoding::HEXLOWER.encode(&Sha256::digest(name)[..3]);
    format!(
        "{}-{digest}",
        &plain[..plain.len().min(MAX_INTERFACE_NAME - 7)]
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interface_name_long_name_is_truncated_and_unique() {
        assert_eq!(interface_name("node-1"), "node-1");
        let long = interface_name("ip-172-18-1-1.eu-central-1.compute.internal");
        assert_eq!(long.len(), 15);
        assert_ne!(
            long,
            interface_name("ip-172-18-1-2.eu-central-1.compute.internal")
        );
        assert!(interface_name("a/b").len() <= 15);
    }

    #[test]
    fn topology_segment_adds_neighbour_entries() {
        let mut topology = Topology::default();
        let address = |text: &str| vec![text.parse::<IpNetwork>().unwrap()];
        let (a, b) = (Port::new("a", "eth0"), Port::new("b", "eth0"));
        topology.veth_pair(&a, address("10.0.0.1/24"), &b, address("10.0.0.2/24"));
        topology.segment(vec![a, b]);
        let namespaces = topology.finish();
        assert_eq!(namespaces[0].neighbours[0].address.to_string(), "10.0.0.2");
        assert_eq!(namespaces[0].neighbours[0].mac, namespaces[1].links[0].mac);
        assert_eq!(namespaces[1].neighbours[0].mac, namespaces[0].links[0].mac);
    }
}
