//! kube-proxy's view of endpoints: those of one service port in one IP family,
//! and which of them serve whose traffic. The same for every mode.
//!
//! Follows kubernetes/kubernetes `pkg/proxy/endpointslicecache.go` (v1.19.2 to
//! v1.36) and, for versions that watched `Endpoints` objects, what the
//! endpoints controller makes of the same pods.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};

use k8s_openapi::api::discovery::v1 as discovery;

use super::KubeProxyError;
use super::family::Family;
use super::services::{Protocol, ServicePort};
use super::version::{ENDPOINTS_OBJECTS, NODE_HINTS, UNREADY_ENDPOINTS_KEPT, Version};

/// The label by which an endpoint slice names its service.
const SERVICE_LABEL: &str = "kubernetes.io/service-name";

/// One address and port that serves a service port.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "the conditions of an endpoint vary independently of each other"
)]
pub struct Endpoint {
    /// Where it listens.
    pub address: SocketAddr,
    /// Whether it is on this node.
    pub local: bool,
    /// Whether it takes traffic.
    pub ready: bool,
    /// Whether it would take traffic, were it not terminating.
    pub serving: bool,
    /// Whether its pod is going away.
    pub terminating: bool,
    /// The zones that should prefer it.
    pub zone_hints: Vec<String>,
    /// The nodes that should prefer it.
    pub node_hints: Vec<String>,
}

impl Endpoint {
    /// Its address without the port.
    #[must_use]
    pub fn ip(&self) -> IpAddr {
        self.address.ip()
    }
}

/// The endpoints of every service port, by what names them.
#[derive(Debug, Default)]
pub struct EndpointMap {
    by_port: HashMap<Key, Vec<Endpoint>>,
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Key {
    namespace: String,
    service: String,
    port: String,
    protocol: Protocol,
}

impl EndpointMap {
    /// Reads `slices` as kube-proxy on the node called `node` does.
    ///
    /// # Errors
    ///
    /// An address or protocol that the API server would not have accepted.
    pub fn new(
        slices: &[discovery::EndpointSlice],
        node: &str,
        version: Version,
        family: Family,
    ) -> Result<Self, KubeProxyError> {
        let mut map = Self::default();
        for slice in slices {
            let labels = slice.metadata.labels.as_ref();
            let service = labels.and_then(|labels| labels.get(SERVICE_LABEL));
            if let Some(service) = service
                && slice.address_type == family.name()
            {
                map.add_slice(slice, service, node, version)?;
            }
        }
        for endpoints in map.by_port.values_mut() {
            if version.has(&ENDPOINTS_OBJECTS) {
                endpoints
                    .sort_by_key(|endpoint| (endpoint.ip().to_string(), endpoint.address.port()));
            } else {
                endpoints.sort_by_key(|endpoint| endpoint.address.to_string());
            }
        }
        Ok(map)
    }

    /// The endpoints of `port`, in the order kube-proxy keeps them in.
    #[must_use]
    pub fn of(&self, port: &ServicePort) -> &[Endpoint] {
        let key = Key {
            namespace: port.namespace.clone(),
            service: port.service.clone(),
            port: port.port_name.clone(),
            protocol: port.protocol,
        };
        self.by_port.get(&key).map_or(&[], Vec::as_slice)
    }

