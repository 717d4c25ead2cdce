//! Replays dumped nodes: replaces parts of a plan with the contents of a node dump. Output: the
//! changed plan and a replay report.

mod chain_paths;
mod known_sysctls;
mod lab;
mod link_layer;
mod links;
mod naming;
mod not_built;
pub mod rejected;
mod rejection_reason;
mod report;
mod routes;
mod rules;
mod sysctls;

pub use chain_paths::ChainPaths;
pub use lab::{DumpedNode, expect_observed, find_node_of_dump, write_lab};
pub use link_layer::HardwareAddresses;
pub use links::is_unknown_peer;
pub use report::{FileLine, OmittedItem, ReplayReport, UnseenNextHop};

use std::collections::{BTreeMap, BTreeSet};

use not_built::{connections, link_state, rule_state, traffic};

use crate::build::topology::disabled_ipv6::remove_disabled_ipv6;
use svclab_dump::{NodeDump, OwnHardwareAddresses};
use svclab_model::plan::Plan;

/// Replaces a node of the plan with the contents of its dump. Returns a report of the replayed,
/// simulated and omitted parts. `known` are the link-layer addresses according to this dump and to
/// the dumps of other nodes.
///
/// The plan must have a namespace with the name of the node; otherwise nothing changes.
pub fn replace_node(
    plan: &mut Plan,
    node: &str,
    dump: &NodeDump,
    known: &HardwareAddresses,
) -> ReplayReport {
    let mut report = ReplayReport::new(node);
    if plan.namespace(node).is_none() {
        return report;
    }
    links::replay_links(plan, node, dump, &mut report);
    if let Some(namespace) = plan.namespaces.iter_mut().find(|ns| ns.name == node) {
        link_layer::keep_hardware_addresses(namespace, dump);
    }
    let addresses = dump.links.as_ref().map(OwnHardwareAddresses::from_links);
    report.hardware_addresses = addresses.unwrap_or_default();
    routes::replay_routes(plan, node, dump, &mut report);
    link_layer::replay_link_layer(plan, node, dump, known, &mut report);
    if let Some(namespace) = plan.namespaces.iter_mut().find(|ns| ns.name == node) {
        rules::replay_rules(namespace, dump, &mut report);
        sysctls::replay_sysctls(namespace, dump, &mut report);
        remove_disabled_ipv6(namespace);
        traffic::replay_traffic(namespace, dump, &mut report);
        link_state::list_link_state(namespace, dump, &mut report);
    }
    connections::list_connections(plan, dump, &mut report);
    rule_state::report_rule_state(dump, &mut report);
    let flags = dump.proxy.effective_flags();
    if !flags.is_empty() {
        let rules_note = "its rules come from the dump";
        report.add_replayed(format!(
            "kube-proxy was configured with {}: {rules_note}",
            flags.join(" ")
        ));
    }
    // The dump already contains the rules of components and of manual commands.
    if plan.real_proxy(node).is_some() {
        let reason =
            "the rules come from the dump; after a change, svclab generates those of its version";
        report.add_omitted("the real kube-proxy", reason, "");
    }
    plan.kube_proxies.retain(|proxy| proxy.namespace != node);
    plan.commands.retain(|typed| typed.namespace != node);
    report.add_simulated("pods, hosts, balancers and other nodes of the lab");
    if dump.nft.is_none() && !dump.rules.is_empty() {
        report.add_simulated("no tables of nftables: `nft list ruleset` was not dumped");
    }
    if dump.connections.is_none() {
        report.add_simulated("no tracked connections: `conntrack -L` was not dumped");
    }
    if dump.ipsec_policies.is_none() {
        report.add_simulated("no IPsec policies: `ip xfrm policy` was not dumped");
    }
    report.add_simulated("no BPF programs: dumps do not contain them");
    report
}

#[cfg(test)]
mod tests;

/// Removes the rules at these locations, given as files with lines from 1, from a dump. Returns the
/// chain of each removed rule.
pub fn remove_rules(
    dump: &mut NodeDump,
    locations: &BTreeSet<(String, u32)>,
) -> BTreeMap<(String, u32), ChainPaths> {
    let files = &dump.files;
    let mut chains = BTreeMap::new();
    for ((ip, backing), rules) in &mut dump.rules {
        let format = svclab_ruleset::tool::Format::Rules(*ip, *backing);
        let Some(file) = files.get(&format) else {
            continue;
        };
        let location = |line: u32| (file.clone(), line);
        for table in &mut rules.tables {
            for chain in &table.chains {
                let lines = chain.rules.iter().map(|rule| location(rule.line));
                for location in lines.filter(|at| locations.contains(at)) {
                    chains.insert(location, chain_paths::from_iptables(table, &chain.name));
                }
            }
            for chain in &mut table.chains {
                chain
                    .rules
                    .retain(|rule| !locations.contains(&location(rule.line)));
            }
        }
    }
    chains
}
