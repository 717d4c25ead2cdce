//! Finds the possible endpoints of a probe: every endpoint to which some version of kube-proxy may
//! send its packets, given the objects of the cluster.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use svclab_model::plan::Probe;
use svclab_planner::cluster::Cluster;
use svclab_rules::objects::{PortSpec, Service, SliceEndpoint};
use svclab_ruleset::Protocol;

/// Returns the names of the possible endpoints of a probe; `None` if its target is no service. The
/// result may be too large: a terminating endpoint counts wherever kube-proxy may fall back to it.
#[must_use]
pub fn possible_endpoints(cluster: &Cluster, probe: &Probe) -> Option<BTreeSet<String>> {
    let (service, port) = called_service(cluster, probe)?;
    let mut ready = BTreeSet::new();
    let mut terminating = BTreeSet::new();
    for slice in cluster
        .slices
        .iter()
        .filter(|slice| slice.belongs_to(service))
    {
        let numbers: Vec<u16> = slice.port_numbers(&port.name).collect();
        for endpoint in &slice.endpoints {
            let group = if endpoint.ready {
                &mut ready
            } else if endpoint.serving && endpoint.terminating {
                &mut terminating
            } else {
                continue;
            };
            group.extend(server_names(cluster, endpoint, &numbers));
        }
    }
    let is_per_node = service.external_local || service.internal_local;
    if ready.is_empty() || is_per_node {
        ready.extend(terminating);
    }
    Some(ready)
}

/// Returns the service and service port that a probe targets. `None` if its target is no service.
#[must_use]
pub fn called_service<'c>(
    cluster: &'c Cluster,
    probe: &Probe,
) -> Option<(&'c Service, &'c PortSpec)> {
    let mut services = cluster.services.iter();
    services.find_map(|service| Some((service, target_port(cluster, service, probe)?)))
}

/// Returns the port of the service that the probe targets, if its target is this service.
fn target_port<'s>(cluster: &Cluster, service: &'s Service, probe: &Probe) -> Option<&'s PortSpec> {
    let to = probe.target;
    let protocol = Protocol::try_from(probe.protocol).ok()?;
    let is_own = service.has_address(to.address);
    let is_node = || {
        let node_addresses = cluster.nodes.iter().flat_map(|node| &node.addresses);
        node_addresses.into_iter().any(|own| own.ip() == to.address)
    };
    let is_target = |port: &&PortSpec| {
        port.protocol == protocol
            && (is_own && port.port == to.port || port.node_port == Some(to.port) && is_node())
    };
    service.ports.iter().find(is_target)
}

/// Returns the names of the servers at the addresses of an endpoint.
fn server_names(cluster: &Cluster, endpoint: &SliceEndpoint, ports: &[u16]) -> BTreeSet<String> {
    let addresses = endpoint.addresses.iter();
    addresses
        .flat_map(|address| ports.iter().map(|port| SocketAddr::new(*address, *port)))
        .filter_map(|address| server_name(cluster, address))
        .collect()
}

/// Returns the name of the server at an address.
fn server_name(cluster: &Cluster, address: SocketAddr) -> Option<String> {
    let pods = cluster.pods.iter().filter(|pod| !pod.host_network);
    let pod = pods.into_iter().find(|pod| pod.ips.contains(&address.ip()));
    let node = cluster
        .nodes
        .iter()
        .find(|node| node.addresses.iter().any(|own| own.ip() == address.ip()));
    let netns = pod
        .map(svclab_planner::cluster::Pod::reference)
        .or_else(|| node.map(|node| node.name.clone()))?;
    let serving = cluster.serving.iter();
    serving
        .into_iter()
        .find(|serving| serving.netns == netns && serving.port == address.port())
        .map(|serving| serving.name.clone())
}
