//! Adds clients to a case: copies of the pod that sends a probe, each with its own address. A
//! service with session affinity chooses an endpoint for each of them.

use std::collections::HashSet;
use std::net::IpAddr;

use indexmap::IndexMap;
use ipnetwork::IpNetwork;

use crate::trial::{ConnectionOutcome, Tally};
use svclab_model::plan::{EvidenceRequest, MaxWait, Plan};
use svclab_planner::build::{PlanInput, StageInput, plan};
use svclab_planner::cluster::Pod;
use svclab_runner::run::Prepared;
use svclab_scenario::lab::Probe;

/// Separator between the name of a pod or probe and the number of its copy.
const COPY: &str = "-copy-";

/// Returns the case with up to `clients` copies of the pod that sends a probe. Its only probes are
/// those from the copies, and it has no steps. Returns `None` if the sender is not a pod with its
/// own address, or if its network has no free address.
pub(super) fn with_clients(
    prepared: &Prepared,
    probe: &str,
    clients: usize,
    connections: u32,
) -> Option<Prepared> {
    let mut planned = prepared.plan.initial_probes();
    let planned = planned.find(|own| own.name == probe)?;
    let written = prepared.case.spec.probe(probe)?;
    let mut pods = prepared.cluster.pods.iter();
    let is_sender = |pod: &&Pod| !pod.host_network && pod.reference() == planned.namespace;
    let pod = pods.find(is_sender)?;
    // A dump contains no data about copies of a pod.
    if !prepared.dumps.is_empty() || written.bind.is_some() || written.source_port.is_some() {
        return None;
    }
    let copies = copies(prepared, pod, clients)?;
    let probes = copies.iter().enumerate().map(|(number, copy)| {
        let probe_of_copy = Probe {
            from: copy.reference(),
            connections,
            after: None,
            ..written.clone()
        };
        (format!("{probe}{COPY}{number}"), probe_of_copy)
    });
    let probes: IndexMap<String, Probe> = probes.collect();
    let mut larger = prepared.clone();
    larger.later_stages.clear();
    larger.cluster.pods.extend(copies);
    let order = PlanInput {
        case: &prepared.case.id,
        stages: &[StageInput {
            step: None,
            cluster: &larger.cluster,
            probes: &probes,
        }],
        row: prepared.case.expected(),
        row_index: prepared.case.row,
        max_wait: MaxWait::SETTLED,
    };
    let (planned, _) = plan(&order).ok()?;
    larger.plan = Plan {
        commands: prepared.plan.commands.clone(),
        evidence: EvidenceRequest::default(),
        ..planned
    };
    Some(larger)
}

/// Returns copies of a pod, each with a free address of its node's pod network, or `None` if no
/// address is free.
fn copies(prepared: &Prepared, pod: &Pod, clients: usize) -> Option<Vec<Pod>> {
    let address = *pod.ips.first()?;
    let networks = &prepared.cluster.nodes.get(pod.node)?.pod_cidrs;
    let network = networks.iter().find(|network| network.contains(address))?;
    let namespaces = prepared.plan.namespaces.iter();
    let links = namespaces.flat_map(|namespace| &namespace.links);
    let addresses = links.flat_map(|link| &link.addresses);
    let mut used: HashSet<IpAddr> = addresses.map(IpNetwork::ip).collect();
    used.extend(prepared.cluster.pods.iter().flat_map(|pod| &pod.ips));
    used.extend([network.network(), network.broadcast()]);
    let free = network.iter().filter(|address| !used.contains(address));
    let numbered = free.take(clients).enumerate();
    let copies = numbered.map(|(number, address)| Pod {
        name: format!("{}{COPY}{number}", pod.name),
        ips: vec![address],
        ..pod.clone()
    });
    let copies: Vec<Pod> = copies.collect();
    (!copies.is_empty()).then_some(copies)
}

/// Returns the outcomes of a copy's connections as those of the original pod: source names have no
/// copy number.
pub(super) fn as_original(tally: &Tally) -> Tally {
    let renamed = |outcome: &ConnectionOutcome| {
        let mut outcome = outcome.clone();
        if let Some(source) = &mut outcome.source {
            source.truncate(source.find(COPY).unwrap_or(source.len()));
        }
        outcome
    };
    let mut original = Tally::default();
    // Keeps the first outcome first.
    original.extend(tally.first().map(|first| (renamed(first), 1)));
    original.extend(tally.iter().map(|(outcome, count)| {
        let is_first = tally.first() == Some(outcome);
        (renamed(outcome), count - u64::from(is_first))
    }));
    original
}
