//! Builds the subnets of the fabric, with their members and the address of the router.

use std::net::IpAddr;

use ipnetwork::{IpNetwork, Ipv4Network, Ipv6Network};

use super::problem::{Problem, place};
use super::{Host, Node};
use svclab_scenario::lab::{FabricKind, LabSpec};
use svclab_scenario::reference::{DocumentRef, ObjectKind};

/// A subnet of the fabric.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Subnet {
    /// Network address with prefix, host bits clear.
    pub network: IpNetwork,
    /// Address of the router: the first unused address of the subnet.
    pub gateway: IpAddr,
    /// Nodes and hosts in the subnet.
    pub members: Vec<Member>,
}

/// A machine in a subnet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Member {
    /// Index of a node.
    Node(usize),
    /// Index of a host.
    Host(usize),
}

/// Returns the default network of an address without a prefix length: 24 bits for IPv4, 64 bits for
/// IPv6.
#[must_use]
pub fn default_network(address: IpAddr) -> IpNetwork {
    let prefix = if address.is_ipv4() { 24 } else { 64 };
    network_of(IpNetwork::new(address, prefix).unwrap_or_else(|_| address.into()))
}

/// Returns the network with host bits clear.
#[must_use]
pub fn network_of(address: IpNetwork) -> IpNetwork {
    IpNetwork::new(address.network(), address.prefix()).unwrap_or(address)
}

/// Returns the first host address of a pod network, which the node's bridge has.
#[must_use]
pub(crate) fn first_host(cidr: IpNetwork) -> Option<IpNetwork> {
    let first: IpAddr = match cidr {
        IpNetwork::V4(cidr) => cidr.nth(1)?.into(),
        IpNetwork::V6(cidr) => cidr.iter().nth(1)?.into(),
    };
    IpNetwork::new(first, cidr.prefix()).ok()
}

/// Returns the reason why no machine can have an address in its subnet. `None` if a machine can.
pub(super) fn unusable_reason(address: IpNetwork) -> Option<&'static str> {
    let ip = address.ip();
    let is_broadcast = match address {
        IpNetwork::V4(network) => {
            network.ip().is_broadcast()
                || network.prefix() < 31 && network.ip() == network.broadcast()
        }
        IpNetwork::V6(_) => false,
    };
    [
        (ip.is_unspecified(), "it is the unspecified address"),
        (ip.is_loopback(), "it is a loopback address"),
        (ip.is_multicast(), "it is a multicast address"),
        (is_broadcast, "it is a broadcast address"),
    ]
    .into_iter()
    .find_map(|(is_unusable, reason)| is_unusable.then_some(reason))
}

/// Whether two networks share an address.
#[must_use]
pub fn has_overlap(left: IpNetwork, right: IpNetwork) -> bool {
    match (left, right) {
        (IpNetwork::V4(one), IpNetwork::V4(other)) => one.overlaps(other),
        (IpNetwork::V6(one), IpNetwork::V6(other)) => one.overlaps(other),
        _ => false,
    }
}

/// Returns the first unused address of a subnet after the network address.
#[must_use]
pub fn first_free(network: IpNetwork, taken: impl Fn(IpAddr) -> bool) -> Option<IpAddr> {
    // A subnet with two addresses (31 or 127 bits) has no network address.
    let skip = usize::from(
        !matches!(
            network,
            IpNetwork::V4(network) if network.prefix() >= 31
        ) && !matches!(network, IpNetwork::V6(network) if network.prefix() >= 127),
    );
    match network {
        IpNetwork::V4(network) => usable_v4(network, skip)
            .map(IpAddr::V4)
            .find(|address| !taken(*address)),
        IpNetwork::V6(network) => usable_v6(network, skip)
            .map(IpAddr::V6)
            .find(|address| !taken(*address)),
    }
}

fn usable_v4(network: Ipv4Network, skip: usize) -> impl Iterator<Item = std::net::Ipv4Addr> {
    let last = network.broadcast();
    network
        .iter()
        .skip(skip)
        .filter(move |address| skip == 0 || *address != last)
}

fn usable_v6(network: Ipv6Network, skip: usize) -> impl Iterator<Item = std::net::Ipv6Addr> {
    network.iter().skip(skip)
}

