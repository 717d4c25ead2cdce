//! Computes the delta from one plan to another: rules, sets, sysctls, addresses, routes, virtual
//! servers, servers and probes. A running lab applies the delta. For any other difference the lab
//! must be rebuilt, and [`RebuildRequired`] gives the reason.
//!
//! A delta leaves conntrack entries in place; their deletion is a separate request.

mod creation_order;
mod links;
pub(crate) mod rules;
mod sets;
mod sysctls;
mod tables;
mod virtual_servers;

use std::collections::BTreeSet;
use std::error::Error;
use std::fmt;

use svclab_model::plan::delta::{AddRemove, LinkChange, NamespaceDelta, RulesChange};
use svclab_model::plan::{Backend, Delta, Iptables, Namespace, Neighbour, Plan};
use svclab_ruleset::input::{Input, InputError};
use svclab_ruleset::iptables::chains::{Chains, ChainsError};
use svclab_ruleset::iptables::script::IptablesScript;

/// Reason why a running lab cannot be changed to a plan and must be rebuilt.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct RebuildRequired {
    /// Message, such as `the list of interfaces of node-1 changes`.
    pub reason: String,
}

impl RebuildRequired {
    fn new(reason: impl fmt::Display) -> Self {
        Self {
            reason: reason.to_string(),
        }
    }
}

/// Returns the items to remove and to add, for lists in which order does not matter.
fn add_remove<T: PartialEq + Clone>(current: &[T], wanted: &[T]) -> AddRemove<T> {
    AddRemove {
        remove: difference(current, wanted),
        add: difference(wanted, current),
    }
}

/// Returns the items of the first list that are not in the second.
pub(crate) fn difference<T: PartialEq + Clone>(items: &[T], known: &[T]) -> Vec<T> {
    if items == known {
        return Vec::new();
    }
    let missing = items.iter().filter(|one| !known.contains(one));
    missing.cloned().collect()
}

/// Returns the delta from the first plan, which a running lab has, to the second.
///
/// # Errors
///
/// Fails if the lab must be rebuilt.
pub fn diff(current: &Plan, wanted: &Plan) -> Result<Delta, RebuildRequired> {
    let names = |plan: &Plan| -> Vec<String> {
        let namespaces = plan.namespaces.iter();
        namespaces.map(|namespace| namespace.name.clone()).collect()
    };
    if names(current) != names(wanted) {
        return Err(RebuildRequired::new("the list of namespaces changes"));
    }
    // The effect of a command on a node is unknown and cannot be undone.
    if let Some(typed) = current.commands.iter().chain(&wanted.commands).next() {
        return Err(RebuildRequired::new(format_args!(
            "`byHand` commands run on {}",
            typed.namespace
        )));
    }
    let mut namespaces = Vec::new();
    for (old, new) in current.namespaces.iter().zip(&wanted.namespaces) {
        if old != new {
            namespaces.push(diff_namespace(old, new)?);
        }
    }
    let virtual_servers: BTreeSet<&str> = namespaces
        .iter()
        .filter(|change| !change.ipvs.is_empty())
        .map(|change| change.namespace.as_str())
        .collect();
    let servers = add_remove(&current.servers, &wanted.servers);
    // The health of real servers is not part of a plan, so checks restart if virtual servers
    // change.
    let restarts_checks = current.health != wanted.health
        || wanted
            .health
            .iter()
            .any(|check| virtual_servers.contains(check.namespace.as_str()));
    Ok(Delta {
        namespaces,
        stop: servers.remove,
        start: servers.add,
        health: restarts_checks.then(|| wanted.health.clone()),
        stages: (current.stages != wanted.stages).then(|| wanted.stages.clone()),
        evidence: (current.evidence != wanted.evidence).then(|| wanted.evidence.clone()),
    })
}

