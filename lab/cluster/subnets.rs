//! The subnets of the fabric: who shares a switch, and what the router is there.

use std::net::IpAddr;

use ipnetwork::{IpNetwork, Ipv4Network, Ipv6Network};

/// One subnet of the fabric.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Subnet {
    /// The network, host bits clear.
    pub network: IpNetwork,
    /// The router's address in it: the first that nobody has.
    pub gateway: IpAddr,
    /// Who is in it.
    pub members: Vec<Member>,
}

/// A machine in a subnet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Member {
    /// A node, by index.
    Node(usize),
    /// A host, by index.
    Host(usize),
}

/// The network an address lies in, by the prefix length that is written with it
/// nowhere: 24 bits, or 64 of an IPv6 address.
#[must_use]
pub fn usual(address: IpAddr) -> IpNetwork {
    let prefix = if address.is_ipv4() { 24 } else { 64 };
    network_of(IpNetwork::new(address, prefix).unwrap_or_else(|_| address.into()))
}

/// The network, host bits clear.
#[must_use]
pub fn network_of(address: IpNetwork) -> IpNetwork {
    IpNetwork::new(address.network(), address.prefix()).unwrap_or(address)
}

/// Whether two networks share an address.
#[must_use]
pub fn overlap(one: IpNetwork, other: IpNetwork) -> bool {
    match (one, other) {
        (IpNetwork::V4(one), IpNetwork::V4(other)) => one.overlaps(other),
        (IpNetwork::V6(one), IpNetwork::V6(other)) => one.overlaps(other),
        _ => false,
    }
}

/// The first address of a subnet, after the network's own, that is not taken.
#[must_use]
pub fn first_free(network: IpNetwork, taken: impl Fn(IpAddr) -> bool) -> Option<IpAddr> {
    // A subnet of two addresses (31 or 127 bits) has no network address.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_router_takes_the_first_address_that_is_free() {
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
    fn networks_of_different_families_never_overlap() {
        let of = |text: &str| text.parse::<IpNetwork>().unwrap();
        assert!(overlap(of("10.0.0.0/8"), of("10.1.2.0/24")));
        assert!(!overlap(of("10.0.0.0/24"), of("10.0.1.0/24")));
        assert!(!overlap(of("0.0.0.0/0"), of("::/0")));
    }
}
