//! Searches the fixes of one case: runs the case unchanged, then with each change, then with pairs
//! of changes.

use futures_util::StreamExt as _;
use futures_util::stream::FuturesOrdered;

use super::Asked;
use super::copies::{Copies, Reached};
use super::made::{Made, compared, is_wrong, made, often, smallest, worse_of};
use crate::bisect::Difference;
use crate::run::bisect::{Task, find};
use crate::why::{Came, Change, Cure, Finding, Told, Tried, Unchangeable, Wrong, candidates};
use svclab_journey::journey::Journey;
use svclab_judge::conclusion;
use svclab_model::evidence::Evidence;
use svclab_model::plan::Plan;
use svclab_planner::build::restart;
use svclab_runner::kernel::KernelError;
use svclab_runner::results::RunError;
use svclab_runner::run::execute::trouble;
use svclab_runner::run::pool::Pool;
use svclab_runner::run::prepare::{Prepared, prepare};
use svclab_runner::run::refit::as_far_as_taken;
use svclab_scenario::Case;
use svclab_scenario::count::Count;
use svclab_scenario::expectation::ProbeExpectation;

/// Maximum number of pairs of changes per case.
const MOST: usize = 400;

/// State of the search of one case.
pub struct Search<'a> {
    asked: &'a Asked<'a>,
    pool: &'a Pool,
    copies: &'a Copies,
    /// Counts without any change.
    before: Made,
    /// Number of runs in which a fix has to succeed.
    often: u32,
    /// Changes to try.
    candidates: Vec<Change>,
    /// Results so far.
    pub finding: Finding,
}

impl<'a> Search<'a> {
    /// Runs the case unchanged, with all evidence recorded.
    pub async fn begin(
        asked: &'a Asked<'a>,
        pool: &'a Pool,
        copies: &'a Copies,
    ) -> Result<Self, RunError> {
        let told = |error: KernelError| trouble(&error);
        let agent = pool.agent().await.map_err(told)?;
        let kernel = agent.surroundings().kernel.clone();
        let case = &asked.prepared.case.id;
        let ran = ran(copies, pool, &asked.prepared, true, false);
        let (evidence, _) = ran.await.map_err(told)?;
        let before = made(&evidence);
        let mut search = Self {
            finding: Finding {
                case: case.clone(),
                kernel,
                wrong: Vec::new(),
                unasked: Vec::new(),
                tried: Vec::new(),
                runs: 1,
            },
            often: often(&before),
            asked,
            pool,
            copies,
            before,
            candidates: Vec::new(),
        };
        search.finding.wrong = search.wrong(&evidence);
        let unmade = search.before.iter().filter(|(_, (made, of))| made < of);
        let unasked = unmade.filter(|(probe, _)| !search.is_in_question(probe));
        search.finding.unasked = unasked.map(|(probe, _)| probe.clone()).collect();
        search.candidates = search.worth_trying(&asked.prepared, &evidence);
        Ok(search)
    }

    /// Returns the examined probes with failing connections, each with the explanation of one
    /// failure.
    fn wrong(&self, evidence: &Evidence) -> Vec<Wrong> {
        let prepared = &self.asked.prepared;
        let (journeys, books) = (prepared.journeys(evidence), prepared.books());
        let mut wrong = Vec::new();
        for (probe, (connected, of)) in &self.before {
            if connected == of || !self.is_in_question(probe) {
                continue;
            }
            let mut all = journeys.iter().zip(&books).flat_map(|(stage, book)| {
                let own = stage.iter().filter(|journey| journey.probe == *probe);
                own.filter(|own| is_wrong(own))
                    .map(move |journey| (journey, book))
            });
            let told = all.next().map(|(one, book)| conclusion(one, book));
            let after = prepared.plan.step_of(probe);
            let after = after.and_then(|at| prepared.steps.get(at));
            wrong.push(Wrong {
                probe: probe.clone(),
                after: after.map(|step| step.name.clone()),
                connected: *connected,
                of: *of,
                told: told.unwrap_or_default(),
                cures: Vec::new(),
            });
        }
        wrong
    }

    /// Whether failures of a probe are examined. If a probe was requested, only this one is. Else
    /// these are the probes that the lab expects to succeed in some case, and those without
    /// expectations or with any outcome allowed.
    fn is_in_question(&self, probe: &str) -> bool {
        if let Some(asked) = &self.asked.probe {
            return asked == probe;
        }
        let rows = self.asked.prepared.case.spec.expect.iter();
        let mut said = rows
            .filter_map(|row| row.expected.probes.get(probe))
            .peekable();
        let is_made = |expected: &ProbeExpectation| {
            let counts = [expected.connected, expected.answered];
            let mut counts = counts.into_iter().flatten();
            expected.any || counts.any(|count| count != Count::exactly(0))
        };
        said.peek().is_none() || said.any(is_made)
    }

