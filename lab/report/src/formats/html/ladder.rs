//! Renders packets as ladders: one lane for each place, time downwards, one row for each hop. A row
//! opens to the rules that the packet met there.

use maud::{Markup, html};

use super::connections::Connections;
use super::lanes::lanes;
use crate::text::conclusion::render_rewrite;
use crate::text::journey::{describe_end, interfaces};
use svclab_diagnostic::printable::printable;
use svclab_drawing::Topology;
use svclab_journey::journey::{Hop, Journey, PacketPath, PathEnd, RuleMatch};

/// Maximum number of packets of a connection.
const MAX_PACKETS: usize = 24;

/// Number of lanes for which the style has classes.
const MAX_LANES: usize = 16;

/// Renders the packets of connections.
pub(super) fn render(topology: &Topology, connections: &[Connections<'_>], limit: usize) -> Markup {
    let omitted = connections.len().saturating_sub(limit);
    html! {
        h3 { "Packets" }
        @if connections.is_empty() { p { "No connection was made." } }
        @for connections in connections.iter().take(limit) {
            (connection(topology, connections))
        }
        @if omitted > 0 {
            p.note { (omitted) " more kinds of connections are in explain.txt and evidence.json." }
        }
    }
}

fn connection(topology: &Topology, connections: &Connections<'_>) -> Markup {
    let journey = connections.journey;
    let lanes = lanes(topology, journey);
    let alike = connections.count - 1;
    let omitted = journey.packets.len().saturating_sub(MAX_PACKETS);
    html! {
        details.connection open[connections.is_failing] {
            summary {
                (printable(&journey.probe)) " #" (journey.number + 1) ": "
                strong { (journey.verdict) }
                @if alike > 0 { " and " (alike) " like it" }
                @if let Some(step) = connections.step { ", after step " (printable(step)) }
            }
            ul { @for sentence in connections.sentences() { li { (printable(&sentence)) } } }
            @if journey.packets.is_empty() {
                p.note { "No packet was sent." }
            } @else {
                div.scroll tabindex="0" role="region" aria-label="Packets" {
                    div.ladder.(format!("n{}", lanes.len().min(MAX_LANES))) {
                        @for (index, lane) in lanes.iter().enumerate() {
                            div.lane.(column(index)) {
                                (printable(lane.strip_prefix("pod/").unwrap_or(lane)))
                            }
                        }
                    }
                    @for packet in journey.packets.iter().take(MAX_PACKETS) {
                        (packet_rows(&lanes, packet, journey))
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

fn packet_rows(lanes: &[String], packet: &PacketPath, journey: &Journey) -> Markup {
    let direction = if packet.direction { "request" } else { "reply" };
    let lane = |hop: &Hop| {
        lanes
            .iter()
            .position(|lane| *lane == hop.namespace)
            .unwrap_or(0)
    };
    let is_lost = !matches!(packet.end, PathEnd::Delivered);
    html! {
        div.packet.(direction) {
            p.kind {
                (packet.kind.label()) (if packet.direction { " out" } else { " back" })
                @if packet.retransmission_of.is_some() { ", retransmission" }
            }
            @for (index, hop) in packet.hops.iter().enumerate() {
                @let next = packet.hops.get(index + 1);
                details.hop.rewritten[hop.rewritten.is_some()] {
                    summary.ladder.(format!("n{}", lanes.len().min(MAX_LANES))) {
                        (arrow(lane(hop), next.map(lane), hop))
                        @if next.is_none() {
                            span.end.lost[is_lost].(column(lane(hop))) {
                                (printable(&describe_end(packet, journey)))
                            }
                        }
                    }
                    (hop_detail(hop))
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
            @if hop.rewritten.is_some() { span.diamond aria-label="rewritten" { "◆ " } }
            span.source { (hop.after.source) }
            " › "
            span.destination { (hop.after.destination) }
        }
    }
}

/// Renders what a place did with a packet.
fn hop_detail(hop: &Hop) -> Markup {
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
            @if hop.matches.is_empty() {
                p.note { "No rule matched, or the rules were not traced." }
            } @else {
                ol.rules { @for step in &hop.matches { (rule(step)) } }
            }
        }
    }
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
