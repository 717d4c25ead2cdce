//! Reads the addresses of a Service: cluster IPs, external IPs and load balancer addresses.
//!
//! Invalid addresses are omitted; the readers of the objects report them.

use std::net::IpAddr;

use k8s_openapi::api::core::v1 as core;

/// Returns the Kubernetes namespace of a service, `default` if it has none.
#[must_use]
pub fn namespace_of(service: &core::Service) -> &str {
    service.metadata.namespace.as_deref().unwrap_or("default")
}

/// Returns the name of a service, empty if it has none.
#[must_use]
pub fn name_of(service: &core::Service) -> &str {
    service.metadata.name.as_deref().unwrap_or_default()
}

fn parse_addresses<'a>(texts: impl Iterator<Item = &'a String>) -> Vec<IpAddr> {
    let mut addresses = Vec::new();
    for address in texts.filter_map(|text| text.parse().ok()) {
        if !addresses.contains(&address) {
            addresses.push(address);
        }
    }
    addresses
}

/// Returns the cluster IPs of a service, each once.
#[must_use]
pub fn cluster_ips(service: &core::Service) -> Vec<IpAddr> {
    let spec = service.spec.as_ref();
    let cluster_ip = spec.and_then(|spec| spec.cluster_ip.as_ref());
    let cluster_ips = spec.and_then(|spec| spec.cluster_ips.as_ref());
    parse_addresses(
        cluster_ip
            .into_iter()
            .chain(cluster_ips.into_iter().flatten()),
    )
}

/// Returns the load balancer addresses of a service, each once.
#[must_use]
pub fn ingress_ips(service: &core::Service) -> Vec<IpAddr> {
    let status = service
        .status
        .as_ref()
        .and_then(|status| status.load_balancer.as_ref());
    parse_addresses(
        status
            .and_then(|balancer| balancer.ingress.as_ref())
            .into_iter()
            .flatten()
            .filter_map(|ingress| ingress.ip.as_ref()),
    )
}

/// Returns the external IPs of a service, each once.
#[must_use]
pub fn external_ips(service: &core::Service) -> Vec<IpAddr> {
    parse_addresses(
        service
            .spec
            .as_ref()
            .and_then(|spec| spec.external_ips.as_ref())
            .into_iter()
            .flatten(),
    )
}
