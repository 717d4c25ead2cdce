//! Defines a packet with its hops, before it is assigned to an attempt.

use std::net::IpAddr;

use super::connection_index::ConnectionIndex;
use super::hop::{MatchIndex, build_hop};
use super::sighting::{self, PacketId, Sighting};
use super::track::{Kind, PacketTrack};
use super::{Hop, PathEnd, Rewrite, RoutingLoop, RuleMatch};
use crate::packet::{Frame, Payload};
use svclab_model::evidence::{AddressPair, DroppedPacket};

/// A packet and its hops, not yet assigned to an attempt.
pub(super) struct FollowedPacket<'s> {
    pub(super) identity: PacketId,
    pub(super) time: u64,
    pub(super) kind: Kind,
    pub(super) code: Option<u8>,
    pub(super) quoted: Option<AddressPair>,
    pub(super) hops: Vec<Hop>,
    pub(super) routing_loop: Option<RoutingLoop>,
    /// Last sighting; `None` if no interface carried the packet.
    pub(super) last: Option<&'s Sighting<'s>>,
}

impl<'s> FollowedPacket<'s> {
    pub(super) fn from_track<'e: 's>(
        connections: &ConnectionIndex<'e>,
        track: &PacketTrack<'s, 'e>,
        visits: &mut MatchIndex<'e>,
    ) -> Option<Self> {
        let first = track.first();
        let mut hops = track
            .hops
            .iter()
            .map(|stay| {
                let first = stay.first()?;
                let namespace = first.namespace;
                // If the packet was encapsulated throughout the hop, the rules matched the outer
                // packet.
                let outer = first.outer.as_ref();
                let outer = outer.filter(|_| stay.iter().all(|each| each.wrapped()));
                let identity = outer.map_or(track.identity, PacketId::from_frame);
                let matches = visits.take_hop(namespace, identity);
                build_hop(connections, namespace, stay, matches)
            })
            .collect::<Option<Vec<_>>>()?;
        if let (Some(last), Some(hop)) = (track.sightings().last(), hops.last_mut())
            && !(last.out && last.wrapped())
        {
            let tunnel = visits.take_dropped_tunnel(last.namespace, track.identity);
            hop.matches.extend(tunnel);
        }
        let (hops, routing_loop) = without_rounds(hops);
        Some(Self {
            identity: track.identity,
            time: first.time,
            kind: Kind::from_payload(first.identity.payload()),
            code: first.frame.code,
            quoted: first.quoted,
            hops,
            routing_loop,
            last: track.sightings().last(),
        })
    }

    /// Builds a packet that no interface carried: it ended in the namespace that sent it. `dropped`
    /// is the report of its drop, if there is one.
    pub(super) fn from_matches<'e>(
        connections: &ConnectionIndex<'e>,
        namespace: &'e str,
        identity: PacketId,
        dropped: Option<&DroppedPacket>,
        matches: Vec<RuleMatch>,
    ) -> Option<Self> {
        // A trace has too few bytes for the packet that an ICMP error quotes.
        let frame = dropped.and_then(|drop| Frame::from_ip(&drop.packet));
        let quoted = frame.as_ref().and_then(|frame| frame.quoted.as_deref());
        Some(Self {
            identity,
            time: dropped.map_or(0, |drop| drop.time),
            kind: Kind::from_payload(identity.payload()),
            code: frame.as_ref().and_then(|frame| frame.code),
            quoted: quoted.map(sighting::flow),
            hops: vec![build_hop(connections, namespace, &[], matches)?],
            routing_loop: None,
            last: None,
        })
    }

    /// Builds a packet that only the report of its drop shows.
    pub(super) fn from_drop<'e>(
        connections: &ConnectionIndex<'e>,
        identity: PacketId,
        frame: &Frame,
        dropped: &'e DroppedPacket,
    ) -> Self {
        let after = sighting::flow(frame);
        let is_reply = frame.payload == Payload::Pong;
        let before = connections.before_sent(&dropped.namespace, after, is_reply);
        let before = before.unwrap_or(after);
        Self {
            identity,
            time: dropped.time,
            kind: Kind::from_payload(identity.payload()),
            code: frame.code,
            quoted: frame.quoted.as_deref().map(sighting::flow),
            hops: vec![Hop {
                namespace: dropped.namespace.clone(),
                crossings: Vec::new(),
                before,
                after,
                tunnel: None,
                rewritten: (before != after).then_some(Rewrite::Conntrack),
                matches: Vec::new(),
            }],
            routing_loop: None,
            last: None,
        }
    }

    pub(super) fn before(&self) -> AddressPair {
        self.hops[0].before
    }

    pub(super) fn flows(&self) -> impl Iterator<Item = AddressPair> {
        self.hops.iter().flat_map(|hop| [hop.before, hop.after])
    }

    /// Returns the addresses with which the packet was sent. A packet that netfilter dropped may have
    /// the translated addresses of another connection, for which conntrack refused it.
    pub(super) fn sent_flows(&self, end: &PathEnd) -> impl Iterator<Item = AddressPair> {
        let is_sent = self.last.is_some_and(|last| last.out);
        let is_dropped = matches!(end, PathEnd::Dropped { .. });
        let unsent = usize::from(is_dropped && !is_sent);
        self.flows().take(self.hops.len() * 2 - unsent)
    }

    /// Returns what a packet and its retransmissions have in common.
    pub(super) fn shared_by_retransmissions(&self) -> (PacketId, AddressPair, Kind) {
        (
            self.identity.without_identification(),
            self.before(),
            self.kind,
        )
    }

    /// Whether one of two packets is a retransmission of the other.
    pub(super) fn is_retransmission(&self, other: &FollowedPacket<'_>) -> bool {
        self.shared_by_retransmissions() == other.shared_by_retransmissions()
    }
}

/// Namespace, interfaces and addresses before and after, which a routing loop repeats.
type Place<'h> = (&'h str, Vec<(&'h str, bool)>, [(IpAddr, IpAddr); 2]);

fn place(hop: &Hop) -> Place<'_> {
    let crossings = hop.crossings.iter();
    let interfaces = crossings.map(|seen| (seen.interface.as_str(), seen.out));
    let addresses = [hop.before, hop.after].map(|pair| (pair.source.ip(), pair.destination.ip()));
    (&hop.namespace, interfaces.collect(), addresses)
}

/// Returns the hops with one round of a routing loop, the last, and the loop. A node on the loop may
/// translate the port in each round.
fn without_rounds(mut hops: Vec<Hop>) -> (Vec<Hop>, Option<RoutingLoop>) {
    let places: Vec<Place<'_>> = hops.iter().map(place).collect();
    let again = |first: usize| {
        let mut later = first + 1..places.len();
        Some((first, later.find(|later| places[*later] == places[first])?))
    };
    let Some((first, second)) = (0..places.len()).find_map(again) else {
        return (hops, None);
    };
    let rounds: Vec<usize> = (first..places.len())
        .filter(|index| places[*index] == places[first])
        .collect();
    let mut namespaces: Vec<String> = Vec::new();
    for hop in &hops[first..second] {
        if !namespaces.contains(&hop.namespace) {
            namespaces.push(hop.namespace.clone());
        }
    }
    let routing_loop = RoutingLoop {
        namespaces,
        rounds: u32::try_from(rounds.len()).unwrap_or(u32::MAX),
    };
    let last = rounds.last().copied().unwrap_or(first);
    hops.drain(first..last);
    (hops, Some(routing_loop))
}
