//! Tests that explanations name no object that differs from the lab if nobody changed the lab.

use libtest_mimic::{Failed, Trial};
use svclab_journey::journey::Journey;
use svclab_judge::{Fact, ProbeOutcome};
use svclab_model::evidence::Verdict;
use svclab_model::plan::EvidenceRequest;
use svclab_runner::run::Prepared;
use svclab_test_support::ordinary_or_full;

use super::guests;

/// An ordinary run tests one of this many cases; the full run tests all.
const CASE_STEP: usize = 8;

/// Returns one trial for each case whose nodes run no commands of the lab.
pub fn trials(cases: &[Prepared]) -> Vec<Trial> {
    let unchanged = cases
        .iter()
        .filter(|prepared| prepared.plan.commands.is_empty());
    let tested = unchanged.step_by(ordinary_or_full(CASE_STEP, 1));
    tested
        .map(|prepared| {
            let prepared = prepared.clone();
            let name = format!("unchanged/{}", prepared.case.id);
            Trial::test(name, move || check_case(&prepared))
        })
        .collect()
}

fn check_case(prepared: &Prepared) -> Result<(), Failed> {
    let mut watched = prepared.clone();
    watched.plan.evidence = EvidenceRequest::everything(&watched.plan);
    let evidence = guests::run(&watched)?;
    let judge = watched
        .judge()
        .map_err(|problems| format!("{problems:?}"))?;
    // Successful attempts are explained only if their results are unexpected.
    let judgement = judge.judge(&evidence);
    let outcomes: Vec<ProbeOutcome> = judgement
        .probes()
        .map(|outcome| ProbeOutcome {
            holds: false,
            ..outcome.clone()
        })
        .collect();
    let explainers = watched.explainers(&evidence, &outcomes);
    for (journeys, explainer) in watched.journeys(&evidence).iter().zip(explainers) {
        let failed: Vec<Journey> = journeys.iter().map(as_failed).collect();
        if let Some(fact) = explainer.unmet(&failed).first() {
            return Err(format!("not met: {fact:#?}").into());
        }
        for journey in journeys {
            for fact in explainer.conclude(journey) {
                if matches!(fact, Fact::Deviates { .. }) {
                    let probe = &journey.probe;
                    return Err(format!("{probe}: {fact:#?}").into());
                }
            }
        }
    }
    Ok(())
}

/// Returns a journey with another verdict: differences are searched only if packets were lost.
fn as_failed(journey: &Journey) -> Journey {
    Journey {
        verdict: Verdict::Timeout,
        ..journey.clone()
    }
}
