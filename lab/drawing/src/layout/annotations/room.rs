//! Space of a drawing: the texts, marks and labels in it, which must not cover each other.

use super::texts;
use crate::layout::shape::{Drawing, Point, Rect};

/// Space of a drawing.
#[derive(Debug)]
pub struct Room {
    canvas: Rect,
    /// Rectangles of texts, marks and labels.
    taken: Vec<Rect>,
    /// Straight parts of ways.
    lines: Vec<Rect>,
}

impl Room {
    /// Returns the space of a drawing with the names of its areas, and the corners of ways.
    pub fn new<'a>(drawing: &Drawing, ways: impl Iterator<Item = &'a [Point]>) -> Self {
        let names = drawing.areas.iter().map(texts::names);
        let texts = names.flat_map(|names| std::iter::once(names.title).chain(names.detail));
        let pairs = ways.flat_map(|points| points.windows(2));
        Self {
            canvas: Rect {
                width: drawing.width,
                height: drawing.height,
                ..Rect::default()
            },
            taken: texts.map(|text| text.rect()).collect(),
            lines: pairs.map(|pair| Rect::between(pair[0], pair[1])).collect(),
        }
    }

    pub const fn canvas(&self) -> Rect {
        self.canvas
    }

    /// Whether a rectangle covers nothing and is inside of the drawing.
    pub fn is_free(&self, rect: &Rect) -> bool {
        self.canvas.contains(rect) && !self.taken.iter().any(|taken| taken.overlaps(rect))
    }

    /// Marks a rectangle as covered.
    pub fn take(&mut self, rect: Rect) {
        self.taken.push(rect);
    }

    /// Returns the number of lines that a rectangle covers.
    pub fn count_lines(&self, rect: &Rect) -> usize {
        let lines = self.lines.iter();
        lines.filter(|line| line.overlaps(rect)).count()
    }
}
