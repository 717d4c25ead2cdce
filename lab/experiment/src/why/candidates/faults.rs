//! Turns the objects at fault that facts name into changes of these objects.

use std::net::IpAddr;

use super::ProposedChange;
use svclab_judge::{
    Cause, Deviation, Fact, Fault, InterfaceName, InterfaceProperty, Rejection, RouteDecision,
    RouteLookup,
};
use svclab_model::plan::{
    ETHERNET_MTU, Forwarding, ForwardingTarget, Link, LinkKind, Mac, Namespace, Neighbour, Plan,
    Route, RouteKind,
};
use svclab_planner::cluster::{Cluster, FABRIC, INTERNET};
use svclab_rules::flannel::VXLAN_OVERHEAD;

/// Returns the changes of the object that a fact names.
pub(super) fn fault_changes(plan: &Plan, cluster: &Cluster, fact: &Fact) -> Vec<ProposedChange> {
    let (namespace, fault) = match fact {
        Fact::Lost {
            namespace, cause, ..
        } => match cause {
            Cause::Kernel { fault, .. }
            | Cause::Counter { fault, .. }
            | Cause::NotReceived { fault, .. }
            | Cause::Unknown { fault }
            | Cause::Waiting {
                fault: fault @ Some(_),
                ..
            } => (namespace, fault.as_ref()),
            Cause::Waiting { neighbour, .. } => {
                let Some(target) = plan.namespace(namespace) else {
                    return Vec::new();
                };
                let interface = interface_to(target, *neighbour);
                let change =
                    interface.and_then(|dev| known_neighbour(plan, target, *neighbour, dev));
                return change.into_iter().collect();
            }
            Cause::Rule { .. } => return Vec::new(),
        },
        Fact::Reached {
            namespace,
            destination,
            ..
        } => {
            let address = destination.address.ip();
            let target = plan.namespace(namespace);
            let is_of_other =
                links_of_others(plan, namespace).any(|link| has_address(link, address));
            let target = target.filter(|_| is_of_other);
            let changes = target.map(|target| foreign_address(cluster, target, address));
            return changes.unwrap_or_default();
        }
        Fact::Rejected {
            namespace,
            rejection: Rejection::Icmp { fault, .. } | Rejection::Packet { fault, .. },
            ..
        }
        | Fact::NothingSent {
            namespace, fault, ..
        } => (namespace, fault.as_ref()),
        Fact::Deviates {
            namespace,
            deviation: Deviation::Queue {
                interface, kind, ..
            },
        } => {
            return vec![ProposedChange::DeleteQueue {
                namespace: namespace.clone(),
                link: interface.clone(),
                parent: match kind.as_str() {
                    "clsact" | "ingress" => kind.clone(),
                    _ => "root".to_owned(),
                },
            }];
        }
        Fact::Deviates {
            namespace,
            deviation:
                Deviation::Interface {
                    interface,
                    property: InterfaceProperty::VlanFiltering,
                    ..
                },
        } => {
            return vec![ProposedChange::DisableVlanFiltering {
                namespace: namespace.clone(),
                bridge: interface.clone(),
            }];
        }
        _ => return Vec::new(),
    };
    let (Some(fault), Some(target)) = (fault, plan.namespace(namespace)) else {
        return Vec::new();
    };
    // The interface at fault may be in another namespace than the packet's last one.
    if let Fault::Down { interface } = fault {
        return link_up(interface).into_iter().collect();
    }
    let place = match fault {
        Fault::Mtu { namespace: own, .. } => own,
        _ => namespace,
    };
    // An operator cannot edit the network between nodes.
    if place == FABRIC || place == INTERNET {
        return Vec::new();
    }
    object_changes(plan, cluster, target, fault)
}

fn link_up(interface: &InterfaceName) -> Option<ProposedChange> {
    let is_editable = interface.namespace != FABRIC && interface.namespace != INTERNET;
    is_editable.then(|| ProposedChange::SetLinkUp {
        namespace: interface.namespace.clone(),
        link: interface.interface.clone(),
    })
}

