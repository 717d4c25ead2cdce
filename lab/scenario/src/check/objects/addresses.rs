//! Checks addresses of pods and load balancers that are probably a mistake.

use std::net::IpAddr;

use ipnetwork::IpNetwork;
use k8s_openapi::api::core::v1::{Pod, Service};

use crate::check::objects::fields::{full_name, with_field_span};
use crate::lab::{BalancerTarget, LabSpec};
use crate::objects::balancers::{
    balancer_for, ingress_addresses, is_answered, is_load_balancer, node_with,
};
use crate::objects::{Object, Objects};
use crate::sink::Sink;
use svclab_diagnostic::Diagnostic;

pub(crate) fn check_addresses(spec: &LabSpec, objects: &Objects, sink: &mut Sink) {
    if spec.calico.is_none() && spec.flannel.is_none() {
        warn_mixed_addresses(objects, sink);
    }
    for service in &objects.services {
        if has_balancer(spec, service) {
            refuse_node_address(objects, service, sink);
        } else {
            warn_unanswered(spec, objects, service, sink);
        }
        if spec.load_balancers.is_auto {
            warn_without_balancer(service, sink);
        }
    }
}

/// Warns about a pod whose address is outside the podCIDRs of its node, if another pod uses them.
fn warn_mixed_addresses(objects: &Objects, sink: &mut Sink) {
    let (mut inside, mut outside) = (0_usize, None);
    for pod in &objects.pods {
        let Some((address, cidrs)) = address_and_cidrs(objects, pod) else {
            continue;
        };
        let mut own = cidrs
            .iter()
            .filter(|cidr| cidr.is_ipv4() == address.is_ipv4());
        match own.next().copied() {
            Some(_) if cidrs.iter().any(|cidr| cidr.contains(address)) => inside += 1,
            Some(cidr) if outside.is_none() => outside = Some((pod, address, cidr)),
            _ => {}
        }
    }
    if let Some((pod, address, cidr)) = outside.filter(|_| inside > 0) {
        let warning = Diagnostic::warning(format!(
            "the address {address} of pod `{}` is outside {cidr}, the podCIDR of its node",
            full_name(pod)
        ));
        let warning = warning.with_help(
            "svclab then adds a route for each pod, as Calico does; for a bridge on each node, use \
             an address from the podCIDR",
        );
        let path = crate::path!["status", "podIP"];
        sink.push(with_field_span(warning, pod, path));
    }
}

/// Returns the first address of a pod with its own network, and the podCIDRs of its node.
fn address_and_cidrs(objects: &Objects, pod: &Object<Pod>) -> Option<(IpAddr, Vec<IpNetwork>)> {
    let spec = pod.value.spec.as_ref()?;
    if spec.host_network == Some(true) {
        return None;
    }
    let status = pod.value.status.as_ref()?;
    let listed = status.pod_ips.iter().flatten().map(|ip| &ip.ip);
    let address = status.pod_ip.iter().chain(listed).next()?.parse().ok()?;
    let node = objects.node(spec.node_name.as_deref()?)?;
    let node = node.value.spec.as_ref()?;
    let cidrs = node.pod_cidrs.iter().flatten().chain(&node.pod_cidr);
    Some((
        address,
        cidrs.filter_map(|cidr| cidr.parse().ok()).collect(),
    ))
}

fn has_balancer(spec: &LabSpec, service: &Object<Service>) -> bool {
    let name = full_name(service);
    let is_own = |own: &str| own == name || own == service.name && service.namespace == "default";
    let mut balancers = spec.load_balancers.by_name.values();
    balancers.any(|balancer| is_own(&balancer.service))
}

/// Refuses a load balancer with the address of a node, as the status of a service has it with the
/// `ServiceLB` of k3s: packets to this address reach the node.
fn refuse_node_address(objects: &Objects, service: &Object<Service>, sink: &mut Sink) {
    for address in ingress_addresses(&service.value) {
        let Some(node) = node_with(objects, address) else {
            continue;
        };
        let error = Diagnostic::error(format!(
            "the load balancer address {address} of service `{}` is the address of node `{}`",
            full_name(service),
            node.name
        ));
        let help = "remove the load balancer from the lab: packets to this address reach the node, \
                    as with the ServiceLB of k3s";
        let path = crate::path!["status", "loadBalancer"];
        sink.push(with_field_span(error.with_help(help), service, path));
    }
}

/// Warns about a load balancer address that hosts connect to and for which nothing answers.
fn warn_unanswered(spec: &LabSpec, objects: &Objects, service: &Object<Service>, sink: &mut Sink) {
    let name = full_name(service);
    let target = format!("lb/{name}:");
    let is_target = |address: &IpAddr| {
        let (v4, v6) = (format!("{address}:"), format!("[{address}]:"));
        spec.all_probes().any(|(_, probe)| {
            let to = &probe.to;
            let from = probe.from.strip_prefix("host/").unwrap_or(&probe.from);
            spec.hosts.contains_key(from)
                && [&target, &v4, &v6]
                    .iter()
                    .any(|start| to.starts_with(start.as_str()))
        })
    };
    let addresses = ingress_addresses(&service.value);
    for address in addresses.filter(|each| !is_answered(spec, objects, *each) && is_target(each)) {
        let warning = Diagnostic::warning(format!(
            "nothing answers for {address}, the load balancer address of service `{name}`"
        ));
        let property = match balancer_for(service).target {
            BalancerTarget::NodePort => "healthCheck: {}",
            BalancerTarget::Pods => "target: pods",
        };
        let help = format!(
            "add a balancer to the lab's spec, or `loadBalancers: auto` for all services:\n  \
             loadBalancers:\n    {}:\n      service: {name}\n      {property}",
            service.name
        );
        let path = crate::path!["status", "loadBalancer"];
        sink.push(with_field_span(warning.with_help(help), service, path));
    }
}

/// Warns about a service of type `LoadBalancer` for which `auto` makes no balancer.
fn warn_without_balancer(service: &Object<Service>, sink: &mut Sink) {
    if !is_load_balancer(&service.value) || ingress_addresses(&service.value).next().is_some() {
        return;
    }
    let warning = Diagnostic::warning(format!(
        "service `{}` gets no load balancer: its status has no address",
        full_name(service)
    ));
    let help = "add `status: {loadBalancer: {ingress: [{ip: 192.0.2.10}]}}` to the Service";
    let path = crate::path!["spec", "type"];
    sink.push(with_field_span(warning.with_help(help), service, path));
}
