//! Runs both sides of a case and compares their evidence.

use std::collections::{BTreeMap, BTreeSet};

use indexmap::{IndexMap, IndexSet};

use super::clients::{as_original, with_clients};
use super::dependence::Dependence;
use super::document::{FailedCase, FlowId, FlowShift, RulesDiffer, SideName};
use super::matches::{OneSidedMatches, compare_matches};
use super::pairs::CasePair;
use super::rule_differences::{differing_rules, new_differences};
use crate::bench::probe_new_lab;
use crate::trial::{Tally, tallies};
use svclab_journey::journey::Journey;
use svclab_judge::StepOutcome;
use svclab_model::evidence::Evidence;
use svclab_model::plan::EvidenceRequest;
use svclab_runner::kernel::Agent;
use svclab_runner::results::flows::Reason;
use svclab_runner::run::Prepared;
use svclab_runner::run::execute::without_settling;
use svclab_runner::run::to_run_error;

/// Number of connections per run. They show whether a client stays with its endpoint, and whether a
/// flow has several endpoints. With two endpoints, all connections have the same endpoint in 1 of
/// 32,768 runs, and in 1 of 2^31 on both sides.
pub(super) const AFFINITY_CONNECTIONS: u32 = 16;

/// Maximum number of clients in one lab; each is a namespace.
const MAX_CLIENTS: usize = 200;

/// Maximum number of connections for shares in one run.
const MAX_CONNECTIONS_PER_RUN: u64 = 2048;

/// Outcomes of each probe in one run, on both sides.
pub(super) type Runs = IndexMap<String, [Tally; 2]>;

/// Number of missing draws, by probe.
pub(super) type MissingDraws = BTreeMap<String, u64>;

/// Case whose sides run on an agent.
pub(super) struct CaseComparison<'p> {
    pair: &'p CasePair,
    agent: Agent,
}

impl<'p> CaseComparison<'p> {
    pub(super) fn new(pair: &'p CasePair, agent: Agent) -> Self {
        Self { pair, agent }
    }

    /// Runs both sides with enough connections to detect session affinity and flows with several
    /// endpoints.
    pub(super) async fn run_once(&self) -> Result<[Evidence; 2], FailedCase> {
        let choosing = self.pair.choosing_probes();
        self.run_both(|prepared| raise_connections(prepared, &choosing, AFFINITY_CONNECTIONS))
            .await
    }

    /// Runs both sides `runs` times, each time in a new lab, with at least `connections` connections
    /// of some probes. Returns the outcomes of these probes.
    pub(super) async fn draw(
        &self,
        suspects: &BTreeSet<String>,
        connections: u32,
        runs: u64,
    ) -> Result<Vec<Runs>, FailedCase> {
        let change = |prepared| with_more_connections(prepared, suspects, connections);
        let mut results = Vec::new();
        for _ in 0..runs {
            let mut run = self.tallies(&self.run_both(change).await?);
            run.retain(|probe, _| suspects.contains(probe));
            results.push(run);
        }
        Ok(results)
    }

    /// Runs both sides with up to `clients` copies of the pod that sends a probe. Each copy is one
    /// draw. Returns `None` if the service does not choose by client alone, or if the sender is not
    /// a pod.
    pub(super) async fn draw_clients(
        &self,
        probe: &str,
        clients: usize,
        connections: u32,
    ) -> Result<Option<Vec<Runs>>, FailedCase> {
        if self.pair.dependence(probe) != Dependence::Affinity {
            return Ok(None);
        }
        let copied = |prepared| with_clients(prepared, probe, clients, connections);
        let both = copied(&self.pair.against).zip(copied(&self.pair.new));
        let Some((against, new)) = both else {
            return Ok(None);
        };
        let copied = CasePair { against, new };
        let comparison = CaseComparison::new(&copied, self.agent.clone());
        let both = comparison.run_both(|prepared| prepared).await?;
        let tallies = comparison.tallies(&both).into_values();
        let draws = tallies.map(|both| {
            let both = both.each_ref().map(as_original);
            Runs::from([(probe.to_owned(), both)])
        });
        Ok(Some(draws.collect()))
    }

    /// Draws clients for the shares of services with session affinity.
    pub(super) async fn draw_client_shares(
        &self,
        missing: &MissingDraws,
    ) -> Result<Vec<Runs>, FailedCase> {
        let mut results = Vec::new();
        for (probe, missing_draws) in missing {
            let mut left = usize::try_from(*missing_draws).unwrap_or(usize::MAX);
            while left > 0 {
                let drawn = self.draw_clients(probe, left.min(MAX_CLIENTS), 1).await?;
                let drawn = drawn.unwrap_or_default();
                if drawn.is_empty() {
                    break;
                }
                left = left.saturating_sub(drawn.len());
                results.extend(drawn);
            }
        }
        Ok(results)
    }

