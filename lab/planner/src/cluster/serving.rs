//! Determines the served ports. A pod serves the ports that its containers declare. A pod without
//! declared ports serves every port of its endpoints. A host serves the ports listed in the lab.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;

use k8s_openapi::api::core::v1 as core;
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointSlice};

use super::{Host, Node, Pod};
use svclab_model::plan::Protocol;
use svclab_scenario::endpoints::declared_ports;

/// A served port and the object that serves it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Serving {
    /// Network namespace of the server.
    pub netns: String,
    /// Port number.
    pub port: u16,
    /// Protocol: TCP or UDP.
    pub protocol: Protocol,
    /// Name of the server: `pod/default/web`, `node-1`, `laptop`.
    pub name: String,
}

/// Machines and pods that can serve ports.
pub(super) struct Machines<'a> {
    pub nodes: &'a [Node],
    pub pods: &'a [Pod],
    pub hosts: &'a [Host],
}

/// Returns all served ports, sorted.
pub(super) fn serving(
    machines: &Machines<'_>,
    objects: &[core::Pod],
    slices: &[EndpointSlice],
    host_ports: impl Iterator<Item = (String, u16)>,
) -> Vec<Serving> {
    let declared = declared(objects);
    let mut of_pods = Vec::new();
    let mut of_machines = Vec::new();
    for pod in machines.pods {
        let ports = declared.get(&pod.reference()).into_iter().flatten();
        let ports = ports.filter_map(|(port, protocol)| Some((*port, (*protocol)?)));
        of_pods.extend(ports.map(|port| (machines.netns(pod), port, pod.reference())));
    }
    for slice in slices {
        let ports = slice.ports.iter().flatten();
        let ports: Vec<u16> = ports
            .filter_map(|port| u16::try_from(port.port?).ok())
            .collect();
        let namespace = slice.metadata.namespace.as_deref().unwrap_or("default");
        for endpoint in slice.endpoints.iter().flatten() {
            for address in endpoint
                .addresses
                .iter()
                .filter_map(|text| text.parse().ok())
            {
                if let Some(pod) = machines.pod(namespace, endpoint, address) {
                    if !declared.contains_key(&pod.reference()) {
                        let all =
                            both(&ports).map(|port| (machines.netns(pod), port, pod.reference()));
                        of_pods.extend(all);
                    }
                } else if let Some(name) = machines.machine(address) {
                    of_machines.extend(both(&ports).map(|port| (name.clone(), port, name.clone())));
                }
            }
        }
    }
    for (host, port) in host_ports {
        of_machines.extend(both(&[port]).map(|port| (host.clone(), port, host.clone())));
    }
    // A pod on the host network and its node share the port; the pod answers.
    let mut all = BTreeMap::new();
    for (netns, port, name) in of_pods.into_iter().chain(of_machines) {
        all.entry((netns, port)).or_insert(name);
    }
    let all = all.into_iter();
    all.map(|((netns, (port, protocol)), name)| Serving {
        netns,
        port,
        protocol,
        name,
    })
    .collect()
}

/// Returns each port with TCP and with UDP.
fn both(ports: &[u16]) -> impl Iterator<Item = (u16, Protocol)> {
    let of = |port: &u16| [Protocol::Tcp, Protocol::Udp].map(|protocol| (*port, protocol));
    ports.iter().flat_map(of)
}

/// Returns the declared ports of each pod with any, by `pod/NAMESPACE/NAME`. The protocol is `None`
/// for protocols that svclab does not serve, such as SCTP.
fn declared(objects: &[core::Pod]) -> HashMap<String, Vec<(u16, Option<Protocol>)>> {
    let mut all = HashMap::new();
    for object in objects {
        let ports: Vec<_> = declared_ports(object)
            .filter_map(|(port, protocol)| {
                let protocol = match protocol {
                    "TCP" => Some(Protocol::Tcp),
                    "UDP" => Some(Protocol::Udp),
                    _ => None,
                };
                Some((u16::try_from(port).ok()?, protocol))
            })
            .collect();
        if !ports.is_empty() {
            let namespace = object.metadata.namespace.as_deref().unwrap_or("default");
            let name = object.metadata.name.as_deref().unwrap_or_default();
            all.insert(format!("pod/{namespace}/{name}"), ports);
        }
    }
    all
}

impl Machines<'_> {
    fn netns(&self, pod: &Pod) -> String {
        if pod.host_network {
            self.nodes[pod.node].name.clone()
        } else {
            pod.reference()
        }
    }

    /// Returns the pod with an endpoint's address. The pod that the endpoint refers to takes
    /// precedence over other pods outside the host network.
    fn pod(&self, namespace: &str, endpoint: &Endpoint, address: IpAddr) -> Option<&Pod> {
        let target = endpoint.target_ref.as_ref();
        let target = target.filter(|target| target.kind.as_deref() == Some("Pod"));
        let target = target.and_then(|target| target.name.as_deref());
        let is_meant = |pod: &&Pod| {
            Some(pod.name.as_str()) == target
                && pod.namespace == namespace
                && pod.ips.contains(&address)
        };
        let mut pods = self.pods.iter();
        self.pods
            .iter()
            .find(is_meant)
            .or_else(|| pods.find(|pod| !pod.host_network && pod.ips.contains(&address)))
    }

    /// Returns the name of the node or host with an address.
    fn machine(&self, address: IpAddr) -> Option<String> {
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
