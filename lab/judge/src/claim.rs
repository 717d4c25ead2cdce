//! What one case says about the claims of a write-up.

use serde::{Deserialize, Serialize};

/// Whether a case bears a claim out.
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
    /// Packets did what it says.
    Confirmed,
    /// Packets did something else.
    Refuted,
    /// The case did not come out as expected, so it says nothing.
    Unsettled,
}

impl ClaimVerdict {
    /// The word reports use.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Confirmed => "confirmed",
            Self::Refuted => "refuted",
            Self::Unsettled => "unsettled",
        }
    }
}

/// What one case says about one claim.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClaimOutcome {
    /// The claim: `S2-30`.
    pub id: String,
    /// Whether it is borne out.
    pub verdict: ClaimVerdict,
    /// The part of the claim that is meant, where it says several things.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub part: Option<String>,
    /// What the claim makes one expect and what was seen instead, where they differ.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seen: Option<String>,
}
