//! Texts to place, with the parts of the drawing to which they belong.

use super::shape::Point;

/// Text with the place to which it belongs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LabelSite {
    pub text: String,
    /// Whether the text is the reason for the end; otherwise it is a new address.
    pub is_reason: bool,
    /// Height of the centre.
    pub y: i32,
    /// Left and right end of the line of the way in this row.
    pub run: (i32, i32),
    /// Centre, if the label is below or above the way. `None` if it is beside the line.
    pub center: Option<i32>,
}

/// End of a veth pair.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PortSite {
    pub name: String,
    /// Centre of the tracks, and the base line of the name.
    pub at: Point,
    /// Distance of the outer tracks from their centre.
    pub half: i32,
    pub is_lit: bool,
}
