//! Checks the port of a probe to a node, and describes node ports in messages.

use std::net::IpAddr;

use crate::cluster::{Cluster, Node, ObjectName};
use svclab_model::plan::{ProbeProtocol, Target};
use svclab_rules::objects::{PortSpec, Service};
use svclab_ruleset::Protocol;
use svclab_scenario::lab::{ByHand, Leftovers};

/// Maximum number of node ports in a message.
const MAX_LISTED: usize = 8;

/// Ports of a real kube-proxy on its node: metrics and health (kubernetes v1.36
/// `pkg/cluster/ports/ports.go`).
const KUBE_PROXY_PORTS: [u16; 2] = [10249, 10256];

/// Returns the node that a name or an address names. `None` for other objects.
pub(super) fn target_node<'c>(cluster: &'c Cluster, name: &ObjectName) -> Option<&'c Node> {
    let has_address = |node: &&Node, address: &IpAddr| {
        let mut addresses = node.addresses.iter();
        addresses.any(|own| own.ip() == *address)
    };
    match name {
        ObjectName::Machine(name) => cluster.nodes.iter().find(|node| node.name == *name),
        ObjectName::Address(address) => cluster.nodes.iter().find(|n| has_address(n, address)),
        _ => None,
    }
}

/// Whether rules of a node may serve a port: as a node port, or as the port of an address that the
/// node has for a service. Manual rules, leftovers and dumps may serve any port.
pub(super) fn may_serve(
    cluster: &Cluster,
    node: &Node,
    target: Target,
    protocol: ProbeProtocol,
) -> bool {
    let has_other_rules = cluster.has_dumps
        || cluster.nodes.iter().any(|node| {
            node.by_hand != ByHand::default() || node.leftovers != Leftovers::default()
        });
    let is_health_port = |service: &Service| service.health_check_node_port == Some(target.port);
    let serves = |service: &Service, port: &PortSpec| {
        is_same(port.protocol, protocol)
            && (port.node_port == Some(target.port)
                || port.port == target.port && service.has_address(target.address))
    };
    has_other_rules
        || node.has_real_kube_proxy() && KUBE_PROXY_PORTS.contains(&target.port)
        || cluster.services.iter().any(|service| {
            is_health_port(service) || service.ports.iter().any(|port| serves(service, port))
        })
}

/// Describes the service that a port number belongs to, for a probe to another port of an object.
pub(super) fn describe_port(
    cluster: &Cluster,
    name: &ObjectName,
    protocol: ProbeProtocol,
    number: u16,
) -> Option<String> {
    if let Some(owner) = describe_owner(cluster, protocol, number) {
        return Some(owner);
    }
    target_node(cluster, name)?;
    let ports = || {
        let services = cluster.services.iter();
        services.flat_map(|service| service.ports.iter().map(move |port| (service, port)))
    };
    let is_own = |(_, port): &(&Service, &PortSpec)| port.port == number;
    if let Some((service, node_port)) = ports()
        .filter(is_own)
        .find_map(|(service, port)| Some((service, port.node_port?)))
    {
        return Some(format!(
            "{number} is the port of service {}, and its node port is {node_port}: write \
             `{name}:{node_port}`",
            service.full_name()
        ));
    }
    let mut known: Vec<String> = ports()
        .filter(|(_, port)| is_same(port.protocol, protocol))
        .filter_map(|(service, port)| {
            Some(format!("{} ({})", port.node_port?, service.full_name()))
        })
        .collect();
    if known.is_empty() {
        return Some("no service has a node port".to_owned());
    }
    let more = known.len().saturating_sub(MAX_LISTED);
    known.truncate(MAX_LISTED);
    let more = if more > 0 {
        format!(" and {more} more")
    } else {
        String::new()
    };
    Some(format!("the node ports are {}{more}", known.join(", ")))
}

/// Describes the service with a node port. `None` if there is none.
pub(super) fn describe_owner(
    cluster: &Cluster,
    protocol: ProbeProtocol,
    number: u16,
) -> Option<String> {
    let ports = cluster.services.iter().flat_map(|service| {
        let ports = service.ports.iter();
        ports.map(move |port| (service, port))
    });
    let (service, port) = ports
        .filter(|(_, port)| port.node_port == Some(number))
        .min_by_key(|(_, port)| !is_same(port.protocol, protocol))?;
    let over = if is_same(port.protocol, protocol) {
        String::new()
    } else {
        format!(" over {}", port.protocol.name().to_uppercase())
    };
    Some(format!(
        "{number} is the node port of service {}{over}: write `NODE:{number}`",
        service.full_name()
    ))
}

fn is_same(protocol: Protocol, probe: ProbeProtocol) -> bool {
    matches!(
        (protocol, probe),
        (Protocol::Tcp, ProbeProtocol::Tcp) | (Protocol::Udp, ProbeProtocol::Udp)
    )
}
