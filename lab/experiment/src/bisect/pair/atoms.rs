//! The differences of a pair as they are found, and which of them need each other.

use std::fmt;
use std::hash::Hash;

use crate::bisect::merge::{self, Merged};
use svclab_ruleset::ipvs::Virtual;

use super::difference::{Difference, Kind};

/// Differences in the order in which they were found.
#[derive(Debug, Clone, Default)]
pub struct Atoms {
    all: Vec<Atom>,
    /// For each, one that it goes together with; itself for the first of them.
    with: Vec<usize>,
}

/// A difference, and by what its owner is known.
#[derive(Debug, Clone)]
pub struct Atom {
    pub difference: Difference,
    pub owned: Owned,
}

/// By what the owner of something is known.
#[derive(Debug, Clone)]
pub enum Owned {
    /// By nothing.
    Nobody,
    /// A chain of a table.
    Chain { table: String, chain: String },
    /// A rule there.
    Rule {
        table: String,
        chain: String,
        rule: String,
    },
    /// A set, and an entry of it.
    Set { set: String, entry: Option<String> },
    /// A virtual server.
    Server(Virtual),
    /// An interface.
    Link(String),
}

/// Where differences are, and what they are.
#[derive(Debug, Clone)]
pub struct Where<'n> {
    pub namespace: &'n str,
    pub of: Kind,
    pub place: String,
}

impl Atoms {
    /// The number that the next one gets.
    pub fn next(&self) -> usize {
        self.all.len()
    }

    /// Adds those of two lists that were merged.
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

    /// Lays lists over each other whose order says nothing, of things that each have a name.
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

    /// Has two of them go together.
    pub fn tie(&mut self, one: usize, other: usize) {
        let (one, other) = (self.first(one), self.first(other));
        self.with[one.max(other)] = one.min(other);
    }

    /// Has all of them go together.
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

    /// All of them, and which go together: for each the number of its group, in the order
    /// of their first.
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
