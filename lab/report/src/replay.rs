//! What `svclab replay --format json` prints.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use svclab_planner::replay::Account;
use svclab_runner::results::journeys::CaseJourneys;

/// What the document calls itself.
pub const SCHEMA: &str = "svclab/replay/v1";

/// Replayed nodes and what became of the packets there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Replayed {
    /// [`SCHEMA`].
    pub schema: String,
    /// What of each dumped node is real, what stands in, and what is left out.
    pub nodes: Vec<Account>,
    /// Where the packets went.
    pub case: CaseJourneys,
}

impl Replayed {
    /// Of a case with these nodes.
    #[must_use]
    pub fn of(nodes: Vec<Account>, case: CaseJourneys) -> Self {
        Self {
            schema: SCHEMA.to_owned(),
            nodes,
            case,
        }
    }
}
