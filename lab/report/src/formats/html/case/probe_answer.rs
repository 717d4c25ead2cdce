//! Answer about one probe: what happened to its connections, why, and which rule decided it.

use std::fmt;

use indexmap::IndexMap;
use maud::{Markup, html};

use crate::case_details::CaseDetails;
use crate::commands::explain::ExplainedJourney;
use crate::formats::html::packets::connections::Connections;
use crate::results::ProbeDocument;
use crate::text::conclusion::render_rule;
use crate::text::count;
use crate::text::expectation::describe_observed;
use svclab_diagnostic::printable::printable;
use svclab_experiment::why::ProposedChange;
use svclab_judge::{Cause, Fact, KeptSourceReason, Observed, RuleReference};
use svclab_model::evidence::Verdict;

/// Maximum number of sentences about other failing connections.
const MAX_OTHER_EVENTS: usize = 4;

/// Rule that decided the result of a connection.
pub(super) struct Decision {
    /// Namespace, place and text of the rule.
    pub rule: String,
    /// Result of a lab without the rule.
    pub test: &'static str,
}

/// Answer about the connections of a probe at one stage.
pub(super) struct ProbeAnswer {
    /// Name of the probe.
    pub name: String,
    /// Results of the probe, in one line.
    pub title: String,
    /// Source and target of the probe, with the address that the connections have.
    pub route: Option<String>,
    /// Ends of the packets of the first failing connection.
    pub events: Vec<String>,
    /// Reasons for these ends.
    pub reasons: Vec<String>,
    /// Ends of the packets of failing connections that went otherwise.
    pub other_events: Vec<String>,
    /// Sentences about a connection that succeeded, if others failed.
    pub succeeded: Vec<String>,
    /// Rules that decided the result.
    pub decided_by: Vec<Decision>,
    /// Verdict of each connection, with its number.
    marks: Vec<(u32, Verdict)>,
}

