//! Runs experiments: labs that are built and probed repeatedly, with one change per run.
//!
//! [`verify`] compares two kube-proxies. [`why`] finds a change that makes a failing connection
//! succeed. [`bisect`] finds the differences between two labs that break a connection. All of them
//! run trials in the labs of a bench, count the outcomes of connections, and rule out chance.

mod bench;
pub mod bisect;
mod comparison;
mod draws;
mod statistics;
mod trial;
pub mod verify;
pub mod why;

use svclab_rules::kube_proxy::KubeProxy;
use svclab_scenario::lab::LabSpec;

pub use bench::LabOrigin;
pub use draws::affinity_runs;
pub use trial::{ConnectionOutcome, OutcomeCount};

/// Progress of an experiment with several cases.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Progress {
    /// This case started.
    Started(String),
    /// `why` confirmed the first fix of a probe.
    Fixed {
        /// Case name.
        case: String,
        /// Probe name.
        probe: String,
        /// Changes of the fix.
        changes: Vec<why::DescribedChange>,
    },
    /// This case ended.
    Ended(String),
}

/// Iterates over the kube-proxies of a lab: that of all nodes, and those of single nodes.
pub(crate) fn kube_proxies(spec: &LabSpec) -> impl Iterator<Item = &KubeProxy> {
    let nodes = spec.nodes.values();
    let node_proxies = nodes.filter_map(|node| node.kube_proxy.as_ref());
    spec.kube_proxy.iter().chain(node_proxies)
}
