//! Merges the nftables tables of a namespace.
//!
//! Each rule, element, hook and policy is one difference, and so is the declaration of a set. An
//! object of both sides always exists. An object of only one side exists if it has content, or if a
//! selected rule or element refers to it. Therefore every reference has its object, whatever
//! differences are selected.
//!
//! Comments of tables, sets and chains have no effect and are no difference.

mod chain;
mod element;
mod set;
#[cfg(test)]
mod tests;

use std::collections::HashSet;

use indexmap::IndexMap;

use super::difference::Kind;
use super::graph::{DifferenceGraph, Jump, OwnerKey, Scope};
use crate::bisect::merge::Merged;
use chain::MergedChain;
use set::MergedSet;
use svclab_ruleset::nft::{References, Ruleset, Table, TableObject};

/// Merged tables of a namespace.
#[derive(Debug, Clone)]
pub struct MergedTables(Vec<MergedTable>);

#[derive(Debug, Clone)]
struct MergedTable {
    /// Table without content.
    header: Table,
    /// Whether the table exists in every subset of differences.
    always: bool,
    flags: Merged<String>,
    objects: Vec<MergedObject>,
    sets: Vec<MergedSet>,
    chains: Vec<MergedChain>,
}

/// Flow table, named counter or other object that is neither a set nor a chain.
#[derive(Debug, Clone)]
struct MergedObject {
    name: ObjectName,
    always: bool,
    object: Merged<TableObject>,
}

/// Name of an object of a table.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum ObjectName {
    Chain(String),
    Set(String),
    Other(String),
}

/// Rule or element with the objects that it refers to.
#[derive(Debug, Clone)]
struct MergedItem<T> {
    item: T,
    /// Canonical text.
    meaning: String,
    references: Vec<ObjectName>,
}

/// Table that is merged, with its namespace.
#[derive(Debug, Clone, Copy)]
struct TableContext<'t> {
    namespace: &'t str,
    /// Family and name: `ip kube-proxy`.
    table: &'t str,
}

impl MergedTables {
    /// Merges the tables of two rulesets.
    pub fn new(
        namespace: &str,
        good: &Ruleset,
        bad: &Ruleset,
        graph: &mut DifferenceGraph,
    ) -> Self {
        let tables = pairs(&good.tables, &bad.tables, Table::full_name);
        let merged = tables.into_iter().map(|(table, sides)| {
            let context = TableContext {
                namespace,
                table: &table,
            };
            context.merge(sides, graph)
        });
        Self(merged.collect())
    }

    /// Returns the tables with the differences that `with` selects.
    pub fn build(&self, with: &impl Fn(usize) -> bool) -> Ruleset {
        let tables = self.0.iter().filter_map(|table| table.build(with));
        Ruleset {
            tables: tables.collect(),
        }
    }
}

impl TableContext<'_> {
    fn scope(&self, kind: Kind, object: &str) -> Scope<'_> {
        Scope {
            namespace: self.namespace,
            kind,
            location: format!("nft {}{object}", self.table),
        }
    }

    fn merge(&self, sides: [Option<&Table>; 2], graph: &mut DifferenceGraph) -> MergedTable {
        let empty = Table::default();
        let [good, bad] = sides.map(|side| side.unwrap_or(&empty));
        let both = sides[0].zip(sides[1]);
        let flags = |side: &Table| -> Vec<String> { side.flags.clone().into_iter().collect() };
        let mut side_flags = [flags(good), flags(bad)];
        if both.is_none() {
            // The flags of a table that only one side has are no difference: the table exists only
            // with its content.
            side_flags = [side_flags.concat(), side_flags.concat()];
        }
        let describe_flags = |flags: &String| (format!("flags {flags}"), OwnerKey::Unknown);
        let scope = self.scope(Kind::Table, "");
        let flags = graph.add_keyed(
            &scope,
            &side_flags[0],
            &side_flags[1],
            |_| (),
            describe_flags,
        );
        let objects = pairs(&good.other_objects, &bad.other_objects, |object| {
            object.head.clone()
        });
        let objects = objects
            .into_iter()
            .map(|(head, sides)| self.merge_object(&head, sides, graph))
            .collect();
        let sets: Vec<MergedSet> = pairs(&good.sets, &bad.sets, |set| set.name.clone())
            .into_iter()
            .map(|(name, sides)| MergedSet::new(self, name, sides, graph))
            .collect();
        let chains: Vec<MergedChain> = pairs(&good.chains, &bad.chains, |chain| chain.name.clone())
            .into_iter()
            .map(|(name, sides)| MergedChain::new(self, name, sides, graph))
            .collect();
        for set in &sets {
            set.join_changed_declaration(&chains, graph);
        }
        let jumps: Vec<Jump<ObjectName>> = chains
            .iter()
            .flat_map(MergedChain::jumps)
            .chain(sets.iter().flat_map(MergedSet::jumps))
            .collect();
        graph.join_loops(&jumps);
        let named = sides[0].unwrap_or(bad);
        MergedTable {
            header: named.header(),
            always: both.is_some(),
            flags,
            objects,
            sets,
            chains,
        }
    }

    fn merge_object(
        &self,
        head: &str,
        sides: [Option<&TableObject>; 2],
        graph: &mut DifferenceGraph,
    ) -> MergedObject {
        let name = head.split_whitespace().last().unwrap_or_default();
        let always = sides.iter().all(Option::is_some);
        let lists = either_or_both(sides.map(Option::<&TableObject>::cloned));
        let scope = self.scope(Kind::Table, "");
        let describe = |object: &TableObject| {
            let lines = object.body.join("; ");
            (format!("{head} {{ {lines} }}"), OwnerKey::Unknown)
        };
        let object = graph.add_with_meaning(
            &scope,
            [&lists[0], &lists[1]],
            TableObject::canonical,
            |_| (),
            describe,
        );
        MergedObject {
            name: ObjectName::Other(name.to_owned()),
            always,
            object,
        }
    }
}

