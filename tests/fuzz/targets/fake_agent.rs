//! Cases of valid labs on an agent that returns arbitrary evidence: nothing panics, and no
//! case passes without evidence for every expectation.

#![no_main]

#[path = "../../shared/fake_agent.rs"]
mod fake_agent;

use std::path::Path;
use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use svclab::plan::Patience;
use svclab::run::{Chosen, Prepared, choose, prepare};
use tokio::runtime::Builder;

use fake_agent::{Choices, of_probes, try_with};

/// Cases of the labs that come with svclab.
static CASES: LazyLock<Vec<Prepared>> = LazyLock::new(|| {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../topologies");
    let labs = choose(&[], &directory).expect("labs");
    let of_lab = |lab: &Chosen| -> Vec<Prepared> {
        let some = lab.scenario.cases().iter().take(4);
        some.filter_map(|case| prepare(lab, case, Patience::SETTLED).ok())
            .flat_map(|case| [of_probes(&case), case])
            .collect()
    };
    labs.iter().flat_map(of_lab).collect()
});

fuzz_target!(|bytes: &[u8]| {
    let mut choices = Choices(bytes);
    let case = &CASES[choices.below(CASES.len())];
    let runtime = Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime").block_on(try_with(case, &mut choices));
});
