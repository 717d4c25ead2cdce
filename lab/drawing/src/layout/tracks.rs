//! Draws ways along their rows and columns.

use std::collections::BTreeMap;

use super::columns::Columns;
use super::passages::Passages;
use super::route::{Column, Leg, Route};
use super::shape::{Point, RADIUS, Rect};
use super::sites::LabelSite;
use super::size;
use super::strip::{Strip, Zone};
use crate::way::Way;

/// Positions of everything that ways pass through.
pub struct Canvas<'a> {
    /// Space around the drawing.
    pub margin: i32,
    pub columns: &'a Columns,
    pub passages: &'a Passages,
    pub strips: &'a BTreeMap<Strip, Rect>,
    /// Upper and lower edge of each place.
    pub edges: &'a BTreeMap<String, (i32, i32)>,
    /// Heights in columns at which packets end that no place received.
    pub middles: &'a BTreeMap<Column, i32>,
}

/// Lines of a way.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Course {
    /// Corners of the way.
    pub points: Vec<Point>,
    /// Parts in which the packet is inside a tunnel packet.
    pub tunnels: Vec<Vec<Point>>,
    /// Index of the point at which each leg arrives. `None` for legs that are not drawn.
    pub arrivals: Vec<Option<usize>>,
}

/// Draws the lines of all ways.
pub fn courses(canvas: &Canvas<'_>, ways: &[Way], routes: &[Route]) -> Vec<Course> {
    let all = ways.iter().zip(routes).enumerate();
    all.map(|(index, (way, route))| canvas.course(index, way, route))
        .collect()
}

