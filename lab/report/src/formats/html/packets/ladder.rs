//! Renders packets as ladders: one lane for each place, time downwards, one row for each hop. A row
//! opens to the rules that the packet met there.

use std::time::{Duration, SystemTime};

use maud::{Markup, html};

use super::bytes;
use super::connections::{Connections, MAX_CONNECTIONS, PacketGroup};
use super::lanes::lanes;
use super::{micros, millis};
use crate::case_details::{CaseDetails, TrackedConnections};
use crate::drawing::describe_end_with_rule;
use crate::formats::html::run::row::breakable;
use crate::shown_frames::ShownFrame;
use crate::text::conclusion::render_rewrite;
use crate::text::count;
use crate::text::journey::interfaces;
use svclab_diagnostic::printable::printable;
use svclab_journey::journey::{Hop, Journey, PacketPath, PathEnd, RuleMatch};
use svclab_judge::drop_row;
use svclab_model::evidence::{ConntrackEntry, IpvsConnection};

/// Number of lanes for which the style has classes.
const MAX_LANES: usize = 16;

/// Renders the packets of connections of a case, whose section has the identifier `section`. `start`
/// is the time at which the timeline starts.
pub(in crate::formats::html) fn render(
    section: &str,
    details: &CaseDetails,
    connections: &[Connections<'_>],
    start: u64,
) -> Markup {
    let omitted = connections.len().saturating_sub(MAX_CONNECTIONS);
    html! {
        h2 { "Packets" }
        @if connections.is_empty() { p { "No connection was made." } }
        @for connections in connections.iter().take(MAX_CONNECTIONS) {
            (connection(section, details, connections, start))
        }
        @if omitted > 0 {
            p.note {
                (count(omitted, "more kind of connections is", "more kinds of connections are"))
                " not shown. " code { "--report DIRECTORY" } " writes all of them to explain.txt."
            }
        }
    }
}

fn connection(
    section: &str,
    details: &CaseDetails,
    connections: &Connections<'_>,
    start: u64,
) -> Markup {
    let explained = connections.explained;
    let journey = &explained.journey;
    let ladder = Ladder {
        id: connections.id(section),
        lanes: lanes(details.topology.as_ref(), journey),
        journey,
        start,
        opened: journey.packets.first().map_or(0, |packet| packet.time),
    };
    let alike = connections.count - 1;
    let omitted = journey.packets.len() - connections.shown_packets().count();
    html! {
        details.connection #(ladder.id) open[explained.failing] {
            summary {
                (printable(&journey.probe)) " #" (journey.number + 1) ": "
                strong { (journey.verdict) }
                @if alike > 0 { " and " (alike) " like it" }
                @if let Some(step) = connections.step { ", after step " (printable(step)) }
            }
            ul { @for sentence in &explained.conclusion { li { (printable(sentence)) } } }
            @if journey.packets.is_empty() {
                p.note { "No packet was sent." }
            } @else {
                @if ladder.opened > 0 {
                    p.note { "First packet at " (kernel_time(ladder.opened)) " by the clock of the kernel." }
                }
                div.scroll tabindex="0" role="region" aria-label={
                    "Packets of " (printable(&journey.probe)) " #" (journey.number + 1)
                    @if let Some(step) = connections.step { " after step " (printable(step)) }
                } {
                    div.ladder.(ladder.class()) {
                        @for (index, lane) in ladder.lanes.iter().enumerate() {
                            div.lane.(column(index)) {
                                (breakable(lane.strip_prefix("pod/").unwrap_or(lane)))
                            }
                        }
                    }
                    @for group in connections.packet_groups() {
                        (ladder.packet(&group, connections.frames(details, group.first.0)))
                    }
                }
                @if connections.shown_packets().any(has_uncounted_rule) {
                    p.note { "Rules without a number of packets have no counter." }
                }
                @if omitted > 0 { p.note { (omitted) " more packets are in the capture." } }
                (tracked(connections, &details.entries))
            }
        }
    }
}

/// Whether a packet matched a rule that is known, but has no counter.
fn has_uncounted_rule(packet: &PacketPath) -> bool {
    let mut matches = packet.hops.iter().flat_map(|hop| &hop.matches);
    matches.any(|step| step.rule.is_some() && step.packets.is_none())
}

