//! Searches the fixes of one case: runs the case unchanged, then with each change, then with pairs
//! of changes.

use futures_util::StreamExt as _;
use futures_util::stream::FuturesOrdered;

use super::candidates::candidates;
use super::case_labs::CaseLabs;
use super::change::{ChangeError, ProposedChange};
use super::finding::{ChangeResult, DescribedChange, FailingProbe, Finding, Fix, TriedChanges};
use super::pairs::Pairs;
use super::success::{
    SuccessCounts, compare_counts, count_successes, is_failure, keep_minimal, required_runs,
    worse_result,
};
use crate::bench::{LabChoice, LabOrigin};
use crate::bisect::{Difference, Task, find};
use svclab_journey::journey::Journey;
use svclab_model::evidence::Evidence;
use svclab_planner::build::regenerate_kube_proxy_rules;
use svclab_runner::kernel::KernelError;
use svclab_runner::results::RunError;
use svclab_runner::run::prepare::{PrepareOptions, Prepared, prepare};
use svclab_runner::run::select::SelectedLab;
use svclab_runner::run::to_run_error;
use svclab_scenario::Case;
use svclab_scenario::count::Count;
use svclab_scenario::expectation::ProbeExpectation;

/// Case to examine.
#[derive(Debug)]
pub struct WhyRequest<'l> {
    /// Lab of the case.
    pub lab: &'l SelectedLab,
    /// Prepared case.
    pub prepared: Prepared,
    /// Options for preparing changed cases.
    pub wishes: PrepareOptions,
    /// Name of the probe to examine; `None` means all probes with failing connections.
    pub probe: Option<String>,
}

/// State of the search of one case.
pub(super) struct Search<'a> {
    request: &'a WhyRequest<'a>,
    labs: CaseLabs<'a>,
    /// Counts without any change.
    before: SuccessCounts,
    /// Number of runs in which a fix has to succeed.
    required_runs: u32,
    candidates: Vec<ProposedChange>,
    pub(super) finding: Finding,
}

impl<'a> Search<'a> {
    /// Runs the case unchanged, with all evidence recorded.
    pub(super) async fn start(
        request: &'a WhyRequest<'a>,
        labs: CaseLabs<'a>,
    ) -> Result<Self, RunError> {
        let to_run_error = |error: KernelError| to_run_error(&error);
        let agent = labs.pool.agent().await.map_err(to_run_error)?;
        let kernel = agent.environment().kernel.clone();
        let case = &request.prepared.case.id;
        let case_run = labs.run(&request.prepared, true, LabChoice::Any);
        let (evidence, _) = case_run.await.map_err(to_run_error)?;
        let before = count_successes(&evidence);
        let mut search = Self {
            finding: Finding {
                case: case.clone(),
                kernel,
                failing: Vec::new(),
                unexamined: Vec::new(),
                tried: Vec::new(),
                untried_pairs: 0,
                runs: 1,
            },
            required_runs: required_runs(&before),
            request,
            labs,
            before,
            candidates: Vec::new(),
        };
        search.finding.failing = search.failing_probes(&evidence);
        let incomplete = search
            .before
            .iter()
            .filter(|(_, (made, total))| made < total);
        let unexamined = incomplete.filter(|(probe, _)| !search.is_examined(probe));
        search.finding.unexamined = unexamined.map(|(probe, _)| probe.clone()).collect();
        search.candidates = search.list_candidates(&request.prepared, &evidence);
        Ok(search)
    }

