//! Places marks along tracks.

use super::room::Room;
use crate::layout::passages::rewriting_leg;
use crate::layout::route::Route;
use crate::layout::shape::{Mark, MarkKind, Point};
use crate::layout::tracks::Course;
use crate::way::{Way, WayEnd};

/// Distance between positions that are tried.
const STEP: i32 = 4;

/// Largest distance of a mark from its track.
const MAX_DISTANCE: i32 = 60;

/// Places the mark at the end of a way. `None` if the way is not drawn.
pub fn place_end(room: &mut Room, way: &Way, course: &Course) -> Option<Mark> {
    let kind = match way.end {
        WayEnd::Delivered => MarkKind::Delivered,
        WayEnd::Stopped | WayEnd::Lost => MarkKind::Stopped,
        WayEnd::Unknown => MarkKind::Unknown,
    };
    let last = course.points.len().checked_sub(1)?;
    Some(place(room, kind, &course.points, last))
}

/// Places the numbers of the visits of a way, the first of which has the number after `numbered`.
pub fn place_numbers(
    room: &mut Room,
    route: &Route,
    course: &Course,
    numbered: usize,
) -> Vec<Mark> {
    let mut last_visit = None;
    let mut marks = Vec::new();
    for (leg, arrival) in route.legs.iter().zip(&course.arrivals) {
        let Some(arrival) = arrival.filter(|_| last_visit != Some(leg.visit)) else {
            continue;
        };
        last_visit = Some(leg.visit);
        let kind = MarkKind::Number(numbered + leg.visit + 1);
        marks.push(place(room, kind, &course.points, arrival));
    }
    marks
}

/// Places a mark at each place that rewrites addresses.
pub fn place_rewrites(room: &mut Room, way: &Way, route: &Route, course: &Course) -> Vec<Mark> {
    let visits = way.visits.iter().enumerate();
    let rewriting = visits.filter(|(_, visit)| !visit.rewrites.is_empty());
    let corners = rewriting.filter_map(|(visit, _)| {
        let leg = rewriting_leg(route, visit);
        let is_own = route.legs.get(leg).is_some_and(|own| own.visit == visit);
        let arrival = course.arrivals.get(leg).copied().flatten();
        arrival.filter(|_| is_own)
    });
    corners
        .map(|corner| place(room, MarkKind::Rewrite, &course.points, corner))
        .collect()
}

/// Places a mark at the first free position: at a corner, along the lines after and before it, or
/// around it.
fn place(room: &mut Room, kind: MarkKind, points: &[Point], corner: usize) -> Mark {
    let mark = |at: Point| Mark { at, kind };
    let at = points[corner];
    let after = points[corner..].windows(2).take(2);
    let before = points[..=corner].windows(2).rev().take(1);
    let along = after.map(|pair| (pair[0], pair[1]));
    let along = along.chain(before.map(|pair| (pair[1], pair[0])));
    let mut candidates = std::iter::once(at)
        .chain(along.flat_map(|(from, to)| between(from, to)))
        .chain(std::iter::once_with(|| around(at)).flatten());
    let free = candidates.find(|at| room.is_free(&mark(*at).rect()));
    let mark = mark(free.unwrap_or(at));
    room.take(mark.rect());
    mark
}

/// Returns positions on a horizontal or vertical line, without its start.
fn between(from: Point, to: Point) -> impl Iterator<Item = Point> {
    let length = from.distance(to);
    (1..=length / STEP).map(move |step| from.towards(to, step * STEP))
}

/// Returns positions around a point, the nearest ones first.
fn around(center: Point) -> impl Iterator<Item = Point> {
    let steps = || (-MAX_DISTANCE..=MAX_DISTANCE).step_by(4);
    let mut offsets: Vec<(i32, i32)> = steps().flat_map(|x| steps().map(move |y| (x, y))).collect();
    offsets.sort_by_key(|(x, y)| x * x + y * y);
    offsets.into_iter().map(move |(x, y)| Point {
        x: center.x + x,
        y: center.y + y,
    })
}
