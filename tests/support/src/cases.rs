//! Prepared cases of the shipped labs, by name.

use std::time::Duration;

use svclab_model::plan::MaxWait;
use svclab_runner::run::{Prepared, prepare, select_labs};

use crate::topologies;

/// Wait of the labs' probes, as in `svclab run`.
const MAX_WAIT: Duration = MaxWait::SETTLED.limit;

/// Prepares a case of a shipped lab.
pub fn prepare_case(name: &str) -> Prepared {
    let mut cases = prepare_cases(&[name]);
    assert_eq!(cases.len(), 1, "{name}");
    cases.remove(0)
}

/// Prepares the cases of shipped labs that the names select; without names, of every lab directly
/// in `topologies/`.
pub fn prepare_cases(names: &[&str]) -> Vec<Prepared> {
    let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    let labs = select_labs(&names, &topologies()).expect("the labs exist");
    labs.iter()
        .flat_map(|lab| lab.cases.iter().map(move |at| (lab, *at)))
        .map(|(lab, at)| {
            prepare(lab, &lab.scenario.cases()[at], MAX_WAIT).expect("the case can be prepared")
        })
        .collect()
}
