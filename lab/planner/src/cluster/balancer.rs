//! Resolves the load balancers of a lab: their addresses, ports and backends.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use ipnetwork::IpNetwork;

use super::problem::{Problem, place};
use super::{Node, ObjectName};
use svclab_diagnostic::suggest::did_you_mean;
use svclab_rules::objects::{EndpointSlice, Service};
use svclab_scenario::lab::{BalancerTarget, LoadBalancerSpec};
use svclab_scenario::tree::PathSegment;

/// A load balancer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Balancer {
    /// Name of the balancer in the lab.
    pub name: String,
    /// Kubernetes namespace and name of the service.
    pub service: (String, String),
    /// Addresses from the service's `status.loadBalancer.ingress`.
    pub addresses: Vec<IpAddr>,
    /// Ports of the service, each with its backends.
    pub ports: Vec<BalancerPort>,
    /// Port on which nodes report whether they have endpoints of the service. `None` unless the
    /// service has traffic policy `Local`.
    pub health_check_node_port: Option<u16>,
    /// Specification in the lab.
    pub spec: LoadBalancerSpec,
}

/// A port of a load balancer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BalancerPort {
    /// Port number of the service.
    pub port: u16,
    /// Protocol: `tcp`, `udp` or `sctp`.
    pub protocol: String,
    /// Backends of the port, in the families of the balancer's addresses.
    pub backends: Vec<Backend>,
}

impl BalancerPort {
    /// Returns the backends to which the balancer sends packets to one of its addresses: those of
    /// the same family.
    pub fn backends_of(&self, address: IpAddr) -> impl Iterator<Item = &Backend> {
        let backends = self.backends.iter();
        backends.filter(move |backend| backend.to.is_ipv4() == address.is_ipv4())
    }
}

/// A backend of a balancer port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Backend {
    /// Address and port to which the balancer sends packets.
    pub to: SocketAddr,
    /// Index of the node that the backend is, or runs on; `None` if unknown.
    pub node: Option<usize>,
}

/// Objects from which balancers are built.
pub(super) struct BalancerInputs<'a> {
    pub nodes: &'a [Node],
    pub services: &'a [Service],
    pub slices: &'a [EndpointSlice],
}

/// Schedulers of IPVS (Linux, `net/netfilter/ipvs/Kconfig`).
pub(super) const IPVS_SCHEDULERS: [&str; 14] = [
    "rr", "wrr", "lc", "wlc", "fo", "ovf", "lblc", "lblcr", "dh", "sh", "sed", "nq", "mh", "twos",
];

/// Builds a balancer of the lab. Returns `None` and reports a problem if its service does not
/// exist.
pub(super) fn build_balancer(
    name: &str,
    spec: &LoadBalancerSpec,
    inputs: &BalancerInputs<'_>,
    problems: &mut Vec<Problem>,
) -> Option<Balancer> {
    let path = |field: &str| place!["spec", "loadBalancers", name, field];
    let (namespace, service_name) = spec
        .service
        .split_once('/')
        .unwrap_or(("default", &spec.service));
    let Some(service) = inputs
        .services
        .iter()
        .find(|each| each.namespace == namespace && each.name == service_name)
    else {
        let names: Vec<String> = inputs.services.iter().map(Service::full_name).collect();
        problems.push(
            Problem::in_lab(
                path("service"),
                format!("there is no service `{}`", spec.service),
            )
            .with_help(did_you_mean(
                &spec.service,
                names.iter().map(String::as_str),
            )),
        );
        return None;
    };
    let addresses = service.ingress_ips();
    if addresses.is_empty() {
        problems.push(
            Problem::in_lab(
                path("service"),
                format!("service `{}` has no load balancer address", spec.service),
            )
            .with_help(
                "add `status: {loadBalancer: {ingress: [{ip: …}]}}` to the Service".to_owned(),
            ),
        );
    }
    check_families(name, spec, &addresses, inputs.nodes, problems);
    if !IPVS_SCHEDULERS.contains(&spec.scheduler.as_str()) {
        problems.push(
            Problem::in_lab(
                path("scheduler"),
                format!("IPVS has no scheduler `{}`", spec.scheduler),
            )
            .with_help(format!("the schedulers are {}", IPVS_SCHEDULERS.join(", "))),
        );
    }
    let nodes = backend_nodes(name, spec, inputs.nodes, problems);
    let ports = service.ports.iter();
    let ports: Vec<BalancerPort> = ports
        .filter_map(|port| {
            let protocol = port.protocol.name().to_owned();
            let number = port.port;
            let mut backends = match spec.target {
                BalancerTarget::Pods => ready_endpoints(inputs, service, &port.name),
                BalancerTarget::NodePort => {
                    let Some(node_port) = port.node_port else {
                        problems.push(
                            Problem::in_lab(path("service"), format!("port {number} of service `{}` has no nodePort", spec.service))
                                .with_help("add `nodePort: 30080` to the port of the Service, or `target: pods` to the balancer".to_owned()),
                        );
                        return None;
                    };
                    let addresses = nodes.iter().flat_map(|node| {
                        let own = &inputs.nodes[*node].addresses;
                        let first = move |is_v4: bool| own.iter().find(|own| own.is_ipv4() == is_v4);
                        let firsts = [true, false].into_iter().filter_map(first);
                        firsts.map(move |address| (address.ip(), *node))
                    });
                    let backend = |(ip, node): (IpAddr, usize)| Backend { to: SocketAddr::new(ip, node_port), node: Some(node) };
                    addresses.map(backend).collect()
                }
            };
            backends.retain(|backend| addresses.iter().any(|own| own.is_ipv4() == backend.to.is_ipv4()));
            Some(BalancerPort { port: number, protocol, backends })
        })
        .collect();
    Some(Balancer {
        name: name.to_owned(),
        service: (namespace.to_owned(), service_name.to_owned()),
        addresses,
        ports,
        health_check_node_port: service.health_check_node_port,
        spec: spec.clone(),
    })
}

