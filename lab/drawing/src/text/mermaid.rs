//! Renders a topology as a flowchart of Mermaid.

use std::fmt::Write as _;

use super::{edges, label, losses, moves};
use svclab_diagnostic::printable::printable;

use crate::topology::{Place, Topology};
use crate::way::Way;

/// Renders a topology and the ways through it. Names of places appear only as quoted text.
#[must_use]
pub fn render(topology: &Topology, ways: &[Way]) -> String {
    let places: Vec<&Place> = topology.places().collect();
    let id = |namespace: &str| places.iter().position(|place| place.namespace == namespace);
    let mut text = "flowchart TD\n".to_owned();
    let line = |indent: &str, place: &Place| {
        let id = id(&place.namespace).unwrap_or_default();
        format!("{indent}p{id}[\"{}\"]\n", quoted(&label(place).join("\n")))
    };
    let routers = topology.routers.iter().map(|router| &router.place);
    text.extend(
        topology
            .hosts
            .iter()
            .chain(routers)
            .map(|place| line("  ", place)),
    );
    for (index, node) in topology.nodes.iter().enumerate() {
        let _ = writeln!(
            text,
            "  subgraph n{index}[\"{}\"]",
            quoted(&node.place.title)
        );
        let places = std::iter::once(&node.place).chain(&node.pods);
        text.extend(places.map(|place| line("    ", place)));
        text.push_str("  end\n");
    }
    for edge in edges(topology) {
        let [Some(from), Some(to)] = edge.places.map(|place| id(&place.namespace)) else {
            continue;
        };
        let names = quoted(&edge.interfaces.join(" to "));
        let _ = writeln!(text, "  p{from} ---|\"{names}\"| p{to}");
    }
    for step in moves(ways) {
        let (Some(from), Some(to)) = (id(step.from), id(step.to)) else {
            continue;
        };
        let arrow = if step.is_request { "==>" } else { "-.->" };
        let _ = writeln!(text, "  p{from} {arrow}|{}| p{to}", step.number);
    }
    for loss in losses(ways) {
        if let Some(id) = id(loss.place) {
            let class = if loss.is_unknown { "unknown" } else { "lost" };
            let _ = writeln!(text, "  class p{id} {class}");
        }
    }
    if !ways.is_empty() {
        text.push_str("  classDef lost stroke:#b8310a,stroke-width:3px\n");
        text.push_str("  classDef unknown stroke-dasharray:4 3\n");
    }
    text
}

/// Writes every character that could have a meaning as a character code.
fn quoted(text: &str) -> String {
    let mut quoted = String::new();
    for character in printable(text).chars() {
        match character {
            '\n' => quoted.push_str("<br>"),
            _ if character.is_alphanumeric() || " ./:-_".contains(character) => {
                quoted.push(character);
            }
            _ => {
                let _ = write!(quoted, "#{};", u32::from(character));
            }
        }
    }
    quoted
}
