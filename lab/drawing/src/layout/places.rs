//! Paints places and their parts.

use std::collections::{BTreeMap, BTreeSet};

use super::columns::{Columns, tunnel_shift};
use super::passages::Passages;
use super::route::{Column, column_of};
use super::shape::{Area, AreaKind, Drawing, Rect};
use super::sites::PortSite;
use super::size::{self, Sizes};
use super::strip::{Strip, Zone};
use super::visible::{Visible, VisibleNode};
use crate::topology::{Interface, InterfaceKind, Place, Router, Topology};

/// Paints places from top to bottom.
pub(super) struct Painter<'a> {
    pub(super) sizes: &'a Sizes,
    pub(super) topology: &'a Topology,
    pub(super) visited: BTreeSet<&'a str>,
    pub(super) visible: &'a Visible<'a>,
    pub(super) passages: &'a Passages,
    pub(super) columns: &'a Columns,
    /// Rectangles of the strips.
    pub(super) strips: BTreeMap<Strip, Rect>,
    /// Upper and lower edge of each place.
    pub(super) edges: BTreeMap<String, (i32, i32)>,
    /// Heights in columns at which packets end that no place received.
    pub(super) middles: BTreeMap<Column, i32>,
    /// Ends of veth pairs, for their names.
    pub(super) ports: Vec<PortSite>,
    pub(super) drawing: Drawing,
}

