//! Renders the comparison of a run with an earlier run.

use maud::{Markup, html};

use super::row::{CaseRow, class};
use crate::commands::compare::{CaseChange, Comparison};
use crate::text::render_seconds;
use svclab_diagnostic::printable::printable;

/// Renders a comparison. `rows` are the cases of the page.
pub(super) fn render(comparison: &Comparison, rows: &[&CaseRow]) -> Markup {
    html! {
        h2 { "Compared with " (printable(&comparison.baseline)) }
        p { (printable(&comparison.summary())) }
        @for (title, changes) in comparison.lists() {
            @if !changes.is_empty() {
                h3 { (title) " (" (changes.len()) ")" }
                ul.changes { @for change in changes { li { (render_change(change, rows)) } } }
            }
        }
    }
}

fn render_change(change: &CaseChange, rows: &[&CaseRow]) -> Markup {
    let row = rows.iter().find(|row| row.shows(change));
    html! {
        @if let Some(after) = &change.after {
            span.pill.(class(after.result)) { (after.result.upper_case_name()) } " "
        }
        @match row {
            Some(row) => a href=(row.href) { (printable(&change.case)) },
            None => span { (printable(&change.case)) },
        }
        @if !change.kernel.is_empty() { " on " (printable(&change.kernel)) }
        span.note {
            @if let Some(before) = &change.before {
                " before: " (before.result.upper_case_name()) " in " (render_seconds(before.duration_ms))
                @if !before.observed.is_empty() { ", " (printable(&before.observed)) }
            }
            @if let Some(after) = &change.after {
                "; now " (render_seconds(after.duration_ms))
                @if !after.observed.is_empty() { ", " (printable(&after.observed)) }
            }
        }
    }
}
