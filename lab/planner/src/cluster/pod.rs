//! Builds a running pod from a `Pod` object, or reports the problems in the object.

use std::net::IpAddr;

use ipnetwork::IpNetwork;
use k8s_openapi::api::core::v1 as core;

use super::problem::{DocumentPath, Problem, object_ref, place};
use super::subnets::first_host;
use super::{Node, Pod};
use svclab_diagnostic::suggest::did_you_mean;
use svclab_scenario::endpoints::declared_ports;
use svclab_scenario::reference::{DocumentRef, ObjectKind};
use svclab_scenario::tree::PathSegment;

/// Returns the valid addresses of a pod that has not ended.
pub(super) fn pod_addresses(object: &core::Pod) -> impl Iterator<Item = IpAddr> {
    let status = object.status.as_ref().filter(|status| {
        let phase = status.phase.as_deref();
        !matches!(phase, Some("Succeeded" | "Failed"))
    });
    status_addresses(status).filter_map(|(_, text)| text.parse().ok())
}

/// Builds a running pod; `None` if the pod has ended or is not scheduled. `is_routed` states
/// whether nodes have a route for each pod, as with Calico.
pub(super) fn build_pod(
    object: &core::Pod,
    nodes: &[Node],
    is_routed: bool,
    problems: &mut Vec<Problem>,
) -> Option<Pod> {
    let document = object_ref(ObjectKind::Pod, &object.metadata);
    let name = object.metadata.name.clone().unwrap_or_default();
    let status = object.status.as_ref();
    let phase = status.and_then(|status| status.phase.as_deref());
    if matches!(phase, Some("Succeeded" | "Failed")) {
        return None;
    }
    let spec = object.spec.as_ref();
    let node_name = spec
        .and_then(|spec| spec.node_name.as_deref())
        .unwrap_or_default();
    let Some(node) = nodes.iter().position(|node| node.name == node_name) else {
        if !node_name.is_empty() || phase != Some("Pending") {
            problems.push(unknown_node_problem(document, &name, node_name, nodes));
        }
        return None;
    };
    let host_network = spec.and_then(|spec| spec.host_network).unwrap_or(false);
    let pod_node = &nodes[node];
    let mut ips: Vec<IpAddr> = Vec::new();
    for (path, text) in status_addresses(status) {
        let location = DocumentPath {
            document: document.clone(),
            path,
        };
        // Objects with other texts are refused when they are read.
        let Ok(ip) = text.parse::<IpAddr>() else {
            continue;
        };
        if !ips.contains(&ip) {
            problems.extend(misplaced_address_problem(
                location,
                &name,
                ip,
                pod_node,
                (host_network, is_routed),
            ));
            ips.push(ip);
        }
    }
    if ips.is_empty() && host_network {
        ips = pod_node.addresses.iter().map(IpNetwork::ip).collect();
    }
    if ips.is_empty() {
        if phase != Some("Pending") {
            let message = format!("pod `{name}` has no address");
            let help = "add `status: {podIP: …}`, as printed by `kubectl get pod -o yaml`";
            problems
                .push(Problem::new(document, place!["status"], message).with_help(help.to_owned()));
        }
        return None;
    }
    let namespace = object.metadata.namespace.clone();
    Some(Pod {
        namespace: namespace.unwrap_or_else(|| "default".to_owned()),
        name,
        node,
        ips,
        host_network,
        declares_ports: declared_ports(object).next().is_some(),
    })
}

/// Returns the problem of a pod without a node, or with an unknown node.
fn unknown_node_problem(
    document: DocumentRef,
    name: &str,
    node_name: &str,
    nodes: &[Node],
) -> Problem {
    if node_name.is_empty() {
        let message = format!("pod `{name}` has no node");
        return Problem::new(document, place!["spec"], message)
            .with_help("add `spec: {nodeName: …}`".to_owned());
    }
    let message = format!("there is no node `{node_name}`");
    Problem::new(document, place!["spec", "nodeName"], message).with_help(did_you_mean(
        node_name,
        nodes.iter().map(|node| node.name.as_str()),
    ))
}

/// Returns the addresses in the status, each with its location.
fn status_addresses(
    status: Option<&core::PodStatus>,
) -> impl Iterator<Item = (Vec<PathSegment>, &str)> {
    let singular_field = status
        .and_then(|status| status.pod_ip.as_deref())
        .map(|ip| (place!["status", "podIP"].to_vec(), ip));
    let plural_field = status
        .and_then(|status| status.pod_ips.as_ref())
        .into_iter()
        .flatten()
        .enumerate()
        .map(|(index, ip)| {
            (
                place!["status", "podIPs", index, "ip"].to_vec(),
                ip.ip.as_str(),
            )
        });
    singular_field.into_iter().chain(plural_field)
}

/// Returns a problem if a pod of this node cannot have the address.
fn misplaced_address_problem(
    location: DocumentPath,
    name: &str,
    ip: IpAddr,
    pod_node: &Node,
    (host_network, is_routed): (bool, bool),
) -> Option<Problem> {
    let node = &pod_node.name;
    if host_network {
        let has = pod_node.addresses.iter().any(|address| address.ip() == ip);
        return (!has).then(|| {
            let message = format!(
                "pod `{name}` uses the host network, but {ip} is not an address \
                of its node `{node}`"
            );
            problem_at(location, message, None)
        });
    }
    if is_routed {
        return None;
    }
    let is_same_family = |network: &&IpNetwork| network.is_ipv4() == ip.is_ipv4();
    let cidrs = || pod_node.pod_cidrs.iter().filter(is_same_family);
    let Some(cidr) = cidrs().find(|cidr| cidr.contains(ip)).or(cidrs().next()) else {
        // A node without any podCIDR is reported on its own.
        if pod_node.pod_cidrs.is_empty() {
            return None;
        }
        let family = if ip.is_ipv4() { "IPv4" } else { "IPv6" };
        let message = format!(
            "the pod's address {ip} is in no podCIDR of its node `{node}`, \
            which has no {family} podCIDR"
        );
        let help = format!("add an {family} network to `spec.podCIDRs` of the node");
        return Some(problem_at(location, message, Some(help)));
    };
    if cidr.contains(ip) {
        let is_bridge = first_host(*cidr).is_some_and(|bridge| bridge.ip() == ip);
        return is_bridge.then(|| {
            let message =
                format!("{ip} is the address of the bridge of node `{node}` in its podCIDR {cidr}");
            problem_at(
                location,
                message,
                Some(format!("give pod `{name}` another address")),
            )
        });
    }
    let message =
        format!("the pod's address {ip} is outside {cidr}, the podCIDR of its node `{node}`");
    let help = "use an address from the podCIDR of the node".to_owned();
    Some(problem_at(location, message, Some(help)))
}

fn problem_at(location: DocumentPath, message: String, help: Option<String>) -> Problem {
    Problem {
        location,
        message,
        help,
        is_key: false,
        stage: 0,
    }
}
