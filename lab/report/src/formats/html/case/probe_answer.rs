//! Answer about one probe: what happened to its connections, why, and which rule decided it.

use maud::{Markup, html};

use crate::case_details::CaseDetails;
use crate::formats::html::packets::connections::Connections;
use crate::results::ProbeDocument;
use crate::text::conclusion::render_rule;
use crate::text::expectation::describe_observed;
use svclab_diagnostic::printable::printable;
use svclab_judge::{Cause, Fact, KeptSourceReason, Observed, RuleReference};
use svclab_model::evidence::Verdict;

/// Answer about the connections of a probe at one stage.
pub(super) struct ProbeAnswer {
    /// Results of the probe, in one line.
    pub title: String,
    /// Source and target of the probe, with the address that the connections have.
    pub route: Option<String>,
    /// Ends of the packets of the first failing connection.
    pub events: Vec<String>,
    /// Reasons for these ends.
    pub reasons: Vec<String>,
    /// Sentences about a connection that succeeded, if others failed.
    pub succeeded: Vec<String>,
    pub decided_by: Option<String>,
    /// Verdict of each connection, with its number.
    marks: Vec<(u32, Verdict)>,
}

impl ProbeAnswer {
    pub(super) fn new(details: &CaseDetails, first: &Connections<'_>) -> Self {
        let journey = &first.explained.journey;
        let mut probes = details.result.probes.iter();
        let probe = probes.find(|probe| probe.name == journey.probe);
        let address = journey.addresses.map(|pair| pair.destination.to_string());
        let succeeded = first.succeeding().filter(|_| first.explained.failing);
        let explained = first.explained;
        let sentences = explained
            .facts
            .iter()
            .zip(explained.conclusion.iter().cloned());
        let (events, reasons): (Vec<_>, Vec<_>) = sentences.partition(|(fact, _)| fact.is_event());
        let texts = |facts: Vec<(&Fact, String)>| facts.into_iter().map(|(_, text)| text).collect();
        Self {
            title: probe.map_or_else(|| journey.probe.clone(), describe_result),
            route: probe.map(|probe| {
                let address = address.filter(|address| !probe.to.contains(address));
                let address = address.map_or_else(String::new, |address| format!(" ({address})"));
                let endpoints = &probe.observed.endpoints;
                let endpoints = if endpoints.is_empty() {
                    String::new()
                } else {
                    let names: Vec<&str> = endpoints.iter().map(String::as_str).collect();
                    format!("; answered by {}", names.join(" and "))
                };
                format!("from {} to {}{address}{endpoints}", probe.from, probe.to)
            }),
            events: texts(events),
            reasons: texts(reasons),
            succeeded: succeeded.map_or_else(Vec::new, |other| other.conclusion.clone()),
            decided_by: decided_by(first),
            marks: marks(first),
        }
    }

    /// Renders the marks of the connections.
    pub(super) fn render_marks(&self) -> Markup {
        html! {
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
        }
    }

    /// Renders the sentences as entries of a list of facts. `is_tested` is whether changes were
    /// tried.
    pub(super) fn render_facts(&self, is_tested: bool) -> Markup {
        html! {
            @if let Some(route) = &self.route {
                dt { "Probe" }
                dd { (printable(route)) }
            }
            (entry("What happened", &self.events))
            (entry("Why", &self.reasons))
            (entry("Other connections succeed", &self.succeeded))
            @if let Some(rule) = &self.decided_by {
                dt { "Decided by" }
                dd { code { (printable(rule)) } @if !is_tested { " (not tested)" } }
            }
        }
    }
}

fn entry(title: &str, sentences: &[String]) -> Markup {
    html! {
        @if !sentences.is_empty() { dt { (title) } }
        @for sentence in sentences { dd { (printable(sentence)) } }
    }
}

/// Describes the verdicts of a probe.
pub(super) fn describe_result(probe: &ProbeDocument) -> String {
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

/// Returns the verdicts of the connections of a probe at its stage.
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
    let facts = first.explained.facts.iter();
    let mut rules = facts
        .filter(|_| first.explained.failing)
        .filter_map(deciding_rule);
    let (namespace, rule) = rules.next()?;
    Some(format!("{namespace}: {}", render_rule(rule)))
}

/// Returns the rule that decided what a fact states. A rule that drops all marked packets does not
/// decide: the rule that marked the packet does.
fn deciding_rule(fact: &Fact) -> Option<(&str, &RuleReference)> {
    match fact {
        Fact::Lost {
            namespace,
            cause: Cause::Rule { rule, marked_by },
            ..
        } => Some((namespace, marked_by.as_ref().unwrap_or(rule))),
        Fact::KeptSource {
            namespace,
            reason: KeptSourceReason::Returned { rules },
            ..
        } => Some((namespace, rules.first()?)),
        _ => None,
    }
}
