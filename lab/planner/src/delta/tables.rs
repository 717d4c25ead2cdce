//! Compares the nftables tables of two plans. A table with any difference is deleted and created
//! again, with its initial sets and counters.

use indexmap::IndexMap;

use svclab_model::plan::delta::TablesChange;
use svclab_ruleset::nft::tables;

/// Returns the changes from the tables of one input for `nft -f` to those of another. `None` if the
/// inputs are equal.
pub fn between(there: &str, wanted: &str) -> Option<TablesChange> {
    if there == wanted {
        return None;
    }
    let by_name = |text| tables(text).collect::<IndexMap<&str, &str>>();
    let (there, wanted) = (by_name(there), by_name(wanted));
    let differs = |one: &IndexMap<&str, &str>, name: &str, text: &str| {
        one.get(name).is_none_or(|known| *known != text)
    };
    let goes = there
        .iter()
        .filter(|(name, text)| differs(&wanted, name, text));
    let comes = wanted
        .iter()
        .filter(|(name, text)| differs(&there, name, text));
    Some(TablesChange {
        go: goes.map(|(name, _)| (*name).to_owned()).collect(),
        come: comes.map(|(_, text)| *text).collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_that_differs_goes_and_comes_whole() {
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
        let there = format!("{a}{b}");
        let other = table("ip6 a", "accept");
        let wanted = format!("{a}{other}{c}");
        let change = between(&there, &wanted).unwrap();
        assert_eq!(change.go, ["ip6 a"]);
        assert_eq!(change.come, format!("{other}{c}"));
        assert_eq!(change.applied(&there), wanted);
        assert_eq!(between(&wanted, &wanted), None);
        let gone = between(&there, "").unwrap();
        assert_eq!(gone.go, ["ip a", "ip6 a"]);
        assert_eq!(gone.applied(&there), "");
    }
}
