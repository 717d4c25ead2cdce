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
