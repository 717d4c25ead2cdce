//! Tables of nftables that change: one that differs in anything goes and comes again,
//! with sets and counters as they were made.

use indexmap::IndexMap;

use super::TablesChange;

/// What comes from the tables of one text for `nft -f` to those of another; none when
/// they are the same.
pub fn between(there: &str, wanted: &str) -> Option<TablesChange> {
    if there == wanted {
        return None;
    }
    let (there, wanted) = (tables(there), tables(wanted));
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

impl TablesChange {
    /// What is there once the tables of a text have changed so.
    #[must_use]
    pub fn applied(&self, there: &str) -> String {
        let stay = tables(there);
        let stay = stay
            .iter()
            .filter(|(name, _)| !self.go.iter().any(|gone| gone == *name));
        stay.map(|(_, text)| *text)
            .chain([self.come.as_str()])
            .collect()
    }
}

/// Tables by family and name, `ip kube-proxy`, each with its own text.
fn tables(text: &str) -> IndexMap<&str, &str> {
    let begins: Vec<usize> = text
        .match_indices("table ")
        .map(|(at, _)| at)
        .filter(|at| *at == 0 || text.as_bytes()[at - 1] == b'\n')
        .collect();
    let ends = begins.iter().skip(1).copied().chain([text.len()]);
    begins
        .iter()
        .zip(ends)
        .map(|(begin, end)| {
            let text = &text[*begin..end];
            let head = text.lines().next().unwrap_or_default();
            let name = head.trim_start_matches("table ").trim_end_matches(" {");
            (name, text)
        })
        .collect()
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