    /// Returns the changes to try, from the stage before the steps and after each step.
    fn worth_trying(&self, prepared: &Prepared, evidence: &Evidence) -> Vec<Change> {
        let later = prepared.steps.iter();
        let later = later.map(|step| (&step.cluster, &step.plan));
        let stages = std::iter::once((&prepared.cluster, &prepared.plan)).chain(later);
        let journeys = prepared.journeys(evidence);
        let mut all: Vec<Change> = Vec::new();
        for (at, ((cluster, plan), journeys)) in stages.zip(&journeys).enumerate() {
            let wrong: Vec<&Journey> = journeys
                .iter()
                .filter(|journey| is_wrong(journey))
                .filter(|journey| self.is_in_question(&journey.probe))
                .collect();
            if wrong.is_empty() {
                continue;
            }
            let after = at.checked_sub(1).and_then(|at| prepared.case.after(at));
            let case = after.as_ref().unwrap_or(&prepared.case);
            all.extend(candidates(case, cluster, plan, &wrong));
            // The origin of the rules on a dumped node is unknown.
            let dumped = prepared.accounts.iter().map(|account| account.node.clone());
            all.extend(dumped.map(|node| Change::Restart { node }));
        }
        let mut each: Vec<Change> = Vec::new();
        for change in all {
            if !each.contains(&change) {
                each.push(change);
            }
        }
        each.sort_by_key(Change::level);
        each
    }

    /// Tries each candidate alone.
    pub async fn singly(&mut self) -> Result<(), RunError> {
        let each = self.candidates.iter().map(|change| vec![change.clone()]);
        self.all(each.collect()).await
    }

    /// Tries candidates in pairs: each candidate that can be applied, with the changes that are
    /// worth trying after it.
    pub async fn in_pairs(&mut self) -> Result<(), RunError> {
        let mut pairs: Vec<Vec<Change>> = Vec::new();
        for first in self.candidates.clone() {
            let Ok(changed) = self.changed(std::slice::from_ref(&first)) else {
                continue;
            };
            let Ok((evidence, _)) = self.run(&changed, true, false).await else {
                continue;
            };
            self.finding.runs += 1;
            let mut next = self.worth_trying(&changed, &evidence);
            next.extend(self.candidates.clone());
            for second in next {
                let pair = vec![first.clone(), second.clone()];
                let turned = vec![second, first.clone()];
                if pair[0] != pair[1] && !pairs.contains(&pair) && !pairs.contains(&turned) {
                    pairs.push(pair);
                }
            }
        }
        pairs.sort_by_key(|pair| pair.iter().map(Change::level).max());
        pairs.truncate(MOST);
        self.all(pairs).await
    }

    /// Tries each of these sets of changes and records the fixes.
    async fn all(&mut self, each: Vec<Vec<Change>>) -> Result<(), RunError> {
        let here = &*self;
        let came = each.into_iter().map(|changes| async move {
            let came = here.came(&changes).await;
            (changes, came)
        });
        let came: FuturesOrdered<_> = came.collect();
        let came: Vec<_> = came.collect().await;
        for (changes, came) in came {
            let (came, runs) = came.map_err(|error| trouble(&error))?;
            self.finding.runs += runs;
            let told: Vec<Told> = changes.iter().map(Told::from).collect();
            for wrong in &mut self.finding.wrong {
                if came.cures(&wrong.probe) {
                    wrong.cures.push(Cure {
                        changes: told.clone(),
                        matters: Vec::new(),
                    });
                }
            }
            self.finding.tried.push(Tried {
                changes: told,
                came,
            });
        }
        for wrong in &mut self.finding.wrong {
            smallest(&mut wrong.cures);
        }
        Ok(())
    }

    /// Narrows down fixes that rewrite a whole set of rules to the differences that are needed. A
    /// fix stays as it is if narrowing fails.
    pub async fn narrow(&mut self) -> Result<(), RunError> {
        let prepared = &self.asked.prepared;
        if !prepared.plan.steps.is_empty() {
            return Ok(());
        }
        let mut known: Vec<((String, Change), Vec<Difference>)> = Vec::new();
        for wrong in &self.finding.wrong {
            for cure in &wrong.cures {
                let [told] = cure.changes.as_slice() else {
                    continue;
                };
                let change = &told.change;
                if !change.writes_much() {
                    continue;
                }
                let Ok(changed) = self.changed(std::slice::from_ref(change)) else {
                    continue;
                };
                let agent = self.pool.agent().await.map_err(|error| trouble(&error))?;
                let task = Task {
                    good: changed.plan,
                    bad: prepared.plan.clone(),
                    good_name: told.words.clone(),
                    bad_name: self.finding.case.clone(),
                    over: None,
                    probe: Some(wrong.probe.clone()),
                };
                // Other labs of the pool use the remaining memory.
                let labs = 1;
                if let Ok(found) = find(&task, &agent, labs, &mut |_, _| ()).await {
                    let matters = found.cures.into_iter().flatten().collect();
                    known.push(((wrong.probe.clone(), change.clone()), matters));
                }
            }
        }
        for wrong in &mut self.finding.wrong {
            for cure in &mut wrong.cures {
                let own = cure.changes.first().map(|told| &told.change);
                let mut known = known.iter();
                let found =
                    known.find(|((probe, change), _)| *probe == wrong.probe && Some(change) == own);
                if let Some((_, matters)) = found {
                    cure.matters.clone_from(matters);
                }
            }
        }
        Ok(())
    }

