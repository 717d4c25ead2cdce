//! Draws the packets of a connection in the topology of its lab.

use svclab_drawing::Way;
use svclab_journey::journey::{Journey, PacketPath, PathEnd};

use crate::text::journey::describe_end;
use crate::text::wrap;

/// Maximum number of ways in one drawing: more would hide each other.
const MAX_WAYS: usize = 3;

/// Maximum width of a reason, in characters: that of the narrowest node.
const REASON_WIDTH: usize = 36;

/// Returns the ways of a connection's packets, with the reasons for their ends.
#[must_use]
pub fn ways(journey: &Journey) -> Vec<Way> {
    let packets = journey.packets.iter();
    let ways = packets.map(|packet| Way {
        reason: lost(packet, journey).map_or_else(Vec::new, |reason| wrap_evenly(&reason)),
        ..Way::new(packet)
    });
    Way::select(ways.collect(), MAX_WAYS)
}

/// Wraps a reason into as few lines as possible, of similar lengths.
fn wrap_evenly(reason: &str) -> Vec<String> {
    let widest = wrap(reason, REASON_WIDTH);
    let mut wrapped = (1..REASON_WIDTH).map(|width| wrap(reason, width));
    let even = wrapped.find(|lines| lines.len() == widest.len());
    even.unwrap_or(widest)
}

fn lost(packet: &PacketPath, journey: &Journey) -> Option<String> {
    (packet.end != PathEnd::Delivered).then(|| describe_end_with_rule(packet, journey))
}

/// Describes the end of a packet. A rule that dropped the packet is named by its place.
pub(crate) fn describe_end_with_rule(packet: &PacketPath, journey: &Journey) -> String {
    let last = packet.hops.last().and_then(|hop| hop.matches.last());
    match (&packet.end, last) {
        (PathEnd::DroppedByRule, Some(rule)) => {
            let number = rule.number.map(|number| format!(" rule {number}"));
            let number = number.unwrap_or_default();
            format!("dropped by {} {}{number}", rule.table, rule.chain)
        }
        _ => describe_end(packet, journey),
    }
}
