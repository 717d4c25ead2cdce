//! Merges two plans: finds their differences by meaning and builds the plan for any subset of the
//! differences.
//!
//! Objects that depend on each other form one difference, so that every subset can be built:
//!
//! - an interface with its peer and everything on it,
//! - a route with the address that reaches its next hop,
//! - rules whose jumps could form a loop.
//!
//! A chain or set of only one plan exists as soon as a rule jumps to it or uses it, or it has
//! content.

mod atoms;
mod difference;
mod ground;
mod loaded;
mod rules;
mod sets;
#[cfg(test)]
mod tests;

use std::collections::{HashMap, HashSet};

use thiserror::Error;

use super::merge::{self, Merged};
use super::narrow::Chosen;
use atoms::{Atom, Atoms, Owned, Where};
pub use difference::{Difference, Kind};
use ground::Ground;
use loaded::Loaded;
use sets::Sets;
use svclab_dump::owner::{Owners, of_link};
use svclab_dump::{NodeDump, Owner};
use svclab_model::plan::{HealthCheck, Namespace, Plan, Server, Typed};
use svclab_planner::print::words;
use svclab_ruleset::iptables::Dump;
use svclab_ruleset::iptables::script::Table;
use svclab_ruleset::ipvs::{RealServer, Timeouts, Virtual, VirtualServer};
use svclab_ruleset::nft;
use svclab_ruleset::tool::{Backing, Ip};

/// Reason why two plans cannot be merged.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum PairError {
    /// Only one plan has a node, pod or host.
    #[error("{only} is in {side} only; bisect compares labs of the same nodes, pods and hosts")]
    Namespaces {
        /// Namespace that only one plan has.
        only: String,
        /// `good` or `bad`.
        side: &'static str,
    },
    /// A real kube-proxy runs on this node and writes its rules itself.
    #[error(
        "a real kube-proxy runs on {0}; what it writes is its own, and bisect tries rules that are known: take `binary` out of the lab, or compare two kube-proxies with `svclab verify`"
    )]
    Proxy(String),
    /// A script uses a command whose effect is not modelled.
    #[error(
        "in {namespace}, the rules of the table {table} are written by a command other than -A, -I, -D, -F, -N, -X or -P; write them with those"
    )]
    Opaque {
        /// Namespace name.
        namespace: String,
        /// Table name.
        table: String,
    },
    /// A rule cannot be parsed.
    #[error("in {namespace}, `{rule}` cannot be read: {why}")]
    Rule {
        /// Namespace name.
        namespace: String,
        /// Rule in iptables syntax: `-A CHAIN …`.
        rule: String,
        /// Parse error.
        why: String,
    },
    /// The sets cannot be parsed.
    #[error("in {namespace}, the sets cannot be read: {why}")]
    Sets {
        /// Namespace name.
        namespace: String,
        /// Parse error.
        why: String,
    },
}

/// Two merged plans.
#[derive(Debug, Clone)]
pub struct Pair {
    /// Parts of the plan that do not vary: the case name and probes of good.
    common: Plan,
    namespaces: Vec<Laid>,
    servers: Merged<Server>,
    health: Merged<Vec<HealthCheck>>,
    typed: Merged<Typed>,
    atoms: Vec<Atom>,
    /// For each atom, the index of its difference.
    groups: Vec<usize>,
    differences: usize,
}

/// Namespace that both plans have.
#[derive(Debug, Clone)]
struct Laid {
    name: String,
    ground: Ground,
    sets: Sets,
    rules: Loaded,
    tables: Merged<(String, String)>,
    ipvs: Merged<VirtualServer>,
    /// Real servers of each virtual server.
    real: HashMap<Virtual, Merged<RealServer>>,
    timeouts: Merged<Timeouts>,
    /// nfacct objects of both sides. Objects that no rule counts with have no effect.
    accounting: Vec<String>,
}

