//! Tests drawings as wholes.

mod compact;
mod covers;
mod tidy;

use std::collections::BTreeSet;

use crate::fixture::{cluster, ways};
use crate::shape::{AreaKind, Drawing, MarkKind};
use crate::{Topology, Way, draw, svg, text};
use tidy::assert_tidy;

#[test]
fn draw_way_through_tunnel_has_no_overlaps() {
    let drawing = draw(&cluster(2, 2), &ways());
    assert_tidy(&drawing);
    assert_eq!(drawing.tracks[0].tunnels.len(), 1);
    let numbers: Vec<MarkKind> = drawing
        .tracks
        .iter()
        .flat_map(|track| track.marks.iter().map(|mark| mark.kind))
        .filter(|kind| matches!(kind, MarkKind::Number(_)))
        .collect();
    let expected: Vec<MarkKind> = (1..=9).map(MarkKind::Number).collect();
    assert_eq!(numbers, expected);
    let last = |track: usize| drawing.tracks[track].marks.last().map(|mark| mark.kind);
    assert_eq!(last(0), Some(MarkKind::Delivered));
    assert_eq!(last(1), Some(MarkKind::Stopped));
}

#[test]
fn draw_unvisited_places_are_not_lit() {
    let drawing = draw(&cluster(3, 1), &ways());
    let lit = |title: &str| {
        let mut areas = drawing.areas.iter().filter(|area| area.title == title);
        areas.next().map(|area| area.is_lit)
    };
    assert_eq!(lit("default/web-2-1"), Some(true));
    assert_eq!(lit("default/web-1-1"), Some(false));
    assert_eq!(lit("node-3"), Some(false));
    let all_lit = draw(&cluster(3, 1), &[]);
    assert!(all_lit.areas.iter().all(|area| area.is_lit));
}

/// Returns the titles of the areas of a kind.
fn titles(drawing: &Drawing, kind: AreaKind) -> Vec<&str> {
    let areas = drawing.areas.iter().filter(|area| area.kind == kind);
    areas.map(|area| area.title.as_str()).collect()
}

#[test]
fn draw_large_cluster_fits_a_page_and_names_every_node() {
    for ways in [Vec::new(), ways()] {
        let drawing = draw(&cluster(30, 8), &ways);
        assert_tidy(&drawing);
        assert!(drawing.width <= 1160, "{}", drawing.width);
        let nodes: BTreeSet<&str> = titles(&drawing, AreaKind::Node).into_iter().collect();
        assert_eq!(nodes.len(), 30);
    }
    let drawing = draw(&cluster(30, 8), &ways());
    assert!(titles(&drawing, AreaKind::Pod).contains(&"default/web-2-1"));
    assert!(titles(&drawing, AreaKind::Others).contains(&"7 more pods"));
}

#[test]
fn draw_small_cluster_shows_every_pod() {
    let drawing = draw(&cluster(3, 2), &[]);
    assert_eq!(titles(&drawing, AreaKind::Pod).len(), 6);
    assert_eq!(titles(&drawing, AreaKind::Others), Vec::<&str>::new());
    assert!(drawing.width <= 1160, "{}", drawing.width);
}

#[test]
fn draw_any_ways_is_tidy() {
    let topology = cluster(3, 2);
    let all = ways();
    for end in 1..=all[0].visits.len() {
        for count in 1..=3 {
            let way = Way {
                visits: all[0].visits[..end].to_vec(),
                ..all[0].clone()
            };
            let drawing = draw(&topology, &vec![way; count]);
            assert_tidy(&drawing);
        }
    }
}

#[test]
fn render_is_stable() {
    let (topology, ways) = (cluster(2, 1), ways());
    let description = svg::describe(&topology, &ways);
    insta::assert_snapshot!("description", description);
    let drawing = draw(&topology, &ways);
    let file = svg::render_file(&drawing, "lab/case", &description);
    let style = file.find("<style>").zip(file.find("</style>"));
    let (from, to) = style.expect("a style");
    let shown = format!("{}{}", &file[..from], &file[to..]).replace("><", ">\n<");
    insta::assert_snapshot!("svg", shown);
    insta::assert_snapshot!("mermaid", text::mermaid(&topology, &ways));
    insta::assert_snapshot!("dot", text::dot(&topology, &ways));
}

/// Returns a topology in which every name is hostile.
fn hostile() -> Topology {
    let mut topology = cluster(1, 1);
    let name =
        "\"]<script>alert(1)</script>\u{202e}\n\\\"}; p0[\u{1b}[31m".to_owned() + &"x".repeat(300);
    topology.hosts[0].title.clone_from(&name);
    topology.nodes[0].place.title.clone_from(&name);
    topology.nodes[0].pods[0].title.clone_from(&name);
    topology.routers[0].balancers[0].name = name;
    topology
}

#[test]
fn render_hostile_names_stay_text() {
    let topology = hostile();
    let file = svg::render_file(&draw(&topology, &[]), "<b>", "</svg>");
    assert!(!file.contains("<script") && !file.contains("<b>"), "{file}");
    assert_eq!(file.matches("</svg>").count(), 1);
    assert!(
        !file.contains('\u{1b}') && !file.contains('\u{202e}'),
        "{file}"
    );
    let mermaid = text::mermaid(&topology, &[]);
    let line = |line: &str| {
        line.matches('"').count().is_multiple_of(2) && !line.contains('<') || line.contains("<br>")
    };
    assert!(mermaid.lines().all(line), "{mermaid}");
    let dot = text::dot(&topology, &[]);
    assert!(!dot.contains("\n\\\\"), "{dot}");
}
