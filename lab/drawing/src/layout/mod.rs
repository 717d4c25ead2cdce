//! Places a topology on a plane: outside hosts at the top, then routers with load balancers, then
//! nodes with their interfaces, bridges and pods.
//!
//! Every passage of a way through a strip has a row of its own, and every passage through an
//! interface a column of its own, so that no two parts of ways lie on each other. Names of
//! interfaces, marks and labels are placed last, each where nothing else is.

pub mod annotations;
mod columns;
mod compact;
mod passages;
mod places;
mod route;
pub mod shape;
mod sites;
mod size;
mod strip;
mod tracks;
mod visible;
mod wires;

use std::collections::BTreeMap;

use annotations::room::Room;
use annotations::{labels, marks, ports};
use columns::Columns;
use passages::Passages;
use places::Painter;
use route::Route;
use shape::{Area, AreaKind, Drawing, Mark, Rect, Track};
use size::Sizes;
use tracks::{Canvas, Course};

use crate::topology::Topology;
use crate::way::Way;

/// Draws a topology with ways, for wide screens and print.
#[must_use]
pub fn draw(topology: &Topology, ways: &[Way]) -> Drawing {
    draw_with(&size::WIDE, topology, ways)
}

/// Draws the places on ways, 348 pixels wide. Other places are only counted, and visits have numbers
/// without texts: see [`crate::steps()`].
#[must_use]
pub fn draw_compact(topology: &Topology, ways: &[Way]) -> Drawing {
    let reduced = compact::reduced::reduce(topology, ways);
    let sizes = compact::sizes(&reduced.topology);
    let mut drawing = draw_with(&sizes, &reduced.topology, &reduced.ways);
    if !reduced.others.is_empty() {
        let rect = Rect {
            x: sizes.margin,
            y: drawing.height,
            width: drawing.width - 2 * sizes.margin,
            height: size::ROW,
        };
        drawing.height = rect.bottom() + sizes.margin;
        drawing.areas.push(Area {
            kind: AreaKind::Others,
            rect,
            title: reduced.others,
            detail: String::new(),
            is_lit: false,
        });
    }
    drawing
}

fn draw_with(sizes: &Sizes, topology: &Topology, ways: &[Way]) -> Drawing {
    let visited = visible::visited(ways);
    let visible = visible::select(topology, &visited, sizes);
    let routes: Vec<Route> = ways.iter().map(|way| route::route(topology, way)).collect();
    let passages = Passages::new(sizes, topology, &visible, ways, &routes);
    let columns = Columns::new(sizes, topology, &visible, &passages);
    let mut painter = Painter {
        sizes,
        topology,
        visited,
        visible: &visible,
        passages: &passages,
        columns: &columns,
        strips: BTreeMap::new(),
        edges: BTreeMap::new(),
        middles: BTreeMap::new(),
        ports: Vec::new(),
        drawing: Drawing {
            width: columns.width,
            ..Drawing::default()
        },
    };
    painter.paint_places();
    painter.paint_wires();
    let Painter {
        strips,
        edges,
        middles,
        ports,
        mut drawing,
        ..
    } = painter;
    let canvas = Canvas {
        margin: sizes.margin,
        columns: &columns,
        passages: &passages,
        strips: &strips,
        edges: &edges,
        middles: &middles,
    };
    let courses = tracks::courses(&canvas, ways, &routes);
    let mut room = Room::new(&drawing, courses.iter().map(|course| &*course.points));
    if sizes.has_labels {
        drawing.ports = ports::place(&mut room, &ports);
    }
    drawing.tracks = tracks(&mut room, &canvas, &drawing, ways, &routes, &courses);
    if !sizes.has_labels {
        for (index, track) in drawing.tracks.iter_mut().enumerate() {
            let (way, route) = (&ways[index], &routes[index]);
            let marks = marks::place_rewrites(&mut room, way, route, &courses[index]);
            track.marks.extend(marks);
        }
    }
    drawing
}

/// Adds marks and labels to the lines of the ways. Visits are numbered across the ways.
fn tracks(
    room: &mut Room,
    canvas: &Canvas<'_>,
    drawing: &Drawing,
    ways: &[Way],
    routes: &[Route],
    courses: &[Course],
) -> Vec<Track> {
    // The space at the end of a line is smaller than along the line.
    let pairs = ways.iter().zip(courses);
    let ends: Vec<Option<Mark>> = pairs
        .map(|(way, course)| marks::place_end(room, way, course))
        .collect();
    let mut numbered = 0;
    let mut tracks = Vec::new();
    for (index, course) in courses.iter().enumerate() {
        let (way, route) = (&ways[index], &routes[index]);
        tracks.push(Track {
            way: index,
            is_request: way.is_request,
            points: course.points.clone(),
            tunnels: course.tunnels.clone(),
            marks: marks::place_numbers(room, route, course, numbered),
            labels: Vec::new(),
        });
        numbered += way.visits.len();
    }
    for ((index, track), end) in tracks.iter_mut().enumerate().zip(ends) {
        for site in canvas.labels(index, &ways[index], &routes[index], &courses[index]) {
            let (label, diamond) = labels::place(room, &drawing.areas, site);
            track.labels.push(label);
            track.marks.extend(diamond);
        }
        track.marks.extend(end);
    }
    tracks
}
