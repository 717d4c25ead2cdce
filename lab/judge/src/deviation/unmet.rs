//! Finds the objects that differ from the lab and that no packet of a set of journeys met.

use std::collections::{BTreeSet, HashMap};
use std::net::IpAddr;

use ipnetwork::IpNetwork;

use super::rules::ObservedRules;
use super::{Deviation, Found, InterfaceProperty, links, network};
use crate::state::route_lookup::RouteQuery;
use crate::state::{LabState, NamespaceState};
use svclab_dump::{Difference, DumpLocation};
use svclab_model::evidence::{LinkState, NetworkState};
use svclab_model::plan::{LinkKind, Namespace, Route, RouteKind};
use svclab_planner::cluster::{FABRIC, INTERNET};

/// Returns the objects that differ from the lab.
pub(crate) fn differences(lab: &LabState<'_>, rules: &ObservedRules<'_>) -> Found {
    let destinations = addresses(lab);
    let mut all = Found::new();
    for namespace in &lab.plan.namespaces {
        let name = &namespace.name;
        let (Some(planned), Some(observed)) = (lab.planned(name), lab.observed(name)) else {
            continue;
        };
        let rules = rules.differences(name).cloned();
        let is_network = [FABRIC, INTERNET].contains(&&**name);
        // The servers of a load balancer follow its health checks.
        let is_server =
            |difference: &Difference| matches!(difference.location, DumpLocation::Server { .. });
        let rules = rules.filter(|difference| !(is_network && is_server(difference)));
        let rules = rules.map(|difference| (name.clone(), Deviation::Rules { difference }));
        all.extend(rules);
        let mut found: Vec<Deviation> = Vec::new();
        let of_network = routes(planned, observed, &destinations)
            .chain(network::entries(planned, observed))
            .chain(links::compare_all(planned, observed));
        for deviation in of_network {
            let is_known = found.iter().any(|known| is_same(known, &deviation));
            if !is_known && !is_port_of_peer_down(lab, namespace, &deviation) {
                found.push(deviation);
            }
        }
        all.extend(found.into_iter().map(|own| (name.clone(), own)));
    }
    all
}

/// Whether a bridge port does not forward because the other end of its veth pair is down, as that of a
/// pod that does not run.
fn is_port_of_peer_down(lab: &LabState<'_>, namespace: &Namespace, deviation: &Deviation) -> bool {
    let Deviation::Interface {
        interface,
        property: InterfaceProperty::PortState,
        ..
    } = deviation
    else {
        return false;
    };
    let mut links = namespace.links.iter();
    let Some(LinkKind::Veth { namespace, peer }) = links
        .find(|link| link.name == *interface)
        .map(|link| &link.kind)
    else {
        return false;
    };
    let far = lab.observed(namespace).and_then(|far| far.link(peer));
    !far.is_some_and(LinkState::is_up)
}

/// Whether deviations contain one with the same object.
pub(crate) fn contains(known: &Found, (name, deviation): &(String, Deviation)) -> bool {
    let mut known = known.iter();
    known.any(|(own, other)| own == name && is_same(other, deviation))
}

/// Whether two deviations have the same object. One route leads to many addresses.
fn is_same(one: &Deviation, other: &Deviation) -> bool {
    match (one, other) {
        (
            Deviation::Route { planned, observed },
            Deviation::Route {
                planned: other_planned,
                observed: other_observed,
            },
        ) => {
            planned.decision == other_planned.decision
                && observed.decision == other_observed.decision
        }
        _ => one == other,
    }
}

/// Returns the addresses of all interfaces of the lab that send and receive packets.
fn addresses(lab: &LabState<'_>) -> BTreeSet<IpAddr> {
    let namespaces = lab.plan.namespaces.iter();
    let links = namespaces.flat_map(|namespace| &namespace.links);
    let links = links.filter(|link| !matches!(link.kind, LinkKind::Dummy));
    let addresses = links.flat_map(|link| &link.addresses);
    addresses
        .map(IpNetwork::ip)
        .filter(|address| !address.is_loopback())
        .collect()
}

/// Compares the routes of packets that the namespace sends to addresses whose routes may have changed.
fn routes(
    planned: &NamespaceState,
    observed: &NamespaceState,
    destinations: &BTreeSet<IpAddr>,
) -> impl Iterator<Item = Deviation> {
    let (ours, theirs) = (&planned.network, &observed.network);
    // Both kernels and plans have their own order.
    let have_same_rules = ours.routing_rules.len() == theirs.routing_rules.len()
        && ours
            .routing_rules
            .iter()
            .all(|rule| theirs.routing_rules.contains(rule));
    let all_changed = !have_same_rules || ours.multipath_routes != theirs.multipath_routes;
    let (mut changed, mut added) = (by_key(ours), by_key(theirs));
    added.retain(|key, _| changed.remove(key).is_none());
    changed.extend(added);
    let may_differ = |address: &IpAddr| {
        let mut changed = changed.values();
        all_changed || changed.any(|route| route.to.contains(*address))
    };
    let to_interfaces = destinations.iter().copied().filter(may_differ);
    let changed = changed.values();
    let to_networks = changed
        .filter(|route| route.kind != RouteKind::Local)
        .map(|route| route.to.ip())
        .filter(|address| !address.is_unspecified() && !address.is_multicast());
    let destinations: BTreeSet<IpAddr> = to_interfaces.chain(to_networks).collect();
    destinations
        .into_iter()
        .map(RouteQuery::unbound)
        .filter_map(|query| network::route(planned, observed, query))
}

