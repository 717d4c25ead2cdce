//! Changes a ruleset: removals, and additions of declared objects.

use std::collections::{HashMap, HashSet};
use std::fmt;

use serde::{Deserialize, Serialize};

use super::{Chain, Element, Hook, Ruleset, Table, TableObject};

/// Removal of an object, or of the content of a chain. Renders itself as a command for `nft -f`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "of", rename_all = "camelCase")]
pub enum Removal {
    /// Table with everything in it.
    Table {
        /// Family and name: `ip kube-proxy`.
        table: String,
    },
    /// Rules of a chain. The chain remains.
    Rules {
        /// Family and name of the table.
        table: String,
        /// Name of the chain.
        chain: String,
    },
    /// Empty chain.
    Chain {
        /// Family and name of the table.
        table: String,
        /// Name of the chain.
        chain: String,
    },
    /// Set or map.
    Set {
        /// Family and name of the table.
        table: String,
        /// Name of the set or map.
        set: String,
    },
    /// Element of a set or map.
    Element {
        /// Family and name of the table.
        table: String,
        /// Name of the set or map.
        set: String,
        /// Key of the element, without options.
        key: String,
    },
}

impl fmt::Display for Removal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Table { table } => write!(f, "delete table {table}"),
            Self::Rules { table, chain } => write!(f, "flush chain {table} {chain}"),
            Self::Chain { table, chain } => write!(f, "delete chain {table} {chain}"),
            // `nft` deletes maps with this command, too.
            Self::Set { table, set } => write!(f, "delete set {table} {set}"),
            Self::Element { table, set, key } => {
                write!(f, "delete element {table} {set} {{ {key} }}")
            }
        }
    }
}

impl Ruleset {
    /// Applies a removal. Objects that do not exist are ignored.
    pub fn remove(&mut self, removal: &Removal) {
        match removal {
            Removal::Table { table } => self.tables.retain(|known| known.full_name() != *table),
            Removal::Rules { table, chain } => {
                let chains = self.table_mut(table).map(|table| &mut table.chains);
                let mut chains = chains.into_iter().flatten();
                if let Some(chain) = chains.find(|known| known.name == *chain) {
                    chain.rules.clear();
                }
            }
            Removal::Chain { table, chain } => {
                if let Some(table) = self.table_mut(table) {
                    table.chains.retain(|known| known.name != *chain);
                }
            }
            Removal::Set { table, set } => {
                if let Some(table) = self.table_mut(table) {
                    table.sets.retain(|known| known.name != *set);
                }
            }
            Removal::Element { table, set, key } => {
                let sets = self.table_mut(table).map(|table| &mut table.sets);
                let mut sets = sets.into_iter().flatten();
                if let Some(set) = sets.find(|known| known.name == *set) {
                    set.elements.retain(|known| known.bare_key() != key);
                }
            }
        }
    }

    /// Adds declared objects, rules and elements to those that exist, as `nft -f` does.
    pub fn add(&mut self, added: &Self) {
        for table in &added.tables {
            match self.table_mut(&table.full_name()) {
                Some(known) => known.add(table),
                None => self.tables.push(table.clone()),
            }
        }
    }

    fn table_mut(&mut self, name: &str) -> Option<&mut Table> {
        let mut tables = self.tables.iter_mut();
        tables.find(|table| table.full_name() == name)
    }
}

impl Table {
    fn add(&mut self, added: &Self) {
        for set in &added.sets {
            match self.sets.iter_mut().find(|known| known.name == set.name) {
                Some(known) => known.elements.extend(set.elements.iter().cloned()),
                None => self.sets.push(set.clone()),
            }
        }
        for chain in &added.chains {
            let known = self.chains.iter_mut();
            match known.into_iter().find(|known| known.name == chain.name) {
                Some(known) => {
                    known.rules.extend(chain.rules.iter().cloned());
                    // The kernel changes the policy of an existing chain.
                    if chain.hook.is_some() {
                        known.hook.clone_from(&chain.hook);
                    }
                }
                None => self.chains.push(chain.clone()),
            }
        }
        for object in &added.other_objects {
            let mut known = self.other_objects.iter();
            if !known.any(|known| known.head == object.head) {
                self.other_objects.push(object.clone());
            }
        }
    }
}

