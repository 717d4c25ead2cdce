//! Selects the nodes and pods that a drawing shows in full: those on a way, and others as long as
//! there is space. The rest are listed by name.

use std::collections::BTreeSet;

use super::size::Sizes;
use crate::topology::{Node, Place, Topology};
use crate::way::Way;

/// Maximum number of pods off the ways that a node shows.
const MAX_IDLE_PODS: usize = 2;

/// Maximum number of nodes that are shown in full.
const MAX_FULL_NODES: usize = 6;

/// Node with the pods to show.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VisibleNode<'t> {
    pub node: &'t Node,
    pub pods: Vec<&'t Place>,
    /// Titles of the pods that are not shown.
    pub other_pods: Vec<&'t str>,
    pub width: i32,
}

/// Nodes by how much of them is shown.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Visible<'t> {
    /// Nodes shown in full, in document order.
    pub full: Vec<VisibleNode<'t>>,
    /// Nodes shown as one small box each.
    pub small: Vec<&'t Node>,
}

impl VisibleNode<'_> {
    /// Number of boxes side by side: the pods, and one box that lists the others.
    pub fn columns(&self) -> usize {
        self.pods.len() + usize::from(!self.other_pods.is_empty())
    }

    fn with_width(mut self, sizes: &Sizes) -> Self {
        let columns = i32::try_from(self.columns().max(1)).unwrap_or(i32::MAX);
        let inner = columns * (sizes.pod_width + sizes.pod_gap) - sizes.pod_gap;
        self.width = inner.max(sizes.min_node_width) + 2 * sizes.padding;
        self
    }
}

/// Returns the namespaces that the ways visit.
pub fn visited(ways: &[Way]) -> BTreeSet<&str> {
    let visits = ways.iter().flat_map(|way| &way.visits);
    visits.map(|visit| visit.namespace.as_str()).collect()
}

/// Selects what to show within the largest width.
pub fn select<'t>(topology: &'t Topology, visited: &BTreeSet<&str>, sizes: &Sizes) -> Visible<'t> {
    let max_width = sizes.max_width - 2 * sizes.margin;
    let is_visited = |place: &Place| visited.contains(&*place.namespace);
    let is_needed = |node: &Node| is_visited(&node.place) || node.pods.iter().any(is_visited);
    let shown = |node: &'t Node, idle: usize| {
        let mut left = idle;
        let (pods, others): (Vec<&Place>, Vec<&Place>) = node.pods.iter().partition(|pod| {
            let is_shown = is_visited(pod) || left > 0;
            left -= usize::from(is_shown && !is_visited(pod));
            is_shown
        });
        let other_pods = others.iter().map(|pod| pod.title.as_str()).collect();
        VisibleNode {
            node,
            pods,
            other_pods,
            width: 0,
        }
        .with_width(sizes)
    };
    let width_of = |nodes: &[VisibleNode<'_>]| -> i32 {
        let full = nodes.iter().map(|node| node.width + sizes.node_gap);
        full.sum::<i32>() - sizes.node_gap
    };
    let (needed, idle): (Vec<&Node>, Vec<&Node>) =
        topology.nodes.iter().partition(|node| is_needed(node));
    let most = idle.len().min(MAX_FULL_NODES.saturating_sub(needed.len()));
    let choices = (0..=most).rev();
    let mut choices =
        choices.flat_map(|nodes| (0..=MAX_IDLE_PODS).rev().map(move |pods| (nodes, pods)));
    let visible = |(idle_nodes, idle_pods): (usize, usize)| {
        let (full, small) = idle.split_at(idle_nodes);
        let nodes = topology.nodes.iter();
        let full = nodes.filter(|node| is_needed(node) || full.contains(node));
        Visible {
            full: full.map(|node| shown(node, idle_pods)).collect(),
            small: small.to_vec(),
        }
    };
    let fits = |choice: &(usize, usize)| width_of(&visible(*choice).full) <= max_width;
    visible(choices.find(fits).unwrap_or((0, 0)))
}