impl Painter<'_> {
    /// Whether a place is drawn as part of what happened.
    fn is_lit(&self, namespace: &str) -> bool {
        self.visited.is_empty() || self.visited.contains(namespace)
    }

    pub(super) fn paint_places(&mut self) {
        let mut y = self.sizes.margin + self.passages.rows_above() * size::ROW;
        for host in &self.topology.hosts {
            let rect = Rect {
                x: self.columns.place(&host.namespace) - self.sizes.host_width / 2,
                y,
                width: self.sizes.host_width,
                height: size::POD_HEIGHT,
            };
            self.place_box(AreaKind::Host, rect, host);
        }
        if !self.topology.hosts.is_empty() {
            y += size::POD_HEIGHT + size::CORRIDOR;
        }
        for router in &self.topology.routers {
            y = self.paint_router(router, y) + size::CORRIDOR;
        }
        let bottom = self.paint_nodes(y);
        self.drawing.height = bottom + self.sizes.margin;
    }

    fn place_box(&mut self, kind: AreaKind, rect: Rect, place: &Place) {
        let edges = (rect.y, rect.bottom());
        self.edges.insert(place.namespace.clone(), edges);
        self.drawing.areas.push(Area {
            kind,
            rect,
            title: place.title.clone(),
            detail: place
                .address()
                .map(|address| address.to_string())
                .unwrap_or_default(),
            is_lit: self.is_lit(&place.namespace),
        });
    }

    /// Adds a strip and returns its lower edge.
    fn strip(&mut self, namespace: &str, zone: Zone, title: &str, rect: Rect) -> i32 {
        let strip = Strip {
            namespace: namespace.to_owned(),
            zone,
        };
        let rows = self.passages.rows(&strip);
        let rect = Rect {
            height: size::strip_height(rows),
            ..rect
        };
        self.drawing.areas.push(Area {
            kind: AreaKind::Strip,
            rect,
            title: title.to_owned(),
            detail: String::new(),
            is_lit: self.visited.is_empty() || rows > 0,
        });
        self.strips.insert(strip, rect);
        rect.bottom()
    }

    fn paint_router(&mut self, router: &Router, y: i32) -> i32 {
        let namespace = &router.place.namespace;
        let index = self.drawing.areas.len();
        let outer = Rect {
            x: self.sizes.margin,
            y,
            width: self.drawing.width - 2 * self.sizes.margin,
            height: 0,
        };
        self.place_box(AreaKind::Router, outer, &router.place);
        self.drawing.areas[index].detail = String::new();
        let inner_x = outer.x + self.sizes.padding;
        let mut x = inner_x + self.sizes.router_title;
        let mut below = y + size::ROUTER_HEADER;
        for balancer in &router.balancers {
            let addresses: Vec<String> =
                balancer.addresses.iter().map(ToString::to_string).collect();
            let rect = Rect {
                x,
                y: y + size::GAP,
                width: self.sizes.balancer_width,
                height: size::POD_HEIGHT,
            };
            self.drawing.areas.push(Area {
                kind: AreaKind::Balancer,
                rect,
                title: balancer.name.clone(),
                detail: addresses.join(", "),
                is_lit: self.visited.is_empty() || self.passages.is_balanced(namespace),
            });
            x += self.sizes.balancer_width + self.sizes.pod_gap;
            below = rect.bottom() + size::GAP;
        }
        let rect = Rect {
            x: inner_x,
            y: below,
            width: outer.width - 2 * self.sizes.padding,
            height: 0,
        };
        let bottom = self.strip(namespace, Zone::Stack, "network stack", rect) + size::GAP;
        self.drawing.areas[index].rect.height = bottom - y;
        self.edges.insert(namespace.clone(), (y, bottom));
        bottom
    }

    /// Paints the nodes and returns the lower edge of the last.
    fn paint_nodes(&mut self, y: i32) -> i32 {
        let visible = self.visible;
        let heights = |zone: &dyn Fn(&VisibleNode<'_>) -> i32| {
            visible.full.iter().map(zone).max().unwrap_or(0)
        };
        let uplink = heights(&|node| self.uplink_height(&node.node.place));
        let stack = heights(&|node| self.strip_height(&node.node.place.namespace, Zone::Stack));
        let bridges = heights(&|node| {
            let shown = self.shown_bridges(node);
            let each = shown.iter().map(|bridge| {
                self.strip_height(&node.node.place.namespace, Zone::Bridge(bridge.clone()))
                    + size::GAP
            });
            each.sum()
        });
        let below = self.passages.rows_below() * size::ROW;
        let stack_y = y + size::HEADER + uplink;
        let bridge_y = stack_y + stack + size::GAP;
        let pods_y = bridge_y + bridges + size::POD_WIRE;
        let has_pods = visible.full.iter().any(|node| node.columns() > 0);
        let pods_bottom = if has_pods {
            pods_y + size::POD_HEIGHT + below
        } else {
            bridge_y
        };
        let bottom = pods_bottom + self.sizes.padding;
        for node in &visible.full {
            let place = &node.node.place;
            let x = self.columns.node(&place.namespace);
            let rect = Rect {
                x,
                y,
                width: node.width,
                height: bottom - y,
            };
            self.place_box(AreaKind::Node, rect, place);
            let inner = Rect {
                x: x + self.sizes.padding,
                width: rect.width - 2 * self.sizes.padding,
                ..rect
            };
            self.paint_tunnels(place, y + size::HEADER, stack_y, inner);
            let name = self.sizes.stack_title;
            let title = if node.node.host_pods.is_empty() {
                name.to_owned()
            } else {
                format!("{name}, with {}", node.node.host_pods.join(", "))
            };
            self.strip(
                &place.namespace,
                Zone::Stack,
                &title,
                Rect {
                    y: stack_y,
                    ..inner
                },
            );
            let mut next = bridge_y;
            for bridge in self.shown_bridges(node) {
                let title = format!("bridge {bridge}");
                let rect = Rect { y: next, ..inner };
                next = self.strip(&place.namespace, Zone::Bridge(bridge), &title, rect) + size::GAP;
            }
            self.paint_pods(node, pods_y);
        }
        self.paint_small(bottom + size::GAP).unwrap_or(bottom)
    }

    fn paint_pods(&mut self, node: &VisibleNode<'_>, y: i32) {
        for pod in &node.pods {
            let x = self.columns.place(&pod.namespace) - self.sizes.pod_width / 2;
            let rect = Rect {
                x,
                y,
                width: self.sizes.pod_width,
                height: size::POD_HEIGHT,
            };
            self.place_box(AreaKind::Pod, rect, pod);
        }
        if !node.other_pods.is_empty() {
            let count = node.other_pods.len();
            self.drawing.areas.push(Area {
                kind: AreaKind::Others,
                rect: Rect {
                    x: self.columns.others(&node.node.place.namespace) - self.sizes.pod_width / 2,
                    y,
                    width: self.sizes.pod_width,
                    height: size::POD_HEIGHT,
                },
                title: format!("{count} more {}", if count == 1 { "pod" } else { "pods" }),
                detail: node.other_pods.join(", "),
                is_lit: self.visited.is_empty(),
            });
        }
    }

    /// Paints the boxes of the nodes that are not shown in full. Returns their lower edge.
    fn paint_small(&mut self, y: i32) -> Option<i32> {
        let nodes = &self.visible.small;
        if nodes.is_empty() {
            return None;
        }
        let inner =
            self.drawing.width - 2 * (self.sizes.margin + self.sizes.padding) + self.sizes.pod_gap;
        let per_row = usize::try_from(inner / (size::SMALL_WIDTH + self.sizes.pod_gap))
            .unwrap_or(1)
            .max(1);
        let position = |index: usize| i32::try_from(index).unwrap_or(i32::MAX);
        let rows = position(nodes.len().div_ceil(per_row));
        let rect = Rect {
            x: self.sizes.margin,
            y,
            width: self.drawing.width - 2 * self.sizes.margin,
            height: size::STRIP_NAME + rows * (size::POD_HEIGHT + size::GAP) + size::GAP,
        };
        let count = nodes.len();
        self.drawing.areas.push(Area {
            kind: AreaKind::Others,
            rect,
            title: format!("{count} more {}", if count == 1 { "node" } else { "nodes" }),
            detail: String::new(),
            is_lit: self.visited.is_empty(),
        });
        for (index, node) in nodes.iter().enumerate() {
            let (row, column) = (position(index / per_row), position(index % per_row));
            let rect = Rect {
                x: rect.x + self.sizes.padding + column * (size::SMALL_WIDTH + self.sizes.pod_gap),
                y: y + size::STRIP_NAME + row * (size::POD_HEIGHT + size::GAP),
                width: size::SMALL_WIDTH,
                height: size::POD_HEIGHT,
            };
            let pods = node.pods.len() + node.host_pods.len();
            let address = node.place.address().map(|address| address.to_string());
            self.drawing.areas.push(Area {
                kind: AreaKind::Node,
                rect,
                title: node.place.title.clone(),
                detail: format!("{}, {pods} pods", address.unwrap_or_default()),
                is_lit: self.visited.is_empty(),
            });
        }
        Some(rect.bottom())
    }

    fn strip_height(&self, namespace: &str, zone: Zone) -> i32 {
        let strip = Strip {
            namespace: namespace.to_owned(),
            zone,
        };
        size::strip_height(self.passages.rows(&strip))
    }

    fn uplink_height(&self, place: &Place) -> i32 {
        if tunnels(place).next().is_none() {
            return 0;
        }
        let strip = Strip {
            namespace: place.namespace.clone(),
            zone: Zone::Uplink,
        };
        self.passages.rows(&strip) * size::ROW + size::TUNNEL_HEIGHT + 2 * size::GAP
    }

    fn paint_tunnels(&mut self, place: &Place, top: i32, stack_y: i32, inner: Rect) {
        let strip = Strip {
            namespace: place.namespace.clone(),
            zone: Zone::Uplink,
        };
        let rect = Rect {
            y: top,
            height: stack_y - top - size::TUNNEL_HEIGHT,
            ..inner
        };
        self.strips.insert(strip, rect);
        for tunnel in tunnels(place) {
            let Some(column) = column_of(place, tunnel) else {
                continue;
            };
            let center = self.columns.center(&column).unwrap_or(inner.x);
            let shift = tunnel_shift(self.passages.width(&column));
            let rect = Rect {
                x: center - shift - size::TUNNEL_WIDTH / 2,
                y: stack_y - size::TUNNEL_HEIGHT - size::GAP,
                width: size::TUNNEL_WIDTH,
                height: size::TUNNEL_HEIGHT,
            };
            self.drawing.areas.push(Area {
                kind: AreaKind::Tunnel,
                rect,
                title: tunnel.name.clone(),
                detail: String::new(),
                is_lit: self.visited.is_empty() || self.passages.uses(&column),
            });
            self.middles.insert(column, rect.y - size::GAP);
        }
    }

    /// Returns the bridges of a node with pods, and those through which ways pass.
    fn shown_bridges(&self, node: &VisibleNode<'_>) -> Vec<String> {
        let place = &node.node.place;
        let has_pod = |bridge: &str| {
            place.interfaces.iter().any(|port| {
                let leads = |pod: &Place| matches!(&port.kind, InterfaceKind::Veth { namespace, .. } if *namespace == pod.namespace);
                port.bridge.as_deref() == Some(bridge) && node.node.pods.iter().any(leads)
            })
        };
        let is_used = |bridge: &str| {
            let zone = Zone::Bridge(bridge.to_owned());
            self.passages.rows(&Strip {
                namespace: place.namespace.clone(),
                zone,
            }) > 0
        };
        let bridges = place
            .interfaces
            .iter()
            .filter(|own| own.kind == InterfaceKind::Bridge);
        let shown = bridges.filter(|own| has_pod(&own.name) || is_used(&own.name));
        shown.map(|own| own.name.clone()).collect()
    }
}

/// Returns the tunnel devices of a place.
fn tunnels(place: &Place) -> impl Iterator<Item = &Interface> {
    let interfaces = place.interfaces.iter();
    interfaces.filter(|own| own.kind == InterfaceKind::Tunnel)
}
