//! Overlays the dump of one node on that node of a lab. The lab provides everything else.
//!
//! The dump of a whole node replaces the lab's node. If the dump contains only listings of rules
//! and sets, its tables and sets replace those of the lab's node.

use thiserror::Error;

use svclab_dump::NodeDump;
use svclab_model::plan::{Namespace, Plan};
use svclab_planner::replay::{HardwareAddresses, ReplayReport, replace_node};
use svclab_ruleset::input::Input;
use svclab_ruleset::iptables::IptablesRules;
use svclab_ruleset::iptables::script::IptablesScript;

/// Reason why a dump cannot be overlaid on a lab.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum OverlayError {
    /// The case has no such node.
    #[error("{case} has no node `{node}`; available: {node_names}")]
    NoNode {
        /// Case name: `LAB/CASE`.
        case: String,
        /// Node name as given by the user.
        node: String,
        /// Names of the case's namespaces, comma-separated.
        node_names: String,
    },
    /// The dump contains no usable data.
    #[error(
        "{name} contains no data of a node; collect the node with `svclab collect-node`, or pass \
         the output of `iptables-save`, in one directory with the output of `ipset save`"
    )]
    Empty {
        /// Dump name.
        name: String,
    },
    /// A rule refers to a set that neither the dump nor the case has.
    #[error(
        "{name}: `{rule}` refers to set {set}, which exists neither in the dump nor in {case} on \
         {node}; save the output of `ipset save` as `ipset-save` in the directory of the rules"
    )]
    UnknownSet {
        /// Dump name.
        name: String,
        /// Case name: `LAB/CASE`.
        case: String,
        /// Node name.
        node: String,
        /// Rule in iptables syntax: `-A CHAIN …`.
        rule: String,
        /// Set name.
        set: String,
    },
    /// A rule jumps to a chain that does not exist.
    #[error(
        "{name}: `{rule}` jumps to chain {chain}, which table {table} does not have; declare the \
         chain with `:{chain} - [0:0]`"
    )]
    UnknownChain {
        /// Dump name.
        name: String,
        /// Table name.
        table: String,
        /// Rule in iptables syntax: `-A CHAIN …`.
        rule: String,
        /// Chain name.
        chain: String,
    },
}

/// Returns the plan with the dumped node and a report of what was replayed. `name` is the dump's
/// name for error messages. `known` are the link-layer addresses according to both sides' dumps.
///
/// # Errors
///
/// See [`OverlayError`].
pub fn overlay_dump(
    plan: &Plan,
    node: &str,
    name: &str,
    dump: &NodeDump,
    known: &HardwareAddresses,
) -> Result<(Plan, ReplayReport), OverlayError> {
    let mut plan = plan.clone();
    let case = plan.case.clone();
    let Some(before) = plan.namespace(node).cloned() else {
        let names: Vec<&str> = plan
            .namespaces
            .iter()
            .map(|own| own.name.as_str())
            .collect();
        return Err(OverlayError::NoNode {
            case,
            node: node.to_owned(),
            node_names: names.join(", "),
        });
    };
    if dump.formats().next().is_none() {
        return Err(OverlayError::Empty {
            name: name.to_owned(),
        });
    }
    let account = replace_node(&mut plan, node, dump, known);
    if is_whole(dump) {
        return Ok((plan, account));
    }
    if let Some(namespace) = plan.namespaces.iter_mut().find(|own| own.name == node) {
        add_lab_state(namespace, &before, dump);
        let known = namespace.ipset.state().cloned().unwrap_or_default();
        for rules in dump.rules.values() {
            check_references(name, &case, node, rules, &|set| known.contains_key(set))?;
        }
    }
    Ok((plan, account))
}

/// Whether a dump covers a whole node, and not only listings of its rules and sets.
#[must_use]
pub fn is_whole(dump: &NodeDump) -> bool {
    dump.links.is_some()
}

/// Adds the lab's tables and sets that the dump does not contain.
fn add_lab_state(namespace: &mut Namespace, before: &Namespace, dump: &NodeDump) {
    if let (Some(own), Some(planned)) = (&mut namespace.iptables, &before.iptables) {
        add_missing_tables(&mut own.v4, &planned.v4);
        add_missing_tables(&mut own.v6, &planned.v6);
    }
    if let (Some(dumped), Ok(planned)) = (&dump.sets, before.ipset.state()) {
        let mut sets = planned.clone();
        sets.retain(|name, _| !dumped.contains_key(name));
        sets.extend(dumped.clone());
        namespace.ipset = sets.into();
    }
}

