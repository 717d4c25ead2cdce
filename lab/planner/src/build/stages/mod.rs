//! Builds the stages of a plan: the probes of each, and the step from the previous one.

pub(crate) mod clusters;
pub(crate) mod real_proxies;

use std::collections::{BTreeMap, BTreeSet};

use crate::build::probes;
use crate::build::stages::clusters::StageCluster;
use crate::build::{Plan, PlanInput};
use crate::cluster::{Cluster, Problem, place};
use crate::delta;
use svclab_model::plan::{ApiUpdate, ConntrackFilter, Delta, Lifetime, Probe, Stage, Step};
use svclab_rules::kube_proxy::{self, Objects, conntrack};
use svclab_scenario::tree::PathSegment as At;

/// Builds the stages of a plan. `plans` contains the plan from which each stage could be built at
/// once.
pub fn build_stages(
    order: &PlanInput<'_>,
    stages: &[StageCluster<'_>],
    plans: &[Plan],
    problems: &mut Vec<Problem>,
) -> Vec<Stage> {
    let mut planned: Vec<Stage> = Vec::with_capacity(plans.len());
    for (index, plan) in plans.iter().enumerate() {
        let step = order.stages[index].step.zip(index.checked_sub(1));
        let step = step.map(|(name, before)| {
            let clusters = [stages[before].cluster, stages[index].cluster];
            build_step((name, before), clusters, [&plans[before], plan], problems)
        });
        let mut probes = probes::resolve(order, index, &plan.namespaces, problems);
        if let Some(previous) = planned.last() {
            let opened = previous.probes_with(Lifetime::Opened).cloned();
            probes.extend(opened.map(|probe| Probe {
                lifetime: Lifetime::Reused,
                ..probe
            }));
        }
        planned.push(Stage { step, probes });
    }
    planned
}

/// Builds the step between two stages.
fn build_step(
    (name, index): (&str, usize),
    [old, new]: [&Cluster; 2],
    [current, next]: [&Plan; 2],
    problems: &mut Vec<Problem>,
) -> Step {
    let mut add_problem = |message: String, help: Option<String>| {
        let path: Vec<At> = place!["spec", "steps", index, "change"].into();
        problems.push(Problem::at_path(path, message).with_help(help));
    };
    if old == new && current == next {
        add_problem(
            format!("step `{name}` changes nothing in this case"),
            Some("the case already has these values: remove the step or change a value".to_owned()),
        );
    }
    let delta = delta::diff(current, next).unwrap_or_else(|rebuild| {
        add_problem(
            format!("cannot apply step `{name}` to a running lab: {rebuild}"),
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
                "step `{name}` changes virtual servers of IPVS in {}, which would break open \
                 connections through them",
                change.namespace
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
            format!("step `{name}` changes the flags of a running kube-proxy"),
            Some("add an axis instead, so that the change is another case".to_owned()),
        );
    }
    let api_update =
        (!next.kube_proxies.is_empty() && current.objects != next.objects).then(|| ApiUpdate {
            objects: next.objects.clone(),
            sync_targets: real_proxies::sync_targets_of_change(
                new,
                &current.objects,
                &next.objects,
            ),
            calls_conntrack: real_proxies::node_running_conntrack(new),
        });
    let forget = match stale_conntrack(old, new) {
        Ok(forget) => forget,
        Err(error) => {
            add_problem(error.to_string(), None);
            BTreeMap::new()
        }
    };
    Step {
        name: name.to_owned(),
        delta,
        conntrack_deletions: forget,
        api_update,
    }
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
