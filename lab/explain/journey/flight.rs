//! Packets gathered from where they were seen: one flight for each that set out.

use std::collections::{HashMap, HashSet};

use serde::{Deserialize, Serialize};

use super::sighting::{Identity, Sighting};
use crate::evidence::Flow;
use crate::explain::packet::Payload;
use crate::scenario::wire::PacketKind;

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

/// Gathers sightings, which are in the order of time, into the packets that set out,
/// in that order, too.
///
/// A packet that is seen a second time in the same place, with the same addresses, is
/// another one, sent again with all its numbers, or one that goes round in a circle.
pub fn tracks<'s, 'e>(sightings: &'s [Sighting<'e>]) -> Vec<Track<'s, 'e>> {
    let mut tracks: Vec<Track<'s, 'e>> = Vec::new();
    // By packet, its track and where it was seen on it.
    let mut open: HashMap<Identity, (usize, HashSet<Place<'_>>)> = HashMap::new();
    for sighting in sightings {
        let place = (
            sighting.namespace,
            sighting.interface,
            sighting.out,
            sighting.wrapped,
            sighting.flow,
        );
        let known = open.get_mut(&sighting.identity);
        if let Some((at, places)) = known
            && places.insert(place)
        {
            let stays = &mut tracks[*at].stays;
            let last = stays.last().and_then(|stay| stay.last());
            let stays_on = last.is_some_and(|last| {
                last.namespace == sighting.namespace && (sighting.out || !last.out)
            });
            match stays.last_mut() {
                Some(stay) if stays_on => stay.push(sighting),
                _ => stays.push(vec![sighting]),
            }
            continue;
        }
        open.insert(sighting.identity, (tracks.len(), HashSet::from([place])));
        tracks.push(Track {
            identity: sighting.identity,
            stays: vec![vec![sighting]],
        });
    }
    tracks
}
