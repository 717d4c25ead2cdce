//! Checks the geometry of drawings.

use crate::layout::annotations::texts;
use crate::shape::{Drawing, Point, Rect};

/// Asserts that everything is inside of the drawing, that areas are inside of each other or apart,
/// that no two lines of ways lie on each other, and that nothing covers a text, mark or label.
#[track_caller]
pub fn assert_tidy(drawing: &Drawing) {
    assert_inside(drawing);
    assert_lines_apart(drawing);
    assert_nothing_covered(drawing);
}

#[track_caller]
fn assert_inside(drawing: &Drawing) {
    let canvas = canvas(drawing);
    for (index, area) in drawing.areas.iter().enumerate() {
        assert!(canvas.contains(&area.rect), "{area:?}");
        for other in &drawing.areas[index + 1..] {
            let is_tidy = !area.rect.overlaps(&other.rect)
                || area.rect.contains(&other.rect)
                || other.rect.contains(&area.rect);
            assert!(is_tidy, "{area:?} and {other:?}");
        }
    }
    for track in &drawing.tracks {
        for pair in track.points.windows(2) {
            let is_straight = pair[0].x == pair[1].x || pair[0].y == pair[1].y;
            assert!(is_straight, "{pair:?}");
        }
        for point in track.points.iter().chain(track.tunnels.iter().flatten()) {
            assert!(canvas.contains(&Rect::around(*point, 0)), "{point:?}");
        }
    }
}

/// Asserts that no two horizontal parts, and no two vertical parts, lie on each other.
#[track_caller]
fn assert_lines_apart(drawing: &Drawing) {
    let mut lines = Vec::new();
    for track in &drawing.tracks {
        for pair in track.points.windows(2) {
            let is_vertical = pair[0].x == pair[1].x;
            let (fixed, from, to) = if is_vertical {
                (pair[0].x, pair[0].y, pair[1].y)
            } else {
                (pair[0].y, pair[0].x, pair[1].x)
            };
            lines.push((is_vertical, fixed, from.min(to), from.max(to)));
        }
    }
    for (index, line) in lines.iter().enumerate() {
        for other in &lines[index + 1..] {
            let is_same_line = (line.0, line.1) == (other.0, other.1);
            let is_apart = line.3 <= other.2 || other.3 <= line.2;
            assert!(!is_same_line || is_apart, "{line:?} and {other:?}");
        }
    }
}

/// Asserts that names of areas and interfaces, marks and labels are apart, and that each mark is near
/// its way.
#[track_caller]
fn assert_nothing_covered(drawing: &Drawing) {
    let mut covered: Vec<(String, Rect)> = Vec::new();
    for area in &drawing.areas {
        let names = texts::names(area);
        let texts = std::iter::once(names.title).chain(names.detail);
        covered.extend(texts.map(|text| (text.text.clone(), text.rect())));
    }
    for port in &drawing.ports {
        let name = texts::port_name(port);
        covered.push((format!("interface {}", name.text), name.rect()));
    }
    for track in &drawing.tracks {
        for mark in &track.marks {
            covered.push((format!("{:?} of {}", mark.kind, track.way), mark.rect()));
        }
        for label in &track.labels {
            covered.push((label.text.clone(), label.rect()));
        }
    }
    let canvas = canvas(drawing);
    for (index, (name, rect)) in covered.iter().enumerate() {
        assert!(canvas.contains(rect), "{name} {rect:?}");
        for (other, other_rect) in &covered[index + 1..] {
            let is_apart = !rect.overlaps(other_rect);
            assert!(is_apart, "{name} {rect:?} and {other} {other_rect:?}");
        }
    }
}

/// Returns the distance of a point from a way.
pub fn distance(from: Point, points: &[Point]) -> i32 {
    let lines = points.windows(2).map(|pair| {
        let line = Rect::between(pair[0], pair[1]);
        let x = (line.x - from.x).max(from.x - line.right()).max(0);
        let y = (line.y - from.y).max(from.y - line.bottom()).max(0);
        x.max(y)
    });
    lines.min().unwrap_or(0)
}

fn canvas(drawing: &Drawing) -> Rect {
    Rect {
        width: drawing.width,
        height: drawing.height,
        ..Rect::default()
    }
}
