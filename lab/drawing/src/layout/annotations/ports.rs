//! Places the names of interfaces beside the tracks through them.

use super::room::Room;
use super::texts;
use crate::layout::shape::{Point, Port, Rect};
use crate::layout::sites::PortSite;
use crate::layout::size;

/// Places names on the right of their tracks, or on the left if marks could cover them on the right.
pub fn place(room: &mut Room, sites: &[PortSite]) -> Vec<Port> {
    sites.iter().map(|site| place_name(room, site)).collect()
}

fn place_name(room: &mut Room, site: &PortSite) -> Port {
    let distance = site.half + size::PORT_GAP;
    let port = |x: i32| Port {
        at: Point { x, ..site.at },
        name: site.name.clone(),
        is_lit: site.is_lit,
    };
    let right = port(site.at.x + distance);
    let width = texts::port_name(&right).rect().width;
    let left = port(site.at.x - distance - width);
    let cost = |port: &&Port| {
        let rect = texts::port_name(port).rect();
        // Marks lie on lines, and lines have no width.
        let near = Rect {
            x: rect.x - size::PORT_GAP + 1,
            width: rect.width + 2 * (size::PORT_GAP - 1),
            ..rect
        };
        (!room.is_free(&rect), room.count_lines(&near))
    };
    let best = [&right, &left].into_iter().min_by_key(cost);
    let best = best.unwrap_or(&right).clone();
    room.take(texts::port_name(&best).rect());
    best
}
