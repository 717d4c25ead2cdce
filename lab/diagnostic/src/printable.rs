//! Makes untrusted text safe to print.
//!
//! Names, rules, paths and messages come from files and programs that svclab does not trust.
//! Control characters are replaced when the text is read, and again when it is printed.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::io::{self, Write};

/// Replacement for a control character in text.
const REPLACEMENT: char = '\u{fffd}';

/// Maximum length of the result of [`format_beginning`], in bytes.
const MAX_BEGINNING: usize = 1000;

/// Maximum length of a colour sequence that svclab prints, in bytes.
const MAX_STYLE: usize = 16;

/// Whether a character can control a terminal, hide text, or change the order of text.
///
/// These are C0 without tab and newline, DEL, C1, the line and paragraph separators, and the
/// explicit directional characters of Unicode's bidirectional algorithm (UAX #9, section 2).
#[must_use]
pub const fn is_control(letter: char) -> bool {
    matches!(
        letter,
        '\0'..='\u{8}'
            | '\u{b}'..='\u{1f}'
            | '\u{7f}'..='\u{9f}'
            | '\u{61c}'
            | '\u{200e}' | '\u{200f}'
            | '\u{2028}'..='\u{202e}'
            | '\u{2066}'..='\u{2069}'
    )
}

/// Whether [`printable`] would replace a character of the text.
#[must_use]
pub fn has_control(text: &str) -> bool {
    text.contains(is_control) && text.replace("\r\n", "\n").contains(is_control)
}

/// Replaces control characters by U+FFFD. Newlines and tabs remain. `\r\n` becomes `\n`.
#[must_use]
pub fn printable(text: &str) -> Cow<'_, str> {
    if text.contains(is_control) {
        Cow::Owned(remove_controls(text, TextKind::Text, true).0)
    } else {
        Cow::Borrowed(text)
    }
}

/// Replaces control characters like [`printable`], but keeps svclab's own colours.
#[must_use]
pub fn styled(text: &str) -> String {
    remove_controls(text, TextKind::Styled, true).0
}

/// Replaces control characters by U+FFFD, including newlines and tabs. Used for names and paths.
#[must_use]
pub fn one_line(text: &str) -> Cow<'_, str> {
    let is_replaced = |letter| is_control(letter) || matches!(letter, '\n' | '\t');
    if text.contains(is_replaced) {
        Cow::Owned(text.replace(is_replaced, "\u{fffd}"))
    } else {
        Cow::Borrowed(text)
    }
}

/// Escapes control characters in the strings of JSON text. This includes characters that JSON
/// permits, such as DEL and U+202E. The value of the document does not change.
#[must_use]
pub fn escape_json(text: &str) -> String {
    remove_controls(text, TextKind::Json, true).0
}

/// Kind of text that a [`PrintableWriter`] writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TextKind {
    /// Text without colours.
    Text,
    /// Text with svclab's own colours.
    Styled,
    /// JSON text.
    Json,
}

/// Writer that removes control characters of untrusted origin.
#[derive(Debug)]
pub struct PrintableWriter<W> {
    out: W,
    kind: TextKind,
    /// Start of a character, line end or colour sequence that the next write may complete.
    pending: Vec<u8>,
}

impl<W: Write> PrintableWriter<W> {
    /// Creates a writer for one kind of text.
    pub const fn new(out: W, kind: TextKind) -> Self {
        Self {
            out,
            kind,
            pending: Vec::new(),
        }
    }

    fn write_pending(&mut self, last: bool) -> io::Result<()> {
        let bytes = std::mem::take(&mut self.pending);
        let whole = if last {
            bytes.len()
        } else {
            whole_characters(&bytes)
        };
        let text = String::from_utf8_lossy(&bytes[..whole]);
        let (text, rest) = remove_controls(&text, self.kind, last);
        self.pending.extend_from_slice(rest.as_bytes());
        self.pending.extend_from_slice(&bytes[whole..]);
        self.out.write_all(text.as_bytes())
    }
}

