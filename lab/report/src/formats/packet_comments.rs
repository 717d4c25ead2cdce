//! Generates comments on single packets of a capture file.

use std::collections::BTreeMap;

use crate::text::conclusion::{render_rewrite, render_rule};
use svclab_journey::journey::{Journey, PacketPath, PathEnd, Rewrite};
use svclab_judge::RuleReference;

/// Returns by packet index, from 0, what rewrote or dropped the packet.
#[must_use]
pub fn comments<'j>(journeys: impl IntoIterator<Item = &'j Journey>) -> BTreeMap<usize, String> {
    let mut comments: BTreeMap<usize, Vec<String>> = BTreeMap::new();
    for journey in journeys {
        for flight in &journey.packets {
            for (packet, comment) in path_comments(flight) {
                let packet_comments = comments.entry(packet).or_default();
                // A packet may belong to several connections.
                if !packet_comments.contains(&comment) {
                    packet_comments.push(comment);
                }
            }
        }
    }
    comments
        .into_iter()
        .map(|(packet, texts)| (packet, texts.join("; ")))
        .collect()
}

fn path_comments(flight: &PacketPath) -> Vec<(usize, String)> {
    let mut comments = Vec::new();
    for hop in &flight.hops {
        let Some(by) = render_rewrite(hop) else {
            continue;
        };
        // The packet as sent or, if it was for a local socket, as received.
        let after = hop
            .crossings
            .iter()
            .find(|seen| seen.out)
            .or(hop.crossings.last());
        if let Some(seen) = after {
            let rules: Vec<String> = match &hop.rewritten {
                Some(Rewrite::ByRules(indices)) => indices
                    .iter()
                    .filter_map(|index| hop.matches.get(*index))
                    .map(|step| render_rule(&RuleReference::new(step, hop)))
                    .collect(),
                _ => Vec::new(),
            };
            let by = if rules.is_empty() {
                by
            } else {
                format!("by {}", rules.join(", "))
            };
            comments.push((
                seen.packet,
                format!(
                    "rewritten in {}: {} became {}, {by}",
                    hop.namespace, hop.before, hop.after
                ),
            ));
        }
    }
    let Some(hop) = flight.hops.last() else {
        return comments;
    };
    let end = match &flight.end {
        PathEnd::DroppedByRule => hop.matches.last().map(|step| {
            format!(
                "dropped in {} by {}",
                hop.namespace,
                render_rule(&RuleReference::new(step, hop))
            )
        }),
        PathEnd::Dropped { reason, .. } => Some(format!("dropped in {}: {reason}", hop.namespace)),
        PathEnd::CountedDrop {
            counter,
            increase: by,
            ..
        } => Some(format!(
            "lost in {}; kernel counter {counter} +{by}",
            hop.namespace
        )),
        PathEnd::NotReceived => Some(format!("sent by {} but not received", hop.namespace)),
        PathEnd::Waiting(neighbour) => Some(format!(
            "waiting in {} for the hardware address of {neighbour}",
            hop.namespace
        )),
        PathEnd::Unknown => Some(format!("its end in {} was not recorded", hop.namespace)),
        PathEnd::Delivered | PathEnd::Rejected(_) => None,
    };
    if let (Some(end), Some(seen)) = (end, hop.crossings.last()) {
        comments.push((seen.packet, end));
    }
    comments
}
