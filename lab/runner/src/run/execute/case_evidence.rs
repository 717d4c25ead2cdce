//! Full evidence of a case that ran.

use std::sync::Arc;

use crate::run::Prepared;
use svclab_journey::journey::Journey;
use svclab_model::evidence::Evidence;

/// Full evidence of a case.
#[derive(Debug, Clone)]
pub struct CaseEvidence {
    /// Full name of the case.
    pub case: String,
    /// Release of the kernel that the case ran in.
    pub kernel: String,
    /// Recorded evidence.
    pub evidence: Evidence,
    /// Journeys of each stage, in the order of `evidence.stages`.
    pub journeys: Vec<Vec<Journey>>,
    /// Namespace and name of every interface: `node-1`, `eth0`.
    pub interfaces: Vec<(String, String)>,
    /// Case as it ran.
    pub prepared: Arc<Prepared>,
}

impl CaseEvidence {
    /// Creates the evidence of a case. `prepared` is the case as it ran.
    #[must_use]
    pub fn new(prepared: &Arc<Prepared>, kernel: &str, evidence: &Evidence) -> Self {
        let interfaces = prepared.plan.namespaces.iter().flat_map(|namespace| {
            let links = namespace.links.iter().map(|link| link.name.as_str());
            links
                .chain(["lo"])
                .map(|link| (namespace.name.clone(), link.to_owned()))
        });
        Self {
            case: prepared.case.id.clone(),
            kernel: kernel.to_owned(),
            evidence: evidence.clone(),
            journeys: prepared.journeys(evidence),
            interfaces: interfaces.collect(),
            prepared: Arc::clone(prepared),
        }
    }
}
