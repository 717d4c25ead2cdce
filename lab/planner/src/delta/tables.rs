//! Compares the nftables tables of two plans. A table changes object by object: a chain with other
//! rules gets all its rules again, and a set loses and gains single elements. A table with any
//! other difference is deleted and created again, with its initial sets and counters.

use std::collections::{HashMap, HashSet};

use svclab_model::plan::delta::TablesChange;
use svclab_ruleset::nft::{Chain, Element, Removal, Rule, Ruleset, Set, Table, TablePart};

/// Flags of sets whose elements do not change one by one. The kernel rejects changes of a constant
/// set that a rule refers to (Linux v6.12, `nf_tables_newsetelem` in
/// `net/netfilter/nf_tables_api.c`). Elements of the others may not be those of the plan any longer.
const FIXED_FLAGS: [&str; 3] = ["constant", "dynamic", "timeout"];

/// Returns the changes from one ruleset to another. `None` if the rulesets have the same objects.
pub fn diff(current: &Ruleset, wanted: &Ruleset) -> Option<TablesChange> {
    let tables = current.tables.iter().enumerate();
    let mut remaining: HashMap<String, (usize, &Table)> = tables
        .map(|(index, table)| (table.full_name(), (index, table)))
        .collect();
    let mut change = TablesChange::default();
    let mut added = Ruleset::default();
    // The kernel evaluates chains of the same hook and priority in the order of their creation.
    let mut created_hooks = HashSet::new();
    let mut last_index = 0;
    for wanted in &wanted.tables {
        let name = wanted.full_name();
        let known = remaining.remove(&name);
        let in_place = known.and_then(|(index, current)| {
            let mut hooks = hooks(wanted);
            let is_in_order =
                index >= last_index && !hooks.any(|hook| created_hooks.contains(&hook));
            let change = TableChange::new(current, wanted).filter(|_| is_in_order)?;
            last_index = index;
            Some(change)
        });
        let removal = |part| Removal {
            table: name.clone(),
            part,
        };
        let Some(table) = in_place else {
            created_hooks.extend(hooks(wanted));
            change
                .remove
                .extend(known.map(|_| removal(TablePart::Whole)));
            added.tables.push(wanted.clone());
            continue;
        };
        change.remove.extend(table.remove.into_iter().map(removal));
        if !(table.add.sets.is_empty() && table.add.chains.is_empty()) {
            added.tables.push(table.add);
        }
        let unused = table.remove_unused.into_iter().map(removal);
        change.remove_unused.extend(unused);
    }
    let removed = current.tables.iter().map(Table::full_name);
    let removed = removed.filter(|name| remaining.contains_key(name));
    change.remove.extend(removed.map(|table| Removal {
        table,
        part: TablePart::Whole,
    }));
    change.add = added.into();
    if change == TablesChange::default() {
        return None;
    }
    let tables = wanted.tables.iter().map(without_content).collect();
    change.tables = Ruleset { tables }.into();
    Some(change)
}

/// Returns the hooks and priorities of a table's base chains.
fn hooks(table: &Table) -> impl Iterator<Item = (&str, i32)> {
    let hooks = table.chains.iter().filter_map(|chain| chain.hook.as_ref());
    hooks.map(|hook| (hook.hook.as_str(), hook.priority))
}

/// Returns the table with its dynamic sets only.
fn without_content(table: &Table) -> Table {
    let is_dynamic = |set: &&Set| set.flags.iter().any(|flag| flag == "dynamic");
    let sets = table.sets.iter().filter(is_dynamic);
    Table {
        sets: sets.map(Set::declaration).collect(),
        ..table.header()
    }
}

/// Change of a table to another with the same name.
struct TableChange {
    /// Parts to remove before the additions.
    remove: Vec<TablePart>,
    /// Objects, rules and elements to add.
    add: Table,
    /// Objects that nothing refers to after the additions.
    remove_unused: Vec<TablePart>,
}

impl TableChange {
    /// Returns the change between two tables. `None` if an object differs that cannot be changed
    /// while the table exists.
    fn new(current: &Table, wanted: &Table) -> Option<Self> {
        let other_objects = |table: &Table| Table {
            other_objects: table.other_objects.clone(),
            ..table.header()
        };
        if other_objects(current).to_string() != other_objects(wanted).to_string() {
            return None;
        }
        let mut change = Self {
            remove: Vec::new(),
            add: wanted.header(),
            remove_unused: Vec::new(),
        };
        // Elements of maps refer to chains, so that maps are removed first.
        change.add_sets(current, wanted)?;
        change.add_chains(current, wanted)?;
        Some(change)
    }

