//! Reads endpoint slices as kube-proxy does, in every mode: the endpoints of each service port in
//! one IP family.
//!
//! Follows kubernetes/kubernetes `pkg/proxy/endpointslicecache.go` (v1.19.2 to v1.36). For versions
//! that watch `Endpoints` objects, follows what the endpoints controller derives from the same
//! pods.

use std::collections::{HashMap, HashSet};
use std::net::{IpAddr, SocketAddr};

use super::history::{
    ENDPOINTS_BY_IP, ENDPOINTS_OBJECTS, HEADLESS_LABEL, LABELS_APPLY_TO_BOTH, NODE_HINTS,
    TERMINATING_DUPLICATE_IGNORED, UNREADY_ENDPOINTS_KEPT,
};
use super::services::ServicePort;
use super::version::Version;
use super::{KubeProxyError, Objects};
use crate::objects::{EndpointSlice, SliceEndpoint};
use svclab_ruleset::{Family, Protocol};

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
pub(crate) struct EndpointMap {
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
    /// Reads the slices of the services in `ports` as kube-proxy does.
    ///
    /// kube-proxy caches other slices, such as those of headless services, but writes no rules for
    /// them.
    ///
    /// # Errors
    ///
    /// Returns a [`KubeProxyError`] for an address or protocol that the API server rejects.
    pub(crate) fn new(
        objects: &Objects<'_>,
        ports: &[ServicePort],
        version: Version,
        family: Family,
    ) -> Result<Self, KubeProxyError> {
        let served: HashSet<(&str, &str)> = ports
            .iter()
            .map(|port| (port.namespace.as_str(), port.service.as_str()))
            .collect();
        let mut map = Self::default();
        for slice in objects.endpoint_slices {
            if let Some(service) = &slice.service
                && served.contains(&(slice.namespace.as_str(), service.as_str()))
                && is_watched(slice, version)
                && slice.family == Some(family)
            {
                map.add_slice(slice, service, objects.node, version)?;
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
    pub(crate) fn get(&self, port: &ServicePort) -> &[Endpoint] {
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
        slice: &EndpointSlice,
        service: &str,
        node: &str,
        version: Version,
    ) -> Result<(), KubeProxyError> {
        if let Some(invalid) = &slice.invalid {
            return Err(KubeProxyError::EndpointSlice {
                slice: format!("{}/{}", slice.namespace, slice.name),
                field: invalid.field,
                value: invalid.value.clone(),
            });
        }
        for port in &slice.ports {
            let key = Key {
                namespace: slice.namespace.clone(),
                service: service.to_owned(),
                port: port.name.clone(),
                protocol: port.protocol,
            };
            let endpoints = self.by_port.entry(key).or_default();
            for endpoint in &slice.endpoints {
                // kube-proxy ignores further addresses of an endpoint.
                let Some(ip) = endpoint.addresses.first() else {
                    continue;
                };
                let address = SocketAddr::new(*ip, port.port);
                let endpoint = build_endpoint(endpoint, address, node, version);
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
fn is_watched(slice: &EndpointSlice, version: Version) -> bool {
    let is_headless = slice.labels.headless && version.has(&HEADLESS_LABEL);
    let is_other_proxys = slice.labels.other_proxy && version.has(&LABELS_APPLY_TO_BOTH);
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

fn build_endpoint(
    endpoint: &SliceEndpoint,
    address: SocketAddr,
    node: &str,
    version: Version,
) -> Endpoint {
    let obeys_nodes = version.has(&NODE_HINTS);
    Endpoint {
        address,
        local: endpoint.node.as_deref() == Some(node),
        ready: endpoint.ready,
        serving: endpoint.serving,
        terminating: endpoint.terminating,
        zone_hints: endpoint.zone_hints.clone(),
        node_hints: if obeys_nodes {
            endpoint.node_hints.clone()
        } else {
            Vec::new()
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kube_proxy::services::service_ports;
    use crate::objects::SERVICE_NAME;
    use serde_json::{Value, json};

    const PROXY_NAME: &str = "service.kubernetes.io/service-proxy-name";
    const HEADLESS: &str = "service.kubernetes.io/headless";

    /// Reads slices in a cluster with the service `ns/svc`.
    fn map_of_service(
        slices: &[EndpointSlice],
        version: &str,
    ) -> Result<EndpointMap, KubeProxyError> {
        let service = json!({
            "metadata": {"namespace": "ns", "name": "svc"},
            "spec": {"clusterIP": "10.96.0.1", "ports": [{"name": "p", "port": 80}]}
        });
        let services = [serde_json::from_value(service).unwrap()];
        let objects = Objects {
            node: "here",
            nodes: &[],
            services: &services,
            endpoint_slices: slices,
            service_cidrs: &[],
            interface_addresses: &[],
        };
        let version = version.parse().unwrap();
        let ports = service_ports(&services, version, Family::V4)?;
        EndpointMap::new(&objects, &ports, version, Family::V4)
    }

    /// Returns the endpoints of `ns/svc` as `IP:port`, each with its readiness, of slices that
    /// contain one endpoint each.
    fn endpoints_of_slices(version: &str, endpoints: &[(u16, Value)]) -> Vec<(String, bool)> {
        let slices: Vec<EndpointSlice> = endpoints
            .iter()
            .map(|(port, endpoint)| {
                let slice = json!({
                    "metadata": {"namespace": "ns", "labels": {SERVICE_NAME: "svc"}},
                    "addressType": "IPv4",
                    "ports": [{"name": "p", "port": port}],
                    "endpoints": [endpoint]
                });
                serde_json::from_value(slice).unwrap()
            })
            .collect();
        let map = map_of_service(&slices, version).unwrap();
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
    fn endpoint_map_invalid_slice_matters_only_if_served() {
        let map = |namespace: &str, service: &str, family: &str| {
            let slice = json!({
                "metadata": {"namespace": namespace, "labels": {SERVICE_NAME: service}},
                "addressType": family,
                "ports": [{"name": "p", "port": 8080}],
                "endpoints": [{"addresses": ["10.244.1.x"]}]
            });
            map_of_service(&[serde_json::from_value(slice).unwrap()], "v1.30")
        };
        assert!(matches!(
            map("ns", "svc", "IPv4"),
            Err(KubeProxyError::EndpointSlice { .. })
        ));
        for (namespace, service, family) in [
            ("ns", "headless", "IPv4"),
            ("other", "svc", "IPv4"),
            ("ns", "svc", "IPv6"),
            ("ns", "svc", "FQDN"),
        ] {
            assert!(
                map(namespace, service, family).is_ok(),
                "{namespace}/{service} {family}"
            );
        }
    }

    #[test]
    fn endpoint_map_labelled_slice_is_ignored_by_version() {
        let is_watching = |version: &str, label: &str| {
            let slice = json!({
                "metadata": {"namespace": "ns", "labels": {SERVICE_NAME: "svc", label: ""}},
                "addressType": "IPv4",
                "ports": [{"name": "p", "port": 8080}],
                "endpoints": [endpoint("here", true, false)]
            });
            let slices = [serde_json::from_value(slice).unwrap()];
            let map = map_of_service(&slices, version).unwrap();
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
