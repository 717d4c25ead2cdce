//! Fuzzes cases of arbitrary valid labs with an agent that returns arbitrary evidence: nothing
//! panics, and no case passes without evidence for every expectation.

#![no_main]

#[path = "../../shared/changed_lab.rs"]
mod changed_lab;
#[path = "../../shared/choices.rs"]
mod choices;
#[path = "../../shared/fake_agent.rs"]
mod fake_agent;
#[path = "../../shared/valid_lab.rs"]
mod valid_lab;

use std::path::Path;
use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use svclab_model::plan::Patience;
use svclab_runner::run::{Chosen, Prepared, choose, prepare};
use tokio::runtime::Builder;

use choices::Choices;
use fake_agent::{of_probes, try_with};

/// The shipped labs.
static LABS: LazyLock<Vec<Chosen>> = LazyLock::new(|| {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../topologies");
    choose(&[], &directory).expect("labs")
});

fuzz_target!(|bytes: &[u8]| {
    let mut choices = Choices(bytes);
    // Most cases are generated.
    let case = match choices.below(4) {
        0 => shipped(&mut choices),
        _ => Some(valid_lab::draw(&mut choices)),
    };
    let Some(mut case) = case else { return };
    if choices.below(2) == 0 {
        case = of_probes(&case);
    }
    let runtime = Builder::new_current_thread().enable_all().build();
    runtime
        .expect("a runtime")
        .block_on(try_with(&case, &mut choices));
});

/// Prepares any case of any shipped lab; `None` if the case cannot be prepared.
fn shipped(choices: &mut Choices<'_>) -> Option<Prepared> {
    let lab = &LABS[choices.below(LABS.len())];
    let cases = lab.scenario.cases();
    let case = &cases[choices.below(cases.len())];
    prepare(lab, case, Patience::SETTLED).ok()
}
