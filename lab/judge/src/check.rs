//! Something that was expected besides verdicts.

use serde::{Deserialize, Serialize};

/// One thing that was expected besides a probe's verdict.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Check {
    /// Where it was looked for: an interface, a namespace.
    pub on: String,
    /// What was expected.
    pub expected: String,
    /// What was seen.
    pub observed: String,
    /// Whether that is what was expected.
    pub holds: bool,
}
