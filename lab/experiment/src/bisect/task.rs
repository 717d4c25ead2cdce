//! Input of a bisection.

use std::collections::BTreeMap;

use super::document::BaseCase;
use super::error::BisectError;
use super::unexamined::Unexamined;
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
    /// Number of runs of probes that draw one endpoint per run: see
    /// [`affinity_runs`](crate::affinity_runs).
    pub draws: BTreeMap<String, u32>,
    /// Assumptions about the bad side, for messages.
    pub assumed: Vec<String>,
    /// Differences and state that no trial includes, for messages.
    pub unexamined: Unexamined,
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

/// Maximum number of parallel labs: two to wait for results of good and bad, and two for narrowing,
/// of which one waits while the other continues.
const MAX_LABS: u64 = 4;

/// Returns how many labs of a bisection fit into `room` KiB of memory; at least one.
#[must_use]
pub fn parallel_labs(task: &Task, room: u64) -> usize {
    let each = task.good.memory_kib().max(task.bad.memory_kib()).max(1);
    // The memory of a removed lab stays in use for some time.
    let labs = (room / each).saturating_sub(1).clamp(1, MAX_LABS);
    usize::try_from(labs).unwrap_or(1)
}

/// Returns the probes that both sides have, restricted to the requested one.
pub(super) fn common_probes(task: &Task) -> Result<Vec<Probe>, BisectError> {
    let is_same_probe = |left: &Probe, right: &Probe| {
        left.name == right.name
            && left.namespace == right.namespace
            && left.target == right.target
            && left.protocol == right.protocol
            && left.bind == right.bind
            && left.source_port == right.source_port
            && left.bytes == right.bytes
            && left.datagrams == right.datagrams
    };
    let is_common = |probe: &&Probe| {
        let mut others = task.bad.initial_probes();
        others.any(|other| is_same_probe(probe, other))
    };
    let common = task.good.initial_probes().filter(is_common);
    let is_requested = |probe: &&Probe| task.probe.as_ref().is_none_or(|name| probe.name == *name);
    let selected: Vec<Probe> = common.clone().filter(is_requested).cloned().collect();
    if selected.is_empty() {
        return Err(BisectError::NoProbe {
            good: task.good_name.clone(),
            bad: task.bad_name.clone(),
            requested: task.probe.clone(),
            common: common.map(|probe| probe.name.clone()).collect(),
        });
    }
    Ok(selected)
}