fn object_changes(
    plan: &Plan,
    cluster: &Cluster,
    target: &Namespace,
    fault: &Fault,
) -> Vec<ProposedChange> {
    let namespace = || target.name.clone();
    let change = match fault {
        Fault::Route { lookup } | Fault::SourceRoute { lookup } => {
            return lookup_changes(cluster, target, lookup);
        }
        Fault::Neighbour { address, interface } => {
            known_neighbour(plan, target, *address, interface)
        }
        Fault::Mtu {
            namespace,
            interface,
            length,
            ..
        } => plan
            .namespace(namespace)
            .and_then(|owner| larger_mtu(owner, interface, *length)),
        Fault::HardwareAddress {
            address,
            receiver,
            neighbour,
            bridge,
            ..
        } => {
            let Some(dev) = interface_to_peer(target, receiver) else {
                return Vec::new();
            };
            if bridge.is_some() {
                return static_entries(target, *address, dev);
            }
            neighbour.and_then(|neighbour| {
                let mut entries = target.neighbours.iter();
                let entry = entries.find(|entry| entry.address == neighbour);
                let dev = entry.map_or(dev, |entry| &entry.dev);
                known_neighbour(plan, target, neighbour, dev)
            })
        }
        Fault::Hairpin { port, .. } => Some(set_port(target, port, "hairpin", true)),
        Fault::IsolatedPorts { ingress, port, .. } => {
            let ports = [port, ingress].into_iter();
            return ports
                .map(|port| set_port(target, port, "isolated", false))
                .collect();
        }
        Fault::UnknownHardwareAddress { port, .. } => {
            let settings = ["flood", "learning"].into_iter();
            return settings
                .map(|setting| set_port(target, port, setting, true))
                .collect();
        }
        Fault::DisabledPort { port, .. } => Some(set_port(target, port, "state", true)),
        Fault::LockedPort { port, .. } => Some(set_port(target, port, "locked", false)),
        Fault::BridgePort {
            port, down: true, ..
        } => Some(ProposedChange::SetLinkUp {
            namespace: namespace(),
            link: port.clone(),
        }),
        Fault::Vxlan {
            interface,
            neighbour,
            address,
        } => return tunnel_changes(plan, target, interface, *neighbour, *address),
        Fault::VxlanRemote {
            interface,
            neighbour,
            address,
            ..
        } => return tunnel_changes(plan, target, interface, *neighbour, Some(*address)),
        Fault::VirtualServer { address, .. } => Some(ProposedChange::EnableRealServers {
            namespace: namespace(),
            server: *address,
        }),
        Fault::IngressRule { rule, .. } => {
            let position = rule.number.zip(rule.rule.clone());
            position.map(|(number, text)| ProposedChange::DeleteNftRule {
                namespace: namespace(),
                table: rule.table.clone(),
                chain: rule.chain.clone(),
                number,
                rule: text,
            })
        }
        Fault::NoIpv6 { interface, .. } => larger_mtu(target, interface, 0),
        // Copies of a lab have ARP on all interfaces.
        Fault::ReturnedFrame { .. }
        // The network of the bridge is among the networks that the packet met.
        | Fault::UnconnectedNeighbour { .. }
        // These rules are among the matched rules.
        | Fault::Ttl { .. }
        | Fault::QueueRule { .. }
        | Fault::UsedAddresses { .. }
        // The deviating route of a routing loop is among the routes that the packet met.
        | Fault::RoutingLoop { .. }
        | Fault::BridgePort { down: false, .. }
        | Fault::Down { .. }
        | Fault::Dummy { .. }
        // Copies of a lab do not have IPsec policies.
        | Fault::IpsecPolicy { .. } => None,
    };
    change.into_iter().collect()
}

/// Returns the deletion of the objects that decided a route lookup: the route, the routing rule,
/// or an address that makes a foreign address local.
fn lookup_changes(
    cluster: &Cluster,
    target: &Namespace,
    lookup: &RouteLookup,
) -> Vec<ProposedChange> {
    let routes = |text: &String| -> Vec<ProposedChange> {
        let routes = target.routes.iter();
        let named = routes.filter(|route| route.to_string() == *text && is_deletable(route));
        let delete = |route: &Route| ProposedChange::DeleteRoute {
            namespace: target.name.clone(),
            route: Box::new(route.clone()),
        };
        named.map(delete).collect()
    };
    let mut changes = Vec::new();
    match &lookup.decision {
        RouteDecision::Refusal { route, .. } | RouteDecision::Unicast { route, .. } => {
            changes.extend(routes(route));
        }
        RouteDecision::Local { .. } => {
            changes.extend(foreign_address(cluster, target, lookup.address));
        }
        RouteDecision::None { .. } | RouteDecision::RuleRefusal => {}
    }
    changes.extend(lookup.thrown.iter().flat_map(routes));
    let rules = target.routing_rules.iter();
    let named = rules.filter(|rule| lookup.rule.as_ref() == Some(&rule.to_string()));
    changes.extend(named.map(|rule| ProposedChange::DeleteRoutingRule {
        namespace: target.name.clone(),
        rule: Box::new(rule.clone()),
    }));
    changes
}

/// Whether packets find another route without this one. Without its default route, a node reaches
/// less.
fn is_deletable(route: &Route) -> bool {
    route.to.prefix() > 0 || !route.kind.is_unicast()
}

