//! Places nodes, pods and interfaces side by side.

use std::collections::BTreeMap;

use super::passages::Passages;
use super::route::{Column, column_of};
use super::size::{self, Sizes};
use super::visible::{Visible, VisibleNode};
use crate::topology::{InterfaceKind, Place, Topology};

/// Smallest wanted distance of tracks through different interfaces.
const CLEARANCE: i32 = 8;

/// Largest distance of a column from its usual centre.
const MAX_SHIFT: i32 = 24;

/// Horizontal positions.
#[derive(Debug)]
pub struct Columns {
    sizes: Sizes,
    /// Width of the drawing.
    pub width: i32,
    /// Left edge of each node.
    nodes: BTreeMap<String, i32>,
    /// Centre of each pod and host.
    places: BTreeMap<String, i32>,
    /// Centre of the list of pods that are not drawn, by node.
    others: BTreeMap<String, i32>,
    /// Centre of each veth pair and tunnel device.
    centers: BTreeMap<Column, i32>,
    /// Positions of tracks below the routers, and above or between them.
    tracks: Vec<i32>,
}

impl Columns {
    pub fn new(
        sizes: &Sizes,
        topology: &Topology,
        visible: &Visible<'_>,
        passages: &Passages,
    ) -> Self {
        let hosts = i32::try_from(topology.hosts.len()).unwrap_or(i32::MAX);
        let balancers = topology.routers.iter().map(|router| router.balancers.len());
        let balancers = i32::try_from(balancers.max().unwrap_or(0)).unwrap_or(i32::MAX);
        let boxes = |count: i32, width: i32| count * (width + sizes.pod_gap);
        let nodes = visible.full.iter();
        let nodes: i32 = nodes.map(|node| node.width + sizes.node_gap).sum();
        let inner = [
            nodes - sizes.node_gap,
            boxes(hosts, sizes.host_width) - sizes.pod_gap,
            boxes(balancers, sizes.balancer_width) + sizes.router_title + 2 * sizes.padding,
            sizes.min_width,
        ];
        let inner = inner.into_iter().max().unwrap_or(sizes.min_width);
        let mut columns = Self {
            sizes: *sizes,
            width: inner + 2 * sizes.margin,
            nodes: BTreeMap::new(),
            places: BTreeMap::new(),
            others: BTreeMap::new(),
            centers: BTreeMap::new(),
            tracks: Vec::new(),
        };
        let unused = inner - (nodes - sizes.node_gap);
        columns.place_nodes(visible, passages, sizes.margin + unused / 2);
        columns.place_hosts(topology, passages, inner);
        columns.place_routers(topology, passages);
        columns
    }

    fn place_nodes(&mut self, visible: &Visible<'_>, passages: &Passages, mut x: i32) {
        let sizes = self.sizes;
        for node in &visible.full {
            let place = &node.node.place;
            self.nodes.insert(place.namespace.clone(), x);
            let boxes = node.columns();
            let count = i32::try_from(boxes.max(1)).unwrap_or(i32::MAX);
            let used = count * (sizes.pod_width + sizes.pod_gap) - sizes.pod_gap;
            let mut center = x + (node.width - used) / 2 + sizes.pod_width / 2;
            for pod in &node.pods {
                self.places.insert(pod.namespace.clone(), center);
                for port in &place.interfaces {
                    if is_veth_to(&port.kind, &pod.namespace)
                        && let Some(column) = column_of(place, port)
                    {
                        self.centers.insert(column, center);
                    }
                }
                center += sizes.pod_width + sizes.pod_gap;
            }
            self.others.insert(place.namespace.clone(), center);
            self.place_uplinks(node, passages, x);
            x += node.width + sizes.node_gap;
        }
    }

    /// Places uplinks on the left, and tunnel devices on the right.
    fn place_uplinks(&mut self, visible: &VisibleNode<'_>, passages: &Passages, x: i32) {
        let (node, width) = (visible.node, visible.width);
        let place = &node.place;
        let columns = |is_wanted: &dyn Fn(&InterfaceKind) -> bool| -> Vec<Column> {
            let wanted = place.interfaces.iter().filter(|own| is_wanted(&own.kind));
            wanted.filter_map(|own| column_of(place, own)).collect()
        };
        let leads_to_pod =
            |kind: &InterfaceKind| node.pods.iter().any(|pod| is_veth_to(kind, &pod.namespace));
        let tunnels = columns(&|kind| *kind == InterfaceKind::Tunnel);
        let uplinks =
            columns(&|kind| matches!(kind, InterfaceKind::Veth { .. }) && !leads_to_pod(kind));
        let step = size::TUNNEL_WIDTH + size::GAP;
        let mut center = x + width - self.sizes.padding - size::TUNNEL_WIDTH / 2;
        for column in tunnels {
            let shift = tunnel_shift(passages.width(&column));
            self.centers.insert(column, center + shift);
            center -= step;
        }
        let right = center + step / 2;
        // Tracks below the uplinks of the node.
        let below = self.centers.iter().flat_map(|(column, center)| {
            let offsets = passages.offsets(column).into_iter();
            offsets.map(move |offset| center + offset)
        });
        let below: Vec<i32> = below.collect();
        let count = i32::try_from(uplinks.len()).unwrap_or(i32::MAX);
        let widths = uplinks.iter().map(|column| passages.width(column));
        let needed = widths.sum::<i32>() + count * size::ROW;
        let names = self.ends_of_names(place).map(|end| x + end);
        let start = names.into_iter().find(|start| right - start >= needed);
        let start = start.unwrap_or(x);
        for (index, column) in (0..).zip(uplinks) {
            let space = (right - start) / count.max(1);
            let center = start + space * index + space / 2;
            self.place_apart(column, center, passages, &below);
        }
    }

