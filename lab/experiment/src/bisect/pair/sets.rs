//! Merges the ipsets of a namespace. A set of only one side exists if it has entries, or if a rule
//! or another set refers to it.

use std::collections::HashSet;
use std::fmt::Write as _;

use indexmap::{IndexMap, IndexSet};

use super::PairError;
use super::atoms::{Atoms, Owned, Where};
use super::difference::Kind;
use crate::bisect::merge::{self, Merged};
use svclab_planner::delta::sets as restore;

/// Options whose value the kernel or `ipset` chooses when a set is created.
const PICKED: [&str; 3] = ["hashsize", "bucketsize", "initval"];

/// Merged sets of a namespace.
#[derive(Debug, Clone)]
pub struct Sets {
    sets: IndexMap<String, Set>,
}

#[derive(Debug, Clone)]
struct Set {
    /// Whether the set exists in every subset of differences.
    always: bool,
    made: Merged<String>,
    entries: Merged<String>,
}

impl Sets {
    /// Merges the sets of two inputs for `ipset restore`.
    ///
    /// # Errors
    ///
    /// Returns [`PairError::Sets`] if a line is neither `create` nor `add`.
    pub fn of(
        namespace: &str,
        good: &str,
        bad: &str,
        atoms: &mut Atoms,
    ) -> Result<Self, PairError> {
        let read = |text| {
            restore::read(text).map_err(|why| PairError::Sets {
                namespace: namespace.to_owned(),
                why,
            })
        };
        let (one, other) = (read(good)?, read(bad)?);
        let names: IndexSet<&str> = one.keys().chain(other.keys()).copied().collect();
        let mut sets = IndexMap::new();
        for name in names {
            let set = lay(namespace, name, [one.get(name), other.get(name)], atoms);
            sets.insert(name.to_owned(), set);
        }
        Ok(Self { sets })
    }

    /// Returns the input for `ipset restore` with the differences that `with` selects. `named`
    /// contains the sets that rules refer to.
    pub fn with<'s>(
        &'s self,
        with: &impl Fn(usize) -> bool,
        mut named: HashSet<&'s str>,
    ) -> String {
        for set in self.sets.values().filter(|set| set.of_sets(with)) {
            named.extend(set.entries.with(with).map(|entry| key(entry)));
        }
        // A set of sets must follow the sets that it contains.
        let mut all: Vec<(&String, &Set)> = self.sets.iter().collect();
        all.sort_by_key(|(_, set)| set.of_sets(with));
        let mut text = String::new();
        for (name, set) in all {
            let entries: Vec<&String> = set.entries.with(with).collect();
            if !set.always && entries.is_empty() && !named.contains(name.as_str()) {
                continue;
            }
            let _ = writeln!(text, "create {name} {}", set.made(with));
            for entry in entries {
                let _ = writeln!(text, "add {name} {entry}");
            }
        }
        text
    }
}

fn lay(
    namespace: &str,
    name: &str,
    [good, bad]: [Option<&restore::Set<'_>>; 2],
    atoms: &mut Atoms,
) -> Set {
    let made = |side: Option<&restore::Set<'_>>| -> Vec<String> {
        side.map(|set| set.made.to_owned()).into_iter().collect()
    };
    let members = |side: Option<&restore::Set<'_>>| -> Vec<String> {
        let members = side.into_iter().flat_map(|set| &set.members);
        members.map(|member| (*member).to_owned()).collect()
    };
    let place = |of| Where {
        namespace,
        of,
        place: format!("ipset {name}"),
    };
    let always = good.is_some() && bad.is_some();
    let (one, other) = (made(good), made(bad));
    let made = if always {
        merge::keyed(&one, &other, |made| meaning(made), |_| (), atoms.next())
    } else {
        // The options of a set that only one side has are no difference: the set exists only with
        // its entries or references.
        let only: Vec<String> = one.iter().chain(&other).cloned().collect();
        merge::keyed(&only, &only, Clone::clone, |_| (), atoms.next())
    };
    let first = atoms.next();
    atoms.add(&place(Kind::Set), &made, &one, &other, |made| {
        let owned = Owned::Set {
            set: name.to_owned(),
            entry: None,
        };
        (format!("create {name} {made}"), owned)
    });
    let (one, other) = (members(good), members(bad));
    let entries = merge::keyed(
        &one,
        &other,
        Clone::clone,
        |entry| key(entry).to_owned(),
        atoms.next(),
    );
    atoms.add(&place(Kind::SetEntry), &entries, &one, &other, |entry| {
        let owned = Owned::Set {
            set: name.to_owned(),
            entry: Some(entry.clone()),
        };
        (entry.clone(), owned)
    });
    // Entries may not fit a set that was created with other options.
    if !made.differences.is_empty() {
        atoms.tie_all(first..atoms.next());
    }
    Set {
        always,
        made,
        entries,
    }
}

impl Set {
    fn made(&self, with: &impl Fn(usize) -> bool) -> &str {
        self.made.with(with).next().map_or("", String::as_str)
    }

    fn of_sets(&self, with: &impl Fn(usize) -> bool) -> bool {
        self.made(with).starts_with("list:")
    }
}

/// Returns an entry without its options.
fn key(entry: &str) -> &str {
    entry.split(' ').next().unwrap_or_default()
}

/// Returns the options of a set in a fixed order, without those that are chosen automatically.
fn meaning(made: &str) -> String {
    let words: Vec<&str> = made.split_whitespace().collect();
    let Some((kind, options)) = words.split_first() else {
        return String::new();
    };
    let mut all: Vec<Vec<&str>> = Vec::new();
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
        match all.last_mut() {
            Some(last) if !begins => last.push(word),
            _ => all.push(vec![word]),
        }
    }
    all.retain(|option| !PICKED.contains(&option[0]));
    all.sort_unstable();
    format!("{kind} {all:?}")
}
