//! Builds a [`Cluster`] from the documents of a case, or reports all problems in them.

use ipnetwork::IpNetwork;
use k8s_openapi::api::core::v1 as core;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::api::networking::v1::ServiceCIDR;
use serde_json::Value;

use super::addresses;
use super::balancer::{BalancerInputs, build_balancer, check_ports_unique};
use super::bridge_ports::check_bridge_ports;
use super::kube_proxy;
use super::node::build_node;
use super::pod::{build_pod, pod_addresses};
use super::problem::{Problem, place};
use super::serving::{ServerCandidates, served_ports};
use super::subnets::{build_subnets, network_of, unusable_reason};
use super::{Cluster, FABRIC, Fabric, Host, INTERNET, Node, Pod};
use svclab_diagnostic::suggest::did_you_mean;
use svclab_rules::objects::{self, Service, ServiceCidr};
use svclab_scenario::lab::LabSpec;
use svclab_scenario::reference::{DocumentRef, ObjectKind};

/// Documents of one case.
#[derive(Debug, Clone, Copy)]
pub struct ClusterInputs<'a> {
    /// Lab document.
    pub spec: &'a LabSpec,
    /// Whether dumps replace nodes.
    pub has_dumps: bool,
    /// Objects of kind `Node`.
    pub nodes: &'a [core::Node],
    /// Objects of kind `Pod`.
    pub pods: &'a [core::Pod],
    /// Objects of kind `Service`.
    pub services: &'a [core::Service],
    /// Objects of kind `EndpointSlice`, including derived objects.
    pub slices: &'a [EndpointSlice],
    /// Objects of kind `ServiceCIDR`: the networks of cluster IPs.
    pub service_cidrs: &'a [ServiceCIDR],
}

/// Builds the cluster of one case.
///
/// # Errors
///
/// Returns all problems, each with its location.
pub fn build(inputs: &ClusterInputs<'_>) -> Result<Cluster, Vec<Problem>> {
    let mut problems = Vec::new();
    let nodes: Vec<Node> = inputs
        .nodes
        .iter()
        .filter_map(|object| build_node(inputs.spec, object, &mut problems))
        .collect();
    check_node_names(inputs, &nodes, &mut problems);
    let hosts = build_hosts(inputs.spec, &nodes, &mut problems);
    let routes_pods = routes_pods(inputs, &nodes);
    // An unknown node is already reported, so objects that refer to it add no problem.
    let pods: Vec<Pod> = inputs
        .pods
        .iter()
        .filter_map(|object| build_pod(object, &nodes, routes_pods, &mut problems))
        .collect();
    let services: Vec<Service> = inputs.services.iter().map(Service::from).collect();
    let slices: Vec<_> = inputs
        .slices
        .iter()
        .map(objects::EndpointSlice::from)
        .collect();
    addresses::check_unique_addresses(&nodes, &pods, &hosts, &services, &mut problems);
    let subnets = build_subnets(inputs.spec, &nodes, &hosts, &mut problems);
    addresses::check_disjoint_networks(&nodes, &subnets, inputs.spec, &services, &mut problems);
    check_bridge_ports(&nodes, &pods, routes_pods, &subnets, &mut problems);
    kube_proxy::check_kube_proxies(inputs.spec, &mut problems);
    check_component_requirements(inputs.spec, &nodes, &mut problems);
    let routes = build_routes(inputs.spec, &nodes, &mut problems);
    let balancer_inputs = BalancerInputs {
        nodes: &nodes,
        services: &services,
        slices: &slices,
    };
    let balancers: Vec<_> = inputs
        .spec
        .load_balancers
        .by_name
        .iter()
        .filter_map(|(name, spec)| build_balancer(name, spec, &balancer_inputs, &mut problems))
        .collect();
    check_ports_unique(&balancers, &mut problems);
    if !problems.is_empty() {
        return Err(problems);
    }
    let host_ports = inputs
        .spec
        .hosts
        .iter()
        .flat_map(|(name, host)| host.ports.iter().map(|port| (name.clone(), *port)));
    let machines = ServerCandidates {
        nodes: &nodes,
        pods: &pods,
        hosts: &hosts,
    };
    let serving = served_ports(&machines, inputs.pods, &slices, host_ports);
    Ok(Cluster {
        serving,
        balancers,
        routes_pods,
        has_dumps: inputs.has_dumps,
        api_objects: api_objects(inputs, &nodes),
        nodes,
        pods,
        hosts,
        services,
        slices,
        service_cidrs: inputs.service_cidrs.iter().map(ServiceCidr::from).collect(),
        fabric: Fabric {
            kind: inputs.spec.fabric.kind,
            subnets,
            foreign_sources: inputs.spec.fabric.foreign_sources,
            routes,
        },
        backend: inputs.spec.iptables,
        flannel: inputs.spec.flannel.clone(),
        calico: inputs.spec.calico.clone(),
        ip_masq_agent: inputs.spec.ip_masq_agent.clone(),
        docker: inputs.spec.docker.clone(),
    })
}

