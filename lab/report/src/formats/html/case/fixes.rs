//! Renders what cures a case, as `svclab why` found it.

use maud::{Markup, html};

use crate::case_additions::ProbeFixes;
use crate::case_details::CaseDetails;
use crate::commands::why::join_descriptions;
use svclab_diagnostic::printable::printable;
use svclab_experiment::why::{Fix, Origin};

/// Renders the fixes of a case, or the command that searches them if a connection failed.
pub(super) fn render(details: &CaseDetails, is_failing: bool) -> Markup {
    match &details.additions.fixes {
        // The side of a comparison is no case that can be named.
        None if is_failing && details.additions.side.is_none() => html! {
            dt { "Fix" }
            dd { "not searched; " code { (printable(&details.search_command())) } " searches for it" }
        },
        None => html! {},
        Some(probes) => html! {
            dt { "Fix" }
            @if probes.is_empty() { dd { "no probe has failing connections" } }
            @for probe in probes { (render_probe(probe, probes.len() > 1)) }
        },
    }
}

fn render_probe(probe: &ProbeFixes, is_named: bool) -> Markup {
    html! {
        @if is_named { dd { strong { (printable(&probe.probe)) ":" } } }
        @if probe.fixes.is_empty() { dd { "no tried change helps" } }
        @for fix in &probe.fixes { dd.fix { (render_fix(fix)) } }
    }
}

fn render_fix(fix: &Fix) -> Markup {
    let changes = &fix.changes;
    let commands = changes.iter().flat_map(|change| &change.commands);
    let is_lasting = changes
        .iter()
        .all(|change| change.origin == Origin::Configured);
    html! {
        (printable(&join_descriptions(changes)))
        @if !is_lasting { " (until the component writes it again)" }
        @for command in commands {
            pre.command { (printable(&command.namespace)) "# " (printable(&command.command)) }
        }
    }
}
