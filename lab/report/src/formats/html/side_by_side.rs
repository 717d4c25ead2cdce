//! Renders two connections side by side: a row for each place, marked where they part.

use maud::{Markup, html};

use super::connections::Connections;
use crate::alignment::{AlignedHop, align};
use crate::case_details::CaseDetails;
use crate::commands::explain::ExplainedJourney;
use svclab_diagnostic::printable::printable;

/// Renders the first failing connection beside one of the same probe that succeeded, and beside the
/// same connection of an earlier run.
pub(super) fn render(connections: &[Connections<'_>], baseline: Option<&CaseDetails>) -> Markup {
    let Some(first) = connections.first() else {
        return html! {};
    };
    let shown = first.explained;
    let before = baseline.and_then(|baseline| same_connection(shown, baseline));
    let succeeded = succeeding(first).filter(|_| shown.failing);
    html! {
        @if let Some(before) = before {
            h2 { "Before and now" }
            (table([("Before", before), ("Now", shown)]))
        }
        @if let Some(succeeded) = succeeded {
            h2 { "Failing beside succeeding" }
            (table([("Succeeds", succeeded), ("Fails", shown)]))
        }
    }
}

/// Returns a connection of the same probe and stage that succeeded.
fn succeeding<'a>(connections: &Connections<'a>) -> Option<&'a ExplainedJourney> {
    let probe = &connections.explained.journey.probe;
    let mut stage = connections.stage.iter();
    stage.find(|other| other.journey.probe == *probe && other.journey.verdict.is_success())
}

/// Returns the connection of an earlier run with the same probe and number.
fn same_connection<'b>(
    shown: &ExplainedJourney,
    baseline: &'b CaseDetails,
) -> Option<&'b ExplainedJourney> {
    let mut all = baseline.stages.iter().flat_map(|stage| &stage.connections);
    let (probe, number) = (&shown.journey.probe, shown.journey.number);
    all.find(|other| other.journey.probe == *probe && other.journey.number == number)
}

fn table(sides: [(&str, &ExplainedJourney); 2]) -> Markup {
    let rows = align(&sides[0].1.journey, &sides[1].1.journey);
    let parted = rows.iter().position(AlignedHop::differs);
    let same = parted.unwrap_or(rows.len());
    html! {
        p.note {
            @if parted.is_none() { "The packets had the same way and the same end. " }
            @else if same > 0 { "The first " (same) " places are the same. " }
            "Ports of clients are omitted."
        }
        div.scroll tabindex="0" role="region" aria-label={ (sides[0].0) " and " (sides[1].0) } {
            table.beside {
                thead {
                    tr {
                        th scope="col" { "Packet and place" }
                        @for (title, side) in sides {
                            th scope="col" {
                                (title) ": " (printable(&side.journey.probe)) " #" (side.journey.number + 1)
                                " " (side.journey.verdict)
                            }
                        }
                    }
                }
                tbody { @for row in rows.iter().skip(same) { (render_row(row, sides.map(|(title, _)| title))) } }
            }
        }
    }
}

fn render_row(row: &AlignedHop, titles: [&str; 2]) -> Markup {
    html! {
        tr.differs[row.differs()] {
            th scope="row" { (printable(&row.place)) @if row.differs() { " ≠" } }
            @for (side, title) in row.sides.iter().zip(titles) {
                td.unreached[side.is_none()] data-side=(title) {
                    @match side {
                        Some(text) => (printable(text)),
                        None => "no packet came here",
                    }
                }
            }
        }
    }
}
