//! Sizes in CSS pixels.

/// Sizes that differ between the forms of a drawing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sizes {
    /// Largest width of a drawing whose nodes are not all on ways.
    pub max_width: i32,
    /// Smallest width without margins.
    pub min_width: i32,
    /// Space around the drawing.
    pub margin: i32,
    /// Space inside of nodes and routers.
    pub padding: i32,
    pub pod_width: i32,
    pub host_width: i32,
    pub balancer_width: i32,
    /// Space between pods, hosts and load balancers.
    pub pod_gap: i32,
    pub node_gap: i32,
    /// Smallest width of a node without padding.
    pub min_node_width: i32,
    /// Width of the title of a router, left of its load balancers.
    pub router_title: i32,
    /// Widest group of tracks through one port.
    pub tracks: i32,
    /// Title of the network stack of a node.
    pub stack_title: &'static str,
    /// Whether there are texts beside ways: names of interfaces, new addresses and reasons.
    pub has_labels: bool,
}

/// Sizes of a drawing for a wide screen and for print.
pub const WIDE: Sizes = Sizes {
    max_width: 1160,
    min_width: 480,
    margin: 8,
    padding: 16,
    pod_width: 156,
    host_width: 156,
    balancer_width: 156,
    pod_gap: 14,
    node_gap: 24,
    min_node_width: 270,
    router_title: 120,
    tracks: 120,
    stack_title: "network stack",
    has_labels: true,
};

pub const POD_HEIGHT: i32 = 54;
/// Height of title and address at the top of a node or router.
pub const HEADER: i32 = 46;

/// Small box of a node that is not shown in full.
pub const SMALL_WIDTH: i32 = 150;

/// Space between parts of a place.
pub const GAP: i32 = 8;
/// Space between the strips of a node and its pods.
pub const POD_WIRE: i32 = 44;
/// Height of the title of a router.
pub const ROUTER_HEADER: i32 = 28;

/// Space between layers.
pub const CORRIDOR: i32 = 56;
/// Height of a row of a strip. Each passage through a strip has a row of its own.
pub const ROW: i32 = 26;
/// Height of the name at the top of a strip.
pub const STRIP_NAME: i32 = 22;
pub const TUNNEL_WIDTH: i32 = 96;
pub const TUNNEL_HEIGHT: i32 = 24;

/// Largest distance of two tracks through one port.
pub const TRACK: i32 = 26;

/// Width of a character of the monospaced font at 12 px.
pub const CHARACTER: i32 = 7;
/// Height of a text above and below its base line.
pub const ASCENT: i32 = 11;
pub const DESCENT: i32 = 3;
/// Space on the left and right of the names of an area, and of a narrow area.
pub const INSET: i32 = 10;
pub const NARROW_INSET: i32 = 5;
/// Width below which an area is narrow.
pub const NARROW: i32 = 120;
/// Distance of the name of an interface from the tracks through it: marks lie on tracks.
pub const PORT_GAP: i32 = 13;

/// Height of a strip with this number of rows.
pub const fn strip_height(rows: i32) -> i32 {
    STRIP_NAME + rows * ROW + if rows > 0 { GAP } else { 0 }
}

/// Height of a label.
pub const LABEL_HEIGHT: i32 = 20;

/// Returns the width of a text.
pub fn text_width(text: &str) -> i32 {
    let characters = i32::try_from(text.chars().count()).unwrap_or(i32::MAX);
    characters.saturating_mul(CHARACTER)
}

/// Returns the width of a label.
pub fn label_width(text: &str) -> i32 {
    text_width(text).saturating_add(2 * GAP)
}
