//! Compares ipsets without regard to the order of entries.

use super::super::difference::{Change, Place, Side};
use super::super::lists::{self, Item};
use super::{Comparison, names, value};
use svclab_ruleset::ipset::saved::{Entry, Set, Sets};

/// Options that the kernel or the program chooses when a set is created.
const PICKED: [&str; 3] = ["hashsize", "bucketsize", "initval"];

/// Options of an entry that change by themselves.
const COUNTED: [&str; 3] = ["packets", "bytes", "timeout"];

pub(super) fn compare(to: &mut Comparison<'_>, first: &Sets, second: &Sets) {
    for name in names(first.keys(), second.keys()) {
        let changes = match (first.get(name), second.get(name)) {
            (Some(a), Some(b)) => both(a, b),
            (Some(set), None) => whole(set, Side::First),
            (None, Some(set)) => whole(set, Side::Second),
            (None, None) => continue,
        };
        for change in changes {
            let entry = match &change {
                Change::Item { item, .. } | Change::Moved { item, .. } => Some(item.as_str()),
                _ => None,
            };
            let owner = to.owners().of_set(name, entry);
            let place = Place::Set { name: name.clone() };
            to.differ(place, change, owner);
        }
    }
}

fn whole(set: &Set, only: Side) -> Vec<Change> {
    let line = set.line;
    let entries = set.entries.iter().map(|(entry, carried)| Change::Item {
        only,
        item: written(entry, carried),
        line: carried.line,
    });
    std::iter::once(Change::Whole { only, line })
        .chain(entries)
        .collect()
}

fn both(first: &Set, second: &Set) -> Vec<Change> {
    let mut changes = Vec::new();
    changes.extend(value("type", Some(&first.kind), Some(&second.kind)));
    let options = |set: &Set| -> Vec<String> {
        let names = set.options.0.iter().map(|option| option.name.to_string());
        names
            .filter(|name| !PICKED.contains(&name.as_str()))
            .collect()
    };
    let (one, other) = (options(first), options(second));
    for name in names(one.iter(), other.iter()) {
        let said = |set: &Set| {
            let flag = || set.options.has(name).then(|| "yes".to_owned());
            let said = set.options.get(name).map(str::to_owned);
            said.or_else(flag).or_else(|| default(set, name))
        };
        changes.extend(value(name, said(first).as_deref(), said(second).as_deref()));
    }
    let ordered = first.kind.starts_with("list:");
    changes.extend(lists::compare(
        &items(first, ordered),
        &items(second, ordered),
    ));
    changes
}

/// Returns the value that `ipset` prints for an option that was not given (ipset 7.17).
fn default(set: &Set, name: &str) -> Option<String> {
    let hash = set.kind.starts_with("hash:");
    let value = match name {
        "family" => "inet",
        "maxelem" => "65536",
        _ => return None,
    };
    hash.then(|| value.to_owned())
}

fn items(set: &Set, ordered: bool) -> Vec<Item> {
    let mut items: Vec<Item> = set
        .entries
        .iter()
        .map(|(entry, carried)| {
            let times_out = if carried.options.has("timeout") {
                " timeout"
            } else {
                ""
            };
            Item {
                key: format!("{entry} {}{times_out}", carried.options.canonical(&COUNTED)),
                written: written(entry, carried),
                line: carried.line,
            }
        })
        .collect();
    if !ordered {
        items.sort_by(|a, b| a.key.cmp(&b.key));
    }
    items
}

fn written(entry: &str, carried: &Entry) -> String {
    format!("{entry} {}", carried.options.canonical(&COUNTED))
        .trim_end()
        .to_owned()
}
