//! Compares the nftables tables of two plans. A table with any difference is deleted and created
//! again, with its initial sets and counters.

use indexmap::IndexMap;

use svclab_model::plan::delta::TablesChange;
use svclab_ruleset::nft::tables;

/// Returns the changes from the tables of one input for `nft -f` to those of another. `None` if the
/// inputs are equal.
pub fn diff(current: &str, wanted: &str) -> Option<TablesChange> {
    if current == wanted {
        return None;
    }
    let by_name = |text| tables(text).collect::<IndexMap<&str, &str>>();
    let (current, wanted) = (by_name(current), by_name(wanted));
    let is_different = |tables_by_name: &IndexMap<&str, &str>, name: &str, text: &str| {
        tables_by_name.get(name).is_none_or(|known| *known != text)
    };
    let removed = current
        .iter()
        .filter(|(name, text)| is_different(&wanted, name, text));
    let added = wanted
        .iter()
        .filter(|(name, text)| is_different(&current, name, text));
    Some(TablesChange {
        remove: removed.map(|(name, _)| (*name).to_owned()).collect(),
        add: added.map(|(_, text)| *text).collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_diff_changed_table_is_replaced() {
        let table = |name: &str, inside: &str| {
            format!(
                "table {name} {{\n\tchain a {{\n\t\t{inside} comment \"table ip x\"\n\t}}\n}}\n"
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
        let change = diff(&current, &wanted).unwrap();
        assert_eq!(change.remove, ["ip6 a"]);
        assert_eq!(change.add, format!("{changed_table}{c}"));
        assert_eq!(change.apply_to(&current), wanted);
        assert_eq!(diff(&wanted, &wanted), None);
        let removed = diff(&current, "").unwrap();
        assert_eq!(removed.remove, ["ip a", "ip6 a"]);
        assert_eq!(removed.apply_to(&current), "");
    }
}
