//! Groups the sightings of packets into tracks: one track for each packet sent.

use std::collections::{HashMap, HashSet};

use serde::{Deserialize, Serialize};

use super::sighting::{PacketId, Sighting};
use crate::packet::Payload;
use svclab_model::evidence::AddressPair;
use svclab_model::evidence::PacketKind;

/// Kind of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum Kind {
    /// TCP segment with SYN and without ACK.
    Syn,
    /// TCP segment with SYN and ACK.
    SynAck,
    /// TCP segment with RST.
    Rst,
    /// TCP segment with FIN.
    Fin,
    /// Any other TCP segment.
    Segment,
    /// UDP datagram.
    Datagram,
    /// ICMP echo request.
    Ping,
    /// ICMP echo reply.
    Pong,
    /// ICMP destination unreachable.
    Unreachable,
    /// Any other packet.
    Other,
}

impl Kind {
    /// Returns the number of the IP protocol. `None` for [`Self::Other`].
    #[must_use]
    pub const fn ip_protocol(self, v6: bool) -> Option<u8> {
        match self {
            Self::Syn | Self::SynAck | Self::Rst | Self::Fin | Self::Segment => Some(6),
            Self::Datagram => Some(17),
            Self::Ping | Self::Pong | Self::Unreachable => Some(if v6 { 58 } else { 1 }),
            Self::Other => None,
        }
    }

    pub(super) fn from_payload(payload: Payload) -> Self {
        [
            (PacketKind::Rst, Self::Rst),
            (PacketKind::SynAck, Self::SynAck),
            (PacketKind::Syn, Self::Syn),
            (PacketKind::Fin, Self::Fin),
            (PacketKind::Ack, Self::Segment),
            (PacketKind::Udp, Self::Datagram),
            (PacketKind::Ping, Self::Ping),
            (PacketKind::Pong, Self::Pong),
            (PacketKind::Unreachable, Self::Unreachable),
        ]
        .into_iter()
        .find(|(kind, _)| payload.has_kind(*kind))
        .map_or(Self::Other, |(_, kind)| kind)
    }

    /// Returns the usual name of the kind, such as `SYN-ACK`.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Syn => "SYN",
            Self::SynAck => "SYN-ACK",
            Self::Rst => "RST",
            Self::Fin => "FIN",
            Self::Segment => "segment",
            Self::Datagram => "datagram",
            Self::Ping => "echo request",
            Self::Pong => "echo reply",
            Self::Unreachable => "ICMP unreachable",
            Self::Other => "packet",
        }
    }
}

/// All sightings of one packet, in order of time and grouped by hop.
#[derive(Debug)]
pub(super) struct PacketTrack<'s, 'e> {
    pub identity: PacketId,
    /// Sightings per hop. A new hop begins in another namespace, or when the packet enters the same
    /// namespace again.
    pub hops: Vec<Vec<&'s Sighting<'e>>>,
}

impl<'s, 'e> PacketTrack<'s, 'e> {
    /// Returns the first sighting of the packet.
    pub(super) fn first(&self) -> &'s Sighting<'e> {
        self.hops[0][0]
    }

    pub(super) fn sightings(&self) -> impl Iterator<Item = &'s Sighting<'e>> {
        self.hops.iter().flatten().copied()
    }
}

/// Namespace, interface, whether the packet was sent there, whether it was encapsulated, and its
/// addresses and TTL there. A rewritten packet may cross the same interface again, and a packet in a
/// routing loop does so with a smaller TTL.
type SightingKey<'e> = (&'e str, &'e str, bool, bool, AddressPair, u8);

/// Time, in nanoseconds, for which identical packets are assumed to be seen in the order in which
/// they were sent, because queues keep the order. A packet not seen for longer was lost, and the
/// next identical packet is a retransmission: no TCP retransmits sooner (Linux v6.12,
/// `include/net/tcp.h`, `TCP_RTO_MIN`, 200 ms).
const MAX_REORDER_NS: u64 = 150_000_000;

