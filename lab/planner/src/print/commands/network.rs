//! Renders changes of sysctls, interfaces, addresses, neighbours, routes and routing rules.

use std::collections::BTreeMap;

use ipnetwork::IpNetwork;

use super::super::network::{
    device_arguments, forwarding_command, network_text, port_state_command,
};
use crate::delta::difference;
use svclab_model::plan::{
    ETHERNET_MTU, Forwarding, Link, LinkKind, Namespace, Neighbour, PortSettings, Route,
    RouteSettings, RoutingRule,
};

/// Returns the commands for changed sysctls. The last value of a sysctl applies. A sysctl without a
/// wanted value keeps its value.
pub(super) fn sysctl_commands(old: &Namespace, new: &Namespace) -> Vec<String> {
    let values = |namespace: &Namespace| -> BTreeMap<String, String> {
        let sysctls = namespace.sysctls.iter();
        sysctls
            .map(|sysctl| (sysctl.key.clone(), sysctl.value.clone()))
            .collect()
    };
    let (old, new) = (values(old), values(new));
    let changed = new
        .iter()
        .filter(|(key, value)| old.get(*key) != Some(value));
    let set = changed.map(|(key, value)| {
        let value = if value.contains([' ', '\t']) {
            format!("\"{value}\"")
        } else {
            value.clone()
        };
        format!("sysctl -w {key}={value}")
    });
    set.collect()
}

/// Returns the commands for changed interfaces, their addresses, neighbours and forwarding entries.
pub(super) fn link_commands(old: &Namespace, new: &Namespace) -> Vec<String> {
    let mut lines = Vec::new();
    for link in &old.links {
        if find_link(new, &link.name).is_none() {
            lines.push(format!("ip link del {}", link.name));
        }
    }
    for link in &new.links {
        match find_link(old, &link.name) {
            Some(current) if current.kind == link.kind => {
                lines.extend(changed_link(current, link));
            }
            Some(_) => {
                lines.push(format!("ip link del {}", link.name));
                lines.extend(new_link(link));
            }
            None => lines.extend(new_link(link)),
        }
    }
    lines.extend(address_changes("lo", &old.loopback, &new.loopback));
    lines.extend(neighbour_commands(&old.neighbours, &new.neighbours));
    lines.extend(forwarding_commands(&old.forwarding, &new.forwarding));
    lines
}

fn find_link<'n>(namespace: &'n Namespace, name: &str) -> Option<&'n Link> {
    namespace.links.iter().find(|link| link.name == name)
}

fn new_link(link: &Link) -> Vec<String> {
    let head = format!("ip link add {}", device_arguments(link));
    let creation = match &link.kind {
        LinkKind::Bridge => format!("{head} type bridge"),
        LinkKind::Dummy => format!("{head} type dummy"),
        LinkKind::Vxlan {
            vni,
            port,
            dev,
            local,
        } => {
            format!("{head} type vxlan id {vni} dev {dev} local {local} dstport {port} nolearning")
        }
        LinkKind::Veth { namespace, peer } => {
            format!("# {head} type veth, with the peer {peer} in {namespace}")
        }
    };
    let created = Link {
        addresses: Vec::new(),
        bridge: None,
        port: PortSettings::default(),
        down: true,
        ..link.clone()
    };
    let mut lines = vec![creation];
    lines.extend(mtu_command(None, link));
    lines.extend(changed_link(&created, link));
    lines
}

/// Returns the commands for the MTUs of interfaces that exist. Below the minimum of IPv6, an interface
/// has no sysctls of IPv6 and accepts no addresses.
pub(super) fn mtu_commands(old: &Namespace, new: &Namespace) -> Vec<String> {
    let links = new.links.iter();
    let known = links.filter_map(|link| Some((find_link(old, &link.name)?, link)));
    known
        .filter(|(before, link)| before.kind == link.kind)
        .filter_map(|(before, link)| mtu_command(before.mtu, link))
        .collect()
}

fn mtu_command(old: Option<u32>, new: &Link) -> Option<String> {
    let name = &new.name;
    match new.mtu {
        Some(mtu) if old != new.mtu => Some(format!("ip link set dev {name} mtu {mtu}")),
        None if old.is_some() => Some(match new.kind {
            LinkKind::Veth { .. } | LinkKind::Dummy => {
                format!("ip link set dev {name} mtu {ETHERNET_MTU}")
            }
            LinkKind::Bridge | LinkKind::Vxlan { .. } => {
                format!("# set the MTU of {name} to the default of the kernel")
            }
        }),
        _ => None,
    }
}

/// Returns the commands for the properties of an interface, except its MTU.
fn changed_link(old: &Link, new: &Link) -> Vec<String> {
    let name = &new.name;
    let mut lines = Vec::new();
    if old.mac != new.mac {
        lines.push(format!("ip link set dev {name} address {}", new.mac));
    }
    if old.bridge != new.bridge {
        lines.push(match &new.bridge {
            Some(bridge) => format!("ip link set dev {name} master {bridge}"),
            None => format!("ip link set dev {name} nomaster"),
        });
    }
    let [before, after] = [old, new].map(|link| link.port.without_state().settings());
    let changed = after.into_iter().zip(before);
    let changed = changed.filter(|(new, old)| new != old);
    let changed = changed
        .map(|((setting, is_on), _)| format!(" {setting} {}", PortSettings::value(setting, is_on)));
    let changed: String = changed.collect();
    if !changed.is_empty() {
        lines.push(format!("bridge link set dev {name}{changed}"));
    }
    lines.extend(address_changes(name, &old.addresses, &new.addresses));
    if old.down != new.down {
        let state = if new.down { "down" } else { "up" };
        lines.push(format!("ip link set dev {name} {state}"));
    }
    // The kernel enables the port of an interface that comes up, and changes no port that is down.
    let forwards = old.down || old.port.forwarding;
    if !new.down && forwards != new.port.forwarding {
        let command = port_state_command(name, new.port.forwarding);
        lines.push(format!("bridge {command}"));
    }
    lines
}