/// Returns the deletion of an address, or of a local route, that the lab does not give to the
/// namespace.
fn foreign_address(cluster: &Cluster, target: &Namespace, address: IpAddr) -> Vec<ProposedChange> {
    let mut nodes = cluster.nodes.iter();
    let node = nodes.find(|node| node.name == target.name);
    let is_own = node.is_some_and(|node| node.addresses.iter().any(|own| own.ip() == address));
    if is_own {
        return Vec::new();
    }
    let namespace = || target.name.clone();
    let links = target.links.iter();
    let addresses = links.flat_map(|link| link.addresses.iter().map(|own| (&*link.name, *own)));
    let loopback = target.loopback.iter().map(|own| ("lo", *own));
    let addresses = addresses.chain(loopback);
    let named = addresses.filter(|(_, own)| own.ip() == address);
    let mut changes: Vec<ProposedChange> = named
        .map(|(link, own)| ProposedChange::DeleteAddress {
            namespace: namespace(),
            link: link.to_owned(),
            address: own,
        })
        .collect();
    let routes = target.routes.iter();
    let local = routes.filter(|route| route.kind == RouteKind::Local && route.to.contains(address));
    changes.extend(local.map(|route| ProposedChange::DeleteRoute {
        namespace: namespace(),
        route: Box::new(route.clone()),
    }));
    changes
}

/// Returns the change of an MTU to the usual one, and at least to this number of bytes.
fn larger_mtu(owner: &Namespace, interface: &str, least: u32) -> Option<ProposedChange> {
    let mut links = owner.links.iter();
    let link = links.find(|link| link.name == interface)?;
    Some(ProposedChange::SetMtu {
        namespace: owner.name.clone(),
        link: interface.to_owned(),
        mtu: usual_mtu(link).max(least),
    })
}

/// Returns the MTU that an interface usually has, in bytes.
fn usual_mtu(link: &Link) -> u32 {
    match link.kind {
        LinkKind::Vxlan { .. } => ETHERNET_MTU - VXLAN_OVERHEAD,
        _ => ETHERNET_MTU,
    }
}

fn set_neighbour(target: &Namespace, address: IpAddr, mac: Mac, dev: &str) -> ProposedChange {
    ProposedChange::SetNeighbour {
        namespace: target.name.clone(),
        neighbour: Box::new(Neighbour {
            address,
            mac,
            dev: dev.to_owned(),
        }),
    }
}

fn set_port(target: &Namespace, port: &str, setting: &str, on: bool) -> ProposedChange {
    ProposedChange::SetPort {
        namespace: target.name.clone(),
        link: port.to_owned(),
        setting: setting.to_owned(),
        on,
    }
}

/// Returns the deletions of the entries that lead from a hardware address to a port.
fn static_entries(target: &Namespace, address: Mac, port: &str) -> Vec<ProposedChange> {
    let entries = target.forwarding.iter();
    let leading = entries.filter(|entry| entry.mac == address && entry.dev == port);
    leading
        .map(|entry| ProposedChange::DeleteForwarding {
            namespace: target.name.clone(),
            entry: Box::new(entry.clone()),
        })
        .collect()
}

/// Returns the static entry of a neighbour whose interface the plan has.
fn known_neighbour(
    plan: &Plan,
    target: &Namespace,
    address: IpAddr,
    dev: &str,
) -> Option<ProposedChange> {
    let owner = links_of_others(plan, &target.name).find(|link| has_address(link, address))?;
    Some(set_neighbour(target, address, owner.mac, dev))
}

/// Returns the interfaces of all namespaces but one.
fn links_of_others<'p>(plan: &'p Plan, name: &str) -> impl Iterator<Item = &'p Link> {
    let others = plan.namespaces.iter();
    others
        .filter(move |other| other.name != name)
        .flat_map(|other| &other.links)
}

fn has_address(link: &Link, address: IpAddr) -> bool {
    link.addresses.iter().any(|own| own.ip() == address)
}

/// Returns the interface whose subnet contains an address.
fn interface_to(target: &Namespace, address: IpAddr) -> Option<&str> {
    let mut links = target.links.iter();
    let link = links.find(|link| link.addresses.iter().any(|own| own.contains(address)))?;
    Some(&link.name)
}

/// Returns the interface at whose other end another interface is.
fn interface_to_peer<'n>(target: &'n Namespace, receiver: &InterfaceName) -> Option<&'n str> {
    let is_peer = |link: &&Link| {
        matches!(&link.kind, LinkKind::Veth { namespace, peer }
            if *namespace == receiver.namespace && *peer == receiver.interface)
    };
    let link = target.links.iter().find(is_peer)?;
    Some(&link.name)
}

/// Returns the entries by which a VXLAN device finds the tunnel end of a neighbour.
fn tunnel_changes(
    plan: &Plan,
    target: &Namespace,
    interface: &str,
    neighbour: IpAddr,
    known: Option<Mac>,
) -> Vec<ProposedChange> {
    let mut links = links_of_others(plan, &target.name);
    let end = links.find_map(|link| match link.kind {
        LinkKind::Vxlan { local, .. } if has_address(link, neighbour) => Some((link.mac, local)),
        _ => None,
    });
    let Some((mac, local)) = end else {
        return Vec::new();
    };
    let forwarding = ProposedChange::SetForwarding {
        namespace: target.name.clone(),
        entry: Box::new(Forwarding {
            dev: interface.to_owned(),
            mac,
            to: ForwardingTarget::Remote(local),
        }),
    };
    match known {
        Some(known) if known == mac => vec![forwarding],
        _ => vec![set_neighbour(target, neighbour, mac, interface), forwarding],
    }
}
