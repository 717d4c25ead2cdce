//! Fuzzes cases of arbitrary valid labs with an agent that returns arbitrary evidence: nothing
//! panics, and no case passes without evidence for every expectation.

#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use svclab_model::plan::MaxWait;
use svclab_runner::run::{Prepared, SelectedLab, prepare, select_labs};
use svclab_test_support::generated::choices::Choices;
use svclab_test_support::generated::fake_agent::{expect_only_probes, run_with_choices};
use svclab_test_support::generated::valid_lab;
use svclab_test_support::topologies;
use tokio::runtime::Builder;

/// The shipped labs.
static LABS: LazyLock<Vec<SelectedLab>> =
    LazyLock::new(|| select_labs(&[], &topologies()).expect("labs"));

fuzz_target!(|bytes: &[u8]| {
    let mut choices = Choices(bytes);
    // Most cases are generated.
    let case = match choices.below(4) {
        0 => shipped_case(&mut choices),
        _ => Some(valid_lab::draw(&mut choices)),
    };
    let Some(mut case) = case else { return };
    if choices.below(2) == 0 {
        case = expect_only_probes(&case);
    }
    let runtime = Builder::new_current_thread().enable_all().build();
    runtime
        .expect("a runtime")
        .block_on(run_with_choices(&case, &mut choices));
});

/// Prepares any case of any shipped lab; `None` if the case cannot be prepared.
fn shipped_case(choices: &mut Choices<'_>) -> Option<Prepared> {
    let lab = &LABS[choices.below(LABS.len())];
    let cases = lab.scenario.cases();
    let case = &cases[choices.below(cases.len())];
    prepare(lab, case, MaxWait::SETTLED).ok()
}
