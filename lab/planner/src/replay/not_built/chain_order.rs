//! Chooses the order of nat chains of iptables and of nftables, and reports it if a dump does not
//! show it.
//!
//! At the same hook and priority, the kernel first runs the chain that was created last (Linux
//! v6.12, `net/netfilter/core.c`, `nf_hook_entries_grow`), and only the first translation of a
//! packet counts. `nft list ruleset` prints tables and the chains of a table in the order of their
//! creation (`net/netfilter/nf_tables_api.c`, `nf_tables_newtable` and `nf_tables_addchain`).
//! iptables-nft creates a built-in chain with the first command for it, which may be long after its
//! table (iptables v1.8.9, `iptables/nft.c`, `nft_xt_builtin_init`).

use std::collections::{HashMap, HashSet};

use super::super::report::{ReplayReport, list_names};
use svclab_dump::NodeDump;
use svclab_ruleset::Family;
use svclab_ruleset::iptables::script::Table as IptablesTable;
use svclab_ruleset::iptables::{Chain, Rule, TableRules};
use svclab_ruleset::nft::{Ruleset, Table};
use svclab_ruleset::tool::DumpedBackend;

/// Built-in chains that translate destinations.
const CHAINS: [&str; 2] = ["PREROUTING", "OUTPUT"];

/// Targets of iptables that translate destinations.
const TARGETS: [&str; 3] = ["DNAT", "REDIRECT", "NETMAP"];

/// Order in which chains of nftables and a built-in chain of iptables were created.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CreationOrder {
    NftFirst,
    /// The chain of iptables was created after its table, which is older than the other table.
    ProbablyNftFirst,
    IptablesFirst,
    Unknown,
}

/// Returns whether to create the tables of `native` before the rules of iptables. Reports chains of
/// iptables that translate destinations if `native` has such chains, too, and the lab may run them
/// in another order than the node.
pub fn creates_nft_first(native: &Ruleset, dump: &NodeDump, report: &mut ReplayReport) -> bool {
    let listed = dump.nft.as_ref().map_or(&[][..], |listed| &listed.tables);
    let built_in = built_in_chains(listed, dump).into_iter();
    let shared = built_in.filter_map(|own| {
        let others = translating_chains(native, own.family, own.chain);
        let others = others.filter(|(table, _)| !is_nat(table, own.family));
        let (tables, names): (Vec<&Table>, Vec<String>) = others.unzip();
        let orders = tables.iter().map(|table| {
            let listed_order = own.is_listed.then(|| order(listed, table, &own));
            listed_order.unwrap_or(CreationOrder::Unknown)
        });
        let orders: Vec<CreationOrder> = orders.collect();
        (!names.is_empty()).then_some((own.chain, list_names(&names), orders))
    });
    let shared: Vec<(&str, String, Vec<CreationOrder>)> = shared.collect();
    let mut orders = shared.iter().flat_map(|(_, _, orders)| orders);
    let nft_first = orders.any(|order| {
        matches!(
            order,
            CreationOrder::NftFirst | CreationOrder::ProbablyNftFirst
        )
    });
    let built = if nft_first {
        CreationOrder::NftFirst
    } else {
        CreationOrder::IptablesFirst
    };
    for (chain, others, orders) in shared {
        if orders.iter().all(|order| *order == built) {
            continue;
        }
        let iptables = format!("{chain} of iptables");
        let (first, second) = if nft_first {
            (&iptables, &others)
        } else {
            (&others, &iptables)
        };
        report.add_omitted(
            format!("the order of {others} and {iptables}"),
            "the chain that was created last runs first, and dumps do not show it",
            format!(
                "the lab runs {first} first; on the node, rules of {second} may translate \
                 destinations before that"
            ),
        );
    }
    nft_first
}

/// Whether a table is the nat table of iptables-nft.
fn is_nat(table: &Table, family: Family) -> bool {
    table.of_iptables() == Some((family, IptablesTable::Nat))
}

/// Built-in chain of iptables that translates destinations.
struct BuiltIn {
    family: Family,
    chain: &'static str,
    /// Whether the listing of all tables has the chain: those of iptables-legacy are not listed.
    is_listed: bool,
}

/// Returns the built-in chains that translate destinations, of saved rules or else of the listing.
fn built_in_chains(listed: &[Table], dump: &NodeDump) -> Vec<BuiltIn> {
    let mut found = Vec::new();
    for ((family, backend), rules) in &dump.rules {
        let mut tables = rules.tables.iter();
        let nat = tables.find(|table| table.table == IptablesTable::Nat);
        let chains = CHAINS
            .into_iter()
            .filter(|chain| nat.is_some_and(|nat| translates(nat, chain)));
        found.extend(chains.map(|chain| BuiltIn {
            family: *family,
            chain,
            is_listed: *backend == DumpedBackend::Default,
        }));
    }
    let families = [Family::V4, Family::V6].into_iter();
    let unsaved = families.filter(|ip| !dump.rules.contains_key(&(*ip, DumpedBackend::Default)));
    for family in unsaved {
        let mut tables = listed.iter();
        let nat = tables.find(|table| is_nat(table, family));
        let chains = nat.into_iter().flat_map(|table| &table.chains);
        let used: Vec<&str> = chains
            .filter(|chain| !chain.rules.is_empty())
            .map(|chain| chain.name.as_str())
            .collect();
        let chains = CHAINS.into_iter().filter(|chain| used.contains(chain));
        found.extend(chains.map(|chain| BuiltIn {
            family,
            chain,
            is_listed: true,
        }));
    }
    found
}

/// Returns the order that the listing of all tables shows.
fn order(listed: &[Table], native: &Table, own: &BuiltIn) -> CreationOrder {
    let position = |is_wanted: &dyn Fn(&Table) -> bool| listed.iter().position(is_wanted);
    let other = position(&|table| table.full_name() == native.full_name());
    let nat = position(&|table| is_nat(table, own.family));
    let (Some(other), Some(nat)) = (other, nat) else {
        return CreationOrder::Unknown;
    };
    if other < nat {
        return CreationOrder::NftFirst;
    }
    let chains = listed[nat].chains.iter().map(|own| own.name.as_str());
    let created = chains.take_while(|name| *name != own.chain);
    let created: Vec<&str> = created.chain([own.chain]).collect();
    // Programs that restore a saved table create its built-in chains at once, in this order.
    let built_in = IptablesTable::Nat.built_in_chains().iter().copied();
    if built_in
        .filter(|name| created.contains(name))
        .eq(created.iter().copied())
    {
        CreationOrder::IptablesFirst
    } else {
        CreationOrder::ProbablyNftFirst
    }
}

/// Returns the chains of nftables with rules at the place of a built-in chain, with their tables.
fn translating_chains<'n>(
    native: &'n Ruleset,
    family: Family,
    built_in: &str,
) -> impl Iterator<Item = (&'n Table, String)> {
    let place = IptablesTable::Nat.hook(built_in);
    let tables = native.tables.iter();
    let tables = tables.filter(move |table| table.covers(family));
    let chains = tables.flat_map(|table| table.chains.iter().map(move |chain| (table, chain)));
    let at_hook = chains.filter(move |(_, chain)| {
        !chain.rules.is_empty()
            && chain.hook.as_ref().is_some_and(|own| {
                own.kind == "nat" && Some((own.hook.clone(), own.priority)) == place
            })
    });
    at_hook.map(|(table, chain)| (table, format!("{} {}", table.full_name(), chain.name)))
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
