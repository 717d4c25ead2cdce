//! Determines the served ports. A pod serves the ports that its containers declare. A pod without
//! declared ports serves every port of its endpoints. A host serves the ports listed in the lab.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;

use k8s_openapi::api::core::v1 as core;

use super::{Host, Node, Pod};
use svclab_model::plan::ProbeProtocol;
use svclab_rules::objects::{EndpointSlice, SliceEndpoint};
use svclab_scenario::endpoints::declared_ports;

/// A served port and the object that serves it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ServedPort {
    /// Network namespace of the server.
    pub netns: String,
    /// Port number.
    pub port: u16,
    /// Protocol: TCP or UDP.
    pub protocol: ProbeProtocol,
    /// Name of the server: `pod/default/web`, `node-1`, `laptop`.
    pub name: String,
}

/// Machines and pods that can serve ports.
pub(super) struct ServerCandidates<'a> {
    pub nodes: &'a [Node],
    pub pods: &'a [Pod],
    pub hosts: &'a [Host],
}

/// Returns all served ports, sorted.
pub(super) fn served_ports(
    machines: &ServerCandidates<'_>,
    objects: &[core::Pod],
    slices: &[EndpointSlice],
    host_ports: impl Iterator<Item = (String, u16)>,
) -> Vec<ServedPort> {
    let declared = declared_pod_ports(objects);
    let mut pod_ports = Vec::new();
    let mut machine_ports = Vec::new();
    for pod in machines.pods {
        let ports = declared.get(&pod.reference()).into_iter().flatten();
        let ports = ports.filter_map(|(port, protocol)| Some((*port, (*protocol)?)));
        pod_ports.extend(ports.map(|port| (machines.netns(pod), port, pod.reference())));
    }
    for slice in slices {
        let ports: Vec<u16> = slice.ports.iter().map(|port| port.port).collect();
        for endpoint in &slice.endpoints {
            for address in endpoint.addresses.iter().copied() {
                if let Some(pod) = machines.pod_at(&slice.namespace, endpoint, address) {
                    if !declared.contains_key(&pod.reference()) {
                        let endpoint_ports = with_both_protocols(&ports)
                            .map(|port| (machines.netns(pod), port, pod.reference()));
                        pod_ports.extend(endpoint_ports);
                    }
                } else if let Some(name) = machines.machine_at(address) {
                    machine_ports.extend(
                        with_both_protocols(&ports).map(|port| (name.clone(), port, name.clone())),
                    );
                }
            }
        }
    }
    for (host, port) in host_ports {
        machine_ports
            .extend(with_both_protocols(&[port]).map(|port| (host.clone(), port, host.clone())));
    }
    // A pod on the host network and its node share the port; the pod answers.
    let mut names_by_port = BTreeMap::new();
    for (netns, port, name) in pod_ports.into_iter().chain(machine_ports) {
        names_by_port.entry((netns, port)).or_insert(name);
    }
    let ports = names_by_port.into_iter();
    ports
        .map(|((netns, (port, protocol)), name)| ServedPort {
            netns,
            port,
            protocol,
            name,
        })
        .collect()
}

/// Returns each port with TCP and with UDP.
fn with_both_protocols(ports: &[u16]) -> impl Iterator<Item = (u16, ProbeProtocol)> {
    let both_protocols =
        |port: &u16| [ProbeProtocol::Tcp, ProbeProtocol::Udp].map(|protocol| (*port, protocol));
    ports.iter().flat_map(both_protocols)
}

/// Returns the declared ports of each pod with any, by `pod/NAMESPACE/NAME`. The protocol is `None`
/// for protocols that svclab does not serve, such as SCTP.
fn declared_pod_ports(objects: &[core::Pod]) -> HashMap<String, Vec<(u16, Option<ProbeProtocol>)>> {
    let mut ports_by_pod = HashMap::new();
    for object in objects {
        let ports: Vec<_> = declared_ports(object)
            .filter_map(|(port, protocol)| {
                let protocol = match protocol {
                    "TCP" => Some(ProbeProtocol::Tcp),
                    "UDP" => Some(ProbeProtocol::Udp),
                    _ => None,
                };
                Some((u16::try_from(port).ok()?, protocol))
            })
            .collect();
        if !ports.is_empty() {
            let namespace = object.metadata.namespace.as_deref().unwrap_or("default");
            let name = object.metadata.name.as_deref().unwrap_or_default();
            ports_by_pod.insert(format!("pod/{namespace}/{name}"), ports);
        }
    }
    ports_by_pod
}

impl ServerCandidates<'_> {
    fn netns(&self, pod: &Pod) -> String {
        if pod.host_network {
            self.nodes[pod.node].name.clone()
        } else {
            pod.reference()
        }
    }

    /// Returns the pod with an endpoint's address. The pod that the endpoint refers to takes
    /// precedence over other pods outside the host network.
    fn pod_at(&self, namespace: &str, endpoint: &SliceEndpoint, address: IpAddr) -> Option<&Pod> {
        let is_target = |pod: &&Pod| {
            Some(&pod.name) == endpoint.pod.as_ref()
                && pod.namespace == namespace
                && pod.ips.contains(&address)
        };
        let mut pods = self.pods.iter();
        self.pods
            .iter()
            .find(is_target)
            .or_else(|| pods.find(|pod| !pod.host_network && pod.ips.contains(&address)))
    }

    /// Returns the name of the node or host with an address.
    fn machine_at(&self, address: IpAddr) -> Option<String> {
        let node = self
            .nodes
            .iter()
            .find(|node| node.addresses.iter().any(|own| own.ip() == address));
        let host = self.hosts.iter().find(|host| host.address.ip() == address);
        node.map(|node| &node.name)
            .or(host.map(|host| &host.name))
            .cloned()
    }
}
