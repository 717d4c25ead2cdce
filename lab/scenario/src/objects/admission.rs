//! Refuses objects that an API server would refuse, as far as the fields affect packets.

use std::collections::HashSet;

use ipnetwork::IpNetwork;
use k8s_openapi::api::core::v1::{Container, LifecycleHandler, Pod, Probe, Service, ServicePort};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::api::networking::v1::ServiceCIDR;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use crate::objects::defaults;
use crate::objects::documents::is_label;
use crate::yaml::tree::{PathSegment, Tree, shorten};
use svclab_diagnostic::Diagnostic;
use svclab_diagnostic::suggest::{did_you_mean, format_list};

/// Checks a service as the API server does, as far as its fields affect packets.
pub(crate) fn check_service(service: &Service, tree: &Tree) -> Result<(), Diagnostic> {
    let Some(spec) = &service.spec else {
        return Ok(());
    };
    let field = |name: &str| crate::path!["spec", name].to_vec();
    let policies = ["Cluster", "Local"];
    check_keyword(tree, &field("type"), spec.type_.as_deref(), &SERVICE_TYPES)?;
    check_keyword(
        tree,
        &field("externalTrafficPolicy"),
        spec.external_traffic_policy.as_deref(),
        &policies,
    )?;
    check_keyword(
        tree,
        &field("internalTrafficPolicy"),
        spec.internal_traffic_policy.as_deref(),
        &policies,
    )?;
    check_keyword(
        tree,
        &field("sessionAffinity"),
        spec.session_affinity.as_deref(),
        &["None", "ClientIP"],
    )?;
    check_keyword(
        tree,
        &field("trafficDistribution"),
        spec.traffic_distribution.as_deref(),
        &["PreferClose", "PreferSameZone", "PreferSameNode"],
    )?;
    for (index, port) in spec.ports.iter().flatten().enumerate() {
        let path = |name: &str| crate::path!["spec", "ports", index, name].to_vec();
        check_keyword(
            tree,
            &path("protocol"),
            port.protocol.as_deref(),
            &PROTOCOLS,
        )?;
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
    )
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

/// Checks the ports of a pod as the API server does (Kubernetes v1.36,
/// `pkg/apis/core/validation/validation.go`, `validateContainerPorts`, `validateHTTPGetAction`).
pub(crate) fn check_pod(pod: &Pod, tree: &Tree) -> Result<(), Diagnostic> {
    let Some(spec) = &pod.spec else {
        return Ok(());
    };
    let lists = [
        ("containers", Some(&spec.containers)),
        ("initContainers", spec.init_containers.as_ref()),
    ];
    for (list, containers) in lists {
        for (index, container) in containers.into_iter().flatten().enumerate() {
            check_container(container, tree, crate::path!["spec", list, index])?;
        }
    }
    Ok(())
}

fn check_container(
    container: &Container,
    tree: &Tree,
    path: &[PathSegment],
) -> Result<(), Diagnostic> {
    for (index, port) in container.ports.iter().flatten().enumerate() {
        let path = |name: &str| [path, crate::path!["ports", index, name]].concat();
        check_keyword(
            tree,
            &path("protocol"),
            port.protocol.as_deref(),
            &PROTOCOLS,
        )?;
        check_port_number(tree, &path("containerPort"), port.container_port)?;
        check_optional_port(tree, &path("hostPort"), port.host_port)?;
    }
    let probes = [
        ("livenessProbe", &container.liveness_probe),
        ("readinessProbe", &container.readiness_probe),
        ("startupProbe", &container.startup_probe),
    ];
    for (name, probe) in probes {
        if let Some(probe) = probe {
            check_probe(probe, tree, &[path, crate::path![name]].concat())?;
        }
    }
    let lifecycle = container.lifecycle.as_ref();
    let handlers = [
        (
            "postStart",
            lifecycle.and_then(|hooks| hooks.post_start.as_ref()),
        ),
        (
            "preStop",
            lifecycle.and_then(|hooks| hooks.pre_stop.as_ref()),
        ),
    ];
    for (name, handler) in handlers {
        if let Some(LifecycleHandler {
            http_get,
            tcp_socket,
            ..
        }) = handler
        {
            let path =
                |action: &str| [path, crate::path!["lifecycle", name, action, "port"]].concat();
            if let Some(action) = http_get {
                check_port_reference(tree, &path("httpGet"), &action.port)?;
            }
            if let Some(action) = tcp_socket {
                check_port_reference(tree, &path("tcpSocket"), &action.port)?;
            }
        }
    }
    Ok(())
}

fn check_probe(probe: &Probe, tree: &Tree, path: &[PathSegment]) -> Result<(), Diagnostic> {
    let path = |action: &str| [path, crate::path![action, "port"]].concat();
    if let Some(action) = &probe.http_get {
        check_port_reference(tree, &path("httpGet"), &action.port)?;
    }
    if let Some(action) = &probe.tcp_socket {
        check_port_reference(tree, &path("tcpSocket"), &action.port)?;
    }
    if let Some(action) = &probe.grpc {
        check_port_number(tree, &path("grpc"), action.port)?;
    }
    Ok(())
}

/// Checks the expressions of a selector at a path as the API server does (apimachinery v0.36.0,
/// `pkg/apis/meta/v1/validation/validation.go`, `ValidateLabelSelectorRequirement`).
pub(crate) fn check_selector(
    selector: &LabelSelector,
    tree: &Tree,
    path: &[PathSegment],
) -> Result<(), Diagnostic> {
    for (index, expression) in selector.match_expressions.iter().flatten().enumerate() {
        let path = |name: &str| [path, crate::path!["matchExpressions", index, name]].concat();
        let operator = expression.operator.as_str();
        check_keyword(tree, &path("operator"), Some(operator), &OPERATORS)?;
        let has_values = expression
            .values
            .as_ref()
            .is_some_and(|list| !list.is_empty());
        let message = match (operator, has_values) {
            ("In" | "NotIn", false) => format!("operator `{operator}` requires `values`"),
            ("Exists" | "DoesNotExist", true) => format!("operator `{operator}` takes no `values`"),
            _ => continue,
        };
        return Err(
            Diagnostic::error(message).with_position(tree.nearest(&path("values")).head_span(), "")
        );
    }
    Ok(())
}

/// Checks the networks of cluster IPs as the API server does: each has a prefix length and no host
/// bits. (`ValidateServiceCIDR` in kubernetes/kubernetes
/// `pkg/apis/networking/validation/validation.go` v1.36.)
pub(crate) fn check_service_cidr(object: &ServiceCIDR, tree: &Tree) -> Result<(), Diagnostic> {
    let cidrs = object.spec.as_ref().and_then(|spec| spec.cidrs.as_deref());
    for (index, text) in cidrs.unwrap_or(&[]).iter().enumerate() {
        let network = text.parse::<IpNetwork>().ok();
        let network = network.filter(|_| text.contains('/'));
        if network.is_none_or(|network| network.ip() != network.network()) {
            let path = crate::path!["spec", "cidrs", index];
            return Err(Diagnostic::error(format!("`{text}` is not a network"))
                .with_position(tree.nearest(path).span, "")
                .with_help("write a network such as `10.96.0.0/12`"));
        }
    }
    Ok(())
}

/// Checks an EndpointSlice as the API server does.
pub(crate) fn check_endpoint_slice(slice: &EndpointSlice, tree: &Tree) -> Result<(), Diagnostic> {
    let families = ["IPv4", "IPv6", "FQDN"];
    let path = crate::path!["addressType"];
    check_keyword(tree, path, Some(&slice.address_type), &families)?;
    for (index, endpoint) in slice.endpoints.iter().flatten().enumerate() {
        for (position, address) in endpoint.addresses.iter().enumerate() {
            let slice_family = slice.address_type.as_str();
            let address_family = address.parse().ok().map(defaults::family_name);
            if slice_family != "FQDN" && address_family != Some(slice_family) {
                let path = crate::path!["endpoints", index, "addresses", position];
                return Err(Diagnostic::error(format!(
                    "`{address}` is not an {slice_family} address, as `addressType` requires"
                ))
                .with_position(tree.nearest(path).span, ""));
            }
        }
    }
    for (index, port) in slice.ports.iter().flatten().enumerate() {
        let path = |name: &str| crate::path!["ports", index, name].to_vec();
        check_keyword(
            tree,
            &path("protocol"),
            port.protocol.as_deref(),
            &PROTOCOLS,
        )?;
        check_port_name(tree, &path("name"), port.name.as_deref())?;
        if let Some(number) = port.port {
            check_port_number(tree, &path("port"), number)?;
        }
    }
    Ok(())
}

const SERVICE_TYPES: [&str; 4] = ["ClusterIP", "NodePort", "LoadBalancer", "ExternalName"];
const PROTOCOLS: [&str; 3] = ["TCP", "UDP", "SCTP"];
const OPERATORS: [&str; 4] = ["In", "NotIn", "Exists", "DoesNotExist"];

fn check_keyword(
    tree: &Tree,
    path: &[PathSegment],
    value: Option<&str>,
    allowed: &[&str],
) -> Result<(), Diagnostic> {
    let Some(value) = value.filter(|word| !allowed.contains(word)) else {
        return Ok(());
    };
    let message = if value.is_empty() && tree.node_at(path).is_none() {
        let field = field_name(path);
        format!(
            "field `{field}` is missing; the values are {}",
            format_list(allowed.iter().copied())
        )
    } else {
        format!(
            "`{value}` is not one of {}",
            format_list(allowed.iter().copied())
        )
    };
    let span = tree
        .node_at(path)
        .map_or(tree.nearest(path).head_span(), |node| node.span);
    Err(Diagnostic::error(message)
        .with_position(span, "")
        .with_optional_help(did_you_mean(value, allowed.iter().copied())))
}

/// Checks that the name of a port is an RFC 1123 label (Kubernetes v1.36,
/// `pkg/apis/core/validation/validation.go`, `validateServicePort`;
/// `pkg/apis/discovery/validation/validation.go`, `validatePorts`).
fn check_port_name(
    tree: &Tree,
    path: &[PathSegment],
    name: Option<&str>,
) -> Result<(), Diagnostic> {
    let Some(name) = name.filter(|name| !name.is_empty()) else {
        return Ok(());
    };
    if name.len() <= 63 && is_label(name) {
        return Ok(());
    }
    let span = tree
        .node_at(path)
        .map_or(tree.nearest(path).head_span(), |node| node.span);
    Err(
        Diagnostic::error(format!("{} is not a valid port name", shorten(name)))
            .with_position(span, "")
            .with_help("a port name has at most 63 lower-case letters, digits and `-`"),
    )
}

fn check_port_number(tree: &Tree, path: &[PathSegment], number: i32) -> Result<(), Diagnostic> {
    if (1..=65_535).contains(&number) {
        return Ok(());
    }
    if let Some(node) = tree.node_at(path) {
        return Err(Diagnostic::error(format!("`{number}` is not a port"))
            .with_position(node.span, "expected a number from 1 to 65535"));
    }
    let field = field_name(path);
    Err(
        Diagnostic::error(format!("field `{field}` is missing")).with_position(
            tree.nearest(path).head_span(),
            format!("`{field}` is missing here"),
        ),
    )
}

/// Checks a port that may be absent or 0: the API server assigns a port, or there is none.
fn check_optional_port(
    tree: &Tree,
    path: &[PathSegment],
    number: Option<i32>,
) -> Result<(), Diagnostic> {
    match number {
        None | Some(0) => Ok(()),
        Some(number) => check_port_number(tree, path, number),
    }
}

/// Checks a port that a number or the name of a container port selects.
fn check_port_reference(
    tree: &Tree,
    path: &[PathSegment],
    port: &IntOrString,
) -> Result<(), Diagnostic> {
    match port {
        IntOrString::Int(number) => check_port_number(tree, path, *number),
        IntOrString::String(_) => Ok(()),
    }
}

fn is_zero(port: &IntOrString) -> bool {
    *port == IntOrString::Int(0)
}

/// Returns the name of the field at the end of a path.
fn field_name(path: &[PathSegment]) -> &str {
    match path.last() {
        Some(PathSegment::Key(key)) => key.as_str(),
        _ => "",
    }
}
