//! Finds routes that may be the cause: routes that took precedence over others, and routes that
//! were missing where a packet was lost.

use std::net::IpAddr;

use ipnetwork::IpNetwork;

use super::met::endpoints_behind;
use crate::why::change::ProposedChange;
use svclab_journey::journey::{Hop, PacketPath, PathEnd};
use svclab_model::plan::{Link, LinkKind, Namespace, Plan, Route, RoutingAction, RoutingRule};
use svclab_planner::cluster::{Cluster, FABRIC, INTERNET};
use svclab_ruleset::network::is_single;

/// Returns the route changes that are worth trying for the nodes on a packet path.
pub(super) fn route_changes(
    plan: &Plan,
    cluster: &Cluster,
    flight: &PacketPath,
) -> Vec<ProposedChange> {
    let mut found = Vec::new();
    for (index, hop) in flight.hops.iter().enumerate() {
        // An operator cannot edit the routes of the network between nodes.
        if hop.namespace == FABRIC || hop.namespace == INTERNET {
            continue;
        }
        let Some(namespace) = plan.namespace(&hop.namespace) else {
            continue;
        };
        let is_last = index + 1 == flight.hops.len();
        if is_last && matches!(flight.end, PathEnd::Delivered | PathEnd::DroppedByRule) {
            continue;
        }
        // Packets to a service may have been dropped on the way to an endpoint.
        let destination = hop.after.destination;
        let mut addresses = vec![destination.ip()];
        let endpoints = endpoints_behind(cluster, destination).into_iter();
        addresses.extend(endpoints.map(|endpoint| endpoint.ip()).filter(|_| is_last));
        addresses.extend(hop.tunnel.map(|outer| outer.destination.ip()));
        for address in addresses {
            found.extend(specific_routes(namespace, address));
            found.extend(unused_networks(namespace, address));
            found.extend(matching_routing_rules(namespace, hop, address));
        }
        if is_last {
            found.extend(missing_routes(
                namespace,
                cluster,
                hop.after.destination.ip(),
            ));
        }
    }
    found
}

/// Returns the deletion of each route to the destination except the default route. Without the
/// route, another route would be used.
fn specific_routes(namespace: &Namespace, to: IpAddr) -> impl Iterator<Item = ProposedChange> + '_ {
    let covers = move |route: &&Route| route.to.prefix() > 0 && route.to.contains(to);
    let routes = namespace.routes.iter().filter(covers);
    routes.map(|route| ProposedChange::DeleteRoute {
        namespace: namespace.name.clone(),
        route: Box::new(route.clone()),
    })
}

/// Returns the deletion of the addresses whose network contains the destination, on bridges without
/// ports and dummy interfaces: no host is behind them.
fn unused_networks(namespace: &Namespace, to: IpAddr) -> Vec<ProposedChange> {
    let is_unused = |link: &&Link| match link.kind {
        LinkKind::Bridge => {
            let mut ports = namespace.links.iter();
            !ports.any(|port| port.bridge.as_ref() == Some(&link.name))
        }
        LinkKind::Dummy => true,
        LinkKind::Veth { .. } | LinkKind::Vxlan { .. } => false,
    };
    let covers = |own: &&IpNetwork| own.contains(to) && own.ip() != to && !is_single(**own);
    let links = namespace.links.iter().filter(is_unused);
    let addresses = links.flat_map(|link| {
        let addresses = link.addresses.iter().filter(covers);
        addresses.map(|address| ProposedChange::DeleteAddress {
            namespace: namespace.name.clone(),
            link: link.name.clone(),
            address: *address,
        })
    });
    addresses.collect()
}

