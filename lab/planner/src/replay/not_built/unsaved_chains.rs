//! Reports chains in the tables of iptables that `nft list ruleset` shows and `iptables-save` does
//! not. A lab builds these tables from `iptables-save`.
//!
//! iptables-save omits the chains of other programs: those with another hook, priority or name than
//! the built-in ones, and whole tables with rules that it cannot print (iptables 1.8.9,
//! `iptables/nft.c`, `nft_is_table_compatible` and `nft_is_table_tainted`).

use super::super::report::{ReplayReport, list_names};
use svclab_ruleset::iptables::TableRules;
use svclab_ruleset::iptables::script;
use svclab_ruleset::nft::{Chain, Table};

/// Reports the chains of a table that the saved rules lack, and those with other rules.
pub fn report_unsaved_chains(listed: &Table, saved: &TableRules, report: &mut ReplayReport) {
    let find = |chain: &Chain| saved.chains.iter().find(|own| own.name == chain.name);
    let is_unsaved = |chain: &&Chain| find(chain).is_none() && !is_plain(chain);
    let unsaved: Vec<String> = listed.chains.iter().filter(is_unsaved).map(name).collect();
    let table = listed.full_name();
    if !unsaved.is_empty() {
        report.add_omitted(
            format!("{} of table {table} of nftables", list_names(&unsaved)),
            "not in the output of iptables-save, from which the lab has the table",
            "their rules and policies may drop or change packets",
        );
    }
    let differs =
        |chain: &&Chain| find(chain).is_some_and(|own| own.rules.len() != chain.rules.len());
    let differing: Vec<String> = listed.chains.iter().filter(differs).map(name).collect();
    if !differing.is_empty() {
        report.add_omitted(
            format!("{} of table {table} of nftables", list_names(&differing)),
            "another number of rules than in the output of iptables-save, from which the lab has the table",
            "rules that only nft prints may drop or change packets",
        );
    }
    if listed.flags.iter().any(|flags| flags.contains("dormant")) {
        report.add_omitted(
            format!("the flag `dormant` of table {table} of nftables"),
            "iptables-save does not print it",
            "the rules of the table apply in the lab, but not on the node",
        );
    }
}

/// Whether a chain cannot affect packets: a built-in chain without rules that accepts packets.
/// Whether iptables-save prints such a chain depends on earlier use of the table.
fn is_plain(chain: &Chain) -> bool {
    let accepts = |chain: &Chain| chain.hook.as_ref().is_none_or(|own| own.policy == "accept");
    chain.rules.is_empty() && accepts(chain)
}

/// Whether a table has no rules and drops no packets.
pub fn is_plain_table(table: &Table) -> bool {
    table.chains.iter().all(is_plain)
}

fn name(chain: &Chain) -> String {
    chain.name.clone()
}

/// Returns the table of iptables with the name of a table of nftables.
pub fn saved_table<'s>(table: &Table, saved: &'s [TableRules]) -> Option<&'s TableRules> {
    let own = script::Table::from_name(&table.name)?;
    saved.iter().find(|saved| saved.table == own)
}
