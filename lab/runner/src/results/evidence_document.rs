//! Document with the full evidence of a case, for files that are read later.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::journeys::{ExplainedJourney, StepJourneys};
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
    /// Journeys before the steps, in the order in which their connections started. Packet numbers
    /// are indices into `evidence.packets`, from 0.
    pub connections: Vec<ExplainedJourney>,
    /// Journeys after each step. Packet numbers are indices into the packets of the `evidence` of
    /// the step, in `evidence.steps`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub steps: Vec<StepJourneys>,
}
