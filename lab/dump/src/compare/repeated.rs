//! Merges differences that two programs print: `nft` also lists the rules of iptables-nft.

use std::collections::{BTreeMap, BTreeSet};

use super::super::difference::{Difference, DumpChange, DumpLocation, Side};
use super::super::node::NodeDump;
use super::iptables::lists_services;
use svclab_ruleset::Family;
use svclab_ruleset::iptables::script::Table;
use svclab_ruleset::tool::{DumpedBackend, Format};

/// Chain of iptables.
type ChainKey = (Family, Table, String);

/// Numbers of the changes of a chain that both programs print.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Changes {
    only_first: usize,
    only_second: usize,
    moved: usize,
    policies: usize,
    /// Chains that only one dump has.
    chains: usize,
    /// Changes that only nft prints, such as another priority.
    others: usize,
    /// Whether nft prints the policy ACCEPT of a chain that only one dump has.
    is_accepting: bool,
}

/// Removes the differences of `nft list ruleset` that `iptables-save` shows, too, and names nft in
/// the differences of `iptables-save`. The differences of a chain stay separate if the programs
/// disagree about the chain.
pub(super) fn merge_repeated(first: &NodeDump, second: &NodeDump, found: &mut Vec<Difference>) {
    let is_saved = |family: Family| {
        let key = (family, DumpedBackend::Default);
        first.rules.contains_key(&key) && second.rules.contains_key(&key)
    };
    let saved = changes_by_chain(found, saved_chain);
    let listed = changes_by_chain(found, listed_chain);
    let repeated: BTreeSet<&ChainKey> = listed
        .iter()
        .filter(|(chain, changes)| {
            let mut changes = changes.without_empty_chain(chain);
            let saved = saved.get(chain).copied().unwrap_or_default();
            // Only the rules of iptables-save are compared without the order of services.
            if lists_services(&chain.2) {
                changes.moved = saved.moved;
            }
            is_saved(chain.0) && saved == changes
        })
        .map(|(chain, _)| chain)
        .collect();
    let is_separate = |family: Family, table: Table| {
        let mut chains = listed.keys().filter(|chain| !repeated.contains(chain));
        !is_saved(family) || chains.any(|(ip, own, _)| (*ip, *own) == (family, table))
    };
    found.retain_mut(|difference| {
        let location = &difference.location;
        if let Some(chain) = listed_chain(location) {
            return !repeated.contains(&chain);
        }
        if let DumpLocation::NftTable { table } = location
            && matches!(difference.change, DumpChange::Whole { .. })
            && let Some((family, table)) = iptables_table(table)
        {
            return is_separate(family, table);
        }
        if saved_chain(location).is_some_and(|chain| repeated.contains(&chain)) {
            difference.repeated_in = Some(Format::Nft.command().to_owned());
        }
        true
    });
}

fn changes_by_chain(
    found: &[Difference],
    chain: impl Fn(&DumpLocation) -> Option<ChainKey>,
) -> BTreeMap<ChainKey, Changes> {
    let mut chains: BTreeMap<ChainKey, Changes> = BTreeMap::new();
    for difference in found {
        if let Some(chain) = chain(&difference.location) {
            chains.entry(chain).or_default().add(&difference.change);
        }
    }
    chains
}

/// Returns the names of the program, table and chain of a difference in a chain.
fn names(location: &DumpLocation) -> Option<[&str; 3]> {
    match location {
        DumpLocation::Chain {
            program,
            table,
            chain,
        } => Some([program, table, chain]),
        _ => None,
    }
}

/// Returns the chain of a difference in the output of `iptables-save` or `ip6tables-save`.
fn saved_chain(location: &DumpLocation) -> Option<ChainKey> {
    let [program, table, chain] = names(location)?;
    let family = [Family::V4, Family::V6]
        .into_iter()
        .find(|family| Format::Rules(*family, DumpedBackend::Default).command() == program)?;
    Some((family, Table::from_name(table)?, chain.to_owned()))
}

/// Returns the chain of iptables that a difference in the listing of nftables is in.
fn listed_chain(location: &DumpLocation) -> Option<ChainKey> {
    let [program, table, chain] = names(location)?;
    let (family, table) = iptables_table(table).filter(|_| program == Format::Nft.command())?;
    Some((family, table, chain.to_owned()))
}

/// Parses the family and the name of a table of iptables-nft: `ip filter`.
fn iptables_table(name: &str) -> Option<(Family, Table)> {
    let (family, name) = name.split_once(' ')?;
    let family = match family {
        "ip" => Family::V4,
        "ip6" => Family::V6,
        _ => return None,
    };
    Some((family, Table::from_name(name)?))
}

