//! Groups the connections of a case that went alike.

use crate::case_details::CaseDetails;
use crate::commands::explain::{ExplainedJourney, StageJourneys};
use crate::formats::html::run::row::encode;
use crate::shown_frames::ShownFrame;
use svclab_journey::journey::{Hop, PacketPath, RuleMatch};

/// Maximum number of connections of which a section shows the packets.
pub(in crate::formats::html) const MAX_CONNECTIONS: usize = 12;

/// Maximum number of shown packets of a connection that failed, and of one that succeeded: the
/// handshake, data, and their acknowledgements.
const MAX_PACKETS: usize = 24;
const MAX_PACKETS_OF_SUCCESS: usize = 6;

/// Connections that went alike.
pub(in crate::formats::html) struct Connections<'a> {
    /// The first of them.
    pub explained: &'a ExplainedJourney,
    /// Number of the connections.
    pub count: usize,
    /// Connections of the same stage.
    pub stage: &'a [ExplainedJourney],
    /// Index of the stage, from 0.
    pub stage_index: usize,
    /// Name of the step after which the connections were made.
    pub step: Option<&'a str>,
}

impl<'a> Connections<'a> {
    /// Returns the identifier of the connections in a section.
    pub(in crate::formats::html) fn id(&self, section: &str) -> String {
        let journey = &self.explained.journey;
        let name = format!("{}/{}", journey.probe, journey.number + 1);
        let step = self.step.map(|step| format!("/after/{step}"));
        format!("{section}:{}", encode(&(name + &step.unwrap_or_default())))
    }

    /// Returns a connection of the same probe and stage that succeeded.
    pub(in crate::formats::html) fn succeeding(&self) -> Option<&'a ExplainedJourney> {
        let probe = &self.explained.journey.probe;
        let mut stage = self.stage.iter();
        stage.find(|other| other.journey.probe == *probe && other.journey.verdict.is_success())
    }

    /// Returns the bytes of a packet, which has an index in the first connection.
    pub(in crate::formats::html) fn frames<'d>(
        &self,
        details: &'d CaseDetails,
        packet: usize,
    ) -> impl Iterator<Item = &'d ShownFrame> {
        let journey = &self.explained.journey;
        let key = (self.stage_index, journey.number, packet);
        details.frames.iter().filter(move |frame| {
            (frame.stage, frame.number, frame.packet) == key && frame.probe == journey.probe
        })
    }

    /// Returns the packets that the page shows, with retransmissions that went alike in one group.
    pub(in crate::formats::html) fn packet_groups(&self) -> Vec<PacketGroup<'a>> {
        let mut groups: Vec<PacketGroup<'a>> = Vec::new();
        for (index, packet) in self.shown_packets().enumerate() {
            let mut earlier = groups.iter_mut();
            let same = earlier.find(|group| {
                packet.retransmission_of.is_some() && is_alike(group.first.1, packet)
            });
            match same {
                Some(group) => group.retransmissions.push((index, packet)),
                None => groups.push(PacketGroup {
                    first: (index, packet),
                    retransmissions: Vec::new(),
                }),
            }
        }
        groups
    }

    /// Returns the packets that the page shows.
    pub(in crate::formats::html) fn shown_packets(&self) -> impl Iterator<Item = &'a PacketPath> {
        let limit = if self.explained.failing {
            MAX_PACKETS
        } else {
            MAX_PACKETS_OF_SUCCESS
        };
        self.explained.journey.packets.iter().take(limit)
    }
}

/// Packet with its retransmissions that had the same way and end, each with its index.
pub(in crate::formats::html) struct PacketGroup<'a> {
    pub first: (usize, &'a PacketPath),
    pub retransmissions: Vec<(usize, &'a PacketPath)>,
}

/// Whether packets visited the same places, met the same rules, and ended alike.
fn is_alike(one: &PacketPath, other: &PacketPath) -> bool {
    let is_same_rule = |(one, other): (&RuleMatch, &RuleMatch)| {
        (&one.table, &one.chain, one.number) == (&other.table, &other.chain, other.number)
    };
    let is_same_hop = |(one, other): (&Hop, &Hop)| {
        (&one.namespace, one.before, one.after) == (&other.namespace, other.before, other.after)
            && one.matches.len() == other.matches.len()
            && one.matches.iter().zip(&other.matches).all(is_same_rule)
    };
    (one.kind, one.direction, &one.end) == (other.kind, other.direction, &other.end)
        && one.hops.len() == other.hops.len()
        && one.hops.iter().zip(&other.hops).all(is_same_hop)
}

/// Returns the connections of a case, the failing ones first.
pub(in crate::formats::html) fn connections(stages: &[StageJourneys]) -> Vec<Connections<'_>> {
    let of_stages = stages.iter().enumerate().flat_map(|(stage_index, stage)| {
        let groups = stage.groups().into_iter();
        groups.map(move |(explained, count)| Connections {
            explained,
            count,
            stage: &stage.connections,
            stage_index,
            step: stage.step.as_deref(),
        })
    });
    let mut all: Vec<Connections<'_>> = of_stages.collect();
    all.sort_by_key(|connections| !connections.explained.failing);
    all
}
