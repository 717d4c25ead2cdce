//! What trying changes came to.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Change, Level};
use crate::bisect::Difference;

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
    /// The probes besides whose connections were not all made, and which nobody asked
    /// about: the lab expects them to be answered in no case, or another one was named.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unasked: Vec<String>,
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
    /// The step after which it is tried, if that is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
    /// How many of its connections were made.
    pub connected: u32,
    /// Of how many.
    pub of: u32,
    /// Where they broke, in sentences, as `svclab explain` says it of one of them.
    pub told: Vec<String>,
    /// The smallest changes with which all of them are made and no probe fares worse.
    /// Each alone is enough.
    pub cures: Vec<Cure>,
}

/// Changes that make it work together.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Cure {
    /// The changes.
    pub changes: Vec<Told>,
    /// Of a change that writes many things again, those that it takes: as they become
    /// (`good`) and as they are (`bad`).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub matters: Vec<Difference>,
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
    /// The probes were run.
    Ran {
        /// How those fared whose connections were not all made before.
        probes: Vec<Fared>,
        /// The probes that fare worse than before.
        worse: Vec<String>,
    },
    /// They could not be made there.
    Refused {
        /// Why.
        why: String,
    },
}

/// How a probe fared.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Fared {
    /// The probe.
    pub probe: String,
    /// How many of its connections were made; where it was run several times, in the worst
    /// of those.
    pub connected: u32,
    /// Of how many.
    pub of: u32,
}

impl Came {
    /// Whether all connections of a probe were made, and no probe fares worse.
    #[must_use]
    pub fn cures(&self, probe: &str) -> bool {
        let Self::Ran { probes, worse } = self else {
            return false;
        };
        let whole = |fared: &Fared| fared.probe == probe && fared.connected == fared.of;
        worse.is_empty() && probes.iter().any(whole)
    }
}

impl Finding {
    /// Whether all connections of the case are made as it is.
    #[must_use]
    pub fn is_healthy(&self) -> bool {
        self.wrong.is_empty()
    }

    /// Whether there is nothing to be found, or of every probe something was.
    #[must_use]
    pub fn is_answered(&self) -> bool {
        self.wrong.iter().all(|wrong| !wrong.cures.is_empty())
    }
}
