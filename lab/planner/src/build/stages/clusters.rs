//! Builds the stages of a case such that each can be changed into the next. Pods of later stages
//! exist from the beginning with their interfaces down. Pods of earlier stages remain in the same
//! way.

use std::borrow::Cow;

use crate::build::topology::fabric::UPLINK;
use crate::build::{PlanInput, Server, ServerKind};
use crate::cluster::{Cluster, Pod, Problem, place};
use svclab_model::plan::{Mac, Namespace, Plan};

/// A stage: the state of the case between two steps.
pub struct StageCluster<'a> {
    /// Cluster at this stage.
    pub cluster: &'a Cluster,
    /// Cluster with the pods of all stages, for which veth pairs are created.
    pub wired_cluster: Cow<'a, Cluster>,
    /// Pods of other stages, absent from the cluster at this stage.
    absent_pods: Vec<Pod>,
}

/// Returns the clusters of all stages of a case.
///
/// # Errors
///
/// Returns a problem for each step that adds or removes nodes.
pub fn stage_clusters<'a>(order: &PlanInput<'a>) -> Result<Vec<StageCluster<'a>>, Vec<Problem>> {
    let names = |cluster: &Cluster| -> Vec<String> {
        cluster.nodes.iter().map(|node| node.name.clone()).collect()
    };
    let mut problems = Vec::new();
    for (index, pair) in order.stages.windows(2).enumerate() {
        let [before, after] = pair else { continue };
        if let Some(step) = after.step
            && names(before.cluster) != names(after.cluster)
        {
            problems.push(
                Problem::in_lab(
                    place!["spec", "steps", index, "change"],
                    format!("step `{step}` adds or removes nodes"),
                )
                .with_help(
                    "add an axis instead: a step can change only objects on existing nodes"
                        .to_owned(),
                ),
            );
        }
    }
    if !problems.is_empty() {
        return Err(problems);
    }
    let clusters = order.stages.iter().map(|stage| stage.cluster);
    let mut all_pods: Vec<Pod> = Vec::new();
    for pod in clusters.clone().flat_map(|cluster| &cluster.pods) {
        if !all_pods.iter().any(|known| is_same_pod(known, pod)) {
            all_pods.push(pod.clone());
        }
    }
    // The pods must be connected in the same way in every stage.
    let routes_pods = clusters.clone().any(|cluster| cluster.routes_pods);
    let stage = |cluster: &'a Cluster| {
        let absent: Vec<Pod> = all_pods
            .iter()
            .filter(|pod| {
                !pod.host_network && !cluster.pods.iter().any(|own| is_same_pod(own, pod))
            })
            .cloned()
            .collect();
        // The pods must have the same order in every stage.
        let mut pods: Vec<Pod> = Vec::with_capacity(all_pods.len());
        for pod in &all_pods {
            let stage_pod = cluster.pods.iter().find(|own| is_same_pod(own, pod));
            pods.extend(stage_pod.or((!pod.host_network).then_some(pod)).cloned());
        }
        let is_unchanged = pods == cluster.pods && cluster.routes_pods == routes_pods;
        let ground = if is_unchanged {
            Cow::Borrowed(cluster)
        } else {
            Cow::Owned(Cluster {
                pods,
                routes_pods,
                ..cluster.clone()
            })
        };
        StageCluster {
            cluster,
            wired_cluster: ground,
            absent_pods: absent,
        }
    };
    Ok(clusters.map(stage).collect())
}

fn is_same_pod(left: &Pod, right: &Pod) -> bool {
    (&left.namespace, &left.name) == (&right.namespace, &right.name)
}

/// Sets the interfaces of absent pods down. The nodes' ends of the veth pairs and the neighbour
/// entries remain. The lab performs no neighbour resolution, so packets to such a pod are dropped
/// silently.
pub fn set_absent_pods_down(stage: &StageCluster<'_>, namespaces: &mut [Namespace]) {
    for pod in &stage.absent_pods {
        let name = pod.reference();
        let mac = Mac::from_names(&name, UPLINK);
        // Another pod may use the address.
        let is_reused = stage
            .cluster
            .pods
            .iter()
            .any(|own| own.ips.iter().any(|ip| pod.ips.contains(ip)));
        for namespace in &mut *namespaces {
            if namespace.name == name {
                for link in &mut namespace.links {
                    link.down = true;
                    link.addresses.clear();
                }
                namespace.routes.clear();
                namespace.neighbours.clear();
            } else if is_reused {
                namespace
                    .neighbours
                    .retain(|neighbour| neighbour.mac != mac);
                let node_ends: Vec<String> = namespace
                    .links
                    .iter()
                    .filter(|link| link.is_veth_to(&name))
                    .map(|link| link.name.clone())
                    .collect();
                namespace
                    .routes
                    .retain(|route| !node_ends.contains(&route.dev));
                namespace
                    .neighbours
                    .retain(|each| !node_ends.contains(&each.dev));
            }
        }
    }
}

/// Keeps the servers of pods that declare no ports. Such a pod serves the same ports as before,
/// even if no service sends traffic to it any more.
pub fn keep_undeclared_servers(stages: &[StageCluster<'_>], plans: &mut [Plan]) {
    for (index, stage) in stages.iter().enumerate().skip(1) {
        let (before, after) = plans.split_at_mut(index);
        let (Some(before), Some(after)) = (before.last(), after.first_mut()) else {
            continue;
        };
        let is_pod_present = |server: &Server| {
            let pods = &stage.cluster.pods;
            pods.iter()
                .any(|pod| pod.reference() == server.name && !pod.declares_ports)
        };
        let kept: Vec<Server> = before
            .servers
            .iter()
            .filter(|server| server.kind == ServerKind::Identify && is_pod_present(server))
            .filter(|server| {
                !after.servers.iter().any(|new_server| {
                    (&new_server.namespace, new_server.port, new_server.protocol)
                        == (&server.namespace, server.port, server.protocol)
                })
            })
            .cloned()
            .collect();
        after.servers.extend(kept);
    }
}