fn diff_namespace(
    current: &Namespace,
    wanted: &Namespace,
) -> Result<NamespaceDelta, RebuildRequired> {
    let name = &wanted.name;
    let (links, has_removal) = links::diff(current, wanted)?;
    let routes = if has_removal {
        // The kernel removes the routes that depend on a removed address.
        AddRemove {
            remove: current.routes.clone(),
            add: wanted.routes.clone(),
        }
    } else {
        add_remove(&current.routes, &wanted.routes)
    };
    if current.routing_rules != wanted.routing_rules
        || current.removed_routing_rules != wanted.removed_routing_rules
    {
        return Err(RebuildRequired::new(format_args!(
            "the routing rules of {name} change"
        )));
    }
    if current.loopback != wanted.loopback
        || current.multipath_routes != wanted.multipath_routes
        || current.removed_routes != wanted.removed_routes
    {
        return Err(RebuildRequired::new(format_args!(
            "the addresses of lo, multipath routes or removed routes of {name} change"
        )));
    }
    if current.ipvs_timeouts != wanted.ipvs_timeouts {
        return Err(RebuildRequired::new(format_args!(
            "the IPVS timeouts of {name} change"
        )));
    }
    let unreadable = |error: InputError| {
        RebuildRequired::new(format_args!(
            "cannot parse the rules or sets of {name}: {error}"
        ))
    };
    let sets = if current.ipset == wanted.ipset {
        None
    } else {
        let sides = (current.ipset.state(), wanted.ipset.state());
        sets::diff(sides.0.map_err(unreadable)?, sides.1.map_err(unreadable)?)
            .map_err(|why| RebuildRequired::new(format_args!("the sets of {name}: {why}")))?
    };
    let nft = if current.nft == wanted.nft {
        None
    } else {
        let sides = (current.nft.state(), wanted.nft.state());
        tables::diff(sides.0.map_err(unreadable)?, sides.1.map_err(unreadable)?)
    };
    if !creation_order::is_kept(current, wanted, nft.as_ref()) {
        return Err(RebuildRequired::new(format_args!(
            "the order of iptables and nftables of {name} changes"
        )));
    }
    let mut neighbours = add_remove(&current.neighbours, &wanted.neighbours);
    let lost = wanted.neighbours.iter().filter(|entry| {
        links
            .iter()
            .any(|change| loses_neighbour(current, change, entry))
            && current.neighbours.contains(entry)
    });
    neighbours.add.extend(lost.cloned());
    Ok(NamespaceDelta {
        namespace: name.clone(),
        sysctls: sysctls::diff(name, &current.sysctls, &wanted.sysctls)?,
        links,
        routes,
        neighbours,
        forwarding: add_remove(&current.forwarding, &wanted.forwarding),
        ipvs: virtual_servers::diff(&current.ipvs, &wanted.ipvs),
        accounting: difference(&wanted.accounting, &current.accounting),
        sets,
        iptables: diff_rules(name, current.iptables.as_ref(), wanted.iptables.as_ref())?,
        other_iptables: diff_rules(
            name,
            current.other_iptables.as_ref(),
            wanted.other_iptables.as_ref(),
        )?,
        nft,
    })
}

/// Whether the kernel removes a neighbour when an interface changes. It removes those of an interface
/// that was down, and of IPv4 when the last address of IPv4 is removed (Linux v6.12,
/// `net/ipv4/fib_frontend.c`, `fib_inetaddr_event`, and `net/ipv4/arp.c`, `arp_ifdown`).
fn loses_neighbour(current: &Namespace, change: &LinkChange, neighbour: &Neighbour) -> bool {
    let loses_all_ipv4 = || {
        let mut links = current.links.iter();
        let link = links.find(|link| link.name == change.name);
        let addresses = link.into_iter().flat_map(|link| &link.addresses);
        let mut ipv4 = addresses.filter(|own| own.is_ipv4()).peekable();
        ipv4.peek().is_some() && ipv4.all(|own| change.addresses.remove.contains(own))
    };
    change.name == neighbour.dev
        && (change.up == Some(true) || (neighbour.address.is_ipv4() && loses_all_ipv4()))
}

fn diff_rules(
    name: &str,
    current: Option<&Iptables>,
    wanted: Option<&Iptables>,
) -> Result<Option<RulesChange>, RebuildRequired> {
    if current == wanted {
        return Ok(None);
    }
    let backend = match (current, wanted) {
        (Some(there), Some(wanted)) if there.backend != wanted.backend => {
            return Err(RebuildRequired::new(format_args!(
                "the iptables backend of {name} changes"
            )));
        }
        (_, Some(rules)) | (Some(rules), None) => rules.backend,
        (None, None) => Backend::default(),
    };
    let none = Input::default();
    let mut batches = [Input::default(), Input::default()];
    let mut tables = Vec::new();
    for (batch, v6) in batches.iter_mut().zip([false, true]) {
        let input = |rules: Option<&'_ Iptables>| {
            let family = rules.map(|rules| if v6 { &rules.v6 } else { &rules.v4 });
            family.unwrap_or(&none).clone()
        };
        let (current, wanted) = (input(current), input(wanted));
        if current != wanted {
            let diff = || -> Result<_, Box<dyn Error>> {
                let (current, wanted) = (current.state()?, wanted.state()?);
                let (old, new) = (
                    changed_tables(current, wanted)?,
                    changed_tables(wanted, current)?,
                );
                Ok(rules::diff(&old, &new))
            };
            let unreadable =
                |error| RebuildRequired::new(format_args!("the rules of {name}: {error}"));
            *batch = diff().map_err(unreadable)?.into();
        }
        if let Ok(script) = wanted.state()
            && !wanted.is_empty()
        {
            let filled = script.tables().map(|(table, _)| table.to_string());
            tables.push((if v6 { 6 } else { 4 }, filled.collect()));
        }
    }
    let [v4, v6] = batches;
    Ok(Some(RulesChange {
        batches: Iptables { backend, v4, v6 },
        tables,
    }))
}

/// Returns the chains of the tables that the other script does not have in the same form. Equal
/// tables need no model.
fn changed_tables(script: &IptablesScript, other: &IptablesScript) -> Result<Chains, ChainsError> {
    let mut chains = Chains::new();
    for (table, block) in script.tables() {
        if other.table(table) != Some(block) {
            chains.load_table(table, block)?;
        }
    }
    Ok(chains)
}

#[cfg(test)]
mod tests;
