//! Merges two plans: finds their differences by meaning and builds the plan for any subset of the
//! differences.
//!
//! Objects that depend on each other form one difference, so that every subset can be built:
//!
//! - an interface with its peer and everything on it,
//! - a route with the address that reaches its next hop,
//! - rules whose jumps could form a loop,
//! - the declaration of an nftables set with its elements and the rules that use it.
//!
//! A chain or set of only one plan exists as soon as a rule jumps to it or uses it, or it has
//! content.

mod difference;
mod graph;
mod health;
mod iptables;
mod network;
mod nft;
mod rules;
mod servers;
mod sets;
#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::collections::HashSet;

use thiserror::Error;

use super::merge::{self, Merged};
use super::narrow::DifferenceMask;
pub use difference::{Difference, Kind};
use graph::{DifferenceGraph, DifferenceNode, OwnerKey, Scope};
use health::with_real_servers_of;
use iptables::MergedIptables;
use network::MergedNetwork;
use nft::MergedTables;
use servers::MergedServers;
use sets::MergedSets;
use svclab_dump::owner::{Owners, link_owner, tunnel_owner};
use svclab_dump::{NodeDump, Owner};
use svclab_model::plan::{HealthCheck, Namespace, NodeCommand, Plan, Server, Stage};
use svclab_planner::print::descriptions;
use svclab_planner::replay::is_unknown_peer;
use svclab_ruleset::Family;
use svclab_ruleset::input::InputError;
use svclab_ruleset::iptables::IptablesRules;
use svclab_ruleset::iptables::script::Table;
use svclab_ruleset::tool::DumpedBackend;

/// Reason why two plans cannot be merged.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum PairError {
    /// Only one plan has a node, pod or host.
    #[error(
        "{namespace} exists only in {side}; bisect requires labs with the same nodes, pods and \
         hosts"
    )]
    Namespaces {
        /// Namespace that only one plan has.
        namespace: String,
        /// `good` or `bad`.
        side: &'static str,
    },
    /// A real kube-proxy runs on this node and writes its rules itself.
    #[error(
        "a real kube-proxy runs on {0} and generates its own rules, but bisect requires known \
         rules; remove `binary` from the lab, or compare two kube-proxies with `svclab verify`"
    )]
    RealProxy(String),
    /// A script has a command that fails or whose effect is not modelled.
    #[error("cannot interpret the rules of {namespace}: {why}")]
    UnsupportedCommand {
        /// Namespace name.
        namespace: String,
        /// Error with the command.
        why: String,
    },
    /// A rule cannot be parsed.
    #[error("cannot parse rule `{rule}` in {namespace}: {why}")]
    Rule {
        /// Namespace name.
        namespace: String,
        /// Rule in iptables syntax: `-A CHAIN …`.
        rule: String,
        /// Parse error.
        why: String,
    },
    /// The nftables tables cannot be parsed.
    #[error("cannot parse the nftables tables in {namespace}: {why}")]
    Tables {
        /// Namespace name.
        namespace: String,
        /// Parse error.
        why: String,
    },
    /// The sets cannot be parsed.
    #[error("cannot parse the sets in {namespace}: {why}")]
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
    namespaces: Vec<MergedNamespace>,
    servers: Merged<Server>,
    health: Merged<Vec<HealthCheck>>,
    typed: Merged<NodeCommand>,
    nodes: Vec<DifferenceNode>,
    /// For each node, the index of its difference.
    groups: Vec<usize>,
    differences: usize,
}

/// Namespace that both plans have.
#[derive(Debug, Clone)]
struct MergedNamespace {
    name: String,
    network: MergedNetwork,
    sets: MergedSets,
    rules: MergedIptables,
    nft_tables: MergedTables,
    /// Whether a side creates the nftables tables first: the other side may not have the chains for
    /// which the order matters.
    nft_first: bool,
    ipvs: MergedServers,
    /// nfacct objects of both sides. Objects that no rule counts with have no effect.
    accounting: Vec<String>,
}

/// Checks that both plans have the same namespaces and no real kube-proxy.
fn check_namespaces(good: &Plan, bad: &Plan) -> Result<(), PairError> {
    for (side, plan, counterpart) in [("good", good, bad), ("bad", bad, good)] {
        if let Some(only) = plan
            .namespaces
            .iter()
            .filter(|namespace| !is_unknown_peer(&namespace.name))
            .find(|namespace| counterpart.namespace(&namespace.name).is_none())
        {
            return Err(PairError::Namespaces {
                namespace: only.name.clone(),
                side,
            });
        }
        if let Some(proxy) = plan.kube_proxies.first() {
            return Err(PairError::RealProxy(proxy.namespace.clone()));
        }
    }
    Ok(())
}

