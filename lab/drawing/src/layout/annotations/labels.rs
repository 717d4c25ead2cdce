//! Places labels beside tracks: new addresses and reasons for ends.

use super::room::Room;
use crate::layout::shape::{Area, AreaKind, Label, Mark, MarkKind, Point, Rect};
use crate::layout::sites::LabelSite;
use crate::layout::size;

/// Space between a label and the line of its way: for marks at the end of the line.
const SPACE: i32 = size::ROW;

/// Cost of covering a line.
const LINE_COST: i32 = 40;

/// Cost of reaching out of the place of the label.
const OUTSIDE_COST: i32 = 60;

/// Cost of covering the line of its own way.
const OWN_LINE_COST: i32 = 50;

/// Cost of a position on the left side. The right one is usual.
const LEFT_COST: i32 = 8;

/// Cost per pixel of distance from the row.
const ROW_COST: i32 = 4;

/// Maximum number of rows between a label and its way.
const MAX_ROWS: i32 = 8;

/// Label, and the diamond of a new address, at a position.
struct Candidate {
    label: Rect,
    diamond: Option<Point>,
}

impl Candidate {
    fn new(site: &LabelSite, x: i32, y: i32) -> Self {
        let label = Rect {
            x,
            y: y - size::LABEL_HEIGHT / 2,
            width: size::label_width(&site.text),
            height: size::LABEL_HEIGHT,
        };
        // The diamond is on the side of the way.
        let is_left = label.right() <= site.run.0;
        let x = if is_left {
            label.right() + size::GAP
        } else {
            label.x - size::GAP
        };
        Self {
            label,
            diamond: (!site.is_reason).then_some(Point { x, y }),
        }
    }

    fn mark(&self) -> Option<Mark> {
        self.diamond.map(|at| Mark {
            at,
            kind: MarkKind::Rewrite,
        })
    }

    /// Returns the rectangle that the label covers together with its diamond.
    fn rect(&self) -> Rect {
        let Some(mark) = self.mark() else {
            return self.label;
        };
        let diamond = mark.rect();
        let x = self.label.x.min(diamond.x);
        Rect {
            x,
            width: self.label.right().max(diamond.right()) - x,
            ..self.label
        }
    }

    /// Returns the cost of the position within a place. Free positions with a low cost are good.
    fn cost(&self, site: &LabelSite, place: &Rect, room: &Room) -> i32 {
        let rect = self.rect();
        let label = self.label;
        let (left, right) = (site.run.0 - SPACE, site.run.1 + SPACE);
        let away = if let Some(center) = site.center {
            (label.center() - center).abs()
        } else if label.x >= right {
            label.x - right
        } else if label.right() <= left {
            left - label.right() + LEFT_COST
        } else {
            OWN_LINE_COST + (label.center() - i32::midpoint(site.run.0, site.run.1)).abs()
        };
        let lines = i32::try_from(room.count_lines(&rect)).unwrap_or(i32::MAX);
        let outside = (place.x - rect.x).max(rect.right() - place.right()).max(0);
        let is_outside = i32::from(outside > 0);
        away + lines * LINE_COST + is_outside * OUTSIDE_COST + outside
    }
}

/// Places a label at the best free position. A new address has a diamond.
pub fn place(room: &mut Room, areas: &[Area], site: LabelSite) -> (Label, Option<Mark>) {
    let canvas = room.canvas();
    let place = place_around(areas, &site).unwrap_or(canvas);
    let mut best: Option<(i32, Candidate)> = None;
    let rows = (0..=MAX_ROWS).flat_map(|row| [row, -row]);
    for distance in rows.map(|row| row * size::ROW) {
        let row_cost = distance.abs() * ROW_COST;
        if best.as_ref().is_some_and(|(cost, _)| *cost <= row_cost) {
            break;
        }
        for x in positions(&site, &canvas) {
            let candidate = Candidate::new(&site, x, site.y + distance);
            if !room.is_free(&candidate.rect()) {
                continue;
            }
            let cost = row_cost + candidate.cost(&site, &place, room);
            if best.as_ref().is_none_or(|(best, _)| cost < *best) {
                best = Some((cost, candidate));
            }
        }
    }
    let best = best.map(|(_, candidate)| candidate);
    let candidate = best.unwrap_or_else(|| Candidate::new(&site, site.run.1 + SPACE, site.y));
    room.take(candidate.rect());
    let at = Point {
        x: candidate.label.x,
        y: candidate.label.y,
    };
    let mark = candidate.mark();
    let label = Label {
        at,
        text: site.text,
        is_reason: site.is_reason,
    };
    (label, mark)
}

/// Returns the left edges to try: the wanted ones, then those in the whole width.
fn positions(site: &LabelSite, canvas: &Rect) -> impl Iterator<Item = i32> {
    let width = size::label_width(&site.text);
    let wanted = match site.center {
        Some(center) => [center - width / 2; 2],
        None => [site.run.1 + SPACE, site.run.0 - SPACE - width],
    };
    let all = (canvas.x..=canvas.right() - width).step_by(2);
    wanted.into_iter().chain(all)
}

/// Returns the innermost strip, node or router around the way of a label.
fn place_around(areas: &[Area], site: &LabelSite) -> Option<Rect> {
    let at = Rect::around(
        Point {
            x: site.run.0,
            y: site.y,
        },
        0,
    );
    let is_wide = |area: &&Area| {
        let is_wide = [AreaKind::Strip, AreaKind::Node, AreaKind::Router].contains(&area.kind);
        is_wide && area.rect.contains(&at)
    };
    areas.iter().rfind(is_wide).map(|area| area.rect)
}
