//! Renders a topology in languages for graphs, for pages and tickets that draw them.

mod dot;
mod mermaid;

pub use dot::render as dot;
pub use mermaid::render as mermaid;

use crate::topology::{InterfaceKind, Place, Topology};
use crate::way::{Way, WayEnd};

/// Veth pair between two places of a topology.
struct Edge<'t> {
    places: [&'t Place; 2],
    interfaces: [&'t str; 2],
}

/// Part of a way between two places.
struct Move<'w> {
    from: &'w str,
    to: &'w str,
    number: usize,
    is_request: bool,
}

/// End of a way that is not a socket.
struct Loss<'w> {
    place: &'w str,
    is_unknown: bool,
}

/// Returns the veth pairs, each once.
fn edges(topology: &Topology) -> Vec<Edge<'_>> {
    let mut edges = Vec::new();
    for place in topology.places() {
        for interface in &place.interfaces {
            let InterfaceKind::Veth {
                namespace,
                interface: peer,
            } = &interface.kind
            else {
                continue;
            };
            let own = (&place.namespace, &interface.name);
            let Some(far) = topology
                .place(namespace)
                .filter(|_| own < (namespace, peer))
            else {
                continue;
            };
            edges.push(Edge {
                places: [place, far],
                interfaces: [&interface.name, peer],
            });
        }
    }
    edges
}

/// Returns the moves of all ways, numbered across them.
fn moves(ways: &[Way]) -> Vec<Move<'_>> {
    let pairs = ways.iter().flat_map(|way| {
        let pairs = way.visits.windows(2);
        pairs.map(move |pair| (&*pair[0].namespace, &*pair[1].namespace, way.is_request))
    });
    let numbered = (1..).zip(pairs);
    numbered
        .map(|(number, (from, to, is_request))| Move {
            from,
            to,
            number,
            is_request,
        })
        .collect()
}

/// Returns the ends of the ways that no socket received.
fn losses(ways: &[Way]) -> Vec<Loss<'_>> {
    let ended = ways.iter().filter(|way| way.end != WayEnd::Delivered);
    let visits = ended.filter_map(|way| Some((way, way.visits.last()?)));
    visits
        .map(|(way, visit)| Loss {
            place: &visit.namespace,
            is_unknown: way.end == WayEnd::Unknown,
        })
        .collect()
}

/// Lines of a place's label: its name and address.
fn label(place: &Place) -> Vec<String> {
    let address = place.address().map(|address| address.to_string());
    std::iter::once(place.title.clone())
        .chain(address)
        .collect()
}
