//! The results of a run, as `--format json` prints them.

mod event;
#[cfg(any(test, feature = "fixture"))]
pub mod fixture;
pub mod flows;
pub mod journeys;
pub mod seen;

use std::collections::BTreeMap;
use std::fmt;

use indexmap::IndexMap;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::certify::Certificate;
use flows::{FlowOutcome, FlowTable};
use svclab_diagnostic::{bug, exit_code};
use svclab_judge::{Check, ClaimOutcome, ProbeOutcome, StepOutcome};
use svclab_model::evidence::{Refused, is_none_left_out};

pub use event::Event;

pub use svclab_model::evidence::Surroundings;

/// The name and version of this format.
pub const SCHEMA: &str = "svclab/results/v1";

/// The results of a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Results {
    /// `svclab/results/v1`.
    pub schema: String,
    /// svclab's own version, and by program what each prints for its version.
    pub tools: BTreeMap<String, String>,
    /// What became of each case, in the order of the labs and their cases.
    pub cases: Vec<CaseResult>,
    /// How many cases were begun: each of them is in `cases`, unless the run was
    /// interrupted or svclab has a bug.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub begun: Option<usize>,
    /// How many came to what.
    pub summary: Summary,
    /// What the labs' files hold that has no effect on packets, or another effect than a
    /// cluster's would be.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<Warning>,
    /// The flows of each lab that has any, side by side.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub flows: Vec<FlowTable>,
    /// Whether the run was interrupted: the cases that had not ended are not among
    /// these.
    #[serde(default, skip_serializing_if = "is_not")]
    pub interrupted: bool,
    /// Whether the machine was afterwards as it was before, if that was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub certificate: Option<Certificate>,
}

/// A warning about the file of a lab.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Warning {
    /// The lab.
    pub lab: String,
    /// What is wrong.
    pub message: String,
    /// Where the file says it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub place: Option<Place>,
    /// What to do about it.
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

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks by reference")]
fn is_not(said: &bool) -> bool {
    !said
}

/// How many cases came to what.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Summary {
    /// As expected.
    pub passed: usize,
    /// Not as expected.
    pub failed: usize,
    /// Came to no verdict.
    pub errors: usize,
}

impl Summary {
    /// Counts cases.
    pub fn of<'a>(cases: impl IntoIterator<Item = &'a CaseResult>) -> Self {
        let mut summary = Self::default();
        for case in cases {
            *match case.result {
                Outcome::Pass => &mut summary.passed,
                Outcome::Fail => &mut summary.failed,
                Outcome::Error => &mut summary.errors,
            } += 1;
        }
        summary
    }
}

/// What became of one case.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub struct CaseResult {
    /// The lab.
    pub lab: String,
    /// The case, by its whole name: `lab/axis=value`.
    pub case: String,
    /// How the command line names it, where that is not `case`: a lab that lies
    /// elsewhere is named by its file.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub named: String,
    /// `uname -r` of the kernel it ran in, as the agent saw it; empty if it never
    /// came so far.
    pub kernel: String,
    /// What it came to.
    pub result: Outcome,
    /// From the first namespace to the last verdict, in milliseconds.
    pub duration_ms: u64,
    /// The row of the lab that says what was expected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub place: Option<Place>,
    /// What it says of claims.
    #[serde(default)]
    pub claims: Vec<ClaimOutcome>,
    /// Its probes.
    #[serde(default)]
    pub probes: Vec<ProbeOutcome>,
    /// Its flows, which are among its probes, with the rows that expect something of
    /// them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub flows: Vec<FlowOutcome>,
    /// What was expected on interfaces.
    #[serde(default)]
    pub wire: Vec<Check>,
    /// What was expected of the kernel's counters.
    #[serde(default)]
    pub counters: Vec<Check>,
    /// What was expected of rules.
    #[serde(default)]
    pub rules: Vec<Check>,
    /// What was expected of sets, virtual servers and interfaces.
    #[serde(default)]
    pub held: Vec<Check>,
    /// Its steps, and when traffic moved after each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub steps: Vec<StepOutcome>,
    /// What its nodes' API servers did not serve, though real kube-proxies wrote their
    /// rules all the same: part of no verdict. Where one did not, `error` tells it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub refused: Vec<Refused>,
    /// How many requests more that were.
    #[serde(default, skip_serializing_if = "is_none_left_out")]
    pub refused_left_out: u64,
    /// Why it came to no verdict, if it did not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<RunError>,
}

