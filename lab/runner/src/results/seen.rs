//! All that was seen of a case, for files that somebody looks into later.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::journeys::{StepJourneys, Told};
use crate::run::Prepared;
use svclab_model::evidence::Evidence;

/// What the document calls itself.
pub const SCHEMA: &str = "svclab/evidence/v1";

/// All that was seen of a case.
#[derive(Debug, Clone)]
pub struct Seen {
    /// As data.
    pub document: Document,
    /// Every interface of every namespace: `node-1`, `eth0`.
    pub interfaces: Vec<(String, String)>,
    /// The case as it was run.
    pub prepared: Arc<Prepared>,
}

/// What was seen of a case, and where its packets went.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Document {
    /// [`SCHEMA`].
    pub schema: String,
    /// The case.
    pub case: String,
    /// The release of the kernel that it ran in.
    pub kernel: String,
    /// What was gathered.
    pub evidence: Evidence,
    /// Its connections, in the order in which they were begun; packets are counted in
    /// `evidence.packets` from 0.
    pub connections: Vec<Told>,
    /// Those after each of its steps; packets are counted in the `evidence` of the step,
    /// in `evidence.steps`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub steps: Vec<StepJourneys>,
}
