//! Renders the timeline of a case: steps, health checks, packets, drops and lines of logs.

mod scale;

use maud::{Markup, html};

use super::connections::{Connections, MAX_CONNECTIONS};
use super::ladder::packet_id;
use super::{micros, millis};
use crate::case_details::CaseDetails;
use crate::text::count;
use crate::timed_events::{EventKind, TimedEvent};
use scale::{CUT, Mark, Period, Placed, place};
use svclab_diagnostic::printable::printable;
use svclab_drawing::fit;
use svclab_journey::journey::{PacketPath, PathEnd};

/// Width of the names of rows, and of the space behind the last mark, in pixels.
const NAMES: i32 = 190;
const MARGIN: i32 = 90;

/// Height of a row and of the times above the rows, in pixels.
const ROW: i32 = 24;
const HEAD: i32 = 22;

/// Maximum length of the name of a row, in characters of 7 px.
const NAME: i32 = 25;

/// Row of marks.
struct Row {
    name: String,
    marks: Vec<RowMark>,
}

/// Mark of an event, or of one end of an event that lasts.
struct RowMark {
    /// Nanoseconds since the epoch.
    time: u64,
    class: &'static str,
    /// Identifier of the packet.
    packet: Option<String>,
    /// Whether the event lasts from the mark before.
    is_end: bool,
}

