//! Counts the successful connections of a case, before and after a change.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use super::change::ProposedChange;
use super::finding::{ChangeResult, FailingProbe, Fix, ProbeCount, typed_commands};
use crate::statistics::repetitions;

/// Maximum number of runs in which a fix has to succeed.
const MAX_FIX_RUNS: u32 = 12;

/// Minimum number of connections of a fix, of a probe that never succeeded without it.
const MIN_FIX_CONNECTIONS: u32 = 4;

/// Number of successful connections and of all connections, by probe.
pub(super) type SuccessCounts = BTreeMap<String, (u32, u32)>;

/// Connection, by the index of its stage, its probe and its number.
pub(super) type AttemptKey = (usize, String, u32);

/// Results of a run.
#[derive(Debug, Clone, Default)]
pub(super) struct Outcome {
    /// Number of connections that succeed, by probe.
    pub(super) connected: SuccessCounts,
    /// Number of connections with the wanted result, by probe.
    pub(super) wanted: SuccessCounts,
    /// Connections without the wanted result.
    pub(super) failures: BTreeSet<AttemptKey>,
}

impl Outcome {
    /// Returns the probes without the wanted result of all connections.
    pub(super) fn failing_probes(&self) -> BTreeSet<&str> {
        let failing = self.wanted.iter().filter(|(_, (made, total))| made < total);
        failing.map(|(probe, _)| probe.as_str()).collect()
    }

    /// Returns how many more connections of a probe succeed after a change, and how many more have the
    /// wanted result. A connection with another endpoint or source than the wanted one counts too:
    /// another fault may be the cause.
    pub(super) fn gain(&self, after: &ProbeCount) -> u32 {
        let counts = [
            (&self.wanted, after.connected),
            (&self.connected, after.made),
        ];
        let gains = counts.map(|(before, now)| {
            let before = before.get(&after.probe).map_or(0, |(made, _)| *made);
            now.saturating_sub(before)
        });
        gains.iter().sum()
    }

    /// Whether more probes fail than in another run or, if equally many do, fewer connections have
    /// the wanted result.
    pub(super) fn is_worse_than(&self, other: &Self) -> bool {
        let rank = |outcome: &Self| {
            let wanted: u32 = outcome.wanted.values().map(|(made, _)| made).sum();
            (outcome.failing_probes().len(), Reverse(wanted))
        };
        rank(self) > rank(other)
    }

    /// Sets each count to the minimum of this run and another.
    pub(super) fn lower_counts(&mut self, other: &Self) {
        for (own, counts) in [
            (&mut self.connected, &other.connected),
            (&mut self.wanted, &other.wanted),
        ] {
            for (probe, (made, total)) in counts {
                let (least, _) = own.entry(probe.clone()).or_insert((*made, *total));
                *least = (*least).min(*made);
            }
        }
    }
}

/// Returns the result of a change from the counts before and after it.
pub(super) fn compare_counts(
    before: &Outcome,
    failing: &[FailingProbe],
    after: &Outcome,
) -> ChangeResult {
    let probes = failing.iter().map(|probe| {
        let wanted = after.wanted.get(&probe.probe).copied();
        let (connected, total) = wanted.unwrap_or((0, probe.total));
        ProbeCount {
            probe: probe.probe.clone(),
            connected,
            total,
            made: after.connected.get(&probe.probe).map_or(0, |count| count.0),
        }
    });
    // A probe that already failed may have succeeded by chance: only a loss of most of its
    // connections counts.
    let already_failing = before.failing_probes();
    let worse = |(probe, (connected, total)): (&String, &(u32, u32))| {
        let (now, of) = after.connected.get(probe).copied().unwrap_or((0, *total));
        let has_lost = if already_failing.contains(probe.as_str()) {
            2 * now < of
        } else {
            now < of
        };
        (connected == total && has_lost).then(|| probe.clone())
    };
    ChangeResult::Finished {
        probes: probes.collect(),
        worse: before.connected.iter().filter_map(worse).collect(),
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
            probe.made = probe.made.min(earlier.made);
            probe.total = earlier.total;
        }
        worse.extend(earlier_worse);
        worse.sort();
        worse.dedup();
    }
    now
}

