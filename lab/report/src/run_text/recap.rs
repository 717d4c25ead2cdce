//! Renders the end of a run: the cases that did not pass in short form, and the slow ones.

use std::fmt::Write as _;

use crate::results::{CaseDocument, Document};
use crate::run_text::case::CaseRenderer;
use crate::run_text::unexpected::{list_not_run, unexpected_lines};
use crate::text::{render_seconds, strip_colours};
use svclab_runner::results::CaseStatus;

/// Maximum number of slow cases that are listed.
const MAX_SLOW: usize = 10;

/// Minimum duration of a slow case, in milliseconds.
const MIN_SLOW_MS: u64 = 5_000;

/// Minimum ratio of the duration of a slow case to the median.
const MIN_SLOW_RATIO: u64 = 3;

/// Renders the flaky cases, those that did not pass, those that did not run, and the slow ones. The
/// result is empty for a run with one case, whose details are the previous lines.
pub(crate) fn render_recap(results: &Document, renderer: CaseRenderer<'_>) -> String {
    if results.cases.len() + results.not_run.len() < 2 {
        return String::new();
    }
    let mut text = String::new();
    let flaky = |case: &CaseDocument| case.result == CaseStatus::Flaky;
    push_cases(&mut text, "Flaky", &results.cases, flaky, renderer);
    let failed = |case: &CaseDocument| !case.result.has_passed();
    push_cases(&mut text, "Failures", &results.cases, failed, renderer);
    push_slow_cases(&mut text, &results.cases, renderer);
    if !results.not_run.is_empty() {
        let _ = writeln!(text, "\nNot run: {}", list_not_run(&results.not_run));
    }
    if !text.is_empty() {
        text += "\n";
    }
    text
}

/// Adds each selected case with the results that were not as expected, in the last failed try of a
/// flaky case, and the command that repeats the case.
fn push_cases(
    text: &mut String,
    title: &str,
    cases: &[CaseDocument],
    is_selected: impl Fn(&CaseDocument) -> bool,
    renderer: CaseRenderer<'_>,
) {
    let mut selected = cases.iter().filter(|case| is_selected(case)).peekable();
    if selected.peek().is_some() {
        let _ = writeln!(text, "\n{title}:");
    }
    for case in selected {
        let _ = writeln!(text, "  {}", renderer.status_and_name(case));
        let shown = match case.result {
            CaseStatus::Flaky => case.failed_tries.last().unwrap_or(case),
            _ => case,
        };
        for line in unexpected_lines(shown) {
            let _ = writeln!(text, "    {}", strip_colours(&line));
        }
        let _ = writeln!(text, "    {}", renderer.rerun(case));
    }
}

/// Adds the slow cases, slowest first.
fn push_slow_cases(text: &mut String, cases: &[CaseDocument], renderer: CaseRenderer<'_>) {
    let mut durations: Vec<u64> = cases.iter().map(|case| case.duration_ms).collect();
    durations.sort_unstable();
    let Some(&median) = durations.get(durations.len() / 2) else {
        return;
    };
    let limit = MIN_SLOW_MS.max(median.saturating_mul(MIN_SLOW_RATIO));
    let mut slow: Vec<&CaseDocument> = cases.iter().collect();
    slow.retain(|case| case.duration_ms > limit);
    slow.sort_by_key(|case| u64::MAX - case.duration_ms);
    if slow.is_empty() {
        return;
    }
    let _ = writeln!(
        text,
        "\nSlow cases (over 5 s and 3 times the median of {}):",
        render_seconds(median)
    );
    for case in slow.iter().take(MAX_SLOW) {
        let time = render_seconds(case.duration_ms);
        let _ = writeln!(text, "  {time:>9}  {}", strip_colours(&renderer.name(case)));
    }
    if slow.len() > MAX_SLOW {
        let _ = writeln!(text, "  and {} more", slow.len() - MAX_SLOW);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::writer::Options;
    use svclab_runner::results::{CaseResult, ErrorKind, Results, RunError, fixture};

    fn render(cases: Vec<CaseResult>) -> String {
        let options = Options::default();
        let results = Document::from(&Results::new(BTreeMap::new(), cases));
        strip_colours(&render_recap(&results, CaseRenderer::new(&options)))
    }

    fn lasting(name: &str, duration_ms: u64) -> CaseResult {
        CaseResult {
            duration_ms,
            ..fixture::passed(name)
        }
    }

    #[test]
    fn recap_names_failures_and_rerun_commands() {
        insta::assert_snapshot!(render(fixture::results().cases));
    }

    #[test]
    fn recap_lists_missing_parts_of_host() {
        let missing = "kernel modules not available:\n  ip_vs  for the service default/web\n  \
                       dummy  for kube-ipvs0\nand no guest is available: QEMU is not installed";
        let cases = ["lab/a", "lab/b"].map(|name| CaseResult {
            result: CaseStatus::Error,
            error: Some(RunError {
                kind: ErrorKind::Machine,
                message: missing.to_owned(),
                remedy: None,
            }),
            ..fixture::passed(name)
        });
        insta::assert_snapshot!(render(cases.into()));
    }

    #[test]
    fn recap_stopped_run_names_cases_that_did_not_run() {
        let options = Options::default();
        let recap = render_recap(
            &Document::from(&fixture::stopped_results()),
            CaseRenderer::new(&options),
        );
        insta::assert_snapshot!(strip_colours(&recap));
    }

    #[test]
    fn recap_single_case_is_not_repeated() {
        assert_eq!(render(vec![fixture::failed_flow()]), "");
        assert_eq!(render(vec![lasting("lab/a", 60_000)]), "");
    }

    #[test]
    fn recap_slow_cases_exceed_both_limits() {
        let cases = |median, slow| {
            let fast = (0..4).map(|number| lasting(&format!("lab/n={number}"), median));
            fast.chain([lasting("lab/slow", slow)]).collect()
        };
        assert_eq!(render(cases(100, 5_000)), "", "not over 5 s");
        assert_eq!(
            render(cases(2_000, 6_000)),
            "",
            "not over 3 times the median"
        );
        insta::assert_snapshot!(render(cases(2_000, 6_010)));
        let many = (0..30).map(|number| lasting(&format!("lab/n={number}"), 10));
        let slow = (0..12).map(|number| lasting(&format!("lab/slow={number:02}"), 9_000 + number));
        insta::assert_snapshot!(render(many.chain(slow).collect()));
    }
}