/// Change of a table to another with the same name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableChange {
    /// Removals before the additions.
    pub before: Vec<Removal>,
    /// Objects, rules and elements to add.
    pub add: Table,
    /// Removals of objects that nothing refers to any longer.
    pub after: Vec<Removal>,
}

/// Returns the change of a table to another with the same name. `None` if an object differs that
/// cannot be changed while it exists.
#[must_use]
pub fn change_table(current: &Table, wanted: &Table) -> Option<TableChange> {
    let name = wanted.full_name();
    let texts = |table: &Table| -> Vec<String> {
        let objects = table.other_objects.iter();
        objects.map(TableObject::canonical).collect()
    };
    if current.header().to_string() != wanted.header().to_string()
        || texts(current) != texts(wanted)
    {
        return None;
    }
    let (mut before, mut after) = (Vec::new(), Vec::new());
    let mut added = wanted.header();
    let by_name = |table: &'_ Table| -> HashMap<String, usize> {
        let chains = table.chains.iter().enumerate();
        chains
            .map(|(index, chain)| (chain.name.clone(), index))
            .collect()
    };
    let (current_chains, wanted_chains) = (by_name(current), by_name(wanted));
    for set in &wanted.sets {
        let Some(known) = current.set(&set.name) else {
            added.sets.push(set.clone());
            continue;
        };
        let mut declaration = set.declaration();
        if known.declaration().to_string() != declaration.to_string() {
            return None;
        }
        let (removed, elements) = change_elements(&known.elements, &set.elements);
        let has_flag =
            |names: [&str; 2]| set.flags.iter().any(|flag| names.contains(&flag.as_str()));
        let is_changed = !removed.is_empty() || !elements.is_empty();
        // The kernel may have removed or added elements. `nft` compares intervals with those that
        // the same transaction removes (nftables v1.0.6, `set_overlap` in `src/intervals.c`).
        if is_changed && has_flag(["dynamic", "timeout"])
            || !removed.is_empty() && !elements.is_empty() && has_flag(["interval"; 2])
        {
            return None;
        }
        before.extend(removed.into_iter().map(|key| Removal::Element {
            table: name.clone(),
            set: set.name.clone(),
            key: key.to_owned(),
        }));
        if !elements.is_empty() {
            declaration.elements = elements;
            added.sets.push(declaration);
        }
    }
    for chain in &wanted.chains {
        let Some(known) = current_chains.get(&chain.name) else {
            // The order of chains with the same priority depends on their creation.
            if chain.hook.is_some() {
                return None;
            }
            added.chains.push(chain.clone());
            continue;
        };
        let known = &current.chains[*known];
        let attachment = |chain: &Chain| chain.hook.as_ref().map(Hook::attachment);
        if attachment(known) != attachment(chain) || known.comment != chain.comment {
            return None;
        }
        let rules = |chain: &Chain| -> Vec<String> {
            chain.rules.iter().map(ToString::to_string).collect()
        };
        let is_refilled = rules(known) != rules(chain);
        if is_refilled {
            before.push(Removal::Rules {
                table: name.clone(),
                chain: chain.name.clone(),
            });
        }
        if is_refilled || known.hook != chain.hook {
            let mut changed = chain.declaration();
            if is_refilled {
                changed.rules.clone_from(&chain.rules);
            }
            added.chains.push(changed);
        }
    }
    // Elements of removed maps may refer to removed chains.
    for set in &current.sets {
        if wanted.set(&set.name).is_none() {
            let (table, set) = (name.clone(), set.name.clone());
            after.push(Removal::Set { table, set });
        }
    }
    for chain in &current.chains {
        if !wanted_chains.contains_key(&chain.name) {
            let (table, chain) = (name.clone(), chain.name.clone());
            before.push(Removal::Rules {
                table: table.clone(),
                chain: chain.clone(),
            });
            after.push(Removal::Chain { table, chain });
        }
    }
    Some(TableChange {
        before,
        add: added,
        after,
    })
}

