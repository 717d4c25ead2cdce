//! Builds the result of a case from its judgement and evidence.

use std::borrow::Cow;
use std::sync::Arc;

use super::case_evidence::CaseEvidence;
use super::{KeptCase, flows};
use crate::kernel::Session;
use crate::results::evidence_document::{self, EvidenceDocument};
use crate::results::journeys::{CaseHead, CaseJourneys};
use crate::results::{CaseResult, CaseStatus, RunError};
use crate::run::prepare::Prepared;
use crate::run::select::rerun_name;
use svclab_judge::Judgement;
use svclab_model::evidence::Evidence;

/// Returns the result of a case without a verdict.
pub(super) fn without_verdict(prepared: &Prepared, error: RunError) -> CaseResult {
    CaseResult {
        named: cli_name(prepared),
        location: prepared.expectation_location(),
        claims: prepared.unsettled_claims(),
        ..CaseResult::without_verdict(&prepared.case.lab, &prepared.case.id, error)
    }
}

/// Returns the name of a case on the command line; empty if it equals the case ID.
fn cli_name(prepared: &Prepared) -> String {
    let case = &prepared.case;
    let file = prepared.sources.iter().next();
    let file = file.map_or(Cow::default(), |(_, source)| source.path());
    let rest = case.id.strip_prefix(&case.lab).unwrap_or_default();
    let lab = prepared
        .cli_name
        .strip_suffix(rest)
        .unwrap_or(&prepared.cli_name);
    let named = format!("{}{rest}", rerun_name(lab, &file));
    let named = Some(named).filter(|named| *named != case.id);
    named.unwrap_or_default()
}

/// Returns the result of a case with a verdict.
pub(super) fn judged_result(
    prepared: &Prepared,
    judgement: Judgement,
    evidence: &Evidence,
) -> CaseResult {
    let last = evidence.last();
    let mut result = CaseResult {
        named: cli_name(prepared),
        result: if judgement.holds() {
            CaseStatus::Pass
        } else {
            CaseStatus::Fail
        },
        flows: flows::flow_results(prepared, &judgement),
        claims: judgement.claims,
        probes: judgement.probes,
        wire: judgement.wire,
        counters: judgement.counters,
        rules: judgement.rules,
        kernel_state: judgement.kernel_state,
        steps: judgement.steps,
        refused: last.refused.clone(),
        refused_missed: last.refused_missed,
        ..CaseResult::empty(&prepared.case.lab, &prepared.case.id)
    };
    result.location =
        flows::failed_flow_location(&result).or_else(|| prepared.expectation_location());
    result
}

/// Splits an ended case into its result, its evidence if `with_evidence` is set, and its running
/// lab.
pub(super) fn split_ended(
    (prepared, result, lab): (Arc<Prepared>, CaseResult, Option<(Session, Evidence)>),
    with_evidence: bool,
) -> (CaseResult, Option<Arc<CaseEvidence>>, Option<KeptCase>) {
    let seen = lab
        .as_ref()
        .filter(|_| with_evidence)
        .map(|(_, evidence)| Arc::new(evidence_document(&prepared, &result, evidence)));
    let names = prepared.plan.namespaces.iter().map(|ns| ns.name.clone());
    let kept = lab.map(|(session, _)| KeptCase {
        case: prepared.case.id.clone(),
        namespaces: names.collect(),
        session,
    });
    (result, seen, kept)
}

/// Returns the evidence of a case in the form that is sent, with the case.
fn evidence_document(
    prepared: &Arc<Prepared>,
    result: &CaseResult,
    evidence: &Evidence,
) -> CaseEvidence {
    let books = prepared.books();
    let head = CaseHead::new(result.case.clone(), result.kernel.clone(), None, evidence);
    let mut journeys_by_stage = prepared.journeys(evidence).into_iter();
    let first = journeys_by_stage.next().unwrap_or_default();
    let names = prepared.steps.iter().map(|step| step.name.clone());
    let steps = names
        .zip(journeys_by_stage)
        .zip(books.iter().skip(1))
        .map(|((name, journeys), book)| (name, journeys, *book));
    let CaseJourneys {
        head,
        connections,
        steps,
    } = CaseJourneys::new(head, first, &books[0]).with_steps(steps);
    let interfaces = prepared.plan.namespaces.iter().flat_map(|namespace| {
        let links = namespace.links.iter().map(|link| link.name.as_str());
        links
            .chain(["lo"])
            .map(|link| (namespace.name.clone(), link.to_owned()))
    });
    CaseEvidence {
        interfaces: interfaces.collect(),
        prepared: Arc::clone(prepared),
        document: EvidenceDocument {
            schema: evidence_document::SCHEMA.to_owned(),
            case: head.case,
            kernel: head.kernel,
            evidence: evidence.clone(),
            connections,
            steps,
        },
    }
}
