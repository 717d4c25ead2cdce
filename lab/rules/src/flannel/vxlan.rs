//! Computes flannel's VXLAN overlay on one node: the interface, and the entries for every other
//! node (`backend/vxlan`, v0.11.0; `pkg/backend/vxlan` later).

use std::net::Ipv4Addr;

use ipnetwork::Ipv4Network;
use serde::{Deserialize, Serialize};

use super::{Flannel, without_host_bits};

/// Bytes that VXLAN over IPv4 adds to each packet.
pub const OVERHEAD: u32 = 50;

/// Data about a node that every flanneld has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lease {
    /// Subnet of the pod network that belongs to the node.
    pub subnet: Ipv4Network,
    /// Address of the node on the underlay.
    pub public_ip: Ipv4Addr,
    /// Link-layer address of the node's VXLAN interface.
    pub vtep_mac: [u8; 6],
}

/// Entries that lead to the pods of another node through the overlay.
///
/// All three entries are on the VXLAN interface: a route to `subnet` via `gateway` with the flag
/// onlink, a permanent neighbour `gateway` at `mac`, and a permanent forwarding entry that sends
/// `mac` to `remote`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Peer {
    /// Lease of the other node.
    pub subnet: Ipv4Network,
    /// First address of the lease, which the other node's interface has.
    pub gateway: Ipv4Addr,
    /// Link-layer address of the other node's VXLAN interface.
    pub mac: [u8; 6],
    /// Address of the other node on the underlay.
    pub remote: Ipv4Addr,
}

/// Overlay as configured on one node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Overlay {
    /// Interface name: `flannel.` and the VNI.
    pub device: String,
    /// VXLAN network identifier.
    pub vni: u32,
    /// UDP port of VXLAN.
    pub port: u16,
    /// Underlay source address of encapsulated packets. Learning is off.
    pub local: Ipv4Addr,
    /// Link-layer address of the interface.
    pub mac: [u8; 6],
    /// Address of the interface, with prefix 32 so that the kernel adds no connected route. The
    /// node's own packets into the overlay have this source address.
    pub address: Ipv4Network,
    /// Other nodes, in the order of the leases.
    pub peers: Vec<Peer>,
}

/// Returns the overlay of the node with lease `own`. `leases` are those of all nodes; the own lease
/// among them is skipped.
#[must_use]
pub fn overlay(config: &Flannel, own_lease: &Lease, leases: &[Lease]) -> Overlay {
    let first = without_host_bits(own_lease.subnet).network();
    Overlay {
        device: format!("flannel.{}", config.vni),
        vni: config.vni,
        port: config.port,
        local: own_lease.public_ip,
        mac: own_lease.vtep_mac,
        address: Ipv4Network::from(first),
        peers: leases
            .iter()
            .filter(|lease| without_host_bits(lease.subnet) != without_host_bits(own_lease.subnet))
            .map(|lease| Peer {
                subnet: without_host_bits(lease.subnet),
                gateway: lease.subnet.network(),
                mac: lease.vtep_mac,
                remote: lease.public_ip,
            })
            .collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overlay_peers_exclude_own_node() {
        let lease = |number: u8| Lease {
            subnet: Ipv4Network::new(Ipv4Addr::new(10, 244, number, 0), 24).expect("valid network"),
            public_ip: Ipv4Addr::new(192, 0, 2, number),
            vtep_mac: [2, 0, 0, 0, 0, number],
        };
        let config = Flannel::new(
            "v0.25.1".parse().expect("valid version"),
            "10.244.0.0/16".parse().expect("valid network"),
        );
        let overlay = overlay(&config, &lease(1), &[lease(0), lease(1), lease(2)]);
        assert_eq!(overlay.device, "flannel.1");
        assert_eq!(overlay.address.to_string(), "10.244.1.0/32");
        let gateways: Vec<_> = overlay.peers.iter().map(|peer| peer.gateway).collect();
        assert_eq!(
            gateways,
            [Ipv4Addr::new(10, 244, 0, 0), Ipv4Addr::new(10, 244, 2, 0)]
        );
        assert_eq!(overlay.peers[1].remote, Ipv4Addr::new(192, 0, 2, 2));
    }
}
