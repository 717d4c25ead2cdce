//! Narrows down fixes that rewrite the state of a node to the differences that are needed.

use super::Search;
use super::restorations::build;
use crate::bisect::{Difference, DifferenceMask, Pair, TrialCache, TrialClass, narrow_fixes};
use svclab_runner::kernel::KernelError;
use svclab_runner::results::RunError;
use svclab_runner::run::prepare::Prepared;
use svclab_runner::run::to_run_error;

impl Search<'_> {
    /// Narrows down fixes that rewrite the state of a node. A fix stays as it is if narrowing
    /// fails.
    pub(in crate::why) async fn narrow_fixes(&mut self) -> Result<(), RunError> {
        // A pair of plans does not contain steps.
        if self.prepared.plan.stages.len() > 1 {
            return Ok(());
        }
        let mut narrowed: Vec<(usize, usize, Vec<Difference>)> = Vec::new();
        let mut runs = 0;
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
                let found = self.needed_differences(&pair, &changed, &failing.probe, &mut runs);
                let needed = found.await.map_err(|error| to_run_error(&error))?;
                let necessary = needed.into_iter().flatten().collect();
                narrowed.push((failing_index, fix_index, necessary));
            }
        }
        for (failing, fix, necessary) in narrowed {
            self.finding.failing[failing].fixes[fix].necessary = necessary;
        }
        self.finding.runs += runs;
        Ok(())
    }

    /// Returns the differences of a pair that must be as in good so that all connections of the
    /// probe succeed.
    async fn needed_differences(
        &self,
        pair: &Pair,
        changed: &Prepared,
        probe: &str,
        runs: &mut u32,
    ) -> Result<Vec<Vec<Difference>>, KernelError> {
        let mut cache = TrialCache::new();
        loop {
            let mask: DifferenceMask = match narrow_fixes(pair.len(), &cache) {
                Ok(needed) => return Ok(pair.describe(&needed)),
                Err(mask) => mask,
            };
            let lab = Prepared {
                plan: build(pair, &changed.plan, &mask),
                ..changed.clone()
            };
            let (result, more) = self.evaluate_lab(&lab).await?;
            *runs += more;
            let class = if result.is_fix_for(probe) {
                TrialClass::Good
            } else {
                TrialClass::Bad
            };
            cache.insert(mask, class);
        }
    }
}