    /// Returns the right ends of the names at the left of a node: with that of its network stack, and
    /// without. Tracks through uplinks are beside the names if there is space.
    fn ends_of_names(&self, place: &Place) -> [i32; 2] {
        let address = place.address().map(|address| address.to_string());
        let header = size::text_width(&place.title);
        let header = header.max(size::text_width(&address.unwrap_or_default()));
        let header = size::INSET + header + size::GAP;
        let stack = self.sizes.padding + size::INSET + size::text_width(self.sizes.stack_title);
        [header.max(stack + size::GAP), header]
    }

    /// Places a column where its tracks are apart from others.
    fn place_apart(&mut self, column: Column, wanted: i32, passages: &Passages, others: &[i32]) {
        let offsets = passages.offsets(&column);
        let clearance = |center: i32| {
            let tracks = offsets.iter().map(|offset| center + offset);
            let all = tracks.flat_map(|track| {
                let others = others.iter().chain(&self.tracks);
                others.map(move |other| (track - other).abs())
            });
            all.min().unwrap_or(CLEARANCE).min(CLEARANCE)
        };
        let shifts = (0..=MAX_SHIFT).flat_map(|shift| [wanted + shift, wanted - shift]);
        // The first of the best ones is the nearest.
        let best = shifts.min_by_key(|center| -clearance(*center));
        let center = best.unwrap_or(wanted);
        self.tracks
            .extend(offsets.iter().map(|offset| center + offset));
        self.centers.insert(column, center);
    }

    fn place_hosts(&mut self, topology: &Topology, passages: &Passages, inner: i32) {
        let sizes = self.sizes;
        let count = i32::try_from(topology.hosts.len()).unwrap_or(i32::MAX);
        for (index, host) in (0..).zip(&topology.hosts) {
            let space = inner / count.max(1);
            let center = sizes.margin + space * index + space / 2;
            self.places.insert(host.namespace.clone(), center);
            for interface in &host.interfaces {
                let column = column_of(host, interface);
                let is_new = |column: &Column| !self.centers.contains_key(column);
                if let Some(column) = column.filter(is_new) {
                    self.place_apart(column, center, passages, &[]);
                }
            }
        }
    }

    /// Places the veth pairs between routers.
    fn place_routers(&mut self, topology: &Topology, passages: &Passages) {
        let right = self.width - self.sizes.margin - self.sizes.padding;
        for router in &topology.routers {
            for other in &topology.routers {
                let link = router.place.interface_to(&other.place.namespace);
                if let Some(column) = link.and_then(|link| column_of(&router.place, link)) {
                    let half = passages.width(&column) / 2 + 2 * size::GAP;
                    let center = right - half.max(2 * size::GAP + MAX_SHIFT);
                    self.place_apart(column, center, passages, &[]);
                }
            }
        }
    }

    /// Returns the left edge of a node.
    pub fn node(&self, namespace: &str) -> i32 {
        self.nodes
            .get(namespace)
            .copied()
            .unwrap_or(self.sizes.margin)
    }

    /// Returns the centre of a pod or host.
    pub fn place(&self, namespace: &str) -> i32 {
        self.places
            .get(namespace)
            .copied()
            .unwrap_or(self.sizes.margin)
    }

    /// Returns the centre of the list of pods that are not drawn.
    pub fn others(&self, node: &str) -> i32 {
        self.others.get(node).copied().unwrap_or(self.sizes.margin)
    }

    /// Returns the centre of a column. `None` if its interface is not drawn. Processes of a node are
    /// at its left.
    pub fn center(&self, column: &Column) -> Option<i32> {
        match column {
            Column::Process { namespace } => {
                let left = self
                    .nodes
                    .get(namespace)
                    .copied()
                    .unwrap_or(self.sizes.margin);
                Some(left + 4 * self.sizes.padding)
            }
            _ => self.centers.get(column).copied(),
        }
    }
}

/// Returns the distance of the tracks through a tunnel device from the centre of its box: they are on
/// the right of the name.
pub fn tunnel_shift(width_of_tracks: i32) -> i32 {
    let shift = size::TUNNEL_WIDTH / 2 - size::PORT_GAP - width_of_tracks / 2;
    shift.max(0)
}

fn is_veth_to(kind: &InterfaceKind, other: &str) -> bool {
    matches!(kind, InterfaceKind::Veth { namespace, .. } if namespace == other)
}
