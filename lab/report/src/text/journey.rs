//! Renders journeys as text: a line per namespace, and the rules in it that matter. No information
//! is in colour alone.

use std::fmt::Write as _;

use anstyle::{AnsiColor, Style};

use crate::case_head::CaseHead;
use crate::text::conclusion::{render_facts, render_rewrite};
use crate::text::journey_groups::{group_journeys, is_success};
use crate::text::{count, push_wrapped, strip_colours};
use svclab_journey::journey::{Hop, Journey, Kind, PacketPath, PathEnd};
use svclab_judge::{Explainer, find_reply, find_request};
use svclab_model::evidence::{AddressPair, Progress};
use svclab_runner::results::CaseResult;
use svclab_runner::run::CaseEvidence;

const HEAD: Style = Style::new().bold();
const MATTERS: Style = AnsiColor::Yellow.on_default().bold();
const FAINT: Style = Style::new().dimmed();

/// Maximum width of sentences, in columns.
const WIDTH: usize = 96;

/// Maximum number of differences from the lab that are named if no packet met them.
pub(crate) const MAX_UNMET: usize = 10;

/// Start of a sentence in a list.
const ITEM: &str = "  - ";

/// Prefix of a line that matters.
const MARK: &str = "> ";

/// Renders all journeys of a case without colours.
#[must_use]
pub fn render_case_journeys(result: &CaseResult, seen: &CaseEvidence) -> String {
    let expected = Some(result.result.has_passed());
    let (case, kernel) = (seen.case.clone(), seen.kernel.clone());
    let head = CaseHead::new(case, kernel, expected, &seen.evidence);
    let explainers = seen.prepared.explainers(&seen.evidence, &result.probes);
    let stages = seen.journeys.iter().zip(explainers).enumerate();
    let texts = stages.map(|(stage, (journeys, explainer))| {
        let step = seen.prepared.step_name(stage);
        let renderer = JourneyRenderer {
            explainer: &explainer,
            verbose: false,
            brief: false,
        };
        renderer.render_stage(&head, step, journeys.iter())
    });
    strip_colours(&texts.collect::<String>())
}

/// Renderer of journeys.
#[derive(Debug, Clone, Copy)]
pub struct JourneyRenderer<'a> {
    /// Explainer of the stage.
    pub explainer: &'a Explainer<'a>,
    /// Whether to print every rule and packet, not only those that matter.
    pub verbose: bool,
    /// Whether to print only the explanation of successful connections.
    pub brief: bool,
}