/// Returns the deletion of each routing rule that may have sent the packet, on the way to an
/// address, to a table other than the main table.
fn matching_routing_rules<'n>(
    namespace: &'n Namespace,
    hop: &'n Hop,
    to: IpAddr,
) -> impl Iterator<Item = ProposedChange> + 'n {
    let holds =
        |network: Option<IpNetwork>, ip: IpAddr| network.is_none_or(|network| network.contains(ip));
    let matches = move |rule: &&RoutingRule| {
        let after = holds(rule.from, hop.after.source.ip()) && holds(rule.to, to);
        let before =
            holds(rule.from, hop.before.source.ip()) && holds(rule.to, hop.before.destination.ip());
        let is_v6 = hop.after.destination.is_ipv6();
        rule.v6 == is_v6
            && ((after || before) != rule.inverted)
            && rule.action != RoutingAction::Table(MAIN_TABLE)
    };
    let rules = namespace.routing_rules.iter().filter(matches);
    rules.map(|rule| ProposedChange::DeleteRoutingRule {
        namespace: namespace.name.clone(),
        rule: Box::new(rule.clone()),
    })
}

/// Number of the main routing table (`RT_TABLE_MAIN`).
const MAIN_TABLE: u32 = 254;

/// Returns routes to the pods of the destination's node: through the overlay device, and directly
/// through the node.
fn missing_routes(namespace: &Namespace, cluster: &Cluster, to: IpAddr) -> Vec<ProposedChange> {
    let destination = cluster.nodes.iter().enumerate().find_map(|(index, node)| {
        let mut outside = cluster.pod_addresses_outside(index);
        let networks = node.pod_cidrs.iter().copied();
        let network = networks.filter(|network| network.contains(to));
        let own = outside.find(|address| *address == to).map(IpNetwork::from);
        let network = own.into_iter().chain(network).next()?;
        (node.name != namespace.name).then_some((node, network))
    });
    let Some((node, network)) = destination else {
        return Vec::new();
    };
    let route = |via: IpAddr, dev: &str, onlink: bool| Route {
        via: Some(via),
        onlink,
        ..Route::new(network, dev)
    };
    let addresses = node.addresses.iter().map(IpNetwork::ip);
    let mut same_family = addresses.filter(|via| via.is_ipv4() == to.is_ipv4());
    let direct = same_family.find_map(|via| Some(route(via, link_to(namespace, via)?, false)));
    let links = namespace.links.iter();
    let tunnels = links.filter(|link| link.name.starts_with("flannel"));
    let tunnelled = tunnels.map(|link| route(network.network(), &link.name, true));
    let is_missing = |route: &Route| {
        let mut routes = namespace.routes.iter();
        !routes.any(|known| known.to == route.to && known.dev == route.dev)
    };
    let missing = tunnelled.chain(direct).filter(is_missing);
    let changes = missing.map(|route| ProposedChange::AddRoute {
        namespace: namespace.name.clone(),
        route: Box::new(route),
    });
    changes.collect()
}

/// Returns the name of the interface whose subnet contains an address.
fn link_to(namespace: &Namespace, address: IpAddr) -> Option<&str> {
    // An address with the longest prefix has no subnet.
    let contains = |subnet: &IpNetwork| subnet.contains(address) && !is_single(*subnet);
    let mut links = namespace.links.iter();
    let link = links.find(|link| link.addresses.iter().any(contains))?;
    Some(&link.name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use svclab_model::plan::PortSettings;

    #[test]
    fn link_to_subnet_of_either_family_is_found() {
        let network = |text: &str| text.parse::<IpNetwork>().expect("valid network");
        let link = |name: &str, addresses: [&str; 2]| Link {
            name: name.to_owned(),
            addresses: addresses.map(network).to_vec(),
            kind: LinkKind::Dummy,
            mac: "02:00:00:00:00:01".parse().expect("a MAC address"),
            bridge: None,
            port: PortSettings::default(),
            down: false,
            mtu: None,
        };
        let namespace = Namespace {
            links: vec![
                link("lo", ["192.0.2.2/32", "fd00:1::2/128"]),
                link("eth0", ["192.0.2.1/24", "fd00:1::1/64"]),
            ],
            ..Namespace::default()
        };
        for address in ["192.0.2.2", "fd00:1::2"] {
            let address = address.parse().expect("an address");
            assert_eq!(link_to(&namespace, address), Some("eth0"));
        }
        let other = "fd00:2::2".parse().expect("an address");
        assert_eq!(link_to(&namespace, other), None);
    }
}
