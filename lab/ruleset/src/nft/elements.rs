//! Parses the elements of a set or map, which can span several lines.

use std::collections::HashMap;

use super::words::Word;
use crate::nft::Element;
use crate::text::Line;
use crate::text::problem::{Problem, Wrong};
use crate::tool::Format;

/// Parser of elements.
#[derive(Debug, Default)]
pub(super) struct Reader {
    /// Words of the current element, each with whether it was quoted.
    words: Vec<(String, bool)>,
    /// Line on which the current element starts.
    line: u32,
    /// Line number of each element, by key.
    known: HashMap<String, u32>,
    /// Parsed elements.
    pub elements: Vec<Element>,
    /// Whether the closing brace has been parsed.
    pub ended: bool,
}

impl Reader {
    /// Parses the words of one line.
    pub fn line(&mut self, words: &[Word<'_>], line: Line<'_>) -> Result<(), Problem> {
        let whole = || Problem::new(Wrong::Line(Format::Nft), line.start..line.end());
        for word in words {
            if self.ended || word.is("{") {
                return Err(whole());
            }
            if word.is("}") {
                self.ended = true;
                // `nft` prints no `elements` for an empty set.
                if !(self.words.is_empty() && self.elements.is_empty()) {
                    self.take(line)?;
                }
            } else if word.is(",") {
                self.take(line)?;
            } else {
                if self.words.is_empty() {
                    self.line = line.number;
                }
                self.words.push((word.text.to_owned(), word.quoted));
            }
        }
        Ok(())
    }

    /// Completes the current element.
    fn take(&mut self, line: Line<'_>) -> Result<(), Problem> {
        let whole = || Problem::new(Wrong::Line(Format::Nft), line.start..line.end());
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
                    _ => return Err(whole()),
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
            return Err(whole());
        }
        if let Some(first) = self.known.insert(element.key.clone(), element.line) {
            let what = format!("the entry {}", element.key);
            return Err(super::chain::twice(&what, first, line));
        }
        self.elements.push(element);
        Ok(())
    }
}
