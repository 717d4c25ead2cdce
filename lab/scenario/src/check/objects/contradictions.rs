//! Refuses contradictory fields of Kubernetes objects, and values that Kubernetes does not define.
//!
//! No API server returns such an object (Kubernetes v1.36.2):
//!
//! - Of a Service, the API server refuses both (`pkg/apis/core/validation/validation.go`,
//!   `ValidateServiceClusterIPsRelatedFields`, `ValidateLoadBalancerStatus` and
//!   `ValidateService`), and a node port in use (`pkg/registry/core/service/storage/alloc.go`).
//! - Of a Node or a Pod, the API server replaces the list by the single field
//!   (`pkg/apis/core/v1/conversion.go`).

use std::collections::HashMap;
use std::net::IpAddr;

use k8s_openapi::api::core::v1::{Node, Pod, Service};

use crate::check::objects::fields::{field_span, full_name, with_field_span};
use crate::objects::{Object, Objects};
use crate::sink::Sink;
use crate::yaml::tree::PathSegment;
use svclab_diagnostic::Diagnostic;
use svclab_diagnostic::source::Span;
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
        check_port_numbers(service, sink);
    }
    check_node_ports(&objects.services, sink);
}

/// Refuses two ports of a service with the same number and protocol.
fn check_port_numbers(service: &Object<Service>, sink: &mut Sink) {
    let mut known: HashMap<(i32, &str), usize> = HashMap::new();
    let ports = service
        .value
        .spec
        .as_ref()
        .and_then(|spec| spec.ports.as_ref());
    for (index, port) in ports.into_iter().flatten().enumerate() {
        let protocol = port.protocol.as_deref().unwrap_or("TCP");
        if let Some(first) = known.get(&(port.port, protocol)) {
            let error = Diagnostic::error(format!(
                "service `{}` has port {}/{protocol} twice",
                full_name(service),
                port.port
            ));
            let field =
                |index: usize| field_span(service, crate::path!["spec", "ports", index, "port"]);
            sink.push(with_both_spans(error, field(index), field(*first)));
        } else {
            known.insert((port.port, protocol), index);
        }
    }
}

/// Refuses a node port that two ports of services have.
fn check_node_ports(services: &[Object<Service>], sink: &mut Sink) {
    let mut known: HashMap<(i32, &str), (String, Option<Span>)> = HashMap::new();
    for service in services {
        let Some(spec) = &service.value.spec else {
            continue;
        };
        if !matches!(spec.type_.as_deref(), Some("NodePort" | "LoadBalancer")) {
            continue;
        }
        let name = full_name(service);
        let ports = spec
            .ports
            .iter()
            .flatten()
            .enumerate()
            .map(|(index, port)| {
                let protocol = port.protocol.as_deref().unwrap_or("TCP");
                let owner = format!("port {} of service `{name}`", port.port);
                let path = crate::path!["spec", "ports", index, "nodePort"].to_vec();
                (port.node_port, protocol, owner, path)
            });
        // kube-proxy serves health checks over HTTP.
        let health = (
            spec.health_check_node_port,
            "TCP",
            format!("the health check of service `{name}`"),
            crate::path!["spec", "healthCheckNodePort"].to_vec(),
        );
        for (number, protocol, owner, path) in ports.chain([health]) {
            let Some(number) = number.filter(|number| *number != 0) else {
                continue;
            };
            let span = field_span(service, &path);
            if let Some((first, first_span)) = known.get(&(number, protocol)) {
                let error = Diagnostic::error(format!(
                    "node port {number}/{protocol} of {owner} is already used by {first}"
                ));
                sink.push(with_both_spans(error, span, *first_span));
            } else {
                known.insert((number, protocol), (owner, span));
            }
        }
    }
}

fn with_both_spans(error: Diagnostic, span: Option<Span>, first: Option<Span>) -> Diagnostic {
    let error = error.with_help("use another port");
    let error = match span {
        Some(span) => error.with_position(span, ""),
        None => error,
    };
    match first {
        Some(first) => error.with_related(first, "the first use"),
        None => error,
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
