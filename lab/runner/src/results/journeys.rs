//! Journeys as data: `svclab/journeys/v1`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use svclab_journey::journey::Journey;
use svclab_judge::{AddressBook, conclusion};
use svclab_model::evidence::Evidence;

/// Name and version of the schema.
pub const SCHEMA: &str = "svclab/journeys/v1";

/// Journeys of several cases.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Journeys {
    /// Name and version of the schema: `svclab/journeys/v1`.
    pub schema: String,
    /// Cases in the order in which they ran.
    pub cases: Vec<CaseJourneys>,
}

/// Journeys of a case.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CaseJourneys {
    /// Case, and the completeness of its evidence.
    #[serde(flatten)]
    pub head: CaseHead,
    /// Journeys before the steps, in the order in which their connections started.
    pub connections: Vec<ExplainedJourney>,
    /// Journeys after each step.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub steps: Vec<StepJourneys>,
}

/// Journeys after a step of a case.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct StepJourneys {
    /// Name of the step.
    pub step: String,
    /// Journeys of the connections that started after the step, and of those open across the step.
    /// Packet numbers refer to the evidence of the step.
    pub connections: Vec<ExplainedJourney>,
}

/// Case that ran with full evidence.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CaseHead {
    /// Full name of the case.
    pub case: String,
    /// Release of the kernel that the case ran in.
    pub kernel: String,
    /// Whether all expectations hold. Absent for a running lab, which may have been changed since.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expected: Option<bool>,
    /// Number of packets that were not kept. If it is not 0, journeys may lack packets.
    pub packets_missed: u64,
    /// Number of trace events that were not kept.
    pub trace_events_missed: u64,
    /// Number of dropped packets that were not kept.
    pub drops_missed: u64,
    /// Reason why the kernel's drops could not be traced, and how to change that. The kernel's
    /// counters then replace the records of drops. Absent if drops were traced.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drops_unknown: Option<String>,
}

impl CaseHead {
    /// Creates the head of a case. `expected` is `None` if the expectations were not checked.
    #[must_use]
    pub fn new(case: String, kernel: String, expected: Option<bool>, evidence: &Evidence) -> Self {
        Self {
            case,
            kernel,
            expected,
            packets_missed: evidence.packets_missed,
            trace_events_missed: evidence.trace_missed,
            drops_missed: evidence.drops.missed(),
            drops_unknown: evidence.drops.unavailable_reason().map(str::to_owned),
        }
    }
}

/// Connection with its conclusion.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ExplainedJourney {
    /// Conclusion in plain words, one sentence each.
    pub conclusion: Vec<String>,
    /// Journey with all packets of the connection.
    #[serde(flatten)]
    pub journey: Journey,
}

impl CaseJourneys {
    /// Creates the journeys of a case, each with its conclusion.
    #[must_use]
    pub fn new(head: CaseHead, journeys: Vec<Journey>, book: &AddressBook<'_>) -> Self {
        Self {
            head,
            connections: explain_journeys(journeys, book),
            steps: Vec::new(),
        }
    }

    /// Adds the journeys after the steps, each with the address book of its stage.
    #[must_use]
    pub fn with_steps<'b>(
        mut self,
        steps: impl IntoIterator<Item = (String, Vec<Journey>, AddressBook<'b>)>,
    ) -> Self {
        let steps = steps.into_iter();
        let steps = steps.map(|(step, journeys, book)| StepJourneys {
            step,
            connections: explain_journeys(journeys, &book),
        });
        self.steps.extend(steps);
        self
    }
}

fn explain_journeys(journeys: Vec<Journey>, book: &AddressBook<'_>) -> Vec<ExplainedJourney> {
    let explained = journeys.into_iter().map(|journey| ExplainedJourney {
        conclusion: conclusion(&journey, book),
        journey,
    });
    explained.collect()
}

impl Journeys {
    /// Creates the document of several cases.
    #[must_use]
    pub fn new(cases: Vec<CaseJourneys>) -> Self {
        Self {
            schema: SCHEMA.to_owned(),
            cases,
        }
    }
}
