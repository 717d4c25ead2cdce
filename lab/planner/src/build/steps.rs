//! Builds the steps of a case from the stages before and after each step.

use std::collections::{BTreeMap, BTreeSet};

use super::probes::{self, Group};
use super::real_proxies;
use super::stages::Stage;
use super::{Order, Plan};
use crate::cluster::{Cluster, Problem, place};
use crate::delta;
use svclab_model::plan::{Delta, Forget, Step, Told};
use svclab_rules::kube_proxy::{self, Objects, conntrack};
use svclab_scenario::tree::Step as At;

/// Builds all steps. `stages` and `plans` contain stage 0 and the stage after each step.
pub fn steps(
    order: &Order<'_>,
    stages: &[Stage<'_>],
    plans: &[Plan],
    problems: &mut Vec<Problem>,
) -> Vec<Step> {
    let mut steps = Vec::with_capacity(order.steps.len());
    for (at, after) in order.steps.iter().enumerate() {
        let (old, new) = (&stages[at], &stages[at + 1]);
        let (there, wanted) = (&plans[at], &plans[at + 1]);
        let mut wrong = |message: String, help: Option<String>| {
            let path: Vec<At> = place!["spec", "steps", at, "change"].into();
            problems.push(Problem::at_path(path, message).help(help));
        };
        if old.cluster == new.cluster && there == wanted {
            wrong(
                format!("the step `{}` changes nothing in this case", after.name),
                Some(
                    "what it writes is there already; leave it out, or change something".to_owned(),
                ),
            );
        }
        let delta = delta::between(there, wanted).unwrap_or_else(|rebuild| {
            wrong(
                format!(
                    "the step `{}` cannot be made in a lab that stands: {rebuild}",
                    after.name
                ),
                Some("make another case of it: an axis".to_owned()),
            );
            Delta::default()
        });
        for change in delta
            .namespaces
            .iter()
            .filter(|change| !change.ipvs.remove.is_empty())
        {
            wrong(
                format!(
                    "the step `{}` changes virtual servers of IPVS in {}, and who is connected \
                     through one would lose it",
                    after.name, change.namespace
                ),
                Some(
                    "a kube-proxy takes real servers away only when nobody is connected to them \
                     any more, which only a real one does here: `--kube-proxy PATH`"
                        .to_owned(),
                ),
            );
        }
        if there
            .proxies
            .iter()
            .map(flags)
            .ne(wanted.proxies.iter().map(flags))
        {
            wrong(
                format!(
                    "the step `{}` asks for a kube-proxy with other flags, and the one that runs \
                     has its own",
                    after.name
                ),
                Some("make another case of it: an axis".to_owned()),
            );
        }
        let told = (!wanted.proxies.is_empty() && there.objects != wanted.objects).then(|| Told {
            objects: wanted.objects.clone(),
            hears: real_proxies::hears_of(new.cluster, &there.objects, &wanted.objects),
            calls_conntrack: real_proxies::calls_conntrack(new.cluster),
        });
        let forget = match forget(old.cluster, new.cluster) {
            Ok(forget) => forget,
            Err(error) => {
                wrong(error.to_string(), None);
                BTreeMap::new()
            }
        };
        steps.push(Step {
            name: after.name.to_owned(),
            open: probes::resolve(
                order,
                &Group::across(order, at),
                &there.namespaces,
                problems,
            ),
            delta,
            forget,
            told,
            probes: probes::resolve(
                order,
                &Group::after(order, at),
                &wanted.namespaces,
                problems,
            ),
        });
    }
    steps
}

/// Returns the namespace, program and arguments of a real kube-proxy.
fn flags(proxy: &svclab_model::plan::RealProxy) -> (&str, &str, &[String]) {
    (&proxy.namespace, &proxy.program, &proxy.arguments)
}

/// Returns, by node, which conntrack entries kube-proxies with generated rules delete.
fn forget(
    before: &Cluster,
    after: &Cluster,
) -> Result<BTreeMap<String, BTreeSet<Forget>>, kube_proxy::KubeProxyError> {
    let mut all = BTreeMap::new();
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
            stale.extend(conntrack::stale(proxy, &old, &new, family)?);
        }
        if !stale.is_empty() {
            all.insert(node.name.clone(), stale);
        }
    }
    Ok(all)
}
