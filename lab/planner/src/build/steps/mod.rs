//! Builds the steps of a case from the stages before and after each step.

pub(crate) mod real_proxies;
pub(crate) mod stages;

use std::collections::{BTreeMap, BTreeSet};

use crate::build::probes::{self, ProbeGroup};
use crate::build::steps::stages::BuildStage;
use crate::build::{Plan, PlanInput};
use crate::cluster::{Cluster, Problem, place};
use crate::delta;
use svclab_model::plan::{ApiUpdate, ConntrackFilter, Delta, Step};
use svclab_rules::kube_proxy::{self, Objects, conntrack};
use svclab_scenario::tree::PathSegment as At;

/// Builds all steps. `stages` and `plans` contain stage 0 and the stage after each step.
pub fn build_steps(
    order: &PlanInput<'_>,
    stages: &[BuildStage<'_>],
    plans: &[Plan],
    problems: &mut Vec<Problem>,
) -> Vec<Step> {
    let mut steps = Vec::with_capacity(order.steps.len());
    for (index, after) in order.steps.iter().enumerate() {
        let (old, new) = (&stages[index], &stages[index + 1]);
        let (current, next) = (&plans[index], &plans[index + 1]);
        let mut add_problem = |message: String, help: Option<String>| {
            let path: Vec<At> = place!["spec", "steps", index, "change"].into();
            problems.push(Problem::at_path(path, message).with_help(help));
        };
        if old.cluster == new.cluster && current == next {
            add_problem(
                format!("step `{}` changes nothing in this case", after.name),
                Some(
                    "the case already has these values: remove the step or change a value"
                        .to_owned(),
                ),
            );
        }
        let delta = delta::diff(current, next).unwrap_or_else(|rebuild| {
            add_problem(
                format!(
                    "cannot apply step `{}` to a running lab: {rebuild}",
                    after.name
                ),
                Some("add an axis instead, so that the change is another case".to_owned()),
            );
            Delta::default()
        });
        for change in delta
            .namespaces
            .iter()
            .filter(|change| !change.ipvs.remove.is_empty())
        {
            add_problem(
                format!(
                    "step `{}` changes virtual servers of IPVS in {}, which would break open \
                     connections through them",
                    after.name, change.namespace
                ),
                Some(
                    "use a real kube-proxy with `--kube-proxy PATH`: it removes a real server \
                     only after all its connections have ended"
                        .to_owned(),
                ),
            );
        }
        if current
            .kube_proxies
            .iter()
            .map(start_arguments)
            .ne(next.kube_proxies.iter().map(start_arguments))
        {
            add_problem(
                format!(
                    "step `{}` changes the flags of a running kube-proxy",
                    after.name
                ),
                Some("add an axis instead, so that the change is another case".to_owned()),
            );
        }
        let api_update =
            (!next.kube_proxies.is_empty() && current.objects != next.objects).then(|| ApiUpdate {
                objects: next.objects.clone(),
                sync_targets: real_proxies::sync_targets_of_change(
                    new.cluster,
                    &current.objects,
                    &next.objects,
                ),
                calls_conntrack: real_proxies::node_running_conntrack(new.cluster),
            });
        let forget = match stale_conntrack(old.cluster, new.cluster) {
            Ok(forget) => forget,
            Err(error) => {
                add_problem(error.to_string(), None);
                BTreeMap::new()
            }
        };
        steps.push(Step {
            name: after.name.to_owned(),
            open: probes::resolve(
                order,
                &ProbeGroup::across_step(order, index),
                &current.namespaces,
                problems,
            ),
            delta,
            conntrack_deletions: forget,
            api_update,
            probes: probes::resolve(
                order,
                &ProbeGroup::after_step(order, index),
                &next.namespaces,
                problems,
            ),
        });
    }
    steps
}

/// Returns the namespace, program and arguments of a real kube-proxy.
fn start_arguments(proxy: &svclab_model::plan::RealProxy) -> (&str, &str, &[String]) {
    (&proxy.namespace, &proxy.program, &proxy.arguments)
}

/// Returns, by node, which conntrack entries kube-proxies with generated rules delete.
fn stale_conntrack(
    before: &Cluster,
    after: &Cluster,
) -> Result<BTreeMap<String, BTreeSet<ConntrackFilter>>, kube_proxy::KubeProxyError> {
    let mut filters_by_node = BTreeMap::new();
    let objects_of = |cluster: &Cluster| -> Vec<_> {
        cluster
            .nodes
            .iter()
            .map(|node| node.object.clone())
            .collect()
    };
    let (old_nodes, new_nodes) = (objects_of(before), objects_of(after));
    for node in &after.nodes {
        let Some(proxy) = node.generated_proxy() else {
            continue;
        };
        let old = Objects {
            node: &node.name,
            nodes: &old_nodes,
            services: &before.services,
            endpoint_slices: &before.slices,
            service_cidrs: &before.service_cidrs,
            interface_addresses: &[],
        };
        let new = Objects {
            nodes: &new_nodes,
            services: &after.services,
            endpoint_slices: &after.slices,
            service_cidrs: &after.service_cidrs,
            ..old
        };
        let mut stale = BTreeSet::new();
        for family in kube_proxy::families(proxy, &new) {
            stale.extend(conntrack::stale_entries(proxy, &old, &new, family)?);
        }
        if !stale.is_empty() {
            filters_by_node.insert(node.name.clone(), stale);
        }
    }
    Ok(filters_by_node)
}
