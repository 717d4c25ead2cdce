//! Defines the output of `svclab why --format json`.

use schemars::JsonSchema;
use serde::Serialize;

use crate::text::conclusion::render_facts;
use svclab_experiment::why::{FailingProbe, Finding, Stopped, TriedChanges, UnreadState};
use svclab_planner::replay::ReplayReport;

/// Name and version of the JSON format.
pub const SCHEMA: &str = "svclab/why/v1";

/// Results for all requested cases.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Document {
    /// Always `svclab/why/v1`.
    pub schema: String,
    /// Results by case and kernel, in the requested order.
    pub cases: Vec<CaseFinding>,
}

impl Document {
    /// Creates the document from the results of cases.
    #[must_use]
    pub fn new(cases: Vec<Finding>) -> Self {
        Self {
            schema: SCHEMA.to_owned(),
            cases: cases.into_iter().map(CaseFinding::from).collect(),
        }
    }
}

/// Changes that make the failing connections of a case succeed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CaseFinding {
    /// Case name: `LAB/CASE`.
    pub case: String,
    /// Release of the kernel that ran the case.
    pub kernel: String,
    /// Probes with failing connections; empty if there are none.
    pub failing: Vec<ExplainedProbe>,
    /// Other probes with failing connections that were not examined: the lab expects them to fail
    /// in all cases, or another probe was requested.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unexamined: Vec<String>,
    /// Probes whose connections all succeed although the case expects another result.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unexpected: Vec<String>,
    /// Replay reports of the nodes that dumps replace: what was simulated or omitted.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub dumps: Vec<ReplayReport>,
    /// Kinds of objects that the lab lists as not modelled.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub not_modelled: Vec<String>,
    /// All changes that were tried, with their results.
    pub tried: Vec<TriedChanges>,
    /// Number of pairs of changes that were not tried because there were too many; absent if zero.
    #[serde(skip_serializing_if = "crate::case_additions::is_zero")]
    pub untried_pairs: usize,
    /// End of the search at its time limit; absent if it ended by itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stopped: Option<Stopped>,
    /// State of nodes after manual commands of which no single object was changed; absent if there
    /// is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unread: Option<UnreadState>,
    /// Assumptions under which probes fail and fixes hold: whether next hops reply of which no dump
    /// shows whether they exist.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub assumed: Vec<String>,
    /// Number of times that probes were run.
    pub runs: u32,
}

/// Probe with failing connections, with an explanation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ExplainedProbe {
    /// Probe and its fixes.
    #[serde(flatten)]
    pub probe: FailingProbe,
    /// Sentences that explain one failing connection, as `svclab explain` prints them.
    pub explanation: Vec<String>,
}

impl From<Finding> for CaseFinding {
    fn from(finding: Finding) -> Self {
        let explain = |probe: FailingProbe| ExplainedProbe {
            explanation: render_facts(&probe.facts),
            probe,
        };
        Self {
            case: finding.case,
            kernel: finding.kernel,
            failing: finding.failing.into_iter().map(explain).collect(),
            unexamined: finding.unexamined,
            unexpected: finding.unexpected,
            dumps: finding.dumps,
            not_modelled: finding.not_modelled,
            tried: finding.tried,
            untried_pairs: finding.untried_pairs,
            stopped: finding.stopped,
            unread: finding.unread,
            assumed: finding.assumed,
            runs: finding.runs,
        }
    }
}
