//! Reduces a topology and ways to the places on the ways, for the compact form.

use std::collections::BTreeSet;

use crate::layout::route::route;
use crate::layout::strip::Zone;
use crate::layout::visible::visited;
use crate::topology::{Interface, InterfaceKind, LoadBalancer, Node, Place, Router, Topology};
use crate::way::{Crossing, Visit, Way};

/// Maximum number of nodes, of pods of a node, and of hosts.
const MAX_NODES: usize = 6;
const MAX_PODS: usize = 3;
const MAX_HOSTS: usize = 4;

/// Maximum number of load balancers of a router that are drawn one by one.
const MAX_BALANCERS: usize = 2;

/// Places on ways.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reduced {
    pub topology: Topology,
    /// Ways without tunnel devices: they are part of the way through the uplink.
    pub ways: Vec<Way>,
    /// Numbers of the other places: `5 more nodes, 1 more pod`. Empty without other places.
    pub others: String,
}

/// Reduces a topology. Without ways, the first places remain.
pub fn reduce(topology: &Topology, ways: &[Way]) -> Reduced {
    let visited = visited(ways);
    let is_on_way = |place: &Place| visited.is_empty() || visited.contains(&*place.namespace);
    let select = |places: &[Place], limit: usize| -> Vec<Place> {
        let places = places.iter().filter(|place| is_on_way(place));
        places.take(limit).cloned().collect()
    };
    let hosts = select(&topology.hosts, MAX_HOSTS);
    let nodes = topology.nodes.iter();
    let on_way = nodes.filter(|node| is_on_way(&node.place) || node.pods.iter().any(is_on_way));
    let limit = if visited.is_empty() { 2 } else { MAX_NODES };
    let nodes = on_way.take(limit).map(|node| Node {
        place: node.place.clone(),
        pods: select(&node.pods, if visited.is_empty() { 1 } else { MAX_PODS }),
        host_pods: Vec::new(),
    });
    let routers = topology.routers.iter();
    let routers = routers.filter(|router| is_on_way(&router.place));
    let routers = routers.map(|router| Router {
        place: router.place.clone(),
        balancers: balancers(router, ways),
    });
    let mut reduced = Topology {
        hosts,
        routers: routers.collect(),
        nodes: nodes.collect(),
    };
    let others = others(topology, &reduced);
    simplify(&mut reduced, &bridges(topology, ways));
    Reduced {
        ways: ways
            .iter()
            .map(|way| without_tunnels(topology, way))
            .collect(),
        topology: reduced,
        others,
    }
}

/// Returns the load balancers of a router on which IPVS selected a destination.
fn balancers(router: &Router, ways: &[Way]) -> Vec<LoadBalancer> {
    let mut visits = ways.iter().flat_map(|way| &way.visits);
    let is_own = |visit: &Visit| visit.is_balanced && visit.namespace == router.place.namespace;
    let count = router.balancers.len();
    if !ways.is_empty() && !visits.any(is_own) {
        Vec::new()
    } else if count > MAX_BALANCERS {
        vec![LoadBalancer {
            name: format!("{count} load balancers"),
            addresses: Vec::new(),
        }]
    } else {
        router.balancers.clone()
    }
}

/// Returns the bridges through which ways pass without the network stack, with their namespaces.
fn bridges(topology: &Topology, ways: &[Way]) -> BTreeSet<(String, String)> {
    let routes = ways.iter().map(|way| route(topology, way));
    let strips = routes
        .flat_map(|route| route.legs)
        .filter_map(|leg| leg.strip);
    let bridges = strips.filter_map(|strip| match strip.zone {
        Zone::Bridge(name) => Some((strip.namespace, name)),
        Zone::Uplink | Zone::Stack => None,
    });
    bridges.collect()
}

/// Removes interfaces that lead to no drawn place, and bridges through which no way passes. Shortens
/// the titles of pods.
fn simplify(topology: &mut Topology, bridges: &BTreeSet<(String, String)>) {
    let drawn: BTreeSet<String> = topology
        .places()
        .map(|place| place.namespace.clone())
        .collect();
    let simplify = |place: &mut Place| {
        let namespace = place.namespace.clone();
        let is_used = |bridge: &str| bridges.contains(&(namespace.clone(), bridge.to_owned()));
        place.interfaces.retain(|own| match &own.kind {
            InterfaceKind::Veth { namespace, .. } => drawn.contains(namespace),
            InterfaceKind::Bridge => is_used(&own.name),
            InterfaceKind::Dummy => true,
            InterfaceKind::Tunnel => false,
        });
        for interface in &mut place.interfaces {
            interface.bridge = interface.bridge.take().filter(|bridge| is_used(bridge));
        }
    };
    topology.hosts.iter_mut().for_each(simplify);
    for router in &mut topology.routers {
        simplify(&mut router.place);
    }
    for node in &mut topology.nodes {
        simplify(&mut node.place);
        for pod in &mut node.pods {
            simplify(pod);
            if let Some((_, name)) = pod.title.rsplit_once('/') {
                pod.title = name.to_owned();
            }
        }
    }
}

fn without_tunnels(topology: &Topology, way: &Way) -> Way {
    let visits = way.visits.iter().map(|visit| {
        let place = topology.place(&visit.namespace);
        let is_tunnel = |crossing: &&Crossing| {
            let interface = place.and_then(|place| place.interface(&crossing.interface));
            interface.is_some_and(|own: &Interface| own.kind == InterfaceKind::Tunnel)
        };
        let crossings = visit.crossings.iter();
        Visit {
            crossings: crossings.filter(|own| !is_tunnel(own)).cloned().collect(),
            ..visit.clone()
        }
    });
    Way {
        visits: visits.collect(),
        ..way.clone()
    }
}

/// Returns the numbers of places that are only in the first topology.
fn others(topology: &Topology, reduced: &Topology) -> String {
    let counts = |topology: &Topology| {
        let pods = topology.nodes.iter().map(|node| node.pods.len());
        [topology.hosts.len(), topology.nodes.len(), pods.sum()]
    };
    let numbers = counts(topology).into_iter().zip(counts(reduced));
    let named = ["host", "node", "pod"].into_iter().zip(numbers);
    let texts = named.filter_map(|(name, (all, drawn))| match all - drawn {
        0 => None,
        1 => Some(format!("1 more {name}")),
        count => Some(format!("{count} more {name}s")),
    });
    texts.collect::<Vec<_>>().join(", ")
}
