//! Connects the pod networks of nodes, by flannel's VXLAN tunnels or by routes.

use std::net::IpAddr;

use ipnetwork::IpNetwork;

use crate::build::topology::fabric::{UPLINK, find_port};
use crate::build::topology::{Port, Topology};
use crate::cluster::{Cluster, FABRIC, Node};
use svclab_model::plan::{LinkKind, Mac, Route};
use svclab_rules::flannel::{Flannel, Lease, overlay};
use svclab_scenario::lab::FabricKind;

/// MTU of flannel's interface in bytes: 1500 of the underlay minus the VXLAN overhead.
const MTU: u32 = 1450;

/// Connects the pod networks of all nodes.
pub fn add_to_topology(topology: &mut Topology, cluster: &Cluster) {
    if let Some(flannel) = &cluster.flannel {
        add_tunnels(topology, cluster, flannel);
    } else {
        add_routes(topology, cluster);
    }
}

fn add_tunnels(topology: &mut Topology, cluster: &Cluster, flannel: &Flannel) {
    let device = format!("flannel.{}", flannel.vni);
    let lease = |node: &Node| {
        let public_ip = node.addresses.iter().find_map(|address| match address {
            IpNetwork::V4(address) => Some(address.ip()),
            IpNetwork::V6(_) => None,
        })?;
        Some(Lease {
            subnet: node.ipv4_pod_cidr()?,
            public_ip,
            vtep_mac: Mac::from_names(&node.name, &device).0,
        })
    };
    let leases: Vec<Lease> = cluster.nodes.iter().filter_map(lease).collect();
    for node in &cluster.nodes {
        let Some(own_lease) = lease(node) else {
            continue;
        };
        let side = overlay(flannel, &own_lease, &leases);
        let port = Port::new(&node.name, &side.device);
        let kind = LinkKind::Vxlan {
            vni: side.vni,
            port: if side.port == 0 { 8472 } else { side.port },
            dev: UPLINK.to_owned(),
            local: side.local.into(),
        };
        topology
            .link(&port, kind, vec![IpNetwork::V4(side.address)])
            .mtu = Some(MTU);
        for peer in &side.peers {
            topology.namespace(&node.name).routes.push(Route {
                via: Some(peer.gateway.into()),
                onlink: true,
                ..Route::new(IpNetwork::V4(peer.subnet), side.device.clone())
            });
            topology.neighbour(&port, peer.gateway.into(), Mac(peer.mac));
            topology.forward(&port, Mac(peer.mac), IpAddr::V4(peer.remote));
        }
    }
}

/// Adds routes to the router, as in a cloud. If nodes share a bridge, the nodes get the routes too.
fn add_routes(topology: &mut Topology, cluster: &Cluster) {
    for (index, node) in cluster.nodes.iter().enumerate() {
        let outside = cluster.pod_addresses_outside(index).map(IpNetwork::from);
        for network in node.pod_cidrs.iter().copied().chain(outside) {
            if let Some((via, dev)) = find_port(topology, cluster, index, network.is_ipv4()) {
                topology.route(FABRIC, network, Some(via), &dev);
                if cluster.fabric.kind == FabricKind::Switched {
                    for peer in cluster.nodes.iter().filter(|other| other.name != node.name) {
                        topology.route(&peer.name, network, Some(via), UPLINK);
                    }
                }
            }
        }
    }
}