/// Builds the subnets of all nodes and hosts.
pub(super) fn build_subnets(
    spec: &LabSpec,
    nodes: &[Node],
    hosts: &[Host],
    problems: &mut Vec<Problem>,
) -> Vec<Subnet> {
    let mut subnets: Vec<(IpNetwork, Vec<Member>)> = Vec::new();
    let mut join = |network: IpNetwork, member: Member| match subnets
        .iter_mut()
        .find(|(known, _)| *known == network)
    {
        Some((_, members)) => members.push(member),
        None => subnets.push((network, vec![member])),
    };
    for (index, node) in nodes.iter().enumerate() {
        for address in &node.addresses {
            join(network_of(*address), Member::Node(index));
        }
    }
    for (index, host) in hosts.iter().enumerate() {
        join(network_of(host.address), Member::Host(index));
    }
    let address_of = |member: &Member, family_v4: bool| match member {
        Member::Node(at) => nodes[*at]
            .addresses
            .iter()
            .find(|address| address.is_ipv4() == family_v4)
            .map(IpNetwork::ip),
        Member::Host(at) => Some(hosts[*at].address.ip()),
    };
    let node_indices = |members: &[Member]| -> Vec<usize> {
        members
            .iter()
            .filter_map(|member| {
                if let Member::Node(index) = member {
                    Some(*index)
                } else {
                    None
                }
            })
            .collect()
    };
    if spec.fabric.kind == FabricKind::Routed {
        for (network, members) in &subnets {
            if let [first, second, ..] = node_indices(members).as_slice() {
                problems.push(
                    Problem::new(
                        DocumentRef::object(ObjectKind::Node, "", &nodes[*second].name),
                        place!["status", "addresses"],
                        format!(
                            "nodes `{}` and `{}` share the subnet {network}, but a routed fabric needs one subnet per node",
                            nodes[*first].name, nodes[*second].name
                        ),
                    )
                    .with_help("set `fabric: {type: switched}` in the lab's spec, or give the nodes narrower subnets under `nodes`".to_owned()),
                );
            }
        }
    } else {
        for v4 in [true, false] {
            let node_subnets: Vec<IpNetwork> = subnets
                .iter()
                .filter(|(network, members)| {
                    network.is_ipv4() == v4 && !node_indices(members).is_empty()
                })
                .map(|(network, _)| *network)
                .collect();
            if let [first, second, ..] = node_subnets.as_slice() {
                problems.push(
                    Problem::in_lab(
                        place!["spec", "fabric"],
                        format!("the nodes of a switched fabric must share one subnet, but these are in {first} and {second}"),
                    )
                    .with_help("set the subnet that contains all of them: `fabric: {type: switched, subnet: …}`".to_owned()),
                );
            }
        }
    }
    subnets
        .into_iter()
        .filter_map(|(network, members)| {
            let taken = |address| {
                members
                    .iter()
                    .any(|member| address_of(member, network.is_ipv4()) == Some(address))
            };
            let Some(gateway) = first_free(network, taken) else {
                problems.push(
                    Problem::in_lab(
                        place!["spec"],
                        format!("the subnet {network} has no address left for its router"),
                    )
                    .with_help("use a shorter prefix".to_owned()),
                );
                return None;
            };
            Some(Subnet {
                network,
                gateway,
                members,
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unusable_reason_of_special_addresses() {
        for (address, is_usable) in [
            ("10.0.0.1/24", true),
            ("10.0.0.255/24", false),
            ("10.0.0.255/16", true),
            ("10.0.0.1/31", true),
            ("0.0.0.0/24", false),
            ("255.255.255.255/24", false),
            ("224.0.0.1/24", false),
            ("127.0.0.2/24", false),
            ("::/64", false),
            ("ff02::1/64", false),
            ("fd00::ffff/64", true),
        ] {
            let reason = unusable_reason(address.parse().unwrap());
            assert_eq!(reason.is_none(), is_usable, "{address}: {reason:?}");
        }
    }

    #[test]
    fn first_free_address_skips_taken_addresses() {
        let free = |network: &str, taken: &[&str]| {
            first_free(network.parse().unwrap(), |address| {
                taken.contains(&address.to_string().as_str())
            })
            .map(|address| address.to_string())
        };
        assert_eq!(free("10.0.0.0/24", &[]).as_deref(), Some("10.0.0.1"));
        assert_eq!(
            free("10.0.0.0/24", &["10.0.0.1", "10.0.0.2"]).as_deref(),
            Some("10.0.0.3")
        );
        assert_eq!(free("10.0.0.0/30", &["10.0.0.1", "10.0.0.2"]), None);
        assert_eq!(
            free("10.0.0.0/31", &["10.0.0.1"]).as_deref(),
            Some("10.0.0.0")
        );
        assert_eq!(free("10.0.0.0/32", &["10.0.0.0"]), None);
        assert_eq!(free("fd00::/64", &["fd00::1"]).as_deref(), Some("fd00::2"));
    }

    #[test]
    fn overlap_different_families_is_false() {
        let network = |text: &str| text.parse::<IpNetwork>().unwrap();
        assert!(has_overlap(network("10.0.0.0/8"), network("10.1.2.0/24")));
        assert!(!has_overlap(network("10.0.0.0/24"), network("10.0.1.0/24")));
        assert!(!has_overlap(network("0.0.0.0/0"), network("::/0")));
    }
}
