//! Finds routes that may be the cause: routes that took precedence over others, and routes that
//! were missing where a packet was lost.

use std::net::IpAddr;

use ipnetwork::IpNetwork;

use super::change::Change;
use svclab_journey::journey::{End, Flight, Hop};
use svclab_model::plan::{Lookup, Namespace, Plan, Route, RouteKind};
use svclab_planner::cluster::{Cluster, FABRIC, INTERNET};

/// Returns the route changes that are worth trying for the nodes on a packet path.
pub fn ways(plan: &Plan, cluster: &Cluster, flight: &Flight) -> Vec<Change> {
    let mut found = Vec::new();
    for (at, hop) in flight.hops.iter().enumerate() {
        // An operator cannot edit the routes of the network between nodes.
        if hop.namespace == FABRIC || hop.namespace == INTERNET {
            continue;
        }
        let Some(own) = plan.namespace(&hop.namespace) else {
            continue;
        };
        let is_last = at + 1 == flight.hops.len();
        if is_last && matches!(flight.end, End::Delivered | End::ByRule) {
            continue;
        }
        found.extend(taken(own, hop.after.destination.ip()));
        found.extend(asked(own, hop));
        if is_last {
            found.extend(missing(own, cluster, hop.after.destination.ip()));
        }
    }
    found
}

/// Returns the deletion of each route to the destination except the default route. Without the
/// route, another route would be used.
fn taken(own: &Namespace, to: IpAddr) -> impl Iterator<Item = Change> + '_ {
    let leads = move |route: &&Route| route.to.prefix() > 0 && route.to.contains(to);
    let those = own.routes.iter().filter(leads);
    those.map(|route| Change::Route {
        namespace: own.name.clone(),
        route: Box::new(route.clone()),
    })
}

/// Returns the deletion of each routing rule that may have sent the packet to a table other than
/// the main table.
fn asked<'n>(own: &'n Namespace, hop: &'n Hop) -> impl Iterator<Item = Change> + 'n {
    let holds = |network: Option<IpNetwork>, ip: IpAddr| network.is_none_or(|own| own.contains(ip));
    let met = move |rule: &&svclab_model::plan::PolicyRule| {
        let after =
            holds(rule.from, hop.after.source.ip()) && holds(rule.to, hop.after.destination.ip());
        let before =
            holds(rule.from, hop.before.source.ip()) && holds(rule.to, hop.before.destination.ip());
        let is_v6 = hop.after.destination.is_ipv6();
        rule.v6 == is_v6 && ((after || before) != rule.not) && rule.then != Lookup::Table(MAIN)
    };
    own.policy
        .iter()
        .filter(met)
        .map(|rule| Change::RoutingRule {
            namespace: own.name.clone(),
            rule: Box::new(rule.clone()),
        })
}

/// Number of the main routing table (`RT_TABLE_MAIN`).
const MAIN: u32 = 254;

/// Returns routes to the pods of the destination's node: through the overlay device, and directly
/// through the node.
fn missing(own: &Namespace, cluster: &Cluster, to: IpAddr) -> Vec<Change> {
    let theirs = cluster.nodes.iter().find_map(|node| {
        let network = node.pod_cidrs.iter().find(|network| network.contains(to))?;
        (node.name != own.name).then_some((node, *network))
    });
    let Some((node, network)) = theirs else {
        return Vec::new();
    };
    let route = |via: IpAddr, dev: &str, onlink: bool| Route {
        to: network,
        via: Some(via),
        dev: dev.to_owned(),
        onlink,
        source: None,
        kind: RouteKind::Unicast,
        table: None,
        metric: None,
    };
    let direct = node.addresses.iter().find_map(|address| {
        let via = address.ip();
        let holds = |own: &&IpNetwork| own.contains(via) && own.prefix() < 32;
        let link = own
            .links
            .iter()
            .find(|link| link.addresses.iter().any(|own| holds(&own)));
        (via.is_ipv4() == to.is_ipv4()).then_some(())?;
        Some(route(via, &link?.name, false))
    });
    let tunnels = own
        .links
        .iter()
        .filter(|link| link.name.starts_with("flannel"));
    let tunnelled = tunnels.map(|link| route(network.network(), &link.name, true));
    let is_there = |route: &Route| {
        own.routes
            .iter()
            .any(|own| own.to == route.to && own.dev == route.dev)
    };
    tunnelled
        .chain(direct)
        .filter(|route| !is_there(route))
        .map(|route| Change::NewRoute {
            namespace: own.name.clone(),
            route: Box::new(route),
        })
        .collect()
}
