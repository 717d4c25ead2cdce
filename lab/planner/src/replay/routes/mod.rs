//! Replays routes and routing rules of a dumped node.

mod next_hops;
pub(super) mod rules;
mod settings;
mod tables;

use std::net::IpAddr;

use ipnetwork::IpNetwork;

use super::report::{ReplayReport, count_noun, join_words, list_names};
use next_hops::{next_hop_neighbours, reach_next_hops};
use rules::plan_routing_rules;
use settings::{check_encapsulation, plan_settings};
use svclab_dump::NodeDump;
use svclab_model::plan::{Link, MultipathRoute, Namespace, NextHop, Plan, Route, RouteKind};
use svclab_ruleset::Family;
use svclab_ruleset::network::is_single;
use svclab_ruleset::route::Route as Dumped;
use tables::table_number;

/// Whether the kernel itself adds a route for an interface that is up: to local, link, broadcast
/// and multicast addresses, and the IPv6 route without a match. Other programs also write
/// `proto kernel`: Cilium adds `local default dev lo table 2004` (cilium v1.15.0,
/// `pkg/datapath/linux/routing`).
fn is_kernel_route(route: &Dumped, dump: &NodeDump) -> bool {
    let kind = route.kind.as_deref();
    let by_kernel = route.attributes.get("proto") == Some("kernel");
    let to_links = matches!(&*route.to, "fe80::/64" | "ff00::/8");
    let no_other = kind == Some("unreachable")
        && route.ip == Family::V6
        && route.attributes.get("metric") == Some("4294967295");
    // Those of a VRF are in its own table.
    let is_of_address = match kind {
        Some("local") => is_own_destination(route, dump),
        Some("broadcast" | "anycast" | "multicast") => true,
        _ => false,
    };
    no_other || (by_kernel && (to_links || route.table() == "local" || is_of_address))
}

/// Whether a route leads to one address of the node, or to the loopback network. Without interfaces
/// in the dump, any address can be one of the node.
fn is_own_destination(route: &Dumped, dump: &NodeDump) -> bool {
    let Ok(to) = destination(route) else {
        return false;
    };
    let is_own = |address: IpAddr| {
        dump.links.as_ref().is_none_or(|links| {
            let mut addresses = links.values().flat_map(|link| &link.addresses);
            addresses.any(|own| own.network.ip() == address)
        })
    };
    to.ip().is_loopback() || (is_single(to) && is_own(to.ip()))
}

