//! Parses the elements of a set or map, which can span several lines.

use std::collections::HashMap;

use super::first_lines::duplicate_error;
use super::tokens::Token;
use crate::nft::Element;
use crate::text::Line;
use crate::text::problem::{Problem, ProblemKind};
use crate::tool::Format;

/// Parser of elements.
#[derive(Debug, Default)]
pub(super) struct ElementParser {
    /// Words of the current element, each with whether it was quoted.
    words: Vec<(String, bool)>,
    /// Line on which the current element starts.
    line: u32,
    /// Line number of each element, by key.
    lines_by_key: HashMap<String, u32>,
    /// Parsed elements.
    pub elements: Vec<Element>,
    /// Whether the closing brace has been parsed.
    pub is_complete: bool,
}

impl ElementParser {
    /// Parses the words of one line.
    pub fn parse_line(&mut self, words: &[Token<'_>], line: Line<'_>) -> Result<(), Problem> {
        let line_problem = || {
            Problem::new(
                ProblemKind::UnknownLine(Format::Nft),
                line.start..line.end(),
            )
        };
        for word in words {
            if self.is_complete || word.is_unquoted("{") {
                return Err(line_problem());
            }
            if word.is_unquoted("}") {
                self.is_complete = true;
                // `nft` prints no `elements` for an empty set.
                if !(self.words.is_empty() && self.elements.is_empty()) {
                    self.finish_element(line)?;
                }
            } else if word.is_unquoted(",") {
                self.finish_element(line)?;
            } else {
                if self.words.is_empty() {
                    self.line = line.number;
                }
                self.words.push((word.text.to_owned(), word.is_quoted));
            }
        }
        Ok(())
    }

    /// Completes the current element.
    fn finish_element(&mut self, line: Line<'_>) -> Result<(), Problem> {
        let line_problem = || {
            Problem::new(
                ProblemKind::UnknownLine(Format::Nft),
                line.start..line.end(),
            )
        };
        let mut element = Element {
            line: self.line,
            ..Element::default()
        };
        let mut key = Vec::new();
        let mut value = None;
        let mut words = std::mem::take(&mut self.words).into_iter().peekable();
        while let Some((text, quoted)) = words.next() {
            if quoted {
                value
                    .as_mut()
                    .unwrap_or(&mut key)
                    .push(format!("\"{text}\""));
                continue;
            }
            match (text.as_str(), value.is_some()) {
                ("comment", false) if words.peek().is_some_and(|(_, quoted)| *quoted) => {
                    element.comment = words.next().map(|(text, _)| text);
                }
                // The remaining time differs in each listing.
                ("expires", false) => match words.next() {
                    Some((time, false)) if time.starts_with(|c: char| c.is_ascii_digit()) => {}
                    _ => return Err(line_problem()),
                },
                (":", false) => value = Some(Vec::new()),
                _ => match &mut value {
                    Some(value) => value.push(text),
                    None => key.push(text),
                },
            }
        }
        element.key = key.join(" ");
        element.value = value.map(|value| value.join(" "));
        if element.key.is_empty() || element.value.as_ref().is_some_and(String::is_empty) {
            return Err(line_problem());
        }
        if let Some(first) = self.lines_by_key.insert(element.key.clone(), element.line) {
            let item = format!("entry `{}`", element.key);
            return Err(duplicate_error(&item, first, line));
        }
        self.elements.push(element);
        Ok(())
    }
}
