//! Defines the output of `svclab replay --format json`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::explain::CaseJourneys;
use svclab_planner::replay::ReplayReport;

/// Name and version of the JSON format.
pub const SCHEMA: &str = "svclab/replay/v1";

/// Replayed nodes and the journeys of packets there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ReplayDocument {
    /// Always `svclab/replay/v1`.
    pub schema: String,
    /// Replayed, simulated and omitted objects of each dumped node.
    pub nodes: Vec<ReplayReport>,
    /// Journeys of the packets.
    pub case: CaseJourneys,
}

impl ReplayDocument {
    /// Creates the document of a case.
    #[must_use]
    pub fn new(nodes: Vec<ReplayReport>, case: CaseJourneys) -> Self {
        Self {
            schema: SCHEMA.to_owned(),
            nodes,
            case,
        }
    }
}