    /// Tries changes. Returns their result and the number of runs. A fix that works in a changed
    /// copy also has to work in a newly built lab.
    async fn came(&self, changes: &[Change]) -> Result<(Came, u32), KernelError> {
        let copy = match self.changed(changes) {
            Ok(copy) => copy,
            Err(why) => return Ok((Came::Refused { why }, 0)),
        };
        let (mut runs, mut built) = (0, 0);
        let mut worst: Option<Came> = None;
        while runs < self.often || built == 0 {
            let (evidence, reached) = match self.run(&copy, false, runs > 0).await {
                // An error of the kernel in a changed lab is caused by the change.
                Err(KernelError::Failed(failure)) => {
                    let why = failure.message;
                    return Ok((Came::Refused { why }, runs));
                }
                ran => ran?,
            };
            runs += 1;
            built += u32::from(reached == Reached::Built);
            let now = compared(&self.before, &self.finding.wrong, &made(&evidence));
            let came = worse_of(worst, now);
            let hopeless = !self
                .finding
                .wrong
                .iter()
                .any(|wrong| came.cures(&wrong.probe));
            worst = Some(came);
            if hopeless {
                break;
            }
        }
        let unseen = || Came::Refused {
            why: "nothing was run".to_owned(),
        };
        Ok((worst.unwrap_or_else(unseen), runs))
    }

    async fn run(
        &self,
        prepared: &Prepared,
        watched: bool,
        afresh: bool,
    ) -> Result<(Evidence, Reached), KernelError> {
        ran(self.copies, self.pool, prepared, watched, afresh).await
    }

    /// Applies changes to the case.
    fn changed(&self, changes: &[Change]) -> Result<Prepared, String> {
        let mut case = self.asked.prepared.case.clone();
        let mut said = false;
        for change in changes {
            said |= in_all_stages(change, &mut case).map_err(|why| why.to_string())?;
        }
        let mut prepared = if said {
            let again = prepare(self.asked.lab, &case, self.asked.wishes.clone());
            again.map_err(|wrong| {
                let told = wrong.iter().map(|diagnostic| diagnostic.message.clone());
                told.collect::<Vec<_>>().join("; ")
            })?
        } else {
            self.asked.prepared.clone()
        };
        // A dump contains the rules that kube-proxy wrote before the change.
        let dumped: Vec<String> = prepared
            .accounts
            .iter()
            .map(|account| account.node.clone())
            .collect();
        for node in dumped {
            if changes.iter().any(|change| change.restarts(&node)) {
                restart(&mut prepared.plan, &prepared.cluster, &node)
                    .map_err(|why| why.to_string())?;
            }
        }
        for change in changes {
            change
                .in_plan(&mut prepared.plan)
                .map_err(|why| why.to_string())?;
        }
        Ok(prepared)
    }
}

/// Applies a change to a case before its steps and after each step. Returns whether the change
/// concerns the lab document. One stage where the change applies is enough.
fn in_all_stages(change: &Change, case: &mut Case) -> Result<bool, Unchangeable> {
    let mut made = change.in_case(case);
    for at in 0..case.steps.len() {
        let Some(mut after) = case.after(at) else {
            continue;
        };
        let here = change.in_case(&mut after);
        if here == Ok(true) {
            let step = &mut case.steps[at];
            (step.spec, step.objects) = (after.spec, after.objects);
            made = here;
        }
    }
    made
}

/// Runs a case. If the kernel refuses objects of a dump that may be omitted, the case runs again
/// without them.
async fn ran(
    copies: &Copies,
    pool: &Pool,
    prepared: &Prepared,
    watched: bool,
    afresh: bool,
) -> Result<(Evidence, Reached), KernelError> {
    let id = &prepared.case.id;
    let plan = settled(prepared);
    let error = match copies.run(pool, id, &plan, watched, afresh).await {
        Err(error) if !prepared.accounts.is_empty() => error,
        ran => return ran,
    };
    let agent = pool.agent().await?;
    match as_far_as_taken(prepared, &error, &agent).await {
        Some(Ok(fitting)) => {
            let plan = settled(&fitting);
            copies.run(pool, id, &plan, watched, afresh).await
        }
        _ => Err(error),
    }
}

/// Returns the plan of a case, with timeouts reported as soon as they are proven. Probes for which
/// the lab sets a maximum wait are excluded, because a later answer does not count. Plans with a
/// real kube-proxy are excluded, because they do not contain its future changes.
fn settled(prepared: &Prepared) -> Plan {
    let mut plan = prepared.plan.clone();
    if !plan.proxies.is_empty() {
        return plan;
    }
    let own = &prepared.case.spec;
    let says = |name: &str| {
        let probe = own.probe(name);
        probe.is_some_and(|probe| probe.max_wait.is_some() || probe.across.is_some())
    };
    let of_steps = plan.steps.iter_mut().flat_map(|step| &mut step.probes);
    for probe in plan.probes.iter_mut().chain(of_steps) {
        probe.settle = !says(&probe.name);
    }
    plan
}
