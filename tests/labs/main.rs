//! Every case of every lab directly in `topologies/`, and of the tables of flows in
//! `topologies/conformance/`, each a test of its own: it comes out as expected, and
//! each of its expectations, turned round, does not.
//! Beside them, what a few of the cases are tried for in particular.

mod cause;
mod change;
mod flip;
mod forget;
#[path = "../shared/full.rs"]
mod full;
mod guests;
mod patience;
mod repeat;
mod settings;
mod settled;
mod stage;

use std::process::ExitCode;

use libtest_mimic::{Arguments, Failed, Trial};
use svclab_runner::run::Prepared;

/// Most of a case's time is waiting for packets that do not come.
const AT_ONCE: usize = 16;

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    arguments.test_threads.get_or_insert(AT_ONCE);
    let cases = stage::cases();
    let trials = cause::trials(&cases)
        .into_iter()
        .chain(change::trials(&cases))
        .chain(forget::trials(&cases))
        .chain(patience::trials())
        .chain(repeat::trials(&cases))
        .chain(settings::trials(&cases))
        .chain(settled::trials())
        .chain(cases.iter().cloned().map(trial))
        .chain(
            stage::of(&["conformance".to_owned()])
                .into_iter()
                .map(trial),
        )
        .collect();
    let conclusion = libtest_mimic::run(&arguments, trials);
    guests::end();
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
        flip::every_expectation(&prepared, &evidence)
    })
}
