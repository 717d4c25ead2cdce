//! Draws ways along their rows and columns.

use std::collections::BTreeMap;

use super::columns::Columns;
use super::passages::{self, Passages};
use super::route::{Column, Route};
use super::shape::{Label, Mark, MarkKind, Point, Rect, Track};
use super::size;
use super::strip::Strip;
use crate::way::{Way, WayEnd};

/// Positions of everything that ways pass through.
pub struct Canvas<'a> {
    pub columns: &'a Columns,
    pub passages: &'a Passages,
    pub strips: &'a BTreeMap<Strip, Rect>,
    /// Upper and lower edge of each place.
    pub edges: &'a BTreeMap<String, (i32, i32)>,
}

/// Draws all ways. Visits are numbered across the ways.
pub fn tracks(canvas: &Canvas<'_>, ways: &[Way], routes: &[Route]) -> Vec<Track> {
    let mut number = 0;
    let all = ways.iter().zip(routes).enumerate();
    all.map(|(index, (way, route))| {
        let track = canvas.track(index, way, route, number);
        number += way.visits.len();
        track
    })
    .collect()
}

impl Canvas<'_> {
    fn x(&self, column: &Column, track: i32) -> Option<i32> {
        Some(self.columns.center(column)? + self.passages.offset(column, track))
    }

    /// Draws a way whose first visit has the number after `numbered`.
    fn track(&self, index: usize, way: &Way, route: &Route, numbered: usize) -> Track {
        let mut track = Track {
            way: index,
            is_request: way.is_request,
            points: Vec::new(),
            tunnels: Vec::new(),
            marks: Vec::new(),
            labels: Vec::new(),
        };
        let mut last_visit = None;
        for (position, leg) in route.legs.iter().enumerate() {
            let passage = self.passages.passage(index, position);
            let (Some(x), Some(y)) = (
                self.x(&leg.column, passage.track),
                self.y(way, route, position, passage.row),
            ) else {
                continue;
            };
            if let Some(before) = track.points.last().copied() {
                // Along the row of the leg before, then along the column of this leg.
                track.push(Point { x, y: before.y });
            } else if leg.strip.is_some() && !matches!(leg.column, Column::Process { .. }) {
                track.push(Point {
                    x,
                    y: y - size::CORRIDOR,
                });
            }
            let start = track.points.len().saturating_sub(2);
            track.push(Point { x, y });
            if leg.is_encapsulated {
                track.encapsulate(start);
            }
            if last_visit != Some(leg.visit) {
                let kind = MarkKind::Number(numbered + leg.visit + 1);
                track.marks.push(Mark {
                    at: Point { x, y },
                    kind,
                });
                last_visit = Some(leg.visit);
            }
            self.label(&mut track, way, route, position, Point { x, y });
        }
        self.finish(&mut track, way, route, index);
        track
    }

    /// Returns the height of a leg: that of its row, or the edge of a place without strips.
    fn y(&self, way: &Way, route: &Route, position: usize, row: i32) -> Option<i32> {
        let leg = &route.legs[position];
        if let Some(strip) = &leg.strip {
            let rect = self.strips.get(strip)?;
            return Some(rect.y + size::STRIP_NAME + row * size::ROW + size::ROW / 2);
        }
        let (top, bottom) = *self.edges.get(&way.visits[leg.visit].namespace)?;
        // Hosts are above all other places.
        let is_host = self.edges.values().all(|(other, _)| *other >= top);
        Some(if is_host { bottom } else { top })
    }

    /// Adds the labels of a leg, on the side on which the way does not run.
    fn label(&self, track: &mut Track, way: &Way, route: &Route, position: usize, at: Point) {
        let leg = &route.legs[position];
        let next = route.legs.get(position + 1).and_then(|next| {
            let index = track.way;
            self.x(
                &next.column,
                self.passages.passage(index, position + 1).track,
            )
        });
        let right = next.unwrap_or(at.x).max(at.x) + size::ROW;
        for label in passages::labels(way, route, position) {
            let width = size::label_width(&label.text);
            let y = at.y - size::LABEL_HEIGHT / 2 + label.row * size::ROW;
            let position = leg.strip.as_ref().and_then(|strip| self.strips.get(strip));
            let (x, y) = if let Some(rect) = position {
                let left = next.unwrap_or(at.x).min(at.x) - size::ROW - width;
                let x = if label.is_reason {
                    at.x - width / 2
                } else if right + width <= rect.right() || left < rect.x {
                    right
                } else {
                    left
                };
                (x.min(rect.right() - width).max(rect.x), y)
            } else {
                let below = size::POD_HEIGHT + size::ROW / 2 + size::GAP;
                (at.x - size::POD_WIDTH / 2, y + below)
            };
            if !label.is_reason {
                let at = Point {
                    x: x - size::GAP,
                    y: y + size::LABEL_HEIGHT / 2,
                };
                let kind = MarkKind::Rewrite;
                track.marks.push(Mark { at, kind });
            }
            track.labels.push(Label {
                at: Point { x, y },
                text: label.text,
                is_reason: label.is_reason,
            });
        }
    }

    /// Draws the end of a way.
    fn finish(&self, track: &mut Track, way: &Way, route: &Route, index: usize) {
        let Some(last) = track.points.last().copied() else {
            return;
        };
        let has_strip = route.legs.last().is_some_and(|leg| leg.strip.is_some());
        let kind = match way.end {
            WayEnd::Delivered => MarkKind::Delivered,
            WayEnd::Stopped | WayEnd::Lost => MarkKind::Stopped,
            WayEnd::Unknown => MarkKind::Unknown,
        };
        let column = route.lost_in.as_ref();
        let beyond = column.and_then(|column| self.x(column, self.passages.lost_track(index)));
        let end = if let Some(x) = beyond {
            track.push(Point { x, y: last.y });
            let end = Point {
                x,
                y: self.corridor_after(route, last.y),
            };
            track.push(end);
            end
        } else if has_strip {
            let end = Point {
                x: last.x + size::ROW,
                ..last
            };
            track.push(end);
            end
        } else {
            // At the corner of the number.
            let inside = if self.is_above(last.y) { -1 } else { 1 };
            Point {
                x: last.x + size::BADGE,
                y: last.y + inside * size::BADGE,
            }
        };
        track.marks.push(Mark { at: end, kind });
    }

    /// Whether a place at this height is above all others.
    fn is_above(&self, y: i32) -> bool {
        self.edges.values().map(|(_, bottom)| *bottom).min() == Some(y)
    }

    /// Returns a height in the corridor next to the strip of the last leg, towards the lost packet.
    fn corridor_after(&self, route: &Route, y: i32) -> i32 {
        let strip = route.legs.last().and_then(|leg| leg.strip.as_ref());
        let Some(rect) = strip.and_then(|strip| self.strips.get(strip)) else {
            return y;
        };
        rect.bottom() + size::CORRIDOR / 2
    }
}

impl Track {
    fn push(&mut self, point: Point) {
        if self.points.last() != Some(&point) {
            self.points.push(point);
        }
    }

    /// Adds the points from an index on to the tunnels.
    fn encapsulate(&mut self, start: usize) {
        let part = self.points[start..].to_vec();
        match self.tunnels.last_mut() {
            Some(tunnel) if tunnel.last() == part.first() => {
                tunnel.extend(part.into_iter().skip(1));
            }
            _ => self.tunnels.push(part),
        }
    }
}
