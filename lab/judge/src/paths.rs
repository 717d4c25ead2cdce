//! Finds the possible endpoints of a probe: every endpoint to which some version of kube-proxy may
//! send its packets, given the objects of the cluster.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};

use k8s_openapi::api::core::v1::{Service, ServicePort};
use k8s_openapi::api::discovery::v1::Endpoint;

use svclab_model::plan::{Probe, ProbeProtocol};
use svclab_planner::cluster::Cluster;
use svclab_rules::service::{cluster_ips, external_ips, ingress_ips};

/// Label of an endpoint slice with the name of its service.
const SERVICE_LABEL: &str = "kubernetes.io/service-name";

/// Returns the names of the possible endpoints of a probe; `None` if its target is no service. The
/// result may be too large: a terminating endpoint counts wherever kube-proxy may fall back to it.
#[must_use]
pub fn possible_endpoints(cluster: &Cluster, probe: &Probe) -> Option<BTreeSet<String>> {
    let (service, port) = called_service(cluster, probe)?;
    let port = port.name.as_deref().unwrap_or_default();
    let mut ready = BTreeSet::new();
    let mut terminating = BTreeSet::new();
    let name = service.metadata.name.as_deref();
    let service_slices = cluster.slices.iter().filter(|slice| {
        let labels = slice.metadata.labels.as_ref();
        slice.metadata.namespace == service.metadata.namespace
            && labels
                .and_then(|labels| labels.get(SERVICE_LABEL))
                .map(String::as_str)
                == name
    });
    for slice in service_slices {
        let ports = slice.ports.iter().flatten();
        let numbers: Vec<u16> = ports
            .filter(|slice_port| slice_port.name.as_deref().unwrap_or_default() == port)
            .filter_map(|own| u16::try_from(own.port?).ok())
            .collect();
        for endpoint in slice.endpoints.iter().flatten() {
            let has_condition = |condition: fn(&Conditions) -> Option<bool>, default: bool| {
                endpoint
                    .conditions
                    .as_ref()
                    .and_then(condition)
                    .unwrap_or(default)
            };
            let group = if has_condition(|own| own.ready, true) {
                &mut ready
            } else if has_condition(|own| own.serving, true)
                && has_condition(|own| own.terminating, false)
            {
                &mut terminating
            } else {
                continue;
            };
            group.extend(server_names(cluster, endpoint, &numbers));
        }
    }
    let spec = service.spec.as_ref();
    let is_local = |policy: Option<&String>| policy.is_some_and(|policy| policy == "Local");
    let is_per_node = spec.is_some_and(|spec| {
        is_local(spec.external_traffic_policy.as_ref())
            || is_local(spec.internal_traffic_policy.as_ref())
    });
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
) -> Option<(&'c Service, &'c ServicePort)> {
    let mut services = cluster.services.iter();
    services.find_map(|service| Some((service, target_port(cluster, service, probe)?)))
}

type Conditions = k8s_openapi::api::discovery::v1::EndpointConditions;

/// Returns the port of the service that the probe targets, if its target is this service.
fn target_port<'s>(
    cluster: &Cluster,
    service: &'s Service,
    probe: &Probe,
) -> Option<&'s ServicePort> {
    let spec = service.spec.as_ref()?;
    let to = probe.target;
    let protocol = match probe.protocol {
        ProbeProtocol::Tcp => "TCP",
        ProbeProtocol::Udp => "UDP",
        ProbeProtocol::Ping => return None,
    };
    let service_ips = [
        cluster_ips(service),
        external_ips(service),
        ingress_ips(service),
    ];
    let is_own = service_ips.iter().flatten().any(|own| *own == to.address);
    let is_node = || {
        let node_addresses = cluster.nodes.iter().flat_map(|node| &node.addresses);
        node_addresses.into_iter().any(|own| own.ip() == to.address)
    };
    let is_target = |port: &&ServicePort| {
        let number = |number: i32| u16::try_from(number).ok() == Some(to.port);
        port.protocol.as_deref().unwrap_or("TCP") == protocol
            && (is_own && number(port.port) || port.node_port.is_some_and(number) && is_node())
    };
    spec.ports.iter().flatten().find(is_target)
}

/// Returns the names of the servers at the addresses of an endpoint.
fn server_names(cluster: &Cluster, endpoint: &Endpoint, ports: &[u16]) -> BTreeSet<String> {
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
