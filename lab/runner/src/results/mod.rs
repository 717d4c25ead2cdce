//! Results of a run.

#[cfg(any(test, feature = "fixture"))]
pub mod fixture;
pub mod flows;
mod incomplete;
mod run_facts;
mod summary;

use std::collections::BTreeMap;
use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::certify::Certificate;
use flows::{FlowOutcome, FlowTable};
use svclab_diagnostic::source::{Sources, Span};
use svclab_diagnostic::{bug, exit_code};
use svclab_judge::{Check, ClaimOutcome, ProbeOutcome, StepOutcome};
use svclab_model::evidence::RejectedRequest;

pub use incomplete::{NotRunCase, StopReason};
pub use run_facts::{RunFacts, RunStart, ShardFacts};
pub use summary::Summary;
pub use svclab_model::evidence::Environment;

/// Results of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Results {
    /// Versions by program: that of svclab, and the version text that each other program prints.
    pub tools: BTreeMap<String, String>,
    /// Result of each case, in the order of the labs and their cases.
    pub cases: Vec<CaseResult>,
    /// When and how the run was made.
    pub run: Option<RunFacts>,
    /// Number of cases to run. Each of them is in `cases` or in `not_run`, unless svclab has a bug.
    pub begun: Option<usize>,
    /// Number of cases by status.
    pub summary: Summary,
    /// Warnings about contents of the lab files that have no effect on packets, or another effect
    /// than in a cluster.
    pub warnings: Vec<Warning>,
    /// Flow table of each lab that has flows.
    pub flows: Vec<FlowTable>,
    /// Whether the run was interrupted. `cases` then lacks the cases that had not finished.
    pub interrupted: bool,
    /// Reason why svclab itself ended the run before all cases had a result. `None` if it did not.
    pub stopped: Option<StopReason>,
    /// Cases without a result, because the run was interrupted or stopped.
    pub not_run: Vec<NotRunCase>,
    /// Comparison of the machine before and after the run. Absent unless requested.
    pub certificate: Option<Certificate>,
}

/// Warning about a lab file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Warning {
    /// Name of the lab.
    pub lab: String,
    /// Description of the problem.
    pub message: String,
    /// Location of the problem in the lab file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub location: Option<FileLine>,
    /// Steps that resolve the problem.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub help: Option<String>,
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        match &self.help {
            Some(help) => write!(f, "\nhelp: {help}"),
            None => Ok(()),
        }
    }
}

/// Result of a case.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CaseResult {
    /// Name of the lab.
    pub lab: String,
    /// Full name of the case: `lab/axis=value`.
    pub case: String,
    /// Name of the case on the command line, if it is not `case`: a lab outside the directory of
    /// labs is named by its file.
    pub named: String,
    /// Release of the kernel that the case ran in, as the agent reports it (`uname -r`). Empty if
    /// no agent was reached.
    pub kernel: String,
    /// Status of the case.
    pub result: CaseStatus,
    /// Time from the first namespace to the last verdict, in milliseconds.
    pub duration_ms: u64,
    /// Location of the row of the lab that states the expectations.
    pub location: Option<FileLine>,
    /// Outcomes of the claims that the case tests.
    pub claims: Vec<ClaimOutcome>,
    /// Results of the probes.
    pub probes: Vec<ProbeOutcome>,
    /// Results of the flows, with the rows that state their expectations. Every flow is also in
    /// `probes`.
    pub flows: Vec<FlowOutcome>,
    /// Checks of packets on interfaces.
    pub wire: Vec<Check>,
    /// Checks of kernel counters.
    pub counters: Vec<Check>,
    /// Checks of rules.
    pub rules: Vec<Check>,
    /// Checks of sets, virtual servers and interfaces.
    pub kernel_state: Vec<Check>,
    /// Results of the steps, with the time at which traffic moved after each.
    pub steps: Vec<StepOutcome>,
    /// Requests that the API servers of the nodes did not serve, although the real kube-proxies
    /// wrote their rules. No verdict depends on these requests. If a kube-proxy did not write its
    /// rules, `error` describes the cause.
    pub refused: Vec<RejectedRequest>,
    /// Number of further requests that are not listed in `refused`.
    pub refused_missed: u64,
    /// Number of connections with the source port of an earlier connection. Conntrack may treat
    /// their packets as packets of the earlier connection.
    pub repeated_ports: u64,
    /// Pods and load balancers that svclab made for the case, one line each.
    pub made: Vec<String>,
    /// Earlier tries of the case, in which it did not pass, oldest first.
    pub failed_tries: Vec<CaseResult>,
    /// Reason why the case has no verdict. Absent if it has one.
    pub error: Option<RunError>,
}

/// Line of a file that the user wrote.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FileLine {
    /// File name, as it was given when the file was read.
    pub file: String,
    /// Line number, from 1.
    pub line: u32,
}

impl FileLine {
    /// Returns the line at which a range starts. `None` if the file is not one of `sources`.
    pub(crate) fn from_span(sources: &Sources, span: Span) -> Option<Self> {
        Some(Self {
            file: sources.get(span.file)?.name().to_owned(),
            line: span.line,
        })
    }
}

