//! Defines the shapes of a drawing. All coordinates are in CSS pixels from the upper left corner.

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
