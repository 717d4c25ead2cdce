//! Renders a run as a Markdown page: a table of the labs, and one of the cases that did not pass.

use crate::results::{CaseDocument, Document};
use crate::run_text::case::CaseRenderer;
use crate::run_text::unexpected::{describe_stopped, list_not_run, unexpected_results};
use crate::text::{self, certificate};
use svclab_runner::results::{CaseStatus, Summary};

/// Maximum number of rows of a page: GitHub rejects step summaries above 1 MiB.
const MAX_ROWS: usize = 200;

/// Renders the page. `summary` is the summary line of the run.
pub(crate) fn render_page(results: &Document, summary: &str, renderer: CaseRenderer<'_>) -> String {
    let has_flaky = results.summary.flaky > 0;
    let labs = results.by_lab();
    let labs = labs.iter().map(|(lab, cases)| {
        let counts = Summary::from_statuses(cases.iter().map(|case| case.result));
        let time = cases.iter().map(|case| case.duration_ms).sum();
        format!(
            "| {} | {} |{} {} | {} | {} |\n",
            escape_text(lab),
            counts.passed,
            if has_flaky {
                format!(" {} |", counts.flaky)
            } else {
                String::new()
            },
            counts.failed,
            counts.errors,
            text::render_seconds(time)
        )
    });
    let mut parts = vec![
        format!("### svclab\n\n{}\n\n", escape_text(summary)),
        if has_flaky {
            "| lab | passed | flaky | failed | errors | time |\n|---|--:|--:|--:|--:|--:|\n"
        } else {
            "| lab | passed | failed | errors | time |\n|---|--:|--:|--:|--:|\n"
        }
        .to_owned(),
    ];
    parts.extend(labs);
    let failed = results
        .cases
        .iter()
        .filter(|case| case.result != CaseStatus::Pass);
    let mut rows: Vec<String> = failed.flat_map(|case| rows(case, renderer)).collect();
    if !rows.is_empty() {
        parts.push("\n| | case | expected | seen |\n|---|---|---|---|\n".to_owned());
        let omitted = rows.len().saturating_sub(MAX_ROWS);
        rows.truncate(MAX_ROWS);
        parts.append(&mut rows);
        if omitted > 0 {
            let omitted = text::count(omitted, "more row", "more rows");
            parts.push(format!("\nand {omitted}\n"));
        }
    }
    if let Some(stopped) = describe_stopped(results) {
        let names = list_not_run(&results.not_run);
        parts.push(format!(
            "\n{}: {}\n",
            escape_text(&stopped),
            escape_text(&names)
        ));
    }
    if let Some(certificate) = &results.certificate {
        let line = certificate::headline(certificate);
        parts.push(format!("\n{}\n", escape_text(&line)));
    }
    parts.concat()
}

fn rows(case: &CaseDocument, renderer: CaseRenderer<'_>) -> Vec<String> {
    let row = |expected: &str, seen: &str| {
        format!(
            "| {} | {} | {} | {} |\n",
            case.result.upper_case_name(),
            escape_text(&renderer.name(case)),
            escape_text(expected),
            escape_text(seen)
        )
    };
    if let Some(error) = &case.error {
        let seen = match &error.remedy {
            Some(remedy) => format!("{}\n{remedy}", error.message),
            None => error.message.clone(),
        };
        return vec![row("", &seen)];
    }
    // A flaky case shows its last failed try.
    let shown = match case.result {
        CaseStatus::Flaky => case.failed_tries.last().unwrap_or(case),
        _ => case,
    };
    if let Some(error) = &shown.error {
        return vec![row("", &error.message)];
    }
    unexpected_results(shown)
        .into_iter()
        .map(|(name, (expected, seen))| row(&format!("{name}: {expected}"), &seen))
        .collect()
}

/// Escapes text for a paragraph or a table cell.
pub(crate) fn escape_text(text: &str) -> String {
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

/// Renders text as code on one line. The fence is longer than any sequence of backticks in the text
/// (section 6.1 of the specification 0.31).
pub(crate) fn code_span(text: &str) -> String {
    let text = text.replace(['\n', '\r'], " ");
    let runs = text.split(|character| character != '`').map(str::len);
    let fence = "`".repeat(runs.max().unwrap_or(0) + 1);
    let space = if fence.len() > 1 { " " } else { "" };
    format!("{fence}{space}{text}{space}{fence}")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::writer::Options;
    use svclab_runner::results::{Results, fixture};

    #[test]
    fn escape_text_markup_is_escaped() {
        assert_eq!(
            escape_text("a|b\n<i>`c`</i> & d_e\r"),
            r"a\|b<br>&lt;i&gt;\`c\`&lt;/i&gt; &amp; d\_e"
        );
    }

    #[test]
    fn code_span_backticks_have_longer_fence() {
        assert_eq!(code_span("-j DROP"), "`-j DROP`");
        assert_eq!(code_span("a `b`` c\nd"), "``` a `b`` c d ```");
    }

    #[test]
    fn render_page_long_table_counts_omitted_rows() {
        let wrong = fixture::results().cases.remove(3);
        let options = Options::default();
        let renderer = CaseRenderer::new(&options);
        let rows = rows(&CaseDocument::from(&wrong), renderer).len();
        let cases = vec![wrong; MAX_ROWS];
        let page = render_page(
            &Document::from(&Results::new(BTreeMap::new(), cases)),
            "",
            renderer,
        );
        let left_out = format!("and {} more rows\n", MAX_ROWS * rows - MAX_ROWS);
        assert!(page.ends_with(&left_out), "{page}");
        assert_eq!(page.matches("| FAIL |").count(), MAX_ROWS);
    }

    #[test]
    fn render_page_passed_run_has_no_table() {
        let results = Results::new(BTreeMap::new(), vec![fixture::passed("lab/a")]);
        let results = Document::from(&results);
        let options = Options::default();
        let page = render_page(&results, "1 passed", CaseRenderer::new(&options));
        assert!(!page.contains("expected"), "{page}");
    }
}
