//! Compares the nftables tables of two plans. Rules, elements and objects of a table change one by
//! one. A table with any other difference is deleted and created again, with its initial sets and
//! counters.

use svclab_model::plan::delta::TablesChange;
use svclab_ruleset::nft::{Removal, Ruleset, change_table};

/// Returns the changes from one ruleset to another. `None` if their texts are equal.
pub fn diff(current: &Ruleset, wanted: &Ruleset) -> Option<TablesChange> {
    let mut change = TablesChange::default();
    let mut added = Ruleset::default();
    for table in &current.tables {
        let name = table.full_name();
        if !wanted
            .tables
            .iter()
            .any(|wanted| wanted.full_name() == name)
        {
            change.remove.push(Removal::Table { table: name });
        }
    }
    for table in &wanted.tables {
        let name = table.full_name();
        let mut tables = current.tables.iter();
        let Some(known) = tables.find(|known| known.full_name() == name) else {
            added.tables.push(table.clone());
            continue;
        };
        if known.to_string() == table.to_string() {
            continue;
        }
        if let Some(table_change) = change_table(known, table) {
            change.remove.extend(table_change.before);
            added.tables.push(table_change.add);
            change.remove_unused.extend(table_change.after);
        } else {
            change.remove.push(Removal::Table { table: name });
            added.tables.push(table.clone());
        }
    }
    change.add = added.into();
    (change != TablesChange::default()).then_some(change)
}

#[cfg(test)]
mod tests {
    use super::*;
    use svclab_ruleset::input::{Input, ProgramInput as _};

    fn diff_texts(current: &str, wanted: &str) -> Option<TablesChange> {
        let parse = |text| Ruleset::parse(text).expect("valid ruleset");
        diff(&parse(current), &parse(wanted))
    }

    fn text_after(change: &TablesChange, current: &str) -> String {
        let mut tables = Input::from_text(current);
        change.apply_to(&mut tables).expect("valid tables");
        tables.text().to_owned()
    }

    #[test]
    fn tables_diff_changes_rules_and_replaces_other_tables() {
        let table = |name: &str, inside: &str| {
            format!(
                "table {name} {{\n\n\tchain a {{\n\t\t{inside} comment \"table ip x\"\n\t}}\n}}\n"
            )
        };
        let (a, b, c) = (
            table("ip a", "drop"),
            table("ip6 a", "drop"),
            table("ip c", "drop"),
        );
        let current = format!("{a}{b}");
        let changed_table = table("ip6 a", "accept");
        let wanted = format!("{a}{changed_table}{c}");
        let change = diff_texts(&current, &wanted).unwrap();
        let rules = |table: &str| Removal::Rules {
            table: table.to_owned(),
            chain: "a".to_owned(),
        };
        assert_eq!(change.remove, [rules("ip6 a")]);
        assert_eq!(change.add.text(), format!("{changed_table}{c}"));
        assert_eq!(text_after(&change, &current), wanted);
        assert_eq!(diff_texts(&wanted, &wanted), None);
        let dormant = b.replace("{\n\n", "{\n\tflags dormant\n\n");
        let wanted = format!("{a}{dormant}");
        let change = diff_texts(&current, &wanted).unwrap();
        let whole = |table: &str| Removal::Table {
            table: table.to_owned(),
        };
        assert_eq!(change.remove, [whole("ip6 a")]);
        assert_eq!(text_after(&change, &current), wanted);
        let removed = diff_texts(&current, "").unwrap();
        assert_eq!(removed.remove, [whole("ip a"), whole("ip6 a")]);
        assert_eq!(text_after(&removed, &current), "");
    }
}
