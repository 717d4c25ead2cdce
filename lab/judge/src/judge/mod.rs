//! Compares the evidence of a case with its expectations. Output: a [`Judgement`].

pub(crate) mod claim;
pub(crate) mod doubt;
mod names;
mod packets;
pub(crate) mod probe;
pub(crate) mod stage;
mod state;
pub(crate) mod traffic_shift;

use std::collections::BTreeSet;
use std::net::IpAddr;

use crate::address_book::AddressBook;
use crate::check::Check;
use crate::judge::claim::{ClaimDifference, ClaimOutcome, ClaimVerdict};
use crate::judge::doubt::Doubt;
use crate::judge::probe::ProbeOutcome;
use crate::judge::stage::{StageOutcome, StepOutcome};
use svclab_model::evidence::{Evidence, StageEvidence};
use svclab_model::plan::Plan;
use svclab_planner::cluster::{Cluster, NameError, Problem, place};
use svclab_scenario::expectation::{ClaimRef, Expected, Row};
use svclab_scenario::lab::LabSpec;

/// Result of a case.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Judgement {
    /// Results of each stage.
    pub stages: Vec<StageOutcome>,
    /// Results of expectations about packets on interfaces.
    pub wire: Vec<Check>,
    /// Results of expectations about counters.
    pub counters: Vec<Check>,
    /// Results of expectations about rules and chains.
    pub rules: Vec<Check>,
    /// Results of expectations about sets, virtual servers and interfaces.
    pub kernel_state: Vec<Check>,
    /// Results for claims.
    pub claims: Vec<ClaimOutcome>,
    /// Failed expectation that a busy machine may explain; `None` if there is none.
    pub doubt: Option<Doubt>,
}

impl Judgement {
    /// Whether all expectations hold.
    #[must_use]
    pub fn holds(&self) -> bool {
        self.probes().all(|probe| probe.holds)
            && self.checks().all(Check::holds)
            && self.steps().all(StepOutcome::holds)
    }

    /// Returns the results of all probes, with or without expectations, in the order of the lab.
    pub fn probes(&self) -> impl Iterator<Item = &ProbeOutcome> {
        self.stages.iter().flat_map(|stage| &stage.probes)
    }

    /// Returns the results of the steps.
    pub fn steps(&self) -> impl Iterator<Item = &StepOutcome> {
        self.stages.iter().filter_map(|stage| stage.step.as_ref())
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
    /// Plan of the namespaces and servers at this stage.
    pub plan: &'a Plan,
}

/// Input of a judge: one case.
#[derive(Debug, Clone)]
pub struct JudgedCase<'a> {
    /// Plan that was run.
    pub plan: &'a Plan,
    /// Stages of the plan.
    pub stages: Vec<JudgedStage<'a>>,
    /// Lab document.
    pub spec: &'a LabSpec,
    /// Expectations of the case.
    pub row: &'a Row,
    /// Index of the expectations in the lab's list, from 0.
    pub row_index: usize,
    /// Nodes that dumps replace. They may lack interfaces and addresses that expectations name.
    pub replaced_nodes: Vec<&'a str>,
}

/// Judge of one case, with all names in its expectations resolved.
#[derive(Debug)]
pub struct Judge<'a> {
    case: JudgedCase<'a>,
    /// Address book of each stage.
    address_books: Vec<AddressBook<'a>>,
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
            address_books: subject.stages.iter().map(address_book).collect(),
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

    /// Returns the addresses that a name has at any stage.
    fn addresses(&self, name: &str) -> Result<BTreeSet<IpAddr>, NameError> {
        let by_stage = self.address_books.iter().map(|book| book.addresses(name));
        let merge = |addresses, more| match (addresses, more) {
            (Ok(known), Ok(more)) => Ok(&known | &more),
            (Err(_), Ok(more)) => Ok(more),
            (addresses, Err(_)) => addresses,
        };
        by_stage
            .reduce(merge)
            .unwrap_or_else(|| Ok(BTreeSet::new()))
    }

    /// Returns the namespace in which captures for a name run.
    fn namespace_of(&self, name: &str) -> String {
        let mut clusters = self.case.stages.iter().map(|stage| stage.cluster);
        let namespace = clusters.find_map(|cluster| cluster.source_namespace(name).ok());
        namespace.unwrap_or_else(|| name.to_owned())
    }

    /// Compares all evidence of the case with its expectations.
    #[must_use]
    pub fn judge(&self, evidence: &Evidence) -> Judgement {
        let row = self.case.row;
        let mut judgement = self.check(&row.expected, evidence);
        judgement.claims = self.check_claims(evidence, judgement.holds());
        let plans = self.case.stages.iter().map(|stage| stage.plan);
        judgement.doubt = Doubt::find(&row.expected, &judgement, evidence, plans);
        judgement
    }

    /// Returns the traffic shifts after each step, without comparing them with expectations.
    #[must_use]
    pub fn traffic_shifts(&self, evidence: &Evidence) -> Vec<StepOutcome> {
        let stages = self.check_stages(&Expected::default(), evidence);
        stages.into_iter().filter_map(|stage| stage.step).collect()
    }

    fn check_claims(&self, evidence: &Evidence, row_holds: bool) -> Vec<ClaimOutcome> {
        let check_claim = |claim: &ClaimRef| {
            let says = claim.says.as_ref().filter(|_| row_holds);
            let judged = says.map(|says| self.check(says, evidence));
            let failed = judged.as_ref().map(ClaimDifference::from_judgement);
            let failed = failed.unwrap_or_default();
            let verdict = match failed.as_slice() {
                _ if !row_holds => ClaimVerdict::Unsettled,
                [] => ClaimVerdict::Confirmed,
                _ => ClaimVerdict::Refuted,
            };
            let incomplete = judged.as_ref().map(ClaimDifference::incomplete);
            ClaimOutcome {
                id: claim.id.clone(),
                verdict,
                part: claim.part.clone(),
                differences: match verdict {
                    ClaimVerdict::Confirmed => incomplete.unwrap_or_default(),
                    _ => failed,
                },
            }
        };
        self.case.row.claims.iter().map(check_claim).collect()
    }

    /// Compares the evidence with one set of expectations.
    fn check(&self, expected: &Expected, evidence: &Evidence) -> Judgement {
        let empty = StageEvidence::default();
        let last = evidence.stages.last().unwrap_or(&empty);
        let wire = expected.wire.iter();
        let counters = expected.counters.iter();
        let rules = expected.rules.iter();
        let chains = expected.chains.iter();
        Judgement {
            stages: self.check_stages(expected, evidence),
            wire: wire
                .flat_map(|wire| self.check_packets(wire, evidence))
                .collect(),
            counters: counters
                .map(|counter| self.check_counter(counter, evidence))
                .collect(),
            rules: rules
                .map(|rule| self.check_rule(rule, evidence))
                .chain(chains.map(|chain| self.check_chain(chain, last)))
                .collect(),
            kernel_state: self.check_kernel_state(expected, last),
            claims: Vec::new(),
            doubt: None,
        }
    }
}
