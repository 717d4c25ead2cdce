//! Searches the fixes of one case: runs the case unchanged, then with each change, then with pairs
//! of changes.

use futures_util::StreamExt as _;
use futures_util::stream::FuturesOrdered;

use super::WhyRequest;
use super::copies::{Copies, LabOrigin};
use super::success::{
    SuccessCounts, compare_counts, count_successes, is_failure, keep_minimal, required_runs,
    worse_result,
};
use crate::bisect::Difference;
use crate::run::bisect::{Task, find};
use crate::why::{
    ChangeError, ChangeResult, DescribedChange, FailingProbe, Finding, Fix, ProposedChange,
    TriedChanges, candidates,
};
use svclab_journey::journey::Journey;
use svclab_judge::conclusion;
use svclab_model::evidence::Evidence;
use svclab_model::plan::Plan;
use svclab_planner::build::regenerate_kube_proxy_rules;
use svclab_runner::kernel::KernelError;
use svclab_runner::results::RunError;
use svclab_runner::run::execute::to_run_error;
use svclab_runner::run::pool::Pool;
use svclab_runner::run::prepare::{Prepared, prepare};
use svclab_runner::run::refit::without_rejected;
use svclab_scenario::Case;
use svclab_scenario::count::Count;
use svclab_scenario::expectation::ProbeExpectation;

/// Maximum number of pairs of changes per case.
const MAX_PAIRS: usize = 400;

/// State of the search of one case.
pub struct Search<'a> {
    request: &'a WhyRequest<'a>,
    pool: &'a Pool,
    copies: &'a Copies,
    /// Counts without any change.
    before: SuccessCounts,
    /// Number of runs in which a fix has to succeed.
    required_runs: u32,
    /// Changes to try.
    candidates: Vec<ProposedChange>,
    /// Results so far.
    pub finding: Finding,
}

impl<'a> Search<'a> {
    /// Runs the case unchanged, with all evidence recorded.
    pub async fn start(
        request: &'a WhyRequest<'a>,
        pool: &'a Pool,
        copies: &'a Copies,
    ) -> Result<Self, RunError> {
        let to_run_error = |error: KernelError| to_run_error(&error);
        let agent = pool.agent().await.map_err(to_run_error)?;
        let kernel = agent.environment().kernel.clone();
        let case = &request.prepared.case.id;
        let case_run = run_case(copies, pool, &request.prepared, true, false);
        let (evidence, _) = case_run.await.map_err(to_run_error)?;
        let before = count_successes(&evidence);
        let mut search = Self {
            finding: Finding {
                case: case.clone(),
                kernel,
                failing: Vec::new(),
                unexamined: Vec::new(),
                tried: Vec::new(),
                runs: 1,
            },
            required_runs: required_runs(&before),
            request,
            pool,
            copies,
            before,
            candidates: Vec::new(),
        };
        search.finding.failing = search.failing_probes(&evidence);
        let unmade = search.before.iter().filter(|(_, (made, of))| made < of);
        let unasked = unmade.filter(|(probe, _)| !search.is_examined(probe));
        search.finding.unexamined = unasked.map(|(probe, _)| probe.clone()).collect();
        search.candidates = search.list_candidates(&request.prepared, &evidence);
        Ok(search)
    }

