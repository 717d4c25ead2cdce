//! Lists the visits of ways in words, with the numbers of the drawing.

use crate::topology::Topology;
use crate::way::{Visit, Way, WayEnd};

/// Visit of a packet in a place, in words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// Number in the drawing, from 1.
    pub number: usize,
    /// Whether the packet travels in request direction.
    pub is_request: bool,
    /// Kind of the packet.
    pub label: &'static str,
    /// Whether the way starts here.
    pub is_first: bool,
    /// Title of the place.
    pub place: String,
    /// Interfaces through which the packet was received; empty without any.
    pub received: String,
    /// Interfaces through which the packet was sent; empty without any.
    pub sent: String,
    /// New addresses: `to 10.0.0.11:80`.
    pub rewrites: Vec<String>,
    /// End of the way, in words. `None` if the way continues.
    pub end: Option<String>,
    /// Whether the way ends here, and no socket received the packet.
    pub is_lost: bool,
}

/// Lists the visits of all ways. Visits are numbered across the ways.
#[must_use]
pub fn steps(topology: &Topology, ways: &[Way]) -> Vec<Step> {
    let visits = ways.iter().flat_map(|way| {
        let visits = way.visits.iter().enumerate();
        visits.map(move |(index, visit)| (way, index, visit))
    });
    let numbered = (1..).zip(visits);
    let steps = numbered.map(|(number, (way, index, visit))| {
        let place = topology.place(&visit.namespace);
        let is_last = index + 1 == way.visits.len();
        Step {
            number,
            is_request: way.is_request,
            label: way.label,
            is_first: index == 0,
            place: place.map_or(&visit.namespace, |place| &place.title).clone(),
            received: interfaces(visit, false),
            sent: interfaces(visit, true),
            rewrites: visit.rewrites.iter().map(ToString::to_string).collect(),
            end: is_last.then(|| describe_end(way)),
            is_lost: is_last && way.end != WayEnd::Delivered,
        }
    });
    steps.collect()
}

fn interfaces(visit: &Visit, is_out: bool) -> String {
    let crossings = visit.crossings.iter().filter(|own| own.is_out == is_out);
    let names = crossings.map(|crossing| {
        let encapsulated = if crossing.is_encapsulated {
            " (encapsulated)"
        } else {
            ""
        };
        format!("{}{encapsulated}", crossing.interface)
    });
    names.collect::<Vec<_>>().join(", ")
}

/// Describes the end of a way.
pub(crate) fn describe_end(way: &Way) -> String {
    match way.end {
        WayEnd::Delivered => "delivered".to_owned(),
        WayEnd::Unknown => "end unknown".to_owned(),
        WayEnd::Stopped if way.reason.is_empty() => "stopped".to_owned(),
        WayEnd::Lost if way.reason.is_empty() => "lost".to_owned(),
        WayEnd::Stopped | WayEnd::Lost => way.reason.join(" "),
    }
}
