//! Sizes in CSS pixels.

/// Largest width of a drawing whose nodes are not all on ways.
pub const MAX_WIDTH: i32 = 1160;
pub const MIN_WIDTH: i32 = 480;
pub const MARGIN: i32 = 8;
pub const PADDING: i32 = 16;

pub const POD_WIDTH: i32 = 156;
pub const POD_HEIGHT: i32 = 54;
pub const POD_GAP: i32 = 14;

pub const NODE_GAP: i32 = 24;
pub const MIN_NODE_WIDTH: i32 = 270;
/// Height of title and address at the top of a node or router.
pub const HEADER: i32 = 46;

/// Small box of a node that is not shown in full.
pub const SMALL_WIDTH: i32 = 150;

/// Space between parts of a place.
pub const GAP: i32 = 8;
/// Space between the strips of a node and its pods.
pub const POD_WIRE: i32 = 34;
/// Height of the title of a router.
pub const ROUTER_HEADER: i32 = 28;
/// Width of the title of a router, left of its load balancers.
pub const ROUTER_TITLE: i32 = 120;

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
/// Widest group of tracks through one port.
pub const TRACKS: i32 = 120;

/// Width of a character of the monospaced font at 12 px.
pub const CHARACTER: i32 = 7;
/// Height of a text above and below its base line.
pub const ASCENT: i32 = 11;
pub const DESCENT: i32 = 3;
/// Space on the left and right of the names of an area.
pub const INSET: i32 = 10;
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