/// Replaces the routes and routing rules of the node with those of the dump.
pub fn replay_routes(plan: &mut Plan, node: &str, dump: &NodeDump, report: &mut ReplayReport) {
    if dump.routes.is_empty() {
        report.add_simulated("routes of the lab: `ip route` was not dumped");
    }
    if dump.routes.is_empty() && dump.routing_rules.is_empty() {
        return;
    }
    let Some(namespace) = plan.namespace(node) else {
        return;
    };
    let mut kept: Vec<Route> = namespace.routes.clone();
    kept.retain(|route| {
        let ip = if route.to.is_ipv4() {
            Family::V4
        } else {
            Family::V6
        };
        !dump.routes.contains_key(&ip)
    });
    let mut routes = Vec::new();
    let mut omitted: Vec<(String, &'static str)> = Vec::new();
    let dumped = dump.routes.values().flatten();
    let mut multipath_routes = Vec::new();
    for route in dumped.filter(|route| !is_kernel_route(route, dump)) {
        if !route.hops.is_empty() {
            match plan_multipath_route(namespace, dump, route) {
                Ok(several) => multipath_routes.push(several),
                Err(reason) => omitted.push((join_words(&route.source_text), reason)),
            }
            continue;
        }
        match plan_route(namespace, dump, route) {
            Ok(Some(planned)) => routes.push(planned),
            Ok(None) => {}
            Err(reason) => omitted.push((join_words(&route.source_text), reason)),
        }
    }
    let count = routes.len() + multipath_routes.len();
    let removed_routes = removed_link_routes(namespace, dump);
    kept.extend(routes);
    reach_next_hops(&mut kept, &mut multipath_routes, namespace, &removed_routes);
    if !dump.routes.is_empty() {
        // A next hop must be reachable by an earlier route.
        kept.sort_by_key(|route| route.via.is_some());
    }
    let ways = multipath_routes
        .iter()
        .flat_map(|route: &MultipathRoute| &route.next_hops);
    let hops = kept
        .iter()
        .filter_map(|route| Some((route.via?, route.dev.as_str())));
    let hops = hops.chain(ways.filter_map(|way| Some((way.via?, way.dev.as_str()))));
    let neighbours = next_hop_neighbours(plan, node, dump, hops, report);
    let policy = plan_routing_rules(dump, &mut omitted, report);
    let (added, removed) = (policy.added.len(), policy.removed.len());
    if let Some(namespace) = plan.namespaces.iter_mut().find(|ns| ns.name == node) {
        namespace.routes = kept;
        namespace.multipath_routes = multipath_routes;
        namespace.removed_routes = removed_routes;
        namespace.neighbours.extend(neighbours);
        namespace.routing_rules = policy.added;
        namespace.removed_routing_rules = policy.removed;
    }
    if !dump.routes.is_empty() {
        let routes = count_noun(count, "route", "routes");
        report.add_replayed(format!("{routes} other than the kernel's own"));
    }
    for (rules, kind) in [(added, ""), (removed, "removed ")] {
        if rules > 0 {
            let (one, several) = (
                format!("{kind}routing rule"),
                format!("{kind}routing rules"),
            );
            report.add_replayed(count_noun(rules, &one, &several));
        }
    }
    let mut reasons: Vec<&'static str> = omitted.iter().map(|(_, reason)| *reason).collect();
    reasons.sort_unstable();
    reasons.dedup();
    for reason in reasons {
        let same_reason = omitted.iter().filter(|(_, other)| *other == reason);
        let lines: Vec<String> = same_reason.map(|(line, _)| format!("`{line}`")).collect();
        report.add_omitted(
            list_names(&lines),
            reason,
            "packets that matched it take another route",
        );
    }
}

/// Returns the route for the plan; `None` if the kernel adds the route with an address.
///
/// # Errors
///
/// Returns the reason if the route cannot be replayed.
pub(super) fn plan_route(
    namespace: &Namespace,
    dump: &NodeDump,
    route: &Dumped,
) -> Result<Option<Route>, &'static str> {
    let attributes = &route.attributes;
    let settings = plan_settings(route.ip, attributes)?;
    let kind = match route.kind.as_deref() {
        None | Some("unicast") => RouteKind::Unicast,
        Some("local") => RouteKind::Local,
        Some("blackhole") => RouteKind::Blackhole,
        Some("unreachable") => RouteKind::Unreachable,
        Some("prohibit") => RouteKind::Prohibit,
        Some("throw") => RouteKind::Throw,
        Some("cache") => return Ok(None),
        Some(_) => return Err("svclab does not support this type of route"),
    };
    let dev = attributes.get("dev").unwrap_or_default();
    let link = namespace.links.iter().find(|link| link.name == dev);
    match link {
        None if dev == "lo" || (dev.is_empty() && !kind.is_unicast()) => {}
        None => return Err("its interface is not built"),
        Some(link) if link.down => return Ok(None),
        Some(_) => {}
    }
    let to = destination(route)?;
    let via = attributes.get("via").map(str::parse::<IpAddr>).transpose();
    let via = via.map_err(|_| "svclab does not support next hops of another family")?;
    if can_be_link_route(route) {
        let link_addresses = dump.links.as_ref().and_then(|links| links.get(dev));
        let of_links = link_addresses.map(|link| link.addresses.as_slice());
        let is_address_network = of_links.unwrap_or_default().iter().any(|address| {
            address.network.network() == to.network() && address.network.prefix() == to.prefix()
        });
        let is_kernel_protocol = attributes.get("proto") == Some("kernel");
        if (is_address_network && is_kernel_link_route(route))
            || (dump.links.is_none() && is_kernel_protocol)
        {
            return Ok(None);
        }
    }
    let table = match route.table() {
        "main" => None,
        name => Some(table_number(name, dump)),
    };
    let metric = attributes.get("metric").and_then(|text| text.parse().ok());
    let source = attributes.get("src").and_then(|text| text.parse().ok());
    Ok(Some(Route {
        to,
        via,
        // Such a route sends no packets, so its interface has no meaning.
        dev: if kind.is_unicast() || kind == RouteKind::Local {
            dev.to_owned()
        } else {
            String::new()
        },
        onlink: attributes.has("onlink"),
        source,
        kind,
        table,
        metric: metric.filter(|metric| *metric > 0),
        settings,
    }))
}

