//! Refuses objects that an API server would refuse, as far as the fields affect packets.

mod node;
mod pod;
mod service;

use std::net::IpAddr;

use ipnetwork::IpNetwork;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::api::networking::v1::ServiceCIDR;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use crate::objects::defaults;
use crate::objects::documents::is_label;
use crate::yaml::tree::{PathSegment, Tree, shorten};
use svclab_diagnostic::Diagnostic;
use svclab_diagnostic::suggest::{did_you_mean, format_list};

pub(crate) use node::check_node;
pub(crate) use pod::check_pod;
pub(crate) use service::check_service;

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
        check_protocol(tree, &path("protocol"), port.protocol.as_deref())?;
        check_port_name(tree, &path("name"), port.name.as_deref())?;
        if let Some(number) = port.port {
            check_port_number(tree, &path("port"), number)?;
        }
    }
    Ok(())
}

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

fn check_protocol(
    tree: &Tree,
    path: &[PathSegment],
    protocol: Option<&str>,
) -> Result<(), Diagnostic> {
    check_keyword(tree, path, protocol, &["TCP", "UDP", "SCTP"])
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

/// Checks an address. An empty text is no address.
fn check_address(tree: &Tree, path: &[PathSegment], text: &str) -> Result<(), Diagnostic> {
    if text.is_empty() || text.parse::<IpAddr>().is_ok() {
        return Ok(());
    }
    let message = format!("{} is not an IP address", shorten(text));
    Err(Diagnostic::error(message).with_position(tree.nearest(path).span, ""))
}

/// Checks a network. An empty text is no network.
fn check_network(tree: &Tree, path: &[PathSegment], text: &str) -> Result<(), Diagnostic> {
    if text.is_empty() || text.parse::<IpNetwork>().is_ok() {
        return Ok(());
    }
    let message = format!("{} is not a network", shorten(text));
    Err(Diagnostic::error(message)
        .with_position(tree.nearest(path).span, "")
        .with_help("write a network such as `10.244.1.0/24`"))
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

/// Returns the name of the field at the end of a path.
fn field_name(path: &[PathSegment]) -> &str {
    match path.last() {
        Some(PathSegment::Key(key)) => key.as_str(),
        _ => "",
    }
}