impl<W: Write> Write for PrintableWriter<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.pending.extend_from_slice(bytes);
        self.write_pending(false)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.write_pending(true)?;
        self.out.flush()
    }
}

/// Returns the number of bytes without an incomplete character at the end.
fn whole_characters(bytes: &[u8]) -> usize {
    let last = bytes.utf8_chunks().last();
    let invalid = last.map_or(&[][..], |chunk| chunk.invalid());
    match std::str::from_utf8(invalid) {
        Err(error) if error.error_len().is_none() => bytes.len() - invalid.len(),
        _ => bytes.len(),
    }
}

/// Returns the text without control characters, and the end of the text that more text may
/// complete. If this is the `last` text, the second part is empty.
fn remove_controls(text: &str, kind: TextKind, last: bool) -> (String, &str) {
    let mut clean = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(index) = rest.find(is_control) {
        clean.push_str(&rest[..index]);
        let remaining = &rest[index..];
        if !last && is_unfinished(remaining, kind) {
            return (clean, remaining);
        }
        let letter = remaining.chars().next().unwrap_or(REPLACEMENT);
        let mut length = letter.len_utf8();
        match (kind, leading_style(remaining)) {
            (TextKind::Styled, Some(style)) => {
                clean.push_str(style);
                length = style.len();
            }
            (TextKind::Json, _) => {
                let _ = write!(clean, "\\u{:04x}", u32::from(letter));
            }
            _ if remaining.starts_with("\r\n") => {}
            _ => clean.push(REPLACEMENT),
        }
        rest = &remaining[length..];
    }
    clean.push_str(rest);
    (clean, "")
}

/// Whether more text could complete a line end or a colour sequence. `text` starts with a control
/// character.
fn is_unfinished(text: &str, kind: TextKind) -> bool {
    let is_parameter = |byte: u8| byte.is_ascii_digit() || byte == b';';
    let begins_style = |text: &str| {
        let parameters = text.strip_prefix('[').unwrap_or(text);
        text.len() < MAX_STYLE
            && (text.is_empty() || text.starts_with('['))
            && parameters.bytes().all(is_parameter)
    };
    match kind {
        TextKind::Json => false,
        _ if text == "\r" => true,
        TextKind::Text => false,
        TextKind::Styled => text.strip_prefix('\u{1b}').is_some_and(begins_style),
    }
}

/// Returns the colour sequence at the start of the text. `None` if svclab does not print such a
/// sequence.
///
/// svclab prints colours on the terminal's own background, bold, dimmed, underlined, and the ends
/// of these. It prints no hidden or inverse text.
fn leading_style(text: &str) -> Option<&str> {
    let end = text.bytes().take(MAX_STYLE).position(|byte| byte == b'm')?;
    let parameters = text[..end].strip_prefix("\u{1b}[")?;
    let is_allowed = |parameter: &str| {
        matches!(
            parameter.parse::<u8>(),
            Ok(0..=4 | 22..=24 | 31..=36 | 39 | 91..=96)
        )
    };
    (parameters.is_empty() || parameters.split(';').all(is_allowed)).then_some(&text[..=end])
}

