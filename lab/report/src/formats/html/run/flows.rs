//! Renders the flow table of a lab: a row for each flow, a column for each value of an axis.

use maud::{Markup, html};

use crate::text::flow_table::{describe_cases, render_outcome, short};
use svclab_diagnostic::printable::printable;
use svclab_runner::results::flows::{FlowCell, FlowTable};

/// Renders a table. `run` is the name of the run; empty if the page shows only one run.
pub(super) fn render(run: &str, table: &FlowTable) -> Markup {
    let label = format!("Flows of {}", table.lab);
    html! {
        h2 {
            (printable(&label))
            @if !run.is_empty() { " (" (printable(run)) ")" }
        }
        @if table.flows.iter().any(|flow| flow.differs) {
            label.differing hidden { input type="checkbox"; " Only rows with ≠" }
        }
        div.scroll tabindex="0" role="region" aria-label=(printable(&label)) {
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
                            @for cell in &flow.cells { td { (render_cell(cell)) } }
                        }
                    }
                }
            }
        }
        @if let Some(facts) = &table.facts {
            p.note {
                "Upstream flow cases covered: " (facts.covered.len()) " of " (facts.total)
                @if !facts.open.is_empty() { "; not confirmed by this run: " (facts.open.len()) }
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
