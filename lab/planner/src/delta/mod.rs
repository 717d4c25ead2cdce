//! Computes the delta from one plan to another: rules, sets, sysctls, addresses, routes, virtual
//! servers, servers and probes. A running lab applies the delta. For any other difference the lab
//! must be rebuilt, and [`Rebuild`] gives the reason.
//!
//! A delta leaves conntrack entries in place; their deletion is a separate request.

mod links;
pub mod rules;
pub mod sets;
mod sysctls;
mod tables;
mod virtual_servers;

use std::collections::BTreeSet;
use std::fmt;

use svclab_model::plan::delta::{Change, RulesChange, Swap};
use svclab_model::plan::{Backend, Delta, Iptables, Namespace, Plan};

/// Reason why a running lab cannot be changed to a plan and must be rebuilt.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{because}")]
pub struct Rebuild {
    /// Message, such as `node-1 gets another interface eth1`.
    pub because: String,
}

impl Rebuild {
    fn because(because: impl fmt::Display) -> Self {
        Self {
            because: because.to_string(),
        }
    }
}

/// Returns the items to remove and to add, for lists in which order does not matter.
fn swap<T: PartialEq + Clone>(there: &[T], wanted: &[T]) -> Swap<T> {
    Swap {
        remove: without(there, wanted),
        add: without(wanted, there),
    }
}

/// Returns the items of the first list that are not in the second.
fn without<T: PartialEq + Clone>(all: &[T], known: &[T]) -> Vec<T> {
    if all == known {
        return Vec::new();
    }
    let missing = all.iter().filter(|one| !known.contains(one));
    missing.cloned().collect()
}

/// Returns the delta from the first plan, which a running lab has, to the second.
///
/// # Errors
///
/// Fails if the lab must be rebuilt.
pub fn between(there: &Plan, wanted: &Plan) -> Result<Delta, Rebuild> {
    let names = |plan: &Plan| -> Vec<String> {
        let all = plan.namespaces.iter();
        all.map(|namespace| namespace.name.clone()).collect()
    };
    if names(there) != names(wanted) {
        return Err(Rebuild::because("it has other namespaces"));
    }
    // The effect of a command on a node is unknown and cannot be undone.
    if let Some(typed) = there.typed.iter().chain(&wanted.typed).next() {
        return Err(Rebuild::because(format_args!(
            "on {} something is typed by hand",
            typed.namespace
        )));
    }
    let mut namespaces = Vec::new();
    for (old, new) in there.namespaces.iter().zip(&wanted.namespaces) {
        if old != new {
            namespaces.push(change(old, new)?);
        }
    }
    let virtual_servers: BTreeSet<&str> = namespaces
        .iter()
        .filter(|change| !change.ipvs.is_empty())
        .map(|change| change.namespace.as_str())
        .collect();
    let servers = swap(&there.servers, &wanted.servers);
    // The health of real servers is not part of a plan, so checks restart if virtual servers
    // change.
    let checked_anew = there.health != wanted.health
        || wanted
            .health
            .iter()
            .any(|check| virtual_servers.contains(check.namespace.as_str()));
    Ok(Delta {
        namespaces,
        stop: servers.remove,
        start: servers.add,
        health: checked_anew.then(|| wanted.health.clone()),
        probes: (there.probes != wanted.probes).then(|| wanted.probes.clone()),
        watch: (there.watch != wanted.watch).then(|| wanted.watch.clone()),
    })
}

fn change(there: &Namespace, wanted: &Namespace) -> Result<Change, Rebuild> {
    let name = &wanted.name;
    let (links, addresses_went) = links::between(there, wanted)?;
    let routes = if addresses_went {
        // The kernel removes the routes that depend on a removed address.
        Swap {
            remove: there.routes.clone(),
            add: wanted.routes.clone(),
        }
    } else {
        swap(&there.routes, &wanted.routes)
    };
    if there.policy != wanted.policy {
        return Err(Rebuild::because(format_args!(
            "{name} gets other routing rules"
        )));
    }
    if there.ipvs_timeouts != wanted.ipvs_timeouts {
        return Err(Rebuild::because(format_args!(
            "IPVS of {name} remembers connections otherwise"
        )));
    }
    let sets = sets::between(&there.ipset, &wanted.ipset)
        .map_err(|why| Rebuild::because(format_args!("the sets of {name}: {why}")))?;
    Ok(Change {
        namespace: name.clone(),
        sysctls: sysctls::between(name, &there.sysctls, &wanted.sysctls)?,
        links,
        routes,
        neighbours: swap(&there.neighbours, &wanted.neighbours),
        forwarding: swap(&there.forwarding, &wanted.forwarding),
        ipvs: virtual_servers::between(&there.ipvs, &wanted.ipvs),
        accounting: without(&wanted.accounting, &there.accounting),
        sets,
        iptables: rules_between(name, there.iptables.as_ref(), wanted.iptables.as_ref())?,
        beside: rules_between(name, there.beside.as_ref(), wanted.beside.as_ref())?,
        nft: tables::between(&there.nft, &wanted.nft),
    })
}

fn rules_between(
    name: &str,
    there: Option<&Iptables>,
    wanted: Option<&Iptables>,
) -> Result<Option<RulesChange>, Rebuild> {
    if there == wanted {
        return Ok(None);
    }
    let backend = match (there, wanted) {
        (Some(there), Some(wanted)) if there.backend != wanted.backend => {
            return Err(Rebuild::because(format_args!(
                "the rules of {name} are loaded by another iptables"
            )));
        }
        (_, Some(rules)) | (Some(rules), None) => rules.backend,
        (None, None) => Backend::default(),
    };
    let text = |rules: Option<&Iptables>, v6: bool| {
        rules.map_or_else(String::new, |rules| {
            if v6 {
                rules.v6.clone()
            } else {
                rules.v4.clone()
            }
        })
    };
    let mut batches = [String::new(), String::new()];
    let mut tables = Vec::new();
    for (batch, v6) in batches.iter_mut().zip([false, true]) {
        let wanted = text(wanted, v6);
        *batch = rules::between(&text(there, v6), &wanted);
        if !wanted.is_empty() {
            let filled = wanted.lines().filter_map(|line| line.strip_prefix('*'));
            let filled = filled.map(|table| table.trim().to_owned()).collect();
            tables.push((if v6 { 6 } else { 4 }, filled));
        }
    }
    let [v4, v6] = batches;
    Ok(Some(RulesChange {
        batches: Iptables { backend, v4, v6 },
        tables,
    }))
}

#[cfg(test)]
mod tests;
