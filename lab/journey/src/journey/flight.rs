//! Packets gathered from where they were seen: one flight for each that set out.

use std::collections::{HashMap, HashSet};

use serde::{Deserialize, Serialize};

use super::sighting::{Identity, Sighting};
use crate::packet::Payload;
use svclab_model::evidence::Flow;
use svclab_model::evidence::PacketKind;

/// What a packet is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum Kind {
    /// A TCP segment that begins a connection.
    Syn,
    /// Its answer.
    SynAck,
    /// A segment that resets.
    Rst,
    /// A segment that ends one side.
    Fin,
    /// Any other segment.
    Segment,
    /// A datagram of UDP.
    Datagram,
    /// An ICMP echo request.
    Ping,
    /// Its answer.
    Pong,
    /// ICMP destination unreachable.
    Unreachable,
    /// Anything else.
    Other,
}

impl Kind {
    /// What a packet is that carries that.
    pub(super) fn of(payload: Payload) -> Self {
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
        .find(|(kind, _)| payload.is(*kind))
        .map_or(Self::Other, |(_, kind)| kind)
    }

    /// As people write it.
    #[must_use]
    pub const fn word(self) -> &'static str {
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

/// The sightings of one packet that set out, in order: one in each stay in a
/// namespace.
#[derive(Debug)]
pub struct Track<'s, 'e> {
    pub identity: Identity,
    /// By stays: in another namespace, or in the same one by another entry.
    pub stays: Vec<Vec<&'s Sighting<'e>>>,
}

impl<'s, 'e> Track<'s, 'e> {
    /// Where it was seen first.
    pub fn first(&self) -> &'s Sighting<'e> {
        self.stays[0][0]
    }

    /// All its sightings.
    pub fn sightings(&self) -> impl Iterator<Item = &'s Sighting<'e>> {
        self.stays.iter().flatten().copied()
    }
}

/// Namespace, interface, whether it left, whether it was wrapped, and its addresses
/// there: a packet that was rewritten meanwhile may come by once more.
type Place<'e> = (&'e str, &'e str, bool, bool, Flow);

/// Within how long, in nanoseconds, packets that are alike are taken to come by in the
/// order in which they set out: queues keep it. What has not been seen for longer was
/// lost, and sent again: no TCP does that sooner (Linux v6.12, `include/net/tcp.h`,
/// `TCP_RTO_MIN`, 200 ms).
const IN_ORDER: u64 = 150_000_000;

/// Gathers sightings, which are in the order of time, into the packets that set out,
/// in that order, too.
///
/// A packet that is seen a second time in the same place, with the same addresses, is
/// another one, sent again with all its numbers, or one that goes round in a circle.
pub fn tracks<'s, 'e>(sightings: &'s [Sighting<'e>]) -> Vec<Track<'s, 'e>> {
    let mut tracks: Vec<Track<'s, 'e>> = Vec::new();
    // By packet, those that are alike, each with where it was seen.
    let mut open: HashMap<Identity, Vec<(usize, HashSet<Place<'_>>)>> = HashMap::new();
    for sighting in sightings {
        let place = (
            sighting.namespace,
            sighting.interface,
            sighting.out,
            sighting.wrapped,
            sighting.flow,
        );
        let alike = open.entry(sighting.identity).or_default();
        let newest = alike.len().saturating_sub(1);
        let recent = |track: usize| {
            let last = tracks[track].stays.last().and_then(|stay| stay.last());
            last.is_some_and(|last| last.time + IN_ORDER >= sighting.time)
        };
        let on = alike.iter_mut().enumerate().find(|(at, (track, places))| {
            !places.contains(&place) && (*at == newest || recent(*track))
        });
        let Some((_, (at, places))) = on else {
            alike.push((tracks.len(), HashSet::from([place])));
            tracks.push(Track {
                identity: sighting.identity,
                stays: vec![vec![sighting]],
            });
            continue;
        };
        places.insert(place);
        let stays = &mut tracks[*at].stays;
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

    /// The same reset, somewhere, so many milliseconds after it began.
    fn seen(namespace: &str, interface: &str, direction: Direction, at: u64) -> Packet {
        let mut bytes = vec![0; 12];
        bytes.extend([0x08, 0x00]);
        bytes.extend([0x45, 0, 0, 40, 0, 0, 0x40, 0, 64, 6, 0, 0]);
        bytes.extend([10, 0, 0, 1, 10, 0, 0, 2]);
        bytes.extend([0x9c, 0x40, 0, 80, 0, 0, 0, 1, 0, 0, 0, 0, 0x50, 0x04, 0, 0]);
        bytes.extend([0; 4]);
        Packet {
            time: at * 1_000_000,
            namespace: namespace.to_owned(),
            interface: interface.to_owned(),
            direction,
            length: 54,
            bytes,
        }
    }

    /// How often each of them was seen, and when last, in milliseconds.
    fn followed(packets: &[Packet]) -> Vec<(usize, u64)> {
        let plan = Plan::default();
        let sightings = super::super::sighting::all(packets, &plan);
        let tracks = tracks(&sightings);
        let one = |track: &Track<'_, '_>| {
            let last = track.sightings().last().expect("it was seen");
            (track.sightings().count(), last.time / 1_000_000)
        };
        tracks.iter().map(one).collect()
    }

    #[test]
    fn packets_that_are_alike_keep_their_order() {
        let (on, off) = (Direction::Out, Direction::In);
        let packets = [
            seen("a", "eth0", on, 0),
            seen("a", "eth0", on, 1),
            seen("b", "a", off, 50),
            seen("b", "c", on, 51),
            seen("b", "a", off, 60),
            seen("c", "eth0", off, 70),
            seen("b", "c", on, 80),
            seen("c", "eth0", off, 90),
        ];
        assert_eq!(followed(&packets), [(4, 70), (4, 90)]);
    }

    #[test]
    fn what_was_lost_long_ago_is_not_seen_again() {
        let (on, off) = (Direction::Out, Direction::In);
        let packets = [
            seen("a", "eth0", on, 0),
            seen("a", "eth0", on, 200),
            seen("b", "a", off, 201),
        ];
        assert_eq!(followed(&packets), [(1, 0), (2, 201)]);
    }
}
