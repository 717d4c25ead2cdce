//! Narrows down fixes that rewrite the state of a node to the differences that are needed.

use super::Search;
use super::restorations::{build, trial_cache};
use crate::bisect::{Difference, DifferenceMask, Pair, narrow_fixes};
use crate::why::change::ProposedChange;
use crate::why::finding::{ChangeResult, DescribedChange};
use svclab_runner::kernel::KernelError;
use svclab_runner::results::RunError;
use svclab_runner::run::prepare::Prepared;
use svclab_runner::run::to_run_error;

/// Results of trials, each with the differences that were as in bad and the number of its runs.
type MaskResults = Vec<(DifferenceMask, ChangeResult, u32)>;

impl Search<'_> {
    /// Narrows down fixes that rewrite the state of a node, and tries to restore only the objects that
    /// are needed. A fix stays as it is if narrowing fails or the time ends.
    pub(in crate::why) async fn narrow_fixes(&mut self) -> Result<(), RunError> {
        // A pair of plans does not contain steps.
        if self.prepared.plan.stages.len() > 1 {
            return Ok(());
        }
        let mut narrowed: Vec<(usize, usize, Vec<Difference>)> = Vec::new();
        // A trial has results of all probes.
        let mut known: Vec<(ProposedChange, MaskResults)> = Vec::new();
        let (mut runs, mut is_stopped) = (0, false);
        for (failing_index, failing) in self.finding.failing.iter().enumerate() {
            for (fix_index, fix) in failing.fixes.iter().enumerate() {
                let [described] = fix.changes.as_slice() else {
                    continue;
                };
                let change = &described.change;
                if !change.rewrites_rules() {
                    continue;
                }
                let Ok(changed) = self.apply_changes(std::slice::from_ref(change)) else {
                    continue;
                };
                let Ok(pair) = Pair::new(&changed.plan, &self.prepared.plan) else {
                    continue;
                };
                let index = known.iter().position(|(own, _)| own == change);
                let index = index.unwrap_or_else(|| {
                    known.push((change.clone(), Vec::new()));
                    known.len() - 1
                });
                let results = &mut known[index].1;
                let tried = results.len();
                let found = self.needed_differences(&pair, &changed, &failing.probe, results);
                let needed = found.await.map_err(|error| to_run_error(&error))?;
                is_stopped |= needed.is_none();
                runs += results[tried..]
                    .iter()
                    .map(|(_, _, runs)| runs)
                    .sum::<u32>();
                let necessary = needed.into_iter().flatten().flatten().collect();
                narrowed.push((failing_index, fix_index, necessary));
            }
        }
        let mut restorations: Vec<Vec<ProposedChange>> = Vec::new();
        for (failing, fix, necessary) in &narrowed {
            // A restart of a component repairs more than the objects of one probe.
            let changes = &self.finding.failing[*failing].fixes[*fix].changes;
            let is_undone = |own: &DescribedChange| {
                matches!(own.change, ProposedChange::UndoManualChanges { .. })
            };
            let known = self
                .restorations
                .as_ref()
                .filter(|_| changes.iter().all(is_undone));
            if let Some(changes) = known.and_then(|known| known.restoring(necessary))
                && !restorations.contains(&changes)
            {
                restorations.push(changes);
            }
        }
        for (failing, fix, necessary) in narrowed {
            self.finding.failing[failing].fixes[fix].necessary = necessary;
        }
        self.finding.runs += runs;
        if is_stopped {
            self.stop(0);
        }
        self.try_all(restorations).await
    }

    /// Returns the differences of a pair that must be as in good so that all connections of the
    /// probe succeed. `None` if the time ends before they are known.
    async fn needed_differences(
        &self,
        pair: &Pair,
        changed: &Prepared,
        probe: &str,
        results: &mut MaskResults,
    ) -> Result<Option<Vec<Vec<Difference>>>, KernelError> {
        loop {
            let known = results.iter().map(|(mask, result, _)| (mask, result));
            let cache = trial_cache(known, probe);
            let mask: DifferenceMask = match narrow_fixes(pair.len(), &cache) {
                Ok(needed) => return Ok(Some(pair.describe(&needed))),
                Err(_) if self.time.is_over() => return Ok(None),
                Err(mask) => mask,
            };
            let lab = Prepared {
                plan: build(pair, &changed.plan, &mask),
                ..changed.clone()
            };
            let (result, runs) = self.evaluate_lab(&lab).await?;
            results.push((mask, result, runs));
        }
    }
}
