//! Document with the full evidence of a case, for files that are read later.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::journeys::StageJourneys;
use svclab_model::evidence::Evidence;

/// Name and version of the schema.
pub const SCHEMA: &str = "svclab/evidence/v1";

/// Evidence of a case, and the paths of its packets.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EvidenceDocument {
    /// Name and version of the schema: `svclab/evidence/v1`.
    pub schema: String,
    /// Full name of the case.
    pub case: String,
    /// Release of the kernel that the case ran in.
    pub kernel: String,
    /// Recorded evidence.
    pub evidence: Evidence,
    /// Journeys of each stage, in the order of `evidence.stages`.
    pub stages: Vec<StageJourneys>,
}
