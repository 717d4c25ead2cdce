//! Makes the load balancers that the services of a cluster need.

use std::net::IpAddr;

use indexmap::IndexMap;
use k8s_openapi::api::core::v1::{Node, Service};

use crate::lab::{BalancerTarget, HealthCheck, LabSpec, LoadBalancerSpec};
use crate::objects::{Object, Objects, has_address};

/// Returns the addresses in the load balancer status of a service.
pub(crate) fn ingress_addresses(service: &Service) -> impl Iterator<Item = IpAddr> {
    let status = service.status.iter();
    let balancers = status.filter_map(|status| status.load_balancer.as_ref());
    let ingress = balancers.flat_map(|balancer| balancer.ingress.iter().flatten());
    ingress.filter_map(|ingress| ingress.ip.as_ref()?.parse().ok())
}

/// Whether a node answers for an address: a route of the fabric leads to it, or it is that of a node.
pub(crate) fn is_answered(spec: &LabSpec, objects: &Objects, address: IpAddr) -> bool {
    let mut routes = spec.fabric.routes.iter();
    routes.any(|route| route.to.contains(address)) || node_with(objects, address).is_some()
}

/// Returns the node with an address.
pub(crate) fn node_with(objects: &Objects, address: IpAddr) -> Option<&Object<Node>> {
    let mut nodes = objects.nodes.iter();
    nodes.find(|node| has_address(&node.value, address))
}

pub(crate) fn is_load_balancer(service: &Service) -> bool {
    let spec = service.spec.as_ref();
    spec.and_then(|spec| spec.type_.as_deref()) == Some("LoadBalancer")
}

/// Returns the load balancer for a service: with health checks of the node ports. Without node
/// ports, it sends packets to the pods.
pub(crate) fn balancer_for(service: &Object<Service>) -> LoadBalancerSpec {
    let ports = service.value.spec.iter().flat_map(|spec| &spec.ports);
    let has_node_ports = ports
        .flatten()
        .all(|port| port.node_port.is_some_and(|number| number != 0));
    let mut balancer = LoadBalancerSpec::new(format!("{}/{}", service.namespace, service.name));
    if has_node_ports {
        balancer.health_check = Some(HealthCheck::default());
    } else {
        balancer.target = BalancerTarget::Pods;
    }
    balancer
}

/// Returns a load balancer for each service of type `LoadBalancer` that has an address for which no
/// node answers. The name is that of the service, with the namespace before it if two services have
/// the same name.
pub(crate) fn needed_balancers(
    spec: &LabSpec,
    objects: &Objects,
) -> IndexMap<String, LoadBalancerSpec> {
    let needs_one = |service: &&Object<Service>| {
        let mut addresses = ingress_addresses(&service.value);
        is_load_balancer(&service.value)
            && addresses.any(|address| !is_answered(spec, objects, address))
    };
    let services: Vec<_> = objects.services.iter().filter(needs_one).collect();
    let named = services.iter().map(|service| {
        let same = services.iter().filter(|other| other.name == service.name);
        let name = if same.count() == 1 {
            service.name.clone()
        } else {
            format!("{}-{}", service.namespace, service.name)
        };
        (name, balancer_for(service))
    });
    named.collect()
}
