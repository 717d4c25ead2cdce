//! Tries changes in copies of the case, and records those that are fixes.

use std::borrow::Cow;

use futures_util::{StreamExt as _, stream};
use indexmap::IndexSet;

use super::Search;
use super::manual_state::change_frozen;
use crate::Progress;
use crate::bench::{LabChoice, LabOrigin};
use crate::why::change::{ChangeError, ProposedChange};
use crate::why::finding::{
    ChangeResult, DescribedChange, Fix, ProbeCount, TriedChanges, TypedCommand, typed_commands,
};
use crate::why::success::{compare_counts, keep_minimal, worse_result};
use svclab_planner::build::{regenerate_kube_proxy_rules, restart_flanneld};
use svclab_planner::print::commands_between;
use svclab_runner::kernel::KernelError;
use svclab_runner::results::RunError;
use svclab_runner::run::prepare::{Prepared, prepare};
use svclab_runner::run::to_run_error;
use svclab_scenario::Case;

impl Search<'_> {
    /// Tries each of these sets of changes, records the fixes, and reports the first fix of each
    /// probe as soon as it is confirmed. A fix that may depend on a next hop is not reported: it is
    /// tested again without the replies of the next hop. After the end of the search's time, the
    /// others are not tried.
    pub(super) async fn try_all(
        &mut self,
        attempts: Vec<Vec<ProposedChange>>,
    ) -> Result<(), RunError> {
        if self.stop_if_over(attempts.len()) {
            return Ok(());
        }
        let search = &*self;
        let is_last_test = !search.may_depend_on_next_hop();
        let count = attempts.len();
        let trials = attempts.into_iter().enumerate();
        let trials = trials.map(|(index, changes)| async move {
            let result = search.evaluate(&changes).await;
            (index, changes, result)
        });
        // A fix is repeated before further changes are tried, not after all of them.
        let mut pending = stream::iter(trials).buffer_unordered(self.labs.bench.max_labs());
        let mut reported = self.reported.clone();
        let mut results = Vec::new();
        while let Some(Some((index, changes, result))) = search.time.within(pending.next()).await {
            let (result, runs) = result.map_err(|error| to_run_error(&error))?;
            let described = search.describe(&changes);
            // A restart alone may be enough: see `keep_minimal`.
            let mut dumped = search.request.prepared.replaced_nodes();
            let is_final = is_last_test
                && !dumped.any(|node| changes.iter().any(|change| change.restarts(node)));
            for failing in &search.finding.failing {
                let probe = &failing.probe;
                if is_final && result.is_fix_for(probe) && reported.insert(probe.clone()) {
                    (search.report)(Progress::Fixed {
                        case: search.finding.case.clone(),
                        probe: probe.clone(),
                        changes: described.clone(),
                    });
                }
            }
            results.push((index, described, result, runs));
        }
        drop(pending);
        let untried = count - results.len();
        if untried > 0 {
            self.stop(untried);
        }
        self.reported = reported;
        results.sort_by_key(|(index, ..)| *index);
        for (_, changes, result, runs) in results {
            self.finding.runs += runs;
            for failing in &mut self.finding.failing {
                // Changes of the same objects have the same commands.
                let is_known = |fix: &Fix| {
                    let known = typed_commands(&fix.changes);
                    let mut others = fix.changes.iter().map(|own| &own.change);
                    !known.is_empty()
                        && known == typed_commands(&changes)
                        && others.all(|other| {
                            other.is_made_by_commands()
                                || changes.iter().any(|own| own.change == *other)
                        })
                };
                if result.is_fix_for(&failing.probe) && !failing.fixes.iter().any(is_known) {
                    failing.fixes.push(Fix {
                        changes: changes.clone(),
                        necessary: Vec::new(),
                    });
                }
            }
            self.finding.tried.push(TriedChanges { changes, result });
        }
        for failing in &mut self.finding.failing {
            keep_minimal(&mut failing.fixes);
        }
        Ok(())
    }

    /// Describes changes, each with the commands that make it.
    fn describe(&self, changes: &[ProposedChange]) -> Vec<DescribedChange> {
        let is_restoration =
            |change: &ProposedChange| matches!(change, ProposedChange::Restore { .. });
        // The commands of several changes depend on each other: a route needs its address.
        let are_joint = changes.len() > 1
            && changes.iter().all(ProposedChange::is_on_node)
            && (changes.iter().all(is_restoration) || !changes.iter().any(is_restoration));
        let describe = |(index, change): (usize, &ProposedChange)| DescribedChange {
            description: change.to_string(),
            origin: self.components.origin(change),
            commands: match (are_joint, index) {
                (false, _) => self.commands(std::slice::from_ref(change)),
                (true, 0) => self.commands(changes),
                (true, _) => Vec::new(),
            },
            change: change.clone(),
        };
        changes.iter().enumerate().map(describe).collect()
    }

    /// Returns the commands that make changes on nodes, in the order to type them. Empty if the
    /// changes cannot be applied.
    pub(super) fn commands(&self, changes: &[ProposedChange]) -> Vec<TypedCommand> {
        if !changes.iter().all(ProposedChange::is_on_node) {
            return Vec::new();
        }
        let Ok(after) = self.apply_changes(changes) else {
            return Vec::new();
        };
        // A restored plan writes equal rules in another form.
        let current = match (changes.first(), &self.restorations) {
            (Some(ProposedChange::Restore { .. }), Some(restorations)) => restorations.current(),
            _ => &self.prepared.plan,
        };
        let typed = after.plan.commands.iter();
        let typed = typed.filter(|command| !current.commands.contains(command));
        let typed = typed.map(|command| TypedCommand {
            namespace: command.namespace.clone(),
            command: command.to_string(),
        });
        let commands = commands_between(current, &after.plan).into_iter();
        let commands = commands.map(|command| TypedCommand {
            namespace: command.namespace,
            command: command.line,
        });
        commands.chain(typed).collect()
    }

    /// Tries changes. Returns their result and the number of runs. A fix that works in a changed
    /// copy also has to work in a newly built lab.
    pub(super) async fn evaluate(
        &self,
        changes: &[ProposedChange],
    ) -> Result<(ChangeResult, u32), KernelError> {
        match self.apply_changes(changes) {
            Ok(copy) => self.evaluate_lab(&copy).await,
            Err(why) => Ok((ChangeResult::Refused { why }, 0)),
        }
    }

    /// Runs a changed copy of the case.
    pub(super) async fn evaluate_lab(
        &self,
        copied: &Prepared,
    ) -> Result<(ChangeResult, u32), KernelError> {
        let (mut runs, mut built) = (0, 0);
        let mut worst_result: Option<ChangeResult> = None;
        while runs < self.required_runs || built == 0 {
            let lab = if runs > 0 {
                LabChoice::Single
            } else {
                LabChoice::Any
            };
            let (evidence, origin) = match self.labs.run(copied, false, lab).await {
                // An error of the kernel in a changed lab is caused by the change.
                Err(KernelError::RequestFailed(failure)) => {
                    let why = failure.message;
                    return Ok((ChangeResult::Refused { why }, runs));
                }
                ran => ran?,
            };
            runs += 1;
            built += u32::from(origin == LabOrigin::Built);
            let outcome = self.goals.compare(copied, &evidence);
            let now = compare_counts(&self.before, &self.finding.failing, &outcome);
            let worst = worse_result(worst_result.take(), now);
            let result = worst_result.insert(worst);
            // A run may also gain by chance, if endpoints are drawn.
            let gains = |count: &ProbeCount| self.before.gain(count) > 0;
            if !matches!(result, ChangeResult::Finished { probes, .. } if probes.iter().any(gains))
            {
                break;
            }
        }
        let not_run = || ChangeResult::Refused {
            why: "no probe ran".to_owned(),
        };
        Ok((worst_result.unwrap_or_else(not_run), runs))
    }

    /// Returns the case with these changes.
    pub(super) fn apply_changes(&self, changes: &[ProposedChange]) -> Result<Prepared, String> {
        let mut case = self.request.prepared.case.clone();
        let mut concerns_lab = false;
        for change in changes {
            concerns_lab |=
                apply_to_all_stages(change, &mut case).map_err(|why| why.to_string())?;
        }
        let mut prepared = if concerns_lab {
            let again = prepare(self.request.lab, &case, self.request.wishes.clone());
            let mut again = again.map_err(|diagnostics| {
                // Each expectation about a removed address has the same error.
                let messages: IndexSet<&str> = diagnostics
                    .iter()
                    .map(|diagnostic| &*diagnostic.message)
                    .collect();
                messages.into_iter().collect::<Vec<_>>().join("; ")
            })?;
            // Changes of objects are possible only in a plan that contains them.
            if let Cow::Owned(frozen) = &self.prepared
                && changes.iter().any(ProposedChange::is_on_node)
            {
                let before = &self.request.prepared.plan;
                again.plan = change_frozen(before, &again.plan, &frozen.plan)?;
            }
            again
        } else {
            self.prepared.as_ref().clone()
        };
        // A dump contains the rules that components wrote before the change.
        let nodes: Vec<String> = prepared.replaced_nodes().map(str::to_owned).collect();
        for node in nodes {
            if changes.iter().any(|change| change.restarts(&node)) {
                regenerate_kube_proxy_rules(&mut prepared.plan, &prepared.cluster, &node)
                    .map_err(|why| why.to_string())?;
            }
            if changes.iter().any(ProposedChange::restarts_flanneld) {
                restart_flanneld(&mut prepared.plan, &prepared.cluster, &node)
                    .map_err(|why| why.to_string())?;
            }
        }
        let mut ordered: Vec<&ProposedChange> = changes.iter().collect();
        ordered.sort_by_key(|change| std::cmp::Reverse(change.deleted_position()));
        let is_restoration =
            |change: &&ProposedChange| matches!(change, ProposedChange::Restore { .. });
        let (restored, edits): (Vec<_>, Vec<_>) = ordered.into_iter().partition(is_restoration);
        for change in &edits {
            change
                .apply_to_plan(&mut prepared.plan)
                .map_err(|why| why.to_string())?;
        }
        if !restored.is_empty() {
            let is_unchanged = edits.is_empty() && !concerns_lab;
            prepared.plan = self.restore(&prepared.plan, &restored, is_unchanged)?;
        }
        Ok(prepared)
    }
}

/// Applies a change to a case before its steps and after each step. Returns whether the change
/// concerns the lab document. One stage where the change applies is enough.
fn apply_to_all_stages(change: &ProposedChange, case: &mut Case) -> Result<bool, ChangeError> {
    let mut applied = change.apply_to_case(case);
    for index in 0..case.steps.len() {
        let mut after = case.after_step(&case.steps[index]);
        let result = change.apply_to_case(&mut after);
        if result == Ok(true) {
            let step = &mut case.steps[index];
            (step.spec, step.objects) = (after.spec, after.objects);
            applied = result;
        }
    }
    applied
}
