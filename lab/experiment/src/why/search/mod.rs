//! Searches the fixes of one case: runs the case unchanged, then with each change, then with pairs of
//! those that helped, then with the state that components write, then with other pairs of changes.

mod attempts;
mod manual_state;
mod narrowing;
mod pairs;
mod restorations;
mod time_limit;
mod unchanged;

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::net::IpAddr;

use super::candidates::{Candidates, Failures, Met, candidates};
use super::case_labs::CaseLabs;
use super::change::{Origin, ProposedChange};
use super::component_state::ComponentState;
use super::finding::{
    ChangeResult, ExpectedResult, FailingProbe, Finding, TypedCommand, UnreadState,
};
use super::frozen::{freeze_manual_changes, partly_shown_nodes};
use super::goals::Goals;
use super::request::WhyRequest;
use super::success::{Outcome, required_runs};
use crate::Progress;
use crate::bench::LabChoice;
use crate::draws::endpoint_runs;
use restorations::Restorations;
use svclab_journey::journey::Journey;
use svclab_judge::summarize;
use svclab_model::evidence::Evidence;
use svclab_runner::kernel::KernelError;
use svclab_runner::results::RunError;
use svclab_runner::run::prepare::Prepared;
use svclab_runner::run::to_run_error;
use svclab_scenario::count::Count;
use svclab_scenario::expectation::ProbeExpectation;
use unchanged::{Unchanged, run_unchanged};

pub(super) use time_limit::TimeLimit;

/// State of the search of one case.
pub(super) struct Search<'a> {
    request: &'a WhyRequest<'a>,
    /// Case to change: that of the request, with the state of its nodes in the plan.
    prepared: Cow<'a, Prepared>,
    labs: CaseLabs<'a>,
    time: TimeLimit,
    report: &'a (dyn Fn(Progress) + Sync),
    /// Probes for which a fix was reported.
    reported: BTreeSet<String>,
    goals: Goals,
    /// Results without any change.
    before: Outcome,
    /// Number of runs in which a fix has to succeed.
    required_runs: u32,
    /// Number of runs that draw each endpoint almost certainly.
    draws: u32,
    components: ComponentState,
    /// Differences from the state of the components; `None` if they cannot be compared.
    restorations: Option<Restorations>,
    /// Objects that the packets of failing connections met.
    met: Met,
    candidates: Vec<ProposedChange>,
    /// Changes that rewrite the state of a node, of which only a part may matter.
    rewrites: Vec<ProposedChange>,
    pub(super) finding: Finding,
}

impl<'a> Search<'a> {
    /// Runs the case unchanged, with all evidence recorded.
    pub(super) async fn start(
        request: &'a WhyRequest<'a>,
        labs: CaseLabs<'a>,
        time: TimeLimit,
        report: &'a (dyn Fn(Progress) + Sync),
    ) -> Result<Self, RunError> {
        let to_run_error = |error: KernelError| to_run_error(&error);
        let agent = labs.pool.agent().await.map_err(to_run_error)?;
        let kernel = agent.environment().kernel.clone();
        let case = &request.prepared.case.id;
        let requested = request.probe.as_deref().zip(request.wanted.as_ref());
        let goals = Goals::new(&request.prepared, requested);
        let draws = endpoint_runs(&request.prepared);
        let unchanged = run_unchanged(&labs, &request.prepared, &goals, draws).await;
        let Unchanged {
            evidence,
            outcome: before,
            runs,
        } = unchanged.map_err(to_run_error)?;
        let mut search = Self {
            finding: Finding {
                case: case.clone(),
                kernel,
                failing: Vec::new(),
                unexamined: Vec::new(),
                unexpected: Vec::new(),
                dumps: request.prepared.replay_reports.clone(),
                not_modelled: request.prepared.case.spec.not_modelled.clone(),
                tried: Vec::new(),
                untried_pairs: 0,
                stopped: None,
                unread: None,
                assumed: Vec::new(),
                runs,
            },
            required_runs: required_runs(&before.wanted).max(draws),
            draws,
            goals,
            request,
            prepared: Cow::Borrowed(&request.prepared),
            labs,
            time,
            report,
            reported: BTreeSet::new(),
            before,
            components: ComponentState::default(),
            restorations: None,
            met: Met::default(),
            candidates: Vec::new(),
            rewrites: Vec::new(),
        };
        search.finding.failing = search.failing_probes(&evidence);
        let incomplete = search.before.failing_probes().into_iter();
        let unexamined = incomplete.filter(|probe| !search.is_examined(probe));
        search.finding.unexamined = unexamined.map(str::to_owned).collect();
        search.finding.unexpected = search.unexpected_successes(&evidence);
        if !search.finding.is_healthy() {
            let frozen = Box::pin(search.freeze()).await;
            search.components = ComponentState::new(request);
            search.collect_candidates(&frozen.unwrap_or(evidence));
            let checked = Box::pin(search.check_restorations()).await;
            checked.map_err(to_run_error)?;
        }
        Ok(search)
    }

