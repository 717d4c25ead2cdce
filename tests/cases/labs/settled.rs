//! Tests that settled timeouts are correct: every case with timeouts that are reported early gives
//! the same verdicts with a long wait.

use std::collections::BTreeSet;
use std::time::Duration;

use libtest_mimic::{Failed, Trial};
use svclab_model::evidence::{Evidence, Verdict};
use svclab_model::plan::MaxWait;
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
            if settled.plan.probes().any(|probe| probe.settle) {
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
    for probe in settled.plan.probes() {
        let (early, late) = (verdicts(&early, &probe.name), verdicts(&late, &probe.name));
        if early != late {
            let words = format!("{}: settled {early:?}, waited for {late:?}", probe.name);
            return Err(Failed::from(words));
        }
    }
    for attempt in early.attempts().filter(|attempt| attempt.settled) {
        if attempt.verdict != Verdict::Timeout || attempt.duration >= LONG_WAIT {
            return Err(Failed::from(format!("{attempt:?}")));
        }
    }
    for (prepared, evidence) in [(settled, &early), (waiting, &late)] {
        let judge = prepared
            .judge()
            .map_err(|problems| format!("{problems:?}"))?;
        let judgement = judge.judge(evidence);
        if let Some(probe) = judgement.probes().find(|probe| !probe.holds) {
            return Err(Failed::from(format!("{probe:#?}")));
        }
    }
    Ok(())
}

/// Returns the distinct verdicts of a probe: where endpoints are random, the number of each verdict
/// is random, too.
fn verdicts(evidence: &Evidence, probe: &str) -> BTreeSet<Verdict> {
    let attempts = evidence.attempts();
    attempts
        .filter(|attempt| attempt.probe == probe)
        .map(|attempt| attempt.verdict)
        .collect()
}
