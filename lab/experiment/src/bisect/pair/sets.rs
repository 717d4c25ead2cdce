//! Merges the ipsets of a namespace. A set of only one side exists if it has entries, or if a rule
//! or another set refers to it.

use std::collections::HashSet;
use std::fmt::Write as _;

use indexmap::{IndexMap, IndexSet};

use super::PairError;
use super::difference::Kind;
use super::graph::{DifferenceGraph, OwnerKey, Scope};
use crate::bisect::merge::{self, Merged};
use svclab_planner::delta::sets as restore;

/// Options whose value the kernel or `ipset` chooses when a set is created.
const AUTOMATIC_OPTIONS: [&str; 3] = ["hashsize", "bucketsize", "initval"];

/// Merged sets of a namespace.
#[derive(Debug, Clone)]
pub struct Sets {
    sets: IndexMap<String, Set>,
}

#[derive(Debug, Clone)]
struct Set {
    /// Whether the set exists in every subset of differences.
    always: bool,
    options: Merged<String>,
    entries: Merged<String>,
}

impl Sets {
    /// Merges the sets of two inputs for `ipset restore`.
    ///
    /// # Errors
    ///
    /// Returns [`PairError::Sets`] if a line is neither `create` nor `add`.
    pub fn new(
        namespace: &str,
        good: &str,
        bad: &str,
        graph: &mut DifferenceGraph,
    ) -> Result<Self, PairError> {
        let read = |text| {
            restore::parse(text).map_err(|why| PairError::Sets {
                namespace: namespace.to_owned(),
                why,
            })
        };
        let (good_sets, bad_sets) = (read(good)?, read(bad)?);
        let names: IndexSet<&str> = good_sets.keys().chain(bad_sets.keys()).copied().collect();
        let mut sets = IndexMap::new();
        for name in names {
            let set = merge_set(
                namespace,
                name,
                [good_sets.get(name), bad_sets.get(name)],
                graph,
            );
            sets.insert(name.to_owned(), set);
        }
        Ok(Self { sets })
    }

    /// Returns the input for `ipset restore` with the differences that `with` selects. `named`
    /// contains the sets that rules refer to.
    pub fn render<'s>(
        &'s self,
        with: &impl Fn(usize) -> bool,
        mut named: HashSet<&'s str>,
    ) -> String {
        for set in self.sets.values().filter(|set| set.is_set_of_sets(with)) {
            named.extend(set.entries.selected(with).map(|entry| key(entry)));
        }
        // A set of sets must follow the sets that it contains.
        let mut sorted: Vec<(&String, &Set)> = self.sets.iter().collect();
        sorted.sort_by_key(|(_, set)| set.is_set_of_sets(with));
        let mut text = String::new();
        for (name, set) in sorted {
            let entries: Vec<&String> = set.entries.selected(with).collect();
            if !set.always && entries.is_empty() && !named.contains(name.as_str()) {
                continue;
            }
            let _ = writeln!(text, "create {name} {}", set.options(with));
            for entry in entries {
                let _ = writeln!(text, "add {name} {entry}");
            }
        }
        text
    }
}

fn merge_set(
    namespace: &str,
    name: &str,
    [good, bad]: [Option<&restore::Set<'_>>; 2],
    graph: &mut DifferenceGraph,
) -> Set {
    let list_options = |side: Option<&restore::Set<'_>>| -> Vec<String> {
        side.map(|set| set.creation.to_owned())
            .into_iter()
            .collect()
    };
    let members = |side: Option<&restore::Set<'_>>| -> Vec<String> {
        let members = side.into_iter().flat_map(|set| &set.members);
        members.map(|member| (*member).to_owned()).collect()
    };
    let make_scope = |kind| Scope {
        namespace,
        kind,
        location: format!("ipset {name}"),
    };
    let always = good.is_some() && bad.is_some();
    let (good_options, bad_options) = (list_options(good), list_options(bad));
    let options = if always {
        merge::merge_keyed(
            &good_options,
            &bad_options,
            |text| meaning(text),
            |_| (),
            graph.next_index(),
        )
    } else {
        // The options of a set that only one side has are no difference: the set exists only with
        // its entries or references.
        let only: Vec<String> = good_options.iter().chain(&bad_options).cloned().collect();
        merge::merge_keyed(&only, &only, Clone::clone, |_| (), graph.next_index())
    };
    let first = graph.next_index();
    graph.add(
        &make_scope(Kind::Set),
        &options,
        &good_options,
        &bad_options,
        |text| {
            let owned = OwnerKey::Set {
                set: name.to_owned(),
                entry: None,
            };
            (format!("create {name} {text}"), owned)
        },
    );
    let (good_members, bad_members) = (members(good), members(bad));
    let entries = merge::merge_keyed(
        &good_members,
        &bad_members,
        Clone::clone,
        |entry| key(entry).to_owned(),
        graph.next_index(),
    );
    graph.add(
        &make_scope(Kind::SetEntry),
        &entries,
        &good_members,
        &bad_members,
        |entry| {
            let owned = OwnerKey::Set {
                set: name.to_owned(),
                entry: Some(entry.clone()),
            };
            (entry.clone(), owned)
        },
    );
    // Entries may not fit a set that was created with other options.
    if !options.differences.is_empty() {
        graph.join_all(first..graph.next_index());
    }
    Set {
        always,
        options,
        entries,
    }
}

impl Set {
    fn options(&self, with: &impl Fn(usize) -> bool) -> &str {
        self.options
            .selected(with)
            .next()
            .map_or("", String::as_str)
    }

    fn is_set_of_sets(&self, with: &impl Fn(usize) -> bool) -> bool {
        self.options(with).starts_with("list:")
    }
}

/// Returns an entry without its options.
fn key(entry: &str) -> &str {
    entry.split(' ').next().unwrap_or_default()
}

/// Returns the options of a set in a fixed order, without those that are chosen automatically.
fn meaning(text: &str) -> String {
    let words: Vec<&str> = text.split_whitespace().collect();
    let Some((kind, options)) = words.split_first() else {
        return String::new();
    };
    let mut groups: Vec<Vec<&str>> = Vec::new();
    for word in options {
        let begins = matches!(
            *word,
            "family"
                | "range"
                | "hashsize"
                | "maxelem"
                | "bucketsize"
                | "initval"
                | "netmask"
                | "bitmask"
                | "markmask"
                | "timeout"
                | "size"
                | "counters"
                | "comment"
                | "skbinfo"
                | "forceadd"
        );
        match groups.last_mut() {
            Some(last) if !begins => last.push(word),
            _ => groups.push(vec![word]),
        }
    }
    groups.retain(|option| !AUTOMATIC_OPTIONS.contains(&option[0]));
    groups.sort_unstable();
    format!("{kind} {groups:?}")
}
