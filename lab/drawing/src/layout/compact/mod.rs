//! Sizes of the compact form, for narrow screens. Its width is fixed, and the places on ways share it.

pub mod reduced;

use super::size::Sizes;
use crate::topology::{Node, Topology};

/// Width of the compact form.
const WIDTH: i32 = 348;

const MARGIN: i32 = 4;
const PADDING: i32 = 6;
const POD_GAP: i32 = 6;
const NODE_GAP: i32 = 8;
const ROUTER_TITLE: i32 = 64;

/// Largest width of a pod, host or load balancer.
const MAX_BOX: i32 = 156;

/// Returns the sizes for a topology of which all nodes and pods are drawn.
pub fn sizes(topology: &Topology) -> Sizes {
    let inner = WIDTH - 2 * MARGIN;
    let nodes = topology.nodes.len();
    let columns: usize = topology.nodes.iter().map(columns).sum();
    let [nodes, columns] = [nodes, columns].map(count);
    let gaps = (columns - nodes) * POD_GAP + nodes * 2 * PADDING + (nodes - 1).max(0) * NODE_GAP;
    let column = (inner - gaps) / columns.max(1);
    let pod_width = column.min(MAX_BOX);
    let balancers = topology.routers.iter().map(|router| router.balancers.len());
    Sizes {
        max_width: WIDTH,
        min_width: inner,
        margin: MARGIN,
        padding: PADDING,
        pod_width,
        host_width: share(inner, topology.hosts.len()),
        balancer_width: share(
            inner - 2 * PADDING - ROUTER_TITLE,
            balancers.max().unwrap_or(0),
        ),
        pod_gap: POD_GAP,
        node_gap: NODE_GAP,
        min_node_width: column,
        router_title: ROUTER_TITLE,
        tracks: (pod_width - 4 * PADDING).clamp(20, 120),
        // Several nodes are narrow.
        stack_title: if nodes > 1 { "stack" } else { "network stack" },
        has_labels: false,
    }
}

/// Returns the number of boxes side by side in a node.
fn columns(node: &Node) -> usize {
    node.pods.len().max(1)
}

/// Returns the width of a box if so many boxes share a width.
fn share(width: i32, boxes: usize) -> i32 {
    let boxes = count(boxes).max(1);
    let space = width - boxes * POD_GAP;
    (space / boxes).min(MAX_BOX)
}

fn count(number: usize) -> i32 {
    i32::try_from(number).unwrap_or(i32::MAX)
}
