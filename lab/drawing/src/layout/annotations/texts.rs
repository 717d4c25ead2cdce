//! Positions of the names of areas and interfaces.

use svclab_diagnostic::printable::printable;

use crate::layout::shape::{Area, AreaKind, Point, Port, Rect};
use crate::layout::size;

/// Line of text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Text {
    /// Start of the base line.
    pub at: Point,
    /// Printable text, cut to the space for it.
    pub text: String,
}

/// Names of an area.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Names {
    pub title: Text,
    /// Second line. `None` if the area has one line.
    pub detail: Option<Text>,
    /// Whether a name is longer than the space for it.
    pub is_cut: bool,
}

impl Text {
    /// Returns the rectangle that the text covers.
    pub fn rect(&self) -> Rect {
        Rect {
            x: self.at.x,
            y: self.at.y - size::ASCENT,
            width: size::text_width(&self.text),
            height: size::ASCENT + size::DESCENT,
        }
    }
}

/// Whether an area has one line of text.
pub const fn is_flat(kind: AreaKind) -> bool {
    matches!(kind, AreaKind::Strip | AreaKind::Tunnel)
}

/// Returns the names of an area.
pub fn names(area: &Area) -> Names {
    let Rect { x, y, width, .. } = area.rect;
    let inset = if width < size::NARROW {
        size::NARROW_INSET
    } else {
        size::INSET
    };
    let x = x + inset;
    let space = (width - 2 * inset) / size::CHARACTER;
    let (title, detail) = (
        fit(&printable(&area.title), space),
        fit(&printable(&area.detail), space),
    );
    // Marks of ways lie on the upper edge of pods.
    let y = y + if area.kind == AreaKind::Pod { 6 } else { 0 };
    let line = if is_flat(area.kind) { 16 } else { 19 };
    let is_cut = title != area.title || detail != area.detail;
    let text = |text: String, line: i32| Text {
        at: Point { x, y: y + line },
        text,
    };
    Names {
        title: text(title, line),
        detail: (!detail.is_empty()).then(|| text(detail, 36)),
        is_cut,
    }
}

/// Returns the name of an interface.
pub fn port_name(port: &Port) -> Text {
    Text {
        at: port.at,
        text: printable(&port.name).into_owned(),
    }
}

/// Cuts a text to a number of characters.
#[must_use]
pub fn fit(text: &str, space: i32) -> String {
    let space = usize::try_from(space).unwrap_or(0);
    if text.chars().count() <= space {
        return text.to_owned();
    }
    let cut: String = text.chars().take(space.saturating_sub(1)).collect();
    if cut.is_empty() { cut } else { cut + "…" }
}
