//! Renders the overview of a run: its cases by lab, its warnings, and the machine.

use maud::{Markup, html};

use super::case::CaseSection;
use crate::text::render_seconds;
use svclab_diagnostic::printable::printable;
use svclab_runner::results::{CaseStatus, Results};

/// Renders the overview.
pub(super) fn render(results: &Results, cases: &[CaseSection]) -> Markup {
    let summary = results.summary;
    let missing = results.count_missing_results();
    let mut kernels: Vec<&str> = cases.iter().map(|case| case.kernel.as_str()).collect();
    kernels.sort_unstable();
    kernels.dedup();
    // A case that reached no agent has no kernel.
    kernels.retain(|kernel| !kernel.is_empty());
    html! {
        main #run {
            h1 {
                (summary.passed) " passed, " (summary.failed) " failed, "
                (summary.errors) (if summary.errors == 1 { " error" } else { " errors" })
            }
            @if results.interrupted { p.warning { "The run was interrupted: cases that had not finished are missing." } }
            @if missing > 0 { p.warning { (missing) " cases have no result. Please report this as a bug of svclab." } }
            @if results.has_machine_changed() { p.warning { "The machine changed during the run." } }
            p.note {
                @for (name, version) in &results.tools { (printable(name)) " " (printable(version)) "; " }
                "kernels: " (printable(&kernels.join(", ")))
            }
            @for warning in &results.warnings {
                p.warning { (printable(&warning.lab)) ": " (printable(&warning.to_string())) }
            }
            form.filter role="search" {
                label for="filter" { "Show cases with" }
                input #filter type="search" placeholder="name, kernel or FAIL" autocomplete="off";
                output #shown for="filter" {}
            }
            div.scroll tabindex="0" role="region" aria-label="Cases" {
                table #cases {
                    thead { tr { th scope="col" { "Result" } th scope="col" { "Case" } th scope="col" { "Observed" } th scope="col" { "Kernel" } th scope="col" { "Time" } } }
                    tbody { @for case in cases { (row(case)) } }
                }
            }
        }
    }
}

fn row(case: &CaseSection) -> Markup {
    let class = match case.status {
        CaseStatus::Pass => "pass",
        CaseStatus::Fail => "fail",
        CaseStatus::Error => "error",
    };
    html! {
        tr.(class) {
            td { span.pill.(class) { (case.status.upper_case_name()) } }
            td { a href={ "#" (case.id) } { (printable(&case.lab)) @if case.name != case.lab { "/" (printable(&case.name)) } } }
            td { (printable(&case.headline)) }
            td { (printable(&case.kernel)) }
            td.number { (render_seconds(case.duration_ms)) }
        }
    }
}
