//! Renders the flow table of a lab: a row for each flow, a column for each value of an axis.

use maud::{Markup, html};

use crate::commands::verify::ComparedTables;
use crate::text::count;
use crate::text::flow_table::{describe_cases, render_outcome, short};
use svclab_diagnostic::printable::printable;
use svclab_runner::results::flows::{FlowCell, FlowTable};

/// Renders a table. `run` is the name of the run; empty if the page shows only one run.
pub(super) fn render(run: &str, table: &FlowTable) -> Markup {
    html! {
        h2 {
            (printable(&label(table)))
            @if !run.is_empty() { " (" (printable(run)) ")" }
        }
        (render_table(table, false))
        @if let Some(facts) = &table.facts {
            p.note {
                "Upstream flow cases covered: " (facts.covered.len()) " of " (facts.total)
                @if !facts.open.is_empty() { "; not confirmed by this run: " (facts.open.len()) }
            }
        }
    }
}

/// Renders the tables of two sides. At first, only rows that differ are visible, and tables without
/// any are closed.
pub(super) fn render_compared(compared: &ComparedTables) -> Markup {
    html! {
        @for table in &compared.tables {
            @let differing = table.flows.iter().filter(|flow| flow.differs).count();
            details.compared open[differing > 0] {
                summary {
                    (printable(&label(table))) ": "
                    @if differing > 0 { (differing) " of " (table.flows.len()) " rows differ" }
                    @else { (count(table.flows.len(), "row", "rows")) ", no difference" }
                }
                (render_table(table, true))
            }
        }
        @if compared.omitted > 0 {
            p.note {
                (count(compared.omitted, "row", "rows")) " without a difference are omitted. Name fewer labs to see all."
            }
        }
    }
}

fn label(table: &FlowTable) -> String {
    format!("Flows of {}", table.lab)
}

/// Renders a table. `is_filtered` is whether only rows that differ are visible at first.
fn render_table(table: &FlowTable, is_filtered: bool) -> Markup {
    html! {
        @if table.flows.iter().any(|flow| flow.differs) {
            label.differing hidden { input type="checkbox" checked[is_filtered] autocomplete="off"; " Only rows with ≠" }
        }
        div.scroll tabindex="0" role="region" aria-label=(printable(&label(table))) {
            table.flows {
                thead {
                    tr {
                        th scope="col" { "Flow" }
                        @for column in &table.columns {
                            th scope="col" { (if column.is_empty() { "Observed".into() } else { printable(column) }) }
                        }
                    }
                }
                tbody {
                    @for flow in &table.flows {
                        tr.differs[flow.differs] {
                            th scope="row" {
                                (printable(&flow.flow))
                                @if flow.differs { " ≠" }
                                p.note { (printable(short(&flow.from))) " to " (printable(short(&flow.to))) }
                            }
                            @for cell in &flow.cells { td data-column=(printable(&cell.column)) { (render_cell(cell)) } }
                        }
                    }
                }
            }
        }
    }
}

fn render_cell(cell: &FlowCell) -> Markup {
    html! {
        @for (index, outcome) in cell.outcomes.iter().enumerate() {
            p.outcome.fail[!outcome.holds] {
                @if !outcome.holds { "FAIL " }
                (printable(&render_outcome(&outcome.seen)))
                @if let Some(cases) = describe_cases(cell, index) { span.note { " (" (printable(&cases)) ")" } }
            }
            @for reason in &outcome.reasons {
                p.note {
                    (printable(&reason.because))
                    @if let Some(source) = &reason.source { " (" (printable(source)) ")" }
                }
            }
        }
    }
}
