//! What trying changes came to.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Change, Level};

/// What the document calls itself.
pub const SCHEMA: &str = "svclab/why/v1";

/// What came of all cases that were asked about.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Document {
    /// [`SCHEMA`].
    pub schema: String,
    /// The cases, in the order in which they were asked about.
    pub cases: Vec<Finding>,
}

impl Document {
    /// That of these cases.
    #[must_use]
    pub fn of(cases: Vec<Finding>) -> Self {
        Self {
            schema: SCHEMA.to_owned(),
            cases,
        }
    }
}

/// What makes the connections of a case work that do not.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Finding {
    /// The case.
    pub case: String,
    /// The release of the kernel that it ran in.
    pub kernel: String,
    /// The probes whose connections were not all made; none where nothing is wrong.
    pub wrong: Vec<Wrong>,
    /// The smallest changes with which all of those are made and no other probe fares
    /// worse. Each alone is enough.
    pub cures: Vec<Cure>,
    /// All changes that were tried, with what came of each.
    pub tried: Vec<Tried>,
    /// How often a lab was built and its probes were run.
    pub runs: u32,
}

/// A probe whose connections were not all made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Wrong {
    /// The probe.
    pub probe: String,
    /// How many of its connections were made.
    pub connected: u32,
    /// Of how many.
    pub of: u32,
    /// Where they broke, in sentences, as `svclab explain` says it of one of them.
    pub told: Vec<String>,
}

/// Changes that make it work together.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Cure {
    /// The changes.
    pub changes: Vec<Told>,
}

/// A change in words and as data.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Told {
    /// What an operator would do.
    pub words: String,
    /// Whether an operator says it, or a component writes it.
    pub level: Level,
    /// The change.
    pub change: Change,
}

impl From<&Change> for Told {
    fn from(change: &Change) -> Self {
        Self {
            words: change.to_string(),
            level: change.level(),
            change: change.clone(),
        }
    }
}

/// Changes that were tried together.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Tried {
    /// The changes.
    pub changes: Vec<Told>,
    /// What came of them.
    pub came: Came,
}

/// What came of changes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "to", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum Came {
    /// All connections that were not made are.
    Cure,
    /// Some are still not made.
    NoCure {
        /// How many of those of the probes in question were made.
        connected: u32,
        /// Of how many.
        of: u32,
    },
    /// They are made, but other probes fare worse.
    Harm {
        /// Those probes.
        probes: Vec<String>,
    },
    /// They could not be made there.
    Refused {
        /// Why.
        why: String,
    },
}

impl Finding {
    /// Whether all connections of the case are made as it is.
    #[must_use]
    pub fn is_healthy(&self) -> bool {
        self.wrong.is_empty()
    }

    /// Whether there is nothing to be found, or it was found.
    #[must_use]
    pub fn is_answered(&self) -> bool {
        self.is_healthy() || !self.cures.is_empty()
    }
}
