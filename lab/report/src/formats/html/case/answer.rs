//! Renders the first screen of a case: what happened, why, and what the result rests on.

use std::collections::HashSet;

use indexmap::IndexSet;
use maud::{Markup, html};

use super::fixes;
use super::probe_answer::{ProbeAnswer, describe_result};
use crate::case_details::CaseDetails;
use crate::formats::html::packets::connections::Connections;
use crate::formats::html::run::row::breakable;
use crate::results::CaseDocument;
use crate::text::journey::MAX_UNMET;
use crate::text::{count, list_first, render_seconds};
use svclab_diagnostic::printable::printable;
use svclab_runner::results::CaseStatus;

/// Maximum number of failing probes that the first screen describes.
const MAX_PROBES: usize = 6;

/// First screen of a case.
pub(super) struct Answer<'d> {
    pub details: &'d CaseDetails,
    /// Whether the first connections failed, or have an unexpected result.
    is_failing: bool,
    /// Results of the first probe.
    pub headline: String,
    /// Answers about the failing probes; about the first probe if none fails.
    pub probes: Vec<ProbeAnswer>,
    /// Number of failing probes that are not in `probes`.
    omitted_probes: usize,
    rerun: String,
    pub basis: Vec<(&'static str, Vec<String>)>,
}

impl<'d> Answer<'d> {
    pub(super) fn new(details: &'d CaseDetails, connections: &[Connections<'_>]) -> Self {
        let first = connections.first();
        let basis = details.basis.lists().into_iter();
        let mut seen = HashSet::new();
        let mut probes: Vec<ProbeAnswer> = Vec::new();
        let mut omitted_probes = 0;
        for (index, own) in connections.iter().enumerate() {
            let is_shown = index == 0 || own.explained.failing;
            if !is_shown || !seen.insert((own.stage_index, &own.explained.journey.probe)) {
                continue;
            }
            if probes.len() < MAX_PROBES {
                probes.push(ProbeAnswer::new(details, own, connections));
            } else {
                omitted_probes += 1;
            }
        }
        Self {
            details,
            is_failing: first.is_some_and(|first| first.explained.failing),
            headline: headline(&details.result, first),
            probes,
            omitted_probes,
            rerun: details.rerun.clone(),
            basis: basis
                .map(|(title, lines)| (title, lines.to_vec()))
                .chain(unmet_causes(details))
                .collect(),
        }
    }

    /// Returns the name of the probe of the headline.
    pub(super) fn first_probe(&self) -> Option<&str> {
        self.probes.first().map(|first| first.name.as_str())
    }

    pub(super) fn render(&self) -> Markup {
        let result = &self.details.result;
        let (class, meaning) = match result.result {
            _ if self.details.additions.unjudged => {
                ("unjudged", "Not judged: the lab states no expectation")
            }
            CaseStatus::Pass if self.is_failing => (
                "reproduced",
                "Reproduced: the lab expects this failure (PASS)",
            ),
            CaseStatus::Pass => ("pass", "PASS: as the lab expects"),
            CaseStatus::Flaky => (
                "flaky",
                "FLAKY: as the lab expects, but not in the first try",
            ),
            CaseStatus::Fail => ("fail", "FAIL: not as the lab expects"),
            CaseStatus::Error => ("error", "ERROR: no verdict"),
        };
        html! {
            header.answer {
                p.name { (breakable(&result.case)) }
                h1 { (printable(&self.headline)) }
                @if let Some(about) = &self.details.about { p.about { (printable(about)) } }
                p { span.pill.(class) { (meaning) } }
                @if let Some(first) = self.probes.first() { (first.render_marks()) }
                div.columns {
                    div {
                        @let others = &self.probes[self.probes.len().min(1)..];
                        @if !others.is_empty() {
                            p.others {
                                "This is about the first of " (others.len() + 1 + self.omitted_probes)
                                " failing probes; the others are below the fixes."
                            }
                        }
                        dl.facts {
                            @if let Some(error) = &result.error {
                                dt { "Error" }
                                dd { (printable(&error.message)) }
                                @if let Some(remedy) = &error.remedy { dd { (printable(remedy)) } }
                            }
                            @if !result.failed_tries.is_empty() {
                                dt { "Earlier tries" }
                                @for earlier in &result.failed_tries { dd { (printable(&describe_try(earlier))) } }
                            }
                            @if let Some(first) = self.probes.first() { (first.render_facts()) }
                            (fixes::render(self.details, self.is_failing, self.first_probe()))
                            dt { "Run it again" }
                            dd { code { (printable(&self.rerun)) } }
                            @if let Some(place) = &result.location {
                                dt { "Expected at" }
                                dd { code { (printable(&place.to_string())) } }
                            }
                        }
                        @for probe in others {
                            details.probe {
                                summary { (printable(&probe.title)) }
                                (probe.render_marks())
                                dl.facts { (probe.render_facts()) }
                            }
                        }
                        @if self.omitted_probes > 0 {
                            p.note { (count(self.omitted_probes, "other probe fails", "other probes fail")) "; see Packets and Expectations." }
                        }
                    }
                    @if !self.basis.is_empty() {
                        dl.basis {
                            @for (title, lines) in &self.basis {
                                dt { (title) }
                                @for line in lines { dd { (printable(line)) } }
                            }
                        }
                    }
                }
            }
        }
    }
}

