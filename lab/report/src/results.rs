//! Defines the output of `svclab run --format json`: the results of a run with all expectations and
//! observations as text.

use std::collections::BTreeMap;

use indexmap::IndexMap;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::text::expectation::{
    describe_check, describe_difference, describe_expectation, describe_within,
};
use svclab_judge::{
    Check, ClaimOutcome, ClaimVerdict, Observed, ProbeOutcome, StepOutcome, TrafficShift,
};
use svclab_model::evidence::{RejectedRequest, is_none_missed};
use svclab_runner::certify::Certificate;
use svclab_runner::results::flows::{FlowObservation, FlowOutcome, FlowTable};
use svclab_runner::results::{
    CaseResult, CaseStatus, FileLine, NotRunCase, Results, RunError, RunFacts, StopReason, Summary,
    Warning, short_name,
};

/// Name and version of the JSON format.
pub const SCHEMA: &str = "svclab/results/v1";

/// Results of a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "Results")]
pub struct Document {
    /// Name and version of the schema: `svclab/results/v1`.
    pub schema: String,
    /// Versions by program: that of svclab, and the version text that each other program prints.
    pub tools: BTreeMap<String, String>,
    /// Result of each case, in the order of the labs and their cases.
    pub cases: Vec<CaseDocument>,
    /// When and how the run was made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<RunFacts>,
    /// Number of cases to run. Each of them is in `cases` or in `notRun`, unless svclab has a bug.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub begun: Option<usize>,
    /// Number of cases by status.
    pub summary: Summary,
    /// Warnings about contents of the lab files that have no effect on packets, or another effect
    /// than in a cluster.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<Warning>,
    /// Flow table of each lab that has flows.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub flows: Vec<FlowTable>,
    /// Whether the run was interrupted. `cases` then lacks the cases that had not finished.
    #[serde(default, skip_serializing_if = "is_false")]
    pub interrupted: bool,
    /// Reason why svclab itself ended the run before all cases had a result. Absent if it did not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stopped: Option<StopReason>,
    /// Cases without a result, because the run was interrupted or stopped.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub not_run: Vec<NotRunCase>,
    /// Comparison of the machine before and after the run. Absent unless requested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub certificate: Option<Certificate>,
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde passes a reference"
)]
pub(crate) fn is_false(value: &bool) -> bool {
    !value
}

/// Result of a case.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "CaseResult")]
pub struct CaseDocument {
    /// Name of the lab.
    pub lab: String,
    /// Full name of the case: `lab/axis=value`.
    pub case: String,
    /// Name of the case on the command line, if it is not `case`: a lab outside the directory of
    /// labs is named by its file.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub named: String,
    /// Release of the kernel that the case ran in, as the agent reports it (`uname -r`). Empty if
    /// no agent was reached.
    pub kernel: String,
    /// Status of the case.
    pub result: CaseStatus,
    /// Time from the first namespace to the last verdict, in milliseconds.
    pub duration_ms: u64,
    /// Location of the row of the lab that states the expectations.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub location: Option<FileLine>,
    /// Outcomes of the claims that the case tests.
    #[serde(default)]
    pub claims: Vec<ClaimDocument>,
    /// Results of the probes.
    #[serde(default)]
    pub probes: Vec<ProbeDocument>,
    /// Results of the flows, with the rows that state their expectations. Every flow is also in
    /// `probes`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub flows: Vec<FlowDocument>,
    /// Checks of packets on interfaces.
    #[serde(default)]
    pub wire: Vec<CheckDocument>,
    /// Checks of kernel counters.
    #[serde(default)]
    pub counters: Vec<CheckDocument>,
    /// Checks of rules.
    #[serde(default)]
    pub rules: Vec<CheckDocument>,
    /// Checks of sets, virtual servers and interfaces.
    #[serde(default)]
    pub kernel_state: Vec<CheckDocument>,
    /// Results of the steps, with the time at which traffic moved after each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub steps: Vec<StepDocument>,
    /// Requests that the API servers of the nodes did not serve, although the real kube-proxies
    /// wrote their rules. No verdict depends on these requests. If a kube-proxy did not write its
    /// rules, `error` describes the cause.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub refused: Vec<RejectedRequest>,
    /// Number of further requests that are not listed in `refused`.
    #[serde(default, skip_serializing_if = "is_none_missed")]
    pub refused_missed: u64,
    /// Number of connections with the source port of an earlier connection. Conntrack may treat
    /// their packets as packets of the earlier connection.
    #[serde(default, skip_serializing_if = "is_none_missed")]
    pub repeated_ports: u64,
    /// Pods and load balancers that svclab made for the case, because the lab has only their
    /// workloads and services. One line each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub made: Vec<String>,
    /// Earlier tries of the case, in which it did not pass, oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failed_tries: Vec<CaseDocument>,
    /// Reason why the case has no verdict. Absent if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<RunError>,
}

