//! Compares the nftables tables of two plans. A table with any difference is deleted and created
//! again, with its initial sets and counters.

use indexmap::IndexMap;

use svclab_model::plan::delta::TablesChange;
use svclab_ruleset::nft::{Ruleset, Table};

/// Returns the changes from one ruleset to another. `None` if their texts are equal.
pub fn diff(current: &Ruleset, wanted: &Ruleset) -> Option<TablesChange> {
    let texts = |ruleset: &Ruleset| -> IndexMap<String, String> {
        let tables = ruleset.tables.iter();
        tables
            .map(|table| (table.full_name(), table.to_string()))
            .collect()
    };
    let (current_texts, wanted_texts) = (texts(current), texts(wanted));
    let changed = |ruleset: &Ruleset| -> Vec<Table> {
        let is_changed = |table: &&Table| {
            let name = table.full_name();
            current_texts.get(&name) != wanted_texts.get(&name)
        };
        ruleset.tables.iter().filter(is_changed).cloned().collect()
    };
    let (remove, add) = (changed(current), changed(wanted));
    (!remove.is_empty() || !add.is_empty()).then(|| TablesChange {
        remove: remove.iter().map(Table::full_name).collect(),
        add: Ruleset { tables: add }.into(),
    })
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
        let changed = change.apply_to(&Input::from_text(current));
        changed.text().to_owned()
    }

    #[test]
    fn tables_diff_changed_table_is_replaced() {
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
        assert_eq!(change.remove, ["ip6 a"]);
        assert_eq!(change.add.text(), format!("{changed_table}{c}"));
        assert_eq!(text_after(&change, &current), wanted);
        assert_eq!(diff_texts(&wanted, &wanted), None);
        let removed = diff_texts(&current, "").unwrap();
        assert_eq!(removed.remove, ["ip a", "ip6 a"]);
        assert_eq!(text_after(&removed, &current), "");
    }
}
