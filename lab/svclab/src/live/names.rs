//! Resolves the user's names for namespaces and interfaces of a running lab.

use super::messages::Interface;
use svclab_diagnostic::suggest::did_you_mean;
use svclab_model::plan::{Namespace, Plan};
use svclab_model::protocol::stream::CaptureTarget;
use svclab_planner::cluster::Cluster;
use svclab_runner::results::{ErrorKind, RunError};

/// Returns the namespace with this name, which is from the plan or from the lab's file.
pub(crate) fn find_namespace<'p>(
    plan: &'p Plan,
    cluster: &Cluster,
    name: &str,
) -> Result<&'p Namespace, RunError> {
    let by_lab_name = || {
        let netns = cluster.source_namespace(name).ok()?;
        plan.namespace(&netns)
    };
    plan.namespace(name).or_else(by_lab_name).ok_or_else(|| {
        let names = || plan.namespaces.iter().map(|ns| ns.name.as_str());
        unknown_name("namespace", name, &plan.case, names())
    })
}

/// Returns the namespaces and interfaces to capture, and all interfaces whose packets the capture
/// contains. Without names, that is everything.
pub(crate) fn resolve_capture(
    plan: &Plan,
    cluster: &Cluster,
    names: &[String],
) -> Result<(Vec<CaptureTarget>, Vec<Interface>), RunError> {
    let mut targets = Vec::new();
    for name in names {
        targets.push(resolve_target(plan, cluster, name)?);
    }
    if names.is_empty() {
        targets.extend(plan.namespaces.iter().map(|ns| CaptureTarget {
            namespace: ns.name.clone(),
            interface: None,
        }));
    }
    targets.sort();
    targets.dedup();
    // A whole namespace replaces its single interfaces.
    let whole: Vec<String> = targets
        .iter()
        .filter(|each| each.interface.is_none())
        .map(|each| each.namespace.clone())
        .collect();
    targets.retain(|each| each.interface.is_none() || !whole.contains(&each.namespace));
    let mut interfaces = Vec::new();
    for each in &targets {
        let Some(namespace) = plan.namespace(&each.namespace) else {
            continue;
        };
        let interface_names = interfaces_of(namespace);
        interfaces.extend(
            interface_names
                .filter(|name| {
                    each.interface
                        .as_deref()
                        .is_none_or(|wanted| wanted == *name)
                })
                .map(|name| Interface {
                    namespace: each.namespace.clone(),
                    name: name.to_owned(),
                }),
        );
    }
    Ok((targets, interfaces))
}

fn interfaces_of(namespace: &Namespace) -> impl Iterator<Item = &str> + Clone {
    let links = namespace.links.iter().map(|link| link.name.as_str());
    std::iter::once("lo").chain(links)
}

fn resolve_target(plan: &Plan, cluster: &Cluster, name: &str) -> Result<CaptureTarget, RunError> {
    let whole = find_namespace(plan, cluster, name);
    let unknown = match whole {
        Ok(namespace) => {
            return Ok(CaptureTarget {
                namespace: namespace.name.clone(),
                interface: None,
            });
        }
        Err(unknown) => unknown,
    };
    let Some((before, interface)) = name.rsplit_once('/') else {
        return Err(unknown);
    };
    // If neither name is known, the error names the whole text.
    let Ok(namespace) = find_namespace(plan, cluster, before) else {
        return Err(unknown);
    };
    if interfaces_of(namespace).any(|each| each == interface) {
        return Ok(CaptureTarget {
            namespace: namespace.name.clone(),
            interface: Some(interface.to_owned()),
        });
    }
    let names = interfaces_of(namespace);
    Err(unknown_name("interface", interface, &namespace.name, names))
}

fn unknown_name<'n>(
    kind: &str,
    name: &str,
    within: &str,
    names: impl Iterator<Item = &'n str> + Clone,
) -> RunError {
    let meant = did_you_mean(name, names.clone());
    let meant = meant.map_or_else(String::new, |meant| format!("; {meant}"));
    let known: Vec<&str> = names.collect();
    RunError {
        kind: ErrorKind::Input,
        message: format!("there is no {kind} `{name}` in {within}{meant}"),
        remedy: Some(format!("use one of: {}", known.join(", "))),
    }
}
