//! Prepared cases of the shipped labs, by name.

use std::path::Path;
use std::time::Duration;

use svclab_runner::run::{Prepared, prepare, select_labs};

/// Prepares a case of a shipped lab.
pub fn prepare_case(name: &str) -> Prepared {
    let mut cases = prepare_cases(&[name.to_owned()]);
    assert_eq!(cases.len(), 1, "{name}");
    cases.remove(0)
}

/// Prepares the cases of shipped labs that the names select.
pub fn prepare_cases(names: &[String]) -> Vec<Prepared> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("topologies");
    let labs = select_labs(names, &directory).expect("the labs exist");
    labs.iter()
        .flat_map(|lab| lab.cases.iter().map(move |at| (lab, *at)))
        .map(|(lab, at)| {
            prepare(lab, &lab.scenario.cases()[at], Duration::from_secs(3))
                .expect("the case can be prepared")
        })
        .collect()
}
