//! Cases that did not run, and why.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Reason why a run ended before all cases had a result, other than an interruption.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum StopReason {
    /// A case did not pass: `--fail-fast`.
    FailFast,
    /// The time of the run was over: `--run-timeout`.
    RunTimeout,
}

impl StopReason {
    /// Returns a short description: `stopped after the first failure`.
    #[must_use]
    pub const fn description(self) -> &'static str {
        match self {
            Self::FailFast => "stopped after the first failure",
            Self::RunTimeout => "stopped at the time limit of the run",
        }
    }
}

/// Case without a result, because the run ended before the case did.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NotRunCase {
    /// Name of the lab.
    pub lab: String,
    /// Full name of the case: `lab/axis=value`.
    pub case: String,
    /// Name of the case on the command line, if it is not `case`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub named: String,
    /// Release of the kernel in which the case should run. Empty if it is unknown.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub kernel: String,
}
