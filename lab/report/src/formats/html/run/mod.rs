//! Renders the overview of runs: what ran, its cases, its warnings, and the comparison with an
//! earlier run.

mod comparison;
mod filter;
mod flows;
pub(super) mod row;

use maud::{Markup, html};

use crate::additions::Answer;
use crate::commands::compare::Comparison;
use crate::results::Document;
use crate::text::{certificate, count, join, render_counts, render_seconds};
use row::{CaseRow, ShownRun, breakable};
use svclab_diagnostic::printable::printable;
use svclab_runner::certify::Certificate;
use svclab_runner::results::Summary;

/// Returns the title of a page.
pub(super) fn title(runs: &[ShownRun<'_>]) -> String {
    format!("svclab: {}", describe_counts(runs))
}

fn describe_counts(runs: &[ShownRun<'_>]) -> String {
    let counts = render_counts(sum(runs));
    match runs.iter().map(|run| run.document.not_run.len()).sum() {
        0 => counts,
        not_run => format!("{counts}, {not_run} not run"),
    }
}

fn sum(runs: &[ShownRun<'_>]) -> Summary {
    let mut sum = Summary::default();
    for summary in runs.iter().map(|run| run.document.summary) {
        sum.passed += summary.passed;
        sum.flaky += summary.flaky;
        sum.failed += summary.failed;
        sum.errors += summary.errors;
    }
    sum
}

/// Renders the overview.
pub(super) fn render(
    runs: &[ShownRun<'_>],
    rows: &[&CaseRow],
    answer: Option<&Answer>,
    compared: Option<&Comparison>,
) -> Markup {
    html! {
        div #run {
            @match answer {
                Some(answer) => h1 { (printable(&answer.title)) },
                None => h1 { (describe_counts(runs)) },
            }
            @for run in runs { (facts(*run)) }
            @if let Some(answer) = answer { (render_answer(answer)) }
            @if let Some(compared) = compared { (comparison::render(compared, rows)) }
            @if answer.is_none() || !rows.is_empty() { (table(rows, runs.len() > 1)) }
            @for run in runs { @for table in &run.document.flows { (flows::render(run.label, table)) } }
        }
    }
}

/// Renders the answer of a command. If it has tables, the text is closed at first, with its last
/// line as summary.
fn render_answer(answer: &Answer) -> Markup {
    let text = html! { pre.text { (printable(&answer.text)) } };
    html! {
        @if answer.flows.tables.is_empty() {
            (text)
        } @else {
            (flows::render_compared(&answer.flows))
            details {
                summary { (printable(answer.text.trim_end().lines().last().unwrap_or_default())) }
                (text)
            }
        }
    }
}

/// Renders the table of cases.
fn table(rows: &[&CaseRow], has_labels: bool) -> Markup {
    html! {
        (filter::render(rows))
        div.scroll tabindex="0" role="region" aria-label="Cases" {
            table #cases {
                thead {
                    tr {
                        th scope="col" { "Result" }
                        @if has_labels { th scope="col" { "Run" } }
                        th scope="col" { "Case" }
                        th scope="col" { "Observed" }
                        th scope="col" { "Kernel" }
                        th scope="col" #time { "Time" }
                    }
                }
                tbody { @for row in rows { (row.render(has_labels)) } }
            }
        }
    }
}

/// Renders when and how a run was made, and what is missing or uncertain in it.
fn facts(run: ShownRun<'_>) -> Markup {
    let document = run.document;
    let missing = document.count_missing_results();
    let mut kernels: Vec<&str> = document.cases.iter().map(|case| &*case.kernel).collect();
    kernels.sort_unstable();
    kernels.dedup();
    // A case that reached no agent has no kernel.
    kernels.retain(|kernel| !kernel.is_empty());
    html! {
        @if !run.label.is_empty() { h2.run { (printable(run.label)) } }
        @if document.interrupted { p.warning { "The run was interrupted: cases that had not finished have no result." } }
        @if let Some(reason) = document.stopped { p.warning { "The run is incomplete: " (reason.description()) "." } }
        @if !document.not_run.is_empty() {
            details {
                summary { (document.not_run.len()) " not run" }
                ul { @for case in &document.not_run { li { (breakable(&case.case)) } } }
            }
        }
        @if missing > 0 { p.warning { (missing) " cases have no result. Please report this as a bug of svclab." } }
        p.note { (printable(&describe_run(document, &kernels))) }
        @for warning in &document.warnings {
            p.warning { (printable(&warning.lab)) ": " (printable(&warning.to_string())) }
        }
        @if let Some(certificate) = &document.certificate { (self::certificate(certificate)) }
    }
}

/// Renders whether the machine changed, and how.
fn certificate(certificate: &Certificate) -> Markup {
    let text = certificate::render_text(certificate);
    let (headline, changes) = text.split_once('\n').unwrap_or((&text, ""));
    html! {
        @if changes.is_empty() {
            p.note { (printable(headline)) }
        } @else {
            details open {
                summary.warning { (printable(headline)) }
                pre { (printable(changes)) }
            }
        }
    }
}

/// Returns what made a page: the version of svclab, and the starts of the runs.
pub(super) fn made_by(runs: &[ShownRun<'_>]) -> String {
    let starts = runs.iter().filter_map(|run| run.document.run.as_ref());
    let starts: Vec<&str> = starts.map(|run| &*run.started_at).collect();
    let version = concat!("svclab ", env!("CARGO_PKG_VERSION"));
    match starts.as_slice() {
        [] => version.to_owned(),
        starts => format!("{version}; run of {}", starts.join(", ")),
    }
}

fn describe_run(document: &Document, kernels: &[&str]) -> String {
    let mut parts = Vec::new();
    if let Some(run) = &document.run {
        parts.push(format!(
            "{}, {} with {}: {}",
            run.started_at,
            render_seconds(run.duration_ms),
            count(run.jobs, "job", "jobs"),
            run.command
        ));
    }
    let tools = document.tools.iter();
    parts.extend(tools.map(|(name, version)| {
        let version = version.strip_prefix(name.as_str()).unwrap_or(version);
        format!("{name} {}", version.trim_start())
    }));
    if !kernels.is_empty() {
        parts.push(format!("kernels: {}", kernels.join(", ")));
    }
    join(parts, "; ")
}
