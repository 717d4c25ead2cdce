//! Splits and quotes words as `iptables-save` and `iptables-restore` do.
//!
//! Whitespace separates words. A word that contains whitespace is in double quotes. Inside quotes,
//! a backslash escapes the next character. A closing quote ends the word. (`xtables_save_string` of
//! iptables 1.8.9 `libxtables/xtables.c` and `add_param_to_argv` of `iptables/xshared.c`.)

use std::borrow::Cow;
use std::ops::Range;

/// Word of a line, with its position.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Word<'t> {
    /// Word without quotes and escapes.
    pub text: Cow<'t, str>,
    /// Whether the word was quoted. A quoted word is always a value.
    pub quoted: bool,
    /// Byte range in the line, including quotes.
    pub at: Range<usize>,
}

/// Error for an unclosed quote, with the position of the quote.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OpenQuote(pub usize);

/// Iterator over the words of a line.
#[derive(Debug, Clone)]
pub struct Words<'t> {
    line: &'t str,
    at: usize,
}

impl<'t> Words<'t> {
    /// Creates an iterator over the words of a line.
    #[must_use]
    pub fn new(line: &'t str) -> Self {
        Self { line, at: 0 }
    }
}

impl<'t> Iterator for Words<'t> {
    type Item = Result<Word<'t>, OpenQuote>;

    fn next(&mut self) -> Option<Self::Item> {
        let bytes = self.line.as_bytes();
        let mut at = self.at;
        while matches!(bytes.get(at), Some(b' ' | b'\t')) {
            at += 1;
        }
        let start = at;
        while let Some(byte) = bytes.get(at) {
            match byte {
                b' ' | b'\t' => break,
                b'"' => {
                    let before = &self.line[start..at];
                    let read = quoted(self.line, at);
                    self.at = read.as_ref().map_or(bytes.len(), |(_, end)| *end);
                    return Some(read.map(|(text, end)| Word {
                        text: if before.is_empty() {
                            text
                        } else {
                            Cow::Owned(format!("{before}{text}"))
                        },
                        quoted: true,
                        at: start..end,
                    }));
                }
                _ => at += 1,
            }
        }
        self.at = at;
        (at > start).then(|| {
            Ok(Word {
                text: Cow::Borrowed(&self.line[start..at]),
                quoted: false,
                at: start..at,
            })
        })
    }
}

/// Returns the text between the quote at `open` and the closing quote, and the position after it.
fn quoted(line: &str, open: usize) -> Result<(Cow<'_, str>, usize), OpenQuote> {
    let bytes = line.as_bytes();
    let mut at = open + 1;
    while let Some(byte) = bytes.get(at) {
        match byte {
            b'"' => return Ok((Cow::Borrowed(&line[open + 1..at]), at + 1)),
            b'\\' => break,
            _ => at += 1,
        }
    }
    let mut text = line[open + 1..at].to_owned();
    let mut characters = line[at..].char_indices();
    while let Some((i, character)) = characters.next() {
        match character {
            '"' => return Ok((Cow::Owned(text), at + i + 1)),
            '\\' => match characters.next() {
                Some((_, protected)) => text.push(protected),
                None => break,
            },
            other => text.push(other),
        }
    }
    Err(OpenQuote(open))
}

/// Splits a line into words. `None` if a quote is not closed.
#[must_use]
pub fn split(line: &str) -> Option<Vec<String>> {
    Words::new(line)
        .map(|word| word.ok().map(|word| word.text.into_owned()))
        .collect()
}

/// Appends a word to a line, in quotes if necessary.
pub(super) fn quote_into(line: &mut String, word: &str) {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"_-./:,+=%@!#&*~|[]".contains(&b);
    if !word.is_empty() && word != "!" && word.bytes().all(plain) {
        line.push_str(word);
        return;
    }
    line.push('"');
    for character in word.chars() {
        if matches!(character, '"' | '\\' | '\'') {
            line.push('\\');
        }
        line.push(character);
    }
    line.push('"');
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn quotes_hold_words_together() {
        let line = r#"-A X  -m comment --comment "a \"b\" c\\d" -j Y"#;
        assert_eq!(
            split(line).unwrap(),
            [
                "-A",
                "X",
                "-m",
                "comment",
                "--comment",
                r#"a "b" c\d"#,
                "-j",
                "Y"
            ]
        );
        assert_eq!(split(r#"--comment """#).unwrap(), ["--comment", ""]);
        assert_eq!(split(r#"a"b c"d"#).unwrap(), ["ab c", "d"]);
    }

    #[test]
    fn words_know_their_places_and_quotes() {
        let line = r#" -m "a b""#;
        let words: Vec<_> = Words::new(line).map(Result::unwrap).collect();
        assert_eq!(
            words
                .iter()
                .map(|w| (&line[w.at.clone()], w.quoted))
                .collect::<Vec<_>>(),
            [("-m", false), (r#""a b""#, true)]
        );
    }

    #[test]
    fn an_open_quote_is_no_line() {
        assert_eq!(split(r#"--comment "a"#), None);
        assert_eq!(split(r#"--comment "a\"#), None);
        let last = Words::new(r#"-m "a\" "#).last().unwrap();
        assert_eq!(last, Err(OpenQuote(3)));
    }

    proptest! {
        #[test]
        fn what_is_quoted_is_read_back(words in proptest::collection::vec("[ -~é]{0,12}", 0..6)) {
            let mut line = String::new();
            for word in &words {
                quote_into(&mut line, word);
                line.push(' ');
            }
            prop_assert_eq!(split(&line), Some(words));
        }
    }
}