impl JourneyRenderer<'_> {
    /// Renders the title of a case and its connections.
    #[must_use]
    pub fn render_case<'j>(
        &self,
        head: &CaseHead,
        journeys: impl Iterator<Item = &'j Journey>,
    ) -> String {
        let journeys: Vec<&Journey> = journeys.collect();
        let guessed = journeys.iter().any(|journey| is_uncertain(journey));
        let mut text = render_title(head, guessed);
        text.push('\n');
        text + &self.render_journeys(journeys.into_iter())
    }

    /// Renders the connections of a stage, after the name of its step. The first stage has the
    /// title of the case instead.
    #[must_use]
    pub fn render_stage<'j>(
        &self,
        head: &CaseHead,
        step: Option<&str>,
        journeys: impl Iterator<Item = &'j Journey>,
    ) -> String {
        match step {
            None => self.render_case(head, journeys),
            Some(name) => format!(
                "\n{HEAD}step {name}{HEAD:#}\n\n{}",
                self.render_journeys(journeys)
            ),
        }
    }

    /// Renders the connections of a case, the failing ones first. Those with the same explanation are
    /// printed once. Colours are escape sequences.
    #[must_use]
    pub fn render_journeys<'j>(&self, journeys: impl Iterator<Item = &'j Journey>) -> String {
        let journeys: Vec<&Journey> = journeys.collect();
        let groups = group_journeys(
            journeys.iter().copied(),
            |journey| self.sentences(journey).join("\n"),
            |journey| self.explainer.is_failing(journey),
        );
        let mut text = String::new();
        for (journey, group_size) in groups {
            if !text.is_empty() {
                text.push('\n');
            }
            self.push_journey(&mut text, journey, group_size);
        }
        self.push_unmet(&mut text, journeys);
        text
    }

    /// Appends the possible further causes that no packet of a failing connection met.
    fn push_unmet(&self, text: &mut String, journeys: Vec<&Journey>) {
        let sentences = render_facts(&self.explainer.unmet(journeys));
        if sentences.is_empty() {
            return;
        }
        let _ = writeln!(
            text,
            "\n{HEAD}possible further causes, which no packet of these failing connections is known to have \
             met:{HEAD:#}"
        );
        let shown = if self.verbose { usize::MAX } else { MAX_UNMET };
        for sentence in sentences.iter().take(shown) {
            push_wrapped(text, ITEM, sentence, WIDTH);
        }
        if sentences.len() > shown {
            let more = count(sentences.len() - shown, "more cause", "more causes");
            let _ = writeln!(text, "  {FAINT}and {more} (-v shows them){FAINT:#}");
        }
    }

    fn sentences(&self, journey: &Journey) -> Vec<String> {
        render_facts(&self.explainer.conclude(journey))
    }

    fn push_journey(&self, text: &mut String, journey: &Journey, group_size: usize) {
        let probe = &journey.probe;
        let alike = match group_size {
            1 => String::new(),
            alike => format!(" (and {} more like it)", alike - 1),
        };
        let number = journey.number + 1;
        let _ = writeln!(
            text,
            "{HEAD}{probe} #{number}: {}{HEAD:#}{alike}",
            journey.verdict
        );
        for sentence in self.sentences(journey) {
            push_wrapped(text, ITEM, &sentence, WIDTH);
        }
        let is_success = is_success(journey);
        if let Some(progress) = journey.progress.filter(|_| !is_success) {
            push_wrapped(text, ITEM, &describe_progress(progress), WIDTH);
        }
        if self.brief && is_success && !self.verbose {
            return;
        }
        let request = find_request(journey);
        let answer = request.and_then(|request| find_reply(journey, request));
        // Of a load balancer's own connection, for example.
        let lost = journey.packets.iter().find(|path| {
            let is_dropped = matches!(path.end, PathEnd::Dropped { .. } | PathEnd::DroppedByRule);
            is_dropped && path.retransmission_of.is_none()
        });
        let mut omitted = 0_usize;
        for (index, flight) in journey.packets.iter().enumerate() {
            let is_duplicate = journey.packets[..index]
                .iter()
                .any(|earlier| is_same_path(earlier, flight));
            let matters = [request, answer, lost]
                .into_iter()
                .flatten()
                .any(|path| std::ptr::eq(path, flight))
                || (flight.retransmission_of.is_none()
                    && !is_duplicate
                    && matches!(flight.kind, Kind::Rst | Kind::Unreachable));
            if matters || self.verbose {
                self.push_packet_path(text, flight, journey);
            } else {
                omitted += 1;
            }
        }
        if omitted > 0 {
            let packets = count(omitted, "more packet", "more packets");
            let _ = writeln!(text, "\n  {FAINT}and {packets} (-v shows them){FAINT:#}");
        }
    }

    fn push_packet_path(&self, text: &mut String, flight: &PacketPath, journey: &Journey) {
        let direction = if flight.direction { "out" } else { "back" };
        let again = flight
            .retransmission_of
            .map_or_else(String::new, |_| ", retransmission".to_owned());
        let _ = writeln!(
            text,
            "\n  {HEAD}{} {direction}{again}{HEAD:#}",
            flight.kind.label()
        );
        let names = flight.hops.iter().map(|hop| hop.namespace.chars().count());
        let wide = names.max().unwrap_or(0);
        let ways: Vec<String> = flight.hops.iter().map(render_interfaces).collect();
        let ways_wide = ways
            .iter()
            .map(|way| way.chars().count())
            .max()
            .unwrap_or(0);
        let last = flight.hops.len().saturating_sub(1);
        let mut folded: Vec<&str> = Vec::new();
        for (index, (hop, way)) in flight.hops.iter().zip(&ways).enumerate() {
            let plain = hop.rewritten.is_none() && index != 0 && index != last;
            if plain && !self.verbose {
                folded.push(&hop.namespace);
                continue;
            }
            flush_folded(text, &mut folded);
            let ends_badly = index == last && !matches!(flight.end, PathEnd::Delivered);
            let (mark, style) = if hop.rewritten.is_some() || ends_badly {
                (MARK, MATTERS)
            } else {
                ("  ", Style::new())
            };
            let _ = writeln!(
                text,
                "  {style}{mark}{:wide$}  {way:ways_wide$}  {}{style:#}",
                hop.namespace, hop.before
            );
            self.push_rules(text, hop);
            if let Some(by) = render_rewrite(hop) {
                let _ = writeln!(
                    text,
                    "  {MATTERS}{MARK}  becomes {}{MATTERS:#} {by}",
                    hop.after
                );
            }
        }
        flush_folded(text, &mut folded);
        if let Some(looped) = &flight.routing_loop {
            let _ = writeln!(
                text,
                "      the last of {} rounds through {}",
                looped.rounds,
                looped.namespaces.join(", ")
            );
        }
        let _ = writeln!(text, "      {}", describe_end(flight, journey));
    }

    /// Adds the rules of a hop that matter.
    fn push_rules(&self, text: &mut String, hop: &Hop) {
        let mut flow: AddressPair = hop.before;
        for (index, step) in hop.matches.iter().enumerate() {
            let next_mark = hop
                .matches
                .get(index + 1)
                .map_or(step.mark, |next| next.mark);
            let matters = step.dropped
                || next_mark != step.mark
                || matches!(
                    step.target.as_deref(),
                    Some(
                        "RETURN" | "DNAT" | "SNAT" | "MASQUERADE" | "REDIRECT" | "REJECT" | "MARK"
                    )
                ) && step.number.is_some();
            if self.verbose || matters {
                let number = step
                    .number
                    .map_or_else(String::new, |number| format!(" {number}"));
                let mark = if step.mark == 0 {
                    String::new()
                } else {
                    format!(" mark={:#x}", step.mark)
                };
                let rule = match (&step.rule, &step.target) {
                    (Some(rule), _) => format!(": {rule}"),
                    (None, Some(target)) => format!(": {target}"),
                    (None, None) => String::new(),
                };
                let entries = match step.entries.as_slice() {
                    [] => String::new(),
                    entries => format!(" [{}]", entries.join("; ")),
                };
                let became = if step.flow == flow {
                    String::new()
                } else {
                    format!(" ({})", step.flow)
                };
                let _ = writeln!(
                    text,
                    "        {FAINT}{} {}{number}{FAINT:#}{mark}{rule}{entries}{became}",
                    step.table, step.chain
                );
            }
            flow = step.flow;
        }
    }
}

