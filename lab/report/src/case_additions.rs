//! Additions to the result of a case, from the command that ran it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use svclab_experiment::why::{FailingProbe, Fix, Stopped, TriedChanges, UnreadState};

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
    /// Changes that were tried and fix no failing probe.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub useless_changes: Vec<TriedChanges>,
    /// Number of pairs of changes that were not tried because there were too many.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub untried_pairs: usize,
    /// End of the search for fixes at its time limit; absent if it ended by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stopped: Option<Stopped>,
    /// State of nodes after manual commands of which no single object was changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unread: Option<UnreadState>,
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde passes a reference"
)]
pub(crate) const fn is_zero(number: &usize) -> bool {
    *number == 0
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