/// Reports IPv6 addresses for which a balancer has no way: without nodes of the family, and of
/// public balancers, whose router has only IPv4.
fn check_families(
    name: &str,
    spec: &LoadBalancerSpec,
    addresses: &[IpAddr],
    nodes: &[Node],
    problems: &mut Vec<Problem>,
) {
    let mut report = |path: Vec<PathSegment>, message: String, help: &str| {
        problems.push(Problem::at_path(path, message).with_help(help.to_owned()));
    };
    let path = |field: &str| place!["spec", "loadBalancers", name, field].to_vec();
    let v6_address = addresses.iter().find(|address| address.is_ipv6());
    if let Some(public) = &spec.public {
        let egress = Some(&public.egress).filter(|egress| egress.is_ipv6());
        if let Some(address) = egress.or(v6_address) {
            let help = "use IPv4 addresses, or omit `public`";
            let message = format!("a public load balancer has only IPv4, not {address}");
            report(path("public"), message, help);
        }
    } else if let Some(address) = v6_address {
        let mut node_addresses = nodes.iter().flat_map(|node| &node.addresses);
        if !node_addresses.any(IpNetwork::is_ipv6) {
            let help = "add an InternalIP with an IPv6 address to the nodes, or remove the \
                        address from the `status` of the Service";
            let message =
                format!("the load balancer has the address {address}, but no node has IPv6");
            report(path("service"), message, help);
        }
    }
}

/// Reports ports of an address that two balancers share.
pub(super) fn check_ports_unique(balancers: &[Balancer], problems: &mut Vec<Problem>) {
    let mut owners: BTreeMap<(IpAddr, &str, u16), &Balancer> = BTreeMap::new();
    for balancer in balancers {
        let ports = |address: &IpAddr| {
            let address = *address;
            let ports = balancer.ports.iter();
            ports.map(move |port| (address, port.protocol.as_str(), port.port))
        };
        for endpoint in balancer.addresses.iter().flat_map(ports) {
            let owner = *owners.entry(endpoint).or_insert(balancer);
            if owner.name == balancer.name {
                continue;
            }
            let (address, protocol, port) = endpoint;
            let message = format!(
                "load balancers `{}` and `{}` both have port {port}/{} of {address}",
                owner.name,
                balancer.name,
                protocol.to_uppercase(),
            );
            let path = place!["spec", "loadBalancers", &balancer.name, "service"];
            problems.push(Problem::in_lab(path, message).with_help(Some(
                "give each service a separate load balancer and address".to_owned(),
            )));
            break;
        }
    }
}

fn backend_nodes(
    name: &str,
    spec: &LoadBalancerSpec,
    nodes: &[Node],
    problems: &mut Vec<Problem>,
) -> Vec<usize> {
    let Some(names) = &spec.backends else {
        return (0..nodes.len()).collect();
    };
    names
        .iter()
        .enumerate()
        .filter_map(|(index, name_in_lab)| {
            let index_of_node = nodes.iter().position(|node| node.name == *name_in_lab);
            let place = || place!["spec", "loadBalancers", name, "backends", index];
            if names[..index].contains(name_in_lab) {
                let message = format!("the backend `{name_in_lab}` is listed twice");
                problems.push(Problem::in_lab(place(), message));
            } else if index_of_node.is_none() {
                problems.push(
                    Problem::in_lab(place(), format!("there is no node `{name_in_lab}`"))
                        .with_help(did_you_mean(
                            name_in_lab,
                            nodes.iter().map(|node| node.name.as_str()),
                        )),
                );
            }
            index_of_node
        })
        .collect()
}

/// Returns the ready endpoints of a service port.
fn ready_endpoints(inputs: &BalancerInputs<'_>, service: &Service, port: &str) -> Vec<Backend> {
    let mut backends = Vec::new();
    for slice in inputs
        .slices
        .iter()
        .filter(|slice| slice.belongs_to(service))
    {
        for endpoint in slice.endpoints.iter().filter(|endpoint| endpoint.ready) {
            let is_node = |node: &Node| Some(&node.name) == endpoint.node.as_ref();
            let node = inputs.nodes.iter().position(is_node);
            for ip in &endpoint.addresses {
                let addresses = slice
                    .port_numbers(port)
                    .map(|port| SocketAddr::new(*ip, port));
                backends.extend(addresses.map(|to| Backend { to, node }));
            }
        }
    }
    backends
}

impl Balancer {
    /// Returns the name of the balancer in probes.
    #[must_use]
    pub fn reference(&self) -> ObjectName {
        ObjectName::LoadBalancer(self.service.0.clone(), self.service.1.clone())
    }
}