/// A line of a file that a user wrote.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Place {
    /// The file, as it was named when it was read.
    pub file: String,
    /// The line, from 1.
    pub line: u32,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.file, self.line)
    }
}

/// What a case came to.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    /// Everything was as expected.
    Pass,
    /// Something was not.
    Fail,
    /// There is no verdict.
    Error,
}

/// Why a case came to no verdict.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RunError {
    /// What kind of trouble it is.
    pub trouble: Trouble,
    /// What happened.
    pub message: String,
    /// What to do about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remedy: Option<String>,
}

impl RunError {
    /// The error of work that panicked with `payload`.
    #[must_use]
    pub fn panicked(payload: &(dyn std::any::Any + Send)) -> Self {
        Self {
            trouble: Trouble::Bug,
            message: bug::message_of(payload),
            remedy: Some(bug::REMEDY.to_owned()),
        }
    }

    /// The error of work that was given no kernel, though none is missing.
    #[must_use]
    pub fn no_kernel() -> Self {
        Self {
            trouble: Trouble::Bug,
            message: "no kernel was chosen, and none is missing".to_owned(),
            remedy: Some(bug::REMEDY.to_owned()),
        }
    }
}

/// What kept a case from its verdict; decides the exit code.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum Trouble {
    /// The lab asks for what no kernel takes: exit 2.
    Input,
    /// This machine lacks something: exit 3.
    Machine,
    /// The agent was lost: exit 5.
    Lost,
    /// A bug in svclab: exit 70.
    Bug,
}

impl Trouble {
    /// The exit code that stands for it.
    #[must_use]
    pub const fn exit_code(self) -> u8 {
        match self {
            Self::Input => exit_code::INPUT,
            Self::Machine => exit_code::MACHINE,
            Self::Lost => exit_code::LOST,
            Self::Bug => exit_code::BUG,
        }
    }
}

impl Outcome {
    /// How it is written where it has to stand out: `PASS`, `FAIL`, `ERROR`.
    #[must_use]
    pub const fn shout(self) -> &'static str {
        match self {
            Self::Pass => "PASS",
            Self::Fail => "FAIL",
            Self::Error => "ERROR",
        }
    }
}

impl Trouble {
    /// What it is, in a few words.
    #[must_use]
    pub const fn words(self) -> &'static str {
        match self {
            Self::Input => "the lab is wrong",
            Self::Machine => "this machine cannot run it",
            Self::Lost => "the agent was lost",
            Self::Bug => "a bug in svclab",
        }
    }
}

impl CaseResult {
    /// A case that came to no verdict, of which nothing else is known.
    #[must_use]
    pub fn without_verdict(lab: &str, case: &str, error: RunError) -> Self {
        Self {
            error: Some(error),
            ..Self::empty(lab, case)
        }
    }

    /// A case with this name and no evidence.
    #[must_use]
    pub fn empty(lab: &str, case: &str) -> Self {
        Self {
            lab: lab.to_owned(),
            case: case.to_owned(),
            named: String::new(),
            kernel: String::new(),
            result: Outcome::Error,
            duration_ms: 0,
            place: None,
            claims: Vec::new(),
            probes: Vec::new(),
            flows: Vec::new(),
            wire: Vec::new(),
            counters: Vec::new(),
            rules: Vec::new(),
            held: Vec::new(),
            steps: Vec::new(),
            refused: Vec::new(),
            refused_left_out: 0,
            error: None,
        }
    }

