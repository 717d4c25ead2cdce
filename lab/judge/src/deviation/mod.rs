//! Finds what the packets of a failing attempt met and what differs from the lab: rules, sets,
//! routes, neighbours, interfaces and sysctls that somebody changed after the components of the lab
//! had written them. Input: a journey, and the planned and the observed state. Output:
//! [`Deviation`]s.

mod links;
mod network;
mod rules;
#[cfg(test)]
mod tests;
mod unmet;

use std::collections::BTreeSet;
use std::net::IpAddr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::state::LabState;
use crate::state::route_lookup::{RouteDecision, RouteLookup, RouteQuery};
use svclab_dump::Difference;
use svclab_journey::journey::{Hop, Journey, PacketPath};
use svclab_model::plan::Mac;

pub(crate) use rules::ObservedRules;
pub(crate) use unmet::{contains, differences};

/// Object that differs from the lab.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(
    tag = "deviation",
    rename_all = "camelCase",
    rename_all_fields = "camelCase"
)]
pub enum Deviation {
    /// Rule, set or virtual server. The first side of the difference is the lab.
    Rules {
        /// Difference of the observed state from the lab.
        difference: Difference,
    },
    /// Route to an address of the packet.
    Route {
        /// Lookup in the routes of the lab.
        planned: Box<RouteLookup>,
        /// Lookup in the observed routes.
        observed: Box<RouteLookup>,
    },
    /// Neighbour to which the packet was sent.
    Neighbour {
        /// Address of the neighbour.
        address: IpAddr,
        /// Name of the interface.
        interface: String,
        /// Hardware address of the lab; absent if the lab has no entry.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[schemars(with = "Option<String>")]
        planned: Option<Mac>,
        /// Observed hardware address; absent if there is no entry.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[schemars(with = "Option<String>")]
        observed: Option<Mac>,
    },
    /// Forwarding entry of a VXLAN device.
    Forwarding {
        /// Name of the device.
        interface: String,
        /// Hardware address of the entry.
        #[schemars(with = "String")]
        mac: Mac,
        /// Tunnel end of the lab; absent if the lab has no entry.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        planned: Option<IpAddr>,
        /// Observed tunnel end; absent if there is no entry.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        observed: Option<IpAddr>,
    },
    /// Static forwarding entry of a bridge.
    BridgeForwarding {
        /// Port to which the entry leads.
        port: String,
        /// Hardware address of the entry.
        #[schemars(with = "String")]
        mac: Mac,
        /// Port that leads to the address in the lab; absent if none does.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        planned: Option<String>,
    },
    /// Property of an interface.
    Interface {
        /// Name of the interface.
        interface: String,
        /// Property that differs.
        property: InterfaceProperty,
        /// Value in the lab; absent if the lab has none.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        planned: Option<String>,
        /// Observed value; absent if there is none.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        observed: Option<String>,
    },
    /// Sysctl.
    Sysctl {
        /// Name of the sysctl.
        name: String,
        /// Value in the lab.
        planned: String,
        /// Observed value.
        observed: String,
    },
    /// Queueing discipline that the lab does not have.
    Queue {
        /// Name of the interface.
        interface: String,
        /// Name of the discipline.
        kind: String,
        /// Number of packets that the discipline dropped.
        dropped: u32,
    },
}

/// Property of an interface that can differ from the lab.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "camelCase")]
pub enum InterfaceProperty {
    /// Existence of the interface.
    Existence,
    /// Whether the interface is up.
    State,
    /// MTU in bytes.
    Mtu,
    /// Hardware address.
    HardwareAddress,
    /// Bridge of the port.
    Bridge,
    /// Address of the interface.
    Address,
    /// Whether the interface resolves neighbours (ARP).
    Arp,
    /// Spanning tree state of the bridge port.
    PortState,
    /// Hairpin mode of the bridge port.
    Hairpin,
    /// Isolation of the bridge port.
    Isolated,
    /// Whether the bridge port learns addresses.
    Learning,
    /// Whether frames to unknown addresses leave through the bridge port.
    Flood,
    /// Whether the bridge port is locked.
    Locked,
    /// VLAN filtering of the bridge.
    VlanFiltering,
    /// Network identifier of the VXLAN device.
    Vni,
    /// UDP port of the VXLAN device.
    VxlanPort,
    /// Source address of the VXLAN device.
    VxlanLocal,
}

/// Deviations of one namespace that the packets of an attempt met.
pub(crate) type Found = Vec<(String, Deviation)>;

/// Returns what the packets of an attempt met and what differs from the lab, with the namespace of
/// each object. Objects where packets were lost come first. If no packet was sent,
/// `unsent` is the lookup of its route.
pub(crate) fn deviations(
    lab: &LabState<'_>,
    rules: &ObservedRules<'_>,
    journey: &Journey,
    unsent: Option<RouteQuery<'_>>,
) -> Found {
    let mut found = Found::new();
    let mut add = |namespace: &str, deviation: Deviation| {
        let item = (namespace.to_owned(), deviation);
        if !found.contains(&item) {
            found.push(item);
        }
    };
    if let Some(query) = unsent {
        for deviation in first_route(lab, &journey.from, query) {
            add(&journey.from, deviation);
        }
    }
    for (flight, hop) in hops(journey) {
        let name = &hop.namespace;
        for difference in rules.met(flight, hop) {
            add(name, Deviation::Rules { difference });
        }
        for deviation in network::met(lab, flight, hop) {
            add(name, deviation);
        }
        for (namespace, deviation) in links::met(lab, flight, hop) {
            add(&namespace, deviation);
        }
    }
    found
}

/// Returns the deviations of a route and of its interfaces.
fn first_route(lab: &LabState<'_>, name: &str, query: RouteQuery<'_>) -> Vec<Deviation> {
    let (Some(planned), Some(observed)) = (lab.planned(name), lab.observed(name)) else {
        return Vec::new();
    };
    let mut found: Vec<Deviation> = network::route(planned, observed, query)
        .into_iter()
        .collect();
    let lookup = RouteLookup::new(&planned.network, query);
    if let RouteDecision::Unicast { interfaces, .. } = lookup.decision {
        let interfaces = interfaces.iter();
        found.extend(interfaces.flat_map(|name| links::interface(planned, observed, name)));
    }
    found
}

/// Returns the hops of all packets, those where packets ended first. Packets with the same hops are
/// listed once.
fn hops(journey: &Journey) -> Vec<(&PacketPath, &Hop)> {
    let mut seen = BTreeSet::new();
    let mut hops: Vec<(usize, &PacketPath, &Hop)> = Vec::new();
    for flight in &journey.packets {
        for (index, hop) in flight.hops.iter().rev().enumerate() {
            let interfaces: Vec<(&str, bool)> = hop
                .crossings
                .iter()
                .map(|seen| (&*seen.interface, seen.out))
                .collect();
            let matches: Vec<(&str, &str, Option<u32>)> = hop
                .matches
                .iter()
                .map(|step| (&*step.table, &*step.chain, step.number))
                .collect();
            if seen.insert((&*hop.namespace, hop.before, hop.after, interfaces, matches)) {
                hops.push((index, flight, hop));
            }
        }
    }
    hops.sort_by_key(|(index, ..)| *index);
    let hops = hops.into_iter();
    hops.map(|(_, flight, hop)| (flight, hop)).collect()
}
