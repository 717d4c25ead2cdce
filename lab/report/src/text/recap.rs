//! Renders the end of a run: the cases that did not pass in short form, and the slow ones.

use std::fmt::Write as _;

use crate::text::case::CaseRenderer;
use crate::text::expectation::{describe_check, describe_probe, describe_step};
use crate::text::{count, render_seconds, shell_quote, strip_colours};
use svclab_runner::results::{CaseResult, CaseStatus, Results};

/// Maximum number of unexpected results that are listed for a case.
const MAX_RESULTS: usize = 3;

/// Maximum number of slow cases that are listed.
const MAX_SLOW: usize = 10;

/// Minimum duration of a slow case, in milliseconds.
const MIN_SLOW_MS: u64 = 5_000;

/// Minimum ratio of the duration of a slow case to the median.
const MIN_SLOW_RATIO: u64 = 3;

/// Renders the cases that did not pass, and the slow cases. The result is empty for a run with one
/// case, whose details are the previous lines.
pub(crate) fn render_recap(results: &Results, renderer: CaseRenderer<'_>) -> String {
    if results.cases.len() < 2 {
        return String::new();
    }
    let mut text = String::new();
    let failed = results.cases.iter();
    let failed: Vec<_> = failed
        .filter(|case| case.result != CaseStatus::Pass)
        .collect();
    if !failed.is_empty() {
        text += "\nFailures:\n";
    }
    for case in failed {
        push_failure(&mut text, case, renderer);
    }
    push_slow_cases(&mut text, &results.cases, renderer);
    if !text.is_empty() {
        text += "\n";
    }
    text
}

/// Adds the name of a case, its first unexpected results and the command that repeats it.
fn push_failure(text: &mut String, case: &CaseResult, renderer: CaseRenderer<'_>) {
    let _ = writeln!(text, "  {}", renderer.status_and_name(case));
    let mut unexpected = unexpected_results(case);
    let others = unexpected.len().saturating_sub(MAX_RESULTS);
    unexpected.truncate(MAX_RESULTS);
    if others > 0 {
        unexpected.push(format!("and {}", count(others, "other", "others")));
    }
    for line in unexpected {
        let _ = writeln!(text, "    {}", strip_colours(&line));
    }
    let _ = writeln!(text, "    {}", renderer.rerun(case));
}

/// Describes each unexpected result of a case in a line, or its error.
fn unexpected_results(case: &CaseResult) -> Vec<String> {
    if let Some(error) = &case.error {
        let message = error.message.lines().next().unwrap_or_default();
        return vec![format!("{}: {message}", error.kind.description())];
    }
    let line = |name: &str, (expected, seen): (String, String)| {
        format!("{name}: expected {expected}; seen {seen}")
    };
    let probes = case.probes.iter().filter(|probe| !probe.holds);
    let checks = case.checks().filter(|check| !check.holds());
    let steps = case.steps.iter().filter(|step| !step.holds());
    probes
        .map(|probe| line(&probe.name, describe_probe(probe)))
        .chain(checks.map(|check| line(&check.target(), describe_check(check))))
        .chain(steps.map(|step| line(&format!("step {}", step.name), describe_step(step))))
        .collect()
}

/// Adds the slow cases, slowest first.
fn push_slow_cases(text: &mut String, cases: &[CaseResult], renderer: CaseRenderer<'_>) {
    let mut durations: Vec<u64> = cases.iter().map(|case| case.duration_ms).collect();
    durations.sort_unstable();
    let Some(&median) = durations.get(durations.len() / 2) else {
        return;
    };
    let limit = MIN_SLOW_MS.max(median.saturating_mul(MIN_SLOW_RATIO));
    let mut slow: Vec<&CaseResult> = cases.iter().collect();
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
    use svclab_runner::results::fixture;

    fn render(cases: Vec<CaseResult>) -> String {
        let options = Options::default();
        let results = Results::new(BTreeMap::new(), cases);
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
