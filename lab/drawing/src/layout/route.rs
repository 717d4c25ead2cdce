//! Divides a way into columns and rows: it moves vertically at the column of an interface, and
//! horizontally along a row of a strip.

use super::strip::{Strip, Zone};
use crate::topology::{Interface, InterfaceKind, Place, Topology};
use crate::way::{Crossing, Visit, Way, WayEnd};

/// Column of a way.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Column {
    /// Veth pair, named by the end that comes first in the order of names.
    Wire {
        namespace: String,
        interface: String,
    },
    /// Tunnel device of a node.
    Tunnel {
        namespace: String,
        interface: String,
    },
    /// A process in the namespace sends the packet.
    Process { namespace: String },
}

/// Part of a way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Leg {
    /// Column at which the way arrives at the row.
    pub column: Column,
    /// Whether the packet is inside a tunnel packet in this column.
    pub is_encapsulated: bool,
    /// Strip through which the way goes on; `None` in a place without strips, such as a pod.
    pub strip: Option<Strip>,
    /// Index of the visit in the way, of the strip or place.
    pub visit: usize,
}

/// Course of a way.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Route {
    /// Legs in order. The way starts at the first column, inside the place of the first leg.
    pub legs: Vec<Leg>,
    /// Column at which a packet was last seen that no place received.
    pub lost_in: Option<Column>,
}

/// Returns the column of an interface: that of its veth pair, or its own.
pub fn column_of(place: &Place, interface: &Interface) -> Option<Column> {
    match &interface.kind {
        InterfaceKind::Veth {
            namespace,
            interface: peer,
        } => {
            let ends = [(&place.namespace, &interface.name), (namespace, peer)];
            let (namespace, interface) = ends.into_iter().min()?;
            Some(Column::Wire {
                namespace: namespace.clone(),
                interface: interface.clone(),
            })
        }
        InterfaceKind::Tunnel => Some(Column::Tunnel {
            namespace: place.namespace.clone(),
            interface: interface.name.clone(),
        }),
        InterfaceKind::Bridge | InterfaceKind::Dummy => None,
    }
}

/// Stop of a visit: a column, and whether the way enters the place there.
struct Stop<'t> {
    interface: &'t Interface,
    column: Column,
    is_encapsulated: bool,
}

/// Divides a way.
pub fn route(topology: &Topology, way: &Way) -> Route {
    let mut route = Route::default();
    // Column in which the packet is on its way to the next place.
    let mut between: Option<(Column, bool)> = None;
    for (index, visit) in way.visits.iter().enumerate() {
        let Some(place) = topology.place(&visit.namespace) else {
            continue;
        };
        let stops = stops(place, &visit.crossings);
        let has_strips = topology.forwards(&place.namespace);
        let enters = visit.crossings.first().is_some_and(|first| !first.is_out);
        let mut legs: Vec<Leg> = Vec::new();
        let mut push = |column: Column, is_encapsulated: bool, strip: Option<Strip>| {
            legs.push(Leg {
                column,
                is_encapsulated,
                strip,
                visit: index,
            });
        };
        let strip = |zone: Zone| {
            has_strips.then(|| Strip {
                namespace: place.namespace.clone(),
                zone,
            })
        };
        let process = || Column::Process {
            namespace: place.namespace.clone(),
        };
        let arrival = match (between.take(), stops.first()) {
            (Some((column, is_encapsulated)), _) => Some((column, is_encapsulated)),
            (None, Some(first)) if enters || !has_strips => {
                Some((first.column.clone(), first.is_encapsulated))
            }
            (None, _) => has_strips.then(|| (process(), false)),
        };
        let Some((column, is_encapsulated)) = arrival else {
            continue;
        };
        // Stops after the arrival.
        let rest = match stops.first() {
            Some(first) if first.column == column && (enters || has_strips) => &stops[1..],
            _ => &stops[..],
        };
        let leaves_through = visit.crossings.last().filter(|last| last.is_out);
        let leaves_through = leaves_through.map(|last| last.interface.as_str());
        let is_leaving = leaves_through.is_some_and(|last| {
            let stop = stops.last();
            stop.is_some_and(|stop| stop.interface.name == last)
        });
        let mut from = stops.first().filter(|first| first.column == column);
        let mut arrived = (column, is_encapsulated);
        for stop in rest {
            let zone = zone_between(from, Some(stop), visit);
            push(arrived.0, arrived.1, strip(zone));
            arrived = (stop.column.clone(), stop.is_encapsulated);
            from = Some(stop);
        }
        if is_leaving {
            between = Some(arrived);
        } else {
            // A packet that a bridge sent through no port ends in the bridge.
            let bridge = leaves_through.filter(|name| {
                let interface = place.interface(name);
                interface.is_some_and(|own| own.kind == InterfaceKind::Bridge)
            });
            let zone = bridge.map_or_else(
                || zone_between(from, None, visit),
                |name| Zone::Bridge(name.to_owned()),
            );
            push(arrived.0, arrived.1, strip(zone));
        }
        route.legs.extend(legs);
    }
    let is_lost = way.end == WayEnd::Lost;
    route.lost_in = between.filter(|_| is_lost).map(|(column, _)| column);
    route
}

/// Returns the columns of a visit, without those of bridges, and without repetitions.
fn stops<'t>(place: &'t Place, crossings: &[Crossing]) -> Vec<Stop<'t>> {
    let mut stops: Vec<Stop<'t>> = Vec::new();
    for crossing in crossings {
        let Some(interface) = place.interface(&crossing.interface) else {
            continue;
        };
        let Some(column) = column_of(place, interface) else {
            continue;
        };
        stops.push(Stop {
            interface,
            column,
            is_encapsulated: crossing.is_encapsulated,
        });
    }
    stops
}

/// Returns the zone in which a way moves between two interfaces.
fn zone_between(from: Option<&Stop<'_>>, to: Option<&Stop<'_>>, visit: &Visit) -> Zone {
    let is_tunnel = |stop: &Stop<'_>| stop.interface.kind == InterfaceKind::Tunnel;
    if let (Some(from), Some(to)) = (from, to) {
        // A tunnel device sends and receives tunnel packets through an uplink.
        let carries = |tunnel: &Stop<'_>, uplink: &Stop<'_>| {
            is_tunnel(tunnel) && !is_tunnel(uplink) && uplink.is_encapsulated
        };
        if carries(from, to) || carries(to, from) {
            return Zone::Uplink;
        }
    }
    let bridge = |stop: Option<&Stop<'_>>| stop.and_then(|stop| stop.interface.bridge.clone());
    let crosses = |name: &str| visit.crossings.iter().any(|own| own.interface == name);
    match bridge(from) {
        Some(own) if !crosses(&own) && (to.is_none() || bridge(to).as_ref() == Some(&own)) => {
            Zone::Bridge(own)
        }
        _ => Zone::Stack,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{cluster, visit};

    #[test]
    fn route_packet_lost_in_bridge_ends_in_bridge() {
        let way = Way {
            is_request: true,
            label: "Request",
            visits: vec![
                visit("laptop", ">eth0"),
                visit("fabric", "<laptop >node-2"),
                visit("node-2", "<eth0 >cni0"),
            ],
            end: WayEnd::Lost,
            reason: Vec::new(),
        };
        let route = route(&cluster(2, 1), &way);
        assert_eq!(route.lost_in, None);
        let strip = route.legs.last().and_then(|leg| leg.strip.clone());
        let strip = strip.expect("the node has strips");
        assert_eq!(strip.namespace, "node-2");
        assert_eq!(strip.zone, Zone::Bridge("cni0".to_owned()));
    }
}
