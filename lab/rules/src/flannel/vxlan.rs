//! flannel's VXLAN overlay on one node: the interface, and what leads through it
//! to every other node (`backend/vxlan`, v0.11.0; `pkg/backend/vxlan` later).

use std::net::Ipv4Addr;

use ipnetwork::Ipv4Network;
use serde::{Deserialize, Serialize};

use super::{Flannel, masked};

/// What VXLAN over IPv4 adds to each packet, in bytes.
pub const OVERHEAD: u32 = 50;

/// What every flanneld knows of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lease {
    /// The node's part of the network.
    pub subnet: Ipv4Network,
    /// The node's address on the underlay.
    pub public_ip: Ipv4Addr,
    /// The link-layer address of the node's VXLAN interface.
    pub vtep_mac: [u8; 6],
}

/// How to reach another node's pods through the overlay.
///
/// Three entries, all on the VXLAN interface: a route to `subnet` via `gateway`
/// with the flag onlink, a permanent neighbour `gateway` at `mac`, and a
/// permanent forwarding entry that sends `mac` to `remote`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Peer {
    /// The other node's lease.
    pub subnet: Ipv4Network,
    /// The lease's first address, which the other node's interface has.
    pub gateway: Ipv4Addr,
    /// The other interface's link-layer address.
    pub mac: [u8; 6],
    /// The other node's address on the underlay.
    pub remote: Ipv4Addr,
}

/// A node's side of the overlay.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Overlay {
    /// `flannel.` and the VNI.
    pub device: String,
    /// The VXLAN network identifier.
    pub vni: u32,
    /// The UDP port.
    pub port: u16,
    /// The underlay address packets leave from. Learning is off.
    pub local: Ipv4Addr,
    /// The interface's link-layer address.
    pub mac: [u8; 6],
    /// The interface's own address, with prefix 32, so that it brings no route
    /// along. The node's own packets into the overlay get it as their source.
    pub address: Ipv4Network,
    /// The other nodes, in the order of the leases.
    pub peers: Vec<Peer>,
}

/// The overlay as the node with lease `own` sees it. `leases` are everybody's;
/// its own among them is left out.
#[must_use]
pub fn overlay(config: &Flannel, own: &Lease, leases: &[Lease]) -> Overlay {
    let first = masked(own.subnet).network();
    Overlay {
        device: format!("flannel.{}", config.vni),
        vni: config.vni,
        port: config.port,
        local: own.public_ip,
        mac: own.vtep_mac,
        address: Ipv4Network::from(first),
        peers: leases
            .iter()
            .filter(|lease| masked(lease.subnet) != masked(own.subnet))
            .map(|lease| Peer {
                subnet: masked(lease.subnet),
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
    fn leads_to_everyone_but_itself() {
        let lease = |number: u8| Lease {
            subnet: Ipv4Network::new(Ipv4Addr::new(10, 244, number, 0), 24).expect("a /24"),
            public_ip: Ipv4Addr::new(192, 0, 2, number),
            vtep_mac: [2, 0, 0, 0, 0, number],
        };
        let config = Flannel::new(
            "v0.25.1".parse().expect("a version"),
            "10.244.0.0/16".parse().expect("a network"),
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
