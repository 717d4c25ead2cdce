//! From a cluster to the plan that builds it.

mod alone;
mod balancer;
mod fabric;
mod held_ports;
mod node;
mod overlay;
mod pod;
mod probes;
mod real_proxies;
mod rules;
mod sysctls;
mod topology;
mod typed;
mod watch;

use indexmap::IndexMap;

use super::{Patience, Plan, Protocol, Server, ServerKind};
use crate::cluster::{Cluster, Problem};
use crate::scenario::expectation::Row;
use crate::scenario::lab::Probe;

pub use alone::{kube_proxy_alone, with_the_kubelets_chain};
pub use probes::probe_of;
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
    pub patience: Patience,
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
    balancer::place(&mut topology, cluster);
    let balancing = balancer::make(cluster);
    let mut namespaces = topology.finish();
    let mut problems = Vec::new();
    for namespace in &mut namespaces {
        if let Some(balancing) = balancing.namespaces.get(namespace.name.as_str()) {
            namespace.ipvs.clone_from(&balancing.ipvs);
        }
    }
    rules::write(&mut namespaces, cluster, &balancing, &mut problems);
    for namespace in &mut namespaces {
        sysctls::set(namespace, cluster, &mut problems);
    }
    let (proxies, objects) = real_proxies::real_proxies(cluster, &mut problems);
    let typed = typed::typed(cluster, &mut problems);
    let probes = probes::resolve(order, &namespaces, &mut problems);
    let watch = watch::watch(order, &namespaces, &mut problems);
    if !problems.is_empty() {
        return Err(problems);
    }
    let mut servers = servers(cluster);
    servers.extend(balancing.servers);
    servers.extend(held_ports::held(cluster, &namespaces, &servers));
    Ok(Plan {
        case: order.case.to_owned(),
        namespaces,
        servers,
        health: balancing.health,
        probes,
        proxies,
        objects,
        typed,
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
        .chain(health_ports(cluster))
        .collect()
}

/// The port on which a kube-proxy says whether its node has endpoints of a
/// service, for each service that has one.
fn health_ports(cluster: &Cluster) -> Vec<Server> {
    let mut servers = Vec::new();
    for service in &cluster.services {
        let port = service
            .spec
            .as_ref()
            .and_then(|spec| spec.health_check_node_port);
        let Some(port) = port
            .and_then(|port| u16::try_from(port).ok())
            .filter(|port| *port > 0)
        else {
            continue;
        };
        let namespace = service.metadata.namespace.as_deref().unwrap_or("default");
        let name = service.metadata.name.as_deref().unwrap_or_default();
        for node in cluster
            .nodes
            .iter()
            .filter(|node| node.generated_proxy().is_some())
        {
            servers.push(Server {
                namespace: node.name.clone(),
                name: format!("kube-proxy of {}", node.name),
                address: None,
                protocol: Protocol::Tcp,
                port,
                kind: ServerKind::Health {
                    service: format!("{namespace}/{name}"),
                    local_endpoints: local_endpoints(cluster, namespace, name, &node.name),
                },
            });
        }
    }
    servers
}

/// How many ready endpoints of a service are on a node.
fn local_endpoints(cluster: &Cluster, namespace: &str, service: &str, node: &str) -> usize {
    cluster
        .slices
        .iter()
        .filter(|slice| {
            let labels = slice.metadata.labels.as_ref();
            slice.metadata.namespace.as_deref().unwrap_or("default") == namespace
                && labels
                    .and_then(|labels| labels.get("kubernetes.io/service-name"))
                    .map(String::as_str)
                    == Some(service)
        })
        .flat_map(|slice| slice.endpoints.iter().flatten())
        .filter(|endpoint| endpoint.node_name.as_deref() == Some(node))
        .filter(|endpoint| {
            let conditions = endpoint.conditions.as_ref();
            conditions.is_none_or(|conditions| conditions.ready != Some(false))
        })
        .count()
}
