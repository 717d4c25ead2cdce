//! Paints the veth pairs between places.

use std::collections::BTreeSet;

use super::places::Painter;
use super::route::column_of;
use super::shape::{Point, Rect, Wire};
use super::sites::PortSite;
use super::strip::{Strip, Zone};
use crate::topology::{InterfaceKind, Place};

impl Painter<'_> {
    /// Paints the veth pairs between places that are drawn, with the names of their interfaces.
    pub(super) fn paint_wires(&mut self) {
        let mut done = BTreeSet::new();
        for place in self.topology.places() {
            for interface in &place.interfaces {
                let InterfaceKind::Veth {
                    namespace,
                    interface: peer,
                } = &interface.kind
                else {
                    continue;
                };
                let (Some(column), Some(far)) =
                    (column_of(place, interface), self.topology.place(namespace))
                else {
                    continue;
                };
                let (Some(x), Some(near), Some(other)) = (
                    self.columns.center(&column),
                    self.edges.get(&place.namespace).copied(),
                    self.edges.get(namespace).copied(),
                ) else {
                    continue;
                };
                if !done.insert(column.clone()) {
                    continue;
                }
                let ends = [
                    (place, interface.name.as_str(), near, other),
                    (far, peer, other, near),
                ];
                let is_lit = self.visited.is_empty() || self.passages.uses(&column);
                let half = self.passages.width(&column) / 2;
                let mut points: Vec<Point> = Vec::new();
                for (place, name, own, other) in ends {
                    let y = self.end_of_wire(place, name, own, other);
                    points.push(Point { x, y });
                    self.ports.push(PortSite {
                        name: name.to_owned(),
                        at: Point {
                            x,
                            y: name_y(y, own, other),
                        },
                        half,
                        is_lit,
                    });
                }
                let sum: i32 = points.iter().map(|point| point.y).sum();
                self.middles.insert(column, sum / 2);
                self.drawing.wires.push(Wire {
                    points,
                    is_lit,
                    is_down: interface.is_down,
                });
            }
        }
    }

    /// Returns where a veth pair meets a place: at the edge towards the other place, or for pods of a
    /// node at its bridge or network stack.
    fn end_of_wire(&self, place: &Place, name: &str, own: (i32, i32), other: (i32, i32)) -> i32 {
        if other.0 >= own.1 {
            return own.1;
        }
        if other.1 <= own.0 || is_inside(own, other) {
            return own.0;
        }
        let bridge = place.interface(name).and_then(|own| own.bridge.clone());
        let zone = bridge.map_or(Zone::Stack, Zone::Bridge);
        let strip = Strip {
            namespace: place.namespace.clone(),
            zone,
        };
        self.strips.get(&strip).map_or(own.1, Rect::bottom)
    }
}

/// Whether a place lies inside of the other.
const fn is_inside(own: (i32, i32), other: (i32, i32)) -> bool {
    own.0 >= other.0 && own.1 <= other.1
}

/// Returns the base line of the name of an interface, on the wire to the other place.
const fn name_y(y: i32, own: (i32, i32), other: (i32, i32)) -> i32 {
    if other.0 >= own.1 || is_inside(other, own) {
        y + 14
    } else {
        y - 6
    }
}
