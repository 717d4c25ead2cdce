//! Reads endpoint slices as kube-proxy does, in every mode: the endpoints of each service port in
//! one IP family.
//!
//! Follows kubernetes/kubernetes `pkg/proxy/endpointslicecache.go` (v1.19.2 to v1.36). For versions
//! that watch `Endpoints` objects, follows what the endpoints controller derives from the same
//! pods.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};

use k8s_openapi::api::discovery::v1 as discovery;

use super::KubeProxyError;
use super::family::Family;
use super::history::{
    ENDPOINTS_BY_IP, ENDPOINTS_OBJECTS, HEADLESS_LABEL, LABELS_APPLY_TO_BOTH, NODE_HINTS,
    TERMINATING_DUPLICATE_IGNORED, UNREADY_ENDPOINTS_KEPT,
};
use super::services::{HEADLESS, PROXY_NAME, Protocol, ServicePort};
use super::version::Version;

/// Label with the name of the service to which an endpoint slice belongs.
const SERVICE_LABEL: &str = "kubernetes.io/service-name";

/// Address and port that serve a service port.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "the conditions of an endpoint are independent"
)]
pub struct Endpoint {
    /// Address and port on which the endpoint listens.
    pub address: SocketAddr,
    /// Whether the endpoint is on this node.
    pub local: bool,
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

impl Endpoint {
    /// Returns the IP address without the port.
    #[must_use]
    pub fn ip(&self) -> IpAddr {
        self.address.ip()
    }
}

/// Endpoints of every service port, by namespace, service, port name and protocol.
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
    /// Reads `slices` as kube-proxy on the node named `node` does.
    ///
    /// # Errors
    ///
    /// Returns a [`KubeProxyError`] for an address or protocol that the API server rejects.
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
                && is_watched(slice, version)
                && slice.address_type == family.name()
            {
                map.add_slice(slice, service, node, version)?;
            }
        }
        for endpoints in map.by_port.values_mut() {
            if version.has(&ENDPOINTS_OBJECTS) {
                // If a port has several numbers, an `Endpoints` object has several subsets. Their
                // order follows from a hash that is not modelled.
                endpoints
                    .sort_by_key(|endpoint| (endpoint.ip().to_string(), endpoint.address.port()));
            } else {
                endpoints.sort_by_key(|endpoint| endpoint.address.to_string());
            }
        }
        Ok(map)
    }

    /// Returns the endpoints of `port`, in the order in which kube-proxy keeps them.
    #[must_use]
    pub fn get(&self, port: &ServicePort) -> &[Endpoint] {
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
        let invalid_field = |field, value: &str| KubeProxyError::EndpointSlice {
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
            let protocol = Protocol::from_name(port.protocol.as_deref()).ok_or_else(|| {
                invalid_field("protocol", port.protocol.as_deref().unwrap_or_default())
            })?;
            let key = Key {
                namespace: namespace.to_owned(),
                service: service.to_owned(),
                port: port.name.clone().unwrap_or_default(),
                protocol,
            };
            let endpoints = self.by_port.entry(key).or_default();
            for endpoint in slice.endpoints.as_deref().unwrap_or(&[]) {
                // kube-proxy ignores further addresses of an endpoint.
                let Some(text) = endpoint.addresses.first() else {
                    continue;
                };
                let ip: IpAddr = text.parse().map_err(|_| invalid_field("addresses", text))?;
                let endpoint = read_endpoint(endpoint, SocketAddr::new(ip, number), node, version);
                if endpoint.ready || version.has(&UNREADY_ENDPOINTS_KEPT) {
                    insert_endpoint(endpoints, endpoint, version);
                }
            }
        }
        Ok(())
    }
}

/// Whether kube-proxy watches a slice, by the labels of the slice or of the `Endpoints` object from
/// which the controller derives it.
fn is_watched(slice: &discovery::EndpointSlice, version: Version) -> bool {
    let labels = slice.metadata.labels.as_ref();
    let has_label = |label| labels.is_some_and(|labels| labels.contains_key(label));
    let is_headless = has_label(HEADLESS) && version.has(&HEADLESS_LABEL);
    let is_other_proxys = has_label(PROXY_NAME) && version.has(&LABELS_APPLY_TO_BOTH);
    !is_headless && !is_other_proxys
}

/// Adds an endpoint. If two endpoints have the same address, decides which one is kept. A
/// terminating pod and a new pod can share an address for a moment; pods in the host network always
/// do.
///
/// kube-proxy iterates over the slices of a service in the random order of a Go map. This function
/// is called in the order in which the slices are listed.
fn insert_endpoint(endpoints: &mut Vec<Endpoint>, endpoint: Endpoint, version: Version) {
    let by_ip = version.has(&ENDPOINTS_BY_IP);
    let duplicate = endpoints
        .iter_mut()
        .find(|k| k.address == endpoint.address || (by_ip && k.ip() == endpoint.ip()));
    let replaces = if version.has(&TERMINATING_DUPLICATE_IGNORED) {
        !endpoint.terminating
    } else {
        endpoint.local
    };
    match duplicate {
        None => endpoints.push(endpoint),
        Some(twin) if replaces => *twin = endpoint,
        Some(_) => {}
    }
}