/// Returns the possible further causes that no packet of failing connections met, with their title.
/// `None` if there are none.
fn unmet_causes(details: &CaseDetails) -> Option<(&'static str, Vec<String>)> {
    let unmet = details.stages.iter().flat_map(|stage| &stage.unmet);
    let connections = details.stages.iter().flat_map(|stage| &stage.connections);
    // In one stage, but not in another one.
    let met: HashSet<&str> = connections
        .flat_map(|explained| explained.conclusion.iter().map(String::as_str))
        .collect();
    let sentences = unmet.map(|unmet| &*unmet.sentence);
    let sentences: IndexSet<&str> = sentences.filter(|own| !met.contains(own)).collect();
    let shown = sentences.iter().take(MAX_UNMET);
    let mut lines: Vec<String> = shown.map(|sentence| (*sentence).to_owned()).collect();
    if sentences.len() > MAX_UNMET {
        let more = sentences.len() - MAX_UNMET;
        lines.push(format!("and {}", count(more, "more cause", "more causes")));
    }
    (!lines.is_empty()).then_some(("Not met by packets", lines))
}

/// Describes the first failed expectation. Without one, describes the probe of the first
/// connections, or the error of a case without any.
fn headline(result: &CaseDocument, first: Option<&Connections<'_>>) -> String {
    if let Some(error) = &result.error {
        return error.kind.description().to_owned();
    }
    let wrong = result.probes.iter().find(|probe| !probe.holds);
    if let Some(probe) = wrong {
        let expected = probe.expected.as_deref().unwrap_or_default();
        return format!("{}, expected {expected}", describe_result(probe));
    }
    if let Some(check) = result.checks().find(|check| !check.holds) {
        let (target, observed) = (&check.target, &check.observed);
        return format!("{target}: {observed}, expected {}", check.expected);
    }
    let probe = first.and_then(|first| {
        let name = &first.explained.journey.probe;
        result.probes.iter().find(|probe| probe.name == *name)
    });
    let Some(probe) = probe.or_else(|| result.probes.first()) else {
        return "no probe ran".to_owned();
    };
    describe_result(probe)
}

/// Describes an earlier try of a case: its error, or the names of what was not as expected.
fn describe_try(earlier: &CaseDocument) -> String {
    let probes = earlier.probes.iter().filter(|probe| !probe.holds);
    let checks = earlier.checks().filter(|check| !check.holds);
    let steps = earlier.steps.iter().filter(|step| !step.holds);
    let names = probes
        .map(|probe| &probe.name)
        .chain(checks.map(|check| &check.target))
        .chain(steps.map(|step| &step.name));
    let reason = match &earlier.error {
        Some(error) => error.message.clone(),
        None => format!("not as expected: {}", list_first(names)),
    };
    let time = render_seconds(earlier.duration_ms);
    format!(
        "{} after {time}: {reason}",
        earlier.result.upper_case_name()
    )
}
