//! Journeys as data: `svclab/journeys/v1`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use svclab_journey::journey::Journey;
use svclab_judge::{Book, conclusion};
use svclab_model::evidence::Evidence;

/// What the document calls itself.
pub const SCHEMA: &str = "svclab/journeys/v1";

/// The journeys of some cases.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Journeys {
    /// [`SCHEMA`].
    pub schema: String,
    /// The cases, in the order in which they were run.
    pub cases: Vec<CaseJourneys>,
}

/// The journeys of a case.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CaseJourneys {
    /// Which, and how it was watched.
    #[serde(flatten)]
    pub head: Head,
    /// Its connections, in the order in which they were begun.
    pub connections: Vec<Told>,
    /// Those after each of its steps.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub steps: Vec<StepJourneys>,
}

/// The journeys after a step of a case.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct StepJourneys {
    /// The step's name.
    pub step: String,
    /// The connections that were begun after it, and those that were open across it.
    /// Packets are counted in the step's own evidence.
    pub connections: Vec<Told>,
}

/// A case that was watched.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Head {
    /// The case.
    pub case: String,
    /// The release of the kernel that it ran in.
    pub kernel: String,
    /// Whether it came out as expected; nothing of a lab that stands, where anything may
    /// have been changed since.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expected: Option<bool>,
    /// Packets that were not kept; where there are any, journeys may lack some.
    #[serde(rename = "packetsLeftOut")]
    pub packets_left_out: u64,
    /// Steps through rules that were not kept.
    #[serde(rename = "stepsLeftOut")]
    pub steps_left_out: u64,
    /// Packets that the kernel dropped and that were not kept.
    #[serde(rename = "dropsLeftOut")]
    pub drops_left_out: u64,
    /// Why the kernel could not be asked what it drops, and what would change that;
    /// its counters stand for that then.
    #[serde(
        rename = "dropsUnknown",
        default,
        skip_serializing_if = "Option::is_none"
    )]
    pub drops_unknown: Option<String>,
}

impl Head {
    /// That of a case that was seen; `expected` says whether it came out so, if that was
    /// asked.
    #[must_use]
    pub fn of(case: String, kernel: String, expected: Option<bool>, evidence: &Evidence) -> Self {
        Self {
            case,
            kernel,
            expected,
            packets_left_out: evidence.packets_left_out,
            steps_left_out: evidence.met_left_out,
            drops_left_out: evidence.drops.left_out(),
            drops_unknown: evidence.drops.unknown().map(str::to_owned),
        }
    }
}

/// A connection and what is to be said of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Told {
    /// In plain words, a sentence each.
    pub conclusion: Vec<String>,
    /// All its packets.
    #[serde(flatten)]
    pub journey: Journey,
}

impl CaseJourneys {
    /// A case's journeys, each with what is to be said of it.
    #[must_use]
    pub fn of(head: Head, journeys: Vec<Journey>, book: &Book<'_>) -> Self {
        Self {
            head,
            connections: told(journeys, book),
            steps: Vec::new(),
        }
    }

    /// The same with those after its steps, each with the names that there were then.
    #[must_use]
    pub fn with_steps<'b>(
        mut self,
        steps: impl IntoIterator<Item = (String, Vec<Journey>, Book<'b>)>,
    ) -> Self {
        let steps = steps.into_iter();
        let steps = steps.map(|(step, journeys, book)| StepJourneys {
            step,
            connections: told(journeys, &book),
        });
        self.steps.extend(steps);
        self
    }
}

fn told(journeys: Vec<Journey>, book: &Book<'_>) -> Vec<Told> {
    let told = journeys.into_iter().map(|journey| Told {
        conclusion: conclusion(&journey, book),
        journey,
    });
    told.collect()
}

impl Journeys {
    /// Those of some cases.
    #[must_use]
    pub fn of(cases: Vec<CaseJourneys>) -> Self {
        Self {
            schema: SCHEMA.to_owned(),
            cases,
        }
    }
}
