//! Finds the shortest paths of jumps to a chain, from the chains that the kernel calls.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use serde::{Deserialize, Serialize};

use svclab_ruleset::iptables::TableRules;
use svclab_ruleset::nft::{self, References};

/// A chain, with the paths of jumps that lead to it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ChainPaths {
    /// Name of the table: `nat`, or with its family, `inet fw`, for native nftables tables.
    pub table: String,
    /// Name of the chain.
    pub chain: String,
    /// Shortest path of jumps from each chain that the kernel calls, such as
    /// `PREROUTING > KUBE-SERVICES`; empty if no jump leads to the chain.
    pub paths: Vec<String>,
}

/// Returns a chain of an iptables table with the jumps to it.
pub fn from_iptables(table: &TableRules, chain: &str) -> ChainPaths {
    let mut jumps: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for from in &table.chains {
        for rule in &from.rules {
            if let Some(target) = rule.target() {
                let to = jumps.entry(target.into_owned()).or_default();
                to.insert(from.name.clone());
            }
        }
    }
    let built_in = table.table.built_in_chains();
    ChainPaths {
        table: table.table.to_string(),
        chain: chain.to_owned(),
        paths: shortest_paths(&jumps, chain, |name| built_in.contains(&name)),
    }
}

/// Returns a chain of an nftables table with the jumps to it.
pub fn from_nft(table: &nft::Table, chain: &str) -> ChainPaths {
    let mut jumps: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let mut add_jumps = |from: &str, references: References<'_>| {
        for to in references.chains {
            jumps
                .entry(to.to_owned())
                .or_default()
                .insert(from.to_owned());
        }
    };
    for from in &table.chains {
        for rule in &from.rules {
            let references = References::parse(&rule.text);
            // A rule that looks up a map can jump to each chain in the map.
            let maps = references.sets.iter().filter_map(|name| table.set(name));
            for element in maps.flat_map(|map| &map.elements) {
                let value = element.value.as_deref().unwrap_or_default();
                add_jumps(&from.name, References::parse(value));
            }
            add_jumps(&from.name, references);
        }
    }
    let hooked: BTreeSet<&str> = table
        .chains
        .iter()
        .filter(|chain| chain.hook.is_some())
        .map(|chain| chain.name.as_str())
        .collect();
    ChainPaths {
        table: format!("{} {}", table.family, table.name),
        chain: chain.to_owned(),
        paths: shortest_paths(&jumps, chain, |name| hooked.contains(name)),
    }
}

/// Returns the shortest path from each chain that the kernel calls. `jumps` maps each chain to the
/// chains that jump to it.
fn shortest_paths(
    jumps: &BTreeMap<String, BTreeSet<String>>,
    chain: &str,
    is_called: impl Fn(&str) -> bool,
) -> Vec<String> {
    let mut found = Vec::new();
    let mut visited: BTreeSet<&str> = BTreeSet::from([chain]);
    let mut next: VecDeque<(&str, Vec<&str>)> = VecDeque::from([(chain, vec![chain])]);
    while let Some((current, path)) = next.pop_front() {
        if is_called(current) {
            let reversed: Vec<&str> = path.iter().rev().copied().collect();
            found.push(reversed.join(" > "));
        }
        for from in jumps.get(current).into_iter().flatten() {
            if visited.insert(from) {
                let mut longer = path.clone();
                longer.push(from);
                next.push_back((from, longer));
            }
        }
    }
    found
}

/// Renders the table and chain with at most two paths, such as `nat A (OUTPUT > A)`.
impl std::fmt::Display for ChainPaths {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self {
            table,
            chain,
            paths: by,
        } = self;
        write!(f, "{table} {chain}")?;
        let other_paths: Vec<&String> = by.iter().filter(|way| *way != chain).collect();
        match other_paths.as_slice() {
            [] => Ok(()),
            [path] => write!(f, " ({path})"),
            [first, second] => write!(f, " ({first}; {second})"),
            [first, second, rest @ ..] => {
                write!(f, " ({first}; {second}; {} other paths)", rest.len())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use svclab_ruleset::iptables::IptablesRules;
    use svclab_ruleset::iptables::script::Table;

    #[test]
    fn shortest_paths_from_each_hook_are_returned() {
        let text = "*nat\n:PREROUTING ACCEPT [0:0]\n:OUTPUT ACCEPT [0:0]\n:A - [0:0]\n:B - [0:0]\n:C - [0:0]\n:D - [0:0]\n\
                    -A PREROUTING -j A\n-A OUTPUT -j B\n-A A -j B\n-A B -g C\n-A C -j A\nCOMMIT\n";
        let dump = IptablesRules::parse(text).unwrap();
        let paths = |chain: &str| from_iptables(dump.table(Table::Nat).unwrap(), chain).paths;
        assert_eq!(paths("C"), ["OUTPUT > B > C", "PREROUTING > A > B > C"]);
        assert_eq!(paths("OUTPUT"), ["OUTPUT"]);
        assert_eq!(paths("D"), [""; 0]);
    }

    #[test]
    fn from_nft_map_verdict_is_jump() {
        let text = "table ip x {\n\tmap m {\n\t\ttype ipv4_addr : verdict\n\t\telements = { 10.0.0.1 : goto b }\n\t}\n\
                    \tchain a {\n\t\ttype filter hook output priority filter; policy accept;\n\t\tip daddr vmap @m\n\t}\n\
                    \tchain b {\n\t\tdrop\n\t}\n}\n";
        let ruleset = svclab_ruleset::nft::parse(text).unwrap();
        let chain_paths = from_nft(&ruleset.tables[0], "b");
        assert_eq!(chain_paths.to_string(), "ip x b (a > b)");
    }
}
