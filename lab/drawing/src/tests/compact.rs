//! Compact drawings, and the lists of steps beside them.

use super::titles;
use crate::fixture::{cluster, endings, rewritten, ways};
use crate::shape::{AreaKind, MarkKind};
use crate::{Topology, Way, draw, draw_compact, steps, svg};

/// Returns the numbers of visits in a drawing.
fn numbers(topology: &Topology, ways: &[Way]) -> Vec<usize> {
    let drawing = draw_compact(topology, ways);
    let marks = drawing.tracks.iter().flat_map(|track| &track.marks);
    let numbers = marks.filter_map(|mark| match mark.kind {
        MarkKind::Number(number) => Some(number),
        _ => None,
    });
    numbers.collect()
}

#[test]
fn draw_compact_has_fixed_width() {
    for (nodes, pods) in [(1, 0), (1, 1), (2, 1), (3, 2), (30, 8)] {
        let topology = cluster(nodes, pods);
        assert_eq!(draw_compact(&topology, &[]).width, 348);
        for way in endings(&ways()) {
            assert_eq!(draw_compact(&topology, &[way]).width, 348);
        }
    }
}

#[test]
fn draw_compact_shows_places_on_ways_and_counts_others() {
    let drawing = draw_compact(&cluster(30, 8), &ways());
    assert_eq!(titles(&drawing, AreaKind::Node), ["node-1", "node-2"]);
    assert_eq!(titles(&drawing, AreaKind::Pod), ["web-2-1"]);
    assert_eq!(
        titles(&drawing, AreaKind::Others),
        ["28 more nodes, 239 more pods"]
    );
    assert_eq!(titles(&drawing, AreaKind::Tunnel), Vec::<&str>::new());
    assert_eq!(titles(&drawing, AreaKind::Balancer), Vec::<&str>::new());
    assert!(
        drawing
            .areas
            .iter()
            .all(|area| area.kind == AreaKind::Others || area.is_lit)
    );
}

#[test]
fn draw_compact_has_no_texts_beside_ways() {
    let drawing = draw_compact(&cluster(2, 1), &rewritten());
    assert_eq!(drawing.ports, Vec::new());
    assert!(drawing.tracks.iter().all(|track| track.labels.is_empty()));
    let marks = drawing.tracks.iter().flat_map(|track| &track.marks);
    let rewrites = marks.filter(|mark| mark.kind == MarkKind::Rewrite);
    assert_eq!(rewrites.count(), 9);
}

#[test]
fn steps_have_numbers_of_compact_drawing() {
    let topology = cluster(3, 2);
    for ways in [ways(), rewritten()] {
        let listed: Vec<usize> = steps(&topology, &ways)
            .iter()
            .map(|step| step.number)
            .collect();
        assert_eq!(numbers(&topology, &ways), listed);
    }
}

#[test]
fn steps_name_interfaces_rewrites_and_ends() {
    let steps = steps(&cluster(2, 1), &ways());
    insta::assert_debug_snapshot!([&steps[0], &steps[2], &steps[5], &steps[8]]);
}

#[test]
fn render_compact_is_small() {
    let topology = cluster(30, 8);
    let compact = svg::render_element(&draw_compact(&topology, &rewritten()), "lab/case", "");
    let wide = svg::render_element(&draw(&topology, &rewritten()), "lab/case", "");
    let [compact, wide] = [compact, wide].map(|markup| markup.into_string().len());
    assert!(
        compact < 6500,
        "{compact} bytes, and {wide} of the wide form"
    );
}
