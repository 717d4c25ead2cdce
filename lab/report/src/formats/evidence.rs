//! Defines the evidence file of a case, which `svclab run --report` writes.

use schemars::JsonSchema;
use serde::Serialize;

use crate::commands::explain::StageJourneys;
use svclab_model::evidence::Evidence;
use svclab_runner::results::CaseResult;
use svclab_runner::run::CaseEvidence;

/// Name and version of the schema.
pub(crate) const SCHEMA: &str = "svclab/evidence/v1";

/// Evidence of a case, and the paths of its packets.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct EvidenceDocument<'e> {
    /// Name and version of the schema: `svclab/evidence/v1`.
    schema: &'static str,
    /// Full name of the case.
    case: &'e str,
    /// Release of the kernel that the case ran in.
    kernel: &'e str,
    /// Recorded evidence.
    evidence: &'e Evidence,
    /// Journeys of each stage, in the order of `evidence.stages`.
    stages: Vec<StageJourneys>,
}

impl<'e> EvidenceDocument<'e> {
    /// Creates the document of a case with its result.
    pub(crate) fn new(result: &CaseResult, seen: &'e CaseEvidence) -> Self {
        Self {
            schema: SCHEMA,
            case: &seen.case,
            kernel: &seen.kernel,
            evidence: &seen.evidence,
            stages: StageJourneys::from_case(
                &seen.prepared,
                &seen.evidence,
                &result.probes,
                seen.journeys.iter().cloned(),
            ),
        }
    }
}
