//! Refuses services that an API server would refuse.

use std::collections::HashSet;
use std::ops::RangeInclusive;

use k8s_openapi::api::core::v1::{Service, ServicePort, ServiceSpec};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::{
    check_address, check_keyword, check_network, check_optional_port, check_port_name,
    check_port_number, check_port_reference, check_protocol,
};
use crate::yaml::tree::{Tree, shorten};
use svclab_diagnostic::Diagnostic;

const SERVICE_TYPES: [&str; 4] = ["ClusterIP", "NodePort", "LoadBalancer", "ExternalName"];
const POLICIES: [&str; 2] = ["Cluster", "Local"];
const AFFINITIES: [&str; 2] = ["None", "ClientIP"];
const DISTRIBUTIONS: [&str; 3] = ["PreferClose", "PreferSameZone", "PreferSameNode"];

/// Allowed times of session affinity: up to a day.
const AFFINITY_SECONDS: RangeInclusive<i32> = 1..=86_400;

/// Checks a service as the API server does, as far as its fields affect packets.
pub(crate) fn check_service(service: &Service, tree: &Tree) -> Result<(), Diagnostic> {
    let Some(spec) = &service.spec else {
        return Ok(());
    };
    let field = |name: &str| crate::path!["spec", name].to_vec();
    let keywords = [
        ("type", &spec.type_, &SERVICE_TYPES[..]),
        (
            "externalTrafficPolicy",
            &spec.external_traffic_policy,
            &POLICIES,
        ),
        (
            "internalTrafficPolicy",
            &spec.internal_traffic_policy,
            &POLICIES,
        ),
        ("sessionAffinity", &spec.session_affinity, &AFFINITIES),
        (
            "trafficDistribution",
            &spec.traffic_distribution,
            &DISTRIBUTIONS,
        ),
    ];
    for (name, value, allowed) in keywords {
        check_keyword(tree, &field(name), value.as_deref(), allowed)?;
    }
    for (index, port) in spec.ports.iter().flatten().enumerate() {
        let path = |name: &str| crate::path!["spec", "ports", index, name].to_vec();
        check_protocol(tree, &path("protocol"), port.protocol.as_deref())?;
        check_port_name(tree, &path("name"), port.name.as_deref())?;
        check_port_number(tree, &path("port"), port.port)?;
        check_optional_port(tree, &path("nodePort"), port.node_port)?;
        // 0 is the default: the number of the port.
        if let Some(target) = port.target_port.as_ref().filter(|target| !is_zero(target)) {
            check_port_reference(tree, &path("targetPort"), target)?;
        }
    }
    check_port_names(spec.ports.as_deref().unwrap_or(&[]), tree)?;
    check_optional_port(
        tree,
        &field("healthCheckNodePort"),
        spec.health_check_node_port,
    )?;
    check_addresses(service, spec, tree)?;
    check_affinity(spec, tree)
}

/// Checks the addresses and networks of a service.
fn check_addresses(service: &Service, spec: &ServiceSpec, tree: &Tree) -> Result<(), Diagnostic> {
    let cluster_ip = spec.cluster_ip.iter();
    let cluster_ip = cluster_ip.map(|text| (crate::path!["spec", "clusterIP"].to_vec(), text));
    let listed = spec.cluster_ips.iter().flatten().enumerate();
    let listed = listed.map(|(index, text)| {
        let path = crate::path!["spec", "clusterIPs", index];
        (path.to_vec(), text)
    });
    for (path, text) in cluster_ip.chain(listed) {
        if text != "None" {
            check_address(tree, &path, text)?;
        }
    }
    for (index, text) in spec.external_ips.iter().flatten().enumerate() {
        check_address(tree, crate::path!["spec", "externalIPs", index], text)?;
    }
    let ranges = spec.load_balancer_source_ranges.iter().flatten();
    for (index, text) in ranges.enumerate() {
        let path = crate::path!["spec", "loadBalancerSourceRanges", index];
        check_network(tree, path, text.trim())?;
    }
    let status = service.status.as_ref();
    let balancer = status.and_then(|status| status.load_balancer.as_ref());
    let ingress = balancer.and_then(|balancer| balancer.ingress.as_ref());
    for (index, entry) in ingress.into_iter().flatten().enumerate() {
        if let Some(text) = &entry.ip {
            let path = crate::path!["status", "loadBalancer", "ingress", index, "ip"];
            check_address(tree, path, text)?;
        }
    }
    Ok(())
}

/// Checks the time during which a client keeps its endpoint (Kubernetes v1.36,
/// `pkg/apis/core/validation/validation.go`, `validateClientIPAffinityConfig`).
fn check_affinity(spec: &ServiceSpec, tree: &Tree) -> Result<(), Diagnostic> {
    let client_ip = spec.session_affinity_config.as_ref();
    let client_ip = client_ip.and_then(|config| config.client_ip.as_ref());
    let seconds = client_ip.and_then(|config| config.timeout_seconds);
    match seconds.filter(|seconds| !AFFINITY_SECONDS.contains(seconds)) {
        Some(seconds) if spec.session_affinity.as_deref() == Some("ClientIP") => {
            let path = crate::path![
                "spec",
                "sessionAffinityConfig",
                "clientIP",
                "timeoutSeconds"
            ];
            let error = Diagnostic::error(format!("`{seconds}` is not a time of session affinity"));
            Err(error.with_position(
                tree.nearest(path).span,
                "expected a number from 1 to 86400, in seconds",
            ))
        }
        _ => Ok(()),
    }
}

/// Checks that the ports of a service have different names: kube-proxy finds their endpoints by name
/// (Kubernetes v1.36, `pkg/apis/core/validation/validation.go`, `ValidateService`). The API server also
/// refuses a port without a name among others, which is unambiguous.
fn check_port_names(ports: &[ServicePort], tree: &Tree) -> Result<(), Diagnostic> {
    let mut known = HashSet::new();
    for (index, port) in ports.iter().enumerate() {
        let name = port.name.as_deref().unwrap_or_default();
        if known.insert(name) {
            continue;
        }
        let message = if name.is_empty() {
            "two ports of the service have no name".to_owned()
        } else {
            format!("two ports of the service have the name {}", shorten(name))
        };
        let path = crate::path!["spec", "ports", index, "name"];
        return Err(Diagnostic::error(message)
            .with_position(tree.nearest(path).head_span(), "")
            .with_help("give each port a name of its own"));
    }
    Ok(())
}

fn is_zero(port: &IntOrString) -> bool {
    *port == IntOrString::Int(0)
}
