//! Compares the evidence of a case with its expectations. Output: a [`Judgement`].

pub(crate) mod claim;
pub(crate) mod doubt;
mod names;
mod packets;
pub(crate) mod probe;
mod state;
pub(crate) mod step;
pub(crate) mod traffic_shift;

use std::collections::BTreeSet;
use std::net::IpAddr;

use crate::address_book::AddressBook;
use crate::check::Check;
use crate::judge::claim::{ClaimDifference, ClaimOutcome, ClaimVerdict};
use crate::judge::doubt::Doubt;
use crate::judge::probe::ProbeOutcome;
use crate::judge::step::StepOutcome;
use svclab_model::evidence::Evidence;
use svclab_model::plan::Plan;
use svclab_planner::cluster::{Cluster, NameError, Problem, place};
use svclab_scenario::expectation::{ClaimRef, Expected, ProbeExpectation, Row};
use svclab_scenario::lab::{LabSpec, Probe};

/// Result of a case.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Judgement {
    /// Results of all probes, with or without expectations.
    pub probes: Vec<ProbeOutcome>,
    /// Results of expectations about packets on interfaces.
    pub wire: Vec<Check>,
    /// Results of expectations about counters.
    pub counters: Vec<Check>,
    /// Results of expectations about rules and chains.
    pub rules: Vec<Check>,
    /// Results of expectations about sets, virtual servers and interfaces.
    pub kernel_state: Vec<Check>,
    /// Traffic shifts after each step.
    pub steps: Vec<StepOutcome>,
    /// Results for claims.
    pub claims: Vec<ClaimOutcome>,
    /// Failed expectation that a busy machine may explain; `None` if there is none.
    pub doubt: Option<Doubt>,
}

impl Judgement {
    /// Whether all expectations hold.
    #[must_use]
    pub fn holds(&self) -> bool {
        self.probes.iter().all(|probe| probe.holds)
            && self.checks().all(Check::holds)
            && self.steps.iter().all(StepOutcome::holds)
    }

    /// Returns all checks except those of probes.
    pub fn checks(&self) -> impl Iterator<Item = &Check> {
        self.wire
            .iter()
            .chain(&self.counters)
            .chain(&self.rules)
            .chain(&self.kernel_state)
    }
}

/// Cluster and plan at one stage of a case.
#[derive(Debug, Clone, Copy)]
pub struct JudgedStage<'a> {
    /// Cluster at this stage.
    pub cluster: &'a Cluster,
    /// Plan of the namespaces and probes at this stage.
    pub plan: &'a Plan,
}

/// Input of a judge: one case.
#[derive(Debug, Clone)]
pub struct JudgedCase<'a> {
    /// Stage 0, with the plan that was run.
    pub initial: JudgedStage<'a>,
    /// Stages after each step.
    pub later_stages: Vec<JudgedStage<'a>>,
    /// Lab document.
    pub spec: &'a LabSpec,
    /// Expectations of the case.
    pub row: &'a Row,
    /// Index of the expectations in the lab's list, from 0.
    pub row_index: usize,
}

/// Judge of one case, with all names in its expectations resolved.
#[derive(Debug)]
pub struct Judge<'a> {
    address_book: AddressBook<'a>,
    /// Address books after each step.
    later_address_books: Vec<AddressBook<'a>>,
    case: JudgedCase<'a>,
    plan: &'a Plan,
    row: &'a Row,
}

impl<'a> Judge<'a> {
    /// Creates the judge of one case.
    ///
    /// # Errors
    ///
    /// Returns a problem for each unknown name in the expectations.
    pub fn new(subject: JudgedCase<'a>) -> Result<Self, Vec<Problem>> {
        let address_book = |moment: &JudgedStage<'a>| AddressBook::new(moment.cluster, moment.plan);
        let (row, row_at) = (subject.row, subject.row_index);
        let judge = Self {
            address_book: address_book(&subject.initial),
            later_address_books: subject.later_stages.iter().map(address_book).collect(),
            plan: subject.initial.plan,
            row,
            case: subject,
        };
        let mut problems = Vec::new();
        judge.check_names(
            &row.expected,
            &place!["spec", "expect", row_at],
            &mut problems,
        );
        for (index, claim) in row.claims.iter().enumerate() {
            if let Some(says) = &claim.says {
                judge.check_names(
                    says,
                    &place!["spec", "expect", row_at, "claims", index, "says"],
                    &mut problems,
                );
            }
        }
        if problems.is_empty() {
            Ok(judge)
        } else {
            Err(problems)
        }
    }

