//! Counts the successful connections of a case, before and after a change.

use std::collections::BTreeMap;

use crate::why::{Came, Change, Cure, Fared, Wrong};
use svclab_journey::journey::Journey;
use svclab_model::evidence::{Evidence, Verdict};

/// Maximum number of runs in which a fix has to succeed.
const OFTEN: u32 = 12;

/// Reciprocal of the accepted probability that all connections succeed by chance.
const BY_CHANCE: f64 = 1000.0;

/// Number of successful connections and of all connections, by probe.
pub type Made = BTreeMap<String, (u32, u32)>;

/// Whether a verdict means that the connection succeeded.
pub fn is_made(verdict: Verdict) -> bool {
    matches!(verdict, Verdict::Connected | Verdict::Answered)
}

/// Whether a connection failed.
pub fn is_wrong(journey: &Journey) -> bool {
    !is_made(journey.verdict)
}

/// Counts the connections of all probes, including those of steps. A connection that is open across
/// a step succeeds if it still works after the step.
pub fn made(evidence: &Evidence) -> Made {
    let later = evidence.steps.iter().map(|step| &*step.evidence);
    let attempts = std::iter::once(evidence)
        .chain(later)
        .flat_map(|seen| &seen.attempts);
    let mut made = Made::new();
    for attempt in attempts {
        let (connected, of) = made.entry(attempt.probe.clone()).or_default();
        *connected += u32::from(is_made(attempt.verdict));
        *of += 1;
    }
    made
}

/// Returns the result of a change from the counts before and after it.
pub fn compared(before: &Made, wrong: &[Wrong], after: &Made) -> Came {
    let asked = wrong.iter().map(|wrong| {
        let (connected, of) = after.get(&wrong.probe).copied().unwrap_or((0, wrong.of));
        Fared {
            probe: wrong.probe.clone(),
            connected,
            of,
        }
    });
    let worse = |(probe, (connected, of)): (&String, &(u32, u32))| {
        let was_whole = connected == of;
        let is_whole = after.get(probe).is_some_and(|(now, of)| now == of);
        (was_whole && !is_whole).then(|| probe.clone())
    };
    Came::Ran {
        probes: asked.collect(),
        worse: before.iter().filter_map(worse).collect(),
    }
}

/// Combines the results of several runs into the worst one.
pub fn worse_of(before: Option<Came>, now: Came) -> Came {
    match (before, now) {
        (
            Some(Came::Ran {
                probes: before,
                worse,
            }),
            Came::Ran {
                probes,
                worse: more,
            },
        ) => {
            let least = before.into_iter().zip(probes);
            let mut worse: Vec<String> = worse.into_iter().chain(more).collect();
            worse.sort();
            worse.dedup();
            Came::Ran {
                probes: least
                    .map(|(one, other)| Fared {
                        connected: one.connected.min(other.connected),
                        ..one
                    })
                    .collect(),
                worse,
            }
        }
        (_, now) => now,
    }
}

/// Removes fixes that contain a smaller one: more changes, sysctls of more nodes, or a flag if a
/// restart of kube-proxy suffices.
pub fn smallest(cures: &mut Vec<Cure>) {
    let wider = |one: &Cure, less: &Cure| match (one.changes.as_slice(), less.changes.as_slice()) {
        ([one], [less]) => match (&one.change, &less.change) {
            (
                Change::Sysctl {
                    namespaces: many,
                    value,
                    ..
                },
                Change::Sysctl {
                    namespaces: few,
                    value: other,
                    ..
                },
            ) => {
                value == other
                    && few.len() < many.len()
                    && few.iter().all(|name| many.contains(name))
            }
            _ => false,
        },
        _ => false,
    };
    // A change that makes kube-proxy rewrite its rules is no better than a restart that suffices.
    let restarted = |one: &Cure, less: &Cure| match less.changes.as_slice() {
        [less] => match &less.change {
            Change::Restart { node } => one
                .changes
                .iter()
                .any(|told| told.change != less.change && told.change.restarts(node)),
            _ => false,
        },
        _ => false,
    };
    let contains = |one: &Cure, less: &Cure| {
        let more = less.changes.len() < one.changes.len();
        wider(one, less)
            || restarted(one, less)
            || (more && less.changes.iter().all(|told| one.changes.contains(told)))
    };
    let all = cures.clone();
    cures.retain(|cure| !all.iter().any(|less| contains(cure, less)));
}

/// Returns the number of runs in which a fix has to succeed: without a change, some connections
/// succeed by chance.
pub fn often(before: &Made) -> u32 {
    let of = |(connected, of): &(u32, u32)| {
        if connected == of {
            return 1;
        }
        // Fraction of runs in which all connections succeed by chance.
        let share = f64::from(*connected) / f64::from((*of).max(1));
        let chance = share.powf(f64::from(*of));
        let mut runs = 1;
        let mut left = chance;
        while left * BY_CHANCE > 1.0 && runs < OFTEN {
            left *= chance;
            runs += 1;
        }
        runs
    };
    before.values().map(of).max().unwrap_or(1)
}
