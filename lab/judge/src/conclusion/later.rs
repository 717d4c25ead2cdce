//! Finds the packets after the first request and reply that ended the attempt: lost or rejected data,
//! and resets of an established connection.

use super::{Conclusion, Fact, Rejection};
use svclab_journey::journey::{Journey, Kind, PacketPath, PathEnd};
use svclab_model::evidence::Verdict;

impl Conclusion<'_> {
    /// Returns facts about the packets after the first request and the first reply, if the attempt
    /// failed after them.
    pub(super) fn later_packets(&self, request: &PacketPath, reply: &PacketPath) -> Vec<Fact> {
        let journey = self.journey;
        if !matches!(journey.verdict, Verdict::Silent | Verdict::Reset) {
            return Vec::new();
        }
        let is_later =
            |flight: &&PacketPath| !std::ptr::eq(*flight, request) && !std::ptr::eq(*flight, reply);
        let later = journey.packets.iter().filter(is_later);
        let mut facts = Vec::new();
        for direction in [true, false] {
            let mut packets = later.clone();
            let lost = packets.find_map(|flight| {
                let rejection = self.icmp_rejection(flight);
                let is_lost = is_lost(flight) || rejection.is_some();
                (flight.direction == direction && is_lost).then_some((flight, rejection))
            });
            let lost = lost.filter(|(flight, _)| !is_delivered_again(journey, flight));
            facts.extend(lost.and_then(|(flight, rejection)| {
                let hop = flight.hops.last()?;
                Some(match rejection {
                    Some(rejection) => self.rejected(flight, hop, rejection, Vec::new()),
                    None => self.lost(flight, hop, Vec::new()),
                })
            }));
        }
        let mut resets = later.filter(|flight| flight.kind == Kind::Rst);
        if let Some(reset) = resets.next() {
            facts.extend(self.reset(reset));
        }
        facts
    }

    /// Returns the fact about the first reset of an established connection.
    fn reset(&self, reset: &PacketPath) -> Option<Fact> {
        let sender = &reset.hops.first()?.namespace;
        let index = self
            .journey
            .packets
            .iter()
            .position(|flight| std::ptr::eq(flight, reset));
        let answered = self.journey.packets.iter().find(|flight| {
            matches!(&flight.end, PathEnd::Rejected(by) if by.iter().any(|at| Some(*at) == index))
        });
        Some(
            match answered.and_then(|flight| Some((flight, flight.hops.last()?))) {
                Some((flight, hop)) if hop.namespace == *sender => self.rejected(
                    flight,
                    hop,
                    Rejection::Packet {
                        packet: Some(Kind::Rst),
                        fault: None,
                    },
                    Vec::new(),
                ),
                _ => Fact::Refused {
                    packet: Kind::Rst,
                    sender: sender.clone(),
                },
            },
        )
    }
}

const fn is_lost(flight: &PacketPath) -> bool {
    matches!(
        flight.end,
        PathEnd::DroppedByRule
            | PathEnd::Dropped { .. }
            | PathEnd::CountedDrop { .. }
            | PathEnd::NotReceived
            | PathEnd::Waiting(_)
    )
}

/// Whether the packet or a retransmission of it was delivered.
fn is_delivered_again(journey: &Journey, lost: &PacketPath) -> bool {
    let index = journey
        .packets
        .iter()
        .position(|flight| std::ptr::eq(flight, lost));
    let first = lost.retransmission_of.or(index);
    journey.packets.iter().any(|flight| {
        flight.retransmission_of.is_some()
            && flight.retransmission_of == first
            && flight.end == PathEnd::Delivered
    })
}
