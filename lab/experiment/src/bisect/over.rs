//! What was dumped of one node, laid over that node of a lab: the lab says the rest.
//!
//! A whole node takes the place of the lab's. Of one of which only listings were dumped,
//! rules and sets, the tables and sets that they have stand in place of the lab's.

use std::fmt::Write as _;

use thiserror::Error;

use svclab_dump::NodeDump;
use svclab_model::plan::{Iptables, Namespace, Plan};
use svclab_planner::delta::{rules, sets};
use svclab_planner::replay::{Account, graft};
use svclab_ruleset::iptables::Dump;

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
        "{name} holds nothing of a node; collect it with scripts/collect-node, or give what iptables-save prints, and with it in a directory what ipset save prints"
    )]
    Nothing {
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

/// The plan in which a node is what was dumped, and an account of it. `name` is what the
/// dump is called.
///
/// # Errors
///
/// See [`OverError`].
pub fn over(
    plan: &Plan,
    node: &str,
    name: &str,
    dump: &NodeDump,
) -> Result<(Plan, Account), OverError> {
    let mut plan = plan.clone();
    let case = plan.case.clone();
    let there: Vec<String> = plan.namespaces.iter().map(|own| own.name.clone()).collect();
    let Some(before) = plan.namespace(node).cloned() else {
        return Err(OverError::NoNode {
            case,
            node: node.to_owned(),
            there: there.join(", "),
        });
    };
    if dump.formats().next().is_none() {
        return Err(OverError::Nothing {
            name: name.to_owned(),
        });
    }
    let account = graft(&mut plan, node, dump);
    if is_whole(dump) {
        return Ok((plan, account));
    }
    if let Some(namespace) = plan.namespaces.iter_mut().find(|own| own.name == node) {
        with_the_lab_s(namespace, &before, dump);
        let known = sets::read(&namespace.ipset).unwrap_or_default();
        for rules in dump.rules.values() {
            check(name, &case, node, rules, &|set| known.contains_key(set))?;
        }
    }
    Ok((plan, account))
}

/// Whether a dump is of a whole node, and not listings of its rules and sets only.
#[must_use]
pub fn is_whole(dump: &NodeDump) -> bool {
    dump.links.is_some()
}

/// Adds the lab's own tables and sets that were not dumped.
fn with_the_lab_s(namespace: &mut Namespace, before: &Namespace, dump: &NodeDump) {
    if let (Some(own), Some(planned)) = (&mut namespace.iptables, &before.iptables) {
        let both = |text: fn(&mut Iptables) -> &mut String, own: &mut Iptables| {
            let planned = text(&mut planned.clone()).clone();
            let own = text(own);
            *own = with_tables(own, &planned);
        };
        both(|rules| &mut rules.v4, own);
        both(|rules| &mut rules.v6, own);
    }
    if let Some(dumped) = &dump.sets {
        let lines = before.ipset.lines().filter(|line| {
            let name = line.split_whitespace().nth(1).unwrap_or_default();
            !dumped.contains_key(name)
        });
        let planned: String = lines.flat_map(|line| [line, "\n"]).collect();
        namespace.ipset.insert_str(0, &planned);
    }
}

/// The tables of a script, and those of another that it does not have.
fn with_tables(own: &str, other: &str) -> String {
    let mut text = own.to_owned();
    let there = rules::read(own);
    for (name, table) in rules::read(other) {
        if !there.iter().any(|(own, _)| *own == name) {
            let lines: Vec<&str> = table.lines().collect();
            let _ = writeln!(text, "*{name}\n{}\nCOMMIT", lines.join("\n"));
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
    use svclab_model::plan::Backend;
    use svclab_ruleset::tool::{Backing, Ip};

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
        let (plan, _) = over(&lab(), "node-1", "DUMP", &nat).unwrap();
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
