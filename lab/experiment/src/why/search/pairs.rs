//! Tries pairs of changes: those of which each helps a part of the connections, as with two
//! independent faults, then those that hide behind such a change, then all others.

use futures_util::future::join_all;

use super::restorations::Restorations;
use super::{Search, without_duplicates};
use crate::bench::LabChoice;
use crate::why::change::ProposedChange;
use crate::why::finding::{ChangeResult, FailingProbe, Finding, ProbeCount, TriedChanges};
use crate::why::pairs::Pairs;
use svclab_runner::results::RunError;

/// Maximum number of helpful changes of a probe that are combined.
const MAX_HELPFUL: usize = 6;

/// Maximum number of candidates after which further candidates are searched.
const MAX_FIRST_RUNS: usize = 40;

impl Search<'_> {
    /// Tries pairs of tried changes for each probe without a fix.
    pub(in crate::why) async fn try_combined(&mut self) -> Result<(), RunError> {
        let mut pairs: Vec<Vec<ProposedChange>> = Vec::new();
        for helpful in self.helpful_by_probe() {
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
        let helpful = self.helpful_by_probe().flatten().cloned();
        let firsts = without_duplicates(helpful.collect());
        self.try_pairs_with(firsts).await
    }

    /// Returns the helpful changes of each probe without a fix.
    fn helpful_by_probe(&self) -> impl Iterator<Item = Vec<&ProposedChange>> {
        let Finding { failing, tried, .. } = &self.finding;
        let gain = |count: &ProbeCount| self.before.gain(count);
        let unfixed = failing.iter().filter(|probe| probe.fixes.is_empty());
        unfixed.map(move |probe| helpful_changes(probe, gain, failing, tried))
    }

    /// Tries candidates in pairs: each candidate that can be applied, with the changes that are
    /// worth trying after it.
    pub(in crate::why) async fn try_pairs(&mut self) -> Result<(), RunError> {
        let restorations = self.restorations.iter();
        let restorations = restorations.flat_map(Restorations::single_changes);
        let candidates = self.candidates.iter().cloned();
        let mut firsts: Vec<ProposedChange> = candidates.take(MAX_FIRST_RUNS).collect();
        firsts.extend(restorations.take(MAX_FIRST_RUNS));
        // The likeliest changes were tried first.
        firsts.sort_by_key(|first| self.finding.position(first));
        self.try_pairs_with(firsts).await
    }

    /// Tries pairs of which one is in `firsts`: with the other candidates, and with the changes that
    /// are worth trying after it.
    async fn try_pairs_with(&mut self, firsts: Vec<ProposedChange>) -> Result<(), RunError> {
        if self.stop_if_over(0) {
            return Ok(());
        }
        let search = &*self;
        let first_runs = firsts.iter().map(|first| async move {
            let changed = search.apply_changes(std::slice::from_ref(first)).ok()?;
            let run = search.labs.run(&changed, true, LabChoice::Any).await;
            let (evidence, _) = run.ok()?;
            let (mut next, _, met) = search.list_candidates(&changed, &evidence);
            let (restorations, runs) = search.restorations_after(&changed, &evidence, &met).await;
            next.extend(restorations);
            Some((next, 1 + runs))
        });
        let first_runs = search.time.within(join_all(first_runs)).await;
        let Some(next) = first_runs else {
            self.stop(0);
            return Ok(());
        };
        let origin = |change: &ProposedChange| search.components.origin(change);
        let others = search.candidates.iter();
        let others = others.filter(|change| !firsts.contains(change)).cloned();
        let all: Vec<ProposedChange> = firsts.iter().cloned().chain(others).collect();
        let mut pairs = Pairs::new(all, &origin);
        let (mut applied, mut runs) = (Vec::new(), 0);
        for (index, next) in next.into_iter().enumerate() {
            if let Some((next, more)) = next {
                applied.push(index);
                runs += more;
                pairs.add(index, next);
            }
        }
        for index in &applied {
            pairs.add_others(*index);
        }
        let is_known = |pair: &[ProposedChange]| search.finding.has_tried(pair);
        let (selected, untried) = pairs.select(is_known);
        self.finding.runs += runs;
        self.finding.untried_pairs = untried;
        self.try_all(selected).await
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
