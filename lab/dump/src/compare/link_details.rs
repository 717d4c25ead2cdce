//! Compares the kinds of interfaces and their settings.

use indexmap::IndexMap;

use super::super::difference::{DumpChange, DumpLocation};
use super::super::owner;
use super::{Comparison, union_of_names, value_change};
use svclab_ruleset::link::kind::{LinkDetails, LinkKinds};

/// Compares the interfaces that both dumps have. An interface of only one dump is a difference of
/// `ip addr`.
pub(super) fn compare(comparison: &mut Comparison<'_>, first: &LinkKinds, second: &LinkKinds) {
    for (name, details) in first {
        let Some(other) = second.get(name) else {
            continue;
        };
        let kind = |details: &LinkDetails| details.kind.as_deref().map(str::to_owned);
        let (first_kind, second_kind) = (kind(details), kind(other));
        let mut changes: Vec<DumpChange> =
            value_change("kind", first_kind.as_deref(), second_kind.as_deref())
                .into_iter()
                .collect();
        if changes.is_empty() {
            let (first, second) = (details.settings(), other.settings());
            for setting in union_of_names(first.keys(), second.keys()) {
                let value = |settings: &IndexMap<&str, String>| {
                    let value = settings.get(setting)?;
                    Some(if value.is_empty() { "on" } else { value }.to_owned())
                };
                let (first, second) = (value(&first), value(&second));
                changes.extend(value_change(setting, first.as_deref(), second.as_deref()));
            }
        }
        for change in changes {
            let location = DumpLocation::Link { name: name.clone() };
            comparison.add_difference(location, change, owner::link_owner(name));
        }
    }
}
