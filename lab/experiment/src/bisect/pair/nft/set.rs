//! Merges the sets and maps of an nftables table.

use std::collections::HashSet;

use super::chain::MergedChain;
use super::element::join_overlapping;
use super::{MergedItem, ObjectName, TableContext, either_or_both, jumps_of};
use crate::bisect::merge::Merged;
use crate::bisect::pair::difference::Kind;
use crate::bisect::pair::graph::{DifferenceGraph, Jump, OwnerKey};
use svclab_dump::owner::nft as nft_owner;
use svclab_ruleset::nft::{Element, Set};

/// Merged set or map.
#[derive(Debug, Clone)]
pub(super) struct MergedSet {
    name: ObjectName,
    /// Whether the set exists in every subset of differences.
    always: bool,
    /// Set without its elements.
    declaration: Merged<Set>,
    elements: Merged<MergedItem<Element>>,
}

impl MergedSet {
    pub(super) fn new(
        context: &TableContext<'_>,
        name: String,
        sides: [Option<&Set>; 2],
        graph: &mut DifferenceGraph,
    ) -> Self {
        let location = format!(" @{name}");
        let declarations = either_or_both(sides.map(|side| side.map(Set::declaration)));
        let declaration = graph.add_with_meaning(
            &context.scope(Kind::Set, &location),
            [&declarations[0], &declarations[1]],
            |set| set.canonical_declaration().to_string(),
            |_| (),
            |set| {
                let owner = nft_owner::chain_owner(context.table, &name);
                (describe(&set.canonical_declaration()), owner.into())
            },
        );
        let elements = sides.map(|side| -> Vec<MergedItem<Element>> {
            let elements = side.into_iter().flat_map(|set| &set.elements);
            let merged = elements.map(|element| {
                let value = element.value.as_deref().unwrap_or_default();
                MergedItem::new(element.clone(), element.canonical(), value)
            });
            merged.collect()
        });
        let elements = graph.add_with_meaning(
            &context.scope(Kind::SetEntry, &location),
            [&elements[0], &elements[1]],
            |element| element.meaning.clone(),
            |element| element.item.canonical_key(),
            |element| {
                let text = element.item.to_string();
                let owner = nft_owner::element_owner(context.table, &name, &text);
                (text, OwnerKey::from(owner))
            },
        );
        if let [set, ..] = declarations[0].as_slice() {
            join_overlapping(set, &elements, graph);
        }
        Self {
            name: ObjectName::Set(name),
            always: sides.iter().all(Option::is_some),
            declaration,
            elements,
        }
    }

    /// Joins a difference in the declaration with the differences of elements and of the rules that
    /// refer to the set: they may not fit a set with another type or other flags.
    pub(super) fn join_changed_declaration(
        &self,
        chains: &[MergedChain],
        graph: &mut DifferenceGraph,
    ) {
        let declarations = self.declaration.slots.iter();
        let changed: Vec<usize> = declarations
            .filter_map(|slot| slot.origin.difference())
            .collect();
        if changed.is_empty() {
            return;
        }
        let elements = self.elements.slots.iter();
        let elements = elements.filter_map(|slot| slot.origin.difference());
        let rules = chains.iter().flat_map(|chain| &chain.rules.slots);
        let rules = rules.filter(|slot| slot.item.references.contains(&self.name));
        let rules = rules.filter_map(|slot| slot.origin.difference());
        graph.join_all(changed.into_iter().chain(elements).chain(rules));
    }

    /// Returns the objects that elements refer to with the differences that `with` selects.
    pub(super) fn references(
        &self,
        with: &impl Fn(usize) -> bool,
    ) -> impl Iterator<Item = &ObjectName> {
        let elements = self.elements.selected(with);
        elements.flat_map(|element| &element.references)
    }

    pub(super) fn jumps(&self) -> impl Iterator<Item = Jump<ObjectName>> {
        jumps_of(&self.name, &self.elements)
    }

    /// Returns the set with the differences that `with` selects. `None` if it does not exist.
    pub(super) fn build(
        &self,
        with: &impl Fn(usize) -> bool,
        needed: &HashSet<&ObjectName>,
    ) -> Option<Set> {
        let elements = self.elements.selected(with);
        let elements: Vec<Element> = elements.map(|element| element.item.clone()).collect();
        if !self.always && elements.is_empty() && !needed.contains(&self.name) {
            return None;
        }
        let mut set = self.declaration.selected(with).next()?.clone();
        // A set may have the elements of both sides. The size has an effect only on rules that add
        // elements.
        let count = u64::try_from(elements.len()).unwrap_or(u64::MAX);
        if set.size.is_some_and(|size| size < count) {
            // The kernel counts both ends of an interval.
            set.size = Some(count.saturating_mul(2));
        }
        Some(Set { elements, ..set })
    }
}

/// Describes the declaration of a set in one line: `map m { type ipv4_addr : verdict }`.
fn describe(set: &Set) -> String {
    let text = set.to_string();
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    match lines.as_slice() {
        [head, properties @ .., close] => format!("{head} {} {close}", properties.join("; ")),
        _ => text,
    }
}
