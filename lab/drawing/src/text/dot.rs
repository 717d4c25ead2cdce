//! Renders a topology in the DOT language of Graphviz.

use std::fmt::Write as _;

use super::{edges, label, losses, moves};
use svclab_diagnostic::printable::printable;

use crate::topology::{Place, Topology};
use crate::way::Way;

/// Renders a topology and the ways through it. Names of places appear only as quoted text.
#[must_use]
pub fn render(topology: &Topology, ways: &[Way]) -> String {
    let mut text = "digraph topology {\n  node [shape=box, style=rounded];\n".to_owned();
    let routers = topology.routers.iter().map(|router| &router.place);
    for place in topology.hosts.iter().chain(routers) {
        add_place(&mut text, "  ", place);
    }
    for (index, node) in topology.nodes.iter().enumerate() {
        let title = quoted(&node.place.title);
        let _ = writeln!(text, "  subgraph cluster_{index} {{\n    label={title};");
        for place in std::iter::once(&node.place).chain(&node.pods) {
            add_place(&mut text, "    ", place);
        }
        text.push_str("  }\n");
    }
    for edge in edges(topology) {
        let [from, to] = edge.places.map(|place| quoted(&place.namespace));
        let [tail, head] = edge.interfaces.map(quoted);
        let _ = writeln!(
            text,
            "  {from} -> {to} [dir=none, color=gray, taillabel={tail}, headlabel={head}];"
        );
    }
    for step in moves(ways) {
        let style = if step.is_request { "solid" } else { "dashed" };
        let _ = writeln!(
            text,
            "  {} -> {} [label={}, style={style}, penwidth=2, constraint=false];",
            quoted(step.from),
            quoted(step.to),
            step.number
        );
    }
    for loss in losses(ways) {
        let style = if loss.is_unknown {
            "style=dashed"
        } else {
            "color=\"#b8310a\", penwidth=3"
        };
        let _ = writeln!(text, "  {} [{style}];", quoted(loss.place));
    }
    text + "}\n"
}

fn add_place(text: &mut String, indent: &str, place: &Place) {
    let (id, label) = (quoted(&place.namespace), quoted(&label(place).join("\n")));
    let _ = writeln!(text, "{indent}{id} [label={label}];");
}

/// Quotes a text. Only quotes and backslashes have a meaning inside of quotes.
fn quoted(text: &str) -> String {
    let escaped = printable(text).replace('\\', "\\\\").replace('"', "\\\"");
    format!("\"{}\"", escaped.replace('\n', "\\n"))
}
