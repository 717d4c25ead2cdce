//! Tests a case with a longer wait than usual, whose additional expectations also hold.

use std::time::Duration;

use libtest_mimic::{Failed, Trial};
use svclab_judge::Check;
use svclab_runner::run::{prepare, select_labs};
use svclab_test_support::topologies;

use super::{flip, guests};

/// A case with an unanswered SYN, which is retransmitted.
const CASE: &str = "missing-cluster-cidr/clusterCIDR=missing,byHand=nothing,apiserver=apart";

/// Long enough for three retransmissions, after 1, 2 and 4 s.
const LONG_WAIT: Duration = Duration::from_secs(8);

pub fn trials() -> Vec<Trial> {
    let name = format!("patience/{CASE}: {} s", LONG_WAIT.as_secs());
    vec![Trial::test(name, check_long_wait)]
}

fn check_long_wait() -> Result<(), Failed> {
    let labs = select_labs(&[CASE.to_owned()], &topologies())?;
    let lab = labs.first().ok_or("the lab does not exist")?;
    let case = lab.scenario.cases().iter().find(|case| case.id == CASE);
    let case = case.ok_or("the case does not exist")?;
    let prepared = prepare(lab, case, LONG_WAIT).map_err(|problems| format!("{problems:?}"))?;
    let evidence = guests::run(&prepared)?;
    let judge = prepared
        .judge()
        .map_err(|problems| format!("{problems:?}"))?;
    let judgement = judge.judge(&evidence);
    let wanted = [1, 2, 4].map(Duration::from_secs);
    let intervals = judgement.wire.iter().find_map(|check| match check {
        Check::Retransmissions {
            expected,
            intervals,
            ..
        } if expected.resent.as_deref() == Some(&wanted[..]) => Some(intervals),
        _ => None,
    });
    let intervals = intervals.ok_or("no retransmission is expected")?;
    let intervals = intervals.as_ref().map_or(0, Vec::len);
    // A busy guest waits longer than 8 s by its kernel's clock, which adds a retransmission.
    if !judgement.holds() || intervals < 3 {
        return Err(format!("{judgement:#?}").into());
    }
    flip::check_every_expectation(&prepared, &evidence)
}
