//! Additions to a report beside the results of its cases: the answer of the command that ran them.

use std::collections::HashMap;

use crate::case_additions::{CaseAdditions, ProbeFixes};
use crate::case_details::CaseDetails;
use crate::commands::verify::ComparedTables;
use svclab_experiment::why::Finding;
use svclab_runner::results::CaseResult;
use svclab_runner::run::CaseEvidence;

/// Additions to a report.
#[derive(Debug, Clone, Default)]
pub struct Additions {
    /// Answer of the command. Absent for `svclab run`, whose answer is the table of cases.
    pub answer: Option<Answer>,
    /// Additions by the name of the case.
    pub cases: HashMap<String, CaseAdditions>,
}

/// Answer of a command.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Answer {
    /// Title of the page, such as `svclab why clb-hairpin`.
    pub title: String,
    /// Command that gives the answer again.
    pub command: String,
    /// Answer as the command prints it, without colours.
    pub text: String,
    /// Answer as the JSON document that the command prints.
    pub json: String,
    /// Tables of flows that are part of the answer.
    pub flows: ComparedTables,
}

impl Additions {
    /// Creates the additions of `svclab why`.
    #[must_use]
    pub fn of_why(answer: Answer, findings: &[Finding]) -> Self {
        let cases = findings.iter().map(|finding| {
            let additions = CaseAdditions {
                unjudged: false,
                side: None,
                fixes: Some(finding.failing.iter().map(ProbeFixes::from).collect()),
                useless_changes: finding.useless_changes().cloned().collect(),
                untried_pairs: finding.untried_pairs,
                stopped: finding.stopped.clone(),
                unread: finding.unread.clone(),
            };
            (finding.case.clone(), additions)
        });
        Self {
            answer: Some(answer),
            cases: cases.collect(),
        }
    }

    /// Returns the details of a case. `rerun_command` is the command that repeats a case of a run,
    /// without the case name.
    pub(crate) fn details(
        &self,
        result: &CaseResult,
        seen: Option<&CaseEvidence>,
        rerun_command: &str,
    ) -> CaseDetails {
        let mut details = CaseDetails::new(result, seen, rerun_command);
        if let Some(additions) = self.cases.get(&result.case) {
            details.additions = additions.clone();
        }
        if let Some(answer) = &self.answer {
            details.rerun.clone_from(&answer.command);
        }
        details
    }
}
