//! Input of a bisection.

use super::error::BisectError;
use crate::bisect::document::BaseCase;
use svclab_model::plan::{Plan, Probe};

/// Input of a bisection.
#[derive(Debug, Clone)]
pub struct Task {
    /// Plan of the good side.
    pub good: Plan,
    /// Plan of the bad side.
    pub bad: Plan,
    /// Name of the good side.
    pub good_name: String,
    /// Name of the bad side.
    pub bad_name: String,
    /// Case and node that both dumps replace; `None` if the sides are cases.
    pub base: Option<BaseCase>,
    /// Name of the probe to use; `None` allows any probe.
    pub probe: Option<String>,
}

/// Returns a plan with the combined requirements of all trials.
#[must_use]
pub fn requirements(task: &Task) -> Plan {
    let mut combined = task.good.clone();
    combined
        .namespaces
        .extend(task.bad.namespaces.iter().cloned());
    combined.commands.extend(task.bad.commands.iter().cloned());
    combined
}

/// Returns the probes that both sides have, restricted to the requested one.
///
/// # Errors
///
/// Returns [`BisectError::NoProbe`] if no probe is left.
pub fn common_probes(task: &Task) -> Result<Vec<Probe>, BisectError> {
    let is_same_probe = |left: &Probe, right: &Probe| {
        let key = |probe: &Probe| {
            (
                probe.name.clone(),
                probe.namespace.clone(),
                probe.target,
                probe.protocol,
                probe.bind,
            )
        };
        key(left) == key(right)
    };
    let good_probes = task.good.probes.iter();
    let common: Vec<Probe> = good_probes
        .filter(|probe| {
            task.bad
                .probes
                .iter()
                .any(|candidate| is_same_probe(probe, candidate))
        })
        .cloned()
        .collect();
    let is_requested = |probe: &&Probe| task.probe.as_ref().is_none_or(|name| probe.name == *name);
    let selected: Vec<Probe> = common.iter().filter(is_requested).cloned().collect();
    if selected.is_empty() {
        return Err(BisectError::NoProbe {
            good: task.good_name.clone(),
            bad: task.bad_name.clone(),
            requested: task.probe.clone(),
            common: common.into_iter().map(|probe| probe.name).collect(),
        });
    }
    Ok(selected)
}
