//! Runs every case of every lab in `topologies/`, and of the tables of flows in
//! `topologies/conformance/`, as one test each. The case passes, and fails with each of its
//! expectations inverted. Other trials check further properties of some cases.

mod cause;
mod change;
mod flip;
mod forget;
#[path = "../shared/full.rs"]
mod full;
mod guests;
mod max_wait;
mod repeat;
mod settings;
mod settled;
mod stage;

use std::process::ExitCode;

use libtest_mimic::{Arguments, Failed, Trial};
use svclab_runner::run::Prepared;

/// Number of parallel cases, which mostly wait for timeouts.
const PARALLEL_CASES: usize = 16;

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    arguments.test_threads.get_or_insert(PARALLEL_CASES);
    let cases = stage::cases();
    let trials = cause::trials(&cases)
        .into_iter()
        .chain(change::trials(&cases))
        .chain(forget::trials(&cases))
        .chain(max_wait::trials())
        .chain(repeat::trials(&cases))
        .chain(settings::trials(&cases))
        .chain(settled::trials())
        .chain(cases.iter().cloned().map(trial))
        .chain(
            stage::cases_of(&["conformance".to_owned()])
                .into_iter()
                .map(trial),
        )
        .collect();
    let conclusion = libtest_mimic::run(&arguments, trials);
    guests::stop_guests();
    conclusion.exit_code()
}

fn trial(prepared: Prepared) -> Trial {
    Trial::test(prepared.case.id.clone(), move || {
        let evidence = guests::run(&prepared)?;
        let judge = prepared
            .judge()
            .map_err(|problems| format!("{problems:?}"))?;
        let judgement = judge.judge(&evidence);
        if !judgement.holds() {
            return Err(Failed::from(format!("{judgement:#?}")));
        }
        flip::check_every_expectation(&prepared, &evidence)
    })
}
