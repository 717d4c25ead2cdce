//! Collects the differences of a pair and which of them depend on each other.

use std::collections::HashSet;
use std::fmt;
use std::hash::Hash;

use crate::bisect::merge::{self, Merged};
use svclab_dump::Owner;
use svclab_ruleset::ipvs::VirtualServerKey;

use super::difference::{Difference, Kind};

/// Differences in the order in which they were found.
#[derive(Debug, Clone, Default)]
pub struct DifferenceGraph {
    nodes: Vec<DifferenceNode>,
    /// Union-find parents: the index of a node that depends on this one, or its own index for the
    /// first of a group.
    parents: Vec<usize>,
}

/// Difference and the key of its owner.
#[derive(Debug, Clone)]
pub struct DifferenceNode {
    pub difference: Difference,
    pub owner_key: OwnerKey,
}

/// Key by which the owner of an object is found.
#[derive(Debug, Clone)]
pub enum OwnerKey {
    /// No owner can be found.
    Unknown,
    /// Chain of a table.
    Chain { table: String, chain: String },
    /// Rule of a chain.
    Rule {
        table: String,
        chain: String,
        rule: String,
    },
    /// Set or set entry.
    Set { set: String, entry: Option<String> },
    /// Virtual server.
    Server(VirtualServerKey),
    /// Interface.
    Link(String),
    /// Neighbour or forwarding entry of an interface.
    Tunnel(String),
    /// Known owner.
    Known(Owner),
}

impl From<Option<Owner>> for OwnerKey {
    fn from(owner: Option<Owner>) -> Self {
        owner.map_or(Self::Unknown, Self::Known)
    }
}

/// Jump from one object to another, such as from a chain to a chain.
#[derive(Debug, Clone)]
pub struct Jump<N> {
    pub from: N,
    pub to: N,
    /// Difference that decides about the jump. `None` if both sides have it.
    pub difference: Option<usize>,
}

/// Location and kind of differences.
#[derive(Debug, Clone)]
pub struct Scope<'n> {
    pub namespace: &'n str,
    pub kind: Kind,
    pub location: String,
}

impl DifferenceGraph {
    /// Returns the index that the next difference will have.
    pub fn next_index(&self) -> usize {
        self.nodes.len()
    }

    /// Adds the differences of two merged lists.
    pub fn add<T>(
        &mut self,
        scope: &Scope<'_>,
        merged: &Merged<T>,
        good: &[T],
        bad: &[T],
        describe: impl Fn(&T) -> (String, OwnerKey),
    ) {
        for (good_index, bad_index) in &merged.differences {
            let good_item = good_index.map(|index| describe(&good[index]));
            let bad_item = bad_index.map(|index| describe(&bad[index]));
            let (good, by_good) = good_item.unzip();
            let (bad, by_bad) = bad_item.unzip();
            self.push(DifferenceNode {
                difference: Difference {
                    namespace: scope.namespace.to_owned(),
                    kind: scope.kind,
                    location: scope.location.clone(),
                    good,
                    bad,
                    owner: None,
                },
                owner_key: by_bad.or(by_good).unwrap_or(OwnerKey::Unknown),
            });
        }
    }

    /// Merges lists whose order does not matter and whose items have unique names, and adds their
    /// differences.
    pub fn add_keyed<T: Clone + fmt::Debug, N: Eq + Hash>(
        &mut self,
        scope: &Scope<'_>,
        good: &[T],
        bad: &[T],
        name: impl Fn(&T) -> N,
        describe: impl Fn(&T) -> (String, OwnerKey),
    ) -> Merged<T> {
        let meaning = |item: &T| format!("{item:?}");
        self.add_with_meaning(scope, [good, bad], meaning, name, describe)
    }

    /// Merges lists like [`Self::add_keyed`]. Items with equal meaning do not differ.
    pub fn add_with_meaning<T: Clone, M: Eq + Hash, N: Eq + Hash>(
        &mut self,
        scope: &Scope<'_>,
        [good, bad]: [&[T]; 2],
        meaning: impl Fn(&T) -> M,
        name: impl Fn(&T) -> N,
        describe: impl Fn(&T) -> (String, OwnerKey),
    ) -> Merged<T> {
        let merged = merge::merge_keyed(good, bad, meaning, name, self.next_index());
        self.add(scope, &merged, good, bad, describe);
        merged
    }

    fn push(&mut self, node: DifferenceNode) {
        self.parents.push(self.nodes.len());
        self.nodes.push(node);
    }

    /// Joins two differences into one group.
    pub fn join(&mut self, left: usize, right: usize) {
        let (left, right) = (self.find_root(left), self.find_root(right));
        self.parents[left.max(right)] = left.min(right);
    }

    /// Joins all of these differences into one group.
    pub fn join_all(&mut self, indices: impl IntoIterator<Item = usize>) {
        let mut indices = indices.into_iter();
        if let Some(first) = indices.next() {
            indices.for_each(|index| self.join(first, index));
        }
    }

    /// Joins all differences whose jumps could form a loop with only some of them selected. The
    /// kernel rejects such rules.
    pub fn join_loops<N: Eq + Hash>(&mut self, jumps: &[Jump<N>]) {
        let mut remaining: Vec<&Jump<N>> = jumps.iter().collect();
        // Repeatedly removes jumps to objects that have no jump, and jumps from objects to which
        // nothing jumps. Only loops, and jumps between loops, are left.
        loop {
            let before = remaining.len();
            let sources: HashSet<&N> = remaining.iter().map(|jump| &jump.from).collect();
            let targets: HashSet<&N> = remaining.iter().map(|jump| &jump.to).collect();
            remaining.retain(|jump| targets.contains(&jump.from) && sources.contains(&jump.to));
            if remaining.len() == before {
                break;
            }
        }
        self.join_all(remaining.into_iter().filter_map(|jump| jump.difference));
    }

    fn find_root(&self, mut index: usize) -> usize {
        while self.parents[index] != index {
            index = self.parents[index];
        }
        index
    }

    /// Returns all differences, the group number of each, and the number of groups. Groups are
    /// numbered in the order of their first member.
    pub fn into_groups(self) -> (Vec<DifferenceNode>, Vec<usize>, usize) {
        let mut numbers = vec![usize::MAX; self.nodes.len()];
        let mut groups = 0;
        for index in 0..self.nodes.len() {
            let first = self.find_root(index);
            if first == index {
                numbers[index] = groups;
                groups += 1;
            } else {
                numbers[index] = numbers[first];
            }
        }
        (self.nodes, numbers, groups)
    }
}
