//! Restores objects that differ from what the components write.

use super::Search;
use crate::bench::LabChoice;
use crate::bisect::{Difference, DifferenceMask, Kind, Pair, TrialCache, TrialClass, narrow_fixes};
use crate::why::candidates::Met;
use crate::why::change::ProposedChange;
use crate::why::component_state::ComponentState;
use crate::why::finding::ChangeResult;
use svclab_model::evidence::Evidence;
use svclab_model::plan::{Namespace, Plan, Sysctl, forwarding_switch};
use svclab_runner::results::RunError;
use svclab_runner::run::prepare::Prepared;
use svclab_runner::run::to_run_error;

/// Maximum number of objects that are restored one by one.
const MAX_SINGLE: usize = 64;

/// Differences of a plan from the state of the components.
pub(super) struct Restorations {
    pair: Pair,
    /// Plan of the current state as the pair writes it.
    current: Plan,
    /// All differences, each with its index in the pair. Packets may meet some of them only after
    /// another change.
    all: Vec<(usize, Vec<Difference>)>,
    /// Differences that packets may have met.
    met: Vec<(usize, Vec<Difference>)>,
}

impl Restorations {
    /// Compares a plan with the state of the components. `None` if they cannot be compared, or do
    /// not differ in anything that packets may have met.
    pub(super) fn new(components: &ComponentState, plan: &Plan, met: &Met) -> Option<Self> {
        // The effect of a step on a restored lab is unknown.
        if plan.stages.len() > 1 {
            return None;
        }
        let pair = Pair::new(components.plan()?, plan).ok()?;
        let all = describe_groups(&pair);
        let mut groups = all.clone();
        let mut met = met.clone();
        let differences: Vec<&Difference> = groups.iter().flat_map(|(_, group)| group).collect();
        met.extend_to_missing_chains(&differences);
        let may_help =
            |difference: &Difference| met.includes(difference) && components.covers(difference);
        groups.retain(|(_, group)| group.iter().any(may_help));
        let met = groups;
        let current = build(&pair, plan, &vec![true; pair.len()]);
        (!met.is_empty()).then_some(Self {
            pair,
            current,
            all,
            met,
        })
    }

    pub(super) const fn current(&self) -> &Plan {
        &self.current
    }

    /// Returns the restoration of each object alone.
    pub(super) fn single_changes(&self) -> impl Iterator<Item = ProposedChange> + '_ {
        let groups = self.met.iter().take(MAX_SINGLE);
        groups.map(|(_, group)| ProposedChange::Restore {
            differences: group.clone(),
        })
    }

    /// Returns the restorations of all these differences. `None` if an object cannot be restored.
    pub(super) fn restoring(&self, differences: &[Difference]) -> Option<Vec<ProposedChange>> {
        let mut chosen: Vec<ProposedChange> = Vec::new();
        for difference in differences {
            let mut groups = self.all.iter().map(|(_, group)| group);
            let change = ProposedChange::Restore {
                differences: groups.find(|group| group.contains(difference))?.clone(),
            };
            if !chosen.contains(&change) {
                chosen.push(change);
            }
        }
        (!chosen.is_empty()).then_some(chosen)
    }

    /// Returns the restorations of those objects that the mask has as in good.
    fn changes(&self, mask: &DifferenceMask) -> Vec<ProposedChange> {
        let chosen = self.met.iter().zip(mask).filter(|(_, is_bad)| !**is_bad);
        let changes = chosen.map(|((_, group), _)| ProposedChange::Restore {
            differences: group.clone(),
        });
        changes.collect()
    }
}

/// Describes the differences of a pair, each with its index. The default of a sysctl that the
/// components do not set is unknown, so that it cannot be restored.
fn describe_groups(pair: &Pair) -> Vec<(usize, Vec<Difference>)> {
    let indices: Vec<usize> = (0..pair.len()).collect();
    let mut groups = pair.describe(&indices);
    for group in &mut groups {
        group.retain(|difference| difference.kind != Kind::Sysctl || difference.good.is_some());
    }
    indices.into_iter().zip(groups).collect()
}

/// Returns the results of trials for a probe: good is a fix.
pub(super) fn trial_cache<'r>(
    results: impl Iterator<Item = (&'r DifferenceMask, &'r ChangeResult)>,
    probe: &str,
) -> TrialCache {
    let class = |result: &ChangeResult| {
        if result.is_fix_for(probe) {
            TrialClass::Good
        } else {
            TrialClass::Bad
        }
    };
    results
        .map(|(mask, result)| (mask.clone(), class(result)))
        .collect()
}

/// Builds a plan of a pair, with the probes and the evidence of another plan.
pub(super) fn build(pair: &Pair, plan: &Plan, mask: &DifferenceMask) -> Plan {
    let mut built = Plan {
        case: plan.case.clone(),
        stages: plan.stages.clone(),
        evidence: plan.evidence.clone(),
        ..pair.plan(mask)
    };
    for namespace in &mut built.namespaces {
        let Some(current) = plan.namespace(&namespace.name) else {
            continue;
        };
        keep_sysctls(namespace, current);
    }
    built
}

