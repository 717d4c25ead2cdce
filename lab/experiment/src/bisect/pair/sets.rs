//! Merges the ipsets of a namespace. A set of only one side exists if it has entries, or if a rule
//! or another set refers to it.

use std::collections::HashSet;

use indexmap::{IndexMap, IndexSet};

use super::PairError;
use super::difference::Kind;
use super::graph::{DifferenceGraph, OwnerKey, Scope};
use crate::bisect::merge::{self, Merged};
use svclab_ruleset::input::Input;
use svclab_ruleset::ipset::saved::{EntryOptions, SavedSet, Sets};

/// Options whose value the kernel or `ipset` chooses when a set is created.
const AUTOMATIC_OPTIONS: [&str; 3] = ["hashsize", "bucketsize", "initval"];

/// Merged sets of a namespace.
#[derive(Debug, Clone)]
pub struct MergedSets {
    sets: IndexMap<String, MergedSet>,
}

#[derive(Debug, Clone)]
struct MergedSet {
    /// Whether the set exists in every subset of differences.
    always: bool,
    /// Set without its entries.
    empty: Merged<SavedSet>,
    entries: Merged<Entry>,
}

type Entry = (String, EntryOptions);

impl MergedSets {
    /// Merges the sets of two inputs for `ipset restore`.
    ///
    /// # Errors
    ///
    /// Returns [`PairError::Sets`] if a line is neither `create` nor `add`.
    pub fn new(
        namespace: &str,
        good: &Input<Sets>,
        bad: &Input<Sets>,
        graph: &mut DifferenceGraph,
    ) -> Result<Self, PairError> {
        let unreadable = |error: svclab_ruleset::input::InputError| PairError::Sets {
            namespace: namespace.to_owned(),
            why: error.to_string(),
        };
        let good = good.state().map_err(unreadable)?;
        let bad = bad.state().map_err(unreadable)?;
        let names: IndexSet<&String> = good.keys().chain(bad.keys()).collect();
        let merged = names.into_iter().map(|name| {
            let set = merge_set(namespace, name, [good.get(name), bad.get(name)], graph);
            (name.clone(), set)
        });
        Ok(Self {
            sets: merged.collect(),
        })
    }

    /// Returns the sets with the differences that `with` selects. `named` contains the sets that
    /// rules refer to.
    pub fn build<'s>(&'s self, with: &impl Fn(usize) -> bool, mut named: HashSet<&'s str>) -> Sets {
        for set in self.sets.values().filter(|set| set.is_set_of_sets(with)) {
            named.extend(set.entries.selected(with).map(|(entry, _)| entry.as_str()));
        }
        // A set of sets must follow the sets that it contains.
        let mut sorted: Vec<(&String, &MergedSet)> = self.sets.iter().collect();
        sorted.sort_by_key(|(_, set)| set.is_set_of_sets(with));
        let mut sets = Sets::new();
        for (name, merged) in sorted {
            let entries: IndexMap<_, _> = merged.entries.selected(with).cloned().collect();
            let exists = merged.always || !entries.is_empty() || named.contains(name.as_str());
            if let Some(empty) = merged.empty.selected(with).next()
                && exists
            {
                let set = SavedSet {
                    entries,
                    ..empty.clone()
                };
                sets.insert(name.clone(), set);
            }
        }
        sets
    }
}

fn merge_set(
    namespace: &str,
    name: &str,
    [good, bad]: [Option<&SavedSet>; 2],
    graph: &mut DifferenceGraph,
) -> MergedSet {
    let without_entries = |side: Option<&SavedSet>| -> Vec<SavedSet> {
        let set = side.map(|set| SavedSet {
            entries: IndexMap::new(),
            ..set.clone()
        });
        set.into_iter().collect()
    };
    let entries_of = |side: Option<&SavedSet>| -> Vec<Entry> {
        let entries = side.into_iter().flat_map(|set| &set.entries);
        entries
            .map(|(entry, options)| (entry.clone(), options.clone()))
            .collect()
    };
    let make_scope = |kind| Scope {
        namespace,
        kind,
        location: format!("ipset {name}"),
    };
    let always = good.is_some() && bad.is_some();
    let (good_empty, bad_empty) = (without_entries(good), without_entries(bad));
    let empty = if always {
        let meaning =
            |set: &SavedSet| format!("{} {}", set.kind, set.options.canonical(&AUTOMATIC_OPTIONS));
        merge::merge_keyed(&good_empty, &bad_empty, meaning, |_| (), graph.next_index())
    } else {
        // The options of a set that only one side has are no difference: the set exists only with
        // its entries or references.
        let only: Vec<SavedSet> = good_empty.iter().chain(&bad_empty).cloned().collect();
        merge::merge_keyed(&only, &only, SavedSet::creation, |_| (), graph.next_index())
    };
    let first = graph.next_index();
    graph.add(
        &make_scope(Kind::Set),
        &empty,
        &good_empty,
        &bad_empty,
        |set| {
            let owned = OwnerKey::Set {
                set: name.to_owned(),
                entry: None,
            };
            (format!("create {name} {}", set.creation()), owned)
        },
    );
    let (good_entries, bad_entries) = (entries_of(good), entries_of(bad));
    let text = |(entry, options): &Entry| format!("{entry}{}", options.suffix());
    let entries = merge::merge_keyed(
        &good_entries,
        &bad_entries,
        text,
        |(entry, _)| entry.clone(),
        graph.next_index(),
    );
    graph.add(
        &make_scope(Kind::SetEntry),
        &entries,
        &good_entries,
        &bad_entries,
        |entry| {
            let owned = OwnerKey::Set {
                set: name.to_owned(),
                entry: Some(text(entry)),
            };
            (text(entry), owned)
        },
    );
    // Entries may not fit a set that was created with other options.
    if !empty.differences.is_empty() {
        graph.join_all(first..graph.next_index());
    }
    MergedSet {
        always,
        empty,
        entries,
    }
}

impl MergedSet {
    fn is_set_of_sets(&self, with: &impl Fn(usize) -> bool) -> bool {
        let mut selected = self.empty.selected(with);
        selected
            .next()
            .is_some_and(|set| set.kind.starts_with("list:"))
    }
}
