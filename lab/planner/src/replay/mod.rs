//! Replays dumped nodes: replaces parts of a plan with the contents of a node dump. Output: the
//! changed plan and a replay report.

mod account;
mod lab;
mod links;
mod naming;
pub mod refused;
mod routes;
mod rules;
mod said;
mod sysctls;
mod ways;

pub use account::{Account, At, LeftOut};
pub use lab::{Dumped, expecting, lab, node_of};
pub use ways::InChain;

use std::collections::{BTreeMap, BTreeSet};

use svclab_dump::NodeDump;
use svclab_model::plan::Plan;

/// Replaces a node of the plan with the contents of its dump. Returns a report of the replayed,
/// simulated and omitted parts.
///
/// The plan must have a namespace with the name of the node; otherwise nothing changes.
pub fn graft(plan: &mut Plan, node: &str, dump: &NodeDump) -> Account {
    let mut account = Account::of(node);
    if plan.namespace(node).is_none() {
        return account;
    }
    links::put(plan, node, dump, &mut account);
    routes::put(plan, node, dump, &mut account);
    if let Some(namespace) = plan.namespaces.iter_mut().find(|ns| ns.name == node) {
        rules::put(namespace, dump, &mut account);
        sysctls::put(namespace, dump, &mut account);
    }
    let told = dump.proxy.told();
    if !told.is_empty() {
        let beside = "its rules are those of the dump";
        account.is_real(format!("kube-proxy was told {}: {beside}", told.join(" ")));
    }
    // The dump already contains the rules of components and of manual commands.
    if plan.proxies.iter().any(|proxy| proxy.namespace == node) {
        account.left_out("the real kube-proxy", "the rules are those of the dump", "");
    }
    plan.proxies.retain(|proxy| proxy.namespace != node);
    plan.typed.retain(|typed| typed.namespace != node);
    account.stands_in("the pods, hosts, balancers and other nodes that the lab has");
    account
}

#[cfg(test)]
mod tests;

/// Removes the rules at these locations, given as files with lines from 1, from a dump. Returns the
/// chain of each removed rule.
pub fn leave_out(
    dump: &mut NodeDump,
    places: &BTreeSet<(String, u32)>,
) -> BTreeMap<(String, u32), InChain> {
    let files = &dump.files;
    let mut stood = BTreeMap::new();
    for ((ip, backing), rules) in &mut dump.rules {
        let format = svclab_ruleset::tool::Format::Rules(*ip, *backing);
        let Some(file) = files.get(&format) else {
            continue;
        };
        let place = |line: u32| (file.clone(), line);
        for table in &mut rules.tables {
            for chain in &table.chains {
                let lines = chain.rules.iter().map(|rule| place(rule.line));
                for at in lines.filter(|at| places.contains(at)) {
                    stood.insert(at, ways::of_iptables(table, &chain.name));
                }
            }
            for chain in &mut table.chains {
                chain
                    .rules
                    .retain(|rule| !places.contains(&place(rule.line)));
            }
        }
    }
    stood
}
