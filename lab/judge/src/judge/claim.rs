//! Defines the result of one case for the claims of a write-up.

use serde::{Deserialize, Serialize};

use crate::check::Check;
use crate::judge::Judgement;
use crate::judge::probe::ProbeOutcome;
use crate::judge::stage::StepOutcome;

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
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClaimOutcome {
    /// Identifier of the claim, such as `S2-30`.
    pub id: String,
    /// Whether the case confirms or refutes the claim.
    pub verdict: ClaimVerdict,
    /// Part of the claim to which the result applies, if the claim has several parts.
    pub part: Option<String>,
    /// Claimed and observed results where they differ. For a confirmed claim, those of which only a
    /// part was observed, because probes waited for too short a time.
    pub differences: Vec<ClaimDifference>,
}

/// Claimed result that differs from the observed one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClaimDifference {
    /// Result of a probe.
    Probe(ProbeOutcome),
    /// Packets on an interface, a counter, rules or kernel state.
    Check(Check),
    /// Traffic shifts after a step.
    Step(StepOutcome),
}

impl ClaimDifference {
    /// Returns the expectations of which only a part was observed.
    pub(super) fn incomplete(judgement: &Judgement) -> Vec<Self> {
        let checks = judgement.checks().filter(|check| check.is_incomplete());
        checks.cloned().map(Self::Check).collect()
    }

    /// Returns the failed expectations of a judgement.
    pub(super) fn from_judgement(judgement: &Judgement) -> Vec<Self> {
        let checks = judgement.checks().filter(|check| !check.holds());
        let checks: Vec<Self> = checks.cloned().map(Self::Check).collect();
        let probes = judgement.probes().filter(|probe| !probe.holds);
        let steps = judgement.steps().filter(|step| !step.holds());
        let probes = probes.cloned().map(Self::Probe);
        let steps = steps.cloned().map(Self::Step);
        probes.chain(checks).chain(steps).collect()
    }
}
