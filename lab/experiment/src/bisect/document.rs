//! Result of a bisection, as `--format json` prints it.

use schemars::JsonSchema;
use serde::Serialize;

use super::narrow::TrialClass;
use super::pair::Difference;
use super::symptom::OutcomeDetail;
use crate::bench::LabOrigin;
use crate::trial::OutcomeCount;

/// Name and version of the JSON format.
pub const SCHEMA: &str = "svclab/bisection/v1";

/// Result of a bisection.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Bisection {
    /// Always `svclab/bisection/v1`.
    pub schema: String,
    /// The good side: LAB/CASE or a dump, as given on the command line.
    pub good: String,
    /// The bad side: LAB/CASE or a dump, as given on the command line.
    pub bad: String,
    /// Case and node that the dumps replace; absent if the sides are cases.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub base: Option<BaseCase>,
    /// Kernel release.
    pub kernel: String,
    /// Symptom and the differences that cause it.
    #[serde(flatten)]
    pub finding: SymptomFinding,
    /// Symptoms that remain once the differences in `fixes` of all earlier findings are as in good.
    /// Absent if there are none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub further: Vec<SymptomFinding>,
    /// Why symptoms may remain that were not examined. Absent if all were.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unexamined: Option<String>,
    /// Lab fields and objects that each cause part of the found differences alone. Absent if the
    /// sides are dumps.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub declared_by: Vec<DeclaredBy>,
    /// Assumptions about bad without which at least one of the causes is none: next hops that do not
    /// reply, of which the dump does not show whether they exist. Absent if there are none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub assumed: Vec<String>,
    /// Differences of the dumps that no trial includes, because svclab does not build them. Absent
    /// if there are none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub not_tried: Vec<String>,
    /// All trials in the order in which they ended, including those of both sides and the
    /// verification.
    pub trials: Vec<Trial>,
    /// Upper bound of the probability that chance led to a wrong finding, per million. If a search was
    /// repeated, only the last repetition counts: its trials are independent of earlier ones.
    pub error_per_million: u64,
    /// Duration of the bisection in milliseconds.
    pub duration_ms: u64,
}

impl Bisection {
    /// Returns all findings, in the order in which they were found.
    pub fn findings(&self) -> impl Iterator<Item = &SymptomFinding> {
        std::iter::once(&self.finding).chain(&self.further)
    }

    /// Whether the causes contain differences that are not causes in another bisection.
    #[must_use]
    pub fn names_more_than(&self, other: &Self) -> bool {
        let known: Vec<&Difference> = other.causes().collect();
        self.causes().any(|cause| !known.contains(&cause))
    }

    fn causes(&self) -> impl Iterator<Item = &Difference> {
        self.findings()
            .flat_map(|finding| finding.breaks.iter().chain(&finding.fixes).flatten())
    }
}

/// Probe result that separates good from bad, and the differences that cause it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SymptomFinding {
    /// Probe result that separates good from bad.
    pub symptom: SymptomReport,
    /// Number of differences. Differences that depend on each other count as one.
    pub differences: usize,
    /// Minimal set of differences that turns good into bad. Each entry is one difference with all
    /// differences that depend on it.
    pub breaks: Vec<Vec<Difference>>,
    /// Minimal set of differences that must be as in good for bad to become good. Entries are as in
    /// `breaks`.
    pub fixes: Vec<Vec<Difference>>,
}

/// Lab or object with fields that differ between good and bad.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DeclaredBy {
    /// `Lab`, or an object: `Service/default/web`.
    pub document: String,
    /// Fields that differ.
    pub fields: Vec<DeclaredField>,
}

/// Field that differs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DeclaredField {
    /// Path of the field: `spec.externalTrafficPolicy`; empty for a whole object.
    pub path: String,
    /// Value in good; absent if good lacks the field.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub good: Option<String>,
    /// Value in bad; absent if bad lacks the field.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bad: Option<String>,
}

/// Node of a case that the dumps replace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BaseCase {
    /// Case name: `LAB/CASE`.
    pub case: String,
    /// Node name.
    pub node: String,
}

/// Probe result that separates good from bad.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SymptomReport {
    /// Probe name.
    pub probe: String,
    /// Name of the source.
    pub from: String,
    /// Target address, with port if the protocol has ports.
    pub to: String,
    /// Part of the outcome that separates good from bad.
    pub detail: OutcomeDetail,
    /// Outcomes in good.
    pub good: Vec<OutcomeCount>,
    /// Outcomes in bad.
    pub bad: Vec<OutcomeCount>,
    /// Names of other probes whose outcomes differ between good and bad.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub other_probes: Vec<String>,
}

/// Run with a subset of the differences.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Trial {
    /// Purpose of the trial.
    pub purpose: Purpose,
    /// Number of differences that were as in bad.
    pub as_bad: usize,
    /// Number of differences of the search.
    pub differences: usize,
    /// Origin of the trial's lab.
    pub lab_origin: LabOrigin,
    /// Outcomes of the probe.
    pub outcomes: Vec<OutcomeCount>,
    /// Side that the outcomes match.
    pub class: TrialClass,
    /// Error with which the kernel refused the lab or could not start the probes; absent if the
    /// probes ran.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
}

/// Purpose of a trial.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum Purpose {
    /// Observes good or bad itself.
    Baseline,
    /// Narrows down the differences.
    Narrowing,
    /// Verifies the result in a newly built lab.
    Verification,
}