/// Renders the title of a case and which evidence is missing. `guessed` is whether the end of any
/// packet path is uncertain: unknown drops matter only then.
fn render_title(head: &CaseHead, guessed: bool) -> String {
    let status = match head.expected {
        Some(true) => "as expected",
        Some(false) => "not as expected",
        None => "current state",
    };
    let mut text = format!(
        "{HEAD}{}{HEAD:#}  {status}, on {}\n",
        head.case, head.kernel
    );
    for (missed, singular, plural) in [
        (head.packets_missed, "packet was", "packets were"),
        (
            head.trace_events_missed,
            "trace event was",
            "trace events were",
        ),
        (
            head.drops_missed,
            "dropped packet was",
            "dropped packets were",
        ),
    ] {
        if missed > 0 {
            let missed = count(missed, singular, plural);
            let _ = writeln!(text, "{MATTERS}{missed} not recorded{MATTERS:#}");
        }
    }
    if let Some(why) = head.drops_unknown.as_ref().filter(|_| guessed) {
        let sentence = format!("Only counters of dropped packets are available: {why}");
        push_wrapped(&mut text, "", &sentence, WIDTH - ITEM.len());
    }
    text
}

/// Whether drop evidence from the kernel could explain the end of a packet path better.
fn is_uncertain(journey: &Journey) -> bool {
    let mut flights = journey.packets.iter();
    flights.any(|flight| {
        matches!(
            flight.end,
            PathEnd::CountedDrop { .. } | PathEnd::NotReceived | PathEnd::Unknown
        )
    })
}

