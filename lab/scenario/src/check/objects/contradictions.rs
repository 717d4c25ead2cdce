//! Refuses contradictory fields of Kubernetes objects, and values that Kubernetes does not define.
//!
//! No API server returns such an object (Kubernetes v1.36.2):
//!
//! - Of a Service, the API server refuses both (`pkg/apis/core/validation/validation.go`,
//!   `ValidateServiceClusterIPsRelatedFields` and `ValidateLoadBalancerStatus`).
//! - Of a Node or a Pod, the API server replaces the list by the single field
//!   (`pkg/apis/core/v1/conversion.go`).

use std::net::IpAddr;

use k8s_openapi::api::core::v1::{Node, Pod, Service};

use crate::check::objects::fields::with_field_span;
use crate::objects::{Object, Objects};
use crate::sink::Sink;
use crate::yaml::tree::PathSegment;
use svclab_diagnostic::Diagnostic;
use svclab_diagnostic::suggest::{did_you_mean, format_list};

const PHASES: &[&str] = &["Pending", "Running", "Succeeded", "Failed", "Unknown"];
const FAMILIES: &[&str] = &["IPv4", "IPv6"];
const IP_MODES: &[&str] = &["VIP", "Proxy"];

pub(crate) fn check_contradictions(objects: &Objects, sink: &mut Sink) {
    for node in &objects.nodes {
        self::check_node(node, sink);
    }
    for pod in &objects.pods {
        self::check_pod(pod, sink);
    }
    for service in &objects.services {
        self::check_service(service, sink);
    }
}

fn check_node(node: &Object<Node>, sink: &mut Sink) {
    let Some(spec) = &node.value.spec else {
        return;
    };
    let listed = spec.pod_cidrs.iter().flatten().next();
    let both = (spec.pod_cidr.as_deref(), listed.map(String::as_str));
    check_first_equals(node, "spec", ["podCIDR", "podCIDRs"], both, sink);
}

fn check_pod(pod: &Object<Pod>, sink: &mut Sink) {
    let Some(status) = &pod.value.status else {
        return;
    };
    let listed = status.pod_ips.iter().flatten().next();
    let both = (status.pod_ip.as_deref(), listed.map(|ip| ip.ip.as_str()));
    check_first_equals(pod, "status", ["podIP", "podIPs"], both, sink);
    if let Some(phase) = &status.phase {
        check_allowed_value(pod, crate::path!["status", "phase"], phase, PHASES, sink);
    }
}

fn check_service(service: &Object<Service>, sink: &mut Sink) {
    if let Some(spec) = &service.value.spec {
        let listed = spec.cluster_ips.iter().flatten().next();
        let both = (spec.cluster_ip.as_deref(), listed.map(String::as_str));
        check_first_equals(service, "spec", ["clusterIP", "clusterIPs"], both, sink);
        for (index, family) in spec.ip_families.iter().flatten().enumerate() {
            let path = crate::path!["spec", "ipFamilies", index];
            check_allowed_value(service, path, family, FAMILIES, sink);
        }
    }
    let status = service.value.status.as_ref();
    let balancer = status.and_then(|status| status.load_balancer.as_ref());
    let ingress = balancer.and_then(|balancer| balancer.ingress.as_ref());
    for (index, entry) in ingress.into_iter().flatten().enumerate() {
        if let Some(mode) = &entry.ip_mode {
            let path = crate::path!["status", "loadBalancer", "ingress", index, "ipMode"];
            check_allowed_value(service, path, mode, IP_MODES, sink);
        }
    }
}

/// Checks that a field equals the first element of the corresponding list.
fn check_first_equals<T>(
    object: &Object<T>,
    parent: &str,
    [field, list]: [&str; 2],
    both: (Option<&str>, Option<&str>),
    sink: &mut Sink,
) {
    let (Some(single), Some(first)) = both else {
        return;
    };
    let address = |text: &str| text.parse::<IpAddr>().ok();
    let same = single == first || address(single).is_some_and(|ip| Some(ip) == address(first));
    if same || single.is_empty() {
        return;
    }
    let message = format!("`{field}` is {single}, but the first of `{list}` is {first}");
    let error = Diagnostic::error(message).with_help(format!(
        "write the same address in both, or remove `{list}`"
    ));
    sink.push(with_field_span(error, object, crate::path![parent, list]));
}

fn check_allowed_value<T>(
    object: &Object<T>,
    path: &[PathSegment],
    value: &str,
    values: &[&str],
    sink: &mut Sink,
) {
    if values.contains(&value) {
        return;
    }
    let message = format!(
        "`{value}` is not one of {}",
        format_list(values.iter().copied())
    );
    let error =
        Diagnostic::error(message).with_optional_help(did_you_mean(value, values.iter().copied()));
    sink.push(with_field_span(error, object, path));
}
