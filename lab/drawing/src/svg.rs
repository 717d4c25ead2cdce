//! Renders a drawing as SVG.

use std::fmt::Write as _;

use maud::{Markup, PreEscaped, html};

use svclab_diagnostic::printable::printable;

use crate::layout::annotations::texts::{self, Names};
use crate::shape::{Area, AreaKind, Drawing, Label, Mark, MarkKind, Point, RADIUS, Rect, Track};
use crate::steps::describe_end;
use crate::topology::Topology;
use crate::way::Way;

/// Style of a drawing that is a file of its own, with the colours. A page that contains drawings
/// contains the style, too.
const STYLE: &str = include_str!("drawing.css");

/// Renders a drawing as a file, which brings its own style.
#[must_use]
pub fn render_file(drawing: &Drawing, title: &str, description: &str) -> String {
    let style = html! { style { (PreEscaped(STYLE)) } };
    let svg = svg(drawing, title, description, &style);
    format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n{}\n",
        svg.into_string()
    )
}

/// Renders a drawing as an element of a page.
#[must_use]
pub fn render_element(drawing: &Drawing, title: &str, description: &str) -> Markup {
    svg(drawing, title, description, &html! {})
}

/// Describes ways in words, for readers who do not see the picture.
#[must_use]
pub fn describe(topology: &Topology, ways: &[Way]) -> String {
    if ways.is_empty() {
        let places: Vec<&str> = topology.places().map(|place| &*place.title).collect();
        return format!("Places: {}.", places.join(", "));
    }
    let texts = ways.iter().map(|way| {
        let label = way.label;
        let places: Vec<&str> = way.visits.iter().map(|visit| &*visit.namespace).collect();
        format!("{label}: {}: {}.", places.join(", "), describe_end(way))
    });
    texts.collect::<Vec<_>>().join(" ")
}

fn svg(drawing: &Drawing, title: &str, description: &str, style: &Markup) -> Markup {
    let view = format!("0 0 {} {}", drawing.width, drawing.height);
    html! {
        svg.topology xmlns="http://www.w3.org/2000/svg" viewBox=(view) width=(drawing.width)
            height=(drawing.height) role="img" aria-label=(printable(title)) {
            title { (printable(title)) }
            desc { (printable(description)) }
            (style)
            @for area in &drawing.areas { (render_rect(area)) }
            @for wire in &drawing.wires {
                path class=(classes("wire", wire.is_lit, wire.is_down)) d=(path(&wire.points, 0)) {}
            }
            @for track in &drawing.tracks { (render_track(track)) }
            @for area in &drawing.areas { (render_names(area)) }
            @for port in &drawing.ports {
                @let name = texts::port_name(port);
                text.port.unvisited[!port.is_lit] x=(name.at.x) y=(name.at.y) { (name.text) }
            }
            @for track in &drawing.tracks { (render_marks(track)) }
        }
    }
}

fn classes(name: &str, is_lit: bool, is_down: bool) -> String {
    let unvisited = if is_lit { "" } else { " unvisited" };
    let down = if is_down { " down" } else { "" };
    format!("{name}{unvisited}{down}")
}

const fn class(kind: AreaKind) -> &'static str {
    match kind {
        AreaKind::Host => "host",
        AreaKind::Router => "router",
        AreaKind::Node => "node",
        AreaKind::Pod => "pod",
        AreaKind::Others => "others",
        AreaKind::Balancer => "balancer",
        AreaKind::Tunnel => "tunnel",
        AreaKind::Strip => "strip",
    }
}

fn render_rect(area: &Area) -> Markup {
    let Rect {
        x,
        y,
        width,
        height,
    } = area.rect;
    let radius = if texts::is_flat(area.kind) { 4 } else { 8 };
    html! {
        g class=(classes(class(area.kind), area.is_lit, false)) {
            rect x=(x) y=(y) width=(width) height=(height) rx=(radius) {}
        }
    }
}

/// Renders the names of an area, above the ways through it.
fn render_names(area: &Area) -> Markup {
    let Names {
        title,
        detail,
        is_cut,
    } = texts::names(area);
    html! {
        g class=(classes(class(area.kind), area.is_lit, false)) {
            @if is_cut { title { (printable(&area.title)) " " (printable(&area.detail)) } }
            text.title x=(title.at.x) y=(title.at.y) { (title.text) }
            @if let Some(detail) = detail {
                text.detail x=(detail.at.x) y=(detail.at.y) { (detail.text) }
            }
        }
    }
}

fn render_track(track: &Track) -> Markup {
    let direction = if track.is_request { "request" } else { "reply" };
    let line = path(&track.points, RADIUS);
    html! {
        g class=(format!("track {direction}")) data-way=(track.way) {
            path.halo d=(line) {}
            @for tunnel in &track.tunnels { path.inside d=(path(tunnel, RADIUS)) {} }
            path.line d=(line) {}
        }
    }
}

fn render_marks(track: &Track) -> Markup {
    let direction = if track.is_request { "request" } else { "reply" };
    html! {
        g class=(format!("marks {direction}")) data-way=(track.way) {
            @for label in &track.labels { (render_label(label)) }
            @for mark in &track.marks { (render_mark(mark)) }
        }
    }
}

fn render_label(label: &Label) -> Markup {
    let Point { x, y } = label.at;
    let Rect { width, height, .. } = label.rect();
    html! {
        g class=(if label.is_reason { "reason" } else { "rewrite" }) {
            rect x=(x) y=(y) width=(width) height=(height) rx="10" {}
            text x=(x + 8) y=(y + 14) { (printable(&label.text)) }
        }
    }
}

fn render_mark(mark: &Mark) -> Markup {
    let Point { x, y } = mark.at;
    let at = format!("translate({x} {y})");
    html! {
        @match mark.kind {
            MarkKind::Number(number) => g.number transform=(at) {
                circle r="10" {}
                text y="4" text-anchor="middle" { (number) }
            },
            MarkKind::Rewrite => path.diamond transform=(at) d="M0 -7 7 0 0 7 -7 0Z" {},
            MarkKind::Delivered => g.delivered transform=(at) {
                circle r="9" {}
                path d="M-4 0 -1 4 5 -4" {}
            },
            MarkKind::Stopped => g.stopped transform=(at) {
                path.sign d="M-4 -10 4 -10 10 -4 10 4 4 10 -4 10 -10 4 -10 -4Z" {}
                path.cross d="M-4 -4 4 4 M4 -4 -4 4" {}
            },
            MarkKind::Unknown => g.unknown transform=(at) {
                circle r="9" {}
                text y="4" text-anchor="middle" { "?" }
            },
        }
    }
}

/// Returns the commands of a path with round corners.
fn path(points: &[Point], radius: i32) -> String {
    let Some((first, rest)) = points.split_first() else {
        return String::new();
    };
    let mut text = format!("M{} {}", first.x, first.y);
    let mut before = *first;
    for (index, corner) in rest.iter().enumerate() {
        let Some(after) = rest.get(index + 1) else {
            let _ = write!(text, "L{} {}", corner.x, corner.y);
            break;
        };
        let radius = radius
            .min(before.distance(*corner) / 2)
            .min(corner.distance(*after) / 2);
        let start = corner.towards(before, radius);
        let end = corner.towards(*after, radius);
        let _ = write!(
            text,
            "L{} {}Q{} {} {} {}",
            start.x, start.y, corner.x, corner.y, end.x, end.y
        );
        before = *corner;
    }
    text
}