/// Keeps the sysctls that the components do not set, except those that follow from a restored one.
fn keep_sysctls(namespace: &mut Namespace, current: &Namespace) {
    let value_of = |namespace: &Namespace, key: &str| {
        let mut sysctls = namespace.sysctls.iter();
        sysctls
            .rfind(|own| own.key == key)
            .map(|own| own.value.clone())
    };
    let follows = |key: &str| {
        forwarding_switch(key).is_some_and(|all| value_of(namespace, all) != value_of(current, all))
    };
    let is_kept = |sysctl: &Sysctl| !follows(&sysctl.key);
    let kept: Vec<Sysctl> = namespace
        .sysctls
        .iter()
        .filter(|own| is_kept(own))
        .cloned()
        .collect();
    let is_missing = |sysctl: &&Sysctl| {
        let has_link = |link: &String| namespace.links.iter().any(|own| own.name == *link);
        value_of(namespace, &sysctl.key).is_none()
            && sysctl.link.as_ref().is_none_or(has_link)
            && !follows(&sysctl.key)
    };
    let missing: Vec<Sysctl> = current.sysctls.iter().filter(is_missing).cloned().collect();
    namespace.sysctls = [kept, missing].concat();
}

impl Search<'_> {
    /// Returns a plan with objects restored. `is_unchanged` states whether the plan is that of the
    /// case.
    pub(super) fn restore(
        &self,
        plan: &Plan,
        changes: &[&ProposedChange],
        is_unchanged: bool,
    ) -> Result<Plan, String> {
        let built;
        let (pair, groups) = match &self.restorations {
            Some(known) if is_unchanged => (&known.pair, known.all.clone()),
            _ => {
                let unknown = || "the state of the components is unknown".to_owned();
                let components = self.components.plan().ok_or_else(unknown)?;
                built = Pair::new(components, plan).map_err(|error| error.to_string())?;
                let groups = describe_groups(&built);
                (&built, groups)
            }
        };
        let mut mask = vec![true; pair.len()];
        for change in changes {
            let ProposedChange::Restore { differences } = change else {
                continue;
            };
            let group = groups.iter().find(|(_, group)| group == differences);
            let (index, _) = group.ok_or_else(|| "the change has no effect".to_owned())?;
            mask[*index] = false;
        }
        Ok(build(pair, plan, &mask))
    }

    /// Returns the restorations of objects that packets may have met after a change: behind a rule
    /// that dropped them, for example. Also returns the number of runs. Empty if a lab with the changed
    /// state, built from the comparison, does not fail, because each restored lab would then seem to be
    /// fixed.
    pub(super) async fn restorations_after(
        &self,
        changed: &Prepared,
        evidence: &Evidence,
        met: &Met,
    ) -> (Vec<ProposedChange>, u32) {
        let Some(after) = Restorations::new(&self.components, &changed.plan, met) else {
            return (Vec::new(), 0);
        };
        let mut rebuilt = changed.clone();
        rebuilt.plan = after.current().clone();
        let Ok((again, _)) = self.labs.run(&rebuilt, false, LabChoice::Any).await else {
            return (Vec::new(), 0);
        };
        let [before, after_rebuild] =
            [evidence, &again].map(|evidence| self.goals.compare(changed, evidence));
        let still_failing = after_rebuild.failing_probes();
        if before.failing_probes().is_subset(&still_failing) {
            (after.single_changes().collect(), 1)
        } else {
            (Vec::new(), 1)
        }
    }

    /// Restores all objects that packets may have met. If this is a fix for a probe without one,
    /// finds the objects that have to be restored together.
    pub(in crate::why) async fn restore_jointly(&mut self) -> Result<(), RunError> {
        let Some(known) = &self.restorations else {
            return Ok(());
        };
        let count = known.met.len();
        if count < 2 {
            return Ok(());
        }
        if self.stop_if_over(0) {
            return Ok(());
        }
        let mut results: Vec<(DifferenceMask, ChangeResult)> = Vec::new();
        let mut fixes: Vec<Vec<ProposedChange>> = Vec::new();
        let (all, _) = self
            .evaluate_mask(&vec![false; count], &mut results)
            .await?;
        let unanswered = self
            .finding
            .failing
            .iter()
            .filter(|failing| failing.fixes.is_empty());
        let probes: Vec<String> = unanswered.map(|failing| failing.probe.clone()).collect();
        let mut runs = 1;
        'probes: for probe in probes.iter().filter(|probe| all.is_fix_for(probe)) {
            let fix = loop {
                let known = results.iter().map(|(mask, result)| (mask, result));
                let cache = trial_cache(known, probe);
                match narrow_fixes(count, &cache) {
                    Ok(fix) => break fix,
                    Err(_) if self.time.is_over() => {
                        self.stop(0);
                        break 'probes;
                    }
                    Err(mask) => {
                        self.evaluate_mask(&mask, &mut results).await?;
                        runs += 1;
                    }
                }
            };
            let mask: DifferenceMask = (0..count).map(|index| !fix.contains(&index)).collect();
            let changes = self.restorations.as_ref().map(|known| known.changes(&mask));
            if let Some(changes) = changes.filter(|changes| !changes.is_empty())
                && !fixes.contains(&changes)
            {
                fixes.push(changes);
            }
        }
        self.finding.runs += runs;
        self.try_all(fixes).await
    }

    async fn evaluate_mask(
        &self,
        mask: &DifferenceMask,
        results: &mut Vec<(DifferenceMask, ChangeResult)>,
    ) -> Result<(ChangeResult, u32), RunError> {
        let changes = self
            .restorations
            .iter()
            .flat_map(|known| known.changes(mask));
        let changes: Vec<ProposedChange> = changes.collect();
        let evaluated = self.evaluate(&changes).await;
        let (result, runs) = evaluated.map_err(|error| to_run_error(&error))?;
        results.push((mask.clone(), result.clone()));
        Ok((result, runs))
    }
}
