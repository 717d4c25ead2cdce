//! Places a topology on a plane: outside hosts at the top, then routers with load balancers, then
//! nodes with their interfaces, bridges and pods.
//!
//! Every passage of a way through a strip has a row of its own, and every passage through an
//! interface a column of its own, so that no two parts of ways lie on each other.

mod columns;
mod passages;
mod places;
mod route;
pub mod shape;
mod size;
mod strip;
mod tracks;
mod visible;
mod wires;

pub use size::label_width;

use std::collections::BTreeMap;

use columns::Columns;
use passages::Passages;
use places::Painter;
use route::Route;
use shape::Drawing;

use crate::topology::Topology;
use crate::way::Way;

/// Draws a topology with ways.
#[must_use]
pub fn draw(topology: &Topology, ways: &[Way]) -> Drawing {
    let visited = visible::visited(ways);
    let visible = visible::select(topology, &visited, size::MAX_WIDTH - 2 * size::MARGIN);
    let routes: Vec<Route> = ways.iter().map(|way| route::route(topology, way)).collect();
    let passages = Passages::new(ways, &routes);
    let columns = Columns::new(topology, &visible);
    let mut painter = Painter {
        topology,
        visited,
        visible: &visible,
        passages: &passages,
        columns: &columns,
        strips: BTreeMap::new(),
        edges: BTreeMap::new(),
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
        mut drawing,
        ..
    } = painter;
    let canvas = tracks::Canvas {
        columns: &columns,
        passages: &passages,
        strips: &strips,
        edges: &edges,
    };
    drawing.tracks = tracks::tracks(&canvas, ways, &routes);
    drawing
}
