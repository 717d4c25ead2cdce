//! Collects the differences of a pair and which of them depend on each other.

use std::fmt;
use std::hash::Hash;

use crate::bisect::merge::{self, Merged};
use svclab_ruleset::ipvs::Virtual;

use super::difference::{Difference, Kind};

/// Differences in the order in which they were found.
#[derive(Debug, Clone, Default)]
pub struct Atoms {
    all: Vec<Atom>,
    /// Union-find parents: the index of an atom that depends on this one, or its own index for the
    /// first of a group.
    with: Vec<usize>,
}

/// Difference and the key of its owner.
#[derive(Debug, Clone)]
pub struct Atom {
    pub difference: Difference,
    pub owned: Owned,
}

/// Key by which the owner of an object is found.
#[derive(Debug, Clone)]
pub enum Owned {
    /// No owner can be found.
    Nobody,
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
    Server(Virtual),
    /// Interface.
    Link(String),
}

/// Location and kind of differences.
#[derive(Debug, Clone)]
pub struct Where<'n> {
    pub namespace: &'n str,
    pub of: Kind,
    pub place: String,
}

impl Atoms {
    /// Returns the index that the next difference will have.
    pub fn next(&self) -> usize {
        self.all.len()
    }

    /// Adds the differences of two merged lists.
    pub fn add<T>(
        &mut self,
        place: &Where<'_>,
        merged: &Merged<T>,
        good: &[T],
        bad: &[T],
        told: impl Fn(&T) -> (String, Owned),
    ) {
        for (at, there) in &merged.differences {
            let one = at.map(|at| told(&good[at]));
            let other = there.map(|there| told(&bad[there]));
            let (good, by_good) = one.unzip();
            let (bad, by_bad) = other.unzip();
            self.push(Atom {
                difference: Difference {
                    namespace: place.namespace.to_owned(),
                    of: place.of,
                    place: place.place.clone(),
                    good,
                    bad,
                    owner: None,
                },
                owned: by_bad.or(by_good).unwrap_or(Owned::Nobody),
            });
        }
    }

    /// Merges lists whose order does not matter and whose items have unique names, and adds their
    /// differences.
    pub fn keyed<T: Clone + fmt::Debug, N: Eq + Hash>(
        &mut self,
        place: &Where<'_>,
        good: &[T],
        bad: &[T],
        name: impl Fn(&T) -> N,
        told: impl Fn(&T) -> (String, Owned),
    ) -> Merged<T> {
        let meaning = |item: &T| format!("{item:?}");
        let merged = merge::keyed(good, bad, meaning, name, self.next());
        self.add(place, &merged, good, bad, told);
        merged
    }

    fn push(&mut self, atom: Atom) {
        self.with.push(self.all.len());
        self.all.push(atom);
    }

    /// Joins two differences into one group.
    pub fn tie(&mut self, one: usize, other: usize) {
        let (one, other) = (self.first(one), self.first(other));
        self.with[one.max(other)] = one.min(other);
    }

    /// Joins all of these differences into one group.
    pub fn tie_all(&mut self, all: impl IntoIterator<Item = usize>) {
        let mut all = all.into_iter();
        if let Some(first) = all.next() {
            all.for_each(|other| self.tie(first, other));
        }
    }

    fn first(&self, mut at: usize) -> usize {
        while self.with[at] != at {
            at = self.with[at];
        }
        at
    }

    /// Returns all differences, the group number of each, and the number of groups. Groups are
    /// numbered in the order of their first member.
    pub fn grouped(self) -> (Vec<Atom>, Vec<usize>, usize) {
        let mut numbers = vec![usize::MAX; self.all.len()];
        let mut groups = 0;
        for at in 0..self.all.len() {
            let first = self.first(at);
            if first == at {
                numbers[at] = groups;
                groups += 1;
            } else {
                numbers[at] = numbers[first];
            }
        }
        (self.all, numbers, groups)
    }
}
