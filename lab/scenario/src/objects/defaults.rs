//! Fills in the fields that an API server sets when it stores an object. A lab may omit these
//! fields, and all later code can rely on them.
//!
//! The source is kubernetes v1.36.0: `pkg/apis/core/v1/defaults.go` (`SetDefaults_Service`,
//! `SetDefaults_Pod`), `pkg/apis/discovery/v1/defaults.go`, `pkg/apis/core/v1/conversion.go`
//! (`podIP` is the first of `podIPs`), and `pkg/registry/core/service/storage/alloc.go`
//! (`clusterIPs` and `ipFamilies` from `clusterIP`).

use std::net::IpAddr;

use k8s_openapi::api::core::v1::{
    ClientIPConfig, Container, Pod, PodIP, Service, SessionAffinityConfig,
};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

/// Default timeout of session affinity in seconds: 3 hours.
const DEFAULT_AFFINITY_SECONDS: i32 = 10_800;

/// Fills in a service: its type, traffic policies, affinity, `clusterIPs`, `ipFamilies`, and the
/// protocol and target of each port.
pub(crate) fn fill_service(service: &mut Service) {
    let spec = service.spec.get_or_insert_default();
    let kind = spec
        .type_
        .get_or_insert_with(|| "ClusterIP".to_owned())
        .clone();
    let affinity = spec
        .session_affinity
        .get_or_insert_with(|| "None".to_owned());
    if affinity == "ClientIP" {
        spec.session_affinity_config
            .get_or_insert(SessionAffinityConfig {
                client_ip: Some(ClientIPConfig {
                    timeout_seconds: Some(DEFAULT_AFFINITY_SECONDS),
                }),
            });
    }
    for port in spec.ports.iter_mut().flatten() {
        port.protocol.get_or_insert_with(|| "TCP".to_owned());
        let absent = match &port.target_port {
            None | Some(IntOrString::Int(0)) => true,
            Some(IntOrString::String(name)) => name.is_empty(),
            Some(IntOrString::Int(_)) => false,
        };
        if absent {
            port.target_port = Some(IntOrString::Int(port.port));
        }
    }
    let has_node_ports = matches!(kind.as_str(), "NodePort" | "LoadBalancer");
    let has_external_ips = spec
        .external_ips
        .as_ref()
        .is_some_and(|ips| !ips.is_empty());
    if has_node_ports || (kind == "ClusterIP" && has_external_ips) {
        spec.external_traffic_policy
            .get_or_insert_with(|| "Cluster".to_owned());
    }
    if has_node_ports || kind == "ClusterIP" {
        spec.internal_traffic_policy
            .get_or_insert_with(|| "Cluster".to_owned());
    }
    if let Some(ip) = spec.cluster_ip.clone().filter(|ip| !ip.is_empty()) {
        let addresses = spec.cluster_ips.get_or_insert_with(|| vec![ip]);
        if spec.ip_families.is_none() {
            let families: Vec<String> = addresses
                .iter()
                .filter_map(|ip| ip.parse().ok())
                .map(|ip: IpAddr| family_name(ip).to_owned())
                .collect();
            spec.ip_families = (!families.is_empty()).then_some(families);
        }
    }
}

/// Returns `IPv4` or `IPv6`, the API's names of the families.
pub(crate) fn family_name(ip: IpAddr) -> &'static str {
    match ip {
        IpAddr::V4(_) => "IPv4",
        IpAddr::V6(_) => "IPv6",
    }
}

/// Fills in a pod: the protocols of its ports, and `podIPs` from `podIP` or the reverse.
pub(crate) fn fill_pod(pod: &mut Pod) {
    if let Some(spec) = &mut pod.spec {
        let init = spec.init_containers.iter_mut().flatten();
        for container in spec.containers.iter_mut().chain(init) {
            fill_ports(container);
        }
    }
    if let Some(status) = &mut pod.status {
        match (&status.pod_ip, status.pod_ips.as_deref()) {
            (Some(ip), None | Some([])) if !ip.is_empty() => {
                status.pod_ips = Some(vec![PodIP { ip: ip.clone() }]);
            }
            (None, Some([first, ..])) => status.pod_ip = Some(first.ip.clone()),
            _ => {}
        }
    }
}

fn fill_ports(container: &mut Container) {
    for port in container.ports.iter_mut().flatten() {
        port.protocol.get_or_insert_with(|| "TCP".to_owned());
    }
}

/// Fills in a slice: the name and protocol of each port.
pub(crate) fn fill_endpoint_slice(slice: &mut EndpointSlice) {
    for port in slice.ports.iter_mut().flatten() {
        port.name.get_or_insert_default();
        port.protocol.get_or_insert_with(|| "TCP".to_owned());
    }
}
