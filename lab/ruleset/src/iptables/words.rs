//! How `iptables-save` writes words and `iptables-restore` reads them: divided
//! by blanks, in double quotes where they hold any, a backslash inside quotes
//! protecting the next character, a closing quote ending the word.
//! (`xtables_save_string` of iptables 1.8.9 `libxtables/xtables.c` and
//! `add_param_to_argv` of `iptables/xshared.c`.)

use std::borrow::Cow;
use std::ops::Range;

/// A word of a line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Word<'t> {
    /// What it says.
    pub text: Cow<'t, str>,
    /// Whether it was in quotes: then it is a value whatever it looks like.
    pub quoted: bool,
    /// Where it stands in the line, quotes included.
    pub at: Range<usize>,
}

/// A quote that is not closed, and where it was opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OpenQuote(pub usize);

/// The words of a line.
#[derive(Debug, Clone)]
pub struct Words<'t> {
    line: &'t str,
    at: usize,
}

impl<'t> Words<'t> {
    /// The words of a line.
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

/// What stands between the quote at `open` and the next, and where that ends.
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

/// Divides a line into words. None if a quote is not closed.
#[must_use]
pub fn split(line: &str) -> Option<Vec<String>> {
    Words::new(line)
        .map(|word| word.ok().map(|word| word.text.into_owned()))
        .collect()
}

/// Writes a word, in quotes if it needs them.
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
