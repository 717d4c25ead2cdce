//! Results of trying changes.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::change::{Origin, ProposedChange};
use crate::bisect::Difference;
use svclab_journey::journey::Journey;
use svclab_judge::{Explainer, Fact, Observed};
use svclab_planner::replay::{OmittedItem, ReplayReport};
use svclab_runner::run::ExplainedCase;
use svclab_scenario::expectation::ProbeExpectation;

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
    /// Probes whose connections all succeed although the case expects another result.
    pub unexpected: Vec<String>,
    /// Replay reports of the nodes that dumps replace: what was simulated or omitted.
    pub dumps: Vec<ReplayReport>,
    /// Kinds of objects that the lab lists as not modelled.
    pub not_modelled: Vec<String>,
    /// All changes that were tried, with their results.
    pub tried: Vec<TriedChanges>,
    /// Number of pairs of changes that were not tried because there were too many.
    pub untried_pairs: usize,
    /// End of the search before all changes were tried; `None` if all were.
    pub stopped: Option<Stopped>,
    /// State of nodes after manual commands of which no single object was changed.
    pub unread: Option<UnreadState>,
    /// Assumptions under which probes fail and fixes hold: whether next hops reply of which no dump
    /// shows whether they exist.
    pub assumed: Vec<String>,
    /// Number of times that probes were run.
    pub runs: u32,
}

/// State that manual commands leave on nodes, and that could not be read or built again. Changes of
/// single objects of this state were not tried, only "undo the manual changes".
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct UnreadState {
    /// Names of the nodes.
    pub nodes: Vec<String>,
    /// Reason.
    pub reason: String,
}

/// End of a search at its time limit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Stopped {
    /// Time limit of the search, in milliseconds.
    pub limit_ms: u64,
    /// Number of known changes and sets of changes that were not tried. Others would follow from
    /// their results.
    pub untried: usize,
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
    /// Number of connections that succeed, with the expected result if there is one.
    pub connected: u32,
    /// Total number of connections.
    pub total: u32,
    /// Result that connections have to have in addition to success; absent if success is enough.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expected: Option<ExpectedResult>,
    /// Endpoints that answered, and sources that they saw.
    pub observed: Observed,
    /// Facts that explain one failing connection.
    pub facts: Vec<Fact>,
    /// Minimal fixes: with each of them all connections succeed and no other probe gets worse.
    pub fixes: Vec<Fix>,
}

/// Expected endpoints and sources of a probe.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ExpectedResult {
    /// Names of the pods that have to answer, each at least once; absent if any may answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub endpoints: Option<Vec<String>>,
    /// Names or addresses of the sources that the endpoints have to see; absent if they may see
    /// any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sources: Option<Vec<String>>,
}

impl From<&ProbeExpectation> for ExpectedResult {
    fn from(expectation: &ProbeExpectation) -> Self {
        let to_names = |names: Vec<&str>| names.into_iter().map(str::to_owned).collect();
        Self {
            endpoints: expectation.endpoints.clone(),
            sources: expectation.sources().map(to_names),
        }
    }
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

/// Returns the commands of changes.
pub(super) fn typed_commands(changes: &[DescribedChange]) -> Vec<&TypedCommand> {
    changes.iter().flat_map(|change| &change.commands).collect()
}

/// Change with its description.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DescribedChange {
    /// Action of an operator that makes the change.
    pub description: String,
    /// Whether the change lasts. A component generates what a change of origin `generated`
    /// deletes, and writes it again.
    pub origin: Origin,
    /// Commands that make the change; empty if the change concerns a component or the lab.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub commands: Vec<TypedCommand>,
    /// Change as data.
    pub change: ProposedChange,
}

/// Command that an operator types on a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TypedCommand {
    /// Node, pod or external host.
    pub namespace: String,
    /// Command line for a shell. A line that starts with `#` describes a change that no command
    /// makes.
    pub command: String,
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
    /// Number of connections that succeeded, also at an endpoint or from a source that is not
    /// wanted. If the probe ran several times, the minimum.
    pub made: u32,
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
    /// Replaces the explanation of each failing probe by that of a recorded run of the same case on
    /// the same kernel, so that both name the same packets. A probe that did not fail there, or
    /// failed in a different number of connections, keeps its explanation.
    pub fn explain_by(&mut self, recorded: &ExplainedCase) {
        if recorded.prepared.case.id != self.case || recorded.kernel != self.kernel {
            return;
        }
        let prepared = &recorded.prepared;
        let explainers: Vec<Explainer<'_>> = prepared.explainers(&recorded.evidence, []).collect();
        for failing in &mut self.failing {
            let stages = recorded.journeys.iter().zip(&explainers);
            let of_probe = stages.flat_map(|(journeys, explainer)| {
                let own = journeys.iter().filter(|own| own.probe == failing.probe);
                own.map(move |journey| (journey, explainer))
            });
            let of_probe: Vec<(&Journey, &Explainer<'_>)> = of_probe.collect();
            let mut lost = of_probe
                .iter()
                .filter(|(journey, _)| !journey.verdict.is_success())
                .peekable();
            if let Some((journey, explainer)) = lost.peek() {
                let count = u32::try_from(lost.clone().count());
                if count == Ok(failing.total.saturating_sub(failing.connected)) {
                    failing.facts = explainer.conclude(journey);
                }
            }
        }
    }

    /// Whether these changes were tried together.
    pub(super) fn has_tried(&self, changes: &[ProposedChange]) -> bool {
        self.tried.iter().any(|tried| {
            let mut own = tried.changes.iter().map(|described| &described.change);
            own.len() == changes.len() && own.all(|change| changes.contains(change))
        })
    }

    /// Returns the position of a change among those that were tried, or the maximum if it was not
    /// tried alone.
    pub(super) fn position(&self, change: &ProposedChange) -> usize {
        let mut tried = self.tried.iter();
        let is_tried =
            |tried: &TriedChanges| matches!(&tried.changes[..], [one] if one.change == *change);
        tried.position(is_tried).unwrap_or(usize::MAX)
    }

    /// Returns the tried changes that fix no failing probe.
    pub fn useless_changes(&self) -> impl Iterator<Item = &TriedChanges> {
        self.tried.iter().filter(|tried| {
            let mut failing = self.failing.iter();
            !failing.any(|wrong| tried.result.is_fix_for(&wrong.probe))
        })
    }

    /// Whether no examined probe of the case has failing connections.
    #[must_use]
    pub fn is_healthy(&self) -> bool {
        self.failing.is_empty()
    }

    /// Returns the dumped parts that are not built and may affect packets, each with its node.
    pub fn omitted_parts(&self) -> impl Iterator<Item = (&str, &OmittedItem)> {
        let parts = self.dumps.iter().flat_map(|report| {
            let items = report.omitted.iter();
            items.map(|item| (report.node.as_str(), item))
        });
        parts.filter(|(_, item)| item.may_affect_packets())
    }

    /// Whether the finding is complete: each failing probe has a fix, or nothing failed, all probes
    /// have the expected results, and everything that may affect packets was built.
    #[must_use]
    pub fn is_conclusive(&self) -> bool {
        if self.is_healthy() {
            self.unexpected.is_empty() && self.omitted_parts().next().is_none()
        } else {
            self.is_answered()
        }
    }

    /// Whether a fix was found for every failing probe, or none failed.
    #[must_use]
    pub fn is_answered(&self) -> bool {
        self.failing.iter().all(|wrong| !wrong.fixes.is_empty())
    }
}
