//! Compares the routes, neighbours and forwarding entries that a packet met with those of the lab.

use std::collections::BTreeSet;
use std::net::IpAddr;

use super::Deviation;
use crate::state::route_lookup::{
    RouteDecision, RouteLookup, RouteQuery, Transport, inner_transport,
};
use crate::state::{LabState, NamespaceState};
use svclab_journey::journey::{Hop, PacketPath, ingress_interface};
use svclab_model::evidence::{ForwardingEntry, NeighbourEntry};
use svclab_model::plan::{LinkKind, Mac};

/// Returns the deviations that a packet met in one hop.
pub(super) fn met(lab: &LabState<'_>, flight: &PacketPath, hop: &Hop) -> Vec<Deviation> {
    let (Some(planned), Some(observed)) =
        (lab.planned(&hop.namespace), lab.observed(&hop.namespace))
    else {
        return Vec::new();
    };
    let mut found = Vec::new();
    for routed in routed_packets(flight, hop) {
        let queries = queries(hop, routed).into_iter();
        found.extend(queries.filter_map(|query| route(planned, observed, query)));
        let query = routed.query(observed.routing_mark(hop));
        found.extend(neighbours(planned, observed, query));
    }
    found.extend(bridge_forwarding(lab, flight, hop));
    found
}

/// Packet that a namespace routed.
#[derive(Clone, Copy)]
pub(super) struct RoutedPacket<'h> {
    /// Source as received.
    source: IpAddr,
    /// Destination as sent.
    destination: IpAddr,
    /// Interface that received the packet; `None` if the namespace created it.
    ingress: Option<&'h str>,
    transport: Transport,
}

impl<'h> RoutedPacket<'h> {
    /// Returns the lookup of the destination.
    pub(super) fn query(self, mark: u32) -> RouteQuery<'h> {
        RouteQuery {
            source: self.source,
            destination: self.destination,
            mark,
            ingress: self.ingress.unwrap_or("lo"),
            transport: self.transport,
        }
    }
}

/// Returns the packets of a hop that its namespace routed: the packet, the tunnel packet that carried
/// it, or both at an end of the tunnel.
pub(super) fn routed_packets<'h>(flight: &PacketPath, hop: &'h Hop) -> Vec<RoutedPacket<'h>> {
    let ingress = ingress_interface(hop);
    let inner = RoutedPacket {
        source: hop.before.source.ip(),
        destination: hop.after.destination.ip(),
        ingress: ingress.map(|seen| &*seen.interface),
        transport: inner_transport(flight, hop),
    };
    let Some(outer) = hop.tunnel else {
        return vec![inner];
    };
    let received = hop.crossings.iter().take_while(|seen| !seen.out);
    let carried = received.filter(|seen| seen.encapsulated).last();
    let outer = RoutedPacket {
        transport: Transport::udp(outer.source.port(), outer.destination.port()),
        source: outer.source.ip(),
        destination: outer.destination.ip(),
        ingress: carried.map(|seen| &*seen.interface),
    };
    if hop.crossings.iter().all(|seen| seen.encapsulated) {
        vec![outer]
    } else {
        vec![inner, outer]
    }
}

/// Returns the deviation of a route lookup.
pub(super) fn route(
    planned: &NamespaceState,
    observed: &NamespaceState,
    query: RouteQuery<'_>,
) -> Option<Deviation> {
    let planned = RouteLookup::new(&planned.network, query);
    let observed = RouteLookup::new(&observed.network, query);
    let is_changed = !planned.decision.is_equivalent(&observed.decision);
    is_changed.then(|| Deviation::Route {
        planned: planned.into(),
        observed: observed.into(),
    })
}

/// Returns the lookups for a packet: of its destination, before and after the rules rewrote the
/// packet and with every mark, and of its source, if the packet was received.
fn queries<'h>(hop: &Hop, routed: RoutedPacket<'h>) -> Vec<RouteQuery<'h>> {
    let mut marks: Vec<u32> = hop.matches.iter().map(|step| step.mark).collect();
    marks.push(0);
    marks.sort_unstable();
    marks.dedup();
    let forward = marks.iter().map(|mark| routed.query(*mark));
    let back = routed.ingress.map(|_| RouteQuery {
        source: routed.destination,
        destination: routed.source,
        mark: 0,
        ingress: "lo",
        transport: routed.transport.reversed(),
    });
    forward.chain(back).collect()
}

/// Returns the deviations of the neighbour to which a packet was sent, and of the tunnel that
/// carried the packet.
fn neighbours(
    planned: &NamespaceState,
    observed: &NamespaceState,
    query: RouteQuery<'_>,
) -> Vec<Deviation> {
    let lookup = RouteLookup::new(&observed.network, query);
    let RouteDecision::Unicast {
        interfaces, via, ..
    } = lookup.decision
    else {
        return Vec::new();
    };
    let address = via.unwrap_or(lookup.address);
    let interfaces = interfaces.iter();
    interfaces
        .flat_map(|interface| neighbour(planned, observed, address, interface))
        .collect()
}