/// Result of one case for one claim, with details.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "ClaimOutcome")]
pub struct ClaimDocument {
    /// Identifier of the claim, such as `S2-30`.
    pub id: String,
    /// Whether the case confirms or refutes the claim.
    pub verdict: ClaimVerdict,
    /// Part of the claim to which the result applies, if the claim has several parts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub part: Option<String>,
    /// Claimed and observed results where they differ. For a confirmed claim, those of which only a
    /// part was observed, because probes waited for too short a time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub difference: Option<String>,
}

/// Result of a probe, with its expectation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "ProbeOutcome")]
pub struct ProbeDocument {
    /// Name of the probe in the lab.
    pub name: String,
    /// Source of the probe.
    pub from: String,
    /// Target of the probe.
    pub to: String,
    /// Step after which the probe ran, or across which its connections were open.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<String>,
    /// Expectation in the notation of the lab, or `any`. Absent only for a probe that the
    /// expectations of a claim do not mention.
    pub expected: Option<String>,
    /// Observed results.
    pub observed: Observed,
    /// Whether the expectation is met.
    pub holds: bool,
}

/// Result of a flow in a case.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "FlowOutcome")]
pub struct FlowDocument {
    /// Name of the flow in the lab.
    pub flow: String,
    /// Source of the flow.
    pub from: String,
    /// Target of the flow.
    pub to: String,
    /// Observed result.
    pub seen: FlowObservation,
    /// Whether the observed result is the expected one.
    pub holds: bool,
    /// Expectation in the words of the lab.
    pub expected: String,
    /// Location of the row that states the expectation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub location: Option<FileLine>,
    /// Reason for the expectation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub because: Option<String>,
    /// Source that confirms the reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// Facts that the flow confirms if `holds` is true.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub covers: Vec<String>,
}

/// Result of comparing an expectation, other than a verdict, with the evidence.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "Check")]
pub struct CheckDocument {
    /// Interface, namespace or node to which the expectation applies.
    pub target: String,
    /// Expectation as text.
    pub expected: String,
    /// Observation as text.
    pub observed: String,
    /// Whether the observation meets the expectation.
    pub holds: bool,
}

/// Result of a step.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "StepOutcome")]
pub struct StepDocument {
    /// Name of the step in the lab.
    pub name: String,
    /// Duration in microseconds until all programs had applied the change. For rules that svclab
    /// generates, the time that svclab needed; otherwise the time that real kube-proxies needed.
    pub applied_us: u64,
    /// Traffic shifts of the probes that the step affects.
    pub shifts: Vec<TrafficShift>,
    /// Names of the probes whose last result was possible only before the step.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unmoved: Vec<String>,
    /// Number of packets since the change that were not captured.
    #[serde(default, skip_serializing_if = "is_none_missed")]
    pub packets_missed: u64,
    /// Expectation as text; absent if the lab states none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expected: Option<String>,
    /// Whether the expectation is met.
    pub holds: bool,
}

impl Document {
    /// Returns the exit code of the run; see [`Results::exit_code`].
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        self.to_results().exit_code()
    }

    /// Whether there are flaky cases, and the run counts them as failures.
    #[must_use]
    pub fn has_failing_flaky_cases(&self) -> bool {
        self.to_results().has_failing_flaky_cases()
    }

    /// Returns the number of cases without a result; 0 for an interrupted run.
    #[must_use]
    pub fn count_missing_results(&self) -> usize {
        self.to_results().count_missing_results()
    }

    /// Whether the certificate states that the machine changed.
    #[must_use]
    pub fn has_machine_changed(&self) -> bool {
        self.to_results().has_machine_changed()
    }

    /// Returns the cases by lab. Labs are in the order of their first case.
    #[must_use]
    pub fn by_lab(&self) -> IndexMap<&str, Vec<&CaseDocument>> {
        let mut labs = IndexMap::<_, Vec<_>>::new();
        for case in &self.cases {
            labs.entry(case.lab.as_str()).or_default().push(case);
        }
        labs
    }

    /// Returns the results without what was observed.
    fn to_results(&self) -> Results {
        let cases = self.cases.iter().map(|case| CaseResult {
            result: case.result,
            error: case.error.clone(),
            ..CaseResult::empty(&case.lab, &case.case)
        });
        Results {
            begun: self.begun,
            run: self.run.clone(),
            summary: self.summary,
            interrupted: self.interrupted,
            stopped: self.stopped,
            not_run: self.not_run.clone(),
            certificate: self.certificate.clone(),
            ..Results::new(BTreeMap::new(), cases.collect())
        }
    }
}