    /// Returns the examined probes with failing connections, each with the explanation of one
    /// failure.
    fn failing_probes(&self, evidence: &Evidence) -> Vec<FailingProbe> {
        let prepared = &self.request.prepared;
        let journeys = prepared.journeys(evidence);
        let explain = |probe: &str| {
            let mut stages = journeys.iter().zip(prepared.explainers(evidence, []));
            let is_wrong = |journey: &&Journey| journey.probe == probe && is_failure(journey);
            stages.find_map(|(stage, explainer)| {
                let failure = stage.iter().find(is_wrong)?;
                Some(explainer.conclude(failure))
            })
        };
        let failing = self
            .before
            .iter()
            .filter(|(probe, (connected, total))| connected < total && self.is_examined(probe));
        let failing = failing.map(|(probe, (connected, total))| {
            let stage = prepared.plan.stage_of(probe);
            let step = stage.and_then(|stage| prepared.step_name(stage));
            FailingProbe {
                probe: probe.clone(),
                after: step.map(str::to_owned),
                connected: *connected,
                total: *total,
                facts: explain(probe).unwrap_or_default(),
                fixes: Vec::new(),
            }
        });
        failing.collect()
    }

    /// Whether failures of a probe are examined. If a probe was requested, only this one is. Else
    /// these are the probes that the lab expects to succeed in some case, and those without
    /// expectations or with any outcome allowed.
    fn is_examined(&self, probe: &str) -> bool {
        if let Some(requested) = &self.request.probe {
            return requested == probe;
        }
        let rows = self.request.prepared.case.spec.expect.iter();
        let mut expectations = rows
            .filter_map(|row| row.expected.probes.get(probe))
            .peekable();
        let expects_success = |expected: &ProbeExpectation| {
            let counts = [expected.connected, expected.answered];
            let mut counts = counts.into_iter().flatten();
            expected.any || counts.any(|count| count != Count::exactly(0))
        };
        expectations.peek().is_none() || expectations.any(expects_success)
    }

    /// Returns the changes to try, from all stages, without duplicates. Configuration of an operator comes before rules that components generate.
    fn list_candidates(&self, prepared: &Prepared, evidence: &Evidence) -> Vec<ProposedChange> {
        let stages = prepared.case.stages().zip(prepared.stages());
        let journeys = prepared.journeys(evidence);
        let mut changes: Vec<ProposedChange> = Vec::new();
        let mut add = |change| {
            if !changes.contains(&change) {
                changes.push(change);
            }
        };
        for ((case, stage), journeys) in stages.zip(&journeys) {
            let wrong =
                |journey: &&Journey| is_failure(journey) && self.is_examined(&journey.probe);
            let wrong: Vec<&Journey> = journeys.iter().filter(wrong).collect();
            if wrong.is_empty() {
                continue;
            }
            candidates(&case, stage.cluster, stage.plan, &wrong)
                .into_iter()
                .for_each(&mut add);
            // The origin of the rules on a dumped node is unknown.
            let dumped = dumped_nodes(prepared).map(|node| ProposedChange::RestartProxy { node });
            dumped.for_each(&mut add);
        }
        changes.sort_by_key(ProposedChange::origin);
        changes
    }

    pub(super) async fn try_single(&mut self) -> Result<(), RunError> {
        let each = self.candidates.iter().map(|change| vec![change.clone()]);
        self.try_all(each.collect()).await
    }

    /// Tries candidates in pairs: each candidate that can be applied, with the changes that are
    /// worth trying after it.
    pub(super) async fn try_pairs(&mut self) -> Result<(), RunError> {
        let mut pairs = Pairs::new(self.candidates.clone());
        for (index, first) in self.candidates.clone().into_iter().enumerate() {
            let mut next = Vec::new();
            if !pairs.is_full() {
                let Ok(changed) = self.apply_changes(&[first]) else {
                    continue;
                };
                let Ok((evidence, _)) = self.labs.run(&changed, true, LabChoice::Any).await else {
                    continue;
                };
                self.finding.runs += 1;
                next = self.list_candidates(&changed, &evidence);
            }
            pairs.add(index, next);
        }
        let (selected, untried) = pairs.select();
        self.finding.untried_pairs = untried;
        self.try_all(selected).await
    }

