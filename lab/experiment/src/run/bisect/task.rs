//! What is bisected.

use super::error::BisectError;
use crate::bisect::document::Over;
use svclab_model::plan::{Plan, Probe};

/// What is bisected.
#[derive(Debug, Clone)]
pub struct Task {
    /// What is well.
    pub good: Plan,
    /// What is not.
    pub bad: Plan,
    /// What good is called.
    pub good_name: String,
    /// What bad is called.
    pub bad_name: String,
    /// Where both are files laid over a lab: which.
    pub over: Option<Over>,
    /// Which probe tells them apart; any, without it.
    pub probe: Option<String>,
}

/// The plan that says what a kernel must have for every trial.
#[must_use]
pub fn needs(task: &Task) -> Plan {
    let mut needs = task.good.clone();
    needs.namespaces.extend(task.bad.namespaces.iter().cloned());
    needs.typed.extend(task.bad.typed.iter().cloned());
    needs
}

/// What is tried in both.
///
/// # Errors
///
/// When that is nothing, or not the probe that was asked for.
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
