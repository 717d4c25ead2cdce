//! Results of trying changes.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::change::{Origin, ProposedChange};
use crate::bisect::Difference;
use svclab_judge::Fact;

/// Changes that make the failing connections of a case succeed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// Case name: `LAB/CASE`.
    pub case: String,
    /// Release of the kernel that ran the case.
    pub kernel: String,
    /// Probes with failing connections; empty if there are none.
    pub failing: Vec<FailingProbe>,
    /// Other probes with failing connections that were not examined: the lab expects them to fail
    /// in all cases, or another probe was requested.
    pub unexamined: Vec<String>,
    /// All changes that were tried, with their results.
    pub tried: Vec<TriedChanges>,
    /// Number of pairs of changes that were not tried because there were too many.
    pub untried_pairs: usize,
    /// Number of times that probes were run.
    pub runs: u32,
}

/// Probe with failing connections.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FailingProbe {
    /// Probe name.
    pub probe: String,
    /// Step after which the probe runs; absent for probes before the first step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
    /// Number of successful connections.
    pub connected: u32,
    /// Total number of connections.
    pub total: u32,
    /// Facts that explain one failing connection.
    pub facts: Vec<Fact>,
    /// Minimal fixes: with each of them all connections succeed and no other probe gets worse.
    pub fixes: Vec<Fix>,
}

/// Changes that together are a fix.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Fix {
    /// Changes to make.
    pub changes: Vec<DescribedChange>,
    /// If the change rewrites many rules, the differences that are necessary: after the change
    /// (`good`) and before (`bad`).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub necessary: Vec<Difference>,
}

/// Change with its description.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DescribedChange {
    /// Action of an operator that makes the change.
    pub description: String,
    /// Whether an operator configured the changed object or a component generated it.
    pub origin: Origin,
    /// Change as data.
    pub change: ProposedChange,
}

impl From<&ProposedChange> for DescribedChange {
    fn from(change: &ProposedChange) -> Self {
        Self {
            description: change.to_string(),
            origin: change.origin(),
            change: change.clone(),
        }
    }
}

/// Changes that were tried together.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TriedChanges {
    /// Changes that were tried.
    pub changes: Vec<DescribedChange>,
    /// Result of the changes.
    pub result: ChangeResult,
}

/// Result of changes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "to", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum ChangeResult {
    /// The probes ran.
    Finished {
        /// Results of the probes that had failing connections before.
        probes: Vec<ProbeCount>,
        /// Names of probes that got worse.
        worse: Vec<String>,
    },
    /// The changes could not be applied.
    Refused {
        /// Reason.
        why: String,
    },
}

/// Connection counts of a probe.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ProbeCount {
    /// Probe name.
    pub probe: String,
    /// Number of successful connections. If the probe ran several times, the minimum.
    pub connected: u32,
    /// Total number of connections.
    pub total: u32,
}

impl ChangeResult {
    /// Whether all connections of a probe succeeded and no probe got worse.
    #[must_use]
    pub fn is_fix_for(&self, probe: &str) -> bool {
        let Self::Finished { probes, worse } = self else {
            return false;
        };
        let succeeded = |fared: &ProbeCount| fared.probe == probe && fared.connected == fared.total;
        worse.is_empty() && probes.iter().any(succeeded)
    }
}

impl Finding {
    /// Whether no examined probe of the case has failing connections.
    #[must_use]
    pub fn is_healthy(&self) -> bool {
        self.failing.is_empty()
    }

    /// Whether a fix was found for every failing probe, or none failed.
    #[must_use]
    pub fn is_answered(&self) -> bool {
        self.failing.iter().all(|wrong| !wrong.fixes.is_empty())
    }
}
