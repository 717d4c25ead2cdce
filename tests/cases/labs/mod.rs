//! Runs every case of every lab in `topologies/`, and of the tables of flows in
//! `topologies/conformance/`, as one test each. The case passes, and fails with each of its
//! expectations inverted. Other trials check further properties of some cases.

mod cause;
mod change;
mod decides;
mod flip;
mod forget;
mod guests;
mod max_wait;
mod repeat;
mod settings;
mod settled;
mod unchanged;

use libtest_mimic::{Failed, Trial};
use svclab_runner::run::Prepared;
use svclab_test_support::cases::prepare_cases;

pub use guests::stop_guests;

pub fn trials() -> Vec<Trial> {
    let cases = prepare_cases(&[]);
    let conformance = prepare_cases(&["conformance"]);
    cause::trials(&cases)
        .into_iter()
        .chain(change::trials(&cases))
        .chain(decides::trials(&cases))
        .chain(forget::trials(&cases))
        .chain(max_wait::trials())
        .chain(repeat::trials(&cases))
        .chain(settings::trials(&cases))
        .chain(settled::trials())
        .chain(unchanged::trials(&cases))
        .chain(cases.iter().cloned().map(trial))
        .chain(conformance.into_iter().map(trial))
        .collect()
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