/// Formats the first characters of a value, without formatting the rest.
#[must_use]
pub fn format_beginning(value: &dyn std::fmt::Display) -> String {
    /// Writer that accepts [`MAX_BEGINNING`] bytes and fails after that.
    struct Beginning(String);

    impl std::fmt::Write for Beginning {
        fn write_str(&mut self, text: &str) -> std::fmt::Result {
            let left = MAX_BEGINNING.saturating_sub(self.0.len());
            let cut = text.floor_char_boundary(left);
            self.0.push_str(&text[..cut]);
            if cut < text.len() {
                return Err(std::fmt::Error);
            }
            Ok(())
        }
    }

    let mut beginning = Beginning(String::new());
    if write!(beginning, "{value}").is_err() {
        beginning.0.push('…');
    }
    beginning.0
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the text after one write. Checks that writes of single bytes give the same result.
    fn write_text(text: &str, kind: TextKind) -> String {
        let mut at_once = PrintableWriter::new(Vec::new(), kind);
        at_once.write_all(text.as_bytes()).unwrap();
        at_once.flush().unwrap();
        let mut in_bytes = PrintableWriter::new(Vec::new(), kind);
        for byte in text.bytes() {
            in_bytes.write_all(&[byte]).unwrap();
        }
        in_bytes.flush().unwrap();
        assert_eq!(at_once.out, in_bytes.out, "{text:?}");
        String::from_utf8(at_once.out).unwrap()
    }

    #[test]
    fn printable_control_characters_are_replaced() {
        let controls = ('\0'..='\u{10ffff}').filter(|letter| {
            letter.is_control() && !['\n', '\t'].contains(letter)
                || "\u{61c}\u{200e}\u{200f}\u{202a}\u{202b}\u{202c}\u{202d}\u{202e}"
                    .contains(*letter)
                || "\u{2066}\u{2067}\u{2068}\u{2069}".contains(*letter)
        });
        let mut count = 0;
        for control in controls {
            count += 1;
            let text = format!("a{control}é\t\n");
            assert_eq!(printable(&text), "a\u{fffd}é\t\n");
            assert_eq!(write_text(&text, TextKind::Text), "a\u{fffd}é\t\n");
            assert_eq!(write_text(&text, TextKind::Styled), "a\u{fffd}é\t\n");
            assert_eq!(one_line(&text), "a\u{fffd}é\u{fffd}\u{fffd}");
        }
        assert_eq!(count, 63 + 12);
    }

    #[test]
    fn printable_plain_text_stays() {
        for text in ["", "é → 漢\t\n", "\u{fffd}", "a\u{200d}b"] {
            assert_eq!(printable(text), text);
            assert_eq!(write_text(text, TextKind::Json), text);
        }
        assert_eq!(printable("a\r\nb\r\r\nc\r"), "a\nb\u{fffd}\nc\u{fffd}");
        assert_eq!(
            write_text("a\r\nb\rc\r", TextKind::Text),
            "a\nb\u{fffd}c\u{fffd}"
        );
    }

    #[test]
    fn styled_keeps_own_colours_only() {
        let own_colours = "\u{1b}[1m\u{1b}[31mred\u{1b}[0m \u{1b}[1;94mblue\u{1b}[m";
        assert_eq!(write_text(own_colours, TextKind::Styled), own_colours);
        assert_eq!(
            write_text("\u{1b}[31mred", TextKind::Text),
            "\u{fffd}[31mred"
        );
        for hostile in [
            "\u{1b}[8mhidden",
            "\u{1b}[7m",
            "\u{1b}[2J",
            "\u{1b}]0;title\u{7}",
            "\u{1b}[1;8m",
            "\u{1b}[;m",
            "\u{1b}",
            "\u{1b}[",
            "\u{1b}[31;31;31;31;31;31m",
            "\u{9b}31m",
        ] {
            let text = write_text(hostile, TextKind::Styled);
            assert!(!text.contains(is_control), "{text:?}");
        }
    }

    #[test]
    fn json_strings_are_escaped_and_read_back() {
        let value = "a\u{7f}\u{9b}\u{202e}\u{1b}\r\n\u{61c}";
        let document = serde_json::to_string_pretty(&[value]).unwrap();
        let text = write_text(&document, TextKind::Json);
        assert!(!text.contains(is_control), "{text}");
        let [read]: [String; 1] = serde_json::from_str(&text).unwrap();
        assert_eq!(read, value);
    }

    #[test]
    fn printable_invalid_utf8_is_replaced() {
        let mut out = PrintableWriter::new(Vec::new(), TextKind::Text);
        out.write_all(b"a\xff\xe2\x82").unwrap();
        out.write_all(b"\xacb\xe2").unwrap();
        out.flush().unwrap();
        assert_eq!(out.out, "a\u{fffd}€b\u{fffd}".as_bytes());
    }
}
