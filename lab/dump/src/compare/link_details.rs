//! Compares interfaces with their kinds and settings, as `ip -d link` prints them.

use std::collections::BTreeSet;

use super::super::difference::{DumpChange, DumpLocation, Side};
use super::super::owner;
use super::{Comparison, links, union_of_names, value_change};
use svclab_ruleset::interface_settings::Settings;
use svclab_ruleset::link::kind::{LinkDetails, LinkKinds};

/// Compares the interfaces. Differences that the comparison of `ip addr` has found are not repeated.
pub(super) fn compare(comparison: &mut Comparison<'_>, first: &LinkKinds, second: &LinkKinds) {
    let addresses = [&comparison.first.links, &comparison.second.links];
    let [first_links, second_links] = addresses.map(Option::as_ref);
    for name in union_of_names(first.keys(), second.keys()) {
        // Another output shows the interface if a command has printed only some interfaces.
        let has_link = |links: Option<&svclab_ruleset::link::Links>| {
            links.is_some_and(|links| links.contains_key(name))
        };
        let changes = match (first.get(name), second.get(name)) {
            (Some(a), Some(b)) => {
                let mut changes = links::heading_changes(&a.link, &b.link);
                changes.extend(detail_changes(a, b));
                changes
            }
            (Some(link), None) if !has_link(second_links) => {
                links::whole_link_changes(&link.link, Side::First)
            }
            (None, Some(link)) if !has_link(first_links) => {
                links::whole_link_changes(&link.link, Side::Second)
            }
            _ => continue,
        };
        let location = DumpLocation::Link { name: name.clone() };
        for change in changes {
            if !comparison.has_difference(&location, &change) {
                comparison.add_difference(location.clone(), change, owner::link_owner(name));
            }
        }
    }
}

/// Returns the changes of the kind, the settings and the further lines of an interface.
pub(crate) fn detail_changes(first: &LinkDetails, second: &LinkDetails) -> Vec<DumpChange> {
    let mut changes = Vec::new();
    if first.is_detailed && second.is_detailed {
        changes.extend(value_change(
            "kind",
            first.kind.as_deref(),
            second.kind.as_deref(),
        ));
        if changes.is_empty() {
            changes.extend(setting_changes(&first.settings(), &second.settings(), true));
        }
        let port = |details: &LinkDetails| details.port.as_ref().map(|(kind, _)| kind.to_string());
        let (first_port, second_port) = (port(first), port(second));
        changes.extend(value_change(
            "kind of port",
            first_port.as_deref(),
            second_port.as_deref(),
        ));
        if first_port == second_port {
            let (first, second) = (first.port_settings(), second.port_settings());
            changes.extend(setting_changes(&first, &second, true));
        }
        let (first, second) = (first.common_settings(), second.common_settings());
        changes.extend(setting_changes(&first, &second, false));
    }
    changes.extend(line_changes(first, second));
    changes
}

/// Returns the changes of settings. `is_complete` states whether a setting that is not printed is
/// not set.
fn setting_changes(
    first: &Settings<'_>,
    second: &Settings<'_>,
    is_complete: bool,
) -> Vec<DumpChange> {
    let names = union_of_names(first.keys(), second.keys());
    let names = names
        .into_iter()
        .filter(|name| is_complete || (first.contains_key(*name) && second.contains_key(*name)));
    let value = |settings: &Settings<'_>, name: &str| {
        let value = settings.get(name)?;
        Some(if value.is_empty() { "on" } else { value }.to_owned())
    };
    let changes = names.filter_map(|name| {
        let (first, second) = (value(first, name), value(second, name));
        value_change(name, first.as_deref(), second.as_deref())
    });
    changes.collect()
}

/// Returns the lines of virtual functions, programs and other objects that only one of the outputs
/// has.
fn line_changes(first: &LinkDetails, second: &LinkDetails) -> Vec<DumpChange> {
    let lines = |details: &LinkDetails| -> BTreeSet<String> {
        let lines = details.other_lines.iter();
        lines.map(|line| significant_words(line)).collect()
    };
    let (first_lines, second_lines) = (lines(first), lines(second));
    let changes = |lines: &BTreeSet<String>, other: &BTreeSet<String>, only, line| {
        let items = lines.difference(other).cloned();
        let changes = items.map(|item| DumpChange::Item { only, item, line });
        changes.collect::<Vec<_>>()
    };
    let mut all = changes(&first_lines, &second_lines, Side::First, first.line);
    all.extend(changes(
        &second_lines,
        &first_lines,
        Side::Second,
        second.line,
    ));
    all
}

/// Returns a line without what differs on every node: the number, load time and user of a program,
/// and the hardware address of a virtual function.
fn significant_words(line: &str) -> String {
    let mut words = line.split_ascii_whitespace().peekable();
    let is_program = line.starts_with("prog/");
    let mut kept = Vec::new();
    while let Some(word) = words.next() {
        let is_number = matches!(word, "id" | "load_time" | "created_by_uid" | "btf_id");
        if is_program && is_number {
            words.next();
        } else if word.starts_with("link/") {
            kept.push(word);
            // The comma after the address ends the first part.
            if words.peek().is_some_and(|address| address.contains(':'))
                && words.next().is_some_and(|address| address.ends_with(','))
            {
                kept.push(",");
            }
        } else {
            kept.push(word);
        }
    }
    kept.join(" ")
}
