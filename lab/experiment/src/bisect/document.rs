//! What a bisection came to, as `--format json` prints it.

use schemars::JsonSchema;
use serde::Serialize;

use super::narrow::Like;
use super::pair::Difference;
use super::symptom::Level;
use crate::verify::Times;

/// The name and version of this format.
pub const SCHEMA: &str = "svclab/bisection/v1";

/// What a bisection came to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Bisection {
    /// `svclab/bisection/v1`.
    pub schema: String,
    /// What is well, as it was named.
    pub good: String,
    /// What is not, as it was named.
    pub bad: String,
    /// Where dumps were laid over a lab: which.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub over: Option<Over>,
    /// The kernel, as it calls itself.
    pub kernel: String,
    /// What tells good and bad apart.
    pub symptom: Shown,
    /// In how much they differ; what cannot be without something else is counted with it.
    pub differences: usize,
    /// What turns good into bad, and nothing of it can be left out: differences, each with
    /// all that cannot be without it.
    pub breaks: Vec<Vec<Difference>>,
    /// What has to be as in good for bad to become good, and nothing of it can be left out.
    pub cures: Vec<Vec<Difference>>,
    /// Of two cases: the fields of the lab and the objects that each make some of that by
    /// themselves.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub said_by: Vec<SaidBy>,
    /// What was tried, in this order, ends and verification among it.
    pub trials: Vec<Trial>,
    /// With which probability chance led to another answer than it should have, at most: so
    /// many in a million.
    pub wrong_in_million: u64,
    /// How long it took, in milliseconds.
    pub duration_ms: u64,
}

/// What a lab or an object says otherwise in bad.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SaidBy {
    /// `Lab`, or an object: `Service/default/web`.
    pub document: String,
    /// The fields that differ.
    pub fields: Vec<SaidField>,
}

/// A field that differs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SaidField {
    /// Where it is: `spec.externalTrafficPolicy`; empty for a whole object.
    pub path: String,
    /// As good has it; not at all without this.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub good: Option<String>,
    /// As bad has it; not at all without this.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bad: Option<String>,
}

/// A lab's node over which dumps were laid.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Over {
    /// The case.
    pub case: String,
    /// The node whose place they take.
    pub node: String,
}

/// What tells good and bad apart.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Shown {
    /// The probe, by name.
    pub probe: String,
    /// Where it starts.
    pub from: String,
    /// Where it goes.
    pub to: String,
    /// What of what became of it counts.
    pub by: Level,
    /// What became of it in good.
    pub good: Vec<Times>,
    /// What became of it in bad.
    pub bad: Vec<Times>,
    /// Other probes that came out otherwise in bad.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub others: Vec<String>,
}

/// One trial.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Trial {
    /// What it was for.
    pub of: Purpose,
    /// How many of the differences were as in bad.
    pub as_bad: usize,
    /// How it was reached: `built`, or what was changed in the lab that stood.
    pub reached: Reached,
    /// What became of the probe.
    pub seen: Vec<Times>,
    /// What that is like.
    pub like: Like,
    /// Why it is like neither, where the kernel refused it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
}

/// What a trial is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum Purpose {
    /// To see what good and bad do.
    End,
    /// To narrow down.
    Narrowing,
    /// To see the answer hold in a lab built anew.
    Verification,
}

/// How the lab of a trial came about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum Reached {
    /// It was built.
    Built,
    /// The one that stood was changed.
    Changed,
    /// It was not: the kernel refused it.
    Not,
}
