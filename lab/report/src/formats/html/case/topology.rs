//! Renders the topology of a case with the packets of its first connection: wide, and compact with a
//! list of the steps. The style shows one of them.

use maud::{Markup, html};

use crate::drawing::ways;
use crate::formats::html::packets::connections::Connections;
use svclab_diagnostic::printable::printable;
use svclab_drawing::{Step, Topology, Way, draw, draw_compact, steps, svg};

/// Draws the packets of the first connection of a case.
pub(super) fn render(case: &str, topology: &Topology, connections: &[Connections<'_>]) -> Markup {
    let first = connections.first().map(|first| &first.explained.journey);
    let ways = first.map(ways).unwrap_or_default();
    let title = first.map_or_else(
        || case.to_owned(),
        |journey| format!("{case}: {} #{}", journey.probe, journey.number + 1),
    );
    drawings(&title, topology, &ways)
}

fn drawings(title: &str, topology: &Topology, ways: &[Way]) -> Markup {
    let description = svg::describe(topology, ways);
    let steps = steps(topology, ways);
    let (wide, compact) = (draw(topology, ways), draw_compact(topology, ways));
    let summary = if steps.is_empty() {
        "Some places of the lab."
    } else {
        "The list below describes each number."
    };
    html! {
        h2 { "Topology" }
        div.wide {
            div.drawing tabindex="0" role="region" aria-label="Topology" {
                (svg::render_element(&wide, title, &description))
            }
            p.note { (printable(&description)) }
        }
        div.compact {
            (svg::render_element(&compact, title, summary))
            @if !steps.is_empty() {
                ol.steps { @for step in &steps { (item(step)) } }
            }
        }
    }
}

fn item(step: &Step) -> Markup {
    html! {
        li class=[(!step.is_request).then_some("reply")] {
            @if step.is_first { (step.label) " from " }
            strong { (printable(&step.place)) }
            @if !step.received.is_empty() { ", received through " (printable(&step.received)) }
            @if !step.sent.is_empty() { ", sent through " (printable(&step.sent)) }
            @for rewrite in &step.rewrites {
                " " span.rewrite { "rewritten " code { (rewrite) } }
            }
            @if let Some(end) = &step.end {
                " " span.end.lost[step.is_lost] { (printable(end)) }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use svclab_drawing::{Crossing, Node, Place, Visit, WayEnd};

    use super::*;

    fn place(namespace: &str) -> Place {
        Place {
            namespace: namespace.to_owned(),
            title: namespace.to_owned(),
            interfaces: Vec::new(),
        }
    }

    /// Returns a node with a hostile name, and a way that ends there.
    fn hostile() -> (Topology, Vec<Way>) {
        let name = "<b>node\u{1b}";
        let topology = Topology {
            hosts: Vec::new(),
            routers: Vec::new(),
            nodes: vec![Node {
                place: place(name),
                pods: Vec::new(),
                host_pods: Vec::new(),
            }],
        };
        let visit = Visit {
            namespace: name.to_owned(),
            crossings: vec![Crossing {
                interface: name.to_owned(),
                is_out: false,
                is_encapsulated: false,
            }],
            rewrites: Vec::new(),
            is_balanced: false,
        };
        let way = Way {
            is_request: true,
            label: "Request",
            visits: vec![visit],
            end: WayEnd::Stopped,
            reason: vec![format!("dropped by {name}")],
        };
        (topology, vec![way])
    }

    #[test]
    fn drawings_have_both_forms_and_one_list() {
        let (topology, ways) = hostile();
        let markup = drawings("lab/case", &topology, &ways).into_string();
        assert_eq!(markup.matches("<svg").count(), 2);
        assert_eq!(markup.matches("width=\"348\"").count(), 1);
        let (_, list) = markup.split_once("<ol").expect("a list");
        insta::assert_snapshot!(list);
        assert!(!markup.contains("<b>") && !markup.contains('\u{1b}'));
    }

    #[test]
    fn drawings_without_ways_have_no_list() {
        let (topology, _) = hostile();
        let markup = drawings("lab/case", &topology, &[]).into_string();
        assert_eq!(markup.matches("<svg").count(), 2);
        assert!(!markup.contains("<ol"), "{markup}");
    }
}