/// Adds the tables of `other` that `own` lacks. Scripts that the planner did not render stay.
fn add_missing_tables(own: &mut Input<IptablesScript>, other: &Input<IptablesScript>) {
    if let Ok(other) = other.state() {
        let _ = own.edit(|script| {
            for (table, block) in other.tables() {
                if script.table(table).is_none() {
                    *script.table_mut(table) = block.clone();
                }
            }
        });
    }
}

/// Checks that the chains and sets that the rules refer to exist.
fn check_references(
    name: &str,
    case: &str,
    node: &str,
    dump: &IptablesRules,
    known: &impl Fn(&str) -> bool,
) -> Result<(), OverlayError> {
    for table in &dump.tables {
        for chain in &table.chains {
            for rule in &chain.rules {
                let rule_text = || format!("-A {} {}", chain.name, rule.source_text().trim());
                if let Some((set, _)) = rule.sets().into_iter().find(|(set, _)| !known(set)) {
                    return Err(OverlayError::UnknownSet {
                        name: name.to_owned(),
                        case: case.to_owned(),
                        node: node.to_owned(),
                        rule: rule_text(),
                        set: set.into_owned(),
                    });
                }
                let target = rule.target().unwrap_or_default();
                let prefixes = ["KUBE-", "cali-", "FLANNEL-", "CNI-"];
                let is_chain = prefixes.iter().any(|prefix| target.starts_with(prefix));
                if is_chain && !table.chains.iter().any(|chain| chain.name == target) {
                    return Err(OverlayError::UnknownChain {
                        name: name.to_owned(),
                        table: table.table.to_string(),
                        rule: rule_text(),
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
    use svclab_model::plan::{Backend, Iptables};
    use svclab_ruleset::Family;
    use svclab_ruleset::tool::DumpedBackend;

    fn lab() -> Plan {
        Plan {
            case: "lab/case".to_owned(),
            namespaces: vec![Namespace {
                name: "node-1".to_owned(),
                ipset: Input::from_text("create A hash:ip family inet\nadd A 10.0.0.1\n"),
                iptables: Some(Iptables {
                    backend: Backend::Legacy,
                    v4: Input::from_text(
                        "*nat\n:OLD - [0:0]\n-A OUTPUT -j OLD\nCOMMIT\n*filter\n-A INPUT -j DROP\nCOMMIT\n",
                    ),
                    v6: Input::default(),
                }),
                ..Namespace::default()
            }],
            ..Plan::default()
        }
    }

    fn dump(rules: &str) -> NodeDump {
        let mut dump = NodeDump::default();
        let key = (Family::V4, DumpedBackend::Default);
        dump.rules.insert(key, IptablesRules::parse(rules).unwrap());
        dump
    }

    #[test]
    fn overlay_dumped_table_replaces_lab_table() {
        let nat = dump(
            "*nat\n:OUTPUT ACCEPT [0:0]\n:NEW - [0:0]\n[1:2] -A OUTPUT -m set --match-set A dst -j NEW\nCOMMIT\n",
        );
        let known = HardwareAddresses::default();
        let (plan, _) = overlay_dump(&lab(), "node-1", "DUMP", &nat, &known).unwrap();
        let rules = plan.namespaces[0].iptables.clone().unwrap();
        assert_eq!(rules.backend, Backend::Legacy);
        insta::assert_snapshot!(rules.v4.text());
    }

    #[test]
    fn overlay_invalid_dump_returns_error() {
        let error_text = |node: &str, dump: &NodeDump| {
            overlay_dump(&lab(), node, "DUMP", dump, &HardwareAddresses::default())
                .unwrap_err()
                .to_string()
        };
        let set = dump(
            "*nat\n:OUTPUT ACCEPT [0:0]\n-A OUTPUT -m set --match-set B dst -j ACCEPT\nCOMMIT\n",
        );
        let chain = dump("*nat\n:OUTPUT ACCEPT [0:0]\n-A OUTPUT -j KUBE-SERVICES\nCOMMIT\n");
        let errors = [
            error_text("node-2", &chain),
            error_text("node-1", &NodeDump::default()),
            error_text("node-1", &set),
            error_text("node-1", &chain),
        ];
        insta::assert_snapshot!(errors.join("\n"));
    }
}
