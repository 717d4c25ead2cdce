//! Defines the result of one case for the claims of a write-up.

use serde::{Deserialize, Serialize};

/// Result of one case for one claim.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    schemars::JsonSchema,
)]
#[serde(rename_all = "camelCase")]
pub enum ClaimVerdict {
    /// The packets behaved as claimed.
    Confirmed,
    /// The packets behaved otherwise.
    Refuted,
    /// The case did not meet its own expectations, so it neither confirms nor refutes the claim.
    Unsettled,
}

impl ClaimVerdict {
    /// Returns the word that reports use.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Confirmed => "confirmed",
            Self::Refuted => "refuted",
            Self::Unsettled => "unsettled",
        }
    }
}

/// Result of one case for one claim, with details.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClaimOutcome {
    /// Identifier of the claim, such as `S2-30`.
    pub id: String,
    /// Whether the case confirms or refutes the claim.
    pub verdict: ClaimVerdict,
    /// Part of the claim to which the result applies, if the claim has several parts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub part: Option<String>,
    /// Claimed and observed results where they differ.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub difference: Option<String>,
}