    /// The case's name within its lab: `policy=Local,rpFilter=0`; the lab's own
    /// when it has only one case.
    #[must_use]
    pub fn short_name(&self) -> &str {
        self.case
            .strip_prefix(&self.lab)
            .and_then(|rest| rest.strip_prefix('/'))
            .unwrap_or(&self.case)
    }

    /// Every check that is not a probe's.
    pub fn checks(&self) -> impl Iterator<Item = &Check> {
        self.wire
            .iter()
            .chain(&self.counters)
            .chain(&self.rules)
            .chain(&self.held)
    }
}

impl Results {
    /// Results of cases that ran with these programs.
    #[must_use]
    pub fn new(tools: BTreeMap<String, String>, cases: Vec<CaseResult>) -> Self {
        let summary = Summary::of(&cases);
        Self {
            schema: SCHEMA.to_owned(),
            tools,
            cases,
            begun: None,
            summary,
            warnings: Vec::new(),
            flows: Vec::new(),
            interrupted: false,
            certificate: None,
        }
    }

    /// The cases of each lab, in the order in which the labs come first.
    #[must_use]
    pub fn by_lab(&self) -> IndexMap<&str, Vec<&CaseResult>> {
        let mut labs = IndexMap::<_, Vec<_>>::new();
        for case in &self.cases {
            labs.entry(case.lab.as_str()).or_default().push(case);
        }
        labs
    }

    /// Whether it is certified that the machine changed.
    #[must_use]
    pub fn left_something(&self) -> bool {
        self.certificate
            .as_ref()
            .is_some_and(|certificate| !certificate.unchanged)
    }

    /// How many cases of a run that came to its end have no result.
    #[must_use]
    pub fn lost(&self) -> usize {
        match self.begun {
            Some(begun) if !self.interrupted => begun.abs_diff(self.cases.len()),
            _ => 0,
        }
    }

    /// The exit code of a run with these results: the worst trouble's, else 1 if
    /// an expectation failed or the machine changed, else 0. Results that do not add up
    /// are a bug, 70. Of a run that was interrupted only a change of the machine can be
    /// said: 1, else 130.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        if self.interrupted {
            return if self.left_something() {
                exit_code::FAILED
            } else {
                exit_code::INTERRUPTED
            };
        }
        let untold = |case: &CaseResult| (case.result == Outcome::Error) != case.error.is_some();
        if self.lost() > 0
            || self.summary != Summary::of(&self.cases)
            || self.cases.iter().any(untold)
        {
            return exit_code::BUG;
        }
        let troubles = self
            .cases
            .iter()
            .filter_map(|case| case.error.as_ref())
            .map(|error| error.trouble);
        match troubles.max() {
            Some(trouble) => trouble.exit_code(),
            None if self.summary.failed > 0 || self.left_something() => exit_code::FAILED,
            None => exit_code::SUCCESS,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::fixture;

    fn of(cases: Vec<CaseResult>) -> Results {
        let mut results = Results::new(BTreeMap::new(), cases);
        results.begun = Some(results.cases.len());
        results
    }

    #[test]
    fn run_that_lost_a_case_ends_as_a_bug() {
        let mut results = of(vec![fixture::passed("lab/a")]);
        assert_eq!(results.exit_code(), exit_code::SUCCESS);
        for begun in [0, 2] {
            results.begun = Some(begun);
            assert_eq!((results.lost(), results.exit_code()), (1, exit_code::BUG));
        }
        // Fewer results are what an interruption is.
        results.interrupted = true;
        assert_eq!(
            (results.lost(), results.exit_code()),
            (0, exit_code::INTERRUPTED)
        );
    }

    #[test]
    fn results_that_contradict_themselves_end_as_a_bug() {
        let mut results = of(vec![fixture::passed("lab/a")]);
        results.cases[0].result = Outcome::Error;
        assert_eq!(
            results.exit_code(),
            exit_code::BUG,
            "its summary says it passed"
        );
        results.summary = Summary::of(&results.cases);
        assert_eq!(results.exit_code(), exit_code::BUG, "nothing says why");
    }
}