    /// Draws the missing connections of each flow for the shares of services.
    pub(super) async fn draw_shares(
        &self,
        missing: &MissingDraws,
    ) -> Result<Vec<Runs>, FailedCase> {
        // Limits the number of connections per run.
        let flows = u64::try_from(missing.len()).unwrap_or(u64::MAX);
        let max_missing = missing.values().copied().max().unwrap_or(0);
        let connections = max_missing.saturating_mul(flows);
        let runs = connections.div_ceil(MAX_CONNECTIONS_PER_RUN);
        let change = |prepared| only_missing(prepared, missing, runs);
        let [against, new] = self.repeat(change, runs).await?;
        let runs = against.into_iter().zip(new);
        let tallies = runs.map(|(against, new)| self.tallies(&[against, new]));
        Ok(tallies.collect())
    }

    /// Builds each side once, with the same change, and runs its probes several times.
    async fn repeat(
        &self,
        change: impl Fn(Prepared) -> Prepared,
        runs: u64,
    ) -> Result<[Vec<Evidence>; 2], FailedCase> {
        let probe = async |side, prepared: &Prepared| {
            let plan = change(prepared.clone()).plan;
            let evidence = probe_new_lab(&self.agent, &plan, runs).await;
            evidence.map_err(|error| FailedCase {
                case: prepared.case.id.clone(),
                side,
                error: to_run_error(&error),
            })
        };
        Ok([
            probe(SideName::Against, &self.pair.against).await?,
            probe(SideName::New, &self.pair.new).await?,
        ])
    }

    /// Runs both sides once, with the same change.
    async fn run_both(
        &self,
        change: impl Fn(Prepared) -> Prepared,
    ) -> Result<[Evidence; 2], FailedCase> {
        let both = self.repeat(change, 1).await?;
        Ok(both.map(|mut runs| runs.pop().unwrap_or_default()))
    }

    /// Returns the outcomes of each probe on both sides.
    pub(super) fn tallies(&self, [against, new]: &[Evidence; 2]) -> Runs {
        let count =
            |prepared: &Prepared, evidence| tallies(&prepared.plan, evidence, prepared.books());
        let mut new = count(&self.pair.new, new);
        let against = count(&self.pair.against, against).into_iter();
        let both = against.filter_map(|(probe, tally)| {
            let other = new.swap_remove(&probe)?;
            Some((probe, [tally, other]))
        });
        both.collect()
    }

    /// Returns the rules that matched packets of flows on one side only. For flows that were open
    /// across a step, only packets after the step count.
    pub(super) async fn one_sided_matches(
        &self,
        suspects: &BTreeSet<String>,
    ) -> Result<BTreeMap<String, OneSidedMatches>, FailedCase> {
        if suspects.is_empty() {
            return Ok(BTreeMap::new());
        }
        let with_evidence = |prepared: Prepared| {
            let prepared = with_more_connections(prepared, suspects, AFFINITY_CONNECTIONS);
            let mut prepared = without_settling(&prepared);
            prepared.plan.evidence = EvidenceRequest::everything(&prepared.plan);
            for stage in &mut prepared.plan.stages {
                // Other probes are not needed.
                stage.probes.retain(|probe| suspects.contains(&probe.name));
            }
            for probe in prepared.plan.probes_mut() {
                probe.after = None;
            }
            prepared
        };
        let [against, new] = self.run_both(with_evidence).await?;
        let against = with_evidence(self.pair.against.clone()).journeys(&against);
        let new = with_evidence(self.pair.new.clone()).journeys(&new);
        let matches = suspects.iter().map(|probe| {
            let stage = self.pair.new.plan.stage_of(probe).unwrap_or(0);
            let [against, new] = [&against, &new]
                .map(|side: &Vec<Vec<Journey>>| side.get(stage).map_or(&[][..], Vec::as_slice));
            (probe.clone(), compare_matches(probe, against, new))
        });
        Ok(matches.collect())
    }

