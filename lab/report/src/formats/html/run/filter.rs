//! Renders the form that selects the cases of a run's table.

use std::collections::BTreeSet;

use maud::{Markup, html};

use super::row::CaseRow;
use svclab_diagnostic::printable::printable;

/// Renders the form. A choice that all cases share is omitted.
pub(super) fn render(rows: &[&CaseRow]) -> Markup {
    html! {
        form.filter role="search" {
            label for="filter" { "Show cases with" }
            input #filter type="search" placeholder="name or result" autocomplete="off";
            (choice("Result", "result", rows.iter().map(|row| row.status)))
            (choice("Lab", "lab", rows.iter().map(|row| row.lab.as_str())))
            (choice("Kernel", "kernel", rows.iter().map(|row| row.kernel.as_str())))
            span {
                label for="slower" { "At least" } " "
                input #slower type="number" min="0" step="any" placeholder="0" autocomplete="off";
                " s"
            }
            output #shown for="filter" {}
        }
    }
}

/// Renders a choice of one of these values.
fn choice<'v>(label: &str, name: &str, values: impl Iterator<Item = &'v str>) -> Markup {
    let values: BTreeSet<&str> = values.filter(|value| !value.is_empty()).collect();
    let id = format!("filter-{name}");
    html! {
        @if values.len() > 1 {
            span {
                label for=(id) { (label) } " "
                select #(id) name=(name) autocomplete="off" {
                    option value="" { "all" }
                    @for value in values { option value=(printable(value)) { (printable(value)) } }
                }
            }
        }
    }
}
