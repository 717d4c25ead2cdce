//! Finds the possible endpoints of a probe: every endpoint to which some version of kube-proxy may
//! send its packets, given the objects of the cluster.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};

use k8s_openapi::api::core::v1::{Service, ServicePort};
use k8s_openapi::api::discovery::v1::Endpoint;

use svclab_model::plan::{Probe, Protocol};
use svclab_planner::cluster::Cluster;
use svclab_rules::service::{cluster_ips, external_ips, ingress_ips};

/// Label of an endpoint slice with the name of its service.
const SERVICE_LABEL: &str = "kubernetes.io/service-name";

/// Returns the names of the possible endpoints of a probe; `None` if its target is no service. The
/// result may be too large: a terminating endpoint counts wherever kube-proxy may fall back to it.
#[must_use]
pub fn answerers(cluster: &Cluster, probe: &Probe) -> Option<BTreeSet<String>> {
    let (service, port) = called_service(cluster, probe)?;
    let port = port.name.as_deref().unwrap_or_default();
    let mut ready = BTreeSet::new();
    let mut leaving = BTreeSet::new();
    let name = service.metadata.name.as_deref();
    let of_service = cluster.slices.iter().filter(|slice| {
        let labels = slice.metadata.labels.as_ref();
        slice.metadata.namespace == service.metadata.namespace
            && labels
                .and_then(|labels| labels.get(SERVICE_LABEL))
                .map(String::as_str)
                == name
    });
    for slice in of_service {
        let ports = slice.ports.iter().flatten();
        let numbers: Vec<u16> = ports
            .filter(|own| own.name.as_deref().unwrap_or_default() == port)
            .filter_map(|own| u16::try_from(own.port?).ok())
            .collect();
        for endpoint in slice.endpoints.iter().flatten() {
            let is = |of: fn(&Conditions) -> Option<bool>, without: bool| {
                endpoint.conditions.as_ref().and_then(of).unwrap_or(without)
            };
            let group = if is(|own| own.ready, true) {
                &mut ready
            } else if is(|own| own.serving, true) && is(|own| own.terminating, false) {
                &mut leaving
            } else {
                continue;
            };
            group.extend(names(cluster, endpoint, &numbers));
        }
    }
    let spec = service.spec.as_ref();
    let local = |policy: Option<&String>| policy.is_some_and(|policy| policy == "Local");
    let by_node = spec.is_some_and(|spec| {
        local(spec.external_traffic_policy.as_ref()) || local(spec.internal_traffic_policy.as_ref())
    });
    if ready.is_empty() || by_node {
        ready.extend(leaving);
    }
    Some(ready)
}

/// Returns the service and service port that a probe targets. `None` if its target is no service.
#[must_use]
pub fn called_service<'c>(
    cluster: &'c Cluster,
    probe: &Probe,
) -> Option<(&'c Service, &'c ServicePort)> {
    let mut services = cluster.services.iter();
    services.find_map(|service| Some((service, port_of(cluster, service, probe)?)))
}

type Conditions = k8s_openapi::api::discovery::v1::EndpointConditions;

/// Returns the port of the service that the probe targets, if its target is this service.
fn port_of<'s>(cluster: &Cluster, service: &'s Service, probe: &Probe) -> Option<&'s ServicePort> {
    let spec = service.spec.as_ref()?;
    let to = probe.to;
    let protocol = match probe.protocol {
        Protocol::Tcp => "TCP",
        Protocol::Udp => "UDP",
        Protocol::Ping => return None,
    };
    let own = [
        cluster_ips(service),
        external_ips(service),
        ingress_ips(service),
    ];
    let is_own = own.iter().flatten().any(|own| *own == to.address);
    let is_node = || {
        let nodes = cluster.nodes.iter().flat_map(|node| &node.addresses);
        nodes.into_iter().any(|own| own.ip() == to.address)
    };
    let called = |port: &&ServicePort| {
        let number = |number: i32| u16::try_from(number).ok() == Some(to.port);
        port.protocol.as_deref().unwrap_or("TCP") == protocol
            && (is_own && number(port.port) || port.node_port.is_some_and(number) && is_node())
    };
    spec.ports.iter().flatten().find(called)
}

/// Returns the names of the servers at the addresses of an endpoint.
fn names(cluster: &Cluster, endpoint: &Endpoint, ports: &[u16]) -> BTreeSet<String> {
    let addresses = endpoint
        .addresses
        .iter()
        .filter_map(|text| text.parse().ok());
    addresses
        .flat_map(|address: IpAddr| {
            ports
                .iter()
                .map(move |port| SocketAddr::new(address, *port))
        })
        .filter_map(|at| served_by(cluster, at))
        .collect()
}

/// Returns the name of the server at an address.
fn served_by(cluster: &Cluster, at: SocketAddr) -> Option<String> {
    let pods = cluster.pods.iter().filter(|pod| !pod.host_network);
    let pod = pods.into_iter().find(|pod| pod.ips.contains(&at.ip()));
    let node = cluster
        .nodes
        .iter()
        .find(|node| node.addresses.iter().any(|own| own.ip() == at.ip()));
    let netns = pod
        .map(svclab_planner::cluster::Pod::reference)
        .or_else(|| node.map(|node| node.name.clone()))?;
    let serving = cluster.serving.iter();
    serving
        .into_iter()
        .find(|serving| serving.netns == netns && serving.port == at.port())
        .map(|serving| serving.name.clone())
}
