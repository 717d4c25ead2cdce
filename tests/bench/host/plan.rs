//! The plan of the measured lab with one of the two iptables backends.

use std::time::Duration;

use svclab_model::plan::{Backend, Plan};
use svclab_runner::run::{prepare, select_labs};

/// Path of the lab, from the project directory.
const LAB: &str = "topologies/bench/six-namespaces.yaml";

/// Returns the command-line name of the case.
pub fn name(backend: Backend) -> String {
    let lab = svclab_test_support::root().join(LAB);
    format!("{}/iptables={}", lab.display(), backend.name())
}

/// Reads the lab and prepares the case.
pub fn plan(backend: Backend) -> Plan {
    let chosen = select_labs(&[name(backend)], &svclab_test_support::topologies())
        .expect("the lab is well-formed");
    let case = &chosen[0].scenario.cases()[chosen[0].cases[0]];
    let prepared =
        prepare(&chosen[0], case, Duration::from_secs(3)).expect("the lab can be prepared");
    assert_eq!(prepared.plan.namespaces.len(), 6);
    prepared.plan
}
