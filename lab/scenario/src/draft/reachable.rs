//! Finds what is reachable in a cluster: each port of a service with endpoints, by its cluster IP,
//! its node port and its load balancer.

use std::collections::BTreeMap;
use std::net::IpAddr;

use super::objects::ImportedPod;
use crate::check::limits::{MAX_HOSTS, MAX_NAME, MAX_PROBES};
use crate::objects::{Objects, internal_addresses};
use svclab_rules::objects::{EndpointSlice, PortSpec, Service, ServiceType};
use svclab_ruleset::Protocol;

/// Name of the host outside the cluster.
pub(super) const OUTSIDE: &str = "outside";

/// Connection that succeeds if the cluster works.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ReachableThing {
    /// Name of the probe.
    pub name: String,
    /// Source of the probe.
    pub from: String,
    /// Target of the probe.
    pub to: String,
    is_udp: bool,
}

impl ReachableThing {
    /// Renders the probe as a line of the lab.
    pub(super) fn render_probe(&self) -> String {
        let Self {
            name,
            from,
            to,
            is_udp,
        } = self;
        let protocol = if *is_udp { ", protocol: udp" } else { "" };
        format!("{name}: {{from: {from}, to: \"{to}\"{protocol}}}")
    }

    /// Returns the verdict of the connection.
    pub(super) fn verdict(&self) -> &'static str {
        if self.is_udp { "answered" } else { "connected" }
    }
}

/// Reachable things of a cluster.
#[derive(Debug, Default)]
pub(super) struct Things {
    pub reachable: Vec<ReachableThing>,
    /// Services with a load balancer by the balancer's name, and whether their ports have node
    /// ports.
    pub balanced: BTreeMap<String, (String, bool)>,
    /// Statements about services without a probe.
    pub notes: Vec<String>,
}

/// Finds the reachable things.
pub(super) fn find_things(objects: &Objects, pods: &[ImportedPod]) -> Things {
    let slices = objects.endpoint_slices.iter();
    let finder = Finder {
        pods,
        nodes: objects
            .nodes
            .iter()
            .map(|node| (node.name.clone(), parsed(&internal_addresses(&node.value))))
            .collect(),
        slices: slices
            .map(|slice| EndpointSlice::from(&*slice.value))
            .collect(),
    };
    let mut found = Things::default();
    for object in &objects.services {
        let service = Service::from(&*object.value);
        let has_address = !service.is_headless && !service.cluster_ips.is_empty();
        if service.kind == ServiceType::ExternalName || !has_address {
            continue;
        }
        if service.labels.other_proxy || service.labels.headless {
            let name = service.full_name();
            found.notes.push(format!(
                "no probe of service {name}: kube-proxy does not serve it"
            ));
            continue;
        }
        for port in &service.ports {
            finder.add_port(&service, port, &mut found);
        }
        let has_host_name = object.value.status.iter().any(|status| {
            let balancer = status.load_balancer.iter();
            let mut ingress = balancer.flat_map(|balancer| balancer.ingress.iter().flatten());
            ingress.any(|ingress| ingress.hostname.is_some() && ingress.ip.is_none())
        });
        if has_host_name {
            let name = service.full_name();
            found.notes.push(format!(
                "no probe of the load balancer of service {name}: it has a name, but no address"
            ));
        }
    }
    let omitted = found.reachable.len().saturating_sub(MAX_PROBES);
    if omitted > 0 {
        found.reachable.truncate(MAX_PROBES);
        found.notes.push(format!(
            "no probe of {omitted} further ports and addresses: a lab has at most {MAX_PROBES} probes"
        ));
    }
    found
}

/// Shortens a name that is too long for a lab. `number` makes the short name unique.
fn short_name(name: String, number: usize) -> String {
    if name.len() <= MAX_NAME {
        return name;
    }
    let end = format!("-{number}");
    // Names of objects are ASCII.
    format!("{}{end}", &name[..MAX_NAME - end.len()])
}

fn parsed(addresses: &[String]) -> Vec<IpAddr> {
    addresses
        .iter()
        .filter_map(|address| address.parse().ok())
        .collect()
}

/// Objects in which things are found.
struct Finder<'o> {
    pods: &'o [ImportedPod],
    /// Nodes with their addresses.
    nodes: Vec<(String, Vec<IpAddr>)>,
    slices: Vec<EndpointSlice>,
}

/// Endpoint of a service that exists in the lab.
struct Endpoint<'o> {
    /// Node of the endpoint.
    node: &'o str,
    /// Pod of the endpoint; `None` for a node.
    pod: Option<&'o ImportedPod>,
}

