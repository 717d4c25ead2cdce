//! Tests that settled timeouts are correct: every case with timeouts that are reported early gives
//! the same verdicts with a long wait.

use std::collections::BTreeSet;
use std::time::Duration;

use libtest_mimic::{Failed, Trial};
use svclab_model::evidence::{Attempt, Evidence, Verdict};
use svclab_model::plan::{MaxWait, Probe};
use svclab_runner::run::{Prepared, prepare, select_labs};
use svclab_test_support::{ordinary_or_full, topologies};

use super::guests;

/// Long wait, with three retransmissions of a SYN.
const LONG_WAIT: Duration = Duration::from_secs(8);

/// Returns one trial for each case that expects settled timeouts. An ordinary run selects a few, on
/// this host and in guests.
pub fn trials() -> Vec<Trial> {
    let labs = select_labs(&[], &topologies()).expect("the labs are well-formed");
    let mut cases = Vec::new();
    for lab in &labs {
        for case in lab.scenario.cases() {
            let prepare_with = |patience: MaxWait| {
                prepare(lab, case, patience).expect("every case can be prepared")
            };
            let settled = prepare_with(MaxWait::SETTLED);
            if all_probes(&settled).any(|probe| probe.settle) {
                cases.push((settled, prepare_with(LONG_WAIT.into())));
            }
        }
    }
    cases
        .into_iter()
        .step_by(ordinary_or_full(6, 1))
        .map(|(settled, waiting)| {
            let name = format!("settled/{}", settled.case.id);
            Trial::test(name, move || check_same_verdicts(&settled, &waiting))
        })
        .collect()
}

fn check_same_verdicts(settled: &Prepared, waiting: &Prepared) -> Result<(), Failed> {
    let (early, late) = (guests::run(settled)?, guests::run(waiting)?);
    for probe in all_probes(settled) {
        let (early, late) = (verdicts(&early, &probe.name), verdicts(&late, &probe.name));
        if early != late {
            let words = format!("{}: settled {early:?}, waited for {late:?}", probe.name);
            return Err(Failed::from(words));
        }
    }
    for attempt in attempts(&early).filter(|attempt| attempt.settled) {
        if attempt.verdict != Verdict::Timeout || attempt.duration >= LONG_WAIT {
            return Err(Failed::from(format!("{attempt:?}")));
        }
    }
    for (prepared, evidence) in [(settled, &early), (waiting, &late)] {
        let judge = prepared
            .judge()
            .map_err(|problems| format!("{problems:?}"))?;
        let probes = judge.judge(evidence).probes;
        if let Some(probe) = probes.iter().find(|probe| !probe.holds) {
            return Err(Failed::from(format!("{probe:#?}")));
        }
    }
    Ok(())
}

/// Returns all probes of a case, including those of its steps.
fn all_probes(prepared: &Prepared) -> impl Iterator<Item = &Probe> {
    let steps = prepared.plan.steps.iter();
    let later = steps.flat_map(|step| &step.probes);
    prepared.plan.probes.iter().chain(later)
}

fn attempts(evidence: &Evidence) -> impl Iterator<Item = &Attempt> {
    let steps = evidence.steps.iter();
    let later = steps.flat_map(|step| &step.evidence.attempts);
    evidence.attempts.iter().chain(later)
}

/// Returns the distinct verdicts of a probe: where endpoints are random, the number of each verdict
/// is random, too.
fn verdicts(evidence: &Evidence, probe: &str) -> BTreeSet<Verdict> {
    let attempts = evidence.attempts.iter();
    attempts
        .filter(|attempt| attempt.probe == probe)
        .map(|attempt| attempt.verdict)
        .collect()
}
