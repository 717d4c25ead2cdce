//! What turns a standing lab of one plan into one of another: rules, sets,
//! settings, addresses, routes, virtual servers, servers, and what is tried.
//! What it cannot reach is built anew, and [`Rebuild`] says why.
//!
//! Connections that stood stay known to the kernel; forgetting them is a
//! request of its own.

mod links;
pub(crate) mod rules;
pub(crate) mod sets;
mod sysctls;
mod tables;
mod virtual_servers;

use std::collections::BTreeSet;
use std::fmt;

use ipnetwork::IpNetwork;
use serde::{Deserialize, Serialize};

use super::{
    Backend, Forwarding, HealthCheck, Iptables, Namespace, Neighbour, Plan, Probe, Route, Server,
    Sysctl, VirtualServer, Watch,
};

/// What changes, in the order in which an agent applies it: servers that end,
/// then each namespace, then servers that begin.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Delta {
    /// Namespaces in which something changes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub namespaces: Vec<Change>,
    /// Servers that end.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stop: Vec<Server>,
    /// Servers that begin.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub start: Vec<Server>,
    /// All health checks, if they begin anew: they do when one of them changes,
    /// or the virtual servers that they guard.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub health: Option<Vec<HealthCheck>>,
    /// What to try, if that changes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub probes: Option<Vec<Probe>>,
    /// What to look at, if that changes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub watch: Option<Watch>,
}

/// What changes in one namespace, in the order in which it is applied.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Change {
    /// Its name.
    pub namespace: String,
    /// Settings to write, in this order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sysctls: Vec<Sysctl>,
    /// Interfaces that change.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub links: Vec<LinkChange>,
    /// Routes.
    #[serde(default, skip_serializing_if = "Swap::is_empty")]
    pub routes: Swap<Route>,
    /// Neighbours.
    #[serde(default, skip_serializing_if = "Swap::is_empty")]
    pub neighbours: Swap<Neighbour>,
    /// Forwarding entries of vxlan devices.
    #[serde(default, skip_serializing_if = "Swap::is_empty")]
    pub forwarding: Swap<Forwarding>,
    /// Virtual servers: those in `remove` go with all their real servers, those
    /// in `add` come with theirs.
    #[serde(default, skip_serializing_if = "Swap::is_empty")]
    pub ipvs: Swap<VirtualServer>,
    /// The names of nfacct objects that come before the rules change. Those that no rule
    /// counts with any more do nothing, and stay.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub accounting: Vec<String>,
    /// Sets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sets: Option<SetsChange>,
    /// Rules.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub iptables: Option<RulesChange>,
    /// Rules of the other iptables.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub beside: Option<RulesChange>,
    /// Tables of nftables.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nft: Option<TablesChange>,
}

/// How sets change: lines for ipset.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct SetsChange {
    /// Before the rules change: new sets, members that come and go.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub before: String,
    /// After the rules have changed: sets that go.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub after: String,
    /// Whether any set is there from then on.
    pub any: bool,
}

/// What changes of an interface.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct LinkChange {
    /// Its name.
    pub name: String,
    /// Addresses that go, then those that come, in this order.
    #[serde(default, skip_serializing_if = "Swap::is_empty")]
    pub addresses: Swap<IpNetwork>,
    /// Whether it is up, if that changes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub up: Option<bool>,
    /// Its largest packet, if that changes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mtu: Option<u32>,
}

/// What goes, and what comes afterwards.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Swap<T> {
    /// What goes.
    #[serde(default = "Vec::new", skip_serializing_if = "Vec::is_empty")]
    pub remove: Vec<T>,
    /// What comes.
    #[serde(default = "Vec::new", skip_serializing_if = "Vec::is_empty")]
    pub add: Vec<T>,
}

/// How rules change: input for `iptables-restore --noflush`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct RulesChange {
    /// What `iptables-restore` reads.
    pub batches: Iptables,
    /// The tables that the plan fills from now on, by family, 4 or 6: those that
    /// are read back.
    pub tables: Vec<(u8, Vec<String>)>,
}

/// How tables of nftables change, all at once: some go, then others come.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct TablesChange {
    /// Those that go, by family and name: `ip kube-proxy`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub go: Vec<String>,
    /// Input for `nft -f` that makes those that come.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub come: String,
}