impl Pair {
    /// Merges two plans. The probes are those of the good plan; steps are ignored.
    ///
    /// # Errors
    ///
    /// See [`PairError`].
    pub fn of(good: &Plan, bad: &Plan) -> Result<Self, PairError> {
        for (side, one, other) in [("good", good, bad), ("bad", bad, good)] {
            if let Some(only) = one
                .namespaces
                .iter()
                .find(|own| other.namespace(&own.name).is_none())
            {
                return Err(PairError::Namespaces {
                    only: only.name.clone(),
                    side,
                });
            }
            if let Some(proxy) = one.proxies.first() {
                return Err(PairError::Proxy(proxy.namespace.clone()));
            }
        }
        let mut atoms = Atoms::default();
        let mut namespaces = Vec::new();
        for one in &good.namespaces {
            if let Some(other) = bad.namespace(&one.name) {
                namespaces.push(Laid::of(one, other, &mut atoms)?);
            }
        }
        let grounds: Vec<(&str, &Ground)> = namespaces
            .iter()
            .map(|laid| (laid.name.as_str(), &laid.ground))
            .collect();
        ground::tie_cables(&grounds, &mut atoms);
        let servers = merge::keyed(
            &good.servers,
            &bad.servers,
            |server| format!("{server:?}"),
            |server| {
                (
                    server.namespace.clone(),
                    server.address,
                    server.protocol,
                    server.port,
                )
            },
            atoms.next(),
        );
        let everywhere = |of, place: &str| Where {
            namespace: "",
            of,
            place: place.to_owned(),
        };
        atoms.add(
            &everywhere(Kind::Server, "servers"),
            &servers,
            &good.servers,
            &bad.servers,
            |server| (words::server(server), Owned::Nobody),
        );
        let (one, other) = ([good.health.clone()], [bad.health.clone()]);
        let health = merge::keyed(&one, &other, |all| format!("{all:?}"), |_| (), atoms.next());
        atoms.add(
            &everywhere(Kind::HealthChecks, "health checks"),
            &health,
            &one,
            &other,
            |all| {
                (
                    format!("{} health checks of balancers", all.len()),
                    Owned::Nobody,
                )
            },
        );
        let named = |typed: &Typed| format!("{typed:?}");
        let typed = merge::ordered(&good.typed, &bad.typed, named, named, atoms.next());
        atoms.add(
            &everywhere(Kind::Typed, "typed by hand"),
            &typed,
            &good.typed,
            &bad.typed,
            |typed| (format!("{}: {typed}", typed.namespace), Owned::Nobody),
        );
        let (atoms, groups, differences) = atoms.grouped();
        let common = Plan {
            namespaces: Vec::new(),
            servers: Vec::new(),
            health: Vec::new(),
            typed: Vec::new(),
            steps: Vec::new(),
            objects: Vec::new(),
            ..good.clone()
        };
        Ok(Self {
            common,
            namespaces,
            servers,
            health,
            typed,
            atoms,
            groups,
            differences,
        })
    }

    /// Returns the number of differences. Those that depend on each other count as one.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.differences
    }

    /// Whether the plans have no differences.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.differences == 0
    }

    /// Builds the plan that is as bad in the selected differences and as good in all others.
    #[must_use]
    pub fn plan(&self, chosen: &Chosen) -> Plan {
        let with = |atom: usize| {
            self.groups
                .get(atom)
                .is_some_and(|group| chosen.get(*group) == Some(&true))
        };
        Plan {
            namespaces: self
                .namespaces
                .iter()
                .map(|laid| laid.with(&with))
                .collect(),
            servers: self.servers.with(with).cloned().collect(),
            health: self.health.with(with).next().cloned().unwrap_or_default(),
            typed: self.typed.with(with).cloned().collect(),
            ..self.common.clone()
        }
    }

    /// Describes these differences, each with everything that depends on it.
    #[must_use]
    pub fn told(&self, differences: &[usize]) -> Vec<Vec<Difference>> {
        let owners = self.owners();
        let of = |difference: &usize| {
            let all = self.atoms.iter().zip(&self.groups);
            let own = all.filter(|(_, group)| *group == difference);
            own.map(|(atom, _)| {
                let owners = owners
                    .iter()
                    .find(|(name, _)| *name == atom.difference.namespace);
                Difference {
                    owner: owners.and_then(|(_, owners)| owner(owners, &atom.owned)),
                    ..atom.difference.clone()
                }
            })
            .collect()
        };
        differences.iter().map(of).collect()
    }

    /// Returns the owners of objects in each namespace, derived from the rules of both sides.
    fn owners(&self) -> Vec<(&str, Owners)> {
        let sides = [false, true].map(|bad| self.plan(&vec![bad; self.differences]));
        let of = |name: &str| {
            let own = sides.iter().filter_map(|side| side.namespace(name));
            let rules = own.flat_map(|own| own.iptables.iter().chain(&own.beside));
            let dumps: Vec<NodeDump> = rules
                .map(|rules| {
                    let mut dump = NodeDump::default();
                    for (ip, text) in [(Ip::V4, &rules.v4), (Ip::V6, &rules.v6)] {
                        if let Ok(read) = Dump::parse(text) {
                            dump.rules.insert((ip, Backing::Default), read);
                        }
                    }
                    dump
                })
                .collect();
            Owners::of(&dumps.iter().collect::<Vec<_>>())
        };
        self.namespaces
            .iter()
            .map(|laid| (laid.name.as_str(), of(&laid.name)))
            .collect()
    }
}

fn owner(owners: &Owners, owned: &Owned) -> Option<Owner> {
    match owned {
        Owned::Nobody => None,
        Owned::Chain { table, chain } => owners.of_chain(Table::from_name(table)?, chain),
        Owned::Rule { table, chain, rule } => owners.of_rule(Table::from_name(table)?, chain, rule),
        Owned::Set { set, entry } => owners.of_set(set, entry.as_deref()),
        Owned::Server(server) => owners.of_server(server),
        Owned::Link(name) => of_link(name),
    }
}

