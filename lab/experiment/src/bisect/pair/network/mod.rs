//! Merges interfaces, addresses, routes, neighbours and sysctls of a namespace.

mod dependents;

use std::fmt::Write as _;

use ipnetwork::IpNetwork;

use super::difference::Kind;
use super::graph::{DifferenceGraph, OwnerKey, Scope};
use crate::bisect::merge::{self, Merged};
use svclab_model::plan::{
    Forwarding, Link, LinkKind, Mac, MultipathRoute, Namespace, Neighbour, PortSettings, Route,
    RouteKind, RoutingRule, Sysctl,
};

/// Setting of a bridge port: interface, name and value.
type PortSetting = (String, &'static str, bool);

/// Merged network configuration of a namespace.
#[derive(Debug, Clone)]
pub struct MergedNetwork {
    /// Interfaces without their addresses and bridge port settings.
    pub links: Merged<Link>,
    ports: Merged<PortSetting>,
    /// Addresses by interface name.
    addresses: Vec<(String, Merged<IpNetwork>)>,
    /// Addresses of `lo`.
    loopback: Merged<IpNetwork>,
    routes: Merged<Route>,
    multipath_routes: Merged<MultipathRoute>,
    /// Routes of addresses that were removed, each with its interface.
    removed_routes: Merged<(IpNetwork, String)>,
    routing_rules: Merged<RoutingRule>,
    /// Rules of the kernel that were deleted.
    removed_routing_rules: Merged<RoutingRule>,
    neighbours: Merged<Neighbour>,
    forwarding: Merged<Forwarding>,
    sysctls: Merged<Sysctl>,
}

impl MergedNetwork {
    /// Merges the network configuration of two namespaces.
    pub fn new(good: &Namespace, bad: &Namespace, graph: &mut DifferenceGraph) -> Self {
        let namespace = good.name.as_str();
        let make_scope = |kind, location: &str| Scope {
            namespace,
            kind,
            location: location.to_owned(),
        };
        let without_addresses = |links: &[Link]| -> Vec<Link> {
            let bare = links.iter().map(|link| Link {
                addresses: Vec::new(),
                port: PortSettings::default(),
                ..link.clone()
            });
            bare.collect()
        };
        let (good_links, bad_links) = (
            without_addresses(&good.links),
            without_addresses(&bad.links),
        );
        let scope = make_scope(Kind::Link, "interfaces");
        let describe = |link: &Link| (describe_link(link), OwnerKey::Link(link.name.clone()));
        let links = graph.add_keyed(
            &scope,
            &good_links,
            &bad_links,
            |link| link.name.clone(),
            describe,
        );
        let ports = merge_port_settings(good, bad, graph);
        let addresses = merge_addresses(good, bad, graph);
        let scope = make_scope(Kind::Address, "interface lo");
        let describe = |address: &IpNetwork| (address.to_string(), OwnerKey::Unknown);
        let (good_loopback, bad_loopback) = (&good.loopback, &bad.loopback);
        let loopback = graph.add_keyed(
            &scope,
            good_loopback,
            bad_loopback,
            |address| *address,
            describe,
        );
        let scope = make_scope(Kind::Route, "routes");
        let describe = |route: &Route| (render_route(route), OwnerKey::Unknown);
        let routes = graph.add_keyed(&scope, &good.routes, &bad.routes, route_key, describe);
        let describe = |route: &MultipathRoute| (route.to_string(), OwnerKey::Unknown);
        let multipath_routes = graph.add_keyed(
            &scope,
            &good.multipath_routes,
            &bad.multipath_routes,
            |route| (route.to, route.table, route.metric),
            describe,
        );
        let describe = |(to, dev): &(IpNetwork, String)| {
            let text = format!("no route {}/{} dev {dev}", to.network(), to.prefix());
            (text, OwnerKey::Unknown)
        };
        let removed_routes = graph.add_keyed(
            &scope,
            &good.removed_routes,
            &bad.removed_routes,
            Clone::clone,
            describe,
        );
        let (routing_rules, removed_routing_rules) = merge_routing_rules(good, bad, graph);
        let (neighbours, forwarding) = merge_link_layer(good, bad, graph);
        let scope = make_scope(Kind::Sysctl, "sysctl");
        let describe = |sysctl: &Sysctl| {
            (
                format!("{} = {}", sysctl.key, sysctl.value),
                OwnerKey::Unknown,
            )
        };
        let name = |sysctl: &Sysctl| sysctl.key.clone();
        let sysctls = graph.add_keyed(&scope, &good.sysctls, &bad.sysctls, name, describe);
        let network = Self {
            links,
            ports,
            addresses,
            loopback,
            routes,
            multipath_routes,
            removed_routes,
            routing_rules,
            removed_routing_rules,
            neighbours,
            forwarding,
            sysctls,
        };
        network.join_dependent(graph);
        network
    }

    /// Writes the network configuration with the differences that `with` selects into `to`.
    pub fn write_to(&self, with: &impl Fn(usize) -> bool, to: &mut Namespace) {
        let links = self.links.selected(with).map(|link| {
            let addresses = self.addresses.iter().find(|(name, _)| *name == link.name);
            let addresses = addresses
                .into_iter()
                .flat_map(|(_, list)| list.selected(with));
            let mut port = PortSettings::default();
            for (_, setting, is_on) in self
                .ports
                .selected(with)
                .filter(|(name, ..)| *name == link.name)
            {
                port.set(setting, *is_on);
            }
            Link {
                addresses: addresses.copied().collect(),
                port,
                ..link.clone()
            }
        });
        to.links = links.collect();
        to.routes = self.routes.selected(with).cloned().collect();
        to.loopback = self.loopback.selected(with).copied().collect();
        to.multipath_routes = self.multipath_routes.selected(with).cloned().collect();
        to.removed_routes = self.removed_routes.selected(with).cloned().collect();
        to.routing_rules = self.routing_rules.selected(with).cloned().collect();
        let removed = self.removed_routing_rules.selected(with);
        to.removed_routing_rules = removed.cloned().collect();
        to.neighbours = self.neighbours.selected(with).cloned().collect();
        to.forwarding = self.forwarding.selected(with).cloned().collect();
        to.sysctls = self.sysctls.selected(with).cloned().collect();
    }
}

/// Merges the added routing rules, and the deleted ones of the kernel.
fn merge_routing_rules(
    good: &Namespace,
    bad: &Namespace,
    graph: &mut DifferenceGraph,
) -> (Merged<RoutingRule>, Merged<RoutingRule>) {
    let scope = Scope {
        namespace: &good.name,
        kind: Kind::RoutingRule,
        location: "routing rules".to_owned(),
    };
    let name = |rule: &RoutingRule| (rule.v6, rule.to_string());
    let describe = |rule: &RoutingRule| (rule.to_string(), OwnerKey::Unknown);
    let (ours, theirs) = (&good.routing_rules, &bad.routing_rules);
    let added = graph.add_keyed(&scope, ours, theirs, name, describe);
    let describe = |rule: &RoutingRule| (format!("no rule {rule}"), OwnerKey::Unknown);
    let (ours, theirs) = (&good.removed_routing_rules, &bad.removed_routing_rules);
    let removed = graph.add_keyed(&scope, ours, theirs, name, describe);
    (added, removed)
}

/// Merges neighbours, and the entries of forwarding databases.
fn merge_link_layer(
    good: &Namespace,
    bad: &Namespace,
    graph: &mut DifferenceGraph,
) -> (Merged<Neighbour>, Merged<Forwarding>) {
    let make_scope = |kind, location: &str| Scope {
        namespace: good.name.as_str(),
        kind,
        location: location.to_owned(),
    };
    let scope = make_scope(Kind::Neighbour, "neighbours");
    let describe = |neighbour: &Neighbour| {
        let text = format!(
            "{} lladdr {} dev {}",
            neighbour.address, neighbour.mac, neighbour.dev
        );
        (text, OwnerKey::Tunnel(neighbour.dev.clone()))
    };
    let name = |neighbour: &Neighbour| (neighbour.address, neighbour.dev.clone());
    let neighbours = graph.add_keyed(&scope, &good.neighbours, &bad.neighbours, name, describe);
    let scope = make_scope(Kind::Forwarding, "forwarding entries");
    let describe = |entry: &Forwarding| {
        let owner = OwnerKey::Tunnel(entry.dev.clone());
        (entry.to_string(), owner)
    };
    // The address that is all zeros can have several entries.
    let name = |entry: &Forwarding| {
        let target = (entry.mac == Mac::ZERO).then_some(entry.to);
        (entry.mac, entry.dev.clone(), target)
    };
    let forwarding = graph.add_keyed(&scope, &good.forwarding, &bad.forwarding, name, describe);
    (neighbours, forwarding)
}

/// Merges the settings of each bridge port.
fn merge_port_settings(
    good: &Namespace,
    bad: &Namespace,
    graph: &mut DifferenceGraph,
) -> Merged<PortSetting> {
    let settings = |side: &Namespace| -> Vec<PortSetting> {
        let ports = side.links.iter().filter(|link| link.bridge.is_some());
        let settings = ports.flat_map(|link| {
            let settings = link.port.settings().into_iter();
            settings.map(|(setting, is_on)| (link.name.clone(), setting, is_on))
        });
        settings.collect()
    };
    let scope = Scope {
        namespace: &good.name,
        kind: Kind::BridgePort,
        location: "bridge ports".to_owned(),
    };
    let describe = |(name, setting, is_on): &PortSetting| {
        let value = PortSettings::value(setting, *is_on);
        let text = format!("dev {name} {setting} {value}");
        (text, OwnerKey::Link(name.clone()))
    };
    let key = |(name, setting, _): &PortSetting| (name.clone(), *setting);
    graph.add_keyed(&scope, &settings(good), &settings(bad), key, describe)
}

/// Merges the addresses of each interface. Their order matters.
fn merge_addresses(
    good: &Namespace,
    bad: &Namespace,
    graph: &mut DifferenceGraph,
) -> Vec<(String, Merged<IpNetwork>)> {
    let mut result: Vec<(String, Merged<IpNetwork>)> = Vec::new();
    for link in good.links.iter().chain(&bad.links) {
        if result.iter().any(|(name, _)| *name == link.name) {
            continue;
        }
        let list = |side: &Namespace| -> Vec<IpNetwork> {
            let found = side
                .links
                .iter()
                .find(|candidate| candidate.name == link.name);
            found.map_or_else(Vec::new, |candidate| candidate.addresses.clone())
        };
        let (good_addresses, bad_addresses) = (list(good), list(bad));
        let identity = |address: &IpNetwork| *address;
        let merged = merge::merge_ordered(
            &good_addresses,
            &bad_addresses,
            identity,
            identity,
            graph.next_index(),
        );
        let scope = Scope {
            namespace: &good.name,
            kind: Kind::Address,
            location: format!("interface {}", link.name),
        };
        graph.add(
            &scope,
            &merged,
            &good_addresses,
            &bad_addresses,
            |address| (address.to_string(), OwnerKey::Link(link.name.clone())),
        );
        result.push((link.name.clone(), merged));
    }
    result
}

/// Joins the differences of both ends of each veth pair.
pub fn join_veth_pairs(networks: &[(&str, &MergedNetwork)], graph: &mut DifferenceGraph) {
    let mut pairs = Vec::new();
    for (name, ground) in networks {
        for slot in &ground.links.slots {
            let (Some(difference), LinkKind::Veth { namespace, peer }) =
                (slot.origin.difference(), &slot.item.kind)
            else {
                continue;
            };
            let peer_networks = networks
                .iter()
                .filter(|(peer_name, _)| peer_name == namespace);
            let ends = peer_networks.flat_map(|(_, ground)| &ground.links.slots);
            let ends = ends.filter(|end| end.item.name == *peer && end.item.is_veth_to(name));
            pairs.extend(ends.filter_map(|end| Some((difference, end.origin.difference()?))));
        }
    }
    for (first, second) in pairs {
        graph.join(first, second);
    }
}

/// Describes an interface in the style of `ip link`.
fn describe_link(link: &Link) -> String {
    let kind = match &link.kind {
        LinkKind::Veth { namespace, peer } => format!("to {namespace}/{peer}"),
        LinkKind::Bridge => "bridge".to_owned(),
        LinkKind::Dummy => "dummy".to_owned(),
        LinkKind::Vxlan {
            vni,
            port,
            dev,
            local,
        } => format!("vxlan id {vni} dev {dev} local {local} dstport {port}"),
    };
    let mut text = format!("{} {kind} address {}", link.name, link.mac);
    if let Some(mtu) = link.mtu {
        let _ = write!(text, " mtu {mtu}");
    }
    if let Some(bridge) = &link.bridge {
        let _ = write!(text, " master {bridge}");
    }
    text.push_str(if link.down { " down" } else { " up" });
    text
}

/// Returns the key of a route in the kernel's routing tables.
fn route_key(route: &Route) -> (IpNetwork, Option<u32>, Option<u32>) {
    (route.to, route.table, route.metric)
}

/// Renders a route in the format of `ip route`.
fn render_route(route: &Route) -> String {
    let mut text = match route.kind {
        RouteKind::Unicast => String::new(),
        kind => format!("{} ", kind.name()),
    };
    text += &match route.to.prefix() {
        0 => "default".to_owned(),
        _ => route.to.to_string(),
    };
    let option = |word: &str, value: Option<String>| {
        value.map_or_else(String::new, |value| format!(" {word} {value}"))
    };
    text += &option("via", route.via.map(|via| via.to_string()));
    text += &option("dev", Some(route.dev.clone()).filter(|dev| !dev.is_empty()));
    text += &option("table", route.table.map(|table| table.to_string()));
    text += &option("src", route.source.map(|source| source.to_string()));
    text += &option("metric", route.metric.map(|metric| metric.to_string()));
    if route.onlink {
        text += " onlink";
    }
    text
}