impl CaseDocument {
    /// Returns the name of the case on the command line.
    #[must_use]
    pub fn cli_name(&self) -> &str {
        if self.named.is_empty() {
            &self.case
        } else {
            &self.named
        }
    }

    /// Returns the name of the case within its lab; see [`CaseResult::short_name`].
    #[must_use]
    pub fn short_name(&self) -> &str {
        short_name(&self.lab, &self.case)
    }

    /// Returns all checks except those of probes.
    pub fn checks(&self) -> impl Iterator<Item = &CheckDocument> {
        self.wire
            .iter()
            .chain(&self.counters)
            .chain(&self.rules)
            .chain(&self.kernel_state)
    }
}

impl From<&Results> for Document {
    fn from(results: &Results) -> Self {
        Self {
            schema: SCHEMA.to_owned(),
            tools: results.tools.clone(),
            cases: results.cases.iter().map(CaseDocument::from).collect(),
            run: results.run.clone(),
            begun: results.begun,
            summary: results.summary,
            warnings: results.warnings.clone(),
            flows: results.flows.clone(),
            interrupted: results.interrupted,
            stopped: results.stopped,
            not_run: results.not_run.clone(),
            certificate: results.certificate.clone(),
        }
    }
}

impl From<&CaseResult> for CaseDocument {
    fn from(case: &CaseResult) -> Self {
        let checks = |checks: &[Check]| checks.iter().map(CheckDocument::from).collect();
        Self {
            lab: case.lab.clone(),
            case: case.case.clone(),
            named: case.named.clone(),
            kernel: case.kernel.clone(),
            result: case.result,
            duration_ms: case.duration_ms,
            location: case.location.clone(),
            claims: case.claims.iter().map(ClaimDocument::from).collect(),
            probes: case.probes.iter().map(ProbeDocument::from).collect(),
            flows: case.flows.iter().map(FlowDocument::from).collect(),
            wire: checks(&case.wire),
            counters: checks(&case.counters),
            rules: checks(&case.rules),
            kernel_state: checks(&case.kernel_state),
            steps: case.steps.iter().map(StepDocument::from).collect(),
            refused: case.refused.clone(),
            refused_missed: case.refused_missed,
            repeated_ports: case.repeated_ports,
            made: case.made.clone(),
            failed_tries: case.failed_tries.iter().map(Self::from).collect(),
            error: case.error.clone(),
        }
    }
}

impl From<&ClaimOutcome> for ClaimDocument {
    fn from(claim: &ClaimOutcome) -> Self {
        let differences: Vec<String> = claim.differences.iter().map(describe_difference).collect();
        Self {
            id: claim.id.clone(),
            verdict: claim.verdict,
            part: claim.part.clone(),
            difference: (!differences.is_empty()).then(|| differences.join("; ")),
        }
    }
}

impl From<&ProbeOutcome> for ProbeDocument {
    fn from(probe: &ProbeOutcome) -> Self {
        Self {
            name: probe.name.clone(),
            from: probe.from.clone(),
            to: probe.to.clone(),
            step: probe.step.clone(),
            expected: probe.expected.as_ref().map(describe_expectation),
            observed: probe.observed.clone(),
            holds: probe.holds,
        }
    }
}

impl From<&FlowOutcome> for FlowDocument {
    fn from(flow: &FlowOutcome) -> Self {
        Self {
            flow: flow.flow.clone(),
            from: flow.from.clone(),
            to: flow.to.clone(),
            seen: flow.seen.clone(),
            holds: flow.holds,
            expected: describe_expectation(&flow.expected),
            location: flow.location.clone(),
            because: flow.because.clone(),
            source: flow.source.clone(),
            covers: flow.covers.clone(),
        }
    }
}

impl From<&Check> for CheckDocument {
    fn from(check: &Check) -> Self {
        let (expected, observed) = describe_check(check);
        Self {
            target: check.target(),
            expected,
            observed,
            holds: check.holds(),
        }
    }
}

impl From<&StepOutcome> for StepDocument {
    fn from(step: &StepOutcome) -> Self {
        Self {
            name: step.name.clone(),
            applied_us: step.applied_us,
            shifts: step.shifts.clone(),
            unmoved: step.unmoved.clone(),
            packets_missed: step.packets_missed,
            expected: step.within.map(describe_within),
            holds: step.holds(),
        }
    }
}
