//! Reduces the evidence of a case to the connections that its page shows, so that a page with the
//! evidence in it stays small.

use std::collections::{BTreeSet, HashMap};

use crate::case_details::CaseDetails;
use crate::formats::html::packets::connections::{MAX_CONNECTIONS, connections};
use svclab_journey::journey::Journey;
use svclab_model::evidence::Evidence;

/// Returns the details and the evidence of the shown connections. Packets of other connections and
/// events of rules are omitted; the journeys have the rules that matched.
pub(super) fn shown_only(details: &CaseDetails, evidence: &Evidence) -> (CaseDetails, Evidence) {
    let (mut details, mut evidence) = (details.clone(), evidence.clone());
    let all = connections(&details.stages);
    let shown = all.iter().take(MAX_CONNECTIONS);
    let shown: BTreeSet<(Option<String>, String, u32)> = shown
        .map(|connections| {
            let journey = &connections.explained.journey;
            let step = connections.step.map(str::to_owned);
            (step, journey.probe.clone(), journey.number)
        })
        .collect();
    let stages = details.stages.iter_mut().zip(&mut evidence.stages);
    for (index, (explained, evidence)) in stages.enumerate() {
        let step = explained.step.clone();
        explained.connections.retain(|own| {
            let journey = &own.journey;
            shown.contains(&(step.clone(), journey.probe.clone(), journey.number))
        });
        let journeys = explained.connections.iter_mut();
        let kept: BTreeSet<usize> = journeys
            .flat_map(|own| packet_indices(&mut own.journey))
            .map(|at| *at)
            .collect();
        let places: HashMap<usize, usize> = kept.iter().copied().zip(0..).collect();
        let mut packets = 0..;
        evidence
            .packets
            .retain(|_| packets.next().is_some_and(|packet| kept.contains(&packet)));
        evidence.trace.clear();
        for own in &mut explained.connections {
            for at in packet_indices(&mut own.journey) {
                *at = places[at];
            }
        }
        details.frames.retain_mut(|frame| {
            if frame.stage != index {
                return true;
            }
            let place = places.get(&frame.captured);
            place.map(|place| frame.captured = *place).is_some()
        });
    }
    (details, evidence)
}

/// Returns the indices into the packets of the evidence.
fn packet_indices(journey: &mut Journey) -> impl Iterator<Item = &mut usize> {
    let hops = journey.packets.iter_mut().flat_map(|path| &mut path.hops);
    let crossings = hops.flat_map(|hop| &mut hop.crossings);
    crossings.map(|crossing| &mut crossing.packet)
}
