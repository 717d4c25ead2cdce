//! Narrows down fixes that rewrite a whole set of rules to the differences that are needed.

use super::Search;
use crate::bisect::{Difference, Task, find};
use svclab_runner::results::RunError;
use svclab_runner::run::to_run_error;

impl Search<'_> {
    /// Narrows down fixes that rewrite a whole set of rules. A fix stays as it is if narrowing
    /// fails.
    pub(in crate::why) async fn narrow_fixes(&mut self) -> Result<(), RunError> {
        let prepared = &self.prepared;
        if prepared.plan.stages.len() > 1 {
            return Ok(());
        }
        let mut narrowed: Vec<(usize, usize, Vec<Difference>)> = Vec::new();
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
                let agent = self.labs.pool.agent().await;
                let agent = agent.map_err(|error| to_run_error(&error))?;
                let task = Task {
                    good: changed.plan,
                    bad: prepared.plan.clone(),
                    good_name: described.description.clone(),
                    bad_name: self.finding.case.clone(),
                    base: None,
                    probe: Some(failing.probe.clone()),
                };
                // Other labs of the pool use the remaining memory.
                let labs = 1;
                if let Ok(found) = find(&task, &agent, labs, &mut |_, _| ()).await {
                    let necessary = found.fixes.into_iter().flatten().collect();
                    narrowed.push((failing_index, fix_index, necessary));
                }
            }
        }
        for (failing, fix, necessary) in narrowed {
            self.finding.failing[failing].fixes[fix].necessary = necessary;
        }
        Ok(())
    }
}