fn column(index: usize) -> String {
    format!("c{}", index.min(MAX_LANES - 1) + 1)
}

/// Ladder of a connection.
struct Ladder<'j> {
    /// Identifier of the connection.
    id: String,
    lanes: Vec<String>,
    journey: &'j Journey,
    /// Time at which the timeline starts.
    start: u64,
    /// Time of the first packet.
    opened: u64,
}

impl Ladder<'_> {
    fn class(&self) -> String {
        format!("n{}", self.lanes.len().min(MAX_LANES))
    }

    fn lane(&self, hop: &Hop) -> usize {
        let mut lanes = self.lanes.iter();
        lanes.position(|lane| *lane == hop.namespace).unwrap_or(0)
    }

    fn id(&self, index: usize) -> String {
        packet_id(&self.id, index)
    }

    /// Returns the microseconds since the start of the timeline.
    fn at(&self, packet: &PacketPath) -> u64 {
        micros(packet.time, self.start)
    }

    /// Renders the time since the first packet.
    fn after(&self, packet: &PacketPath) -> String {
        if packet.time == 0 {
            return "an unknown time".to_owned();
        }
        millis(micros(packet.time, self.opened))
    }

    /// Renders a packet with its retransmissions and its bytes.
    fn packet<'f>(
        &self,
        group: &PacketGroup<'_>,
        frames: impl Iterator<Item = &'f ShownFrame>,
    ) -> Markup {
        let (index, packet) = group.first;
        let id = self.id(index);
        let number = index + 1;
        let direction = if packet.direction { "request" } else { "reply" };
        let is_lost = !matches!(packet.end, PathEnd::Delivered);
        html! {
            div.packet.(direction) #(id) data-at=(self.at(packet)) {
                p.kind {
                    a href={ "#" (id) } aria-label={ "Link to packet " (number) } { "#" (number) } " "
                    (packet.kind.label()) (if packet.direction { " out" } else { " back" })
                    @if packet.retransmission_of.is_some() { ", retransmission" }
                    span.when {
                        " after " (self.after(packet))
                        @if let Some(header) = packet.header { ", " (header.length) " bytes, TTL " (header.ttl) }
                    }
                }
                @for (index, hop) in packet.hops.iter().enumerate() {
                    @let next = packet.hops.get(index + 1);
                    details.hop.rewritten[hop.rewritten.is_some()] {
                        summary.ladder.(self.class()) {
                            (arrow(self.lane(hop), next.map(|next| self.lane(next)), hop))
                            @if next.is_none() {
                                span.end.lost[is_lost].(column(self.lane(hop))) {
                                    (printable(&describe_end_with_rule(packet, self.journey)))
                                }
                            }
                        }
                        (hop_detail(hop, next.is_none().then_some(&packet.end)))
                    }
                }
                (self.retransmissions(&group.retransmissions))
                @for frame in frames { (bytes::render(frame)) }
            }
        }
    }

    /// Renders the retransmissions of a packet that had the same way and end.
    fn retransmissions(&self, packets: &[(usize, &PacketPath)]) -> Markup {
        html! {
            @if !packets.is_empty() {
                p.again {
                    "Retransmitted with the same end:"
                    @for (index, packet) in packets {
                        @let id = self.id(*index);
                        " "
                        span #(id) data-at=(self.at(packet)) {
                            a href={ "#" (id) } { "#" (index + 1) } " after " (self.after(packet))
                        }
                    }
                }
            }
        }
    }
}

/// Returns the identifier of a packet, which has an index in its connection.
pub(super) fn packet_id(connection: &str, index: usize) -> String {
    format!("{connection}/p{}", index + 1)
}

/// Renders the way from one lane to the next, with the addresses there.
fn arrow(from: usize, to: Option<usize>, hop: &Hop) -> Markup {
    let Some(to) = to.filter(|to| *to != from) else {
        return html! {};
    };
    let (left, right) = (from.min(to), from.max(to));
    let (start, span) = (
        column(left),
        format!("s{}", (right - left + 1).min(MAX_LANES)),
    );
    let way = if to > from { "right" } else { "left" };
    html! {
        span.arrow.(start).(span).(way) {
            @if hop.rewritten.is_some() { span.diamond role="img" aria-label="rewritten" { "◆ " } }
            span.source { (hop.after.source) }
            " › "
            span.destination { (hop.after.destination) }
        }
    }
}

