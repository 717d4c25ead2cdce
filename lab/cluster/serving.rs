//! Who serves which port: every port of a pod's containers, every port that an
//! endpoint sends traffic to, and every port a host names.

use std::collections::BTreeSet;
use std::net::IpAddr;

use k8s_openapi::api::core::v1 as core;
use k8s_openapi::api::discovery::v1::EndpointSlice;

use super::{Host, Node, Pod};

/// A port and who answers on it, over TCP and UDP alike.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Serving {
    /// The network namespace.
    pub netns: String,
    /// The port.
    pub port: u16,
    /// Who: `pod/default/web`, `node-1`, `laptop`.
    pub name: String,
}

/// What is needed to know who serves.
pub(super) struct Machines<'a> {
    pub nodes: &'a [Node],
    pub pods: &'a [Pod],
    pub hosts: &'a [Host],
}

/// Every port that somebody serves, sorted.
pub(super) fn serving(
    machines: &Machines<'_>,
    objects: &[core::Pod],
    slices: &[EndpointSlice],
    host_ports: impl Iterator<Item = (String, u16)>,
) -> Vec<Serving> {
    let mut all = BTreeSet::new();
    for pod in machines.pods {
        for port in container_ports(pod, objects) {
            all.insert(Serving {
                netns: machines.netns(pod),
                port,
                name: pod.reference(),
            });
        }
    }
    for slice in slices {
        let ports: Vec<u16> = slice
            .ports
            .iter()
            .flatten()
            .filter_map(|port| u16::try_from(port.port?).ok())
            .collect();
        for address in slice
            .endpoints
            .iter()
            .flatten()
            .flat_map(|endpoint| &endpoint.addresses)
        {
            let Some((netns, name)) = address
                .parse()
                .ok()
                .and_then(|address| machines.owner(address))
            else {
                continue;
            };
            all.extend(ports.iter().map(|port| Serving {
                netns: netns.clone(),
                port: *port,
                name: name.clone(),
            }));
        }
    }
    all.extend(host_ports.map(|(host, port)| Serving {
        netns: host.clone(),
        port,
        name: host,
    }));
    // A host-network pod and its node share the port; the pod is who answers.
    let pods: BTreeSet<(String, u16)> = all
        .iter()
        .filter(|serving| serving.name.starts_with("pod/"))
        .map(|serving| (serving.netns.clone(), serving.port))
        .collect();
    all.into_iter()
        .filter(|serving| {
            serving.name.starts_with("pod/")
                || !pods.contains(&(serving.netns.clone(), serving.port))
        })
        .collect()
}

impl Machines<'_> {
    fn netns(&self, pod: &Pod) -> String {
        if pod.host_network {
            self.nodes[pod.node].name.clone()
        } else {
            pod.reference()
        }
    }

    /// The namespace and the name of who has an address: a pod before its node.
    fn owner(&self, address: IpAddr) -> Option<(String, String)> {
        let pod = self
            .pods
            .iter()
            .find(|pod| !pod.host_network && pod.ips.contains(&address));
        if let Some(pod) = pod {
            return Some((self.netns(pod), pod.reference()));
        }
        let node = self
            .nodes
            .iter()
            .find(|node| node.addresses.iter().any(|own| own.ip() == address));
        let host = self.hosts.iter().find(|host| host.address.ip() == address);
        node.map(|node| &node.name)
            .or(host.map(|host| &host.name))
            .map(|name| (name.clone(), name.clone()))
    }
}

fn container_ports(pod: &Pod, objects: &[core::Pod]) -> Vec<u16> {
    objects
        .iter()
        .filter(|object| {
            object.metadata.name.as_ref() == Some(&pod.name)
                && object.metadata.namespace.as_deref().unwrap_or("default") == pod.namespace
        })
        .filter_map(|object| object.spec.as_ref())
        .flat_map(|spec| &spec.containers)
        .flat_map(|container| container.ports.iter().flatten())
        .filter_map(|port| u16::try_from(port.container_port).ok())
        .collect()
}
