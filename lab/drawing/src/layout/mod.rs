//! Places a topology on a plane: outside hosts at the top, then routers with load balancers, then
//! nodes with their interfaces, bridges and pods.
//!
//! Every passage of a way through a strip has a row of its own, and every passage through an
//! interface a column of its own, so that no two parts of ways lie on each other. Names of
//! interfaces, marks and labels are placed last, each where nothing else is.

mod columns;
mod labels;
mod marks;
mod passages;
mod places;
mod ports;
mod room;
mod route;
pub mod shape;
mod size;
mod strip;
pub mod texts;
mod tracks;
mod visible;
mod wires;

use std::collections::BTreeMap;

use columns::Columns;
use passages::Passages;
use places::Painter;
use room::Room;
use route::Route;
use shape::{Drawing, Mark, Track};
use tracks::{Canvas, Course};

use crate::topology::Topology;
use crate::way::Way;

/// Draws a topology with ways.
#[must_use]
pub fn draw(topology: &Topology, ways: &[Way]) -> Drawing {
    let visited = visible::visited(ways);
    let visible = visible::select(topology, &visited, size::MAX_WIDTH - 2 * size::MARGIN);
    let routes: Vec<Route> = ways.iter().map(|way| route::route(topology, way)).collect();
    let passages = Passages::new(topology, ways, &routes);
    let columns = Columns::new(topology, &visible);
    let mut painter = Painter {
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
        columns: &columns,
        passages: &passages,
        strips: &strips,
        edges: &edges,
        middles: &middles,
    };
    let courses = tracks::courses(&canvas, ways, &routes);
    let mut room = Room::new(&drawing, courses.iter().map(|course| &*course.points));
    drawing.ports = ports::place(&mut room, &ports);
    drawing.tracks = tracks(&mut room, &canvas, &drawing, ways, &routes, &courses);
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
