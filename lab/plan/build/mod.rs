//! From a cluster to the plan that builds it.

mod fabric;
mod node;
mod overlay;
mod pod;
mod probes;
mod rules;
mod sysctls;
mod topology;
mod watch;

use std::time::Duration;

use indexmap::IndexMap;

use super::{Plan, Protocol, Server, ServerKind};
use crate::cluster::{Cluster, Problem};
use crate::scenario::expectation::Row;
use crate::scenario::lab::Probe;

use topology::Topology;

/// What of a case a plan is made of.
#[derive(Debug, Clone, Copy)]
pub struct Order<'a> {
    /// The case's name, for messages.
    pub case: &'a str,
    /// The cluster.
    pub cluster: &'a Cluster,
    /// What to try, by name.
    pub probes: &'a IndexMap<String, Probe>,
    /// What is expected of it, which decides what is watched.
    pub row: &'a Row,
    /// Which row of the lab that is, from 0.
    pub row_at: usize,
    /// How long a probe waits that says nothing of its own.
    pub patience: Duration,
}

/// The plan of one case.
///
/// # Errors
///
/// Everything in it that cannot be built, with its place.
pub fn plan(order: &Order<'_>) -> Result<Plan, Vec<Problem>> {
    let cluster = order.cluster;
    let mut topology = Topology::default();
    fabric::lay(&mut topology, cluster);
    node::place(&mut topology, cluster);
    pod::attach(&mut topology, cluster);
    overlay::lay(&mut topology, cluster);
    let mut namespaces = topology.finish();
    let mut problems = Vec::new();
    rules::write(&mut namespaces, cluster, &mut problems);
    for namespace in &mut namespaces {
        sysctls::set(namespace, cluster, &mut problems);
    }
    let probes = probes::resolve(order, &namespaces, &mut problems);
    let watch = watch::watch(order, &namespaces, &mut problems);
    if !problems.is_empty() {
        return Err(problems);
    }
    Ok(Plan {
        case: order.case.to_owned(),
        namespaces,
        servers: servers(cluster),
        probes,
        watch,
    })
}

/// Every port is served over TCP and UDP: which of the two a service asks for
/// is the rules' business.
fn servers(cluster: &Cluster) -> Vec<Server> {
    cluster
        .serving
        .iter()
        .flat_map(|serving| {
            [Protocol::Tcp, Protocol::Udp].map(|protocol| Server {
                namespace: serving.netns.clone(),
                name: serving.name.clone(),
                address: None,
                protocol,
                port: serving.port,
                kind: ServerKind::Answers,
            })
        })
        .collect()
}
