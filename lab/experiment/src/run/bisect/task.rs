//! Input of a bisection.

use super::error::BisectError;
use crate::bisect::document::Over;
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
    pub over: Option<Over>,
    /// Name of the probe to use; `None` allows any probe.
    pub probe: Option<String>,
}

/// Returns a plan with the combined requirements of all trials.
#[must_use]
pub fn needs(task: &Task) -> Plan {
    let mut needs = task.good.clone();
    needs.namespaces.extend(task.bad.namespaces.iter().cloned());
    needs.typed.extend(task.bad.typed.iter().cloned());
    needs
}

/// Returns the probes that both sides have, restricted to the requested one.
///
/// # Errors
///
/// Returns [`BisectError::NoProbe`] if no probe is left.
pub fn probes(task: &Task) -> Result<Vec<Probe>, BisectError> {
    let alike = |one: &Probe, other: &Probe| {
        let of = |probe: &Probe| {
            (
                probe.name.clone(),
                probe.from.clone(),
                probe.to,
                probe.protocol,
                probe.bind,
            )
        };
        of(one) == of(other)
    };
    let both = task.good.probes.iter();
    let both: Vec<Probe> = both
        .filter(|one| task.bad.probes.iter().any(|other| alike(one, other)))
        .cloned()
        .collect();
    let wanted = |probe: &&Probe| {
        task.probe
            .as_ref()
            .is_none_or(|wanted| probe.name == *wanted)
    };
    let chosen: Vec<Probe> = both.iter().filter(wanted).cloned().collect();
    if chosen.is_empty() {
        return Err(BisectError::NoProbe {
            good: task.good_name.clone(),
            bad: task.bad_name.clone(),
            wanted: task.probe.clone(),
            there: both.into_iter().map(|probe| probe.name).collect(),
        });
    }
    Ok(chosen)
}