fn read_endpoint(
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
    use serde_json::{Value, json};

    /// Returns the endpoints of `ns/svc` as `IP:port`, each with its readiness, of slices that
    /// contain one endpoint each.
    fn endpoints_of_slices(version: &str, endpoints: &[(u16, Value)]) -> Vec<(String, bool)> {
        let slices: Vec<discovery::EndpointSlice> = endpoints
            .iter()
            .map(|(port, endpoint)| {
                let slice = json!({
                    "metadata": {"namespace": "ns", "labels": {SERVICE_LABEL: "svc"}},
                    "addressType": "IPv4",
                    "ports": [{"name": "p", "port": port}],
                    "endpoints": [endpoint]
                });
                serde_json::from_value(slice).unwrap()
            })
            .collect();
        let version = version.parse().unwrap();
        let map = EndpointMap::new(&slices, "here", version, Family::V4).unwrap();
        map.by_port
            .values()
            .flatten()
            .map(|endpoint| (endpoint.address.to_string(), endpoint.ready))
            .collect()
    }

    fn endpoint(node: &str, ready: bool, terminating: bool) -> Value {
        json!({
            "addresses": ["10.244.1.5"],
            "nodeName": node,
            "conditions": {"ready": ready, "serving": true, "terminating": terminating}
        })
    }

    #[test]
    fn endpoint_map_duplicate_address_keeps_one_by_version() {
        let address = "10.244.1.5:8080".to_owned();
        let terminating = |node| (8080, endpoint(node, false, true));
        let ready_endpoint = |node| (8080, endpoint(node, true, false));
        for (version, node, twins, ready) in [
            (
                "v1.35",
                "here",
                [ready_endpoint("here"), terminating("here")],
                false,
            ),
            (
                "v1.36",
                "here",
                [ready_endpoint("here"), terminating("here")],
                true,
            ),
            (
                "v1.35",
                "there",
                [terminating("there"), ready_endpoint("there")],
                false,
            ),
            (
                "v1.36",
                "there",
                [terminating("there"), ready_endpoint("there")],
                true,
            ),
            (
                "v1.21",
                "there",
                [terminating("there"), ready_endpoint("there")],
                false,
            ),
            // Up to v1.20, unready endpoints are not kept.
            (
                "v1.20",
                "there",
                [terminating("there"), ready_endpoint("there")],
                true,
            ),
            (
                "v1.20",
                "here",
                [ready_endpoint("here"), terminating("here")],
                true,
            ),
            (
                "v1.18",
                "here",
                [ready_endpoint("here"), terminating("here")],
                true,
            ),
        ] {
            assert_eq!(
                endpoints_of_slices(version, &twins),
                [(address.clone(), ready)],
                "{version} {node}"
            );
        }
    }

    #[test]
    fn endpoint_map_1_19_to_1_21_merges_ports_of_one_ip() {
        let (first, second) = ("10.244.1.5:8080".to_owned(), "10.244.1.5:9090".to_owned());
        for (version, node, kept) in [
            ("v1.18", "there", vec![&first, &second]),
            ("v1.19", "there", vec![&first]),
            ("v1.21", "there", vec![&first]),
            ("v1.21", "here", vec![&second]),
            ("v1.22", "there", vec![&first, &second]),
        ] {
            let endpoint_on_port = |port| (port, endpoint(node, true, false));
            let found =
                endpoints_of_slices(version, &[endpoint_on_port(8080), endpoint_on_port(9090)]);
            let addresses: Vec<&String> = found.iter().map(|(address, _)| address).collect();
            assert_eq!(addresses, kept, "{version} {node}");
        }
    }

    #[test]
    fn endpoint_map_labelled_slice_is_ignored_by_version() {
        let is_watching = |version: &str, label: &str| {
            let slice = json!({
                "metadata": {"namespace": "ns", "labels": {SERVICE_LABEL: "svc", label: ""}},
                "addressType": "IPv4",
                "ports": [{"name": "p", "port": 8080}],
                "endpoints": [endpoint("here", true, false)]
            });
            let slices = [serde_json::from_value(slice).unwrap()];
            let version = version.parse().unwrap();
            let map = EndpointMap::new(&slices, "here", version, Family::V4).unwrap();
            !map.by_port.is_empty()
        };
        assert!(
            is_watching("v1.15", HEADLESS)
                && !is_watching("v1.16", HEADLESS)
                && !is_watching("v1.36", HEADLESS)
        );
        assert!(is_watching("v1.13", PROXY_NAME) && !is_watching("v1.14", PROXY_NAME));
        assert!(!is_watching("v1.35", PROXY_NAME) && is_watching("v1.36", PROXY_NAME));
    }
}