/// Why a plan cannot be reached from another by changing a standing lab.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{because}")]
pub struct Rebuild {
    /// In words, about what changes: `node-1 gets another interface eth1`.
    pub because: String,
}

impl Rebuild {
    fn because(because: impl fmt::Display) -> Self {
        Self {
            because: because.to_string(),
        }
    }
}

impl<T> Default for Swap<T> {
    fn default() -> Self {
        Self {
            remove: Vec::new(),
            add: Vec::new(),
        }
    }
}

impl<T> Swap<T> {
    /// Whether nothing goes and nothing comes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.remove.is_empty() && self.add.is_empty()
    }
}

impl<T: PartialEq + Clone> Swap<T> {
    /// From what is there to what shall be, where order says nothing.
    fn between(there: &[T], wanted: &[T]) -> Self {
        Self {
            remove: without(there, wanted),
            add: without(wanted, there),
        }
    }
}

/// What is in `all` and not in `known`.
fn without<T: PartialEq + Clone>(all: &[T], known: &[T]) -> Vec<T> {
    if all == known {
        return Vec::new();
    }
    let missing = all.iter().filter(|one| !known.contains(one));
    missing.cloned().collect()
}

impl Delta {
    /// What turns a lab of the plan `there` into one of the plan `wanted`.
    ///
    /// # Errors
    ///
    /// When that takes a lab built anew.
    pub fn between(there: &Plan, wanted: &Plan) -> Result<Self, Rebuild> {
        let names = |plan: &Plan| -> Vec<String> {
            let all = plan.namespaces.iter();
            all.map(|namespace| namespace.name.clone()).collect()
        };
        if names(there) != names(wanted) {
            return Err(Rebuild::because("it has other namespaces"));
        }
        // What a command did is not known, and so not undone.
        if let Some(typed) = there.typed.iter().chain(&wanted.typed).next() {
            return Err(Rebuild::because(format_args!(
                "on {} something is typed by hand",
                typed.namespace
            )));
        }
        let mut namespaces = Vec::new();
        for (old, new) in there.namespaces.iter().zip(&wanted.namespaces) {
            if old != new {
                namespaces.push(Change::between(old, new)?);
            }
        }
        let virtual_servers: BTreeSet<&str> = namespaces
            .iter()
            .filter(|change| !change.ipvs.is_empty())
            .map(|change| change.namespace.as_str())
            .collect();
        let servers = Swap::between(&there.servers, &wanted.servers);
        // What a check found of a real server is not in any plan.
        let checked_anew = there.health != wanted.health
            || wanted
                .health
                .iter()
                .any(|check| virtual_servers.contains(check.namespace.as_str()));
        Ok(Self {
            namespaces,
            stop: servers.remove,
            start: servers.add,
            health: checked_anew.then(|| wanted.health.clone()),
            probes: (there.probes != wanted.probes).then(|| wanted.probes.clone()),
            watch: (there.watch != wanted.watch).then(|| wanted.watch.clone()),
        })
    }

    /// Whether nothing changes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

impl Change {
    fn between(there: &Namespace, wanted: &Namespace) -> Result<Self, Rebuild> {
        let name = &wanted.name;
        let (links, addresses_went) = links::between(there, wanted)?;
        let routes = if addresses_went {
            // The kernel takes routes away with an address that they lean on;
            // which ones is its to know.
            Swap {
                remove: there.routes.clone(),
                add: wanted.routes.clone(),
            }
        } else {
            Swap::between(&there.routes, &wanted.routes)
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
        Ok(Self {
            namespace: name.clone(),
            sysctls: sysctls::between(name, &there.sysctls, &wanted.sysctls)?,
            links,
            routes,
            neighbours: Swap::between(&there.neighbours, &wanted.neighbours),
            forwarding: Swap::between(&there.forwarding, &wanted.forwarding),
            ipvs: virtual_servers::between(&there.ipvs, &wanted.ipvs),
            accounting: without(&wanted.accounting, &there.accounting),
            sets,
            iptables: rules_between(name, there.iptables.as_ref(), wanted.iptables.as_ref())?,
            beside: rules_between(name, there.beside.as_ref(), wanted.beside.as_ref())?,
            nft: tables::between(&there.nft, &wanted.nft),
        })
    }
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
