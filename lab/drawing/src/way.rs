//! Derives the ways to draw from journeys: the places that a packet visits, and where it ends.

use std::collections::BTreeSet;
use std::fmt;
use std::net::SocketAddr;

use svclab_journey::journey::{Hop, Kind, PacketPath, PathEnd, Rewrite};
use svclab_model::evidence::AddressPair;

/// Way of a packet through a topology.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Way {
    /// Whether the packet travels in request direction.
    pub is_request: bool,
    /// Kind of the packet, at the start of a sentence: `Request`, `Reply`, `RST`, `ICMP error`.
    pub label: &'static str,
    /// Visited namespaces, in order.
    pub visits: Vec<Visit>,
    /// End of the packet.
    pub end: WayEnd,
    /// Why the packet ended, as lines of text beside its end; may be empty.
    pub reason: Vec<String>,
}

/// Visit of a packet in a namespace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Visit {
    /// Name of the namespace.
    pub namespace: String,
    /// Interfaces in the order in which the packet crossed them.
    pub crossings: Vec<Crossing>,
    /// New addresses, if the namespace rewrote them.
    pub rewrites: Vec<AddressRewrite>,
    /// Whether IPVS selected the destination.
    pub is_balanced: bool,
}

/// Crossing of an interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Crossing {
    /// Interface name.
    pub interface: String,
    /// Whether the packet left through the interface.
    pub is_out: bool,
    /// Whether the packet was inside a tunnel packet.
    pub is_encapsulated: bool,
}

/// Rewritten address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AddressRewrite {
    /// Whether the address is the source; otherwise it is the destination.
    pub is_source: bool,
    /// New address.
    pub address: SocketAddr,
}

/// End of a way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum WayEnd {
    /// A socket received the packet.
    Delivered,
    /// The packet was dropped or rejected in the last namespace.
    Stopped,
    /// The last namespace sent the packet, and no other received it.
    Lost,
    /// The end in the last namespace is unknown.
    Unknown,
}

impl Way {
    /// Derives the way of a packet.
    #[must_use]
    pub fn new(packet: &PacketPath) -> Self {
        let end = match &packet.end {
            PathEnd::Delivered => WayEnd::Delivered,
            PathEnd::NotReceived => WayEnd::Lost,
            PathEnd::Unknown => WayEnd::Unknown,
            PathEnd::Rejected(_)
            | PathEnd::DroppedByRule
            | PathEnd::Dropped { .. }
            | PathEnd::CountedDrop { .. }
            | PathEnd::Waiting(_) => WayEnd::Stopped,
        };
        Self {
            is_request: packet.direction,
            label: match packet.kind {
                Kind::Rst => "RST",
                Kind::Unreachable => "ICMP error",
                _ if packet.direction => "Request",
                _ => "Reply",
            },
            visits: packet.hops.iter().map(Visit::new).collect(),
            end,
            reason: Vec::new(),
        }
    }

    /// Selects different ways: at most `limit`, in their order. Ways that end otherwise than in a
    /// socket come before others if not all fit.
    #[must_use]
    pub fn select(all: Vec<Self>, limit: usize) -> Vec<Self> {
        let mut ways: Vec<Self> = Vec::new();
        for way in all {
            if !way.visits.is_empty() && !ways.contains(&way) {
                ways.push(way);
            }
        }
        let mut order: Vec<usize> = (0..ways.len()).collect();
        order.sort_by_key(|index| ways[*index].end == WayEnd::Delivered);
        let kept: BTreeSet<usize> = order.into_iter().take(limit).collect();
        let ways = ways.into_iter().enumerate();
        ways.filter(|(index, _)| kept.contains(index))
            .map(|(_, way)| way)
            .collect()
    }
}

impl Visit {
    fn new(hop: &Hop) -> Self {
        let crossings = hop.crossings.iter().map(|crossing| Crossing {
            interface: crossing.interface.clone(),
            is_out: crossing.out,
            is_encapsulated: crossing.encapsulated,
        });
        Self {
            namespace: hop.namespace.clone(),
            crossings: crossings.collect(),
            rewrites: rewrites(&hop.before, &hop.after),
            is_balanced: matches!(hop.rewritten, Some(Rewrite::ByIpvs { .. })),
        }
    }
}

fn rewrites(before: &AddressPair, after: &AddressPair) -> Vec<AddressRewrite> {
    let pairs = [
        (true, before.source, after.source),
        (false, before.destination, after.destination),
    ];
    let changed = pairs
        .into_iter()
        .filter(|(_, before, after)| before != after);
    changed
        .map(|(is_source, _, address)| AddressRewrite { is_source, address })
        .collect()
}

/// Renders the new address as a label: `from 10.0.0.11:4000`.
impl fmt::Display for AddressRewrite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = if self.is_source { "from" } else { "to" };
        write!(f, "{word} {}", self.address)
    }
}
