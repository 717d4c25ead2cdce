//! Reports nat chains of iptables and of nftables whose order a dump does not show.
//!
//! At the same hook and priority, the kernel first runs the chain that was created last (Linux
//! v6.12, `net/netfilter/core.c`, `nf_hook_entries_grow`), and only the first translation of a
//! packet counts. A lab creates the chains of iptables first.

use std::collections::{HashMap, HashSet};

use super::super::report::{ReplayReport, list_names};
use svclab_dump::NodeDump;
use svclab_ruleset::Family;
use svclab_ruleset::iptables::script::Table;
use svclab_ruleset::iptables::{Chain, Rule, TableRules};
use svclab_ruleset::nft::Ruleset;

/// Priority of the hooks below in iptables (Linux v6.12, `include/uapi/linux/netfilter_ipv4.h`,
/// `NF_IP_PRI_NAT_DST`).
const PRIORITY: i32 = -100;

/// Hooks that translate destinations, with their chain of iptables.
const HOOKS: [(&str, &str); 2] = [("prerouting", "PREROUTING"), ("output", "OUTPUT")];

/// Targets of iptables that translate destinations.
const TARGETS: [&str; 3] = ["DNAT", "REDIRECT", "NETMAP"];

/// Reports chains of iptables that translate destinations, if `native` has such chains, too.
pub fn report_unknown_order(native: &Ruleset, dump: &NodeDump, report: &mut ReplayReport) {
    for ((family, _), rules) in &dump.rules {
        let Some(nat) = rules.tables.iter().find(|table| table.table == Table::Nat) else {
            continue;
        };
        for (hook, chain) in HOOKS {
            let others = translating_chains(native, *family, hook);
            if others.is_empty() || !translates(nat, chain) {
                continue;
            }
            let others = list_names(&others);
            report.add_omitted(
                format!("the order of {others} and {chain} of iptables"),
                "the chain that was created last runs first, and dumps do not show it",
                format!(
                    "the lab runs {others} first; on the node, rules of {chain} may translate \
                     destinations before that"
                ),
            );
        }
    }
}

/// Returns the chains of nftables with rules at this hook.
fn translating_chains(native: &Ruleset, family: Family, hook: &str) -> Vec<String> {
    let tables = native.tables.iter();
    let tables = tables.filter(|table| [family.nft(), "inet"].contains(&&*table.family));
    let chains = tables.flat_map(|table| table.chains.iter().map(move |chain| (table, chain)));
    let at_hook = chains.filter(|(_, chain)| {
        !chain.rules.is_empty()
            && chain.hook.as_ref().is_some_and(|own| {
                own.kind == "nat" && own.hook == hook && own.priority == PRIORITY
            })
    });
    at_hook
        .map(|(table, chain)| format!("{} {} {}", table.family, table.name, chain.name))
        .collect()
}

/// Whether a built-in chain of iptables has or reaches a rule that translates destinations.
fn translates(nat: &TableRules, built_in: &str) -> bool {
    let chains: HashMap<&str, &Chain> = nat
        .chains
        .iter()
        .map(|chain| (chain.name.as_str(), chain))
        .collect();
    let mut visited = HashSet::new();
    let mut next = vec![built_in.to_owned()];
    while let Some(name) = next.pop() {
        let Some(chain) = chains.get(name.as_str()) else {
            continue;
        };
        for target in chain.rules.iter().filter_map(Rule::target) {
            if TARGETS.contains(&&*target) {
                return true;
            }
            if visited.insert(target.to_string()) {
                next.push(target.into_owned());
            }
        }
    }
    false
}
