//! Splits a line of nftables into words. A quoted text is one word, and so is each brace and comma.

use std::ops::Range;

/// Word with its position in the text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Token<'t> {
    /// Word without quotes.
    pub text: &'t str,
    /// Whether the word was quoted.
    pub is_quoted: bool,
    /// Byte range of the word, including quotes.
    pub range: Range<usize>,
}

impl Token<'_> {
    /// Whether the word equals `text` and is not quoted.
    #[must_use]
    pub fn is_unquoted(&self, text: &str) -> bool {
        !self.is_quoted && self.text == text
    }
}

/// Splits a text into words.
///
/// # Errors
///
/// Returns the position of a quote that is not closed.
pub fn tokenize(text: &str) -> Result<Vec<Token<'_>>, usize> {
    let bytes = text.as_bytes();
    let mut words = Vec::new();
    let mut position = 0;
    while let Some(byte) = bytes.get(position) {
        let start = position;
        match byte {
            b'"' => {
                let end = bytes[position + 1..].iter().position(|byte| *byte == b'"');
                let end = position + 1 + end.ok_or(position)?;
                position = end + 1;
                words.push(Token {
                    text: &text[start + 1..end],
                    is_quoted: true,
                    range: start..position,
                });
            }
            b' ' | b'\t' | b'\r' => position += 1,
            b'{' | b'}' | b',' => {
                position += 1;
                words.push(Token {
                    text: &text[start..position],
                    is_quoted: false,
                    range: start..position,
                });
            }
            _ => {
                let length = bytes[position..]
                    .iter()
                    .position(|byte| b" \t\r\"{},".contains(byte));
                position = length.map_or(bytes.len(), |length| position + length);
                words.push(Token {
                    text: &text[start..position],
                    is_quoted: false,
                    range: start..position,
                });
            }
        }
    }
    Ok(words)
}

/// Splits the trailing comment from a text.
pub(super) fn split_comment<'t>(text: &'t str, words: &[Token<'t>]) -> (&'t str, Option<&'t str>) {
    match words {
        [.., keyword, comment] if keyword.is_unquoted("comment") && comment.is_quoted => {
            (text[..keyword.range.start].trim_end(), Some(comment.text))
        }
        _ => (text, None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokenize_separates_quotes_braces_and_commas() {
        let text = "ip saddr { 10.0.0.1,10.0.0.2} drop comment \"a, b\"";
        let found = tokenize(text).unwrap();
        let texts: Vec<&str> = found.iter().map(|word| word.text).collect();
        assert_eq!(
            texts,
            [
                "ip", "saddr", "{", "10.0.0.1", ",", "10.0.0.2", "}", "drop", "comment", "a, b"
            ]
        );
        let rule = "ip saddr { 10.0.0.1,10.0.0.2} drop";
        assert_eq!(split_comment(text, &found), (rule, Some("a, b")));
        assert_eq!(tokenize("a \"b"), Err(2));
        assert_eq!(split_comment("", &[]), ("", None));
    }
}