/// Whether nodes have a route for each pod: with Calico, or if a pod's address is outside the
/// podCIDRs of its node. The network plugin then assigns addresses from elsewhere, as Calico's IPAM
/// and the plugins of clouds do. flannel's plugin assigns no other addresses than podCIDRs have.
fn routes_pods(inputs: &ClusterInputs<'_>, nodes: &[Node]) -> bool {
    let is_outside = |object: &core::Pod| {
        let Some(spec) = object
            .spec
            .as_ref()
            .filter(|spec| spec.host_network != Some(true))
        else {
            return false;
        };
        let node = nodes
            .iter()
            .find(|node| Some(&node.name) == spec.node_name.as_ref());
        node.is_some_and(|node| {
            let mut addresses = pod_addresses(object);
            addresses.any(|ip| !node.pod_cidrs.iter().any(|cidr| cidr.contains(ip)))
        })
    };
    inputs.spec.calico.is_some()
        || inputs.spec.flannel.is_none() && inputs.pods.iter().any(is_outside)
}

/// Returns the objects that an API server serves to real kube-proxies; none without them.
fn api_objects(inputs: &ClusterInputs<'_>, nodes: &[Node]) -> Vec<Value> {
    if !nodes.iter().any(Node::has_real_kube_proxy) {
        return Vec::new();
    }
    let nodes = inputs.nodes.iter().map(to_json);
    let services = inputs.services.iter().map(to_json);
    let slices = inputs.slices.iter().map(to_json);
    let service_cidrs = inputs.service_cidrs.iter().map(to_json);
    nodes
        .chain(services)
        .chain(slices)
        .chain(service_cidrs)
        .collect()
}

/// Converts an object to JSON. Objects parsed from YAML always convert.
fn to_json<T: serde::Serialize>(object: &T) -> Value {
    serde_json::to_value(object).unwrap_or_default()
}

/// Reports nodes of the lab document without a `Node` object, and nodes with a reserved name.
fn check_node_names(inputs: &ClusterInputs<'_>, nodes: &[Node], problems: &mut Vec<Problem>) {
    let has_object = |name: &String| {
        let mut objects = inputs.nodes.iter();
        objects.any(|node| node.metadata.name.as_ref() == Some(name))
    };
    for name in inputs.spec.nodes.keys().filter(|name| !has_object(name)) {
        let names = nodes.iter().map(|node| node.name.as_str());
        problems.push(
            Problem::in_lab(
                place!["spec", "nodes", name],
                format!("there is no node `{name}`"),
            )
            .at_key()
            .with_help(did_you_mean(name, names)),
        );
    }
    for node in nodes.iter().filter(|node| is_reserved(&node.name)) {
        problems.push(
            Problem::new(
                DocumentRef::object(ObjectKind::Node, "", &node.name),
                place!["metadata", "name"],
                format!("name `{}` is already in use", node.name),
            )
            .with_help(SHARED_NAMES.to_owned()),
        );
    }
}

/// Builds the external hosts, and reports names that other machines use.
fn build_hosts(spec: &LabSpec, nodes: &[Node], problems: &mut Vec<Problem>) -> Vec<Host> {
    let is_taken = |name: &str| is_reserved(name) || nodes.iter().any(|node| node.name == name);
    for name in spec.hosts.keys().filter(|name| is_taken(name)) {
        problems.push(
            Problem::in_lab(
                place!["spec", "hosts", name],
                format!("name `{name}` is already in use"),
            )
            .at_key()
            .with_help(SHARED_NAMES.to_owned()),
        );
    }
    for (name, host) in &spec.hosts {
        if let Some(reason) = unusable_reason(host.address) {
            problems.push(Problem::in_lab(
                place!["spec", "hosts", name, "address"],
                format!(
                    "host `{name}` cannot have the address {}: {reason}",
                    host.address.ip()
                ),
            ));
        }
        if let Some(index) = host.ports.iter().position(|port| *port == 0) {
            problems.push(
                Problem::in_lab(
                    place!["spec", "hosts", name, "ports", index],
                    "0 is not a valid port",
                )
                .with_help("use a port from 1 to 65535".to_owned()),
            );
        }
    }
    spec.hosts
        .iter()
        .map(|(name, host)| Host {
            name: name.clone(),
            address: host.address,
        })
        .collect()
}

