//! Compares ipsets without regard to the order of entries.

use super::super::difference::{DumpChange, DumpLocation, Side};
use super::super::lists::{self, ListItem};
use super::{Comparison, union_of_names, value_change};
use svclab_ruleset::ipset::saved::{EntryOptions, SavedSet, Sets};

/// Options that the kernel or the program chooses when a set is created.
const GENERATED_OPTIONS: [&str; 3] = ["hashsize", "bucketsize", "initval"];

/// Options of an entry that change by themselves.
const VOLATILE_OPTIONS: [&str; 3] = ["packets", "bytes", "timeout"];

pub(super) fn compare(comparison: &mut Comparison<'_>, first: &Sets, second: &Sets) {
    for name in union_of_names(first.keys(), second.keys()) {
        let changes = match (first.get(name), second.get(name)) {
            (Some(a), Some(b)) => set_changes(a, b),
            (Some(set), None) => whole_set_changes(set, Side::First),
            (None, Some(set)) => whole_set_changes(set, Side::Second),
            (None, None) => continue,
        };
        for change in changes {
            let entry = match &change {
                DumpChange::Item { item, .. } | DumpChange::Moved { item, .. } => {
                    Some(item.as_str())
                }
                _ => None,
            };
            let owner = comparison.owners().set_owner(name, entry);
            let place = DumpLocation::Set { name: name.clone() };
            comparison.add_difference(place, change, owner);
        }
    }
}

fn whole_set_changes(set: &SavedSet, only: Side) -> Vec<DumpChange> {
    let line = set.line;
    let entries = set.entries.iter().map(|(entry, details)| DumpChange::Item {
        only,
        item: render_entry(entry, details),
        line: details.line,
    });
    std::iter::once(DumpChange::Whole { only, line })
        .chain(entries)
        .collect()
}

fn set_changes(first: &SavedSet, second: &SavedSet) -> Vec<DumpChange> {
    let mut changes = Vec::new();
    changes.extend(value_change("type", Some(&first.kind), Some(&second.kind)));
    let options = |set: &SavedSet| -> Vec<String> {
        let names = set.options.0.iter().map(|option| option.name.to_string());
        names
            .filter(|name| !GENERATED_OPTIONS.contains(&name.as_str()))
            .collect()
    };
    let (first_names, second_names) = (options(first), options(second));
    for name in union_of_names(first_names.iter(), second_names.iter()) {
        let option_value = |set: &SavedSet| {
            let flag = || set.options.has(name).then(|| "yes".to_owned());
            let value = set.options.get(name).map(str::to_owned);
            value.or_else(flag).or_else(|| default_option(set, name))
        };
        changes.extend(value_change(
            name,
            option_value(first).as_deref(),
            option_value(second).as_deref(),
        ));
    }
    let ordered = first.kind.starts_with("list:");
    changes.extend(lists::compare(
        &entry_items(first, ordered),
        &entry_items(second, ordered),
    ));
    changes
}

/// Returns the value that `ipset` prints for an option that was not given (ipset 7.17).
fn default_option(set: &SavedSet, name: &str) -> Option<String> {
    let hash = set.kind.starts_with("hash:");
    let value = match name {
        "family" => "inet",
        "maxelem" => "65536",
        _ => return None,
    };
    hash.then(|| value.to_owned())
}

fn entry_items(set: &SavedSet, ordered: bool) -> Vec<ListItem> {
    let mut items: Vec<ListItem> = set
        .entries
        .iter()
        .map(|(entry, details)| {
            // An entry with the timeout 0 stays (Linux v6.12, `ip_set_timeout_set` in
            // `include/linux/netfilter/ipset/ip_set.h`).
            let timeout = details.options.get("timeout");
            let times_out = match timeout {
                None | Some("0") => "",
                Some(_) => " timeout",
            };
            ListItem {
                key: format!(
                    "{entry} {}{times_out}",
                    details.options.canonical(&VOLATILE_OPTIONS)
                ),
                source_text: render_entry(entry, details),
                line: details.line,
            }
        })
        .collect();
    if !ordered {
        items.sort_by(|a, b| a.key.cmp(&b.key));
    }
    items
}

fn render_entry(entry: &str, details: &EntryOptions) -> String {
    format!("{entry} {}", details.options.canonical(&VOLATILE_OPTIONS))
        .trim_end()
        .to_owned()
}