impl MergedTable {
    fn build(&self, with: &impl Fn(usize) -> bool) -> Option<Table> {
        let rules = self.chains.iter().flat_map(|chain| chain.references(with));
        let elements = self.sets.iter().flat_map(|set| set.references(with));
        let needed: HashSet<&ObjectName> = rules.chain(elements).collect();
        let objects = self.objects.iter().filter_map(|merged| {
            let object = merged.object.selected(with).next()?;
            (merged.always || needed.contains(&merged.name)).then(|| object.clone())
        });
        let sets = self.sets.iter().filter_map(|set| set.build(with, &needed));
        let chains = self.chains.iter();
        let chains = chains.filter_map(|chain| chain.build(with, &needed));
        let table = Table {
            flags: self.flags.selected(with).next().cloned(),
            other_objects: objects.collect(),
            sets: sets.collect(),
            chains: chains.collect(),
            ..self.header.clone()
        };
        let is_empty =
            table.other_objects.is_empty() && table.sets.is_empty() && table.chains.is_empty();
        (self.always || !is_empty).then_some(table)
    }
}

impl<T> MergedItem<T> {
    /// Creates an item. `text` contains its references.
    fn new(item: T, meaning: String, text: &str) -> Self {
        let found = References::parse(text);
        let names = |names: Vec<&str>, kind: fn(String) -> ObjectName| -> Vec<ObjectName> {
            names
                .into_iter()
                .map(|name| kind(name.to_owned()))
                .collect()
        };
        let mut references = names(found.chains, ObjectName::Chain);
        // A flow table is referred to like a set.
        references.extend(names(found.sets.clone(), ObjectName::Other));
        references.extend(names(found.sets, ObjectName::Set));
        references.extend(names(found.objects, ObjectName::Other));
        Self {
            item,
            meaning,
            references,
        }
    }
}

/// Returns the jumps of items to the chains and sets that they refer to.
fn jumps_of<T>(
    from: &ObjectName,
    items: &Merged<MergedItem<T>>,
) -> impl Iterator<Item = Jump<ObjectName>> {
    items.slots.iter().flat_map(move |slot| {
        let references = slot.item.references.iter();
        let targets = references.filter(|name| !matches!(name, ObjectName::Other(_)));
        targets.map(move |to| Jump {
            from: from.clone(),
            to: to.clone(),
            difference: slot.origin.difference(),
        })
    })
}

/// Pairs objects by name: names of the good side, then names that only the bad side has.
fn pairs<'o, T>(
    good: &'o [T],
    bad: &'o [T],
    name: impl Fn(&T) -> String,
) -> IndexMap<String, [Option<&'o T>; 2]> {
    let mut pairs: IndexMap<String, [Option<&T>; 2]> = IndexMap::new();
    for (side, objects) in [good, bad].into_iter().enumerate() {
        for object in objects {
            pairs.entry(name(object)).or_default()[side] = Some(object);
        }
    }
    pairs
}

/// Returns the object of each side as a list. An object of only one side is in both lists: its
/// existence is decided by its content and by the references to it.
fn either_or_both<T: Clone>([good, bad]: [Option<T>; 2]) -> [Vec<T>; 2] {
    let either = good.clone().or_else(|| bad.clone());
    [good, bad].map(|side| side.or_else(|| either.clone()).into_iter().collect())
}
