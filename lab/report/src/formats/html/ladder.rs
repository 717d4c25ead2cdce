//! Renders packets as ladders: one lane for each place, time downwards, one row for each hop. A row
//! opens to the rules that the packet met there.

use maud::{Markup, html};

use super::connections::Connections;
use super::lanes::lanes;
use super::row::encode;
use crate::case_details::{CaseDetails, TrackedConnections, is_balanced_by, is_tracked_by};
use crate::drawing::describe_end_with_rule;
use crate::text::conclusion::render_rewrite;
use crate::text::journey::interfaces;
use svclab_diagnostic::printable::printable;
use svclab_journey::journey::{Hop, Journey, PacketPath, PathEnd, RuleMatch};
use svclab_model::evidence::{ConntrackEntry, IpvsConnection};

/// Maximum number of packets of a connection that failed, and of one that succeeded: the handshake,
/// data, and their acknowledgements.
const MAX_PACKETS: usize = 24;
const MAX_PACKETS_OF_SUCCESS: usize = 8;

/// Number of lanes for which the style has classes.
const MAX_LANES: usize = 16;

/// Renders the packets of connections of a case, whose section has the identifier `section`.
pub(super) fn render(
    section: &str,
    details: &CaseDetails,
    connections: &[Connections<'_>],
    limit: usize,
) -> Markup {
    let omitted = connections.len().saturating_sub(limit);
    html! {
        h2 { "Packets" }
        @if connections.is_empty() { p { "No connection was made." } }
        @for connections in connections.iter().take(limit) {
            (connection(section, details, connections))
        }
        @if omitted > 0 {
            p.note { (omitted) " more kinds of connections are in explain.txt and evidence.json." }
        }
    }
}

fn connection(section: &str, details: &CaseDetails, connections: &Connections<'_>) -> Markup {
    let explained = connections.explained;
    let journey = &explained.journey;
    let lanes = lanes(details.topology.as_ref(), journey);
    let start = journey.packets.first().map_or(0, |packet| packet.time);
    let alike = connections.count - 1;
    let name = format!("{}/{}", journey.probe, journey.number + 1);
    let step = connections.step.map(|step| format!("/after/{step}"));
    let id = format!("{section}:{}", encode(&(name + &step.unwrap_or_default())));
    let max_packets = if explained.failing {
        MAX_PACKETS
    } else {
        MAX_PACKETS_OF_SUCCESS
    };
    let omitted = journey.packets.len().saturating_sub(max_packets);
    html! {
        details.connection #(id) open[explained.failing] {
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
                div.scroll tabindex="0" role="region" aria-label={
                    "Packets of " (printable(&journey.probe)) " #" (journey.number + 1)
                    @if let Some(step) = connections.step { " after step " (printable(step)) }
                } {
                    div.ladder.(format!("n{}", lanes.len().min(MAX_LANES))) {
                        @for (index, lane) in lanes.iter().enumerate() {
                            div.lane.(column(index)) {
                                (printable(lane.strip_prefix("pod/").unwrap_or(lane)))
                            }
                        }
                    }
                    @for (number, packet) in journey.packets.iter().take(max_packets).enumerate() {
                        (packet_rows((&id, number + 1), &lanes, packet, journey, start, &details.entries))
                    }
                }
                @if omitted > 0 { p.note { (omitted) " more packets are in the capture." } }
            }
        }
    }
}

fn column(index: usize) -> String {
    format!("c{}", index.min(MAX_LANES - 1) + 1)
}

/// Renders a packet, which has a number in the connection with the given identifier. `start` is the
/// time of the first packet of its connection.
fn packet_rows(
    (connection, number): (&str, usize),
    lanes: &[String],
    packet: &PacketPath,
    journey: &Journey,
    start: u64,
    entries: &TrackedConnections,
) -> Markup {
    let id = format!("{connection}/p{number}");
    let after_us = packet.time.saturating_sub(start) / 1000;
    let direction = if packet.direction { "request" } else { "reply" };
    let lane = |hop: &Hop| {
        lanes
            .iter()
            .position(|lane| *lane == hop.namespace)
            .unwrap_or(0)
    };
    let is_lost = !matches!(packet.end, PathEnd::Delivered);
    html! {
        div.packet.(direction) #(id) {
            p.kind {
                a href={ "#" (id) } aria-label={ "Link to packet " (number) } { "#" (number) } " "
                (packet.kind.label()) (if packet.direction { " out" } else { " back" })
                @if packet.retransmission_of.is_some() { ", retransmission" }
                span.when {
                    " after " (after_us / 1000) "." (format!("{:03}", after_us % 1000)) " ms"
                    @if let Some(header) = packet.header { ", " (header.length) " bytes, TTL " (header.ttl) }
                }
            }
            @for (index, hop) in packet.hops.iter().enumerate() {
                @let next = packet.hops.get(index + 1);
                details.hop.rewritten[hop.rewritten.is_some()] {
                    summary.ladder.(format!("n{}", lanes.len().min(MAX_LANES))) {
                        (arrow(lane(hop), next.map(lane), hop))
                        @if next.is_none() {
                            span.end.lost[is_lost].(column(lane(hop))) {
                                (printable(&describe_end_with_rule(packet, journey)))
                            }
                        }
                    }
                    (hop_detail(hop, entries))
                }
            }
        }
    }
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

/// Renders what a place did with a packet.
fn hop_detail(hop: &Hop, entries: &TrackedConnections) -> Markup {
    let tracked = entries.conntrack.iter();
    let tracked = tracked.filter(|entry| is_tracked_by(hop, entry));
    let balanced = entries.ipvs.iter();
    let balanced = balanced.filter(|entry| is_balanced_by(hop, entry));
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
            @for entry in tracked { p.tracked { "conntrack afterwards: " (describe_tracked(entry)) } }
            @for entry in balanced { p.tracked { "IPVS afterwards: " (describe_balanced(entry)) } }
            @if hop.matches.is_empty() {
                p.note { "No rule matched, or the rules were not traced." }
            } @else {
                ol.rules { @for step in &hop.matches { (rule(step)) } }
            }
        }
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
    html! {
        li.dropped[step.dropped] {
            code {
                (printable(&step.table)) " " (printable(&step.chain))
                @if let Some(number) = step.number { " " (number) }
                @if let Some(text) = text { ": " (printable(text)) }
            }
            @if !step.entries.is_empty() { " [" (printable(&step.entries.join("; "))) "]" }
            @if step.mark != 0 { " mark " (format!("{:#x}", step.mark)) }
            @if let Some(service) = &step.service { " of service " (printable(service)) }
            @if step.dropped { strong { " dropped the packet" } }
        }
    }
}
