//! Compares the order in which a change creates nat chains with their order in a new lab.
//!
//! At the same hook and priority, the kernel first runs the chain that was created last (Linux
//! v6.12, `net/netfilter/core.c`, `nf_hook_entries_grow`), and only the first translation of a
//! packet counts.

use std::collections::HashSet;

use svclab_model::plan::delta::TablesChange;
use svclab_model::plan::{Backend, Namespace};
use svclab_ruleset::Family;
use svclab_ruleset::iptables::script::{IptablesScript, Table};
use svclab_ruleset::nft::{Removal, TablePart};

/// Family, hook and priority of a nat chain.
type Place = (Family, String, i32);

/// Whether nat chains of iptables and of nftables at the same place have the same order after a
/// change as in a new lab. The change creates chains of iptables before those of nftables.
pub fn is_kept(current: &Namespace, wanted: &Namespace, nft: Option<&TablesChange>) -> bool {
    let removals = nft.into_iter().flat_map(|change| &change.remove);
    let removed: Vec<&str> = removals.filter_map(removed_table).collect();
    let existing = [iptables_places(current), nftables_places(current, &removed)];
    let tables = nftables_places(wanted, &[]);
    iptables_places(wanted).intersection(&tables).all(|place| {
        match existing.each_ref().map(|places| places.contains(place)) {
            [true, true] => current.nft_first == wanted.nft_first,
            [false, true] => wanted.nft_first,
            [_, false] => !wanted.nft_first,
        }
    })
}

fn removed_table(removal: &Removal) -> Option<&str> {
    matches!(removal.part, TablePart::Whole).then_some(removal.table.as_str())
}

/// Returns the places of the nat chains of iptables. Input that cannot be parsed has none: its
/// change fails.
fn iptables_places(namespace: &Namespace) -> HashSet<Place> {
    let inputs = namespace.iptables_rules().flat_map(|rules| {
        [(Family::V4, &rules.v4), (Family::V6, &rules.v6)]
            .map(|(family, input)| (rules.backend, family, input))
    });
    let places = inputs.flat_map(|(backend, family, input)| {
        let script = input.state().ok();
        let chains = script.map_or_else(Vec::new, |script| nat_chains(backend, script));
        let places = chains
            .into_iter()
            .filter_map(|chain| Table::Nat.hook(chain));
        places.map(move |(hook, priority)| (family, hook, priority))
    });
    places.collect()
}

/// Returns the built-in chains that exist after a script: iptables-legacy creates those of a table
/// at once.
fn nat_chains(backend: Backend, script: &IptablesScript) -> Vec<&str> {
    match (script.table(Table::Nat), backend) {
        (None, _) => Vec::new(),
        (Some(_), Backend::Legacy) => Table::Nat.built_in_chains().to_vec(),
        (Some(nat), Backend::Nft) => nat.used_built_in_chains(Table::Nat).collect(),
    }
}

/// Returns the places of the nat chains of all nftables tables but the removed ones.
fn nftables_places(namespace: &Namespace, removed: &[&str]) -> HashSet<Place> {
    let tables = namespace.nft.state().ok().map(|ruleset| &ruleset.tables);
    let tables = tables.into_iter().flatten();
    let tables = tables.filter(|table| !removed.contains(&table.full_name().as_str()));
    let chains = tables.flat_map(|table| table.chains.iter().map(move |chain| (table, chain)));
    let places = chains.flat_map(|(table, chain)| {
        let nat = chain.hook.iter().filter(|hook| hook.kind == "nat");
        nat.flat_map(move |hook| {
            let families = [Family::V4, Family::V6].into_iter();
            let own = families.filter(|ip| table.covers(*ip));
            own.map(|ip| (ip, hook.hook.clone(), hook.priority))
        })
    });
    places.collect()
}
