//! What was dumped of one node, laid over that node of a lab: the lab says the rest.

use std::fmt::Write as _;

use thiserror::Error;

use crate::dump::format::{Backing, Ip};
use crate::dump::iptables::Dump;
use crate::dump::sets::Sets;
use crate::dump::{Format, NodeDump};
use crate::plan::delta::{rules, sets};
use crate::plan::{Backend, Iptables, Plan};

/// Why a dump cannot be laid over a lab.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum OverError {
    /// The lab has no such namespace.
    #[error("{case} has no node `{node}`; it has {there}")]
    NoNode {
        /// The case.
        case: String,
        /// As it was named.
        node: String,
        /// Those that there are.
        there: String,
    },
    /// The dump has nothing that is taken.
    #[error(
        "{name} holds no rules; laid over a lab is what iptables-save and ip6tables-save print, and with them in a directory what ipset save prints"
    )]
    NoRules {
        /// The dump.
        name: String,
    },
    /// A rule names a set that nobody has.
    #[error(
        "{name}: `{rule}` names the set {set}, which neither the dump nor {case} has on {node}; put what `ipset save` prints beside the rules, as ipset-save in one directory"
    )]
    NoSet {
        /// The dump.
        name: String,
        /// The case.
        case: String,
        /// The node.
        node: String,
        /// The rule.
        rule: String,
        /// The set.
        set: String,
    },
    /// A rule leads to a chain that is not there.
    #[error(
        "{name}: `{rule}` leads to the chain {chain} of {table}, which is not there; declare it with `:{chain} - [0:0]`"
    )]
    NoChain {
        /// The dump.
        name: String,
        /// The table.
        table: String,
        /// The rule.
        rule: String,
        /// The chain.
        chain: String,
    },
}

/// The plan in which a node has the rules and sets of a dump. Tables that the dump has
/// stand in place of the lab's, sets in place of those of their names; all else is as in the
/// lab. `name` is what the dump is called.
///
/// # Errors
///
/// See [`OverError`].
pub fn over(plan: &Plan, node: &str, name: &str, dump: &NodeDump) -> Result<Plan, OverError> {
    let mut plan = plan.clone();
    let case = plan.case.clone();
    let there: Vec<String> = plan.namespaces.iter().map(|own| own.name.clone()).collect();
    let Some(namespace) = plan.namespaces.iter_mut().find(|own| own.name == node) else {
        return Err(OverError::NoNode {
            case,
            node: node.to_owned(),
            there: there.join(", "),
        });
    };
    if dump.rules.is_empty() {
        return Err(OverError::NoRules {
            name: name.to_owned(),
        });
    }
    let mut own = namespace.iptables.take().unwrap_or(Iptables {
        backend: Backend::default(),
        ..Iptables::default()
    });
    for ((ip, _), rules) in &dump.rules {
        let text = match ip {
            Ip::V4 => &mut own.v4,
            Ip::V6 => &mut own.v6,
        };
        *text = tables(text, rules);
    }
    namespace.iptables = Some(own);
    if let Some(sets) = &dump.sets {
        namespace.ipset = with_sets(&namespace.ipset, sets);
    }
    let known = sets::read(&namespace.ipset).unwrap_or_default();
    for rules in dump.rules.values() {
        check(name, &case, node, rules, &|set| known.contains_key(set))?;
    }
    Ok(plan)
}

/// What a dump holds besides rules and sets, which is not laid over a lab.
#[must_use]
pub fn left_out(dump: &NodeDump) -> Vec<Format> {
    let taken = |format: &Format| {
        matches!(
            format,
            Format::Sets | Format::Rules(_, Backing::Default | Backing::Legacy)
        )
    };
    dump.formats().filter(|format| !taken(format)).collect()
}

fn tables(there: &str, dump: &Dump) -> String {
    let mut plain = dump.clone();
    for chain in plain.tables.iter_mut().flat_map(|table| &mut table.chains) {
        for rule in &mut chain.rules {
            (rule.packets, rule.bytes) = (None, None);
        }
    }
    let mut text = plain.to_string();
    let taken = |name: &str| {
        dump.tables
            .iter()
            .any(|table| table.table.to_string() == name)
    };
    for (name, table) in rules::read(there) {
        if !taken(name) {
            let lines: Vec<&str> = table.lines().collect();
            let _ = writeln!(text, "*{name}\n{}\nCOMMIT", lines.join("\n"));
        }
    }
    text
}

