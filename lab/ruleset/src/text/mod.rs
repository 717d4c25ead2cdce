//! Defines slices of a shared text, and splits a text into lines and fields with byte positions.
//!
//! A [`Text`] shares ownership of the whole text. It is as cheap as a byte range and stays valid
//! after the file has been dropped.

pub mod attributes;
pub mod json;
pub mod limits;
pub mod problem;

use std::fmt;
use std::ops::{Deref, Range};
use std::sync::Arc;

/// Slice of a shared text.
#[derive(Clone)]
pub struct Text {
    whole: Arc<str>,
    start: u32,
    end: u32,
}

impl Text {
    /// Creates a slice of the whole text. Bytes beyond 4 GiB are dropped, but readers reject files
    /// of that size ([`crate::text::limits`]).
    #[must_use]
    pub fn new(text: impl Into<Arc<str>>) -> Self {
        let whole: Arc<str> = text.into();
        let max_len = usize::try_from(u32::MAX).unwrap_or(usize::MAX);
        let end = whole.floor_char_boundary(whole.len().min(max_len));
        Self {
            start: 0,
            end: u32::try_from(end).unwrap_or(u32::MAX),
            whole,
        }
    }

    /// Returns the slice of the whole text for a byte range. Returns an empty slice if an end of
    /// the range is not a character boundary.
    #[must_use]
    pub fn slice(&self, range: Range<usize>) -> Self {
        let range = if self.whole.get(range.clone()).is_some() {
            range
        } else {
            0..0
        };
        let number = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        Self {
            whole: Arc::clone(&self.whole),
            start: number(range.start),
            end: number(range.end),
        }
    }

    /// Returns the slice as a string.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.whole[self.range()]
    }

    /// Returns the byte range of the slice in the whole text.
    #[must_use]
    pub fn range(&self) -> Range<usize> {
        let index = |n: u32| usize::try_from(n).unwrap_or(usize::MAX);
        index(self.start)..index(self.end)
    }
}

impl Deref for Text {
    type Target = str;

    fn deref(&self) -> &str {
        self.as_str()
    }
}

impl fmt::Debug for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

impl fmt::Display for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self)
    }
}

impl PartialEq for Text {
    fn eq(&self, other: &Self) -> bool {
        self.as_str() == other.as_str()
    }
}

impl Eq for Text {}

/// Line with its number and position.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Line<'t> {
    /// Line without leading and trailing whitespace.
    pub text: &'t str,
    /// Line number, from 1.
    pub number: u32,
    /// Byte offset of `text` in the whole text.
    pub start: usize,
    /// Whether the line is indented.
    pub indented: bool,
}

impl Line<'_> {
    /// Returns the byte offset of the end of the line in the whole text.
    #[must_use]
    pub fn end(&self) -> usize {
        self.start + self.text.len()
    }
}

/// Returns the lines of a text that are not blank.
pub fn lines(whole: &str) -> impl Iterator<Item = Line<'_>> {
    let mut start = 0;
    let mut number = 0;
    whole.split('\n').filter_map(move |line| {
        let line_start = start;
        start += line.len() + 1;
        number += 1;
        let text = line.trim_ascii_start();
        let indent = line.len() - text.len();
        let text = text.trim_ascii_end();
        (!text.is_empty()).then_some(Line {
            text,
            number,
            start: line_start + indent,
            indented: indent > 0,
        })
    })
}

/// Splits a line of `ip -o` or `bridge -o` into the lines that these programs print without `-o`.
/// All but the first are indented.
pub(crate) fn one_line_parts(line: Line<'_>) -> impl Iterator<Item = Line<'_>> {
    let mut start = line.start;
    line.text.split('\\').map(move |part| {
        let text = part.trim_ascii_start();
        let part_start = start;
        start += part.len() + 1;
        Line {
            text: text.trim_ascii_end(),
            start: part_start + (part.len() - text.len()),
            indented: line.indented || part_start > line.start,
            ..line
        }
    })
}

/// Word between whitespace, with its position.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Field<'t> {
    /// Word without whitespace.
    pub text: &'t str,
    /// Byte offset of the word in the whole text.
    pub start: usize,
}

impl Field<'_> {
    /// Returns the byte range of the word in the whole text.
    #[must_use]
    pub fn range(&self) -> Range<usize> {
        self.start..self.start + self.text.len()
    }
}

/// Splits a line into words at whitespace. Quotes have no effect.
pub fn fields(line: Line<'_>) -> impl Iterator<Item = Field<'_>> {
    let mut rest = 0;
    std::iter::from_fn(move || {
        let text = &line.text[rest..];
        let blanks = text.len() - text.trim_ascii_start().len();
        let text = &text[blanks..];
        if text.is_empty() {
            return None;
        }
        let length = text
            .find(|c: char| c.is_ascii_whitespace())
            .unwrap_or(text.len());
        let start = line.start + rest + blanks;
        rest += blanks + length;
        Some(Field {
            text: &text[..length],
            start,
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_and_fields_report_byte_positions() {
        let whole = "a b\r\n\n   é\tcd \n";
        let parsed: Vec<(u32, bool, Vec<&str>)> = lines(whole)
            .map(|line| {
                let words = fields(line).map(|word| {
                    assert_eq!(&whole[word.range()], word.text);
                    word.text
                });
                (line.number, line.indented, words.collect())
            })
            .collect();
        assert_eq!(
            parsed,
            [(1, false, vec!["a", "b"]), (3, true, vec!["é", "cd"])]
        );
    }

    #[test]
    fn text_slice_invalid_range_is_empty() {
        let whole = Text::new("é");
        assert_eq!(whole.slice(0..2).as_str(), "é");
        assert_eq!(whole.slice(1..2).as_str(), "");
        assert_eq!(whole.slice(0..9).as_str(), "");
    }
}
