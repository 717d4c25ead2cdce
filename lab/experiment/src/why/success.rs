//! Counts the successful connections of a case, before and after a change.

use std::collections::BTreeMap;

use super::change::ProposedChange;
use super::finding::{ChangeResult, FailingProbe, Fix, ProbeCount};
use svclab_journey::journey::Journey;
use svclab_model::evidence::{Evidence, Verdict};

/// Maximum number of runs in which a fix has to succeed.
const MAX_FIX_RUNS: u32 = 12;

/// Accepted probability that all connections succeed by chance.
const MAX_CHANCE: f64 = 1e-3;

/// Number of successful connections and of all connections, by probe.
pub(super) type SuccessCounts = BTreeMap<String, (u32, u32)>;

pub(super) fn is_success(verdict: Verdict) -> bool {
    matches!(verdict, Verdict::Connected | Verdict::Answered)
}

pub(super) fn is_failure(journey: &Journey) -> bool {
    !is_success(journey.verdict)
}

/// Counts the connections of all probes, including those of steps. A connection that is open across
/// a step succeeds if it still works after the step.
pub(super) fn count_successes(evidence: &Evidence) -> SuccessCounts {
    let mut counts = SuccessCounts::new();
    for attempt in evidence.attempts() {
        let (connected, total) = counts.entry(attempt.probe.clone()).or_default();
        *connected += u32::from(is_success(attempt.verdict));
        *total += 1;
    }
    counts
}

/// Returns the result of a change from the counts before and after it.
pub(super) fn compare_counts(
    before: &SuccessCounts,
    failing: &[FailingProbe],
    after: &SuccessCounts,
) -> ChangeResult {
    let probes = failing.iter().map(|probe| {
        let (connected, total) = after.get(&probe.probe).copied().unwrap_or((0, probe.total));
        ProbeCount {
            probe: probe.probe.clone(),
            connected,
            total,
        }
    });
    let worse = |(probe, (connected, total)): (&String, &(u32, u32))| {
        let was_whole = connected == total;
        let is_whole = after.get(probe).is_some_and(|(now, total)| now == total);
        (was_whole && !is_whole).then(|| probe.clone())
    };
    ChangeResult::Finished {
        probes: probes.collect(),
        worse: before.iter().filter_map(worse).collect(),
    }
}

/// Combines the results of several runs into the worst one.
pub(super) fn worse_result(before: Option<ChangeResult>, mut now: ChangeResult) -> ChangeResult {
    if let (
        Some(ChangeResult::Finished {
            probes: earlier,
            worse: earlier_worse,
        }),
        ChangeResult::Finished { probes, worse },
    ) = (before, &mut now)
    {
        for (probe, earlier) in probes.iter_mut().zip(earlier) {
            probe.connected = probe.connected.min(earlier.connected);
            probe.total = earlier.total;
        }
        worse.extend(earlier_worse);
        worse.sort();
        worse.dedup();
    }
    now
}

/// Removes fixes that contain a smaller one: more changes, sysctls of more nodes, or a flag if a
/// restart of kube-proxy suffices.
pub(super) fn keep_minimal(fixes: &mut Vec<Fix>) {
    let all = fixes.clone();
    fixes.retain(|fix| {
        !all.iter().any(|smaller| {
            let has_fewer = smaller.changes.len() < fix.changes.len()
                && smaller
                    .changes
                    .iter()
                    .all(|change| fix.changes.contains(change));
            has_fewer || has_more_nodes(fix, smaller) || restart_suffices(fix, smaller)
        })
    });
}

fn has_more_nodes(fix: &Fix, smaller: &Fix) -> bool {
    let ([fix], [smaller]) = (fix.changes.as_slice(), smaller.changes.as_slice()) else {
        return false;
    };
    match (&fix.change, &smaller.change) {
        (
            ProposedChange::SetSysctl {
                namespaces: many,
                value,
                ..
            },
            ProposedChange::SetSysctl {
                namespaces: few,
                value: other_value,
                ..
            },
        ) => {
            value == other_value
                && few.len() < many.len()
                && few.iter().all(|name| many.contains(name))
        }
        _ => false,
    }
}

/// Whether a fix makes kube-proxy rewrite its rules, and a restart alone is a fix as well.
fn restart_suffices(fix: &Fix, smaller: &Fix) -> bool {
    let [smaller] = smaller.changes.as_slice() else {
        return false;
    };
    let ProposedChange::RestartProxy { node } = &smaller.change else {
        return false;
    };
    let mut changes = fix.changes.iter().map(|described| &described.change);
    changes.any(|change| *change != smaller.change && change.restarts(node))
}

/// Returns the number of runs in which a fix has to succeed: without a change, some connections
/// succeed by chance.
pub(super) fn required_runs(before: &SuccessCounts) -> u32 {
    let runs_for = |(connected, total): &(u32, u32)| {
        if connected == total {
            return 1;
        }
        // Fraction of runs in which all connections succeed by chance.
        let share = f64::from(*connected) / f64::from((*total).max(1));
        let chance = share.powf(f64::from(*total));
        let mut enough = 1..MAX_FIX_RUNS;
        let is_enough = |runs: &u32| chance.powf(f64::from(*runs)) <= MAX_CHANCE;
        enough.find(is_enough).unwrap_or(MAX_FIX_RUNS)
    };
    before.values().map(runs_for).max().unwrap_or(1)
}
