//! Replays next hops of routes: those that the node could no longer add, and their neighbours.

use std::collections::BTreeSet;
use std::net::IpAddr;

use ipnetwork::IpNetwork;

use super::super::report::{OmittedItem, ReplayReport, UnseenNextHop, list_names};
use svclab_dump::NodeDump;
use svclab_model::plan::{LinkKind, Mac, MultipathRoute, Namespace, Neighbour, Plan, Route};

/// Marks routes as on-link whose next hop no route to a link covers. The kernel checks a next hop
/// only when a route is added, and keeps the route when the address of the link is removed (Linux
/// v6.12, `net/ipv4/fib_semantics.c`, `fib_check_nh_v4_gw`; `net/ipv6/route.c`,
/// `ip6_route_check_nh`).
pub(super) fn reach_next_hops(
    routes: &mut [Route],
    multipath_routes: &mut [MultipathRoute],
    namespace: &Namespace,
    removed_routes: &[(IpNetwork, String)],
) {
    let to_links = routes.iter().filter(|route| route.via.is_none());
    let mut covered: Vec<(IpNetwork, String)> = to_links
        .map(|route| (route.to, route.dev.clone()))
        .collect();
    for link in &namespace.links {
        let own = link.addresses.iter().map(|own| (*own, link.name.clone()));
        covered.extend(own.filter(|(own, dev)| {
            let mut removed = removed_routes.iter();
            !removed.any(|(to, of)| of == dev && to.network() == own.network())
        }));
    }
    let is_covered = |via: IpAddr, dev: &str| {
        let is_link_local = matches!(via, IpAddr::V6(via) if via.is_unicast_link_local());
        let mut covered = covered.iter();
        is_link_local || covered.any(|(to, of)| of == dev && to.contains(via))
    };
    let unlisted = |via: Option<IpAddr>, dev: &str| via.is_some_and(|via| !is_covered(via, dev));
    for route in routes.iter_mut().filter(|route| route.kind.is_unicast()) {
        route.onlink |= unlisted(route.via, &route.dev);
    }
    for hop in multipath_routes
        .iter_mut()
        .flat_map(|route| &mut route.next_hops)
    {
        hop.onlink |= unlisted(hop.via, &hop.dev);
    }
}

/// Returns neighbour entries for next hops without one in the plan. Each gets the hardware address
/// at the other end of the interface, unless it did not reply to the node. Reports those that neither
/// the dump nor the lab knows.
pub(super) fn next_hop_neighbours<'r>(
    plan: &Plan,
    node: &str,
    dump: &NodeDump,
    hops: impl Iterator<Item = (IpAddr, &'r str)>,
    report: &mut ReplayReport,
) -> Vec<Neighbour> {
    let Some(namespace) = plan.namespace(node) else {
        return Vec::new();
    };
    let mut found: Vec<Neighbour> = Vec::new();
    let (mut replying, mut silent) = (BTreeSet::new(), BTreeSet::new());
    for (address, dev) in hops {
        let neighbours = namespace.neighbours.iter().chain(&found);
        let mut link_neighbours = neighbours.filter(|one| one.dev == dev);
        if link_neighbours.any(|one| one.address == address) {
            continue;
        }
        let peer = peer_mac(plan, namespace, dev);
        let dumped = dump.neighbours.iter().flatten();
        let mut dumped = dumped.filter(|one| one.address == address && *one.dev == *dev);
        match dumped.next() {
            Some(neighbour) if neighbour.state.is_unanswered() => continue,
            Some(_) => {}
            None if has_address(plan, address) => {}
            None => {
                let unseen = if peer.is_some() {
                    &mut replying
                } else {
                    &mut silent
                };
                let interface = dev.to_owned();
                unseen.insert(UnseenNextHop { address, interface });
            }
        }
        if let Some(mac) = peer {
            found.push(Neighbour {
                address,
                mac,
                dev: dev.to_owned(),
            });
        }
    }
    let is_dumped = dump.neighbours.is_some();
    report_replying(replying, is_dumped, report);
    report_silent(&silent, is_dumped, report);
    found
}

/// Reports unseen next hops that reply in the lab. `is_dumped` is whether the dump has neighbours.
fn report_replying(unseen: BTreeSet<UnseenNextHop>, is_dumped: bool, report: &mut ReplayReport) {
    if unseen.is_empty() {
        return;
    }
    let hops = format!("replies of the next hops {}", list_hops(&unseen));
    if is_dumped {
        report.omitted.push(OmittedItem {
            description: hops,
            reason: "the dump does not show whether they exist, and in the lab they reply"
                .to_owned(),
            affects: "packets through those that do not exist are lost on the node".to_owned(),
            unseen_next_hops: unseen,
            ..OmittedItem::default()
        });
    } else {
        report.add_simulated(format!("{hops}: the dump does not show whether they exist"));
    }
}

/// Reports unseen next hops on interfaces that lead to no neighbour of the lab.
fn report_silent(unseen: &BTreeSet<UnseenNextHop>, is_dumped: bool, report: &mut ReplayReport) {
    if unseen.is_empty() {
        return;
    }
    let hops = list_hops(unseen);
    if is_dumped {
        report.add_omitted(
            format!("the next hops {hops}"),
            "the dump does not show whether they exist, and the lab does not have them",
            "packets through them are lost in the lab",
        );
    } else {
        report.add_simulated(format!(
            "silence of the next hops {hops}: the dump does not show whether they exist"
        ));
    }
}

fn list_hops(hops: &BTreeSet<UnseenNextHop>) -> String {
    let names: Vec<String> = hops.iter().map(UnseenNextHop::to_string).collect();
    list_names(&names)
}

/// Whether an interface of the lab has the address.
fn has_address(plan: &Plan, address: IpAddr) -> bool {
    let links = plan
        .namespaces
        .iter()
        .flat_map(|namespace| &namespace.links);
    let mut addresses = links.flat_map(|link| &link.addresses);
    addresses.any(|own| own.ip() == address)
}

/// Returns the hardware address at the other end of a veth pair, or of the bridge if that end is a
/// bridge port.
fn peer_mac(plan: &Plan, namespace: &Namespace, dev: &str) -> Option<Mac> {
    let link = namespace.links.iter().find(|link| link.name == dev)?;
    let LinkKind::Veth {
        namespace: peer_name,
        peer,
    } = &link.kind
    else {
        return None;
    };
    let peer_namespace = plan.namespace(peer_name)?;
    let end = peer_namespace
        .links
        .iter()
        .find(|link| link.name == *peer)?;
    let bridge = end.bridge.as_ref();
    let bridge = bridge.and_then(|bridge| {
        peer_namespace
            .links
            .iter()
            .find(|link| link.name == *bridge)
    });
    Some(bridge.unwrap_or(end).mac)
}