impl fmt::Display for FileLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.file, self.line)
    }
}

/// Status of a case.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum CaseStatus {
    /// All expectations hold.
    Pass,
    /// All expectations hold in a repeated try, but not in the first.
    Flaky,
    /// An expectation fails.
    Fail,
    /// The case has no verdict.
    Error,
}

/// Reason why a case has no verdict.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RunError {
    /// Kind of the error.
    pub kind: ErrorKind,
    /// Description of the error.
    pub message: String,
    /// Steps that resolve the error.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remedy: Option<String>,
}

impl RunError {
    /// Returns the error of work that panicked with `payload`.
    #[must_use]
    pub fn panicked(payload: &(dyn std::any::Any + Send)) -> Self {
        Self {
            kind: ErrorKind::Bug,
            message: bug::panic_message(payload),
            remedy: Some(bug::REMEDY.to_owned()),
        }
    }

    /// Returns the error of work that received no kernel although no requirement is missing.
    #[must_use]
    pub fn no_kernel() -> Self {
        Self {
            kind: ErrorKind::Bug,
            message: "no kernel was selected, although no requirement is missing".to_owned(),
            remedy: Some(bug::REMEDY.to_owned()),
        }
    }
}

/// Kind of an error that prevents a verdict. Determines the exit code.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "camelCase")]
pub enum ErrorKind {
    /// The case exceeded its time limit: exit code 1.
    Timeout,
    /// A real kube-proxy ended, or did not write its rules: exit code 1.
    KubeProxy,
    /// The lab contains something that no kernel accepts: exit code 2.
    Input,
    /// This machine lacks something: exit code 3.
    Machine,
    /// The agent was lost: exit code 5.
    Lost,
    /// svclab has a bug: exit code 70.
    Bug,
}

impl ErrorKind {
    /// Returns the exit code for this kind of error.
    #[must_use]
    pub const fn exit_code(self) -> u8 {
        match self {
            Self::Timeout | Self::KubeProxy => exit_code::FAILED,
            Self::Input => exit_code::INVALID_INPUT,
            Self::Machine => exit_code::HOST_UNABLE,
            Self::Lost => exit_code::AGENT_LOST,
            Self::Bug => exit_code::BUG,
        }
    }
}

impl CaseStatus {
    /// Whether all expectations hold, at least in the last try.
    #[must_use]
    pub const fn has_passed(self) -> bool {
        matches!(self, Self::Pass | Self::Flaky)
    }

    /// Returns the status in upper case: `PASS`, `FLAKY`, `FAIL`, `ERROR`.
    #[must_use]
    pub const fn upper_case_name(self) -> &'static str {
        match self {
            Self::Pass => "PASS",
            Self::Flaky => "FLAKY",
            Self::Fail => "FAIL",
            Self::Error => "ERROR",
        }
    }
}

impl ErrorKind {
    /// Returns a short description.
    #[must_use]
    pub const fn description(self) -> &'static str {
        match self {
            Self::Timeout => "time limit exceeded",
            Self::KubeProxy => "kube-proxy failed",
            Self::Input => "the lab is invalid",
            Self::Machine => "this machine cannot run it",
            Self::Lost => "the agent was lost",
            Self::Bug => "a bug in svclab",
        }
    }
}

impl CaseResult {
    /// Returns the result of a case without a verdict and without evidence.
    #[must_use]
    pub fn without_verdict(lab: &str, case: &str, error: RunError) -> Self {
        Self {
            error: Some(error),
            ..Self::empty(lab, case)
        }
    }

    /// Returns a result with this name and without evidence.
    #[must_use]
    pub fn empty(lab: &str, case: &str) -> Self {
        Self {
            lab: lab.to_owned(),
            case: case.to_owned(),
            named: String::new(),
            kernel: String::new(),
            result: CaseStatus::Error,
            duration_ms: 0,
            location: None,
            claims: Vec::new(),
            probes: Vec::new(),
            flows: Vec::new(),
            wire: Vec::new(),
            counters: Vec::new(),
            rules: Vec::new(),
            kernel_state: Vec::new(),
            steps: Vec::new(),
            refused: Vec::new(),
            refused_missed: 0,
            repeated_ports: 0,
            made: Vec::new(),
            failed_tries: Vec::new(),
            error: None,
        }
    }

    /// Returns the name of the case within its lab: `policy=Local,rpFilter=0`. If the lab has only
    /// one case, returns the name of the lab.
    #[must_use]
    pub fn short_name(&self) -> &str {
        short_name(&self.lab, &self.case)
    }

    /// Returns all checks except those of probes.
    pub fn checks(&self) -> impl Iterator<Item = &Check> {
        self.wire
            .iter()
            .chain(&self.counters)
            .chain(&self.rules)
            .chain(&self.kernel_state)
    }
}

/// Returns the name of a case within its lab; see [`CaseResult::short_name`].
#[must_use]
pub fn short_name<'c>(lab: &str, case: &'c str) -> &'c str {
    case.strip_prefix(lab)
        .and_then(|rest| rest.strip_prefix('/'))
        .unwrap_or(case)
}

