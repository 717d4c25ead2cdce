//! Parses the JSON output of `ip -j` and `bridge -j`: an array of objects.

use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny};

use crate::text::Text;
use crate::text::problem::{Problem, ProblemKind};

/// Whether a text is a JSON array, as `ip -j` and `bridge -j` print it.
#[must_use]
pub fn is_array(text: &str) -> bool {
    text.trim_ascii_start().starts_with('[')
}

/// Parses an array of objects whose strings borrow from the text. An error is added to `problems`.
pub(crate) fn parse_array<'t, T: Deserialize<'t>>(
    text: &'t str,
    problems: &mut Vec<Problem>,
) -> Vec<T> {
    parse_value(text).unwrap_or_else(|problem| {
        problems.push(problem);
        Vec::new()
    })
}

/// Parses a value whose strings borrow from the text.
///
/// # Errors
///
/// Returns the position of the error.
pub(crate) fn parse_value<'t, T: Deserialize<'t>>(text: &'t str) -> Result<T, Problem> {
    serde_json::from_str(text).map_err(|error| {
        let line_start: usize = text
            .split_inclusive('\n')
            .take(error.line().saturating_sub(1))
            .map(str::len)
            .sum();
        let start = (line_start + error.column().saturating_sub(1)).min(text.len());
        let start = text.floor_char_boundary(start);
        let message = error.to_string();
        let message = match message.rsplit_once(" at line ") {
            Some((message, _)) => message.to_owned(),
            None => message,
        };
        Problem::new(
            ProblemKind::InvalidJson(message),
            start..text.ceil_char_boundary((start + 1).min(text.len())),
        )
    })
}

/// Deserializes a member that is a flag: its presence counts, not its value.
pub(crate) fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<bool, D::Error> {
    IgnoredAny::deserialize(deserializer).map(|_| true)
}

/// Finds the positions of borrowed strings in their text. Line numbers are counted incrementally,
/// so strings must be given in the order of the text.
pub(crate) struct Positions<'t> {
    text: &'t Text,
    offset: usize,
    line: u32,
}

impl<'t> Positions<'t> {
    pub(crate) fn new(text: &'t Text) -> Self {
        Self {
            text,
            offset: 0,
            line: 1,
        }
    }

    /// Returns the slice of the text for a string that borrows from it.
    pub(crate) fn slice(&self, part: &str) -> Text {
        let start = part.as_ptr().addr().wrapping_sub(self.text.as_ptr().addr());
        self.text.slice(start..start.saturating_add(part.len()))
    }

    /// Returns the line number of a string that borrows from the text, from 1.
    pub(crate) fn line(&mut self, part: &str) -> u32 {
        let start = self.slice(part).range().start;
        let passed = self.text.get(self.offset..start).unwrap_or_default();
        let newlines = passed.bytes().filter(|byte| *byte == b'\n').count();
        self.line += u32::try_from(newlines).unwrap_or(u32::MAX);
        self.offset = self.offset.max(start);
        self.line
    }
}