impl Changes {
    fn add(&mut self, change: &DumpChange) {
        match change {
            DumpChange::Whole { .. } => self.chains += 1,
            DumpChange::Item { only, .. } => match only {
                Side::First => self.only_first += 1,
                Side::Second => self.only_second += 1,
            },
            DumpChange::Moved { .. } => self.moved += 1,
            DumpChange::Value {
                property,
                first,
                second,
            } => match (property.as_str(), first, second) {
                ("policy", Some(_), Some(_)) => self.policies += 1,
                // nft prints hook and policy of a chain that only one dump has.
                ("policy", Some(only), None) | ("policy", None, Some(only)) => {
                    self.is_accepting = only == "accept";
                }
                ("hook", Some(_), None) | ("hook", None, Some(_)) => {}
                _ => self.others += 1,
            },
        }
    }

    /// Returns no changes for an empty built-in chain with the policy ACCEPT that only one dump has.
    /// Whether a program prints the chain depends on earlier use of the table.
    fn without_empty_chain(&self, (_, table, chain): &ChainKey) -> Self {
        let empty = Self {
            chains: 1,
            is_accepting: true,
            ..Self::default()
        };
        if *self == empty && table.is_built_in(chain) {
            return Self::default();
        }
        Self {
            is_accepting: false,
            ..*self
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::compare;
    use crate::node::NodeDump;

    /// Parses a dump with the rules of the table `filter`, as iptables-save and nft print them.
    fn dump(saved: &str, listed: &str) -> NodeDump {
        let saved = format!("*filter\n{saved}COMMIT\n");
        NodeDump::from_texts(&[("iptables-save", &saved), ("nft", listed)])
    }

    const SAVED: &str = ":FORWARD ACCEPT [0:0]\n:A - [0:0]\n-A FORWARD -j A\n";

    /// Lists the table `filter` with chains, and other tables.
    fn list(forward: &str, chains: &str, tables: &str) -> String {
        format!(
            "table ip filter {{\nchain A {{\n}}\n{chains}chain FORWARD {{\ntype filter hook forward \
             priority filter; policy accept;\n{forward}counter packets 0 bytes 0 jump A\n}}\n}}\n{tables}"
        )
    }

    fn differences(first: &NodeDump, second: &NodeDump) -> String {
        let found = compare(first, second);
        let lines = found.iter().map(|difference| {
            let other = difference.repeated_in.as_deref();
            format!("{difference} [{}]", other.unwrap_or_default())
        });
        lines.collect::<Vec<String>>().join("\n")
    }

    #[test]
    fn compare_rule_in_both_outputs_is_one_difference() {
        let good = dump(SAVED, &list("", "", ""));
        let drop = "ip daddr 10.0.0.9 counter packets 0 bytes 0 drop\n";
        let saved = format!("{SAVED}-A FORWARD -d 10.0.0.9/32 -j DROP\n:MINE - [0:0]\n");
        let bad = dump(&saved, &list(drop, "chain MINE {\n}\n", ""));
        insta::assert_snapshot!(differences(&good, &bad), @r"
        iptables filter FORWARD: + -d 10.0.0.9/32 -j DROP [nft list ruleset]
        iptables filter MINE: + whole object [nft list ruleset]
        ");
    }

    #[test]
    fn compare_empty_table_of_iptables_has_no_difference() {
        let good = dump(SAVED, &list("", "", ""));
        let mangle = "table ip mangle {\nchain INPUT {\ntype filter hook input priority mangle; policy \
             accept;\n}\n}\n";
        let bad = dump(SAVED, &list("", "", mangle));
        assert_eq!(differences(&good, &bad), "");
    }

    #[test]
    fn compare_order_of_services_has_no_difference() {
        let services = ["10.0.0.1", "10.0.0.2"];
        let dump_of = |services: &[&str]| {
            let saved = services.iter().map(|address| {
                let comment = format!("default/{address} has no endpoints");
                format!(
                    "-A KUBE-SERVICES -d {address}/32 -m comment --comment \"{comment}\" -j DROP\n"
                )
            });
            let listed = services
                .iter()
                .map(|address| format!("ip daddr {address} counter packets 0 bytes 0 drop\n"));
            let saved: String = saved.collect();
            let listed: String = listed.collect();
            dump(
                &format!("{SAVED}:KUBE-SERVICES - [0:0]\n{saved}"),
                &list("", &format!("chain KUBE-SERVICES {{\n{listed}}}\n"), ""),
            )
        };
        let reversed = dump_of(&[services[1], services[0]]);
        assert_eq!(differences(&dump_of(&services), &reversed), "");
    }

    #[test]
    fn compare_contradicting_outputs_keep_differences() {
        let good = dump(SAVED, &list("", "", ""));
        let only_listed = list(
            "ip saddr 10.0.0.8 drop\n",
            "chain MINE {\n}\n",
            "table ip nat {\n}\n",
        );
        insta::assert_snapshot!(differences(&good, &dump(SAVED, &only_listed)), @r"
        nft ip filter FORWARD: + ip saddr 10.0.0.8 drop []
        nft ip filter MINE: + whole object []
        ");
        let saved = format!("{SAVED}-A A -j DROP\n");
        insta::assert_snapshot!(differences(&good, &dump(&saved, &only_listed)), @r"
        iptables filter A: + -j DROP []
        nft ip filter FORWARD: + ip saddr 10.0.0.8 drop []
        nft ip filter MINE: + whole object []
        ");
    }
}