impl<'o> Finder<'o> {
    /// Adds the things of one port of a service.
    fn add_port(&self, service: &Service, port: &PortSpec, found: &mut Things) {
        let full_name = service.full_name();
        let mut skip = |reason: &str| {
            found.notes.push(format!(
                "no probe of port {} of service {full_name}: {reason}",
                port.port
            ));
        };
        let is_udp = match port.protocol {
            Protocol::Tcp => false,
            Protocol::Udp => true,
            Protocol::Sctp => return skip("svclab does not send SCTP"),
        };
        let endpoints = match self.endpoints(service, port) {
            Ok(endpoints) if endpoints.is_empty() => return skip("it has no ready endpoint"),
            Ok(endpoints) => endpoints,
            Err(address) => {
                return skip(&format!(
                    "its endpoint {address} is no pod or node among the objects"
                ));
            }
        };
        let Service {
            namespace, name, ..
        } = service;
        let protocol = if is_udp { "-udp" } else { "" };
        let number = found.reachable.len() + 1;
        let thing = |kind: &str, from: &str, to: String| ReachableThing {
            name: short_name(
                format!("{kind}.{namespace}.{name}.{}{protocol}", port.port),
                number,
            ),
            from: from.to_owned(),
            to,
            is_udp,
        };
        match self.client(service, &endpoints) {
            Some(client) => {
                let to = format!("service/{full_name}:{}", port.port);
                found.reachable.push(thing("cluster-ip", &client, to));
            }
            None => skip("no pod or node can be its client"),
        }
        if let Some(node_port) = port.node_port {
            let node = if service.external_local {
                Some(endpoints[0].node)
            } else {
                self.nodes.first().map(|(node, _)| node.as_str())
            };
            if let Some(node) = node {
                found
                    .reachable
                    .push(thing("node-port", OUTSIDE, format!("{node}:{node_port}")));
            }
        }
        if service.ingress.is_empty() {
            return;
        }
        if !service.source_ranges.is_empty() {
            found.notes.push(format!(
                "no probe of the load balancer of service {full_name}: loadBalancerSourceRanges \
                 admits some sources only"
            ));
            return;
        }
        if found.balanced.len() == MAX_HOSTS {
            found.notes.push(format!(
                "no probe of the load balancer of service {full_name}: a lab has at most \
                 {MAX_HOSTS} balancers"
            ));
            return;
        }
        let has_node_ports = service.ports.iter().all(|port| port.node_port.is_some());
        let balancer = short_name(format!("{namespace}.{name}"), number);
        found
            .balanced
            .insert(balancer, (full_name.clone(), has_node_ports));
        let to = format!("lb/{full_name}:{}", port.port);
        found.reachable.push(thing("load-balancer", OUTSIDE, to));
    }

    /// Returns the ready endpoints of a port, in the family of the first cluster IP. The error is
    /// an address that no pod or node has.
    fn endpoints(
        &'o self,
        service: &Service,
        port: &PortSpec,
    ) -> Result<Vec<Endpoint<'o>>, IpAddr> {
        let is_ipv4 = service.cluster_ips.first().is_none_or(IpAddr::is_ipv4);
        let own = self.slices.iter().filter(|slice| {
            let mut ports = slice.ports.iter();
            slice.belongs_to(service)
                && ports.any(|own| own.name == port.name && own.protocol == port.protocol)
        });
        let ready = own
            .flat_map(|slice| &slice.endpoints)
            .filter(|endpoint| endpoint.ready);
        let addresses = ready.flat_map(|endpoint| endpoint.addresses.iter().copied());
        addresses
            .filter(|address| address.is_ipv4() == is_ipv4)
            .map(|address| self.endpoint(address).ok_or(address))
            .collect()
    }

    /// Returns the pod or node with an address.
    fn endpoint(&'o self, address: IpAddr) -> Option<Endpoint<'o>> {
        let pod = self.pods.iter().find(|pod| pod.ips.contains(&address));
        let node = if let Some(pod) = pod {
            Some(pod.node.as_str())
        } else {
            let mut nodes = self.nodes.iter();
            let node = nodes.find(|(_, addresses)| addresses.contains(&address));
            node.map(|(name, _)| name.as_str())
        };
        Some(Endpoint { node: node?, pod })
    }

    /// Returns a pod that can connect to the cluster IP and is no endpoint, otherwise a node.
    fn client(&self, service: &Service, endpoints: &[Endpoint<'_>]) -> Option<String> {
        let can_connect = |node: &str| {
            !service.internal_local || endpoints.iter().any(|endpoint| endpoint.node == node)
        };
        let is_endpoint = |pod: &ImportedPod| {
            let mut pods = endpoints.iter().filter_map(|endpoint| endpoint.pod);
            pods.any(|own| own.reference() == pod.reference())
        };
        let mut pods = self.pods.iter();
        let pod = pods.find(|pod| !pod.host_network && can_connect(&pod.node) && !is_endpoint(pod));
        let mut nodes = self.nodes.iter().map(|(node, _)| node);
        pod.map(ImportedPod::reference)
            .or_else(|| nodes.find(|node| can_connect(node)).cloned())
    }
}
