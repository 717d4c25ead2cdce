//! Splits a line of nftables into words. A quoted text is one word, and so is each brace and comma.

use std::ops::Range;

/// Word with its position in the text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Word<'t> {
    /// Word without quotes.
    pub text: &'t str,
    /// Whether the word was quoted.
    pub quoted: bool,
    /// Byte range of the word, including quotes.
    pub at: Range<usize>,
}

impl Word<'_> {
    /// Whether the word equals `text` and is not quoted.
    #[must_use]
    pub fn is(&self, text: &str) -> bool {
        !self.quoted && self.text == text
    }
}

/// Splits a text into words.
///
/// # Errors
///
/// Returns the position of a quote that is not closed.
pub fn words(text: &str) -> Result<Vec<Word<'_>>, usize> {
    let bytes = text.as_bytes();
    let mut words = Vec::new();
    let mut at = 0;
    while let Some(byte) = bytes.get(at) {
        let start = at;
        match byte {
            b'"' => {
                let end = bytes[at + 1..].iter().position(|byte| *byte == b'"');
                let end = at + 1 + end.ok_or(at)?;
                at = end + 1;
                words.push(Word {
                    text: &text[start + 1..end],
                    quoted: true,
                    at: start..at,
                });
            }
            b' ' | b'\t' | b'\r' => at += 1,
            b'{' | b'}' | b',' => {
                at += 1;
                words.push(Word {
                    text: &text[start..at],
                    quoted: false,
                    at: start..at,
                });
            }
            _ => {
                let length = bytes[at..]
                    .iter()
                    .position(|byte| b" \t\r\"{},".contains(byte));
                at = length.map_or(bytes.len(), |length| at + length);
                words.push(Word {
                    text: &text[start..at],
                    quoted: false,
                    at: start..at,
                });
            }
        }
    }
    Ok(words)
}

/// Splits the trailing comment from a text.
pub(super) fn comment<'t>(text: &'t str, words: &[Word<'t>]) -> (&'t str, Option<&'t str>) {
    match words {
        [.., keyword, comment] if keyword.is("comment") && comment.quoted => {
            (text[..keyword.at.start].trim_end(), Some(comment.text))
        }
        _ => (text, None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_braces_and_commas_are_words() {
        let text = "ip saddr { 10.0.0.1,10.0.0.2} drop comment \"a, b\"";
        let found = words(text).unwrap();
        let texts: Vec<&str> = found.iter().map(|word| word.text).collect();
        assert_eq!(
            texts,
            [
                "ip", "saddr", "{", "10.0.0.1", ",", "10.0.0.2", "}", "drop", "comment", "a, b"
            ]
        );
        let rule = "ip saddr { 10.0.0.1,10.0.0.2} drop";
        assert_eq!(comment(text, &found), (rule, Some("a, b")));
        assert_eq!(words("a \"b"), Err(2));
        assert_eq!(comment("", &[]), ("", None));
    }
}
