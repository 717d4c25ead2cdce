//! Numbers of cases by status.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{CaseResult, CaseStatus};

/// Number of cases by status.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Summary {
    /// Number of cases in which all expectations hold.
    pub passed: usize,
    /// Number of cases in which all expectations hold in a repeated try, but not in the first.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub flaky: usize,
    /// Number of cases in which an expectation fails.
    pub failed: usize,
    /// Number of cases without a verdict.
    pub errors: usize,
}

impl Summary {
    /// Counts the cases by status.
    pub fn from_cases<'a>(cases: impl IntoIterator<Item = &'a CaseResult>) -> Self {
        Self::from_statuses(cases.into_iter().map(|case| case.result))
    }

    /// Counts the statuses.
    pub fn from_statuses(statuses: impl IntoIterator<Item = CaseStatus>) -> Self {
        let mut summary = Self::default();
        for status in statuses {
            *match status {
                CaseStatus::Pass => &mut summary.passed,
                CaseStatus::Flaky => &mut summary.flaky,
                CaseStatus::Fail => &mut summary.failed,
                CaseStatus::Error => &mut summary.errors,
            } += 1;
        }
        summary
    }
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde passes a reference"
)]
fn is_zero(number: &usize) -> bool {
    *number == 0
}
