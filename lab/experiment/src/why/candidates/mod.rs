//! Derives the changes that are worth trying from the packets of failing connections: from the
//! objects that their paths met, and from the policies, flags and sysctls behind these objects. A
//! change of anything else cannot help, and is no candidate.
//!
//! The candidates are only worth trying. A change counts as a fix once packets have proven it.

mod balancers;
mod components;
mod connections;
mod faults;
mod met;
mod routes;
mod rules;
mod services;

use std::collections::BTreeSet;

use super::change::ProposedChange;
use faults::fault_changes;
pub(super) use met::Met;
use routes::route_changes;
use svclab_journey::journey::{Hop, Journey, PacketPath};
use svclab_judge::{AddressBook, Explainer, Fact};
use svclab_model::evidence::Verdict;
use svclab_model::plan::{Plan, Probe};
use svclab_planner::cluster::Cluster;
use svclab_scenario::Case;

/// Failing connections at one stage of a case.
pub(super) struct Failures<'a> {
    pub(super) case: &'a Case,
    pub(super) cluster: &'a Cluster,
    pub(super) plan: &'a Plan,
    pub(super) book: &'a AddressBook<'a>,
    pub(super) explainer: &'a Explainer<'a>,
    pub(super) journeys: Vec<&'a Journey>,
}

impl<'a> Failures<'a> {
    /// Whether a connection succeeds, but not with the wanted result.
    fn has_answers(&self) -> bool {
        let mut verdicts = self.journeys.iter().map(|journey| journey.verdict);
        verdicts.any(Verdict::is_success)
    }

    /// Whether the connections use IPv6.
    fn uses_ipv6(&self) -> bool {
        self.probes().any(|probe| probe.target.address.is_ipv6())
    }

    /// Returns the probes of the connections, each once.
    fn probes(&self) -> impl Iterator<Item = &'a Probe> + '_ {
        let names: BTreeSet<&str> = self
            .journeys
            .iter()
            .map(|journey| journey.probe.as_str())
            .collect();
        let book = self.book;
        names.into_iter().filter_map(|name| book.probe(name))
    }

    fn packets(&self) -> impl Iterator<Item = &'a PacketPath> + '_ {
        self.journeys.iter().flat_map(|journey| &journey.packets)
    }

    fn hops(&self) -> impl Iterator<Item = &'a Hop> + '_ {
        self.packets().flat_map(|packet| &packet.hops)
    }
}

/// Changes that are worth trying, the most likely first. May contain duplicates.
#[derive(Debug, Default)]
pub(super) struct Candidates {
    /// Changes of objects that decided about packets, and of settings behind these objects.
    pub(super) deciding: Vec<ProposedChange>,
    /// Deletions of other rules that packets matched. Those of components are needed.
    pub(super) matched: Vec<ProposedChange>,
    /// Changes that rewrite the state of a node.
    pub(super) rewrites: Vec<ProposedChange>,
}

/// Returns the changes that are worth trying for these failures.
pub(super) fn candidates(failures: &Failures<'_>) -> Candidates {
    let mut facts: Vec<Fact> = Vec::new();
    for fact in failures
        .journeys
        .iter()
        .flat_map(|journey| failures.explainer.conclude(journey))
    {
        // Connections that went alike have the same facts, except for their source ports.
        if !facts.contains(&fact) {
            facts.push(fact);
        }
    }
    let mut changes: Vec<ProposedChange> = Vec::new();
    for fact in &facts {
        changes.extend(fault_changes(failures.plan, failures.cluster, fact));
        changes.extend(connections::deletions(failures, fact));
        changes.extend(components::node_port_flags(failures, fact));
    }
    changes.extend(components::missing_proxy(failures, &facts));
    changes.extend(components::default_sysctls(failures));
    changes.extend(rules::deciding_changes(failures));
    for packet in failures.packets() {
        changes.extend(route_changes(failures.plan, failures.cluster, packet));
    }
    changes.extend(components::manual_commands(failures));
    changes.extend(components::masqueraded_networks(failures));
    changes.extend(services::service_changes(failures));
    changes.extend(components::proxy_flags(failures));
    changes.extend(components::flannel_settings(failures));
    changes.extend(components::fabric_routes(failures));
    changes.extend(balancers::balancer_changes(failures));
    changes.extend(components::node_sysctls(failures));
    changes.extend(components::hop_limits(failures));
    let wider = components::sysctls_of_all_nodes(failures.plan, &changes);
    changes.extend(wider);
    Candidates {
        deciding: changes,
        matched: rules::matched_rules(failures),
        rewrites: components::manual_changes(failures),
    }
}