/// Highest VNI for which the interface name `flannel.VNI` has at most 15 bytes (Linux,
/// `include/uapi/linux/if.h`, `IFNAMSIZ`).
const MAX_VNI: u32 = 9_999_999;

const SHARED_NAMES: &str = "use another name: it must be unique among nodes, hosts, `fabric` and `internet`, and the \
     router needs `lo`, `all`, `default` and `br0`, `br1`, …";

/// Whether a name is in use. The router has an interface for each machine, next to `lo` and its
/// bridges, and the sysctls of interfaces have the entries `all` and `default` (Linux v6.12,
/// `net/ipv4/devinet.c`, `devinet_init_net`).
fn is_reserved(name: &str) -> bool {
    let is_bridge = name
        .strip_prefix("br")
        .is_some_and(|number| number.parse::<usize>().is_ok());
    is_bridge || [FABRIC, INTERNET, "lo", "all", "default"].contains(&name)
}

/// Reports nodes that do not meet the requirements of components.
fn check_component_requirements(spec: &LabSpec, nodes: &[Node], problems: &mut Vec<Problem>) {
    if let Some(vni) = spec.flannel.as_ref().map(|flannel| flannel.vni)
        && vni > MAX_VNI
    {
        problems.push(
            Problem::in_lab(
                place!["spec", "flannel", "vni"],
                format!("interface name `flannel.{vni}` is too long"),
            )
            .with_help(format!("use a VNI up to {MAX_VNI}")),
        );
    }
    for node in nodes {
        let document = || DocumentRef::object(ObjectKind::Node, "", &node.name);
        let cidr = node.ipv4_pod_cidr();
        if node.pod_cidrs.is_empty() && spec.flannel.is_some() {
            problems.push(
                Problem::new(
                    document(),
                    place!["spec"],
                    format!("node `{}` has no podCIDR", node.name),
                )
                .with_help(
                    "add `spec: {podCIDR: 10.244.1.0/24}`, the network of its pods' addresses"
                        .to_owned(),
                ),
            );
        }
        let v6_cidr = node.pod_cidrs.iter().find(|network| network.is_ipv6());
        if let Some(network) = v6_cidr.filter(|_| node.addresses.iter().all(IpNetwork::is_ipv4)) {
            problems.push(
                Problem::new(
                    document(),
                    place!["spec", "podCIDR"],
                    format!(
                        "node `{}` has the IPv6 podCIDR {network}, but no IPv6 address",
                        node.name
                    ),
                )
                .with_help(
                    "add an InternalIP with an IPv6 address to `status.addresses`".to_owned(),
                ),
            );
        }
        if let (Some(flannel), Some(cidr)) = (&spec.flannel, cidr)
            && let Err(error) = flannel.check(cidr)
        {
            problems.push(Problem::in_lab(
                place!["spec", "flannel"],
                format!("on node `{}`: {error}", node.name),
            ));
        }
    }
}

fn build_routes(
    spec: &LabSpec,
    nodes: &[Node],
    problems: &mut Vec<Problem>,
) -> Vec<(IpNetwork, usize)> {
    let mut routes = Vec::new();
    for (index, route) in spec.fabric.routes.iter().enumerate() {
        let to = network_of(route.to);
        let before = &spec.fabric.routes[..index];
        if before.iter().any(|known| network_of(known.to) == to) {
            problems.push(Problem::in_lab(
                place!["spec", "fabric", "routes", index, "to"],
                format!("there is another route to {to}"),
            ));
        }
        match nodes.iter().position(|node| node.name == route.via) {
            Some(node) => routes.push((to, node)),
            None => problems.push(
                Problem::in_lab(
                    place!["spec", "fabric", "routes", index, "via"],
                    format!("there is no node `{}`", route.via),
                )
                .with_help(did_you_mean(
                    &route.via,
                    nodes.iter().map(|node| node.name.as_str()),
                )),
            ),
        }
    }
    routes
}
