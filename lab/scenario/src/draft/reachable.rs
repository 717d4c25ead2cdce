//! Finds what is reachable in a cluster: each port of a service with endpoints, by its cluster IPs,
//! its node port, its external IPs and its load balancer.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use super::objects::ImportedPod;
use crate::check::limits::{MAX_HOSTS, MAX_NAME, MAX_PROBES};
use crate::lab::{BalancerTarget, HealthCheck, LoadBalancerSpec};
use crate::objects::{Object, Objects, internal_addresses};
use k8s_openapi::api::core::v1::Node;
use svclab_rules::objects::{EndpointSlice, PortSpec, Service, ServiceType};
use svclab_ruleset::{Family, Protocol};

/// Label of nodes that load balancers do not use (Kubernetes v1.36, `staging/src/k8s.io/api/core/v1/
/// well_known_labels.go`, `LabelNodeExcludeBalancers`).
const EXCLUDED: &str = "node.kubernetes.io/exclude-from-external-load-balancers";

/// Returns the name of the host outside the cluster with an address of a family.
pub(super) fn outside(family: Family) -> &'static str {
    match family {
        Family::V4 => "outside",
        Family::V6 => "outside-ipv6",
    }
}

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
    /// Load balancers by name.
    pub balanced: BTreeMap<String, LoadBalancerSpec>,
    /// Nodes to which the fabric routes external IPs.
    pub routes: BTreeMap<IpAddr, String>,
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
        backends: backends(objects),
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

/// Returns the nodes without the label that excludes them from load balancers (cloud-provider
/// v0.31.0, `controllers/service/controller.go`, `nodeIncludedPredicate`). `None` if that are all or
/// none: a cluster with a single node can have the label and a balancer that ignores it.
fn backends(objects: &Objects) -> Option<Vec<String>> {
    let is_excluded = |node: &&Object<Node>| {
        let mut labels = node.value.metadata.labels.iter().flatten();
        labels.any(|(label, _)| label == EXCLUDED)
    };
    let nodes = objects.nodes.iter();
    let included: Vec<String> = nodes
        .filter(|node| !is_excluded(node))
        .map(|node| node.name.clone())
        .collect();
    let is_some = !included.is_empty() && included.len() < objects.nodes.len();
    is_some.then_some(included)
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
    /// Nodes that load balancers use; `None` for all.
    backends: Option<Vec<String>>,
}

/// Endpoint of a service that exists in the lab.
struct Endpoint<'o> {
    /// Node of the endpoint.
    node: &'o str,
    /// Pod of the endpoint; `None` for a node.
    pod: Option<&'o ImportedPod>,
}

/// Port of a service, reached by addresses of one family.
struct FamilyPort<'s, 'o> {
    service: &'s Service,
    port: &'s PortSpec,
    family: Family,
    /// Whether the family is that of the first cluster IP.
    is_first: bool,
    endpoints: Vec<Endpoint<'o>>,
}

impl FamilyPort<'_, '_> {
    /// Adds a probe of the port.
    fn add(&self, kind: &str, from: &str, to: String, found: &mut Things) {
        let Service {
            namespace, name, ..
        } = self.service;
        let is_udp = self.port.protocol == Protocol::Udp;
        let protocol = if is_udp { "-udp" } else { "" };
        let family = match self.family {
            _ if self.is_first => "",
            Family::V4 => "-ipv4",
            Family::V6 => "-ipv6",
        };
        let port = self.port.port;
        let name = format!("{kind}.{namespace}.{name}.{port}{protocol}{family}");
        found.reachable.push(ReachableThing {
            name: short_name(name, found.reachable.len() + 1),
            from: from.to_owned(),
            to,
            is_udp,
        });
    }

    /// Adds a note that a way to the port has no probe.
    fn skip(&self, reason: &str, found: &mut Things) {
        found.notes.push(format!(
            "no probe of port {} of service {}: {reason}",
            self.port.port,
            self.service.full_name()
        ));
    }

    /// Whether the node answers clients outside the cluster.
    fn can_answer(&self, node: &str) -> bool {
        !self.service.external_local || self.has_endpoint_on(node)
    }

    fn has_endpoint_on(&self, node: &str) -> bool {
        self.endpoints.iter().any(|endpoint| endpoint.node == node)
    }
}

