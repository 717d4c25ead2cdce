//! Compares static neighbours and forwarding entries. Entries that the kernel creates and removes
//! itself are no differences, except for next hops that did not reply.

use std::collections::BTreeMap;

use super::super::difference::{DumpLocation, Owner};
use super::super::lists::{self, ListItem};
use super::super::node::NodeDump;
use super::super::owner;
use super::{Comparison, union_of_names};
use svclab_ruleset::bridge::fdb::Entry;
use svclab_ruleset::neighbour::Neighbour;

/// Items by interface, sorted: their order has no meaning.
type ByInterface<'d> = BTreeMap<&'d str, Vec<ListItem>>;

/// Compares the static neighbours of two dumps.
pub(super) fn compare(comparison: &mut Comparison<'_>) {
    let (first, second) = (
        neighbour_items(comparison.first),
        neighbour_items(comparison.second),
    );
    add_differences(comparison, &first, &second, |interface| {
        DumpLocation::Neighbours { interface }
    });
}

/// Compares the static forwarding entries of two dumps.
pub(super) fn compare_forwarding(comparison: &mut Comparison<'_>) {
    let (first, second) = (
        forwarding_items(comparison.first),
        forwarding_items(comparison.second),
    );
    add_differences(comparison, &first, &second, |interface| {
        DumpLocation::Forwarding { interface }
    });
}

fn add_differences(
    comparison: &mut Comparison<'_>,
    first: &ByInterface<'_>,
    second: &ByInterface<'_>,
    location: impl Fn(String) -> DumpLocation,
) {
    let items =
        |side: &ByInterface<'_>, interface| side.get(interface).cloned().unwrap_or_default();
    for interface in union_of_names(first.keys().copied(), second.keys().copied()) {
        let owner: Option<Owner> = owner::tunnel_owner(interface);
        let changes = lists::compare(&items(first, interface), &items(second, interface));
        for change in changes {
            let location = location(interface.to_owned());
            comparison.add_difference(location, change, owner.clone());
        }
    }
}

fn neighbour_items(dump: &NodeDump) -> ByInterface<'_> {
    let neighbours = dump.static_neighbours().chain(dump.failed_next_hops());
    by_interface(neighbours.map(|neighbour| {
        // The protocol has no effect, and neither has the order of flags.
        let mut flags = neighbour.flags.clone();
        flags.sort_unstable_by(|a, b| a.as_str().cmp(b));
        let meaning = Neighbour {
            flags,
            protocol: None,
            ..neighbour.clone()
        };
        (
            &*neighbour.dev,
            meaning.to_string(),
            neighbour.to_string(),
            neighbour.line,
        )
    }))
}

fn forwarding_items(dump: &NodeDump) -> ByInterface<'_> {
    by_interface(dump.static_forwarding().map(|entry: &Entry| {
        let text = entry.to_string();
        (&*entry.dev, text.clone(), text, entry.line)
    }))
}

fn by_interface<'d>(
    items: impl Iterator<Item = (&'d str, String, String, u32)>,
) -> ByInterface<'d> {
    let mut interfaces = ByInterface::new();
    for (interface, key, source_text, line) in items {
        let item = ListItem {
            key,
            source_text,
            line,
        };
        interfaces.entry(interface).or_default().push(item);
    }
    for items in interfaces.values_mut() {
        items.sort_by(|a, b| a.key.cmp(&b.key));
    }
    interfaces
}