/// Renders nanoseconds since the epoch in UTC.
fn kernel_time(nanoseconds: u64) -> String {
    let time = SystemTime::UNIX_EPOCH + Duration::from_nanos(nanoseconds);
    humantime::format_rfc3339_micros(time).to_string()
}

/// Renders what a place did with a packet, and why it ended there.
fn hop_detail(hop: &Hop, end: Option<&PathEnd>) -> Markup {
    let (ingress, egress) = (interfaces(hop, false), interfaces(hop, true));
    html! {
        div.detail {
            p {
                strong { (printable(&hop.namespace)) }
                @if !ingress.is_empty() { ", received through " (printable(&ingress)) }
                @if !egress.is_empty() { ", sent through " (printable(&egress)) }
            }
            @if let Some(by) = render_rewrite(hop) {
                p.became { (hop.before) " becomes " (hop.after) " " (printable(&by)) }
            }
            @if let Some(end) = end { (drop_reason(end)) }
            @if hop.matches.is_empty() {
                p.note { "No rule was seen." }
            } @else {
                ol.rules { @for step in &hop.matches { (rule(step)) } }
            }
        }
    }
}

/// Renders the entries of conntrack and IPVS that the shown packets of a connection belong to.
fn tracked(connections: &Connections<'_>, entries: &TrackedConnections) -> Markup {
    let packets = connections.shown_packets();
    let own = TrackedConnections::of_packets(packets, &entries.conntrack, &entries.ipvs);
    html! {
        @if own != TrackedConnections::default() {
            details.tracked {
                summary { "Tracked connections, after the packets" }
                ul {
                    @for entry in &own.conntrack {
                        li { (printable(&entry.namespace)) ": conntrack: " (printable(&describe_tracked(entry))) }
                    }
                    @for entry in &own.ipvs {
                        li { (printable(&entry.namespace)) ": IPVS: " (printable(&describe_balanced(entry))) }
                    }
                }
            }
        }
    }
}

/// Renders why the kernel dropped a packet, and where in the sources of Linux.
fn drop_reason(end: &PathEnd) -> Markup {
    let PathEnd::Dropped {
        reason,
        function,
        settings,
    } = end
    else {
        return html! {};
    };
    let row = drop_row(reason, function.as_deref());
    html! {
        p.dropped {
            "Drop reason of the kernel: " (printable(reason))
            @if let Some(function) = function { " in " (printable(function)) }
            @if let Some(row) = row { "; in the sources of Linux: " (row.source) }
        }
        @for setting in settings { p { (printable(&setting.name)) " = " (printable(&setting.value)) } }
    }
}

fn describe_tracked(entry: &ConntrackEntry) -> String {
    let state = entry.state.as_deref().unwrap_or("no state");
    let expires = match entry.expires {
        Some(seconds) => format!("expires in {seconds} s"),
        None => "deleted".to_owned(),
    };
    let mark = match entry.mark {
        0 => String::new(),
        mark => format!(", mark {mark:#x}"),
    };
    let (original, reply) = (entry.original, entry.reply);
    format!("{state}, original {original}, reply {reply}{mark}, {expires}")
}

fn describe_balanced(entry: &IpvsConnection) -> String {
    let (client, server, real) = (entry.client, entry.virtual_server, entry.real_server);
    let (state, expires) = (&entry.state, entry.expires);
    format!("{state}, {client} to {server} at {real}, expires in {expires} s")
}

fn rule(step: &RuleMatch) -> Markup {
    let text = step.rule.as_ref().or(step.target.as_ref());
    let class = step.dropped.then_some("dropped");
    html! {
        li class=[class] {
            code {
                (printable(&step.table)) " " (printable(&step.chain))
                @if let Some(number) = step.number { " " (number) }
                @if let Some(text) = text { ": " (printable(text)) }
            }
            @if let Some(packets) = step.packets { " (" (count(packets, "packet", "packets")) " in all)" }
            @if !step.entries.is_empty() { " [" (printable(&step.entries.join("; "))) "]" }
            @if step.mark != 0 { " mark " (format!("{:#x}", step.mark)) }
            @if let Some(service) = &step.service { " of service " (printable(service)) }
            @if step.dropped { strong { " dropped the packet" } }
        }
    }
}
