//! Additions to the result of a case, from the command that ran it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use svclab_experiment::why::{FailingProbe, Fix};

/// Additions to a case.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CaseAdditions {
    /// Whether the results were not compared with expectations.
    #[serde(default, skip_serializing_if = "crate::results::is_false")]
    pub unjudged: bool,
    /// Side of a comparison that the case is: `good`. The name of the case ends with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub side: Option<String>,
    /// Probes with failing connections and their fixes. Absent if fixes were not searched.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fixes: Option<Vec<ProbeFixes>>,
}

/// Fixes of a probe with failing connections.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ProbeFixes {
    /// Name of the probe.
    pub probe: String,
    /// Fixes, each of which suffices.
    pub fixes: Vec<Fix>,
}

impl From<&FailingProbe> for ProbeFixes {
    fn from(failing: &FailingProbe) -> Self {
        Self {
            probe: failing.probe.clone(),
            fixes: failing.fixes.clone(),
        }
    }
}
