//! Builds a plan from a cluster.

mod balancer;
mod evidence_request;
#[cfg(test)]
mod kube_proxy_tests;
mod node_commands;
mod probes;
mod rules;
mod stages;
pub(crate) mod topology;

use indexmap::IndexMap;

use crate::cluster::{Cluster, Problem};
use svclab_model::plan::{MaxWait, Plan, ProbeProtocol, Server, ServerKind};
use svclab_rules::objects::Service;
use svclab_scenario::expectation::Row;
use svclab_scenario::lab::Probe;

pub use probes::plan_probe;
pub use rules::SOURCE_CHECK;
pub use rules::kube_proxy_only::{declare_kubelet_chain, kube_proxy_plan};
pub use rules::regenerate::{RestartError, regenerate_kube_proxy_rules};
pub use rules::restart_flannel::restart_flanneld;
use stages::clusters::StageCluster;
use topology::Topology;
use topology::disabled_ipv6::remove_disabled_ipv6;

/// Input of a plan: the parts of a case.
#[derive(Debug, Clone, Copy)]
pub struct PlanInput<'a> {
    /// Name of the case, used in messages.
    pub case: &'a str,
    /// Stages of the case, in order, at least one.
    pub stages: &'a [StageInput<'a>],
    /// Expectations of the case, which decide what is recorded.
    pub row: &'a Row,
    /// Index of the expectations in the lab's list, from 0.
    pub row_index: usize,
    /// Maximum wait of probes without their own maximum wait.
    pub max_wait: MaxWait,
}

/// Stage of a case: its cluster and its probes.
#[derive(Debug, Clone, Copy)]
pub struct StageInput<'a> {
    /// Name of the step to the stage. `None` for the first stage.
    pub step: Option<&'a str>,
    /// Cluster at the stage.
    pub cluster: &'a Cluster,
    /// Probes that the lab declares for the stage, by name.
    pub probes: &'a IndexMap<String, Probe>,
}

/// Builds the plan of a case, and one plan without probes for each stage after a step. The plan of
/// a later stage is the one from which the stage could be built at once.
///
/// # Errors
///
/// Returns all problems, each with its location: objects that cannot be built, and steps that
/// cannot be applied to a running case.
pub fn plan(order: &PlanInput<'_>) -> Result<(Plan, Vec<Plan>), Vec<Problem>> {
    let stages = stages::clusters::stage_clusters(order)?;
    let mut problems: Vec<Problem> = Vec::new();
    let mut plans: Vec<Plan> = Vec::with_capacity(stages.len());
    for (index, cluster) in stages.iter().enumerate() {
        let mut stage_problems = Vec::new();
        plans.push(build_stage(order, cluster, &mut stage_problems));
        for problem in stage_problems {
            // A problem of the lab occurs again on every node and in every step.
            if problems.iter().any(|known| problem.is_same_error(known)) {
                continue;
            }
            problems.push(problem.at_stage(index));
        }
    }
    if !problems.is_empty() {
        return Err(problems);
    }
    stages::clusters::keep_undeclared_servers(&stages, &mut plans);
    let planned = stages::build_stages(order, &stages, &plans, &mut problems);
    let after = plans.split_off(1);
    let Some(mut plan) = plans.pop() else {
        return Err(problems);
    };
    plan.evidence = evidence_request::evidence_request(order, &plan.namespaces, &mut problems);
    if planned.len() > 1 {
        // The interfaces on which traffic shifts are unknown in advance, so all namespaces are
        // captured.
        let namespaces = plan.namespaces.iter();
        plan.evidence.packets = namespaces.map(|namespace| namespace.name.clone()).collect();
    }
    plan.stages = planned;
    if problems.is_empty() {
        Ok((plan, after))
    } else {
        Err(problems)
    }
}

/// Builds the plan of one stage without its probes.
fn build_stage(
    order: &PlanInput<'_>,
    stage: &StageCluster<'_>,
    problems: &mut Vec<Problem>,
) -> Plan {
    let (cluster, wired_cluster) = (stage.cluster, &*stage.wired_cluster);
    let mut topology = Topology::default();
    topology::fabric::add_to_topology(&mut topology, wired_cluster);
    topology::node::add_to_topology(&mut topology, wired_cluster);
    topology::pod::add_to_topology(&mut topology, wired_cluster);
    topology::overlay::add_to_topology(&mut topology, wired_cluster);
    balancer::add_to_topology(&mut topology, wired_cluster);
    let balancer_objects = balancer::build(cluster);
    let mut namespaces = topology.finish();
    for namespace in &mut namespaces {
        if let Some(balancing) = balancer_objects.namespaces.get(namespace.name.as_str()) {
            namespace.ipvs.clone_from(&balancing.ipvs);
        }
    }
    rules::build(&mut namespaces, cluster, &balancer_objects, problems);
    for namespace in &mut namespaces {
        topology::sysctls::set_sysctls(namespace, wired_cluster, problems);
        remove_disabled_ipv6(namespace);
    }
    stages::clusters::set_absent_pods_down(stage, &mut namespaces);
    let (proxies, objects) = stages::real_proxies::real_proxies(cluster, problems);
    let node_commands = node_commands::node_commands(cluster, problems);
    let mut servers = build_servers(cluster);
    servers.extend(balancer_objects.servers);
    servers.extend(probes::held_ports::held_ports(
        cluster,
        &namespaces,
        &servers,
    ));
    Plan {
        case: order.case.to_owned(),
        namespaces,
        servers,
        health: balancer_objects.health,
        kube_proxies: proxies,
        objects,
        commands: node_commands,
        ..Plan::default()
    }
}

/// Returns a server for each served port.
fn build_servers(cluster: &Cluster) -> Vec<Server> {
    cluster
        .serving
        .iter()
        .map(|serving| Server {
            namespace: serving.netns.clone(),
            name: serving.name.clone(),
            address: None,
            protocol: serving.protocol,
            port: serving.port,
            kind: ServerKind::Identify,
        })
        .chain(health_servers(cluster))
        .collect()
}

/// Returns the health check servers of kube-proxies: one on each node for each service with a
/// health check node port.
fn health_servers(cluster: &Cluster) -> Vec<Server> {
    let mut servers = Vec::new();
    for service in &cluster.services {
        let Some(port) = service.health_check_node_port else {
            continue;
        };
        for node in cluster
            .nodes
            .iter()
            .filter(|node| node.generated_proxy().is_some())
        {
            servers.push(Server {
                namespace: node.name.clone(),
                name: format!("kube-proxy of {}", node.name),
                address: None,
                protocol: ProbeProtocol::Tcp,
                port,
                kind: ServerKind::Health {
                    service: service.full_name(),
                    local_endpoints: local_endpoints(cluster, service, &node.name),
                },
            });
        }
    }
    servers
}

/// Returns the number of ready endpoints of a service on a node.
fn local_endpoints(cluster: &Cluster, service: &Service, node: &str) -> usize {
    let slices = cluster.slices.iter();
    slices
        .filter(|slice| slice.belongs_to(service))
        .flat_map(|slice| &slice.endpoints)
        .filter(|endpoint| endpoint.ready && endpoint.node.as_deref() == Some(node))
        .count()
}
