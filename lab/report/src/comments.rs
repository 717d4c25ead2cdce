//! Generates comments on single packets of a capture file.

use std::collections::BTreeMap;

use svclab_journey::journey::{End, Flight};
use svclab_judge::{place, rewriting};
use svclab_runner::results::journeys::Told;

/// Returns by packet index, from 0, what rewrote or dropped the packet.
#[must_use]
pub fn comments(connections: &[Told]) -> BTreeMap<usize, String> {
    let mut comments: BTreeMap<usize, Vec<String>> = BTreeMap::new();
    for connection in connections {
        for flight in &connection.journey.flights {
            for (packet, said) in of_flight(flight) {
                let own = comments.entry(packet).or_default();
                // A packet may belong to several connections.
                if !own.contains(&said) {
                    own.push(said);
                }
            }
        }
    }
    comments
        .into_iter()
        .map(|(packet, said)| (packet, said.join("; ")))
        .collect()
}

fn of_flight(flight: &Flight) -> Vec<(usize, String)> {
    let mut said = Vec::new();
    for hop in &flight.hops {
        let Some(by) = rewriting(hop) else { continue };
        // The packet as sent or, if it was for a local socket, as received.
        let after = hop.seen.iter().find(|seen| seen.out).or(hop.seen.last());
        if let Some(seen) = after {
            let rules: Vec<String> = match &hop.rewritten {
                Some(svclab_journey::journey::Rewritten::ByRules(at)) => at
                    .iter()
                    .filter_map(|at| hop.met.get(*at))
                    .map(|step| place(step, hop))
                    .collect(),
                _ => Vec::new(),
            };
            let by = if rules.is_empty() {
                by
            } else {
                format!("by {}", rules.join(", "))
            };
            said.push((
                seen.packet,
                format!(
                    "rewritten in {}: {} became {}, {by}",
                    hop.namespace, hop.before, hop.after
                ),
            ));
        }
    }
    let Some(hop) = flight.hops.last() else {
        return said;
    };
    let end = match &flight.end {
        End::ByRule => hop
            .met
            .last()
            .map(|step| format!("dropped in {} by {}", hop.namespace, place(step, hop))),
        End::Dropped { reason, .. } => Some(format!("dropped in {}: {reason}", hop.namespace)),
        End::Counted { counter, by, .. } => Some(format!(
            "lost in {}, where the kernel counted {counter} +{by}",
            hop.namespace
        )),
        End::Gone => Some(format!("nobody got it from {}", hop.namespace)),
        End::Waiting(neighbour) => Some(format!(
            "still waited in {} for the hardware address of {neighbour}",
            hop.namespace
        )),
        End::Unknown => Some(format!(
            "what became of it in {} is not known",
            hop.namespace
        )),
        End::Delivered | End::Answered(_) => None,
    };
    if let (Some(end), Some(seen)) = (end, hop.seen.last()) {
        said.push((seen.packet, end));
    }
    said
}