/// Merges the namespaces of both plans, in the order of the good one.
fn merge_namespaces(
    good: &Plan,
    bad: &Plan,
    graph: &mut DifferenceGraph,
) -> Result<Vec<MergedNamespace>, PairError> {
    let is_new = |namespace: &&Namespace| good.namespace(&namespace.name).is_none();
    let all = good.namespaces.iter();
    let all = all.chain(bad.namespaces.iter().filter(is_new));
    let merged = all.map(|namespace| {
        let [good, bad] = [good, bad].map(|plan| {
            let own = plan.namespace(&namespace.name).map(Cow::Borrowed);
            own.unwrap_or_else(|| Cow::Owned(without_network(namespace)))
        });
        MergedNamespace::new(&good, &bad, graph)
    });
    merged.collect()
}

/// Returns the namespace without what its interfaces need. A namespace beyond an interface that only
/// one side has is the same on the other side, but not connected.
fn without_network(namespace: &Namespace) -> Namespace {
    Namespace {
        links: Vec::new(),
        routes: Vec::new(),
        neighbours: Vec::new(),
        ..namespace.clone()
    }
}

impl Pair {
    /// Merges two plans. The probes are those of the good plan; steps are ignored.
    ///
    /// # Errors
    ///
    /// See [`PairError`].
    pub fn new(good: &Plan, bad: &Plan) -> Result<Self, PairError> {
        check_namespaces(good, bad)?;
        let mut graph = DifferenceGraph::default();
        let namespaces = merge_namespaces(good, bad, &mut graph)?;
        let grounds: Vec<(&str, &MergedNetwork)> = namespaces
            .iter()
            .map(|merged| (merged.name.as_str(), &merged.network))
            .collect();
        network::join_veth_pairs(&grounds, &mut graph);
        let servers = merge::merge_keyed(
            &good.servers,
            &bad.servers,
            |server| format!("{server:?}"),
            |Server {
                 namespace,
                 address,
                 protocol,
                 port,
                 ..
             }| { (namespace.clone(), *address, *protocol, *port) },
            graph.next_index(),
        );
        let global_scope = |kind, location: &str| Scope {
            namespace: "",
            kind,
            location: location.to_owned(),
        };
        graph.add(
            &global_scope(Kind::Server, "servers"),
            &servers,
            &good.servers,
            &bad.servers,
            |server| (descriptions::describe_server(server), OwnerKey::Unknown),
        );
        let (good_health, bad_health) = ([good.health.clone()], [bad.health.clone()]);
        let health = merge::merge_keyed(
            &good_health,
            &bad_health,
            |all| format!("{all:?}"),
            |_| (),
            graph.next_index(),
        );
        graph.add(
            &global_scope(Kind::HealthChecks, "health checks"),
            &health,
            &good_health,
            &bad_health,
            |checks| {
                let text = format!("{} health checks of load balancers", checks.len());
                (text, OwnerKey::Unknown)
            },
        );
        let identity = |typed: &NodeCommand| format!("{typed:?}");
        let typed = merge::merge_ordered(
            &good.commands,
            &bad.commands,
            identity,
            identity,
            graph.next_index(),
        );
        graph.add(
            &global_scope(Kind::Command, "manual commands"),
            &typed,
            &good.commands,
            &bad.commands,
            |typed| (format!("{}: {typed}", typed.namespace), OwnerKey::Unknown),
        );
        let (nodes, groups, differences) = graph.into_groups();
        let common = Plan {
            namespaces: Vec::new(),
            servers: Vec::new(),
            health: Vec::new(),
            commands: Vec::new(),
            stages: vec![Stage::new(good.initial_probes().cloned().collect())],
            objects: Vec::new(),
            ..good.clone()
        };
        Ok(Self {
            common,
            namespaces,
            servers,
            health,
            typed,
            nodes,
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
    pub fn plan(&self, chosen: &DifferenceMask) -> Plan {
        let with = |atom: usize| {
            self.groups
                .get(atom)
                .is_some_and(|group| chosen.get(*group) == Some(&true))
        };
        let namespaces = self.namespaces.iter().map(|laid| laid.build(&with));
        let namespaces: Vec<Namespace> = namespaces.collect();
        let health = self.health.selected(with).flatten();
        let health = health.filter_map(|check| with_real_servers_of(&namespaces, check));
        Plan {
            servers: self.servers.selected(with).cloned().collect(),
            health: health.collect(),
            namespaces,
            commands: self.typed.selected(with).cloned().collect(),
            ..self.common.clone()
        }
    }

    /// Describes these differences, each with everything that depends on it.
    #[must_use]
    pub fn describe(&self, differences: &[usize]) -> Vec<Vec<Difference>> {
        let owners = self.owners();
        let members = |difference: &usize| {
            let nodes = self.nodes.iter().zip(&self.groups);
            // Those of the other end of a new interface follow from the interface.
            let group_nodes = nodes
                .filter(|(_, group)| *group == difference)
                .filter(|(atom, _)| !is_unknown_peer(&atom.difference.namespace));
            group_nodes
                .map(|(atom, _)| {
                    let owners = owners
                        .iter()
                        .find(|(name, _)| *name == atom.difference.namespace);
                    Difference {
                        owner: owners.and_then(|(_, owners)| find_owner(owners, &atom.owner_key)),
                        ..atom.difference.clone()
                    }
                })
                .collect()
        };
        differences.iter().map(members).collect()
    }

    /// Returns the owners of objects in each namespace, derived from the rules of both sides.
    fn owners(&self) -> Vec<(&str, Owners)> {
        let sides = [false, true].map(|bad| self.plan(&vec![bad; self.differences]));
        let owners_in = |name: &str| {
            let namespaces = sides.iter().filter_map(|side| side.namespace(name));
            let rules = namespaces.flat_map(Namespace::iptables_rules);
            let dumps: Vec<NodeDump> = rules
                .map(|rules| {
                    let mut dump = NodeDump::default();
                    for (ip, input) in [(Family::V4, &rules.v4), (Family::V6, &rules.v6)] {
                        let script = input.state().ok();
                        let parsed = script.map(IptablesRules::from_script);
                        if let Some(Ok(parsed)) = parsed {
                            dump.rules.insert((ip, DumpedBackend::Default), parsed);
                        }
                    }
                    dump
                })
                .collect();
            Owners::from_dumps(&dumps.iter().collect::<Vec<_>>())
        };
        self.namespaces
            .iter()
            .map(|laid| (laid.name.as_str(), owners_in(&laid.name)))
            .collect()
    }
}

fn find_owner(owners: &Owners, key: &OwnerKey) -> Option<Owner> {
    match key {
        OwnerKey::Unknown => None,
        OwnerKey::Chain { table, chain } => owners.chain_owner(Table::from_name(table)?, chain),
        OwnerKey::Rule { table, chain, rule } => {
            owners.rule_owner(Table::from_name(table)?, chain, rule)
        }
        OwnerKey::Set { set, entry } => owners.set_owner(set, entry.as_deref()),
        OwnerKey::Server(server) => owners.server_owner(server),
        OwnerKey::Link(name) => link_owner(name),
        OwnerKey::Known(owner) => Some(owner.clone()),
        OwnerKey::Tunnel(name) => tunnel_owner(name),
    }
}

impl MergedNamespace {
    fn new(
        good: &Namespace,
        bad: &Namespace,
        graph: &mut DifferenceGraph,
    ) -> Result<Self, PairError> {
        let namespace = good.name.as_str();
        let network = MergedNetwork::new(good, bad, graph);
        let sets = MergedSets::new(namespace, &good.ipset, &bad.ipset, graph)?;
        let rules = MergedIptables::new(good, bad, graph)?;
        let unreadable = |error: InputError| PairError::Tables {
            namespace: namespace.to_owned(),
            why: error.to_string(),
        };
        let good_tables = good.nft.state().map_err(unreadable)?;
        let bad_tables = bad.nft.state().map_err(unreadable)?;
        let tables = MergedTables::new(namespace, good_tables, bad_tables, graph);
        let ipvs = MergedServers::new(good, bad, graph);
        let mut accounting = good.accounting.clone();
        accounting.extend(
            bad.accounting
                .iter()
                .filter(|name| !good.accounting.contains(name))
                .cloned(),
        );
        Ok(Self {
            name: namespace.to_owned(),
            network,
            sets,
            rules,
            nft_tables: tables,
            nft_first: good.nft_first || bad.nft_first,
            ipvs,
            accounting,
        })
    }

    fn build(&self, with: &impl Fn(usize) -> bool) -> Namespace {
        let mut namespace = Namespace {
            name: self.name.clone(),
            accounting: self.accounting.clone(),
            ..Namespace::default()
        };
        self.network.write_to(with, &mut namespace);
        let mut named = HashSet::new();
        self.rules.collect_sets(with, &mut named);
        namespace.ipset = self.sets.build(with, named).into();
        [namespace.iptables, namespace.other_iptables] = self.rules.build(with);
        namespace.nft = self.nft_tables.build(with).into();
        namespace.nft_first = self.nft_first;
        namespace.ipvs = self.ipvs.build(with);
        namespace.ipvs_timeouts = self.ipvs.timeouts(with);
        namespace
    }
}
