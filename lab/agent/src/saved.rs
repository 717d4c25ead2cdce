//! Reading back the rules of a namespace: those of the plan, and those that somebody
//! has added since, as far as packets met them.
//!
//! A table that no packet met is not asked for: asking `ip_tables` for one that is not
//! there makes it (Linux v6.12, `net/netfilter/x_tables.c`, `xt_find_table_lock`).

use std::collections::BTreeSet;

use super::netns::NetNs;
use super::{failure, program, rules};
use svclab_model::evidence::{Met, SavedRules};
use svclab_model::plan::{Backend, Namespace};
use svclab_model::protocol::Failure;
use svclab_model::tools::iptables_program;
use svclab_ruleset::iptables::script::Table;

/// The rules of both iptables.
///
/// # Errors
///
/// When the plan's own cannot be read.
pub async fn iptables(
    ns: &NetNs,
    plan: &Namespace,
    met: &[Met],
) -> Result<Vec<SavedRules>, Failure> {
    let mut saved = Vec::new();
    for backend in [Backend::Nft, Backend::Legacy] {
        for ip in [4, 6] {
            let planned = plan.iptables.as_ref().filter(|own| own.backend == backend);
            let input = planned.map(|own| if ip == 6 { &own.v6 } else { &own.v4 });
            let own: BTreeSet<&str> = input.iter().flat_map(|own| rules::tables(own)).collect();
            let added = met
                .iter()
                .filter(|met| (met.by, met.ip, met.inet) == (backend, ip, false))
                .filter(|met| met.namespace == plan.name)
                .map(|met| met.table.as_str())
                .filter(|table| Table::from_name(table).is_some());
            let tables: BTreeSet<&str> = own.iter().copied().chain(added).collect();
            if tables.is_empty() {
                continue;
            }
            match read(ns, &plan.name, backend, ip, &tables).await {
                Ok(text) => saved.push(SavedRules {
                    namespace: plan.name.clone(),
                    backend,
                    ip,
                    text,
                }),
                Err(error) if !own.is_empty() => return Err(error),
                // Without the program that made them they have no text.
                Err(_) => {}
            }
        }
    }
    Ok(saved)
}

async fn read(
    ns: &NetNs,
    name: &str,
    backend: Backend,
    ip: u8,
    tables: &BTreeSet<&str>,
) -> Result<String, Failure> {
    let program = iptables_program(ip, backend, "save");
    // By name: the list of tables that legacy keeps is root's alone to read, and a
    // user namespace's root is not that one. With nft one start does for all.
    let starts: Vec<Vec<&str>> = match backend {
        Backend::Legacy => tables.iter().map(|table| vec!["-c", "-t", table]).collect(),
        Backend::Nft => vec![vec!["-c"]],
    };
    let mut text = String::new();
    for arguments in &starts {
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

/// What `nft` prints, where packets met a table that is not in what iptables printed;
/// none where they did not, or the program is not there.
pub async fn nft(ns: &NetNs, name: &str, met: &[Met], saved: &[SavedRules]) -> Option<String> {
    let is_printed = |met: &Met| {
        saved
            .iter()
            .filter(|own| (own.backend, own.ip) == (Backend::Nft, met.ip))
            .any(|own| rules::tables(&own.text).any(|table| table == met.table))
    };
    met.iter()
        .filter(|met| met.namespace == name && met.by == Backend::Nft)
        .find(|met| met.inet || !is_printed(met))?;
    let listed = program::run(ns, name, "nft", &["-a", "-s", "list", "ruleset"], "").await;
    let listed = listed.ok().filter(|listed| listed.success)?;
    Some(listed.stdout)
}