/// Removes fixes that contain a smaller one: more changes or commands, sysctls of more nodes, or a
/// flag if a restart of kube-proxy suffices. Removes the restart itself if a change of single objects
/// is a fix.
pub(super) fn keep_minimal(fixes: &mut Vec<Fix>) {
    let all = fixes.clone();
    fixes.retain(|fix| {
        !all.iter().any(|smaller| {
            // The commands of a change depend on the changes beside it.
            let contains = |change: &ProposedChange| {
                let mut own = fix.changes.iter();
                own.any(|own| own.change == *change)
            };
            let has_fewer = smaller.changes.len() < fix.changes.len()
                && smaller.changes.iter().all(|own| contains(&own.change));
            has_fewer
                || has_more_commands(fix, smaller)
                || has_more_nodes(fix, smaller)
                || restart_suffices(fix, smaller)
        })
    });
    let is_restart = |fix: &Fix| {
        let mut changes = fix.changes.iter();
        changes.any(|own| matches!(own.change, ProposedChange::RestartProxy { .. }))
    };
    if !fixes.iter().all(is_restart) {
        fixes.retain(|fix| !is_restart(fix));
    }
}

/// Whether the commands of a fix contain those of a smaller one: changes of the same object have the
/// same commands. Both must be changes on nodes, because others have no commands.
fn has_more_commands(fix: &Fix, smaller: &Fix) -> bool {
    let is_on_node = |fix: &Fix| fix.changes.iter().all(|own| own.change.is_on_node());
    let [all, few] = [fix, smaller].map(|fix| typed_commands(&fix.changes));
    is_on_node(fix)
        && is_on_node(smaller)
        && !few.is_empty()
        && few.len() < all.len()
        && few.iter().all(|command| all.contains(command))
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
        // Nothing shows how often a connection would succeed by chance.
        if *connected == 0 {
            return MIN_FIX_CONNECTIONS.div_ceil((*total).max(1));
        }
        // Fraction of runs in which all connections succeed by chance.
        let share = f64::from(*connected) / f64::from((*total).max(1));
        repetitions(share.powf(f64::from(*total)), MAX_FIX_RUNS)
    };
    before.values().map(runs_for).max().unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(connected: (u32, u32), wanted: (u32, u32)) -> Outcome {
        let counts = |count| BTreeMap::from([("call".to_owned(), count)]);
        Outcome {
            connected: counts(connected),
            wanted: counts(wanted),
            failures: BTreeSet::new(),
        }
    }

    #[test]
    fn gain_counts_wanted_and_other_results() {
        let before = outcome((8, 16), (2, 16));
        let gain = |connected, made| {
            before.gain(&ProbeCount {
                probe: "call".to_owned(),
                connected,
                total: 16,
                made,
            })
        };
        assert_eq!(gain(2, 8), 0);
        assert_eq!(gain(1, 16), 8);
        assert_eq!(gain(3, 9), 2);
    }

    #[test]
    fn is_worse_than_compares_failing_probes_first() {
        let [healthy, failing, losing] = [(16, 16), (15, 7), (15, 6)]
            .map(|(connected, wanted)| outcome((connected, 16), (wanted, 16)));
        assert!(failing.is_worse_than(&healthy));
        assert!(losing.is_worse_than(&failing));
        assert!(!failing.is_worse_than(&losing));
        assert!(!failing.is_worse_than(&failing));
    }

    #[test]
    fn lower_counts_keeps_minimum_and_own_failures() {
        let mut worst = outcome((8, 16), (7, 16));
        worst.failures.insert((0, "call".to_owned(), 3));
        let failures = worst.failures.clone();
        worst.lower_counts(&outcome((16, 16), (6, 16)));
        assert_eq!(worst.connected, outcome((8, 16), (7, 16)).connected);
        assert_eq!(worst.wanted, outcome((8, 16), (6, 16)).wanted);
        assert_eq!(worst.failures, failures);
    }

    #[test]
    fn compare_counts_failing_probe_may_lose_connections_by_chance() {
        let is_worse = |before: &Outcome, now| {
            let result = compare_counts(before, &[], &outcome(now, now));
            matches!(result, ChangeResult::Finished { worse, .. } if !worse.is_empty())
        };
        let healthy = outcome((16, 16), (16, 16));
        assert!(is_worse(&healthy, (15, 16)));
        assert!(!is_worse(&healthy, (16, 16)));
        // All connections succeeded, but one of two endpoints never answered.
        let failing = outcome((16, 16), (15, 16));
        assert!(!is_worse(&failing, (13, 16)));
        assert!(is_worse(&failing, (0, 16)));
        // A probe that lost connections before cannot become worse.
        assert!(!is_worse(&outcome((9, 16), (9, 16)), (0, 16)));
    }
}
