//! Renders the first screen of a case: what happened, why, and what the result rests on.

use maud::{Markup, html};

use super::fixes;
use crate::case_details::CaseDetails;
use crate::formats::html::packets::connections::Connections;
use crate::formats::html::run::row::breakable;
use crate::results::{CaseDocument, ProbeDocument};
use crate::text::conclusion::render_rule;
use crate::text::expectation::describe_observed;
use svclab_diagnostic::printable::printable;
use svclab_judge::{Cause, Fact, KeptSourceReason, Observed, RuleReference};
use svclab_model::evidence::Verdict;
use svclab_runner::results::CaseStatus;

/// First screen of a case.
pub(super) struct Answer<'d> {
    pub details: &'d CaseDetails,
    /// Whether the first connections failed, or have an unexpected result.
    is_failing: bool,
    /// Results of the first probe.
    pub headline: String,
    pub sentences: Vec<String>,
    pub decided_by: Option<String>,
    rerun: String,
    /// Verdict of each connection of the first probe, with its number.
    marks: Vec<(u32, Verdict)>,
    pub basis: Vec<(&'static str, Vec<String>)>,
}

impl<'d> Answer<'d> {
    pub(super) fn new(details: &'d CaseDetails, connections: &[Connections<'_>]) -> Self {
        let first = connections.first();
        let basis = details.basis.lists().into_iter();
        Self {
            details,
            is_failing: first.is_some_and(|first| first.explained.failing),
            headline: headline(&details.result, first),
            sentences: first.map_or_else(Vec::new, |first| first.explained.conclusion.clone()),
            decided_by: first.and_then(decided_by),
            rerun: details.rerun.clone(),
            marks: first.map_or_else(Vec::new, marks),
            basis: basis
                .map(|(title, lines)| (title, lines.to_vec()))
                .collect(),
        }
    }

    pub(super) fn render(&self) -> Markup {
        let result = &self.details.result;
        let (class, meaning) = match result.result {
            _ if self.details.additions.unjudged => {
                ("unjudged", "Not judged: the lab states no expectation")
            }
            CaseStatus::Pass => ("pass", "PASS: as the lab expects"),
            CaseStatus::Fail => ("fail", "FAIL: not as the lab expects"),
            CaseStatus::Error => ("error", "ERROR: no verdict"),
        };
        html! {
            header.answer {
                p.name { (breakable(&result.case)) }
                h1 { (printable(&self.headline)) }
                p { span.pill.(class) { (meaning) } }
                @if !self.marks.is_empty() {
                    p.marks role="group" aria-label="Connections in order" {
                        @for (number, verdict) in &self.marks {
                            @let is_success = verdict.is_success();
                            span class=(if is_success { "yes" } else { "no" })
                                title={ "#" (number + 1) " " (verdict) } {
                                (if is_success { "✓" } else { "✕" })
                            }
                        }
                    }
                }
                div.columns {
                    dl.facts {
                        @if let Some(error) = &result.error {
                            dt { "Error" }
                            dd { (printable(&error.message)) }
                            @if let Some(remedy) = &error.remedy { dd { (printable(remedy)) } }
                        }
                        @if let Some((cause, more)) = self.sentences.split_first() {
                            dt { "What happened" }
                            dd { (printable(cause)) }
                            @for sentence in more { dd { (printable(sentence)) } }
                        }
                        @if let Some(rule) = &self.decided_by {
                            dt { "Decided by" }
                            dd { code { (printable(rule)) } @if self.details.additions.fixes.is_none() { " (not tested)" } }
                        }
                        (fixes::render(self.details, self.is_failing))
                        dt { "Run it again" }
                        dd { code { (printable(&self.rerun)) } }
                        @if let Some(place) = &result.location {
                            dt { "Expected at" }
                            dd { code { (printable(&place.to_string())) } }
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

/// Describes the verdicts of a probe.
fn describe_result(probe: &ProbeDocument) -> String {
    let verdicts = &probe.observed.verdicts;
    let total: u32 = verdicts.values().sum();
    let failed = verdicts.iter().filter(|(verdict, _)| !verdict.is_success());
    let failed: Vec<(Verdict, u32)> = failed.map(|(verdict, count)| (*verdict, *count)).collect();
    match failed.as_slice() {
        [] if total == 1 => format!("{}: the connection succeeds", probe.name),
        [] => format!("{}: all {total} connections succeed", probe.name),
        [(verdict, 1)] if total == 1 => {
            format!("{}: the connection {}", probe.name, verb(*verdict, 1))
        }
        [(verdict, count)] => {
            let verb = verb(*verdict, *count);
            format!("{}: {count} of {total} connections {verb}", probe.name)
        }
        _ => {
            let observed = Observed {
                verdicts: verdicts.clone(),
                ..Observed::default()
            };
            format!("{}: {}", probe.name, describe_observed(&observed))
        }
    }
}

const fn verb(verdict: Verdict, count: u32) -> &'static str {
    match (verdict, count) {
        (Verdict::Connected | Verdict::Answered, 1) => "succeeds",
        (Verdict::Connected | Verdict::Answered, _) => "succeed",
        (Verdict::Refused, 1) => "is refused",
        (Verdict::Refused, _) => "are refused",
        (Verdict::Unreachable, 1) => "is answered with an ICMP error",
        (Verdict::Unreachable, _) => "are answered with an ICMP error",
        (Verdict::Reset, 1) => "is reset",
        (Verdict::Reset, _) => "are reset",
        (Verdict::Silent, 1) => "gets no data",
        (Verdict::Silent, _) => "get no data",
        (Verdict::Timeout, 1) => "times out",
        (Verdict::Timeout, _) => "time out",
    }
}

/// Returns the verdicts of the connections of the first probe.
fn marks(first: &Connections<'_>) -> Vec<(u32, Verdict)> {
    let probe = &first.explained.journey.probe;
    let stage = first.stage.iter().map(|explained| &explained.journey);
    let own = stage.filter(|journey| journey.probe == *probe);
    let mut marks: Vec<(u32, Verdict)> = own.map(|own| (own.number, own.verdict)).collect();
    marks.sort_by_key(|(number, _)| *number);
    marks
}

/// Returns the rule that the explanation of the first connections names.
fn decided_by(first: &Connections<'_>) -> Option<String> {
    let mut rules = first
        .explained
        .facts
        .iter()
        .filter(|_| first.explained.failing)
        .filter_map(rule);
    let (namespace, rule) = rules.next()?;
    Some(format!("{namespace}: {}", render_rule(rule)))
}

fn rule(fact: &Fact) -> Option<(&str, &RuleReference)> {
    match fact {
        Fact::Lost {
            namespace,
            cause: Cause::Rule { rule, .. },
            ..
        } => Some((namespace, rule)),
        Fact::KeptSource {
            namespace,
            reason: KeptSourceReason::Returned { rules },
            ..
        } => Some((namespace, rules.first()?)),
        _ => None,
    }
}