/// Returns the deviations of a neighbour and of the tunnel to it.
fn neighbour(
    planned: &NamespaceState,
    observed: &NamespaceState,
    address: IpAddr,
    interface: &str,
) -> Vec<Deviation> {
    let entry = |state: &NamespaceState| -> Option<NeighbourEntry> {
        let mut entries = state.network.neighbours.iter();
        let is_neighbour =
            |entry: &&NeighbourEntry| entry.address == address && entry.interface == interface;
        entries.find(is_neighbour).cloned()
    };
    let (ours, theirs) = (entry(planned), entry(observed));
    let is_changed = match (&ours, &theirs) {
        (Some(ours), Some(theirs)) => ours.mac != theirs.mac,
        (Some(_), None) => true,
        // The kernel resolves other addresses itself.
        (None, Some(theirs)) => theirs.permanent,
        (None, None) => false,
    };
    let mac = |entry: &Option<NeighbourEntry>| entry.as_ref().and_then(|entry| entry.mac);
    let (ours, theirs) = (mac(&ours), mac(&theirs));
    let changed = is_changed.then(|| Deviation::Neighbour {
        address,
        interface: interface.to_owned(),
        planned: ours,
        observed: theirs,
    });
    let tunnel = ours
        .or(theirs)
        .and_then(|mac| tunnel(planned, observed, mac, interface));
    changed.into_iter().chain(tunnel).collect()
}

/// Returns the deviation of the forwarding entry of a VXLAN device for a hardware address.
fn tunnel(
    planned: &NamespaceState,
    observed: &NamespaceState,
    mac: Mac,
    interface: &str,
) -> Option<Deviation> {
    let remote = |state: &NamespaceState| {
        let mut entries = state.network.forwarding.iter();
        let is_entry = |entry: &&ForwardingEntry| entry.mac == mac && entry.interface == interface;
        entries.find(is_entry).and_then(|entry| entry.remote)
    };
    let (ours, theirs) = (remote(planned), remote(observed));
    (ours != theirs).then(|| Deviation::Forwarding {
        interface: interface.to_owned(),
        mac,
        planned: ours,
        observed: theirs,
    })
}

/// Returns the deviations of all neighbours and tunnels of a namespace.
pub(super) fn entries(planned: &NamespaceState, observed: &NamespaceState) -> Vec<Deviation> {
    let states = [planned, observed];
    let neighbours = states.iter().flat_map(|state| &state.network.neighbours);
    let neighbours: BTreeSet<(IpAddr, &str)> = neighbours
        .map(|entry| (entry.address, &*entry.interface))
        .collect();
    let forwarding = states.iter().flat_map(|state| &state.network.forwarding);
    let tunnels: BTreeSet<(Mac, &str)> = forwarding
        .filter(|entry| entry.permanent && entry.remote.is_some())
        .map(|entry| (entry.mac, &*entry.interface))
        .collect();
    let of_neighbours = neighbours
        .into_iter()
        .flat_map(|(address, interface)| neighbour(planned, observed, address, interface));
    let of_tunnels = tunnels
        .into_iter()
        .filter_map(|(mac, interface)| tunnel(planned, observed, mac, interface));
    of_neighbours.chain(of_tunnels).collect()
}

/// Returns the static entry of a bridge that led a packet to another port than that of the
/// receiver.
fn bridge_forwarding(lab: &LabState<'_>, flight: &PacketPath, hop: &Hop) -> Option<Deviation> {
    let mac = flight.header?.destination_mac?;
    let observed = lab.observed(&hop.namespace)?;
    let is_port = |name: &str| {
        observed
            .link(name)
            .is_some_and(|link| link.bridge.is_some())
    };
    let is_own = observed.links.iter().any(|link| link.mac == Some(mac));
    let mut entries = observed.network.forwarding.iter();
    let entry = entries.find(|entry| {
        entry.mac == mac && entry.permanent && entry.remote.is_none() && is_port(&entry.interface)
    })?;
    let mut own = lab.planned(&hop.namespace)?.network.forwarding.iter();
    if own.any(|own| own.mac == mac && own.interface == entry.interface) {
        return None;
    }
    let planned = port_to(lab, &hop.namespace, mac);
    let is_right = planned.as_ref() == Some(&entry.interface);
    (!is_own && !is_right).then(|| Deviation::BridgeForwarding {
        port: entry.interface.clone(),
        mac,
        planned,
    })
}

/// Returns the interface of a namespace whose other end has a hardware address.
fn port_to(lab: &LabState<'_>, namespace: &str, mac: Mac) -> Option<String> {
    let mut links = lab.plan.namespace(namespace)?.links.iter();
    let link = links.find(|link| {
        let LinkKind::Veth { namespace, peer } = &link.kind else {
            return false;
        };
        let far = lab.planned(namespace).and_then(|far| far.link(peer));
        far.is_some_and(|far| far.mac == Some(mac))
    })?;
    Some(link.name.clone())
}