fn by_key(state: &NetworkState) -> HashMap<String, &Route> {
    let routes = state.routes.iter();
    routes.map(|route| (key(route), route)).collect()
}

/// Returns a route without the values that the kernel chooses if they are not set.
fn key(route: &Route) -> String {
    let mut route = route.clone();
    if route.kind == RouteKind::Local {
        route.source = None;
    }
    // Of IPv6 routes (Linux v6.12, `include/uapi/linux/ipv6_route.h`, `IP6_RT_PRIO_USER` and
    // `IP6_RT_PRIO_ADDRCONF`).
    if route.to.is_ipv6() && matches!(route.metric, Some(256 | 1024)) {
        route.metric = None;
    }
    format!("{route:?}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::deviation::deviations;
    use crate::deviation::tests::{evidence, journey, link, network};
    use crate::fixture::{NODE, plan, route};
    use svclab_journey::journey::PathEnd;
    use svclab_model::evidence::{Queue, SavedRules, StageEvidence};
    use svclab_model::plan::Backend;

    /// Returns what the journey did not meet after a change of the state.
    fn unmet_after(change: impl FnOnce(&mut StageEvidence)) -> Vec<(String, Deviation)> {
        let plan = plan();
        let mut evidence = evidence(&plan);
        change(&mut evidence);
        let lab = LabState::new(&plan, Some(&evidence));
        let rules = ObservedRules::new(&plan, &evidence);
        let journey = journey("10.244.1.9", PathEnd::NotReceived);
        let met = deviations(&lab, &rules, &journey, None);
        let mut found = differences(&lab, &rules);
        found.retain(|deviation| !contains(&met, deviation));
        found
    }

    #[test]
    fn unmet_planned_state_has_none() {
        assert_eq!(unmet_after(|_| {}), []);
    }

    #[test]
    fn unmet_objects_that_a_packet_met_are_omitted() {
        let found = unmet_after(|evidence| {
            link(evidence, "flannel.1").mtu = 1000;
            let is_tunnel = |route: &Route| route.dev == "flannel.1" && route.via.is_some();
            network(evidence).routes.retain(|route| !is_tunnel(route));
        });
        assert_eq!(found, []);
    }

    #[test]
    fn unmet_objects_of_other_ways_and_namespaces_are_found() {
        let found = unmet_after(|evidence| {
            link(evidence, "eth1").flags = 0;
            let pod = evidence.kernel_state.get_mut("pod-b").unwrap();
            pod.links[0].addresses.clear();
        });
        let found: Vec<(&str, &Deviation)> = found
            .iter()
            .map(|(name, deviation)| (&**name, deviation))
            .collect();
        assert!(
            matches!(
                found[..],
                [
                    (
                        NODE,
                        Deviation::Interface {
                            property: InterfaceProperty::State,
                            ..
                        }
                    ),
                    (
                        "pod-b",
                        Deviation::Interface {
                            property: InterfaceProperty::Address,
                            ..
                        }
                    ),
                ]
            ),
            "{found:?}"
        );
    }

    #[test]
    fn unmet_object_that_is_compared_twice_is_listed_once() {
        let found = unmet_after(|evidence| {
            let queue = Queue {
                interface: "eth1".to_owned(),
                kind: "pfifo".to_owned(),
                dropped: 0,
            };
            network(evidence).queues.extend([queue.clone(), queue]);
        });
        assert!(
            matches!(&found[..], [(_, Deviation::Queue { .. })]),
            "{found:?}"
        );
    }

    #[test]
    fn unmet_rules_of_foreign_tables_are_found() {
        let found = unmet_after(|evidence| {
            let table = "table inet hardening {\n\tchain input {\n\t\ttype filter hook input \
                         priority filter; policy accept;\n\t\ttcp dport 80 drop\n\t}\n}\n";
            evidence.nft.insert(NODE.to_owned(), table.to_owned());
            evidence.rules.push(SavedRules {
                namespace: NODE.to_owned(),
                backend: Backend::Legacy,
                ip_version: 4,
                text: "*filter\n:INPUT ACCEPT [0:0]\n:FORWARD DROP [0:0]\nCOMMIT\n".to_owned(),
            });
        });
        let found = found.iter().map(|(name, deviation)| match deviation {
            Deviation::Rules { difference } => format!("{name} {difference}"),
            other => panic!("{other:?}"),
        });
        assert_eq!(
            found.collect::<Vec<String>>(),
            [
                "node-1 iptables-legacy filter FORWARD: ! policy: ACCEPT | DROP",
                "node-1 nft inet hardening input: + tcp dport 80 drop",
            ]
        );
    }

    #[test]
    fn unmet_route_of_other_addresses_is_listed_once() {
        let found_after = |text: &str| {
            let blackhole = route(text, RouteKind::Blackhole, None);
            unmet_after(|evidence| network(evidence).routes.push(blackhole))
        };
        let found = found_after("10.1.0.254/32");
        assert!(
            matches!(&found[..], [(name, Deviation::Route { .. })] if name == NODE),
            "{found:?}"
        );
        // No interface of the lab has an address of this network.
        assert_eq!(found_after("10.96.7.0/24").len(), 1);
        // The addresses of the source of the journey and of another pod.
        assert_eq!(found_after("10.244.0.2/31"), []);
    }
}
