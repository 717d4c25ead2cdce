//! Renders a run as a Markdown page: a table of the labs, and one of the cases that did not pass.

use super::case_text::seen_of;
use super::{certificate, words};
use svclab_runner::results::{CaseResult, Outcome, Results, Summary};

/// Maximum number of rows of a page: GitHub rejects step summaries above 1 MiB.
const ROWS: usize = 200;

/// Renders the page. `summary` is the summary line of the run.
pub(super) fn page(results: &Results, summary: &str) -> String {
    let labs = results.by_lab();
    let labs = labs.iter().map(|(lab, cases)| {
        let counts = Summary::of(cases.iter().copied());
        let time = cases.iter().map(|case| case.duration_ms).sum();
        format!(
            "| {} | {} | {} | {} | {} |\n",
            text(lab),
            counts.passed,
            counts.failed,
            counts.errors,
            words::seconds(time)
        )
    });
    let mut parts = vec![
        format!("### svclab\n\n{}\n\n", text(summary)),
        "| lab | passed | failed | errors | time |\n|---|--:|--:|--:|--:|\n".to_owned(),
    ];
    parts.extend(labs);
    let wrong = results
        .cases
        .iter()
        .filter(|case| case.result != Outcome::Pass);
    let mut rows: Vec<String> = wrong.flat_map(rows).collect();
    if !rows.is_empty() {
        parts.push("\n| | case | expected | seen |\n|---|---|---|---|\n".to_owned());
        let left_out = rows.len().saturating_sub(ROWS);
        rows.truncate(ROWS);
        parts.append(&mut rows);
        if left_out > 0 {
            parts.push(format!("\nand {left_out} more rows\n"));
        }
    }
    if let Some(certificate) = &results.certificate {
        let line = certificate::headline(certificate);
        parts.push(format!("\n{}\n", text(&line)));
    }
    parts.concat()
}

fn rows(case: &CaseResult) -> Vec<String> {
    let row = |expected: &str, seen: &str| {
        format!(
            "| {} | {} | {} | {} |\n",
            case.result.shout(),
            text(&case.case),
            text(expected),
            text(seen)
        )
    };
    if let Some(error) = &case.error {
        let seen = match &error.remedy {
            Some(remedy) => format!("{}\n{remedy}", error.message),
            None => error.message.clone(),
        };
        return vec![row("", &seen)];
    }
    let probes = case
        .probes
        .iter()
        .filter(|probe| !probe.holds)
        .map(|probe| {
            let expected = probe.expected.as_deref().unwrap_or_default();
            row(&format!("{}: {expected}", probe.name), &seen_of(probe))
        });
    let checks = case.checks().filter(|check| !check.holds).map(|check| {
        row(
            &format!("{}: {}", check.on, check.expected),
            &check.observed,
        )
    });
    let steps = case.steps.iter().filter(|step| !step.holds).map(|step| {
        let expected = step.expected.as_deref().unwrap_or_default();
        row(&format!("step {}: {expected}", step.name), &step.seen())
    });
    probes.chain(checks).chain(steps).collect()
}

/// Escapes text for a table cell.
fn text(text: &str) -> String {
    let mut cell = String::new();
    for character in text.trim().chars() {
        match character {
            '&' => cell += "&amp;",
            '<' => cell += "&lt;",
            '>' => cell += "&gt;",
            '\n' => cell += "<br>",
            '\r' => {}
            '\\' | '`' | '*' | '_' | '[' | ']' | '|' | '#' | '~' => {
                cell.push('\\');
                cell.push(character);
            }
            _ => cell.push(character),
        }
    }
    cell
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::fixture;

    #[test]
    fn a_cell_stays_a_cell() {
        assert_eq!(
            text("a|b\n<i>`c`</i> & d_e\r"),
            r"a\|b<br>&lt;i&gt;\`c\`&lt;/i&gt; &amp; d\_e"
        );
    }

    #[test]
    fn a_long_page_says_what_it_leaves_out() {
        let wrong = fixture::results().cases.remove(3);
        let rows = rows(&wrong).len();
        let cases = vec![wrong; ROWS];
        let page = page(&Results::new(BTreeMap::new(), cases), "");
        let left_out = format!("and {} more rows\n", ROWS * rows - ROWS);
        assert!(page.ends_with(&left_out), "{page}");
        assert_eq!(page.matches("| FAIL |").count(), ROWS);
    }

    #[test]
    fn nothing_wrong_is_no_table() {
        let results = Results::new(BTreeMap::new(), vec![fixture::passed("lab/a")]);
        let page = page(&results, "1 passed");
        assert!(!page.contains("expected"), "{page}");
    }
}