/// Merges virtual servers and the real servers of each.
fn balanced(
    good: &Namespace,
    bad: &Namespace,
    atoms: &mut Atoms,
) -> (Merged<VirtualServer>, HashMap<Virtual, Merged<RealServer>>) {
    let place = |of, place: String| Where {
        namespace: &good.name,
        of,
        place,
    };
    let bare = |all: &[VirtualServer]| -> Vec<VirtualServer> {
        let bare = all.iter().map(|server| VirtualServer {
            servers: Vec::new(),
            ..server.clone()
        });
        bare.collect()
    };
    let (one, other) = (bare(&good.ipvs), bare(&bad.ipvs));
    let at = place(Kind::VirtualServer, "ipvs".to_owned());
    let of = |server: &VirtualServer| {
        let text = server.to_string().trim_end().to_owned();
        (text, Owned::Server(server.takes))
    };
    let ipvs = atoms.keyed(&at, &one, &other, |server| server.takes, of);
    let mut real = HashMap::new();
    for slot in &ipvs.slots {
        let takes = slot.item.takes;
        // A virtual server whose scheduler or other settings differ has two slots.
        if real.contains_key(&takes) {
            continue;
        }
        let of = |own: &Namespace| -> Vec<RealServer> {
            let found = own.ipvs.iter().find(|server| server.takes == takes);
            found.map_or_else(Vec::new, |server| server.servers.clone())
        };
        let (one, other) = (of(good), of(bad));
        let first = atoms.next();
        let at = place(Kind::RealServer, format!("ipvs {takes}"));
        let of = |server: &RealServer| {
            let way = format!("{:?}", server.forwarding).to_lowercase();
            let text = format!("{} {way} weight {}", server.to, server.weight);
            (text, Owned::Server(takes))
        };
        let merged = atoms.keyed(&at, &one, &other, |server| server.to, of);
        let has = |own: &Namespace| own.ipvs.iter().any(|server| server.takes == takes);
        if let Some(own) = slot.from.difference().filter(|_| !has(good) || !has(bad)) {
            atoms.tie_all(std::iter::once(own).chain(first..atoms.next()));
        }
        real.insert(takes, merged);
    }
    (ipvs, real)
}

impl Laid {
    fn of(good: &Namespace, bad: &Namespace, atoms: &mut Atoms) -> Result<Self, PairError> {
        let namespace = good.name.as_str();
        let place = |of, place: &str| Where {
            namespace,
            of,
            place: place.to_owned(),
        };
        let ground = Ground::of(good, bad, atoms);
        let sets = Sets::of(namespace, &good.ipset, &bad.ipset, atoms)?;
        let rules = Loaded::of(good, bad, atoms)?;
        let tables = |own: &Namespace| -> Vec<(String, String)> {
            nft::tables(&own.nft)
                .map(|(name, text)| (name.to_owned(), text.to_owned()))
                .collect()
        };
        let (one, other) = (tables(good), tables(bad));
        let of = |(name, _): &(String, String)| (format!("table {name}"), Owned::Nobody);
        let name = |(name, _): &(String, String)| name.clone();
        let tables = atoms.keyed(&place(Kind::Table, "nft"), &one, &other, name, of);
        let (ipvs, real) = balanced(good, bad, atoms);
        let of = |own: &Namespace| -> Vec<Timeouts> { own.ipvs_timeouts.into_iter().collect() };
        let (one, other) = (of(good), of(bad));
        let of = |timeouts: &Timeouts| (timeouts.to_string().trim_end().to_owned(), Owned::Nobody);
        let timeouts = atoms.keyed(&place(Kind::Timeouts, "ipvs"), &one, &other, |_| (), of);
        let mut accounting = good.accounting.clone();
        accounting.extend(
            bad.accounting
                .iter()
                .filter(|own| !good.accounting.contains(own))
                .cloned(),
        );
        Ok(Self {
            name: namespace.to_owned(),
            ground,
            sets,
            rules,
            tables,
            ipvs,
            real,
            timeouts,
            accounting,
        })
    }

    fn with(&self, with: &impl Fn(usize) -> bool) -> Namespace {
        let mut namespace = Namespace {
            name: self.name.clone(),
            accounting: self.accounting.clone(),
            ..Namespace::default()
        };
        self.ground.with(with, &mut namespace);
        let mut named = HashSet::new();
        self.rules.sets(with, &mut named);
        namespace.ipset = self.sets.with(with, named);
        [namespace.iptables, namespace.beside] = self.rules.with(with);
        namespace.nft = self
            .tables
            .with(with)
            .map(|(_, text)| text.as_str())
            .collect();
        let servers = self.ipvs.with(with).map(|server| {
            let real = self.real.get(&server.takes).into_iter();
            VirtualServer {
                servers: real.flat_map(|real| real.with(with)).copied().collect(),
                ..server.clone()
            }
        });
        namespace.ipvs = servers.collect();
        namespace.ipvs_timeouts = self.timeouts.with(with).next().copied();
        namespace
    }
}