impl ProbeAnswer {
    /// Answers about the first connections of a probe. `all` are those of all probes.
    pub(super) fn new(
        details: &CaseDetails,
        first: &Connections<'_>,
        all: &[Connections<'_>],
    ) -> Self {
        let journey = &first.explained.journey;
        let mut probes = details.result.probes.iter();
        let probe = probes.find(|probe| probe.name == journey.probe);
        let address = journey.addresses.map(|pair| pair.destination.to_string());
        let succeeded = first.succeeding().filter(|_| first.explained.failing);
        let explained = first.explained;
        let (events, reasons) = sentences(explained);
        Self {
            name: journey.probe.clone(),
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
            other_events: other_events(first, all, &events),
            events,
            reasons,
            succeeded: succeeded.map_or_else(Vec::new, |other| other.conclusion.clone()),
            decided_by: decisions(details, first),
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

    /// Renders the sentences as entries of a list of facts.
    pub(super) fn render_facts(&self) -> Markup {
        html! {
            @if let Some(route) = &self.route {
                dt { "Probe" }
                dd { (printable(route)) }
            }
            (entry("What happened", &self.events))
            (entry("Other connections fail", &self.other_events))
            (entry("Why", &self.reasons))
            (entry("Other connections succeed", &self.succeeded))
            @if !self.decided_by.is_empty() { dt { "Decided by" } }
            @for decision in &self.decided_by {
                dd { code { (printable(&decision.rule)) } " (" (decision.test) ")" }
            }
        }
    }
}

/// Returns the sentences about events, and those about their reasons.
fn sentences(explained: &ExplainedJourney) -> (Vec<String>, Vec<String>) {
    let sentences = explained.facts.iter().zip(&explained.conclusion);
    let (events, reasons): (Vec<_>, Vec<_>) = sentences.partition(|(fact, _)| fact.is_event());
    let texts = |facts: Vec<(&Fact, &String)>| {
        let texts = facts.into_iter().map(|(_, text)| text.clone());
        texts.collect()
    };
    (texts(events), texts(reasons))
}

/// Describes how the failing connections of the probe ended that went otherwise than the first.
fn other_events(
    first: &Connections<'_>,
    all: &[Connections<'_>],
    events: &[String],
) -> Vec<String> {
    if !first.explained.failing {
        return Vec::new();
    }
    let others = all.iter().filter(|other| {
        let is_same_probe = other.explained.journey.probe == first.explained.journey.probe;
        is_same_probe && other.stage_index == first.stage_index && other.explained.failing
    });
    let mut counts: IndexMap<String, usize> = IndexMap::new();
    for other in others {
        let (own, _) = sentences(other.explained);
        for event in own.into_iter().filter(|event| !events.contains(event)) {
            *counts.entry(event).or_default() += other.count;
        }
    }
    let counts = counts.into_iter().take(MAX_OTHER_EVENTS);
    counts
        .map(|(event, number)| format!("{}: {event}", count(number, "connection", "connections")))
        .collect()
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

/// Returns the rules whose deletion fixes the probe. Without one, returns the rule that the
/// explanation of the first connections names.
fn decisions(details: &CaseDetails, first: &Connections<'_>) -> Vec<Decision> {
    if !first.explained.failing {
        return Vec::new();
    }
    let additions = &details.additions;
    let probe = &first.explained.journey.probe;
    let of_probe = additions.fixes.iter().flatten();
    let fixes = of_probe
        .filter(|fixes| fixes.probe == *probe)
        .flat_map(|fixes| &fixes.fixes);
    let confirmed = fixes.filter_map(|fix| match fix.changes.as_slice() {
        [change] => DeletedRule::new(&change.change),
        _ => None,
    });
    let confirmed: Vec<Decision> = confirmed
        .map(|rule| Decision {
            rule: rule.to_string(),
            test: "deleting the rule is a fix",
        })
        .collect();
    if !confirmed.is_empty() {
        return confirmed;
    }
    let mut rules = first.explained.facts.iter().filter_map(deciding_rule);
    let Some((namespace, rule)) = rules.next() else {
        return Vec::new();
    };
    let mut useless = additions.useless_changes.iter();
    let is_useless = useless.any(|tried| match tried.changes.as_slice() {
        [change] => {
            DeletedRule::new(&change.change).is_some_and(|deleted| deleted.is_rule(namespace, rule))
        }
        _ => false,
    });
    vec![Decision {
        rule: format!("{namespace}: {}", render_rule(rule)),
        test: if is_useless {
            "deleting only this rule does not help"
        } else {
            "not tested"
        },
    }]
}

/// Rule that a change deletes.
struct DeletedRule<'c> {
    namespace: &'c str,
    table: &'c str,
    chain: &'c str,
    number: u32,
    text: &'c str,
}

impl<'c> DeletedRule<'c> {
    const fn new(change: &'c ProposedChange) -> Option<Self> {
        match change {
            ProposedChange::DeleteRule {
                namespace,
                table,
                chain,
                number,
                rule,
                ..
            }
            | ProposedChange::DeleteNftRule {
                namespace,
                table,
                chain,
                number,
                rule,
            } => Some(Self {
                namespace: namespace.as_str(),
                table: table.as_str(),
                chain: chain.as_str(),
                number: *number,
                text: rule.as_str(),
            }),
            _ => None,
        }
    }

    /// Whether this is the rule of an explanation.
    fn is_rule(&self, namespace: &str, rule: &RuleReference) -> bool {
        (self.namespace, self.table, self.chain, Some(self.number))
            == (namespace, &*rule.table, &*rule.chain, rule.number)
    }
}

impl fmt::Display for DeletedRule<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            namespace,
            table,
            chain,
            number,
            text,
        } = self;
        write!(
            formatter,
            "{namespace}: {table} {chain} rule {number}: `{text}`"
        )
    }
}

/// Returns the rule that decided what a fact states. A rule that drops all marked packets does not
/// decide: the rule that marked the packet does. Neither does a rule that drops all packets in its
/// chain.
fn deciding_rule(fact: &Fact) -> Option<(&str, &RuleReference)> {
    match fact {
        Fact::Lost {
            namespace,
            cause:
                Cause::Rule {
                    rule,
                    marked_by,
                    sent_by,
                    ..
                },
            ..
        } => {
            let earlier = marked_by.as_deref().or(sent_by.as_deref());
            Some((namespace, earlier.unwrap_or(rule)))
        }
        Fact::KeptSource {
            namespace,
            reason: KeptSourceReason::Returned { rules },
            ..
        } => Some((namespace, rules.first()?)),
        _ => None,
    }
}