    fn add_sets(&mut self, current: &Table, wanted: &Table) -> Option<()> {
        for set in &wanted.sets {
            let Some(known) = current.set(&set.name) else {
                self.add.sets.push(set.clone());
                continue;
            };
            let mut added = set.declaration();
            if known.declaration().to_string() != added.to_string() {
                return None;
            }
            let mut removed = known.elements_missing_in(set).peekable();
            added.elements = set.elements_missing_in(known).cloned().collect();
            if removed.peek().is_none() && added.elements.is_empty() {
                continue;
            }
            let has_flag = |flag: &str| set.flags.iter().any(|known| known == flag);
            // The kernel may have merged intervals, and `nft` v1.0.6 compares an interval with
            // those that the same transaction removes (`set_overlap` in `src/intervals.c`).
            if FIXED_FLAGS.into_iter().any(has_flag)
                || has_flag("interval") && removed.peek().is_some()
            {
                return None;
            }
            let part = |element: &Element| TablePart::Element {
                set: set.name.clone(),
                key: element.bare_key().to_owned(),
            };
            self.remove.extend(removed.map(part));
            if !added.elements.is_empty() {
                self.add.sets.push(added);
            }
        }
        let unused = current
            .sets
            .iter()
            .filter(|set| wanted.set(&set.name).is_none());
        self.remove_unused.extend(unused.map(|set| {
            let part = if set.is_map {
                TablePart::Map
            } else {
                TablePart::Set
            };
            part(set.name.clone())
        }));
        Some(())
    }

    fn add_chains(&mut self, current: &Table, wanted: &Table) -> Option<()> {
        let (current_chains, wanted_chains) = (chains_by_name(current), chains_by_name(wanted));
        // A new base chain would follow those with the same priority.
        let is_kept = |name: &str| wanted_chains.contains_key(name);
        let kept = attachments(current).filter(|(name, _)| is_kept(name));
        if !kept.eq(attachments(wanted)) {
            return None;
        }
        for chain in &wanted.chains {
            let Some(known) = current_chains.get(chain.name.as_str()) else {
                self.add.chains.push(chain.clone());
                continue;
            };
            if known.comment != chain.comment {
                return None;
            }
            if !rules(known).eq(rules(chain)) {
                self.remove_rules(known);
                self.add.chains.push(chain.clone());
            } else if known.hook != chain.hook {
                // The policy changes.
                self.add.chains.push(chain.declaration());
            }
        }
        for chain in &current.chains {
            if !is_kept(&chain.name) {
                self.remove_rules(chain);
                self.remove_unused
                    .push(TablePart::Chain(chain.name.clone()));
            }
        }
        Some(())
    }

    fn remove_rules(&mut self, chain: &Chain) {
        if !chain.rules.is_empty() {
            self.remove.push(TablePart::Rules(chain.name.clone()));
        }
    }
}

fn chains_by_name(table: &Table) -> HashMap<&str, &Chain> {
    let chains = table.chains.iter();
    chains.map(|chain| (chain.name.as_str(), chain)).collect()
}

/// Returns the name, type, hook and priority of each base chain.
fn attachments(table: &Table) -> impl Iterator<Item = (&str, String)> {
    table.chains.iter().filter_map(|chain| {
        let hook = chain.hook.as_ref()?;
        Some((chain.name.as_str(), hook.attachment()))
    })
}

