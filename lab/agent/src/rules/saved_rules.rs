//! Reads the rules of a namespace from the kernel: those of the plan, and rules of other programs.
//!
//! Tables of `ip_tables` that do not exist are not read: reading a missing table creates it (Linux
//! v6.12, `net/netfilter/x_tables.c`, `xt_find_table_lock`).

use std::collections::BTreeSet;
use std::fs;
use std::io;

use crate::net::netfilter::attributes::ReceivedAttributes;
use crate::net::netfilter::nfnetlink;
use crate::net::netns::NetNs;
use crate::program;
use crate::rules;
use crate::runtime::failure;
use svclab_model::evidence::{SavedRules, TraceEvent};
use svclab_model::plan::{Backend, Namespace};
use svclab_model::protocol::Failure;
use svclab_model::tools::iptables_program;
use svclab_ruleset::iptables::script::Table;

/// Request for a dump of the tables of `nf_tables`, and the attribute with a table's name (Linux
/// v6.12, `include/uapi/linux/netfilter/nf_tables.h`).
const GET_TABLE: u16 = 0x0a00 | 1;
const TABLE_NAME: u16 = 1;

/// Families of tables: `NFPROTO_IPV4`, `NFPROTO_IPV6` and `NFPROTO_NETDEV`.
const IPV4: u8 = 2;
const IPV6: u8 = 10;
const NETDEV: u8 = 5;

/// Returns the rules of both iptables backends.
///
/// # Errors
///
/// When the plan's own rules cannot be read.
pub(crate) async fn read_iptables(
    ns: &NetNs,
    plan: &Namespace,
    events: &[TraceEvent],
) -> Result<Vec<SavedRules>, Failure> {
    let mut saved = Vec::new();
    for backend in [Backend::Nft, Backend::Legacy] {
        for ip in [4, 6] {
            let mut backends = plan.iptables_rules();
            let planned = backends.find(|rules| rules.backend == backend);
            let input = planned.map(|own| if ip == 6 { &own.v6 } else { &own.v4 });
            let planned_tables: BTreeSet<&str> = input
                .iter()
                .flat_map(|input| rules::table_names(input.text()))
                .collect();
            let added = events
                .iter()
                .filter(|met| (met.backend, met.ip_version, met.inet) == (backend, ip, false))
                .filter(|met| met.namespace == plan.name)
                .map(|met| met.table.as_str())
                .filter(|table| Table::from_name(table).is_some());
            let existing = match backend {
                Backend::Legacy => legacy_tables(ns, ip),
                Backend::Nft => Vec::new(),
            };
            let existing = existing.iter().map(String::as_str);
            let planned = planned_tables.iter().copied();
            let tables: BTreeSet<&str> = planned.chain(added).chain(existing).collect();
            if tables.is_empty() {
                continue;
            }
            match run_save(ns, &plan.name, backend, ip, &tables).await {
                Ok(text) => saved.push(SavedRules {
                    namespace: plan.name.clone(),
                    backend,
                    ip_version: ip,
                    text,
                }),
                Err(error) if !planned_tables.is_empty() => return Err(error),
                // Without the program that created the rules, their text cannot be read.
                Err(_) => {}
            }
        }
    }
    Ok(saved)
}

/// Returns the existing tables of `ip_tables`. The list is empty if it cannot be read.
fn legacy_tables(ns: &NetNs, ip: u8) -> Vec<String> {
    let file = match ip {
        6 => "/proc/thread-self/net/ip6_tables_names",
        _ => "/proc/thread-self/net/ip_tables_names",
    };
    let names = ns.enter(|| fs::read_to_string(file)).and_then(|read| read);
    let names = names.unwrap_or_default();
    names.lines().map(str::to_owned).collect()
}

async fn run_save(
    ns: &NetNs,
    name: &str,
    backend: Backend,
    ip: u8,
    tables: &BTreeSet<&str>,
) -> Result<String, Failure> {
    let program = iptables_program(ip, backend, "save");
    // Each table of iptables-legacy is selected by name. iptables-nft prints all tables in one run.
    let runs: Vec<Vec<&str>> = match backend {
        Backend::Legacy => tables.iter().map(|table| vec!["-c", "-t", table]).collect(),
        Backend::Nft => vec![vec!["-c"]],
    };
    let mut text = String::new();
    for arguments in &runs {
        let finished = program::run(ns, name, &program, arguments, "").await?;
        if !finished.success {
            return Err(failure::bug(format!(
                "{program} failed in {name}: {}",
                finished.stderr.trim()
            )));
        }
        text.push_str(&finished.stdout);
    }
    Ok(text)
}

/// Returns the output of `nft list ruleset` if packets matched a table that iptables did not print.
/// Returns `None` if there is no such table, or if `nft` fails.
pub(crate) async fn read_nft(
    ns: &NetNs,
    name: &str,
    events: &[TraceEvent],
    saved: &[SavedRules],
) -> Option<String> {
    let is_printed = |met: &TraceEvent| {
        saved
            .iter()
            .filter(|rules| (rules.backend, rules.ip_version) == (Backend::Nft, met.ip_version))
            .any(|own| rules::table_names(&own.text).any(|table| table == met.table))
    };
    events
        .iter()
        .filter(|met| met.namespace == name && met.backend == Backend::Nft)
        .find(|met| met.inet || !is_printed(met))?;
    list_nft(ns, name, &["-a", "list", "ruleset"]).await
}

/// Returns the output of `nft list ruleset` if a namespace with rules has a table that neither the
/// plan nor iptables created: packets that are dropped before it do not match it, and chains of
/// the family `netdev` drop packets before the kernel traces them. Of a namespace whose plan has
/// tables, only those of `netdev` are looked for: all others are part of its state. Returns `None`
/// if there is no such table, or if `nft` fails.
pub(crate) async fn read_foreign_tables(ns: &NetNs, plan: &Namespace) -> Option<String> {
    if plan.iptables.is_none() && plan.nft.is_empty() {
        return None;
    }
    let tables = table_names(ns).ok()?;
    tables.iter().find(|(family, name)| {
        let is_iptables = matches!(*family, IPV4 | IPV6) && Table::from_name(name).is_some();
        !is_iptables && (plan.nft.is_empty() || *family == NETDEV)
    })?;
    list_nft(ns, &plan.name, &["-a", "list", "ruleset"]).await
}

/// Returns the family and name of each table of `nf_tables`.
fn table_names(ns: &NetNs) -> io::Result<Vec<(u8, String)>> {
    let mut tables = Vec::new();
    ns.enter(|| {
        nfnetlink::dump(GET_TABLE, |message| {
            let name = ReceivedAttributes(message.attributes).text(TABLE_NAME);
            tables.extend(name.map(|name| (message.family, name.to_owned())));
        })
    })??;
    Ok(tables)
}

async fn list_nft(ns: &NetNs, name: &str, arguments: &[&str]) -> Option<String> {
    let output = program::run(ns, name, "nft", arguments, "").await;
    let listed = output.ok().filter(|listed| listed.success)?;
    Some(listed.stdout)
}
