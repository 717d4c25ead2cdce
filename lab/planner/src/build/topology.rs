//! Collects namespaces, links, routes and neighbours of a plan.

use std::net::IpAddr;

use indexmap::IndexMap;
use ipnetwork::IpNetwork;
use sha2::{Digest, Sha256};

use svclab_model::plan::{Forwarding, Link, LinkKind, Mac, Namespace, Neighbour, Route, RouteKind};

/// Maximum length of an interface name in bytes.
const LONGEST: usize = 15;

/// Maximum number of interfaces on a bridge for which all have neighbour entries for each other. On
/// a larger bridge, only the router, which is first, and each other interface have entries.
const MESH: usize = 64;

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

    pub fn link(&mut self, at: &Port, kind: LinkKind, addresses: Vec<IpNetwork>) -> &mut Link {
        let link = Link {
            name: at.dev.clone(),
            kind,
            mac: Mac::of(&at.namespace, &at.dev),
            addresses,
            bridge: None,
            hairpin: false,
            down: false,
            mtu: None,
        };
        let links = &mut self.namespace(&at.namespace).links;
        links.push(link);
        let last = links.len() - 1;
        &mut links[last]
    }

    /// Adds a veth pair between two namespaces.
    pub fn cable(
        &mut self,
        one: &Port,
        addresses: Vec<IpNetwork>,
        other: &Port,
        theirs: Vec<IpNetwork>,
    ) {
        let end = |far: &Port| LinkKind::Veth {
            namespace: far.namespace.clone(),
            peer: far.dev.clone(),
        };
        self.link(one, end(other), addresses);
        self.link(other, end(one), theirs);
    }

    /// Returns an existing interface.
    pub fn link_mut(&mut self, at: &Port) -> Option<&mut Link> {
        self.namespaces
            .get_mut(&at.namespace)?
            .links
            .iter_mut()
            .find(|link| link.name == at.dev)
    }

    /// Declares that these interfaces share a link-layer segment. The router's interface comes
    /// first.
    pub fn segment(&mut self, ports: Vec<Port>) {
        self.segments.push(ports);
    }

    pub fn route(&mut self, namespace: &str, to: IpNetwork, via: Option<IpAddr>, dev: &str) {
        self.namespace(namespace).routes.push(Route {
            to,
            via,
            dev: dev.to_owned(),
            onlink: false,
            source: None,
            kind: RouteKind::Unicast,
            table: None,
            metric: None,
        });
    }

    /// Adds a neighbour entry outside of any segment.
    pub fn neighbour(&mut self, at: &Port, address: IpAddr, mac: Mac) {
        self.namespace(&at.namespace).neighbours.push(Neighbour {
            address,
            mac,
            dev: at.dev.clone(),
        });
    }

    /// Adds a forwarding entry of a tunnel.
    pub fn forward(&mut self, at: &Port, mac: Mac, to: IpAddr) {
        self.namespace(&at.namespace).forwarding.push(Forwarding {
            dev: at.dev.clone(),
            mac,
            to,
        });
    }

    /// Returns the namespaces, with the neighbour entries of all segments.
    pub fn finish(mut self) -> Vec<Namespace> {
        let known: Vec<(Port, Mac, Vec<IpAddr>)> = self
            .namespaces
            .values()
            .flat_map(|namespace| {
                namespace.links.iter().map(|link| {
                    let addresses = link.addresses.iter().map(IpNetwork::ip).collect();
                    (Port::new(&namespace.name, &link.name), link.mac, addresses)
                })
            })
            .collect();
        let mut made = Vec::new();
        for segment in &self.segments {
            for (at, port) in segment.iter().enumerate() {
                for (other_at, other) in segment.iter().enumerate() {
                    let hears = segment.len() <= MESH || at == 0 || other_at == 0;
                    if at == other_at || !hears {
                        continue;
                    }
                    let Some((_, mac, addresses)) = known.iter().find(|(port, ..)| port == other)
                    else {
                        continue;
                    };
                    made.extend(
                        addresses
                            .iter()
                            .map(|address| (port.clone(), *address, *mac)),
                    );
                }
            }
        }
        for (port, address, mac) in made {
            self.neighbour(&port, address, mac);
        }
        self.namespaces.into_values().collect()
    }
}

/// Returns the destination of a default route in the family of an address.
#[must_use]
pub fn everywhere(family_of: IpAddr) -> IpNetwork {
    let any: IpAddr = match family_of {
        IpAddr::V4(_) => std::net::Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => std::net::Ipv6Addr::UNSPECIFIED.into(),
    };
    IpNetwork::new(any, 0).unwrap_or_else(|_| any.into())
}

/// Returns the interface name for an object. A name that is too long or has other characters is
/// truncated and gets a unique suffix.
#[must_use]
pub fn dev_name(name: &str) -> String {
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
    if plain.len() <= LONGEST && plain == name {
        return plain;
    }
    let digest = data_encoding::HEXLOWER.encode(&Sha256::digest(name)[..3]);
    format!("{}-{digest}", &plain[..plain.len().min(LONGEST - 7)])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interfaces_are_named_for_whom_they_lead_to() {
        assert_eq!(dev_name("node-1"), "node-1");
        let long = dev_name("ip-172-18-1-1.eu-central-1.compute.internal");
        assert_eq!(long.len(), 15);
        assert_ne!(
            long,
            dev_name("ip-172-18-1-2.eu-central-1.compute.internal")
        );
        assert!(dev_name("a/b").len() <= 15);
    }

    #[test]
    fn machines_on_one_switch_know_each_other() {
        let mut topology = Topology::default();
        let address = |text: &str| vec![text.parse::<IpNetwork>().unwrap()];
        let (a, b) = (Port::new("a", "eth0"), Port::new("b", "eth0"));
        topology.cable(&a, address("10.0.0.1/24"), &b, address("10.0.0.2/24"));
        topology.segment(vec![a, b]);
        let made = topology.finish();
        assert_eq!(made[0].neighbours[0].address.to_string(), "10.0.0.2");
        assert_eq!(made[0].neighbours[0].mac, made[1].links[0].mac);
        assert_eq!(made[1].neighbours[0].mac, made[0].links[0].mac);
    }
}