impl<'o> Finder<'o> {
    /// Adds the things of one port of a service.
    fn add_port(&'o self, service: &Service, port: &PortSpec, found: &mut Things) {
        for (index, address) in service.cluster_ips.iter().enumerate() {
            let family = Family::from_ip(*address);
            let mut reached = FamilyPort {
                service,
                port,
                family,
                is_first: index == 0,
                endpoints: Vec::new(),
            };
            if port.protocol == Protocol::Sctp {
                return reached.skip("svclab does not send SCTP", found);
            }
            match self.endpoints(service, port, family) {
                Ok(endpoints) => reached.endpoints = endpoints,
                Err(address) => {
                    let reason =
                        format!("its endpoint {address} is no pod or node among the objects");
                    reached.skip(&reason, found);
                    continue;
                }
            }
            if reached.endpoints.is_empty() {
                let reason = if index == 0 {
                    "it has no ready endpoint".to_owned()
                } else {
                    format!("it has no ready endpoint of {}", family.name())
                };
                reached.skip(&reason, found);
                continue;
            }
            self.add_cluster_ip(&reached, *address, found);
            self.add_node_port(&reached, found);
            self.add_external_ips(&reached, found);
            self.add_load_balancer(&reached, found);
        }
    }

    fn add_cluster_ip(&self, port: &FamilyPort<'_, '_>, address: IpAddr, found: &mut Things) {
        let Some(client) = self.client(port) else {
            return port.skip("no pod or node can be its client", found);
        };
        let number = port.port.port;
        let to = if port.is_first {
            format!("service/{}:{number}", port.service.full_name())
        } else {
            SocketAddr::new(address, number).to_string()
        };
        port.add("cluster-ip", &client, to, found);
    }

    fn add_node_port(&self, port: &FamilyPort<'_, '_>, found: &mut Things) {
        let Some(node_port) = port.port.node_port else {
            return;
        };
        let is_of_family = |address: &&IpAddr| Family::from_ip(**address) == port.family;
        let node = self.nodes.iter().find_map(|(node, addresses)| {
            let address = addresses.iter().find(is_of_family)?;
            port.can_answer(node)
                .then_some((node, address, addresses.first() == Some(address)))
        });
        let Some((node, address, is_first)) = node else {
            let family = port.family.name();
            return port.skip(&format!("no node can answer on {family}"), found);
        };
        let to = if is_first {
            format!("{node}:{node_port}")
        } else {
            SocketAddr::new(*address, node_port).to_string()
        };
        port.add("node-port", outside(port.family), to, found);
    }

    /// Adds the external IPs of the family. The fabric routes each to a node that answers.
    fn add_external_ips(&self, port: &FamilyPort<'_, '_>, found: &mut Things) {
        let addresses = port.service.external_ips.iter();
        let addresses = addresses.filter(|address| Family::from_ip(**address) == port.family);
        for (index, address) in addresses.enumerate() {
            let owner = self.node_with(*address);
            let target = owner.or(found.routes.get(address).map(String::as_str));
            if target.is_some_and(|node| !port.can_answer(node)) {
                let reason = format!("the node of external IP {address} has no endpoint");
                port.skip(&reason, found);
                continue;
            }
            if target.is_none() {
                let mut nodes = self.nodes.iter();
                let Some((node, _)) = nodes.find(|(node, _)| port.can_answer(node)) else {
                    port.skip("no node can answer on an external IP", found);
                    continue;
                };
                found.routes.insert(*address, node.clone());
            }
            let kind = match index {
                0 => "external-ip".to_owned(),
                _ => format!("external-ip-{}", index + 1),
            };
            let to = SocketAddr::new(*address, port.port.port).to_string();
            port.add(&kind, outside(port.family), to, found);
        }
    }

