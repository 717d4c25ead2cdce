//! Defines the shapes of a drawing. All coordinates are in CSS pixels from the upper left corner.

use super::size::{LABEL_HEIGHT, label_width};

/// Radius of the corners of ways.
pub const RADIUS: i32 = 10;

/// Finished drawing.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Drawing {
    /// Width of the drawing.
    pub width: i32,
    /// Height of the drawing.
    pub height: i32,
    /// Areas of places, each before the areas inside it.
    pub areas: Vec<Area>,
    /// Veth pairs.
    pub wires: Vec<Wire>,
    /// Names of interfaces.
    pub ports: Vec<Port>,
    /// Ways of packets.
    pub tracks: Vec<Track>,
}

/// Point of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Point {
    /// Distance from the left.
    pub x: i32,
    /// Distance from the top.
    pub y: i32,
}

impl Point {
    /// Returns the length of a horizontal or vertical line to another point.
    #[must_use]
    pub const fn distance(self, to: Self) -> i32 {
        (self.x - to.x).abs() + (self.y - to.y).abs()
    }

    /// Returns the point at a distance, on the horizontal or vertical line to another point.
    #[must_use]
    pub const fn towards(self, to: Self, distance: i32) -> Self {
        Self {
            x: self.x + (to.x - self.x).signum() * distance,
            y: self.y + (to.y - self.y).signum() * distance,
        }
    }
}

/// Rectangle.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Rect {
    /// Distance from the left.
    pub x: i32,
    /// Distance from the top.
    pub y: i32,
    /// Width.
    pub width: i32,
    /// Height.
    pub height: i32,
}

impl Rect {
    /// Returns the horizontal centre.
    #[must_use]
    pub const fn center(&self) -> i32 {
        self.x + self.width / 2
    }

    /// Returns the lower edge.
    #[must_use]
    pub const fn bottom(&self) -> i32 {
        self.y + self.height
    }

    /// Returns the right edge.
    #[must_use]
    pub const fn right(&self) -> i32 {
        self.x + self.width
    }

    /// Returns the square around a point with this distance from its centre to its edges.
    #[must_use]
    pub const fn around(center: Point, distance: i32) -> Self {
        Self {
            x: center.x - distance,
            y: center.y - distance,
            width: 2 * distance,
            height: 2 * distance,
        }
    }

    /// Returns the smallest rectangle with both corners.
    #[must_use]
    pub fn between(from: Point, to: Point) -> Self {
        Self {
            x: from.x.min(to.x),
            y: from.y.min(to.y),
            width: (from.x - to.x).abs(),
            height: (from.y - to.y).abs(),
        }
    }

    /// Whether the insides of both rectangles have a common point. The inside of a line is the line
    /// without its ends.
    #[must_use]
    pub const fn overlaps(&self, other: &Self) -> bool {
        self.x < other.right()
            && other.x < self.right()
            && self.y < other.bottom()
            && other.y < self.bottom()
    }

    /// Whether the other rectangle lies inside.
    #[must_use]
    pub const fn contains(&self, other: &Self) -> bool {
        self.x <= other.x
            && self.y <= other.y
            && other.right() <= self.right()
            && other.bottom() <= self.bottom()
    }
}

/// Area of a place or of a part of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Area {
    /// Kind of the area.
    pub kind: AreaKind,
    /// Position.
    pub rect: Rect,
    /// First line.
    pub title: String,
    /// Second line; may be empty.
    pub detail: String,
    /// Whether a way passes through it, or nothing is drawn of any way.
    pub is_lit: bool,
}

/// Kind of an area.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AreaKind {
    /// Host outside of the cluster.
    Host,
    /// Router between machines.
    Router,
    /// Node.
    Node,
    /// Pod, or an unknown peer of an interface.
    Pod,
    /// List of places that are not drawn.
    Others,
    /// Load balancer.
    Balancer,
    /// Tunnel device.
    Tunnel,
    /// Network stack or bridge.
    Strip,
}

/// Veth pair.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wire {
    /// Points from one end to the other.
    pub points: Vec<Point>,
    /// Whether a way uses it, or nothing is drawn of any way.
    pub is_lit: bool,
    /// Whether one of the ends is down.
    pub is_down: bool,
}

/// Name of an interface at its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Port {
    /// Start of the base line of the text.
    pub at: Point,
    /// Interface name.
    pub name: String,
    /// Whether a way uses it, or nothing is drawn of any way.
    pub is_lit: bool,
}

/// Way of a packet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Track {
    /// Index of the way.
    pub way: usize,
    /// Whether the packet travels in request direction.
    pub is_request: bool,
    /// Corners of the way.
    pub points: Vec<Point>,
    /// Parts in which the packet is inside a tunnel packet.
    pub tunnels: Vec<Vec<Point>>,
    /// Numbers of the visits and other marks.
    pub marks: Vec<Mark>,
    /// Labels beside the way.
    pub labels: Vec<Label>,
}

/// Mark on a way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mark {
    /// Centre.
    pub at: Point,
    /// Meaning.
    pub kind: MarkKind,
}

impl Mark {
    /// Returns the square that the mark covers.
    #[must_use]
    pub const fn rect(&self) -> Rect {
        Rect::around(self.at, self.kind.radius())
    }
}

/// Meaning of a mark.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MarkKind {
    /// Number of a visit, from 1.
    Number(usize),
    /// An address was rewritten.
    Rewrite,
    /// A socket received the packet.
    Delivered,
    /// The packet ended here.
    Stopped,
    /// Nothing more is known of the packet.
    Unknown,
}

impl MarkKind {
    /// Distance from the centre of a mark to its edge, with the outline.
    pub(crate) const fn radius(self) -> i32 {
        match self {
            Self::Number(_) => 11,
            Self::Rewrite => 8,
            Self::Delivered | Self::Stopped | Self::Unknown => 10,
        }
    }
}

/// Text beside a way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Label {
    /// Upper left corner.
    pub at: Point,
    /// Text.
    pub text: String,
    /// Whether the text states why the packet ended; otherwise it is a new address.
    pub is_reason: bool,
}

impl Label {
    /// Returns the rectangle that the label covers.
    #[must_use]
    pub fn rect(&self) -> Rect {
        Rect {
            x: self.at.x,
            y: self.at.y,
            width: label_width(&self.text),
            height: LABEL_HEIGHT,
        }
    }
}
