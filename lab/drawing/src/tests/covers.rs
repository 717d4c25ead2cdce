//! No mark and no label covers a name, a mark or a label.

use super::tidy::{assert_tidy, distance};
use crate::fixture::{cluster, endings, rewritten, through_internet, ways, with_internet};
use crate::shape::{Drawing, MarkKind};
use crate::{Topology, Way, WayEnd, draw, draw_compact};

/// Asserts that numbers and ends are on their ways.
#[track_caller]
fn assert_marks_on_ways(drawing: &Drawing) {
    for track in &drawing.tracks {
        for mark in track
            .marks
            .iter()
            .filter(|mark| mark.kind != MarkKind::Rewrite)
        {
            let distance = distance(mark.at, &track.points);
            assert_eq!(distance, 0, "{mark:?} of {}", track.way);
        }
    }
}

#[track_caller]
fn check(topology: &Topology, ways: &[Way]) {
    for drawing in [draw(topology, ways), draw_compact(topology, ways)] {
        assert_tidy(&drawing);
        assert_marks_on_ways(&drawing);
    }
}

#[test]
fn draw_ways_of_any_cluster_covers_nothing() {
    for (nodes, pods) in [(2, 1), (2, 2), (3, 2), (6, 1), (30, 8)] {
        let topology = cluster(nodes, pods);
        check(&topology, &[]);
        check(&topology, &ways());
        check(&topology, &rewritten());
    }
}

#[test]
fn draw_any_end_of_any_way_covers_nothing() {
    let topology = cluster(3, 2);
    for way in endings(&ways()) {
        for count in [1, 3] {
            check(&topology, &vec![way.clone(); count]);
        }
    }
}

#[test]
fn draw_rewrites_with_any_end_cover_nothing() {
    let topology = cluster(2, 1);
    let all = rewritten();
    for way in endings(&all) {
        check(&topology, std::slice::from_ref(&way));
        check(&topology, &[all[0].clone(), way]);
    }
}

#[test]
fn draw_ways_through_balancer_cover_nothing() {
    for balancers in [1, 4] {
        let topology = with_internet(cluster(2, 1), balancers);
        check(&topology, &[]);
        for way in endings(&through_internet(rewritten())) {
            check(&topology, &vec![way; 2]);
        }
    }
}

#[test]
fn draw_lost_packet_ends_in_middle_of_veth_pair() {
    let mut way = ways().remove(0);
    way.visits.truncate(3);
    way.end = WayEnd::Lost;
    let drawing = draw(&cluster(2, 1), &[way]);
    let uplink = drawing.wires.iter().find(|wire| wire.points[0].x < 200);
    let uplink = uplink.expect("an uplink");
    let end = drawing.tracks[0].points.last().expect("an end");
    assert_eq!(end.y, i32::midpoint(uplink.points[0].y, uplink.points[1].y));
}