impl Canvas<'_> {
    fn x(&self, column: &Column, track: i32) -> Option<i32> {
        Some(self.columns.center(column)? + self.passages.offset(column, track))
    }

    fn course(&self, index: usize, way: &Way, route: &Route) -> Course {
        let mut course = Course::default();
        let mut previous: Option<&Leg> = None;
        for (position, leg) in route.legs.iter().enumerate() {
            let passage = self.passages.passage(index, position);
            let (Some(x), Some(y)) = (
                self.x(&leg.column, passage.track),
                self.y(way, route, position, passage.row),
            ) else {
                course.arrivals.push(None);
                continue;
            };
            let mut corner = Point { x, y };
            if let Some(before) = course.points.last().copied() {
                // Along the row of the leg before, then along the column of this leg.
                corner = Point { x, y: before.y };
                if is_tunnel_between(previous, leg) {
                    // A tunnel device is behind a round corner.
                    let cut = |is_encapsulated: bool| i32::from(!is_encapsulated) * RADIUS;
                    let is_inside = previous.is_some_and(|own| own.is_encapsulated);
                    let from = before.towards(corner, cut(is_inside));
                    let to = corner.towards(before, cut(leg.is_encapsulated));
                    course.encapsulate(from, to);
                }
                course.push(corner);
            } else if leg.strip.is_some() && !matches!(leg.column, Column::Process { .. }) {
                corner = Point {
                    x,
                    y: y - size::CORRIDOR,
                };
                course.push(corner);
            }
            if leg.is_encapsulated {
                let end = Point { x, y };
                let last = course.tunnels.last().and_then(|tunnel| tunnel.last());
                let cut = i32::from(last != Some(&corner)) * RADIUS;
                course.encapsulate(corner.towards(end, cut), end);
            }
            course.push(Point { x, y });
            course.arrivals.push(course.points.len().checked_sub(1));
            previous = Some(leg);
        }
        self.finish(&mut course, route, index);
        course
    }

    /// Returns the height of a leg: that of its row, or the edge of a place without strips.
    fn y(&self, way: &Way, route: &Route, position: usize, row: i32) -> Option<i32> {
        let leg = &route.legs[position];
        if let Some(strip) = &leg.strip {
            let rect = self.strips.get(strip)?;
            let is_named = strip.zone != Zone::Uplink;
            let top = rect.y + if is_named { size::STRIP_NAME } else { 0 };
            return Some(top + row * size::ROW + size::ROW / 2);
        }
        let (top, bottom) = *self.edges.get(&way.visits[leg.visit].namespace)?;
        Some(if self.is_above(bottom) { bottom } else { top })
    }

    /// Adds the line to the end of a way.
    fn finish(&self, course: &mut Course, route: &Route, index: usize) {
        let Some(last) = course.points.last().copied() else {
            return;
        };
        let lost_in = route.lost_in.as_ref();
        let lost_x = lost_in.and_then(|own| self.x(own, self.passages.lost_track(index)));
        let strip = route.legs.last().and_then(|leg| leg.strip.as_ref());
        if let Some(x) = lost_x {
            let y = lost_in.and_then(|own| self.middles.get(own)).copied();
            course.push(Point { x, y: last.y });
            course.push(Point {
                x,
                y: y.unwrap_or(last.y),
            });
        } else if let Some(rect) = strip.and_then(|strip| self.strips.get(strip)) {
            // Without space at the right, the end is at the corner, and the number before it.
            let end = last.x + size::ROW;
            if end + size::GAP <= rect.right() {
                course.push(Point { x: end, ..last });
            }
        }
    }

    /// Whether a place with this lower edge is above all others: a host.
    fn is_above(&self, bottom: i32) -> bool {
        self.edges.values().map(|(_, bottom)| *bottom).min() == Some(bottom)
    }

    /// Returns the texts beside a way.
    pub fn labels(
        &self,
        index: usize,
        way: &Way,
        route: &Route,
        course: &Course,
    ) -> Vec<LabelSite> {
        let legs = route.legs.iter().zip(&course.arrivals).enumerate();
        let drawn =
            legs.filter_map(|(position, (leg, arrival))| Some((position, leg, (*arrival)?)));
        let sites = drawn.flat_map(|(position, leg, arrival)| {
            let at = course.points[arrival];
            let next = course.points.get(arrival + 1);
            let end = next
                .filter(|next| next.y == at.y)
                .map_or(at.x, |next| next.x);
            let row = self.passages.passage(index, position).row;
            let labels = self.passages.labels(way, route, position).into_iter();
            labels.map(move |label| {
                let is_beside = leg.strip.is_some() && label.row == 0;
                let middle = if label.is_reason {
                    end
                } else {
                    i32::midpoint(at.x, end)
                };
                let y = if leg.strip.is_some() {
                    at.y + label.row * size::ROW
                } else if self.is_above(at.y) {
                    self.margin + (row + label.row) * size::ROW + size::ROW / 2
                } else {
                    let bottom = at.y + size::POD_HEIGHT + size::GAP;
                    bottom + (row + label.row) * size::ROW + size::ROW / 2
                };
                LabelSite {
                    text: label.text,
                    is_reason: label.is_reason,
                    y,
                    run: (at.x.min(end), at.x.max(end)),
                    center: (!is_beside).then_some(middle),
                }
            })
        });
        sites.collect()
    }
}

/// Whether a packet is inside a tunnel packet between two legs, in the row of the first.
fn is_tunnel_between(leg: Option<&Leg>, next: &Leg) -> bool {
    leg.is_some_and(|leg| {
        let strip = leg.strip.as_ref();
        let is_uplink = strip.is_some_and(|strip| strip.zone == Zone::Uplink);
        is_uplink || leg.is_encapsulated && next.is_encapsulated
    })
}

impl Course {
    fn push(&mut self, point: Point) {
        if self.points.last() != Some(&point) {
            self.points.push(point);
        }
    }

    /// Adds a line to the tunnels.
    fn encapsulate(&mut self, from: Point, to: Point) {
        if from == to {
            return;
        }
        match self.tunnels.last_mut() {
            Some(tunnel) if tunnel.last() == Some(&from) => tunnel.push(to),
            _ => self.tunnels.push(vec![from, to]),
        }
    }
}
