//! Builds the interfaces of a node other than its uplink.

use ipnetwork::IpNetwork;

use crate::build::topology::{Port, Topology};
use crate::cluster::Cluster;
use svclab_model::plan::LinkKind;
use svclab_rules::docker;

/// Adds Docker's bridge to every node if the lab has Docker.
pub fn add_to_topology(topology: &mut Topology, cluster: &Cluster) {
    let Some(docker) = &cluster.docker else {
        return;
    };
    for node in &cluster.nodes {
        let port = Port::new(&node.name, docker::BRIDGE);
        topology.link(&port, LinkKind::Bridge, vec![IpNetwork::V4(docker.bip)]);
    }
}
