//! Combines changes of which each helps a part of the connections, as with two independent faults.

use super::Search;
use crate::why::change::ProposedChange;
use crate::why::finding::{ChangeResult, FailingProbe, ProbeCount, TriedChanges};
use svclab_runner::results::RunError;

/// Maximum number of helpful changes of a probe that are combined.
const MAX_HELPFUL: usize = 6;

impl Search<'_> {
    /// Tries pairs of tried changes for each probe without a fix.
    pub(in crate::why) async fn try_combined(&mut self) -> Result<(), RunError> {
        let mut pairs: Vec<Vec<ProposedChange>> = Vec::new();
        let failing = self.finding.failing.iter();
        for probe in failing.filter(|probe| probe.fixes.is_empty()) {
            let gain = |count: &ProbeCount| self.before.gain(count);
            let helpful = helpful_changes(probe, gain, &self.finding.failing, &self.finding.tried);
            for (index, first) in helpful.iter().enumerate() {
                for second in &helpful[index + 1..] {
                    let is_one = first.replaces(second) || second.replaces(first);
                    let mut known = pairs.iter();
                    let is_known = known.any(|pair| pair.contains(first) && pair.contains(second));
                    if !is_one && !is_known {
                        pairs.push(vec![(*first).clone(), (*second).clone()]);
                    }
                }
            }
        }
        self.try_all(pairs).await
    }

    /// Tries the changes that are worth trying after the helpful ones: another fault may hide behind
    /// the first.
    pub(in crate::why) async fn try_helpful_pairs(&mut self) -> Result<(), RunError> {
        let mut firsts: Vec<ProposedChange> = Vec::new();
        let failing = self.finding.failing.iter();
        for probe in failing.filter(|probe| probe.fixes.is_empty()) {
            let gain = |count: &ProbeCount| self.before.gain(count);
            let helpful = helpful_changes(probe, gain, &self.finding.failing, &self.finding.tried);
            for change in helpful {
                if !firsts.contains(change) {
                    firsts.push(change.clone());
                }
            }
        }
        self.try_pairs_with(firsts).await
    }
}

/// Returns the changes after which more connections of a probe succeed than without a change, those
/// with the most first, and then the fixes of other probes. `gain` returns the number of these
/// connections, see [`Outcome::gain`](crate::why::success::Outcome::gain).
fn helpful_changes<'t>(
    probe: &FailingProbe,
    gain: impl Fn(&ProbeCount) -> u32,
    failing: &[FailingProbe],
    tried: &'t [TriedChanges],
) -> Vec<&'t ProposedChange> {
    let mut helpful: Vec<(u32, &ProposedChange)> = Vec::new();
    for attempt in tried {
        let [described] = &attempt.changes[..] else {
            continue;
        };
        let change = &described.change;
        let ChangeResult::Finished { probes, .. } = &attempt.result else {
            continue;
        };
        let mut counts = probes.iter().filter(|count| count.probe == probe.probe);
        let gain = counts.next().map_or(0, &gain);
        let fixes_other = || {
            let mut others = failing.iter().filter(|other| other.probe != probe.probe);
            others.any(|other| attempt.result.is_fix_for(&other.probe))
        };
        if !change.rewrites_rules() && (gain > 0 || fixes_other()) {
            helpful.push((gain, change));
        }
    }
    helpful.sort_by_key(|(gain, _)| std::cmp::Reverse(*gain));
    let helpful = helpful.into_iter().map(|(_, change)| change);
    helpful.take(MAX_HELPFUL).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::why::change::Origin;
    use crate::why::finding::DescribedChange;

    fn probe(name: &str, connected: u32) -> FailingProbe {
        FailingProbe {
            probe: name.to_owned(),
            after: None,
            connected,
            total: 16,
            expected: None,
            observed: svclab_judge::Observed::default(),
            facts: Vec::new(),
            fixes: Vec::new(),
        }
    }

    fn sysctl(key: &str) -> ProposedChange {
        ProposedChange::SetSysctl {
            namespaces: vec!["node-1".to_owned()],
            keys: vec![key.to_owned()],
            value: "1".to_owned(),
        }
    }

    /// Result of a change: connections with the wanted result of each probe, and how many of each
    /// probe also succeeded with another result.
    fn tried(key: &str, connected: [u32; 2], unwanted: u32) -> TriedChanges {
        let count = |(probe, connected): (&str, u32)| ProbeCount {
            probe: probe.to_owned(),
            connected,
            total: 16,
            made: connected + unwanted,
        };
        let change = sysctl(key);
        TriedChanges {
            changes: vec![DescribedChange {
                description: change.to_string(),
                origin: Origin::Configured,
                commands: Vec::new(),
                change,
            }],
            result: ChangeResult::Finished {
                probes: ["call", "other"]
                    .into_iter()
                    .zip(connected)
                    .map(count)
                    .collect(),
                worse: Vec::new(),
            },
        }
    }

    #[test]
    fn helpful_changes_are_partial_improvements_and_fixes_of_others() {
        let failing = [probe("call", 2), probe("other", 0)];
        let all = [
            tried("useless", [2, 15], 0),
            tried("other", [0, 16], 0),
            tried("little", [5, 0], 0),
            tried("more", [11, 0], 0),
            tried("endpoint", [2, 0], 4),
        ];
        let gain = |count: &ProbeCount| (count.connected + count.made).saturating_sub(4);
        let helpful = helpful_changes(&failing[0], gain, &failing, &all);
        let expected = ["more", "little", "endpoint", "other"].map(sysctl);
        assert_eq!(helpful, expected.each_ref());
    }
}