    fn add_slice(
        &mut self,
        slice: &discovery::EndpointSlice,
        service: &str,
        node: &str,
        version: Version,
    ) -> Result<(), KubeProxyError> {
        let namespace = slice.metadata.namespace.as_deref().unwrap_or("default");
        let wrong = |field, value: &str| KubeProxyError::EndpointSlice {
            slice: format!(
                "{namespace}/{}",
                slice.metadata.name.as_deref().unwrap_or_default()
            ),
            field,
            value: value.to_owned(),
        };
        for port in slice.ports.as_deref().unwrap_or(&[]) {
            let Some(number) = port.port.and_then(|n| u16::try_from(n).ok()) else {
                continue;
            };
            let protocol = Protocol::of(port.protocol.as_deref())
                .ok_or_else(|| wrong("protocol", port.protocol.as_deref().unwrap_or_default()))?;
            let key = Key {
                namespace: namespace.to_owned(),
                service: service.to_owned(),
                port: port.name.clone().unwrap_or_default(),
                protocol,
            };
            let known = self.by_port.entry(key).or_default();
            for endpoint in slice.endpoints.as_deref().unwrap_or(&[]) {
                // Further addresses of one endpoint have no meaning for
                // kube-proxy.
                let Some(text) = endpoint.addresses.first() else {
                    continue;
                };
                let ip: IpAddr = text.parse().map_err(|_| wrong("addresses", text))?;
                let endpoint = read(endpoint, SocketAddr::new(ip, number), node, version);
                // Not seen, so that it takes no other slice's place either.
                if endpoint.ready || version.has(&UNREADY_ENDPOINTS_KEPT) {
                    add(known, endpoint);
                }
            }
        }
        Ok(())
    }
}

/// Adds an endpoint unless its address is known already. Two pods can share an
/// address for a moment, one going and one come: the one that stays is kept.
fn add(known: &mut Vec<Endpoint>, endpoint: Endpoint) {
    match known.iter_mut().find(|k| k.address == endpoint.address) {
        None => known.push(endpoint),
        Some(same) if !endpoint.terminating => *same = endpoint,
        Some(_) => {}
    }
}

fn read(
    endpoint: &discovery::Endpoint,
    address: SocketAddr,
    node: &str,
    version: Version,
) -> Endpoint {
    let conditions = endpoint.conditions.as_ref();
    let hints = endpoint.hints.as_ref();
    let zones = hints.and_then(|hints| hints.for_zones.as_deref());
    let nodes = hints
        .filter(|_| version.has(&NODE_HINTS))
        .and_then(|hints| hints.for_nodes.as_deref());
    Endpoint {
        address,
        local: endpoint.node_name.as_deref() == Some(node),
        ready: conditions.and_then(|c| c.ready).unwrap_or(true),
        serving: conditions.and_then(|c| c.serving).unwrap_or(true),
        terminating: conditions.and_then(|c| c.terminating).unwrap_or(false),
        zone_hints: zones
            .unwrap_or(&[])
            .iter()
            .map(|zone| zone.name.clone())
            .collect(),
        node_hints: nodes
            .unwrap_or(&[])
            .iter()
            .map(|node| node.name.clone())
            .collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn readiness(version: &str, slices: &[Option<bool>]) -> Vec<bool> {
        let slices: Vec<discovery::EndpointSlice> = slices
            .iter()
            .map(|ready| {
                let slice = json!({
                    "metadata": {"namespace": "ns", "labels": {SERVICE_LABEL: "svc"}},
                    "addressType": "IPv4",
                    "ports": [{"name": "p", "port": 80, "protocol": "TCP"}],
                    "endpoints": [{"addresses": ["10.0.0.1"], "conditions": {"ready": ready}}],
                });
                serde_json::from_value(slice).unwrap()
            })
            .collect();
        let version = version.parse().unwrap();
        let map = EndpointMap::new(&slices, "node", version, Family::V4).unwrap();
        let endpoints = map.by_port.into_values().flatten();
        endpoints.map(|endpoint| endpoint.ready).collect()
    }

    /// What a kube-proxy 1.20.2 was found to do.
    #[test]
    fn up_to_v1_20_an_endpoint_that_any_slice_has_as_ready_is_ready() {
        for version in ["v1.18", "v1.20"] {
            for order in [[Some(true), Some(false)], [Some(false), Some(true)]] {
                assert_eq!(readiness(version, &order), [true], "{version}");
            }
            assert!(readiness(version, &[Some(false)]).is_empty(), "{version}");
            assert_eq!(readiness(version, &[None]), [true], "{version}");
        }
        assert_eq!(readiness("v1.21", &[Some(false)]), [false]);
    }
}
