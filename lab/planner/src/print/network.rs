//! Formats interfaces, addresses, neighbours, routes and forwarding entries as input of `ip -batch`
//! and `bridge -batch`.

use std::fmt::Write as _;

use ipnetwork::IpNetwork;

use super::{join_lines, netns_name};
use svclab_model::plan::{
    Forwarding, ForwardingTarget, Link, LinkKind, Mac, Namespace, Neighbour, Plan, PortSettings,
    Route, RouteKind, RoutingRule,
};

/// Returns the commands that create the interfaces of one namespace. The namespace that comes first
/// creates both ends of a veth pair.
pub(super) fn render_links(plan: &Plan, namespace_index: usize) -> String {
    let namespace = &plan.namespaces[namespace_index];
    let mut commands = vec!["link set dev lo up".to_owned()];
    for link in &namespace.links {
        let head = format!("link add {}", unsegmented(link));
        match &link.kind {
            LinkKind::Bridge => commands.push(format!("{head} type bridge")),
            LinkKind::Dummy => {
                commands.push(format!("link add {} type dummy", device_arguments(link)));
            }
            LinkKind::Vxlan {
                vni,
                port,
                dev,
                local,
            } => commands.push(format!(
                "{head} type vxlan id {vni} dev {dev} local {local} dstport {port} nolearning"
            )),
            LinkKind::Veth {
                namespace: peer_namespace,
                peer,
            } => {
                let peer_index = plan
                    .namespaces
                    .iter()
                    .position(|candidate| candidate.name == *peer_namespace);
                let peer_link = peer_index.and_then(|there| {
                    let links = &plan.namespaces[there].links;
                    links.iter().find(|link| link.name == *peer)
                });
                let (Some(there), Some(other)) = (peer_index, peer_link) else {
                    commands.push(format!(
                        "# {}: the plan has no peer {peer} in {peer_namespace}",
                        link.name
                    ));
                    continue;
                };
                if (namespace_index, &link.name) <= (there, peer) {
                    commands.push(format!(
                        "{head} type veth peer {} netns {}",
                        unsegmented(other),
                        netns_name(peer_namespace)
                    ));
                }
            }
        }
    }
    join_lines(commands.into_iter())
}

/// Returns the properties of an interface to create, which sends each TCP segment as a packet of its
/// own.
fn unsegmented(link: &Link) -> String {
    format!("{} gso_max_segs 1", device_arguments(link))
}

pub(super) fn device_arguments(link: &Link) -> String {
    let mtu = link.mtu.map(|mtu| format!(" mtu {mtu}"));
    format!(
        "name {} address {}{}",
        link.name,
        link.mac,
        mtu.unwrap_or_default()
    )
}

pub(super) fn render_addresses(namespace: &Namespace) -> String {
    let mut commands = Vec::new();
    for link in &namespace.links {
        if let Some(bridge) = &link.bridge {
            commands.push(format!("link set dev {} master {bridge}", link.name));
            let settings = link.port.without_state();
            if !settings.is_default() {
                let name = &link.name;
                commands.push(format!("link set dev {name} type bridge_slave{settings}"));
            }
        }
        commands.extend(address_commands(&link.name, &link.addresses));
    }
    let up = |link: &Link| format!("link set dev {} up", link.name);
    let up_links = namespace.links.iter().filter(|link| !link.down);
    commands.extend(up_links.map(up));
    commands.extend(namespace.neighbours.iter().map(neighbour_command));
    commands.extend(address_commands("lo", &namespace.loopback));
    commands.extend(namespace.routes.iter().map(route_command));
    let multipath_routes = namespace.multipath_routes.iter();
    commands.extend(multipath_routes.map(|route| format!("route add {route} proto static")));
    let removed_routes = namespace.removed_routes.iter();
    let route_deletion = |(to, dev): &(IpNetwork, String)| {
        format!("route del {} dev {dev} proto kernel", network_text(*to))
    };
    commands.extend(removed_routes.map(route_deletion));
    join_lines(commands.into_iter())
}

pub(super) fn address_commands(dev: &str, addresses: &[IpNetwork]) -> Vec<String> {
    let broadcast = |address: &IpNetwork| match address {
        IpNetwork::V4(v4) if v4.prefix() < 32 => format!(" broadcast {}", v4.broadcast()),
        IpNetwork::V4(_) | IpNetwork::V6(_) => String::new(),
    };
    let add =
        |address: &IpNetwork| format!("address add {address}{} dev {dev}", broadcast(address));
    addresses.iter().map(add).collect()
}

pub(super) fn neighbour_command(neighbour: &Neighbour) -> String {
    format!(
        "neighbour replace {} lladdr {} dev {} nud permanent",
        neighbour.address, neighbour.mac, neighbour.dev
    )
}

pub(super) fn route_command(route: &Route) -> String {
    let kind = match route.kind {
        RouteKind::Unicast => String::new(),
        kind => format!("{} ", kind.name()),
    };
    let mut line = format!("route add {kind}{}", network_text(route.to));
    if let Some(via) = route.via {
        let _ = write!(line, " via {via}");
    }
    if !route.dev.is_empty() {
        let _ = write!(line, " dev {}", route.dev);
    }
    line.push_str(" proto static");
    if route.kind.is_unicast() && route.via.is_none() && route.to.is_ipv4() {
        line.push_str(" scope link");
    }
    if let Some(table) = route.table {
        let _ = write!(line, " table {table}");
    }
    if let Some(metric) = route.metric {
        let _ = write!(line, " metric {metric}");
    }
    if route.onlink {
        line.push_str(" onlink");
    }
    if let Some(source) = route.source {
        let _ = write!(line, " src {source}");
    }
    line
}

pub(super) fn routing_rule_command(rule: &RoutingRule) -> String {
    format!("rule add {rule} protocol static")
}

/// Returns the network address, because `ip` rejects host bits.
pub(super) fn network_text(to: IpNetwork) -> String {
    format!("{}/{}", to.network(), to.prefix())
}

/// Renders the input of `bridge -batch`: forwarding entries, and ports that do not forward.
pub(super) fn render_bridge(namespace: &Namespace) -> String {
    let entries = namespace.forwarding.iter().map(forwarding_command);
    let links = namespace.links.iter();
    let disabled = links.filter(|link| link.is_disabled_port());
    let disabled = disabled.map(|link| port_state_command(&link.name, false));
    join_lines(entries.chain(disabled))
}

/// Returns the arguments of `bridge` that enable or disable a port.
pub(super) fn port_state_command(name: &str, forwarding: bool) -> String {
    let state = PortSettings::value("state", forwarding);
    format!("link set dev {name} state {state}")
}

pub(super) fn forwarding_command(entry: &Forwarding) -> String {
    let verb = match entry.to {
        // The address that is all zeros can have several entries.
        ForwardingTarget::Remote(_) if entry.mac == Mac::ZERO => "append",
        ForwardingTarget::Remote(_) => "add",
        // The bridge may have learned the address.
        ForwardingTarget::Port | ForwardingTarget::StickyPort | ForwardingTarget::Node => "replace",
    };
    format!("fdb {verb} {entry}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn render_links_veth_without_peer_is_comment() {
        let mut plan = super::super::tests::small_plan();
        plan.namespaces[1].links.remove(0);
        let links = render_links(&plan, 0);
        assert_eq!(
            links,
            "link set dev lo up\n# eth0: the plan has no peer client in router\n"
        );
    }
}
