//! Converts endpoint slices.

use std::net::IpAddr;

use k8s_openapi::api::discovery::v1 as discovery;
use serde::Deserialize;

use super::{FieldReader, InvalidField, ProxyLabels, Service, name_of, namespace_of};
use svclab_ruleset::{Family, Protocol};

/// Label with the name of the service to which an endpoint slice belongs.
pub const SERVICE_NAME: &str = "kubernetes.io/service-name";

/// Endpoint slice.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(from = "discovery::EndpointSlice")]
pub struct EndpointSlice {
    /// Kubernetes namespace.
    pub namespace: String,
    /// Name of the object.
    pub name: String,
    /// Name of the service to which the slice belongs; `None` without the label [`SERVICE_NAME`].
    pub service: Option<String>,
    /// Labels of slices that some versions of kube-proxy do not watch.
    pub labels: ProxyLabels,
    /// Family of the addresses; `None` if the slice contains names.
    pub family: Option<Family>,
    /// Ports of all endpoints; a port without a number is omitted.
    pub ports: Vec<EndpointPort>,
    /// Endpoints of the slice.
    pub endpoints: Vec<SliceEndpoint>,
    /// First invalid field; `None` if all are valid.
    pub invalid: Option<InvalidField>,
}

/// Port of an endpoint slice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EndpointPort {
    /// Name of the service port; empty if it has none.
    pub name: String,
    /// Transport protocol.
    pub protocol: Protocol,
    /// Port number of the endpoints.
    pub port: u16,
}

/// Endpoint of a slice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SliceEndpoint {
    /// Addresses of the endpoint.
    pub addresses: Vec<IpAddr>,
    /// Name of the node on which the endpoint runs.
    pub node: Option<String>,
    /// Name of the pod to which the endpoint refers.
    pub pod: Option<String>,
    /// Condition `ready`: whether the endpoint receives traffic.
    pub ready: bool,
    /// Condition `serving`: whether the endpoint could receive traffic if it were not terminating.
    pub serving: bool,
    /// Condition `terminating`: whether the pod is terminating.
    pub terminating: bool,
    /// Zones that should prefer the endpoint.
    pub zone_hints: Vec<String>,
    /// Nodes that should prefer the endpoint.
    pub node_hints: Vec<String>,
}

impl EndpointSlice {
    /// Whether the slice belongs to a service.
    #[must_use]
    pub fn belongs_to(&self, service: &Service) -> bool {
        self.namespace == service.namespace && self.service.as_ref() == Some(&service.name)
    }

    /// Returns the numbers of the ports with a name.
    pub fn port_numbers<'s>(&'s self, name: &'s str) -> impl Iterator<Item = u16> + 's {
        let ports = self.ports.iter().filter(move |port| port.name == name);
        ports.map(|port| port.port)
    }
}

impl From<discovery::EndpointSlice> for EndpointSlice {
    fn from(object: discovery::EndpointSlice) -> Self {
        Self::from(&object)
    }
}

impl From<&discovery::EndpointSlice> for EndpointSlice {
    fn from(object: &discovery::EndpointSlice) -> Self {
        let mut reader = FieldReader::default();
        let families = [Family::V4, Family::V6];
        let family = families
            .into_iter()
            .find(|family| family.name() == object.address_type);
        let mut ports = Vec::new();
        for port in object.ports.iter().flatten() {
            if let Some(number) = port.port.and_then(|number| u16::try_from(number).ok())
                && let Some(protocol) = reader.protocol(port.protocol.as_deref())
            {
                ports.push(EndpointPort {
                    name: port.name.clone().unwrap_or_default(),
                    protocol,
                    port: number,
                });
            }
        }
        let endpoints = object.endpoints.iter().flatten();
        let endpoints = endpoints
            .map(|endpoint| read_endpoint(endpoint, family, &mut reader))
            .collect();
        let labels = object.metadata.labels.as_ref();
        Self {
            namespace: namespace_of(&object.metadata),
            name: name_of(&object.metadata),
            service: labels.and_then(|labels| labels.get(SERVICE_NAME).cloned()),
            labels: ProxyLabels::new(&object.metadata),
            family,
            ports,
            endpoints,
            invalid: reader.invalid,
        }
    }
}

fn read_endpoint(
    endpoint: &discovery::Endpoint,
    family: Option<Family>,
    reader: &mut FieldReader,
) -> SliceEndpoint {
    // kube-proxy ignores further addresses of an endpoint.
    if let Some(first) = endpoint.addresses.first().filter(|_| family.is_some()) {
        reader.parse::<IpAddr>("addresses", first);
    }
    let target = endpoint.target_ref.as_ref();
    let pod = target.filter(|target| target.kind.as_deref() == Some("Pod"));
    let conditions = endpoint.conditions.as_ref();
    let hints = endpoint.hints.as_ref();
    let zones = hints.and_then(|hints| hints.for_zones.as_deref());
    let nodes = hints.and_then(|hints| hints.for_nodes.as_deref());
    SliceEndpoint {
        addresses: endpoint
            .addresses
            .iter()
            .filter_map(|text| text.parse().ok())
            .collect(),
        node: endpoint.node_name.clone(),
        pod: pod.and_then(|target| target.name.clone()),
        ready: conditions.and_then(|c| c.ready).unwrap_or(true),
        serving: conditions.and_then(|c| c.serving).unwrap_or(true),
        terminating: conditions.and_then(|c| c.terminating).unwrap_or(false),
        zone_hints: zones
            .unwrap_or_default()
            .iter()
            .map(|zone| zone.name.clone())
            .collect(),
        node_hints: nodes
            .unwrap_or_default()
            .iter()
            .map(|node| node.name.clone())
            .collect(),
    }
}
