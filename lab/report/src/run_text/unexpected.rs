//! Describes in short form why a case did not pass, and which cases did not run.

use crate::results::{CaseDocument, CheckDocument, Document, ProbeDocument, StepDocument};
use crate::text::expectation::{describe_observed, describe_shifts};
use crate::text::{count, list_first};
use svclab_runner::results::NotRunCase;

/// Maximum number of unexpected results that are listed for a case.
const MAX_RESULTS: usize = 3;

/// Describes the first unexpected results of a case, each in a line, or its error.
pub(crate) fn unexpected_lines(case: &CaseDocument) -> Vec<String> {
    if let Some(error) = &case.error {
        let mut lines = error.message.lines();
        let mut message = lines.next().unwrap_or_default().to_owned();
        if message.ends_with(':') {
            let items = lines.clone().take_while(|line| line.starts_with("  "));
            let items: Vec<&str> = items.map(str::trim).collect();
            message += " ";
            message += &match items.as_slice() {
                // The output of a program.
                [] => lines
                    .next_back()
                    .map(str::trim)
                    .unwrap_or_default()
                    .to_owned(),
                // What is missing, one in each line.
                items => items.join("; "),
            };
        }
        return vec![format!("{}: {message}", error.kind.description())];
    }
    let mut lines: Vec<String> = unexpected_results(case)
        .into_iter()
        .map(|(name, (expected, seen))| format!("{name}: expected {expected}; seen {seen}"))
        .collect();
    let others = lines.len().saturating_sub(MAX_RESULTS);
    lines.truncate(MAX_RESULTS);
    if others > 0 {
        lines.push(format!("and {}", count(others, "other", "others")));
    }
    lines
}

/// Returns the name, the expectation and the observation of each unexpected result of a case.
pub(crate) fn unexpected_results(case: &CaseDocument) -> Vec<(String, (String, String))> {
    let probes = case.probes.iter().filter(|probe| !probe.holds);
    let probes = probes.map(|probe| (probe.name.clone(), compare_probe(probe)));
    let checks = case.checks().filter(|check| !check.holds);
    let checks = checks.map(|check| (check.target.clone(), compare_check(check)));
    let steps = case.steps.iter().filter(|step| !step.holds);
    let steps = steps.map(|step| (format!("step {}", step.name), compare_step(step)));
    probes.chain(checks).chain(steps).collect()
}

/// Returns the expectation, empty if there is none, and the observation of a probe.
pub(crate) fn compare_probe(probe: &ProbeDocument) -> (String, String) {
    let expected = probe.expected.clone().unwrap_or_default();
    (expected, describe_observed(&probe.observed))
}

/// Returns the expectation and the observation of a check.
pub(crate) fn compare_check(check: &CheckDocument) -> (String, String) {
    (check.expected.clone(), check.observed.clone())
}

/// Returns the expectation, empty if there is none, and the observation of a step.
pub(crate) fn compare_step(step: &StepDocument) -> (String, String) {
    let expected = step.expected.clone().unwrap_or_default();
    (
        expected,
        describe_shifts(&step.shifts, &step.unmoved, step.packets_missed),
    )
}

/// Describes the cases that did not run in a run that svclab stopped: `5 cases did not run: stopped
/// after the first failure`. `None` if svclab did not stop the run.
pub(crate) fn describe_stopped(results: &Document) -> Option<String> {
    let reason = results.stopped?.description();
    let not_run = count(results.not_run.len(), "case", "cases");
    Some(format!("{not_run} did not run: {reason}"))
}

/// Names the first cases that did not run, and counts the others.
pub(crate) fn list_not_run(cases: &[NotRunCase]) -> String {
    list_first(cases.iter().map(|case| &case.case))
}