/// Returns the keys of elements to remove, and the elements to add.
fn change_elements<'e>(current: &'e [Element], wanted: &[Element]) -> (Vec<&'e str>, Vec<Element>) {
    let texts = |elements: &[Element]| -> HashSet<String> {
        elements.iter().map(ToString::to_string).collect()
    };
    let (known, kept) = (texts(current), texts(wanted));
    let removed = current
        .iter()
        .filter(|element| !kept.contains(&element.to_string()));
    let added = wanted
        .iter()
        .filter(|element| !known.contains(&element.to_string()));
    (
        removed.map(Element::bare_key).collect(),
        added.cloned().collect(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nft::parse;

    /// Returns the table `ip t` with this content.
    fn ruleset(content: &str) -> Ruleset {
        parse(&format!("table ip t {{\n{content}}}\n")).unwrap()
    }

    /// Returns the commands of a change. Asserts that applying them gives the wanted table.
    fn commands(current: &str, wanted: &str) -> Option<String> {
        let (mut current, wanted) = (ruleset(current), ruleset(wanted));
        let change = change_table(&current.tables[0], &wanted.tables[0])?;
        let lines = |removals: &[Removal]| -> String {
            removals
                .iter()
                .map(|removal| format!("{removal}\n"))
                .collect()
        };
        let text = lines(&change.before) + &change.add.to_string() + &lines(&change.after);
        change
            .before
            .iter()
            .for_each(|removal| current.remove(removal));
        current.add(&Ruleset {
            tables: vec![change.add],
        });
        change
            .after
            .iter()
            .for_each(|removal| current.remove(removal));
        let sorted = |ruleset: &Ruleset| {
            let mut table = ruleset.tables[0].clone();
            table.sets.sort_by(|a, b| a.name.cmp(&b.name));
            table.chains.sort_by(|a, b| a.name.cmp(&b.name));
            for set in &mut table.sets {
                set.elements.sort_by(|a, b| a.key.cmp(&b.key));
            }
            table.to_string()
        };
        assert_eq!(sorted(&current), sorted(&wanted));
        Some(text)
    }

    const MAP: &str = "\tmap m {\n\t\ttype inet_service : verdict\n\t\telements = { 80 : goto a, 81 : drop }\n\t}\n";
    const CHAINS: &str = "\tchain a {\n\t\taccept\n\t}\n\n\tchain in {\n\t\ttype filter hook input priority 0; policy accept;\n\t\ttcp dport vmap @m\n\t}\n";

    #[test]
    fn change_table_has_only_changed_objects() {
        let current = format!("{MAP}{CHAINS}");
        let wanted = current
            .replace("80 : goto a", "80 : goto b")
            .replace("policy accept", "policy drop")
            .replace("chain a {\n\t\taccept\n", "chain b {\n\t\tdrop\n");
        insta::assert_snapshot!(commands(&current, &wanted).unwrap());
        let removed = CHAINS.replace("\t\ttcp dport vmap @m\n", "");
        insta::assert_snapshot!(commands(&current, &removed).unwrap());
        assert!(commands(&removed, &current).is_some());
    }

    #[test]
    fn change_table_impossible_change_returns_none() {
        let current = format!("{MAP}{CHAINS}");
        for (from, to) in [
            ("inet_service", "ether_type"),
            ("priority 0", "priority 1"),
            ("hook input", "hook forward"),
            ("chain in", "chain other"),
            (
                "\tmap m",
                "\tcounter c {\n\t\tpackets 0 bytes 0\n\t}\n\n\tmap m",
            ),
            ("\tmap m", "\tflags dormant\n\tmap m"),
        ] {
            let wanted = current.replacen(from, to, 1);
            assert_ne!(wanted, current);
            assert_eq!(commands(&current, &wanted), None, "{to}");
        }
        let set = |flag: &str, elements: &str| {
            format!(
                "\tset s {{\n\t\ttype ipv4_addr\n\t\tflags {flag}\n\t\telements = {{ {elements} }}\n\t}}\n"
            )
        };
        for (flag, possible) in [("timeout", false), ("interval", false), ("constant", true)] {
            let change = commands(&set(flag, "10.0.0.1"), &set(flag, "10.0.0.2"));
            assert_eq!(change.is_some(), possible, "{flag}");
        }
    }
}
