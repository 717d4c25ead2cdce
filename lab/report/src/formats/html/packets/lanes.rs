//! Orders the places of a connection from left to right: the client and its node, then the routers,
//! then the other nodes with their pods.

use svclab_drawing::Topology;
use svclab_journey::journey::Journey;

/// Returns the namespaces that packets of a connection visited, in the order of lanes. Without a
/// topology, that is the order of the first visits.
pub(super) fn lanes(topology: Option<&Topology>, journey: &Journey) -> Vec<String> {
    let mut visited: Vec<&str> = vec![&journey.from];
    let hops = journey.packets.iter().flat_map(|packet| &packet.hops);
    for hop in hops {
        if !visited.contains(&hop.namespace.as_str()) {
            visited.push(&hop.namespace);
        }
    }
    let Some(topology) = topology else {
        return visited.into_iter().map(str::to_owned).collect();
    };
    let home = node_of(topology, &journey.from);
    let rank = |namespace: &str| {
        let is_router = topology
            .routers
            .iter()
            .any(|own| own.place.namespace == namespace);
        let node = topology
            .nodes
            .iter()
            .position(|node| node.place.namespace == namespace);
        let of = node_of(topology, namespace);
        match (namespace == journey.from, is_router, of) {
            (true, ..) => (0, 0, 0),
            (_, true, _) => (2, 0, 0),
            // Left of the routers: pods before their node.
            (_, _, Some(of)) if Some(of) == home => (1, 0, usize::from(node.is_some())),
            // Right of the routers: nodes before their pods.
            (_, _, Some(of)) => (3, of, usize::from(node.is_none())),
            _ => (1, 0, 0),
        }
    };
    visited.sort_by_key(|namespace| rank(namespace));
    visited.into_iter().map(str::to_owned).collect()
}

/// Returns the index of the node that a namespace is, or belongs to.
fn node_of(topology: &Topology, namespace: &str) -> Option<usize> {
    topology.nodes.iter().position(|node| {
        let mut pods = node.pods.iter();
        node.place.namespace == namespace || pods.any(|pod| pod.namespace == namespace)
    })
}