    /// Replaces manual commands by the state that they leave on their nodes, if the same probes fail
    /// with this state. Returns the evidence of the case with this state.
    /// A state that cannot be read or built again is no error of the case: the finding names it.
    async fn freeze(&mut self) -> Option<Evidence> {
        let mut reason = partly_shown_nodes(&self.request.prepared.plan);
        self.finding.unread.clone_from(&reason);
        for after_probes in [false, true] {
            let prepared = &self.request.prepared;
            let plan = &prepared.plan;
            let frozen = freeze_manual_changes(prepared, self.labs.pool, after_probes);
            let Some(frozen) = frozen.await else {
                break;
            };
            let frozen = match frozen {
                Ok(frozen) => frozen,
                Err(unread) => {
                    reason = Some(unread);
                    break;
                }
            };
            let differs = match self.run_until_alike(&frozen, true).await {
                Ok(Some(evidence)) => {
                    self.prepared = Cow::Owned(frozen);
                    return Some(evidence);
                }
                Ok(None) => "a lab with this state does not fail in the same way".to_owned(),
                Err(error) => format!("a lab with this state cannot be run: {error}"),
            };
            reason = Some(UnreadState::new(plan, differs));
        }
        self.finding.unread = reason;
        None
    }

    /// Runs a case until it fails as without any change. `None` if it does not.
    async fn run_until_alike(
        &mut self,
        prepared: &Prepared,
        full_evidence: bool,
    ) -> Result<Option<Evidence>, KernelError> {
        for _ in 0..self.draws {
            let run = self.labs.run(prepared, full_evidence, LabChoice::Any);
            let (evidence, _) = run.await?;
            self.finding.runs += 1;
            if self.fails_alike(&evidence) {
                return Ok(Some(evidence));
            }
        }
        Ok(None)
    }

    /// Whether all probes that fail without any change fail in a run.
    fn fails_alike(&self, evidence: &Evidence) -> bool {
        let now = self.goals.compare(&self.prepared, evidence);
        let before = self.before.failing_probes();
        before.is_subset(&now.failing_probes())
    }

    /// Drops the comparison with the components' state if it does not contain the cause of the
    /// failure: each restored lab would seem to be fixed.
    async fn check_restorations(&mut self) -> Result<(), KernelError> {
        let Some(restorations) = &self.restorations else {
            return Ok(());
        };
        let mut unchanged = self.prepared.as_ref().clone();
        unchanged.plan = restorations.current().clone();
        let is_alike = match self.run_until_alike(&unchanged, false).await {
            Ok(evidence) => evidence.is_some(),
            Err(KernelError::RequestFailed(_)) => false,
            Err(error) => return Err(error),
        };
        if !is_alike {
            self.restorations = None;
        }
        Ok(())
    }

    /// Whether a node has a route that components do not write, through a next hop that may not exist.
    fn may_depend_on_next_hop(&self) -> bool {
        let mut reports = self.request.prepared.replay_reports.iter();
        reports.any(|report| {
            let mut hops = report.unseen_next_hops().into_iter();
            hops.any(|hop| self.is_foreign(&report.node, hop.address))
        })
    }

    /// Whether the components write no route of a node through a next hop. `false` if their state is
    /// unknown.
    pub(super) fn is_foreign(&self, node: &str, next_hop: IpAddr) -> bool {
        let components = self.components.plan();
        let namespace = components.and_then(|plan| plan.namespace(node));
        namespace.is_some_and(|namespace| {
            let mut routes = namespace.routes.iter();
            !routes.any(|route| route.via == Some(next_hop))
        })
    }