    /// Returns the flow of a probe.
    pub(super) fn flow(&self, name: &str) -> FlowId {
        let prepared = &self.pair.new;
        let probe = prepared.case.spec.probe(name);
        let stage = prepared.plan.stage_of(name);
        let step = stage.and_then(|stage| prepared.step_name(stage));
        FlowId {
            case: prepared.case.id.clone(),
            kernel: self.agent.environment().kernel.clone(),
            step: step.map(str::to_owned),
            probe: name.to_owned(),
            from: probe.map(|probe| probe.from.clone()).unwrap_or_default(),
            to: probe.map(|probe| probe.to.clone()).unwrap_or_default(),
        }
    }

    /// Returns the reason that the lab states for the result of a flow.
    pub(super) fn reason(&self, name: &str) -> Option<Reason> {
        let case = &self.pair.new.case;
        let row = *case.flows.get(name)?;
        let row = case.spec.flows.get(name)?.expect.get(row)?;
        Some(Reason {
            because: row.because.clone()?,
            source: row.source.clone(),
        })
    }

    /// Returns the differences of rules in the first stage, and the new differences in each later
    /// stage.
    pub(super) fn rule_differences(&self, [against, new]: &[Evidence; 2]) -> Vec<RulesDiffer> {
        let mut differing = Vec::new();
        for node in &self.pair.new.plan.evidence.rules {
            let mut previous = Vec::new();
            for (against, new) in against.stages.iter().zip(&new.stages) {
                let now = differing_rules(node, against, new);
                let differences = new_differences(&previous, now.clone());
                previous = now;
                if !differences.is_empty() {
                    differing.push(RulesDiffer {
                        case: self.pair.new.case.id.clone(),
                        step: against.step.as_ref().map(|step| step.name.clone()),
                        node: node.clone(),
                        differences,
                    });
                }
            }
        }
        differing
    }

    /// Returns the times at which traffic shifted after each step.
    pub(super) fn traffic_shifts(&self, [against, new]: &[Evidence; 2]) -> Vec<FlowShift> {
        let against = case_shifts(&self.pair.against, against);
        let new = case_shifts(&self.pair.new, new);
        let shift_us = |outcome: &StepOutcome, probe: &str| {
            let mut shifts = outcome.shifts.iter();
            Some(shifts.find(|shift| shift.probe == probe)?.delay_us)
        };
        let mut shifts = Vec::new();
        for (against, new) in against.iter().zip(&new) {
            let both = against.shifts.iter().chain(&new.shifts);
            let probes: IndexSet<&str> = both.map(|shift| shift.probe.as_str()).collect();
            shifts.extend(probes.into_iter().map(|probe| FlowShift {
                case: self.pair.new.case.id.clone(),
                step: new.name.clone(),
                probe: probe.to_owned(),
                against_us: shift_us(against, probe),
                new_us: shift_us(new, probe),
            }));
        }
        shifts
    }
}

/// Returns the case up to the last stage of the given probes, with at least `connections`
/// connections of these probes.
fn with_more_connections(
    mut prepared: Prepared,
    names: &BTreeSet<String>,
    connections: u32,
) -> Prepared {
    let stages = names
        .iter()
        .filter_map(|probe| prepared.plan.stage_of(probe));
    let last = stages.max().unwrap_or(0);
    prepared.plan.truncate_stages(last + 1);
    raise_connections(prepared, names, connections)
}

/// Returns the case with at least `connections` connections of some probes.
fn raise_connections(
    mut prepared: Prepared,
    names: &BTreeSet<String>,
    connections: u32,
) -> Prepared {
    for probe in prepared.plan.probes_mut() {
        if names.contains(&probe.name) {
            probe.connections = probe.connections.max(connections);
        }
    }
    prepared
}

/// Returns the first stage of the case with only these probes and without evidence request. Each of
/// `runs` runs makes its part of the missing connections.
fn only_missing(mut prepared: Prepared, missing: &MissingDraws, runs: u64) -> Prepared {
    let plan = &mut prepared.plan;
    plan.truncate_stages(1);
    plan.evidence = EvidenceRequest::default();
    for stage in &mut plan.stages {
        stage
            .probes
            .retain(|probe| missing.contains_key(&probe.name));
    }
    for probe in plan.probes_mut() {
        let connections = missing[&probe.name].div_ceil(runs.max(1));
        probe.connections = u32::try_from(connections).unwrap_or(u32::MAX);
        probe.after = None;
        probe.settle = false;
    }
    prepared
}

/// Returns the traffic shifts after a case's steps.
fn case_shifts(prepared: &Prepared, evidence: &Evidence) -> Vec<StepOutcome> {
    // All names were resolved when the case was prepared.
    let judge = prepared.judge();
    judge.map_or_else(|_| Vec::new(), |judge| judge.traffic_shifts(evidence))
}