    /// Returns the examined probes with failing connections, each with the explanation of one
    /// failure.
    fn failing_probes(&self, evidence: &Evidence) -> Vec<FailingProbe> {
        let prepared = &self.request.prepared;
        let (journeys, books) = (prepared.journeys(evidence), prepared.books());
        let mut failing = Vec::new();
        for (probe, (connected, total)) in &self.before {
            if connected == total || !self.is_examined(probe) {
                continue;
            }
            let mut failures = journeys.iter().zip(&books).flat_map(|(stage, book)| {
                let probe_journeys = stage.iter().filter(|journey| journey.probe == *probe);
                probe_journeys
                    .filter(|own| is_failure(own))
                    .map(move |journey| (journey, book))
            });
            let explanation = failures
                .next()
                .map(|(journey, book)| conclusion(journey, book));
            let after = prepared.plan.step_of(probe);
            let after = after.and_then(|at| prepared.steps.get(at));
            failing.push(FailingProbe {
                probe: probe.clone(),
                after: after.map(|step| step.name.clone()),
                connected: *connected,
                total: *total,
                explanation: explanation.unwrap_or_default(),
                fixes: Vec::new(),
            });
        }
        failing
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

    /// Returns the changes to try, from the stage before the steps and after each step.
    fn list_candidates(&self, prepared: &Prepared, evidence: &Evidence) -> Vec<ProposedChange> {
        let later = prepared.steps.iter();
        let later = later.map(|step| (&step.cluster, &step.plan));
        let stages = std::iter::once((&prepared.cluster, &prepared.plan)).chain(later);
        let journeys = prepared.journeys(evidence);
        let mut changes: Vec<ProposedChange> = Vec::new();
        for (index, ((cluster, plan), journeys)) in stages.zip(&journeys).enumerate() {
            let wrong: Vec<&Journey> = journeys
                .iter()
                .filter(|journey| is_failure(journey))
                .filter(|journey| self.is_examined(&journey.probe))
                .collect();
            if wrong.is_empty() {
                continue;
            }
            let after = index
                .checked_sub(1)
                .and_then(|step| prepared.case.after_step(step));
            let case = after.as_ref().unwrap_or(&prepared.case);
            changes.extend(candidates(case, cluster, plan, &wrong));
            // The origin of the rules on a dumped node is unknown.
            let dumped = prepared
                .replay_reports
                .iter()
                .map(|account| account.node.clone());
            changes.extend(dumped.map(|node| ProposedChange::RestartProxy { node }));
        }
        let mut unique: Vec<ProposedChange> = Vec::new();
        for change in changes {
            if !unique.contains(&change) {
                unique.push(change);
            }
        }
        unique.sort_by_key(ProposedChange::origin);
        unique
    }

    /// Tries each candidate alone.
    pub async fn try_single(&mut self) -> Result<(), RunError> {
        let each = self.candidates.iter().map(|change| vec![change.clone()]);
        self.try_all(each.collect()).await
    }

    /// Tries candidates in pairs: each candidate that can be applied, with the changes that are
    /// worth trying after it.
    pub async fn try_pairs(&mut self) -> Result<(), RunError> {
        let mut pairs: Vec<Vec<ProposedChange>> = Vec::new();
        for first in self.candidates.clone() {
            let Ok(changed) = self.apply_changes(std::slice::from_ref(&first)) else {
                continue;
            };
            let Ok((evidence, _)) = self.run(&changed, true, false).await else {
                continue;
            };
            self.finding.runs += 1;
            let mut next = self.list_candidates(&changed, &evidence);
            next.extend(self.candidates.clone());
            for second in next {
                let pair = vec![first.clone(), second.clone()];
                let reversed = vec![second, first.clone()];
                if pair[0] != pair[1] && !pairs.contains(&pair) && !pairs.contains(&reversed) {
                    pairs.push(pair);
                }
            }
        }
        pairs.sort_by_key(|pair| pair.iter().map(ProposedChange::origin).max());
        pairs.truncate(MAX_PAIRS);
        self.try_all(pairs).await
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
    pub async fn narrow_fixes(&mut self) -> Result<(), RunError> {
        let prepared = &self.request.prepared;
        if !prepared.plan.steps.is_empty() {
            return Ok(());
        }
        let mut narrowed: Vec<((String, ProposedChange), Vec<Difference>)> = Vec::new();
        for failing in &self.finding.failing {
            for fix in &failing.fixes {
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
                let agent = self
                    .pool
                    .agent()
                    .await
                    .map_err(|error| to_run_error(&error))?;
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
                    let matters = found.fixes.into_iter().flatten().collect();
                    narrowed.push(((failing.probe.clone(), change.clone()), matters));
                }
            }
        }
        for failing in &mut self.finding.failing {
            for fix in &mut failing.fixes {
                let fix_change = fix.changes.first().map(|described| &described.change);
                let mut entries = narrowed.iter();
                let found = entries.find(|((probe, change), _)| {
                    *probe == failing.probe && Some(change) == fix_change
                });
                if let Some((_, matters)) = found {
                    fix.necessary.clone_from(matters);
                }
            }
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
            let (evidence, reached) = match self.run(&copied, false, runs > 0).await {
                // An error of the kernel in a changed lab is caused by the change.
                Err(KernelError::RequestFailed(failure)) => {
                    let why = failure.message;
                    return Ok((ChangeResult::Refused { why }, runs));
                }
                ran => ran?,
            };
            runs += 1;
            built += u32::from(reached == LabOrigin::Built);
            let now = compare_counts(
                &self.before,
                &self.finding.failing,
                &count_successes(&evidence),
            );
            let result = worse_result(worst_result, now);
            let is_no_fix = !self
                .finding
                .failing
                .iter()
                .any(|wrong| result.is_fix_for(&wrong.probe));
            worst_result = Some(result);
            if is_no_fix {
                break;
            }
        }
        let not_run = || ChangeResult::Refused {
            why: "no probe ran".to_owned(),
        };
        Ok((worst_result.unwrap_or_else(not_run), runs))
    }

    async fn run(
        &self,
        prepared: &Prepared,
        full_evidence: bool,
        afresh: bool,
    ) -> Result<(Evidence, LabOrigin), KernelError> {
        run_case(self.copies, self.pool, prepared, full_evidence, afresh).await
    }

    /// Applies changes to the case.
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
        let dumped: Vec<String> = prepared
            .replay_reports
            .iter()
            .map(|account| account.node.clone())
            .collect();
        for node in dumped {
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

/// Applies a change to a case before its steps and after each step. Returns whether the change
/// concerns the lab document. One stage where the change applies is enough.
fn apply_to_all_stages(change: &ProposedChange, case: &mut Case) -> Result<bool, ChangeError> {
    let mut applied = change.apply_to_case(case);
    for index in 0..case.steps.len() {
        let Some(mut after) = case.after_step(index) else {
            continue;
        };
        let result = change.apply_to_case(&mut after);
        if result == Ok(true) {
            let step = &mut case.steps[index];
            (step.spec, step.objects) = (after.spec, after.objects);
            applied = result;
        }
    }
    applied
}

/// Runs a case. If the kernel refuses objects of a dump that may be omitted, the case runs again
/// without them.
async fn run_case(
    copies: &Copies,
    pool: &Pool,
    prepared: &Prepared,
    full_evidence: bool,
    afresh: bool,
) -> Result<(Evidence, LabOrigin), KernelError> {
    let id = &prepared.case.id;
    let plan = with_early_timeouts(prepared);
    let error = match copies.run(pool, id, &plan, full_evidence, afresh).await {
        Err(error) if !prepared.replay_reports.is_empty() => error,
        ran => return ran,
    };
    let agent = pool.agent().await?;
    match without_rejected(prepared, &error, &agent).await {
        Some(Ok(fitting)) => {
            let plan = with_early_timeouts(&fitting);
            copies.run(pool, id, &plan, full_evidence, afresh).await
        }
        _ => Err(error),
    }
}

/// Returns the plan of a case, with timeouts reported as soon as they are proven. Probes for which
/// the lab sets a maximum wait are excluded, because a later answer does not count. Plans with a
/// real kube-proxy are excluded, because they do not contain its future changes.
fn with_early_timeouts(prepared: &Prepared) -> Plan {
    let mut plan = prepared.plan.clone();
    if !plan.kube_proxies.is_empty() {
        return plan;
    }
    let spec = &prepared.case.spec;
    let sets_wait = |name: &str| {
        let probe = spec.probe(name);
        probe.is_some_and(|probe| probe.max_wait.is_some() || probe.across.is_some())
    };
    let of_steps = plan.steps.iter_mut().flat_map(|step| &mut step.probes);
    for probe in plan.probes.iter_mut().chain(of_steps) {
        probe.settle = !sets_wait(&probe.name);
    }
    plan
}