    /// Returns the plans of all stages.
    fn stage_plans(&self) -> impl Iterator<Item = &'a Plan> {
        let after = self.case.later_stages.iter().map(|moment| moment.plan);
        std::iter::once(self.plan).chain(after)
    }

    /// Returns the addresses that a name has at any stage.
    fn addresses(&self, name: &str) -> Result<BTreeSet<IpAddr>, NameError> {
        let mut addresses = self.address_book.addresses(name);
        for book in &self.later_address_books {
            match (&mut addresses, book.addresses(name)) {
                (Ok(known), Ok(more)) => known.extend(more),
                (Err(_), Ok(more)) => addresses = Ok(more),
                (_, Err(_)) => {}
            }
        }
        addresses
    }

    /// Returns the index of the step after which a probe runs, or in which a probe across steps
    /// ends. `None` for a probe that ends before the first step.
    fn step_index(&self, name: &str, probe: &Probe) -> Option<usize> {
        let mut steps = self.case.spec.steps.iter();
        match &probe.across {
            Some(across) => steps.position(|step| step.name == *across),
            None => steps.position(|step| step.probes.contains_key(name)),
        }
    }

    /// Compares all evidence of the case with its expectations.
    #[must_use]
    pub fn judge(&self, evidence: &Evidence) -> Judgement {
        let mut judgement = self.check(&self.row.expected, evidence);
        judgement.claims = self.check_claims(evidence, judgement.holds());
        judgement.doubt = Doubt::find(&self.row.expected, &judgement, evidence);
        judgement
    }

    /// Returns the traffic shifts after each step, without comparing them with expectations.
    #[must_use]
    pub fn traffic_shifts(&self, evidence: &Evidence) -> Vec<StepOutcome> {
        self.check_steps(&Expected::default(), evidence)
    }

    fn check_claims(&self, evidence: &Evidence, row_holds: bool) -> Vec<ClaimOutcome> {
        let check_claim = |claim: &ClaimRef| {
            let says = claim.says.as_ref().filter(|_| row_holds);
            let differences = says.map_or_else(Vec::new, |says| {
                ClaimDifference::from_judgement(self.check(says, evidence))
            });
            ClaimOutcome {
                id: claim.id.clone(),
                verdict: match differences.as_slice() {
                    _ if !row_holds => ClaimVerdict::Unsettled,
                    [] => ClaimVerdict::Confirmed,
                    _ => ClaimVerdict::Refuted,
                },
                part: claim.part.clone(),
                differences,
            }
        };
        self.row.claims.iter().map(check_claim).collect()
    }

    /// Compares the evidence with one set of expectations.
    fn check(&self, expected: &Expected, evidence: &Evidence) -> Judgement {
        let probes = self.case.spec.all_probes();
        let last = last_stage(evidence);
        let wire = expected.wire.iter();
        let counters = expected.counters.iter();
        let rules = expected.rules.iter();
        let chains = expected.chains.iter();
        Judgement {
            probes: probes
                .map(|(name, probe)| {
                    self.check_probe(name, probe, expected.probes.get(name), evidence)
                })
                .collect(),
            wire: wire
                .flat_map(|wire| self.check_packets(wire, evidence))
                .collect(),
            counters: counters
                .map(|counter| self.check_counter(counter, evidence))
                .collect(),
            rules: rules
                .map(|rule| self.check_rule(rule, last))
                .chain(chains.map(|chain| self.check_chain(chain, last)))
                .collect(),
            kernel_state: self.check_kernel_state(expected, last),
            steps: self.check_steps(expected, evidence),
            claims: Vec::new(),
            doubt: None,
        }
    }

    fn check_probe(
        &self,
        name: &str,
        probe: &Probe,
        expected: Option<&ProbeExpectation>,
        evidence: &Evidence,
    ) -> ProbeOutcome {
        let step = self.step_index(name, probe);
        let attempts = match step.map(|step| evidence.steps.get(step)) {
            None => evidence.attempts.as_slice(),
            Some(seen) => seen.map_or(&[][..], |seen| &seen.evidence.attempts),
        };
        let book = step
            .and_then(|step| self.later_address_books.get(step))
            .unwrap_or(&self.address_book);
        let (mut observed, sources) = probe::summarize(attempts, name, book);
        if expected.is_none_or(|expected| expected.source_port.is_none()) {
            observed.source_ports.clear();
        }
        let addresses_of = |names: Vec<&str>| -> Vec<BTreeSet<IpAddr>> {
            let names = names.into_iter();
            names
                .map(|name| self.addresses(name).unwrap_or_default())
                .collect()
        };
        let source_groups = expected
            .and_then(ProbeExpectation::sources)
            .map(addresses_of);
        let holds = expected.is_none_or(|expected| {
            probe::meets_expectation(expected, &observed, &sources, source_groups.as_deref())
        });
        let step = step.and_then(|step| self.case.spec.steps.get(step));
        ProbeOutcome {
            name: name.to_owned(),
            from: probe.from.clone(),
            to: probe.to.clone(),
            step: step.map(|step| step.name.clone()),
            expected: expected.cloned(),
            observed,
            holds,
        }
    }
}

/// Returns the evidence of the last stage, which has the final kernel state.
fn last_stage(evidence: &Evidence) -> &Evidence {
    evidence
        .steps
        .last()
        .map_or(evidence, |step| &step.evidence)
}
