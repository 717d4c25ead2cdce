//! Renders two connections side by side: a row for each place, marked where they part.

use maud::{Markup, html};

use super::connections::Connections;
use crate::alignment::{AlignedHop, ConnectionWay, align};
use crate::case_details::CaseDetails;
use crate::commands::explain::ExplainedJourney;
use crate::comparable::Pairing;
use crate::text::count;
use svclab_diagnostic::printable::printable;

/// Maximum number of rows after the end of the packets of one side.
const MAX_UNREACHED: usize = 3;

/// Renders the first failing connection beside one of the same probe that succeeded, and beside the
/// same connection of an earlier run.
pub(in crate::formats::html) fn render(
    connections: &[Connections<'_>],
    baseline: Option<&CaseDetails>,
) -> Markup {
    let Some(first) = connections.first() else {
        return html! {};
    };
    let shown = first.explained;
    let before = baseline.and_then(|baseline| same_connection(shown, baseline));
    let succeeded = first.succeeding().filter(|_| shown.failing);
    let ways = |other: &ExplainedJourney| [&other.journey, &shown.journey].map(ConnectionWay::from);
    html! {
        @if let Some(before) = before {
            h2 { "Before and now" }
            (table(["Before", "Now"], &ways(before)))
        }
        @if let Some(succeeded) = succeeded {
            h2 { "Failing beside succeeding" }
            (table(["Succeeds", "Fails"], &ways(succeeded)))
        }
    }
}

/// Renders a connection of a case beside one of another case, whose name and URL are given.
pub(in crate::formats::html) fn render_pairing(
    pairing: &Pairing<'_>,
    (case, href): (&str, &str),
) -> Markup {
    html! {
        h2 { "Beside another case" }
        p {
            a href=(href) { (printable(case)) } " differs from this case in "
            @for (index, (axis, other, own)) in pairing.axes.iter().enumerate() {
                @if index > 0 { ", " }
                (printable(axis)) ": " (printable(other)) " instead of " (printable(own))
            }
            "."
        }
        (table(["Other case", "This case"], &pairing.ways.map(Clone::clone)))
    }
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

fn table(titles: [&str; 2], ways: &[ConnectionWay; 2]) -> Markup {
    let rows = align(&ways[0], &ways[1]);
    let parted = rows.iter().position(AlignedHop::differs);
    let same = parted.unwrap_or(rows.len());
    let (missing, unreached) = unreached(&rows);
    let omitted = unreached.saturating_sub(MAX_UNREACHED);
    let shown = &rows[same..rows.len() - omitted];
    html! {
        p.note {
            @if parted.is_none() { "The packets had the same way and the same end. " }
            @else if same > 0 { "The first " (same) " places are the same. " }
            "Ports of clients are omitted."
        }
        div.scroll tabindex="0" role="region" aria-label={ (titles[0]) " and " (titles[1]) } {
            table.beside {
                thead {
                    tr {
                        th scope="col" { "Packet and place" }
                        @for (title, way) in titles.iter().zip(ways) {
                            th scope="col" {
                                (title) ": " (printable(&way.probe)) " #" (way.number + 1)
                                " " (way.verdict)
                            }
                        }
                    }
                }
                tbody { @for row in shown { (render_row(row, titles)) } }
            }
        }
        @if omitted > 0 {
            p.note { (count(omitted, "more place has", "more places have")) " no packet in " q { (titles[missing]) } "." }
        }
    }
}

/// Returns the side whose packets end first, and the number of places after their end.
fn unreached(rows: &[AlignedHop]) -> (usize, usize) {
    let is_missing = |side: usize| move |row: &&AlignedHop| row.sides[side].is_none();
    let missing = |side: usize| rows.iter().rev().take_while(is_missing(side)).count();
    let counts = [missing(0), missing(1)];
    let side = usize::from(counts[1] > counts[0]);
    (side, counts[side])
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