impl Results {
    /// Creates the results of cases that ran with these programs.
    #[must_use]
    pub fn new(tools: BTreeMap<String, String>, cases: Vec<CaseResult>) -> Self {
        let summary = Summary::from_cases(&cases);
        Self {
            tools,
            cases,
            run: None,
            begun: None,
            summary,
            warnings: Vec::new(),
            flows: Vec::new(),
            interrupted: false,
            stopped: None,
            not_run: Vec::new(),
            certificate: None,
        }
    }

    /// Whether the certificate states that the machine changed.
    #[must_use]
    pub fn has_machine_changed(&self) -> bool {
        self.certificate
            .as_ref()
            .is_some_and(|certificate| !certificate.unchanged)
    }

    /// Returns the number of cases without a result that are not in `not_run`; 0 for an interrupted
    /// run.
    #[must_use]
    pub fn count_missing_results(&self) -> usize {
        match self.begun {
            Some(begun) if !self.interrupted => {
                begun.abs_diff(self.cases.len() + self.not_run.len())
            }
            _ => 0,
        }
    }

    /// Whether there are flaky cases, and the run counts them as failures.
    #[must_use]
    pub fn has_failing_flaky_cases(&self) -> bool {
        let flaky_fails = self.run.as_ref().is_some_and(|run| run.flaky_fails);
        flaky_fails && self.summary.flaky > 0
    }

    /// Returns the exit code of a run with these results: that of the worst error, else 1 if an
    /// expectation failed, a case did not run, flaky cases fail or the machine changed, else 0. Contradictory results
    /// are a bug: 70. An interrupted run returns 1 if the machine changed, else 130.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        if self.interrupted {
            return if self.has_machine_changed() {
                exit_code::FAILED
            } else {
                exit_code::INTERRUPTED
            };
        }
        let is_contradictory =
            |case: &CaseResult| (case.result == CaseStatus::Error) != case.error.is_some();
        if self.count_missing_results() > 0
            || self.summary != Summary::from_cases(&self.cases)
            || self.cases.iter().any(is_contradictory)
        {
            return exit_code::BUG;
        }
        let kinds = self
            .cases
            .iter()
            .filter_map(|case| case.error.as_ref())
            .map(|error| error.kind);
        match kinds.max() {
            Some(trouble) => trouble.exit_code(),
            None if self.summary.failed > 0
                || self.stopped.is_some()
                || self.has_failing_flaky_cases()
                || self.has_machine_changed() =>
            {
                exit_code::FAILED
            }
            None => exit_code::SUCCESS,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::fixture;

    fn results_of(cases: Vec<CaseResult>) -> Results {
        let mut results = Results::new(BTreeMap::new(), cases);
        results.begun = Some(results.cases.len());
        results
    }

    #[test]
    fn exit_code_missing_result_is_bug() {
        let mut results = results_of(vec![fixture::passed("lab/a")]);
        assert_eq!(results.exit_code(), exit_code::SUCCESS);
        for begun in [0, 2] {
            results.begun = Some(begun);
            assert_eq!(
                (results.count_missing_results(), results.exit_code()),
                (1, exit_code::BUG)
            );
        }
        // An interrupted run may have fewer results.
        results.interrupted = true;
        assert_eq!(
            (results.count_missing_results(), results.exit_code()),
            (0, exit_code::INTERRUPTED)
        );
    }

    #[test]
    fn exit_code_stopped_run_is_failure() {
        let mut results = results_of(vec![fixture::passed("lab/a")]);
        results.begun = Some(2);
        results.stopped = Some(StopReason::RunTimeout);
        assert_eq!(results.exit_code(), exit_code::BUG, "a case is missing");
        results.not_run = vec![fixture::not_run("lab/b")];
        assert_eq!(results.exit_code(), exit_code::FAILED);
        results.cases[0] = fixture::timed_out_case();
        results.summary = Summary::from_cases(&results.cases);
        assert_eq!(results.exit_code(), exit_code::FAILED);
    }

    #[test]
    fn exit_code_flaky_case_is_success() {
        let results = results_of(vec![fixture::flaky()]);
        assert_eq!((results.summary.passed, results.summary.flaky), (0, 1));
        assert_eq!(results.exit_code(), exit_code::SUCCESS);
        let mut facts = RunStart::now().facts(1, "svclab run".to_owned());
        facts.flaky_fails = true;
        let failing = Results {
            run: Some(facts),
            ..results
        };
        assert_eq!(failing.exit_code(), exit_code::FAILED);
    }

    #[test]
    fn exit_code_contradictory_results_is_bug() {
        let mut results = results_of(vec![fixture::passed("lab/a")]);
        results.cases[0].result = CaseStatus::Error;
        assert_eq!(
            results.exit_code(),
            exit_code::BUG,
            "the summary counts a passed case"
        );
        results.summary = Summary::from_cases(&results.cases);
        assert_eq!(results.exit_code(), exit_code::BUG, "the case has no error");
    }
}