/// Returns the text and the comment of each rule.
fn rules(chain: &Chain) -> impl Iterator<Item = (&str, Option<&str>)> {
    let rules = chain.rules.iter();
    rules.map(|rule: &Rule| (rule.text.as_str(), rule.comment.as_deref()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use svclab_ruleset::input::ProgramInput as _;

    fn diff_texts(current: &str, wanted: &str) -> Option<TablesChange> {
        let parse = |text| Ruleset::parse(text).expect("valid ruleset");
        diff(&parse(current), &parse(wanted))
    }

    /// Returns the commands between two contents of the table `ip t`.
    fn commands(current: &str, wanted: &str) -> String {
        let table = |content: &str| format!("table ip t {{\n{content}}}\n");
        let change = diff_texts(&table(current), &table(wanted));
        change.map_or_else(String::new, |change| change.commands())
    }

    const MAP: &str = "\tmap m {\n\t\ttype inet_service : verdict\n\t\telements = { 80 : goto a, 81 : drop }\n\t}\n\n";
    const CHAINS: &str = "\tchain a {\n\t\taccept\n\t}\n\n\tchain in {\n\t\ttype filter hook input priority 0; policy accept;\n\t\ttcp dport vmap @m\n\t}\n";

    #[test]
    fn tables_diff_has_only_changed_objects() {
        let current = format!("{MAP}{CHAINS}");
        let wanted = current
            .replace("80 : goto a", "80 : goto b")
            .replace("policy accept", "policy drop")
            .replace("chain a {\n\t\taccept\n", "chain b {\n\t\tdrop\n");
        insta::assert_snapshot!(commands(&current, &wanted));
        let unused = CHAINS.replace("\t\ttcp dport vmap @m\n", "");
        insta::assert_snapshot!(commands(&current, &unused));
        assert_eq!(commands(&current, &current), "");
    }

    #[test]
    fn tables_diff_other_changes_replace_table() {
        let current = format!("{MAP}{CHAINS}");
        let is_replaced =
            |current: &str, wanted: &str| commands(current, wanted).contains("delete table ip t\n");
        let counter = "\tcounter c {\n\t\tpackets 0 bytes 0\n\t}\n\n\tmap m";
        let chain = "\tchain in2 {\n\t\ttype filter hook input priority 0; policy accept;\n\t}\n\n\tchain in ";
        for (from, to) in [
            ("inet_service", "ether_type"),
            ("priority 0", "priority 1"),
            ("hook input", "hook forward"),
            ("chain in", "chain other"),
            ("\tchain in ", chain),
            ("\tmap m", counter),
            ("\tmap m", "\tflags dormant\n\tmap m"),
            ("\tmap m", "\tcomment \"x\"\n\tmap m"),
            ("chain a {\n", "chain a {\n\t\tcomment \"x\"\n"),
        ] {
            let wanted = current.replacen(from, to, 1);
            assert_ne!(wanted, current);
            assert!(is_replaced(&current, &wanted), "{to}");
        }
        let both = current.replacen("\tchain in ", chain, 1);
        assert!(
            !is_replaced(&both, &current),
            "{}",
            commands(&both, &current)
        );
        let other_order = format!("{current}\n{}", chain.trim_end_matches("\n\tchain in "));
        assert!(is_replaced(&both, &other_order));
        let set = |flag: &str, elements: &str| {
            format!(
                "\tset s {{\n\t\ttype ipv4_addr\n\t\tflags {flag}\n\t\telements = {{ {elements} }}\n\t}}\n"
            )
        };
        for flag in ["constant", "dynamic", "timeout", "interval"] {
            let (one, both) = (set(flag, "10.0.0.1"), set(flag, "10.0.0.1, 10.0.0.2"));
            assert!(is_replaced(&both, &one), "{flag}");
            assert_eq!(is_replaced(&one, &both), flag != "interval");
        }
    }

    #[test]
    fn tables_diff_keeps_order_of_chains_of_a_hook() {
        let table = |name: &str, rule: &str| {
            format!(
                "table ip {name} {{\n\n\tchain in {{\n\t\ttype filter hook input priority 0; policy accept;\n\t\t{rule}\n\t}}\n}}\n"
            )
        };
        let removed = |current: &str, wanted: &str| -> Vec<String> {
            let change = diff_texts(current, wanted).expect("a change");
            change.remove.iter().map(Removal::to_string).collect()
        };
        let (a, b, c) = (table("a", "drop"), table("b", "drop"), table("c", "drop"));
        let changed = a.replace("drop", "accept");
        let current = format!("{a}{c}");
        assert_eq!(
            removed(&current, &format!("{changed}{c}")),
            ["flush chain ip a in"]
        );
        assert_eq!(
            removed(&current, &format!("{a}{b}{c}")),
            ["delete table ip c"]
        );
        let later = b.replace("priority 0", "priority 1");
        assert_eq!(
            diff_texts(&current, &format!("{a}{later}{c}"))
                .unwrap()
                .remove,
            []
        );
        assert_eq!(removed(&current, &format!("{c}{a}")), ["delete table ip a"]);
        assert_eq!(
            removed(&current, ""),
            ["delete table ip a", "delete table ip c"]
        );
    }

    #[test]
    fn tables_diff_lists_dynamic_sets_of_all_tables() {
        let set = |name: &str, flag: &str| {
            format!("\tset {name} {{\n\t\ttype ipv4_addr\n\t\tflags {flag}\n\t}}\n\n")
        };
        let table = |name: &str| {
            let sets = set("filled", "dynamic,timeout") + &set("fixed", "interval");
            format!("table ip {name} {{\n{sets}\tchain c {{\n\t\taccept\n\t}}\n}}\n")
        };
        let (a, b) = (table("a"), table("b"));
        let change = diff_texts(
            &format!("{a}{b}"),
            &format!("{a}{}", b.replace("accept", "drop")),
        );
        insta::assert_snapshot!(change.unwrap().tables.text());
    }
}