    /// Tries each of these sets of changes and records the fixes.
    async fn try_all(&mut self, attempts: Vec<Vec<ProposedChange>>) -> Result<(), RunError> {
        let search = &*self;
        let results = attempts.into_iter().map(|changes| async move {
            let result = search.evaluate(&changes).await;
            (changes, result)
        });
        let pending: FuturesOrdered<_> = results.collect();
        let results: Vec<_> = pending.collect().await;
        for (changes, result) in results {
            let (result, runs) = result.map_err(|error| to_run_error(&error))?;
            self.finding.runs += runs;
            let described: Vec<DescribedChange> =
                changes.iter().map(DescribedChange::from).collect();
            for failing in &mut self.finding.failing {
                if result.is_fix_for(&failing.probe) {
                    failing.fixes.push(Fix {
                        changes: described.clone(),
                        necessary: Vec::new(),
                    });
                }
            }
            self.finding.tried.push(TriedChanges {
                changes: described,
                result,
            });
        }
        for failing in &mut self.finding.failing {
            keep_minimal(&mut failing.fixes);
        }
        Ok(())
    }

    /// Narrows down fixes that rewrite a whole set of rules to the differences that are needed. A
    /// fix stays as it is if narrowing fails.
    pub(super) async fn narrow_fixes(&mut self) -> Result<(), RunError> {
        let prepared = &self.request.prepared;
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

    /// Tries changes. Returns their result and the number of runs. A fix that works in a changed
    /// copy also has to work in a newly built lab.
    async fn evaluate(
        &self,
        changes: &[ProposedChange],
    ) -> Result<(ChangeResult, u32), KernelError> {
        let copied = match self.apply_changes(changes) {
            Ok(copy) => copy,
            Err(why) => return Ok((ChangeResult::Refused { why }, 0)),
        };
        let (mut runs, mut built) = (0, 0);
        let mut worst_result: Option<ChangeResult> = None;
        while runs < self.required_runs || built == 0 {
            let lab = if runs > 0 {
                LabChoice::Single
            } else {
                LabChoice::Any
            };
            let (evidence, origin) = match self.labs.run(&copied, false, lab).await {
                // An error of the kernel in a changed lab is caused by the change.
                Err(KernelError::RequestFailed(failure)) => {
                    let why = failure.message;
                    return Ok((ChangeResult::Refused { why }, runs));
                }
                ran => ran?,
            };
            runs += 1;
            built += u32::from(origin == LabOrigin::Built);
            let now = compare_counts(
                &self.before,
                &self.finding.failing,
                &count_successes(&evidence),
            );
            let worst = worse_result(worst_result.take(), now);
            let result = worst_result.insert(worst);
            let mut failing = self.finding.failing.iter();
            if !failing.any(|wrong| result.is_fix_for(&wrong.probe)) {
                break;
            }
        }
        let not_run = || ChangeResult::Refused {
            why: "no probe ran".to_owned(),
        };
        Ok((worst_result.unwrap_or_else(not_run), runs))
    }

    fn apply_changes(&self, changes: &[ProposedChange]) -> Result<Prepared, String> {
        let mut case = self.request.prepared.case.clone();
        let mut concerns_lab = false;
        for change in changes {
            concerns_lab |=
                apply_to_all_stages(change, &mut case).map_err(|why| why.to_string())?;
        }
        let mut prepared = if concerns_lab {
            let again = prepare(self.request.lab, &case, self.request.wishes.clone());
            again.map_err(|diagnostics| {
                let messages = diagnostics
                    .iter()
                    .map(|diagnostic| diagnostic.message.clone());
                messages.collect::<Vec<_>>().join("; ")
            })?
        } else {
            self.request.prepared.clone()
        };
        // A dump contains the rules that kube-proxy wrote before the change.
        for node in dumped_nodes(&prepared).collect::<Vec<_>>() {
            if changes.iter().any(|change| change.restarts(&node)) {
                regenerate_kube_proxy_rules(&mut prepared.plan, &prepared.cluster, &node)
                    .map_err(|why| why.to_string())?;
            }
        }
        for change in changes {
            change
                .apply_to_plan(&mut prepared.plan)
                .map_err(|why| why.to_string())?;
        }
        Ok(prepared)
    }
}

fn dumped_nodes(prepared: &Prepared) -> impl Iterator<Item = String> + '_ {
    let reports = prepared.replay_reports.iter();
    reports.map(|report| report.node.clone())
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