    fn add_load_balancer(&self, port: &FamilyPort<'_, '_>, found: &mut Things) {
        let service = port.service;
        let full_name = service.full_name();
        let mut addresses = service.ingress.iter().map(|ingress| ingress.ip);
        let Some(address) = addresses.find(|address| Family::from_ip(*address) == port.family)
        else {
            return;
        };
        let mut skip = |reason: String| {
            let note = format!("no probe of the load balancer of service {full_name}: {reason}");
            if !found.notes.contains(&note) {
                found.notes.push(note);
            }
        };
        if !service.source_ranges.is_empty() {
            return skip("loadBalancerSourceRanges admits some sources only".to_owned());
        }
        // The ServiceLB of k3s and others publish addresses of nodes.
        if let Some(node) = self.node_with(address) {
            if !port.can_answer(node) {
                return skip(format!("{node}, which has its address, has no endpoint"));
            }
            let to = SocketAddr::new(address, port.port.port).to_string();
            return port.add("load-balancer", outside(port.family), to, found);
        }
        let mut known = found.balanced.values();
        let is_known = known.any(|balancer| balancer.service == full_name);
        if !is_known && found.balanced.len() == MAX_HOSTS {
            return skip(format!("a lab has at most {MAX_HOSTS} balancers"));
        }
        let mut node_addresses = self.nodes.iter().flat_map(|(_, addresses)| addresses);
        let has_ipv6 = node_addresses.any(IpAddr::is_ipv6);
        if !has_ipv6 && service.ingress.iter().any(|ingress| ingress.ip.is_ipv6()) {
            return skip("it has an IPv6 address, but no node has one".to_owned());
        }
        if !is_known {
            let mut spec = LoadBalancerSpec::new(full_name.clone());
            if service.ports.iter().any(|port| port.node_port.is_none()) {
                spec.target = BalancerTarget::Pods;
            } else {
                spec.backends.clone_from(&self.backends);
                // Without health checks, the balancer uses nodes without endpoints.
                let has_port = service.health_check_node_port.is_some();
                spec.health_check = (service.external_local && has_port).then(HealthCheck::default);
            }
            let name = format!("{}.{}", service.namespace, service.name);
            let balancer = short_name(name, found.reachable.len() + 1);
            found.balanced.insert(balancer, spec);
        }
        // The name of a balancer means its first address.
        let to = if service.ingress[0].ip == address {
            format!("lb/{full_name}:{}", port.port.port)
        } else {
            SocketAddr::new(address, port.port.port).to_string()
        };
        port.add("load-balancer", outside(port.family), to, found);
    }

    /// Returns the ready endpoints of a port in a family. The error is an address that no pod or
    /// node has.
    fn endpoints(
        &'o self,
        service: &Service,
        port: &PortSpec,
        family: Family,
    ) -> Result<Vec<Endpoint<'o>>, IpAddr> {
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
            .filter(|address| Family::from_ip(*address) == family)
            .map(|address| self.endpoint(address).ok_or(address))
            .collect()
    }

    /// Returns the pod or node with an address.
    fn endpoint(&'o self, address: IpAddr) -> Option<Endpoint<'o>> {
        let pod = self.pods.iter().find(|pod| pod.ips.contains(&address));
        let own = pod.map(|pod| pod.node.as_str());
        let node = own.or_else(|| self.node_with(address))?;
        Some(Endpoint { node, pod })
    }

    fn node_with(&self, address: IpAddr) -> Option<&str> {
        let mut nodes = self.nodes.iter();
        let (node, _) = nodes.find(|(_, own)| own.contains(&address))?;
        Some(node)
    }

    /// Returns a pod that can connect to the cluster IP and is no endpoint, otherwise a node.
    fn client(&self, port: &FamilyPort<'_, '_>) -> Option<String> {
        let can_connect = |node: &str, addresses: &[IpAddr]| {
            let mut families = addresses.iter().map(|address| Family::from_ip(*address));
            families.any(|family| family == port.family)
                && (!port.service.internal_local || port.has_endpoint_on(node))
        };
        let is_endpoint = |pod: &ImportedPod| {
            let mut pods = port.endpoints.iter().filter_map(|endpoint| endpoint.pod);
            pods.any(|own| own.reference() == pod.reference())
        };
        let mut pods = self.pods.iter();
        let pod = pods
            .find(|pod| !pod.host_network && can_connect(&pod.node, &pod.ips) && !is_endpoint(pod));
        let mut nodes = self.nodes.iter();
        pod.map(ImportedPod::reference).or_else(|| {
            let node = nodes.find(|(node, addresses)| can_connect(node, addresses))?;
            Some(node.0.clone())
        })
    }
}