fn destination(route: &Dumped) -> Result<IpNetwork, &'static str> {
    let to = match (&*route.to, route.ip) {
        ("default", Family::V4) => "0.0.0.0/0".parse(),
        ("default", Family::V6) => "::/0".parse(),
        (to, _) => to.parse(),
    };
    to.map_err(|_| "its destination is not a network")
}

/// Whether a route may be the kernel's own route to a link. busybox' `ip` does not print the
/// protocol.
fn can_be_link_route(route: &Dumped) -> bool {
    let attributes = &route.attributes;
    route.table() == "main"
        && route.kind.is_none()
        && !attributes.has("via")
        && matches!(attributes.get("proto"), Some("kernel") | None)
}

/// Whether a route to a link is as the kernel adds it with an address. Routes that other programs
/// (`NetworkManager`, `systemd-networkd`) add instead have a metric.
fn is_kernel_link_route(route: &Dumped) -> bool {
    let metric = route.attributes.get("metric");
    match route.ip {
        Family::V4 => matches!(metric, None | Some("0")),
        Family::V6 => matches!(metric, None | Some("256")),
    }
}

/// Returns the networks on links, with their interfaces, to which the node has no kernel route: a
/// program that manages the addresses has removed the route. The AWS VPC CNI removes those of its
/// secondary interfaces (amazon-vpc-cni-k8s at 00892598b, `pkg/networkutils/network.go`,
/// `setupENINetwork`).
fn removed_link_routes(namespace: &Namespace, dump: &NodeDump) -> Vec<(IpNetwork, String)> {
    let mut found = Vec::new();
    let is_dumped = |link: &&Link| {
        dump.links
            .as_ref()
            .is_some_and(|own| own.contains_key(&link.name))
    };
    for link in namespace
        .links
        .iter()
        .filter(|link| !link.down)
        .filter(is_dumped)
    {
        for address in &link.addresses {
            let ip = if address.is_ipv4() {
                Family::V4
            } else {
                Family::V6
            };
            let Ok(network) = IpNetwork::new(address.network(), address.prefix()) else {
                continue;
            };
            let Some(routes) = dump.routes.get(&ip).filter(|_| !is_single(*address)) else {
                continue;
            };
            let is_link_route = |route: &&Dumped| {
                can_be_link_route(route)
                    && route.attributes.get("dev") == Some(link.name.as_str())
                    && route.to.parse::<IpNetwork>() == Ok(network)
            };
            let has_route = routes
                .iter()
                .find(is_link_route)
                .is_some_and(is_kernel_link_route);
            let is_listed = found
                .iter()
                .any(|(to, dev)| *to == network && *dev == link.name);
            if !has_route && !is_listed {
                found.push((network, link.name.clone()));
            }
        }
    }
    found
}

/// Returns a multipath route for the plan.
pub(super) fn plan_multipath_route(
    namespace: &Namespace,
    dump: &NodeDump,
    route: &Dumped,
) -> Result<MultipathRoute, &'static str> {
    let attributes = &route.attributes;
    let settings = plan_settings(route.ip, attributes)?;
    let mut next_hops = Vec::new();
    for hop in &route.hops {
        let dev = hop.get("dev").unwrap_or_default();
        let mut links = namespace.links.iter();
        if !links.any(|link| link.name == dev && !link.down) {
            return Err("the interface of a next hop is not built");
        }
        check_encapsulation(hop)?;
        let via = hop.get("via").map(str::parse::<IpAddr>).transpose();
        let via = via.map_err(|_| "svclab does not support next hops of another family")?;
        let weight = hop.get("weight").and_then(|text| text.parse().ok());
        next_hops.push(NextHop {
            via,
            dev: dev.to_owned(),
            weight: weight.unwrap_or(1),
            onlink: hop.has("onlink"),
        });
    }
    let metric = attributes.get("metric").and_then(|text| text.parse().ok());
    Ok(MultipathRoute {
        to: destination(route)?,
        next_hops,
        source: attributes.get("src").and_then(|text| text.parse().ok()),
        table: match route.table() {
            "main" => None,
            name => Some(table_number(name, dump)),
        },
        metric: metric.filter(|metric| *metric > 0),
        settings,
    })
}
