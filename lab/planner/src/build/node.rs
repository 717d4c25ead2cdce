//! What a node has besides its uplink.

use ipnetwork::IpNetwork;

use super::topology::{Port, Topology};
use crate::cluster::Cluster;
use svclab_model::plan::LinkKind;
use svclab_rules::docker;

/// Puts Docker's bridge on every node of a lab that has Docker.
pub fn place(topology: &mut Topology, cluster: &Cluster) {
    let Some(docker) = &cluster.docker else {
        return;
    };
    for node in &cluster.nodes {
        let at = Port::new(&node.name, docker::BRIDGE);
        topology.link(&at, LinkKind::Bridge, vec![IpNetwork::V4(docker.bip)]);
    }
}
