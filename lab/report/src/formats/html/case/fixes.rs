//! Renders what cures a case, as `svclab why` found it.

use maud::{Markup, html};

use crate::case_additions::{CaseAdditions, ProbeFixes};
use crate::case_details::CaseDetails;
use crate::commands::why::{
    describe_result, describe_stop, describe_unread, is_lasting, join_descriptions, side_effects,
};
use crate::text::count;
use svclab_diagnostic::printable::printable;
use svclab_experiment::why::Fix;

/// Renders the fixes of a case, or the command that searches them if a connection failed. The fixes
/// of `first`, the probe of the headline, are the first ones.
pub(super) fn render(details: &CaseDetails, is_failing: bool, first: Option<&str>) -> Markup {
    match &details.additions.fixes {
        // The side of a comparison is no case that can be named.
        None if is_failing && details.additions.side.is_none() => html! {
            dt { "Fix" }
            dd { "not searched; " code { (printable(&details.search_command())) } " searches for it" }
        },
        None => html! {},
        Some(probes) => {
            let groups = group_by_fixes(probes, first);
            html! {
                dt { "Fix" }
                @if groups.is_empty() { dd { "no probe has failing connections" } }
                @if groups.len() > 1 { dd.note { "The failing probes have different fixes." } }
                @for (names, fixes) in &groups {
                    (render_group(names, fixes, groups.len() > 1 || names.len() > 1))
                }
                (render_useless(&details.additions))
            }
        }
    }
}

/// Groups the probes that have the same fixes. The group of `first` is the first one.
pub(super) fn group_by_fixes<'p>(
    probes: &'p [ProbeFixes],
    first: Option<&str>,
) -> Vec<(Vec<&'p str>, &'p [Fix])> {
    let mut groups: Vec<(Vec<&str>, &[Fix])> = Vec::new();
    for probe in probes {
        let mut known = groups.iter_mut();
        match known.find(|(_, fixes)| *fixes == probe.fixes) {
            Some((names, _)) => names.push(&probe.probe),
            None => groups.push((vec![&probe.probe], &probe.fixes)),
        }
    }
    groups.sort_by_key(|(names, _)| !first.is_some_and(|first| names.contains(&first)));
    groups
}

fn render_group(names: &[&str], fixes: &[Fix], is_named: bool) -> Markup {
    let (lasting, generated): (Vec<&Fix>, Vec<&Fix>) =
        fixes.iter().partition(|fix| is_lasting(fix));
    let them = if names.len() > 1 { "them" } else { "it" };
    html! {
        @if is_named { dd { strong { (printable(&names.join(", "))) ":" } } }
        @if fixes.is_empty() { dd { "no tried change helps" } }
        @if !lasting.is_empty() {
            dd.note {
                @if lasting.len() == 1 { "Tested in a lab: this change fixes " }
                @else { "Tested in a lab: each of these changes alone fixes " }
                (them) ", and no other probe gets worse."
            }
        }
        @for fix in &lasting { dd.fix { (render_fix(fix)) } }
        @if !generated.is_empty() {
            dd.note {
                @if lasting.is_empty() { "Tested in a lab: only changes to generated state help" }
                @else { "Changes to generated state also help" }
                ", until the component writes it again."
            }
        }
        @for fix in &generated { dd.fix { (render_fix(fix)) } }
    }
}

fn render_fix(fix: &Fix) -> Markup {
    let commands = fix.changes.iter().flat_map(|change| &change.commands);
    html! {
        (printable(&join_descriptions(&fix.changes)))
        @for effect in side_effects(fix) { p.note { "Side effect: " (effect) "." } }
        @for command in commands {
            pre.command {
                span.prompt { (printable(&command.namespace)) "# " }
                code { (printable(&command.command)) }
            }
        }
    }
}

/// Renders the changes that were tried and do not help.
fn render_useless(additions: &CaseAdditions) -> Markup {
    let (useless, untried) = (&additions.useless_changes, additions.untried_pairs);
    html! {
        @if let Some(stopped) = &additions.stopped { dd.note { (printable(&describe_stop(stopped))) } }
        @if let Some(unread) = &additions.unread { dd.note { (printable(&describe_unread(unread))) } }
        @if !useless.is_empty() || untried > 0 {
            dd {
                details.useless {
                    summary { (count(useless.len(), "tried change does not help", "tried changes do not help")) }
                    ul {
                        @for tried in useless {
                            li {
                                (printable(&join_descriptions(&tried.changes))) ": "
                                (printable(&describe_result(&tried.result)))
                            }
                        }
                    }
                    @if untried > 0 {
                        p.note { (count(untried, "pair of changes was", "pairs of changes were")) " not tried: there are too many pairs." }
                    }
                }
            }
        }
    }
}