    /// Whether all fixes of another search of the case hold in this one.
    pub(super) async fn confirms(&mut self, finding: &Finding) -> Result<bool, RunError> {
        // A result has all probes.
        let mut results: Vec<(Vec<ProposedChange>, ChangeResult)> = Vec::new();
        for failing in &finding.failing {
            for fix in &failing.fixes {
                let changes = fix.changes.iter().map(|described| described.change.clone());
                let changes: Vec<ProposedChange> = changes.collect();
                let known = results.iter().find(|(own, _)| *own == changes);
                let result = if let Some((_, result)) = known {
                    result.clone()
                } else {
                    let evaluated = self.evaluate(&changes).await;
                    let (result, runs) = evaluated.map_err(|error| to_run_error(&error))?;
                    self.finding.runs += runs;
                    results.push((changes, result.clone()));
                    result
                };
                if !result.is_fix_for(&failing.probe) {
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }

    /// Whether all failing probes of another search of the case fail in this one.
    pub(super) fn fails_as(&self, finding: &Finding) -> bool {
        let own = &self.finding.failing;
        let mut others = finding.failing.iter();
        others.all(|other| own.iter().any(|failing| failing.probe == other.probe))
    }

    fn collect_candidates(&mut self, evidence: &Evidence) {
        let (candidates, rewrites, met) = self.list_candidates(&self.prepared, evidence);
        self.met = met;
        self.rewrites = rewrites;
        self.restorations = Restorations::new(&self.components, &self.prepared.plan, &self.met);
        self.candidates = candidates;
        // The first change that helps is one that lasts.
        let components = &self.components;
        self.candidates
            .sort_by_key(|change| components.origin(change));
    }

    /// Returns the examined probes with failing connections, each with the explanation of one
    /// failure.
    fn failing_probes(&self, evidence: &Evidence) -> Vec<FailingProbe> {
        let prepared = &self.request.prepared;
        let journeys = prepared.journeys(evidence);
        let explain = |probe: &str| {
            let explainers = prepared.explainers(evidence, []);
            let mut stages = journeys.iter().zip(explainers).enumerate();
            stages.find_map(|(index, (stage, explainer))| {
                let is_wrong = |journey: &&Journey| {
                    journey.probe == probe && is_failure(&self.before, index, journey)
                };
                let failure = stage.iter().find(is_wrong)?;
                Some(explainer.conclude(failure))
            })
        };
        let failing = self.before.failing_probes().into_iter();
        let failing = failing.filter(|probe| self.is_examined(probe));
        let failing = failing.map(|probe| {
            let (connected, total) = self.before.wanted.get(probe).copied().unwrap_or_default();
            let stage = prepared.plan.stage_of(probe);
            let step = stage.and_then(|stage| prepared.step_name(stage));
            let index = stage.unwrap_or_default();
            let seen = evidence.stages.get(index).zip(prepared.books().nth(index));
            let observed = seen.map(|(seen, book)| summarize(&seen.attempts, probe, &book).0);
            FailingProbe {
                probe: probe.to_owned(),
                after: step.map(str::to_owned),
                connected,
                total,
                expected: self.goals.of_probe(probe).map(ExpectedResult::from),
                observed: observed.unwrap_or_default(),
                facts: explain(probe).unwrap_or_default(),
                fixes: Vec::new(),
            }
        });
        failing.collect()
    }

    /// Returns the probes whose connections all succeed although the case expects another result. A
    /// result that the user requests replaces that of the case.
    fn unexpected_successes(&self, evidence: &Evidence) -> Vec<String> {
        let Ok(judge) = self.request.prepared.judge() else {
            return Vec::new();
        };
        let failing = self.before.failing_probes();
        let judgement = judge.judge(evidence);
        let unexpected = judgement.probes().filter(|outcome| {
            let is_requested = self.request.probe.as_ref() == Some(&outcome.name);
            let is_replaced = is_requested && self.request.wanted.is_some();
            !outcome.holds && !is_replaced && !failing.contains(outcome.name.as_str())
        });
        let names: BTreeSet<String> = unexpected.map(|outcome| outcome.name.clone()).collect();
        names.into_iter().collect()
    }

    /// Whether failures of a probe are examined. If a probe was requested, only this one is. Else
    /// these are the probes that the lab expects to succeed in some case, and those without
    /// expectations or with any outcome allowed. A lab with a single case states what was observed,
    /// as `svclab replay --write` writes it, so that all its probes are examined.
    fn is_examined(&self, probe: &str) -> bool {
        if let Some(requested) = &self.request.probe {
            return requested == probe;
        }
        if self.request.lab.scenario.cases().len() == 1 {
            return true;
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

    /// Returns the changes to try, from all stages, without duplicates: changes of objects, and
    /// those that rewrite the state of a node. Also returns what the packets of failing
    /// connections met.
    fn list_candidates(
        &self,
        prepared: &Prepared,
        evidence: &Evidence,
    ) -> (Vec<ProposedChange>, Vec<ProposedChange>, Met) {
        let stages = prepared.case.stages().zip(prepared.stages());
        let journeys = prepared.journeys(evidence);
        let (mut deciding, mut matched, mut rewriting) = (Vec::new(), Vec::new(), Vec::new());
        let mut met = Met::default();
        let outcome = self.goals.compare(prepared, evidence);
        let explainers = prepared.books().zip(prepared.explainers(evidence, []));
        let stages = stages.zip(&journeys).zip(explainers).enumerate();
        for (index, (((case, stage), journeys), (book, explainer))) in stages {
            let wrong = |journey: &&Journey| {
                is_failure(&outcome, index, journey) && self.is_examined(&journey.probe)
            };
            let wrong: Vec<&Journey> = journeys.iter().filter(wrong).collect();
            if wrong.is_empty() {
                continue;
            }
            let failures = Failures {
                case: &case,
                cluster: stage.cluster,
                plan: stage.plan,
                book: &book,
                explainer: &explainer,
                journeys: wrong,
            };
            let Candidates {
                deciding: more,
                matched: rules,
                rewrites,
            } = candidates(&failures);
            deciding.extend(more);
            matched.extend(rules);
            rewriting.extend(rewrites);
            met.extend(Met::new(&failures));
        }
        // Connections need the rules of components that they match.
        matched.retain(|change| self.components.origin(change) == Origin::Configured);
        deciding.extend(matched);
        (
            without_duplicates(deciding),
            without_duplicates(rewriting),
            met,
        )
    }

    /// Tries the restoration of each object that differs from what components write, and then each
    /// candidate.
    pub(super) async fn try_single(&mut self) -> Result<(), RunError> {
        let mut likely: Vec<Vec<ProposedChange>> = Vec::new();
        let mut others: Vec<Vec<ProposedChange>> = Vec::new();
        let mut known: Vec<Vec<TypedCommand>> = Vec::new();
        let restorations = self.restorations.iter();
        let restorations = restorations.flat_map(Restorations::single_changes);
        let restorations: Vec<ProposedChange> = restorations.collect();
        let restoring = restorations
            .iter()
            .map(|change| self.commands(std::slice::from_ref(change)));
        let restoring: Vec<Vec<TypedCommand>> = restoring.collect();
        for change in self.candidates.iter().cloned().chain(restorations) {
            // A restoration is often the same as a change of the object.
            let own = self.commands(std::slice::from_ref(&change));
            if !own.is_empty() && known.contains(&own) {
                continue;
            }
            let is_restoration = matches!(change, ProposedChange::Restore { .. })
                || !own.is_empty() && restoring.contains(&own);
            let list = if is_restoration {
                &mut likely
            } else {
                &mut others
            };
            list.push(vec![change]);
            known.push(own);
        }
        let mut each = [likely, others].concat();
        // A change of a flag or a policy also rewrites the rules of a dumped node. The restart alone
        // shows whether the change matters.
        let nodes = self.request.prepared.replaced_nodes();
        each.extend(nodes.map(|node| {
            let node = node.to_owned();
            vec![ProposedChange::RestartProxy { node }]
        }));
        self.try_all(each).await
    }

    /// Tries the changes that rewrite the state of a node.
    pub(super) async fn try_rewrites(&mut self) -> Result<(), RunError> {
        let changes = self.rewrites.iter().map(|change| vec![change.clone()]);
        self.try_all(changes.collect()).await
    }
}

/// Whether a connection does not have the wanted result.
fn is_failure(outcome: &Outcome, stage: usize, journey: &Journey) -> bool {
    let key = (stage, journey.probe.clone(), journey.number);
    outcome.failures.contains(&key)
}

fn without_duplicates(changes: Vec<ProposedChange>) -> Vec<ProposedChange> {
    let mut kept: Vec<ProposedChange> = Vec::new();
    for change in changes {
        if !kept.contains(&change) {
            kept.push(change);
        }
    }
    kept
}
