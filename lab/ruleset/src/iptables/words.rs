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
    pub is_quoted: bool,
    /// Byte range in the line, including quotes.
    pub range: Range<usize>,
}

/// Error for an unclosed quote, with the position of the quote.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UnclosedQuote(pub usize);

/// Iterator over the words of a line.
#[derive(Debug, Clone)]
pub struct Words<'t> {
    line: &'t str,
    position: usize,
}

impl<'t> Words<'t> {
    /// Creates an iterator over the words of a line.
    #[must_use]
    pub fn new(line: &'t str) -> Self {
        Self { line, position: 0 }
    }
}

impl<'t> Iterator for Words<'t> {
    type Item = Result<Word<'t>, UnclosedQuote>;

    fn next(&mut self) -> Option<Self::Item> {
        let bytes = self.line.as_bytes();
        let mut position = self.position;
        while matches!(bytes.get(position), Some(b' ' | b'\t')) {
            position += 1;
        }
        let start = position;
        while let Some(byte) = bytes.get(position) {
            match byte {
                b' ' | b'\t' => break,
                b'"' => {
                    let before = &self.line[start..position];
                    let read = parse_quoted(self.line, position);
                    self.position = read.as_ref().map_or(bytes.len(), |(_, end)| *end);
                    return Some(read.map(|(text, end)| Word {
                        text: if before.is_empty() {
                            text
                        } else {
                            Cow::Owned(format!("{before}{text}"))
                        },
                        is_quoted: true,
                        range: start..end,
                    }));
                }
                _ => position += 1,
            }
        }
        self.position = position;
        (position > start).then(|| {
            Ok(Word {
                text: Cow::Borrowed(&self.line[start..position]),
                is_quoted: false,
                range: start..position,
            })
        })
    }
}

/// Returns the text between the quote at `open` and the closing quote, and the position after it.
fn parse_quoted(line: &str, open: usize) -> Result<(Cow<'_, str>, usize), UnclosedQuote> {
    let bytes = line.as_bytes();
    let mut position = open + 1;
    while let Some(byte) = bytes.get(position) {
        match byte {
            b'"' => return Ok((Cow::Borrowed(&line[open + 1..position]), position + 1)),
            b'\\' => break,
            _ => position += 1,
        }
    }
    let mut text = line[open + 1..position].to_owned();
    let mut characters = line[position..].char_indices();
    while let Some((i, character)) = characters.next() {
        match character {
            '"' => return Ok((Cow::Owned(text), position + i + 1)),
            '\\' => match characters.next() {
                Some((_, protected)) => text.push(protected),
                None => break,
            },
            character => text.push(character),
        }
    }
    Err(UnclosedQuote(open))
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
    let is_plain = |b: u8| b.is_ascii_alphanumeric() || b"_-./:,+=%@!#&*~|[]".contains(&b);
    if !word.is_empty() && word != "!" && word.bytes().all(is_plain) {
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
    fn split_keeps_quoted_text_as_one_word() {
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
    fn words_report_positions_and_quotes() {
        let line = r#" -m "a b""#;
        let words: Vec<_> = Words::new(line).map(Result::unwrap).collect();
        assert_eq!(
            words
                .iter()
                .map(|w| (&line[w.range.clone()], w.is_quoted))
                .collect::<Vec<_>>(),
            [("-m", false), (r#""a b""#, true)]
        );
    }

    #[test]
    fn split_unclosed_quote_returns_none() {
        assert_eq!(split(r#"--comment "a"#), None);
        assert_eq!(split(r#"--comment "a\"#), None);
        let last = Words::new(r#"-m "a\" "#).last().unwrap();
        assert_eq!(last, Err(UnclosedQuote(3)));
    }

    proptest! {
        #[test]
        fn split_reverses_quote_into(words in proptest::collection::vec("[ -~é]{0,12}", 0..6)) {
            let mut line = String::new();
            for word in &words {
                quote_into(&mut line, word);
                line.push(' ');
            }
            prop_assert_eq!(split(&line), Some(words));
        }
    }
}