/// Returns the time of the first event or shown packet, in nanoseconds since the epoch.
pub(in crate::formats::html) fn start(
    details: &CaseDetails,
    connections: &[Connections<'_>],
) -> u64 {
    let shown = connections.iter().take(MAX_CONNECTIONS);
    let packets = shown.flat_map(Connections::shown_packets);
    let events = details.timed_events.events.iter();
    let times = packets
        .map(|packet| packet.time)
        .filter(|time| *time > 0)
        .chain(events.map(|event| event.time));
    times.min().unwrap_or(0)
}

/// Renders the timeline. `start` is its first time.
pub(in crate::formats::html) fn render(
    section: &str,
    details: &CaseDetails,
    connections: &[Connections<'_>],
    start: u64,
) -> Markup {
    let rows = rows(section, details, connections);
    if rows.is_empty() {
        return html! {};
    }
    let marks: Vec<Mark> = rows
        .iter()
        .enumerate()
        .flat_map(|(row, of_row)| {
            of_row.marks.iter().map(move |mark| Mark {
                at: micros(mark.time, start),
                row,
            })
        })
        .collect();
    let placed = place(&marks);
    let timed = &details.timed_events;
    html! {
        h2 { "Timeline" }
        div.scroll.timeline tabindex="0" role="region" aria-label="Timeline" { (drawing(&rows, &placed)) }
        @if placed.periods.len() > 1 {
            div.periods hidden {
                "Show packets and events of "
                @for period in &placed.periods { (button(period)) " " }
            }
        }
        @if !timed.events.is_empty() {
            details.events {
                summary { (count(timed.events.len(), "event", "events")) " besides packets" }
                ol { @for event in &timed.events { (list_item(event, start)) } }
                @if timed.omitted > 0 { p.note { (timed.omitted) " more are in evidence.json.gz." } }
            }
        }
    }
}

/// Renders microseconds as whole milliseconds, or as seconds.
fn short_time(micros: u64) -> String {
    let millis = micros / 1000;
    if millis < 1000 {
        format!("{millis} ms")
    } else {
        format!("{}.{:03} s", millis / 1000, millis % 1000)
    }
}

fn rows(section: &str, details: &CaseDetails, connections: &[Connections<'_>]) -> Vec<Row> {
    let mut rows: Vec<Row> = Vec::new();
    let events = &details.timed_events.events;
    let add_events = |rows: &mut Vec<Row>, kinds: &[EventKind]| {
        for event in events.iter().filter(|event| kinds.contains(&event.kind)) {
            let name = row_name(event);
            let end = event.until.map(|until| RowMark {
                time: until,
                is_end: true,
                ..RowMark::new(event.time, class(event.kind))
            });
            let marks = [RowMark::new(event.time, class(event.kind))];
            let marks = marks.into_iter().chain(end);
            match rows.iter_mut().find(|row| row.name == name) {
                Some(row) => row.marks.extend(marks),
                None => rows.push(Row {
                    name,
                    marks: marks.collect(),
                }),
            }
        }
    };
    add_events(&mut rows, &[EventKind::Step, EventKind::HealthCheck]);
    for connections in connections.iter().take(MAX_CONNECTIONS) {
        let journey = &connections.explained.journey;
        let id = connections.id(section);
        let packets = connections.shown_packets().enumerate();
        let timed = packets.filter(|(_, packet)| packet.time > 0);
        let marks = timed.map(|(index, packet)| RowMark {
            packet: Some(packet_id(&id, index)),
            ..RowMark::new(packet.time, packet_class(packet))
        });
        rows.push(Row {
            name: format!("{} #{}", journey.probe, journey.number + 1),
            marks: marks.collect(),
        });
    }
    add_events(&mut rows, &[EventKind::Drop, EventKind::Log]);
    rows.retain(|row| !row.marks.is_empty());
    rows
}

impl RowMark {
    const fn new(time: u64, class: &'static str) -> Self {
        Self {
            time,
            class,
            packet: None,
            is_end: false,
        }
    }
}

fn row_name(event: &TimedEvent) -> String {
    match event.kind {
        EventKind::Step => "steps".to_owned(),
        EventKind::HealthCheck => format!("checks of {}", event.source),
        EventKind::Drop => "drops".to_owned(),
        EventKind::Log => event.source.clone(),
    }
}

const fn class(kind: EventKind) -> &'static str {
    match kind {
        EventKind::Step => "step",
        EventKind::HealthCheck => "check",
        // Most of them are known from the packets above, and the others belong to other connections.
        EventKind::Drop => "drop",
        EventKind::Log => "log",
    }
}

const fn packet_class(packet: &PacketPath) -> &'static str {
    match (&packet.end, packet.direction) {
        (PathEnd::Delivered, true) => "request",
        (PathEnd::Delivered, false) => "reply",
        _ => "lost",
    }
}

/// Draws the rows. Readers who do not see the drawing have the ladder and the list.
fn drawing(rows: &[Row], placed: &Placed) -> Markup {
    let right = placed.positions.iter().copied().max().unwrap_or(0);
    let width = NAMES + right + MARGIN;
    let height = HEAD + ROW * i32::try_from(rows.len()).unwrap_or(0);
    let mut positions = placed.positions.iter().copied();
    html! {
        svg.times xmlns="http://www.w3.org/2000/svg" width=(width) height=(height)
            viewBox=(format!("0 0 {width} {height}")) aria-hidden="true" {
            @for period in &placed.periods {
                @let left = NAMES + period.left;
                rect x=(left - 8) y=(HEAD - 4) width=(period.right - period.left + 16) height=(height - HEAD + 4) rx="4" {}
                text x=(left - 8) y="12" { (short_time(period.from)) }
            }
            @for (index, row) in rows.iter().enumerate() {
                @let y = HEAD + ROW * i32::try_from(index).unwrap_or(0) + ROW / 2;
                text.row x="0" y=(y + 4) { (fit(&printable(&row.name), NAME)) }
                @for mark in &row.marks {
                    @let x = NAMES + positions.next().unwrap_or(0);
                    (render_mark(mark, x, y))
                }
            }
        }
    }
}

fn render_mark(mark: &RowMark, x: i32, y: i32) -> Markup {
    let shape = match mark.class {
        "request" => format!("M{} {y}h8m-3-3l3 3l-3 3", x - 4),
        "reply" => format!("M{} {y}h-8m3-3l-3 3l3 3", x + 4),
        "lost" | "drop" => format!("M{} {}l8 8m0-8l-8 8", x - 4, y - 4),
        "log" => format!("M{x} {}v8", y - 4),
        _ => format!("M{x} {}l4 4l-4 4l-4-4z", y - 4),
    };
    let path = html! { path.(mark.class).end[mark.is_end] d=(shape) {} };
    match &mark.packet {
        Some(id) => html! { a href={ "#" (id) } tabindex="-1" { (path) } },
        None => path,
    }
}

fn button(period: &Period) -> Markup {
    let (from, until) = (short_time(period.from), short_time(period.until));
    html! {
        button type="button" aria-pressed="false" data-from=(period.from) data-until=(period.until) {
            @if from == until { (from) } @else { (from) " to " (until) }
            " (" (period.marks) ")"
        }
    }
}

fn list_item(event: &TimedEvent, start: u64) -> Markup {
    let at = micros(event.time, start);
    html! {
        li data-at=(at) {
            span.when { (millis(at)) }
            " "
            @match event.kind {
                EventKind::Step => {
                    "step " strong { (printable(&event.text)) }
                    @if let Some(until) = event.until { ", applied at " (millis(micros(until, start))) }
                },
                EventKind::Log => { (printable(&event.source)) ": " code { (printable(&event.text)) } },
                EventKind::HealthCheck | EventKind::Drop => {
                    (printable(&event.source)) ": " (printable(&event.text))
                    @if let Some(until) = event.until { ", the last at " (millis(micros(until, start))) }
                },
            }
        }
    }
}

/// The distance of periods leaves room for a time of 8 characters of 7 px.
const _: () = assert!(CUT > 8 * 7);
