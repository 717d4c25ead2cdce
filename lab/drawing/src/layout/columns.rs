//! Places nodes, pods and interfaces side by side.

use std::collections::BTreeMap;

use super::route::{Column, column_of};
use super::size;
use super::visible::Visible;
use crate::topology::{InterfaceKind, Node, Topology};

/// Horizontal positions.
#[derive(Debug, Default)]
pub struct Columns {
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
}

impl Columns {
    pub fn new(topology: &Topology, visible: &Visible<'_>) -> Self {
        let mut columns = Self::default();
        let hosts = i32::try_from(topology.hosts.len()).unwrap_or(i32::MAX);
        let balancers = topology.routers.iter().map(|router| router.balancers.len());
        let balancers = i32::try_from(balancers.max().unwrap_or(0)).unwrap_or(i32::MAX);
        let boxes = |count: i32| count * (size::POD_WIDTH + size::POD_GAP);
        let nodes: i32 = visible
            .full
            .iter()
            .map(|node| node.width() + size::NODE_GAP)
            .sum();
        let inner = [
            nodes - size::NODE_GAP,
            boxes(hosts) - size::POD_GAP,
            boxes(balancers) + size::ROUTER_TITLE + 2 * size::PADDING,
            size::MIN_WIDTH,
        ];
        let inner = inner.into_iter().max().unwrap_or(size::MIN_WIDTH);
        columns.width = inner + 2 * size::MARGIN;
        let unused = inner - (nodes - size::NODE_GAP);
        columns.place_nodes(visible, size::MARGIN + unused / 2);
        columns.place_hosts(topology, inner);
        columns.place_routers(topology);
        columns
    }

    fn place_nodes(&mut self, visible: &Visible<'_>, mut x: i32) {
        for node in &visible.full {
            let place = &node.node.place;
            self.nodes.insert(place.namespace.clone(), x);
            let boxes = node.columns();
            let count = i32::try_from(boxes.max(1)).unwrap_or(i32::MAX);
            let used = count * (size::POD_WIDTH + size::POD_GAP) - size::POD_GAP;
            let mut center = x + (node.width() - used) / 2 + size::POD_WIDTH / 2;
            for pod in &node.pods {
                self.places.insert(pod.namespace.clone(), center);
                for port in &place.interfaces {
                    if is_veth_to(&port.kind, &pod.namespace)
                        && let Some(column) = column_of(place, port)
                    {
                        self.centers.insert(column, center);
                    }
                }
                center += size::POD_WIDTH + size::POD_GAP;
            }
            self.others.insert(place.namespace.clone(), center);
            self.place_uplinks(node.node, x, node.width());
            x += node.width() + size::NODE_GAP;
        }
    }

    /// Places uplinks on the left, and tunnel devices on the right.
    fn place_uplinks(&mut self, node: &Node, x: i32, width: i32) {
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
        let mut center = x + width - size::PADDING - size::TUNNEL_WIDTH / 2;
        for column in tunnels {
            self.centers.insert(column, center);
            center -= step;
        }
        let right = center + step / 2;
        let count = i32::try_from(uplinks.len()).unwrap_or(i32::MAX);
        for (index, column) in (0..).zip(uplinks) {
            let space = (right - x) / count.max(1);
            self.centers.insert(column, x + space * index + space / 2);
        }
    }

    fn place_hosts(&mut self, topology: &Topology, inner: i32) {
        let count = i32::try_from(topology.hosts.len()).unwrap_or(i32::MAX);
        for (index, host) in (0..).zip(&topology.hosts) {
            let space = inner / count.max(1);
            let center = size::MARGIN + space * index + space / 2;
            self.places.insert(host.namespace.clone(), center);
            for interface in &host.interfaces {
                if let Some(column) = column_of(host, interface) {
                    self.centers.entry(column).or_insert(center);
                }
            }
        }
    }

    /// Places the veth pairs between routers.
    fn place_routers(&mut self, topology: &Topology) {
        let x = self.width - size::MARGIN - 3 * size::PADDING;
        for router in &topology.routers {
            for other in &topology.routers {
                let link = router.place.interface_to(&other.place.namespace);
                if let Some(column) = link.and_then(|link| column_of(&router.place, link)) {
                    self.centers.insert(column, x);
                }
            }
        }
    }

    /// Returns the left edge of a node.
    pub fn node(&self, namespace: &str) -> i32 {
        self.nodes.get(namespace).copied().unwrap_or(size::MARGIN)
    }

    /// Returns the centre of a pod or host.
    pub fn place(&self, namespace: &str) -> i32 {
        self.places.get(namespace).copied().unwrap_or(size::MARGIN)
    }

    /// Returns the centre of the list of pods that are not drawn.
    pub fn others(&self, node: &str) -> i32 {
        self.others.get(node).copied().unwrap_or(size::MARGIN)
    }

    /// Returns the centre of a column. `None` if its interface is not drawn. Processes of a node are
    /// at its left.
    pub fn center(&self, column: &Column) -> Option<i32> {
        match column {
            Column::Process { namespace } => {
                let left = self.nodes.get(namespace).copied().unwrap_or(size::MARGIN);
                Some(left + 4 * size::PADDING)
            }
            _ => self.centers.get(column).copied(),
        }
    }
}

fn is_veth_to(kind: &InterfaceKind, other: &str) -> bool {
    matches!(kind, InterfaceKind::Veth { namespace, .. } if namespace == other)
}
