//! Defines the output of `svclab explain --format json`: journeys with their conclusions.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::results::is_false;
use crate::text::conclusion::render_facts;
use crate::text::journey_groups::group_journeys;
use svclab_journey::journey::Journey;
use svclab_judge::{Explainer, Fact, ProbeOutcome};
use svclab_model::evidence::Evidence;
use svclab_runner::run::Prepared;

pub use crate::case_head::CaseHead;

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
    /// Journeys of each stage.
    pub stages: Vec<StageJourneys>,
}

/// Journeys of a stage of a case.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct StageJourneys {
    /// Name of the step that leads to the stage. Absent in the first stage.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<String>,
    /// Journeys of the connections of the stage, in the order in which they started. Packet numbers
    /// are indices, from 0, into the packets of the same stage of the evidence.
    pub connections: Vec<ExplainedJourney>,
    /// Objects that differ from the lab and that no packet of a failing connection met, properties
    /// of services that exclude expected endpoints, and manual commands whose changes are unknown.
    /// They can be further causes: it is unknown what a packet would have met after its end.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unmet: Vec<UnmetCause>,
}

/// Possible further cause that no packet of a failing connection met.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct UnmetCause {
    /// Sentence that names the object.
    pub sentence: String,
    /// Object as data.
    pub fact: Fact,
}

impl StageJourneys {
    /// Creates the journeys of a stage, each with its conclusion.
    pub fn new(
        step: Option<&str>,
        journeys: impl IntoIterator<Item = Journey>,
        explainer: &Explainer<'_>,
    ) -> Self {
        let journeys: Vec<Journey> = journeys.into_iter().collect();
        let unmet = explainer.unmet(&journeys);
        let unmet = render_facts(&unmet).into_iter().zip(unmet);
        let unmet = unmet
            .map(|(sentence, fact)| UnmetCause { sentence, fact })
            .collect();
        let described = journeys.into_iter().map(|journey| {
            let facts = explainer.conclude(&journey);
            ExplainedJourney {
                failing: explainer.is_failing(&journey),
                conclusion: render_facts(&facts),
                facts,
                journey,
            }
        });
        Self {
            step: step.map(str::to_owned),
            connections: described.collect(),
            unmet,
        }
    }

    /// Returns connections that went alike: the first of each group with the size of the group.
    pub(crate) fn groups(&self) -> Vec<(&ExplainedJourney, usize)> {
        group_journeys(
            self.connections.iter(),
            |explained| explained.conclusion.join("\n"),
            |explained| explained.failing,
        )
    }

    /// Explains the journeys of each stage of a case.
    /// `outcomes` are the results of the probes, if the evidence was judged.
    pub fn from_case<'a>(
        prepared: &'a Prepared,
        evidence: &'a Evidence,
        outcomes: impl IntoIterator<Item = &'a ProbeOutcome> + Clone,
        journeys: impl IntoIterator<Item = Vec<Journey>>,
    ) -> Vec<Self> {
        let explainers = prepared.explainers(evidence, outcomes);
        let journeys = journeys.into_iter().zip(explainers).enumerate();
        journeys
            .map(|(stage, (journeys, explainer))| {
                Self::new(prepared.step_name(stage), journeys, &explainer)
            })
            .collect()
    }
}

/// Connection with its conclusion.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ExplainedJourney {
    /// Whether the connection failed, or belongs to a probe with an unexpected result.
    #[serde(default, skip_serializing_if = "is_false")]
    pub failing: bool,
    /// Conclusion in plain words, one sentence each.
    pub conclusion: Vec<String>,
    /// Facts of the conclusion as data, in the order of the sentences.
    #[serde(default)]
    pub facts: Vec<Fact>,
    /// Journey with all packets of the connection.
    #[serde(flatten)]
    pub journey: Journey,
}

impl AsRef<Journey> for ExplainedJourney {
    fn as_ref(&self) -> &Journey {
        &self.journey
    }
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