fn address_changes(dev: &str, old: &[IpNetwork], new: &[IpNetwork]) -> Vec<String> {
    let removed = difference(old, new);
    let removed = removed
        .iter()
        .map(|own| format!("ip address del {own} dev {dev}"));
    let added = difference(new, old);
    let added = added
        .iter()
        .map(|own| format!("ip address add {own} dev {dev}"));
    removed.chain(added).collect()
}

fn neighbour_commands(old: &[Neighbour], new: &[Neighbour]) -> Vec<String> {
    let added = difference(new, old);
    let removed = difference(old, new).into_iter().filter(|entry| {
        let is_replaced =
            |other: &Neighbour| other.address == entry.address && other.dev == entry.dev;
        !added.iter().any(is_replaced)
    });
    let removed = removed.map(|entry| format!("ip neigh del {} dev {}", entry.address, entry.dev));
    let set = added.iter().map(|entry| {
        let Neighbour { address, mac, dev } = entry;
        format!("ip neigh replace {address} lladdr {mac} dev {dev} nud permanent")
    });
    removed.chain(set).collect()
}

fn forwarding_commands(old: &[Forwarding], new: &[Forwarding]) -> Vec<String> {
    let removed = difference(old, new);
    let removed = removed
        .iter()
        .map(|entry| format!("bridge fdb del {entry}"));
    let added = difference(new, old);
    let added = added
        .iter()
        .map(|entry| format!("bridge {}", forwarding_command(entry)));
    removed.chain(added).collect()
}

/// Returns the commands for changed routing rules and routes.
pub(super) fn route_commands(old: &Namespace, new: &Namespace) -> Vec<String> {
    let mut lines = Vec::new();
    let rules = |verb: &str, of: &[RoutingRule], without: &[RoutingRule]| -> Vec<String> {
        let render = |rule: RoutingRule| {
            let family = if rule.v6 { " -6" } else { "" };
            format!("ip{family} rule {verb} {rule}")
        };
        difference(of, without).into_iter().map(render).collect()
    };
    let (old_removed, new_removed) = (&old.removed_routing_rules, &new.removed_routing_rules);
    // Without rules in between, the node would lose packets.
    lines.extend(rules("add", old_removed, new_removed));
    lines.extend(rules("add", &new.routing_rules, &old.routing_rules));
    lines.extend(rules("del", &old.routing_rules, &new.routing_rules));
    lines.extend(rules("del", new_removed, old_removed));
    // A route that the kernel adds for an address is part of a plan only if the route was removed.
    let connected = |verb: &str, routes: Vec<(IpNetwork, String)>| -> Vec<String> {
        let render = |(to, dev): (IpNetwork, String)| {
            format!("ip route {verb} {} dev {dev}", network_text(to))
        };
        routes.into_iter().map(render).collect()
    };
    lines.extend(connected(
        "add",
        difference(&old.removed_routes, &new.removed_routes),
    ));
    lines.extend(connected(
        "del",
        difference(&new.removed_routes, &old.removed_routes),
    ));
    let (removed, added) = (routes_without(old, new), routes_without(new, old));
    let has = |routes: &[KeyedRoute], key| routes.iter().any(|(other, _)| *other == key);
    let deleted = removed.iter().filter(|(key, _)| !has(&added, *key));
    lines.extend(deleted.map(|(_, route)| format!("ip route del {route}")));
    // The kernel refuses to add a second route with the same key.
    lines.extend(added.iter().map(|(key, route)| {
        let replaces = has(&removed, *key);
        let verb = if replaces { "replace" } else { "add" };
        format!("ip route {verb} {route}")
    }));
    lines
}

/// Identity of a route: destination, table, metric, traffic class and source network.
type RouteKey = (
    IpNetwork,
    Option<u32>,
    Option<u32>,
    Option<u8>,
    Option<IpNetwork>,
);

/// Arguments of `ip route` for a route, with its key.
type KeyedRoute = (RouteKey, String);

/// Returns the routes of a namespace that another one lacks.
fn routes_without(of: &Namespace, without: &Namespace) -> Vec<KeyedRoute> {
    let single = difference(&of.routes, &without.routes).into_iter();
    // Metric of an IPv6 route without one (Linux v6.12, `include/uapi/linux/ipv6_route.h`,
    // `IP6_RT_PRIO_USER`).
    let key = |to: IpNetwork, table, metric: Option<u32>, settings: RouteSettings| {
        let metric = metric.or(to.is_ipv6().then_some(1024));
        (to, table, metric, settings.tos, settings.from)
    };
    let single = single.map(|route| {
        let key = key(route.to, route.table, route.metric, route.settings);
        (key, route_arguments(&route))
    });
    let several = difference(&of.multipath_routes, &without.multipath_routes).into_iter();
    let several = several.map(|route| {
        let key = key(route.to, route.table, route.metric, route.settings);
        (key, route.to_string())
    });
    single.chain(several).collect()
}

/// Formats a route for `ip route`, which rejects host bits in the destination.
fn route_arguments(route: &Route) -> String {
    let to = IpNetwork::new(route.to.network(), route.to.prefix()).unwrap_or(route.to);
    Route {
        to,
        ..route.clone()
    }
    .to_string()
}