/// Whether two packets had the same hops and the same end, as errors that answer retransmissions.
fn is_same_path(left: &PacketPath, right: &PacketPath) -> bool {
    let path = |flight: &PacketPath| -> Vec<(String, AddressPair)> {
        let hops = flight.hops.iter();
        hops.map(|hop| (hop.namespace.clone(), hop.before))
            .collect()
    };
    left.kind == right.kind && left.end == right.end && path(left) == path(right)
}

/// Adds a line with the namespaces that only forwarded a packet.
fn flush_folded(text: &mut String, folded: &mut Vec<&str>) {
    if !folded.is_empty() {
        let _ = writeln!(
            text,
            "      {FAINT}... through {}{FAINT:#}",
            folded.join(", ")
        );
        folded.clear();
    }
}

/// Lists the interfaces through which a packet left a namespace, or entered it.
pub(crate) fn interfaces(hop: &Hop, out: bool) -> String {
    let seen = hop.crossings.iter().filter(|seen| seen.out == out);
    let names: Vec<String> = seen
        .map(|seen| {
            if seen.encapsulated {
                format!("{} (encapsulated)", seen.interface)
            } else {
                seen.interface.clone()
            }
        })
        .collect();
    names.join(", ")
}

/// Renders the interfaces through which a packet entered and left: `eth0, cni0 -> veth1`.
fn render_interfaces(hop: &Hop) -> String {
    let (incoming, outgoing) = (interfaces(hop, false), interfaces(hop, true));
    match (incoming.is_empty(), outgoing.is_empty()) {
        (true, true) => String::new(),
        (true, false) => format!("-> {outgoing}"),
        (false, true) => format!("{incoming} ->"),
        (false, false) => format!("{incoming} -> {outgoing}"),
    }
}

/// Describes the end of a packet.
pub(crate) fn describe_end(flight: &PacketPath, journey: &Journey) -> String {
    match &flight.end {
        PathEnd::Delivered => "delivered".to_owned(),
        PathEnd::Rejected(by) => {
            let mut words: Vec<&str> = by
                .iter()
                .filter_map(|index| journey.packets.get(*index))
                .map(|flight| flight.kind.label())
                .collect();
            words.dedup();
            format!("answered by {}", words.join(", "))
        }
        PathEnd::DroppedByRule => "dropped by this rule".to_owned(),
        PathEnd::Dropped {
            reason,
            function: place,
            ..
        } => {
            let place = place
                .as_ref()
                .map_or_else(String::new, |place| format!(" in {place}"));
            format!("dropped by the kernel: {reason}{place}")
        }
        PathEnd::CountedDrop {
            counter,
            increase: by,
            ..
        } => {
            format!("lost here; kernel counter {counter} +{by}")
        }
        PathEnd::NotReceived => "not received".to_owned(),
        PathEnd::Waiting(neighbour) => {
            format!("waiting here for the hardware address of {neighbour}")
        }
        PathEnd::Unknown => "end not recorded".to_owned(),
    }
}

/// Describes how far an exchange came.
fn describe_progress(progress: Progress) -> String {
    let Progress {
        sent,
        acknowledged,
        received,
        expected,
    } = progress;
    match acknowledged {
        Some(acknowledged) => format!(
            "The source sent {sent} of {expected} bytes, of which {acknowledged} were \
             acknowledged, and received {received} bytes."
        ),
        None => format!("{received} of {sent} datagrams were answered."),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn title_missing_evidence_is_listed() {
        let head = CaseHead {
            case: "a-lab/case=1".to_owned(),
            kernel: "6.12".to_owned(),
            expected: Some(true),
            packets_missed: 3,
            trace_events_missed: 2,
            drops_missed: 1,
            drops_unknown: None,
        };
        let unknown = CaseHead {
            packets_missed: 0,
            trace_events_missed: 0,
            drops_missed: 0,
            drops_unknown: Some("the kernel cannot trace drops; use another one".to_owned()),
            ..head.clone()
        };
        let titles = [(&head, true), (&unknown, true), (&unknown, false)];
        let rendered = titles.map(|(head, guessed)| render_title(head, guessed));
        insta::assert_snapshot!(strip_colours(&rendered.join("\n")));
    }
}