fn with_sets(there: &str, dump: &Sets) -> String {
    let mut text = String::new();
    for line in there.lines() {
        let name = line.split_whitespace().nth(1).unwrap_or_default();
        if !dump.contains_key(name) {
            let _ = writeln!(text, "{line}");
        }
    }
    for (name, set) in dump {
        let _ = writeln!(text, "create {name} {} {}", &*set.kind, set.options);
        for (entry, carried) in &set.entries {
            let line = format!("add {name} {entry} {}", carried.options);
            let _ = writeln!(text, "{}", line.trim_end());
        }
    }
    text
}

/// Whether every rule finds its chain and its sets.
fn check(
    name: &str,
    case: &str,
    node: &str,
    dump: &Dump,
    known: &impl Fn(&str) -> bool,
) -> Result<(), OverError> {
    for table in &dump.tables {
        for chain in &table.chains {
            for rule in &chain.rules {
                let told = || format!("-A {} {}", chain.name, rule.written().trim());
                if let Some((set, _)) = rule.sets().into_iter().find(|(set, _)| !known(set)) {
                    return Err(OverError::NoSet {
                        name: name.to_owned(),
                        case: case.to_owned(),
                        node: node.to_owned(),
                        rule: told(),
                        set: set.into_owned(),
                    });
                }
                let target = rule.target().unwrap_or_default();
                let is_chain = ["KUBE-", "cali-", "FLANNEL-", "CNI-"]
                    .iter()
                    .any(|begins| target.starts_with(begins));
                if is_chain && !table.chains.iter().any(|own| own.name == target) {
                    return Err(OverError::NoChain {
                        name: name.to_owned(),
                        table: table.table.to_string(),
                        rule: told(),
                        chain: target.into_owned(),
                    });
                }
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Namespace;

    fn lab() -> Plan {
        Plan {
            case: "lab/case".to_owned(),
            namespaces: vec![Namespace {
                name: "node-1".to_owned(),
                ipset: "create A hash:ip family inet\nadd A 10.0.0.1\n".to_owned(),
                iptables: Some(Iptables {
                    backend: Backend::Legacy,
                    v4: "*nat\n:OLD - [0:0]\n-A OUTPUT -j OLD\nCOMMIT\n*filter\n-A INPUT -j DROP\nCOMMIT\n".to_owned(),
                    v6: String::new(),
                }),
                ..Namespace::default()
            }],
            ..Plan::default()
        }
    }

    fn dump(rules: &str) -> NodeDump {
        let mut dump = NodeDump::default();
        let key = (Ip::V4, Backing::Default);
        dump.rules.insert(key, Dump::parse(rules).unwrap());
        dump
    }

    #[test]
    fn a_table_of_the_dump_stands_in_place_of_the_lab_s() {
        let nat = dump(
            "*nat\n:OUTPUT ACCEPT [0:0]\n:NEW - [0:0]\n[1:2] -A OUTPUT -m set --match-set A dst -j NEW\nCOMMIT\n",
        );
        let plan = over(&lab(), "node-1", "DUMP", &nat).unwrap();
        let rules = plan.namespaces[0].iptables.clone().unwrap();
        assert_eq!(rules.backend, Backend::Legacy);
        insta::assert_snapshot!(rules.v4);
    }

    #[test]
    fn what_cannot_be_laid_over_a_lab_is_told() {
        let told =
            |node: &str, dump: &NodeDump| over(&lab(), node, "DUMP", dump).unwrap_err().to_string();
        let set = dump(
            "*nat\n:OUTPUT ACCEPT [0:0]\n-A OUTPUT -m set --match-set B dst -j ACCEPT\nCOMMIT\n",
        );
        let chain = dump("*nat\n:OUTPUT ACCEPT [0:0]\n-A OUTPUT -j KUBE-SERVICES\nCOMMIT\n");
        let all = [
            told("node-2", &chain),
            told("node-1", &NodeDump::default()),
            told("node-1", &set),
            told("node-1", &chain),
        ];
        insta::assert_snapshot!(all.join("\n"));
    }
}