/// Groups sightings, which must be in order of time, into tracks in the order of sending.
///
/// A packet seen again at the same place with the same addresses and TTL is another packet: an exact
/// retransmission.
pub(super) fn tracks<'s, 'e>(sightings: &'s [Sighting<'e>]) -> Vec<PacketTrack<'s, 'e>> {
    let mut tracks: Vec<PacketTrack<'s, 'e>> = Vec::new();
    // Per packet identity: the identical packets, each with the places where it was seen.
    let mut open: HashMap<PacketId, Vec<(usize, HashSet<SightingKey<'_>>)>> = HashMap::new();
    for sighting in sightings {
        let place = (
            sighting.namespace,
            sighting.interface,
            sighting.out,
            sighting.wrapped(),
            sighting.flow,
            sighting.frame.ttl,
        );
        let identical = open.entry(sighting.identity).or_default();
        let newest = identical.len().saturating_sub(1);
        let recent = |track: usize| {
            let last = tracks[track].hops.last().and_then(|stay| stay.last());
            last.is_some_and(|last| last.time + MAX_REORDER_NS >= sighting.time)
        };
        let on = identical
            .iter_mut()
            .enumerate()
            .find(|(index, (track, places))| {
                !places.contains(&place) && (*index == newest || recent(*track))
            });
        let Some((_, (track_index, places))) = on else {
            identical.push((tracks.len(), HashSet::from([place])));
            tracks.push(PacketTrack {
                identity: sighting.identity,
                hops: vec![vec![sighting]],
            });
            continue;
        };
        places.insert(place);
        let stays = &mut tracks[*track_index].hops;
        let last = stays.last().and_then(|stay| stay.last());
        let stays_on = last.is_some_and(|last| {
            last.namespace == sighting.namespace && (sighting.out || !last.out)
        });
        match stays.last_mut() {
            Some(stay) if stays_on => stay.push(sighting),
            _ => stays.push(vec![sighting]),
        }
    }
    tracks
}

#[cfg(test)]
mod tests {
    use super::*;
    use svclab_model::evidence::{Direction, Packet};
    use svclab_model::plan::Plan;

    /// Returns the same RST at an interface, a number of milliseconds after the start.
    fn reset_sighting(
        namespace: &str,
        interface: &str,
        direction: Direction,
        time_ms: u64,
    ) -> Packet {
        let mut bytes = vec![0; 12];
        bytes.extend([0x08, 0x00]);
        bytes.extend([0x45, 0, 0, 40, 0, 0, 0x40, 0, 64, 6, 0, 0]);
        bytes.extend([10, 0, 0, 1, 10, 0, 0, 2]);
        bytes.extend([0x9c, 0x40, 0, 80, 0, 0, 0, 1, 0, 0, 0, 0, 0x50, 0x04, 0, 0]);
        bytes.extend([0; 4]);
        Packet {
            time: time_ms * 1_000_000,
            namespace: namespace.to_owned(),
            interface: interface.to_owned(),
            direction,
            length: 54,
            bytes,
        }
    }

    /// Returns for each packet the number of sightings and the time of the last, in milliseconds.
    fn track_summaries(packets: &[Packet]) -> Vec<(usize, u64)> {
        let plan = Plan::default();
        let sightings = super::super::sighting::parse_sightings(packets, &plan);
        let tracks = tracks(&sightings);
        let summarize = |track: &PacketTrack<'_, '_>| {
            let last = track.sightings().last().expect("a track has sightings");
            (track.sightings().count(), last.time / 1_000_000)
        };
        tracks.iter().map(summarize).collect()
    }

    #[test]
    fn tracks_identical_packets_keep_order() {
        let (on, off) = (Direction::Out, Direction::In);
        let packets = [
            reset_sighting("a", "eth0", on, 0),
            reset_sighting("a", "eth0", on, 1),
            reset_sighting("b", "a", off, 50),
            reset_sighting("b", "c", on, 51),
            reset_sighting("b", "a", off, 60),
            reset_sighting("c", "eth0", off, 70),
            reset_sighting("b", "c", on, 80),
            reset_sighting("c", "eth0", off, 90),
        ];
        assert_eq!(track_summaries(&packets), [(4, 70), (4, 90)]);
    }

    #[test]
    fn tracks_packet_in_routing_loop_is_one() {
        let looped = |namespace, interface, direction, time, ttl| {
            let mut packet = reset_sighting(namespace, interface, direction, time);
            packet.bytes[14 + 8] = ttl;
            packet
        };
        let (on, off) = (Direction::Out, Direction::In);
        let packets = [
            looped("a", "eth0", on, 0, 4),
            looped("b", "a", off, 1, 4),
            looped("b", "a", on, 2, 3),
            looped("a", "eth0", off, 3, 3),
            looped("a", "eth0", on, 4, 2),
            looped("b", "a", off, 5, 2),
            looped("b", "a", on, 6, 1),
            looped("a", "eth0", off, 7, 1),
            // A retransmission starts with the same TTL.
            looped("a", "eth0", on, 300, 4),
        ];
        assert_eq!(track_summaries(&packets), [(8, 7), (1, 300)]);
    }

    #[test]
    fn tracks_lost_packet_later_copy_is_retransmission() {
        let (on, off) = (Direction::Out, Direction::In);
        let packets = [
            reset_sighting("a", "eth0", on, 0),
            reset_sighting("a", "eth0", on, 200),
            reset_sighting("b", "a", off, 201),
        ];
        assert_eq!(track_summaries(&packets), [(1, 0), (2, 201)]);
    }
}
