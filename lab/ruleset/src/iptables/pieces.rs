//! Classifies the words of a rule as options, values, matches and targets.

use std::ops::Range;

use super::words::{OpenQuote, Word, Words};
use crate::text::problem::Wrong;

/// Classified word of a rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Piece<'t> {
    /// Class of the word.
    pub kind: Kind,
    /// Text of the word. For a match or a target, its name.
    pub word: Word<'t>,
    /// Whether `!` precedes the word.
    pub negated: bool,
}

/// Class of a word in a rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Option that matches the packet header, as its short name.
    Header(&'static str),
    /// Match: `-m NAME`.
    Match,
    /// Target: `-j NAME`.
    Jump,
    /// Target without a return to this chain: `-g NAME`.
    Goto,
    /// Option of the last match or target.
    Option,
    /// Value of the last option.
    Value,
    /// `!` after the option that it negates, as iptables before 1.4.3 prints it.
    Denial,
}

/// Options that accept any text as their value, even text that looks like an option. iptables-save
/// does not quote a leading dash.
const FREE: [&str; 17] = [
    "--comment",
    "--string",
    "--hex-string",
    "--log-prefix",
    "--nflog-prefix",
    "--ulog-prefix",
    "--name",
    "--set-name",
    "--hashlimit-name",
    "--helper",
    "--label",
    "--nfacct-name",
    "--path",
    "--match-set",
    "--rateest-name",
    "--led-trigger-id",
    "--genre",
];

/// Number of values that the last option still accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Takes {
    None,
    One,
    Any,
}

/// Iterator over the classified words of a rule, after the chain name.
#[derive(Debug, Clone)]
pub(super) struct Pieces<'t> {
    words: Words<'t>,
    ahead: Option<Result<Word<'t>, OpenQuote>>,
    takes: Takes,
    /// Range of the option that needs one value.
    waits: Range<usize>,
    line: &'t str,
    targeted: bool,
}

/// Error in a rule, with its range in the line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Fault {
    pub wrong: Wrong,
    pub at: Range<usize>,
}

impl<'t> Pieces<'t> {
    /// Creates an iterator over the words after the chain name.
    pub fn new(line: &'t str) -> Self {
        let mut words = Words::new(line);
        Self {
            ahead: words.next(),
            words,
            takes: Takes::None,
            waits: 0..0,
            line,
            targeted: false,
        }
    }

    fn read(&mut self) -> Option<Result<Word<'t>, Fault>> {
        let word = std::mem::replace(&mut self.ahead, self.words.next())?;
        Some(word.map_err(|OpenQuote(at)| Fault {
            wrong: Wrong::Quote,
            at: at..self.line.len(),
        }))
    }

    /// Returns the next word, which is the required value of the word at `of`.
    fn value(&mut self, of: &Range<usize>) -> Result<Word<'t>, Fault> {
        self.read().unwrap_or_else(|| Err(self.lacks(of)))
    }

    fn lacks(&self, of: &Range<usize>) -> Fault {
        Fault {
            wrong: Wrong::Lacks(self.line[of.clone()].to_owned()),
            at: of.clone(),
        }
    }

    fn option(&mut self, word: Word<'t>, negated: bool) -> Result<Piece<'t>, Fault> {
        self.takes = Takes::None;
        if let Some(name) = header_name(&word.text)
            && !self.targeted
        {
            if name != "-f" {
                self.takes = Takes::One;
                self.waits = word.at.clone();
            }
            return Ok(Piece {
                kind: Kind::Header(name),
                word,
                negated,
            });
        }
        let kind = match word.text.as_ref() {
            "-m" | "--match" => Kind::Match,
            "-j" | "--jump" => Kind::Jump,
            "-g" | "--goto" => Kind::Goto,
            name => {
                if FREE.contains(&name) {
                    self.takes = Takes::One;
                    self.waits = word.at.clone();
                } else {
                    self.takes = Takes::Any;
                }
                return Ok(Piece {
                    kind: Kind::Option,
                    word,
                    negated,
                });
            }
        };
        self.targeted |= kind != Kind::Match;
        let word = self.value(&word.at)?;
        Ok(Piece {
            kind,
            word,
            negated,
        })
    }

    fn piece(&mut self, word: Word<'t>) -> Result<Piece<'t>, Fault> {
        let denial = word.text == "!" && !word.quoted;
        let before_option = matches!(
            &self.ahead,
            Some(Ok(next)) if next.text.starts_with('-') && !next.quoted
        );
        let plain = |kind, word| {
            Ok(Piece {
                kind,
                word,
                negated: false,
            })
        };
        if denial && before_option && self.takes != Takes::One {
            let next = self.value(&word.at)?;
            return self.option(next, true);
        }
        if denial && self.takes != Takes::None {
            return plain(Kind::Denial, word);
        }
        if self.takes == Takes::One {
            // `--match-set` has two values.
            let set = &self.line[self.waits.clone()] == "--match-set";
            self.takes = if set { Takes::Any } else { Takes::None };
            return plain(Kind::Value, word);
        }
        if self.takes == Takes::Any && is_value(&word) {
            return plain(Kind::Value, word);
        }
        if word.text.starts_with('-') && !word.quoted {
            return self.option(word, false);
        }
        Err(Fault {
            at: word.at.clone(),
            wrong: Wrong::Word {
                word: word.text.into_owned(),
            },
        })
    }
}

impl<'t> Iterator for Pieces<'t> {
    type Item = Result<Piece<'t>, Fault>;

    fn next(&mut self) -> Option<Self::Item> {
        match self.read() {
            Some(Ok(word)) => Some(self.piece(word)),
            Some(Err(fault)) => Some(Err(fault)),
            None if self.takes == Takes::One => {
                self.takes = Takes::None;
                Some(Err(self.lacks(&self.waits)))
            }
            None => None,
        }
    }
}

/// Whether a word is a value. A value that starts with a dash must be a number or quoted.
fn is_value(word: &Word<'_>) -> bool {
    match word.text.strip_prefix('-') {
        None => true,
        Some(rest) => word.quoted || rest.starts_with(|c: char| c.is_ascii_digit()),
    }
}

/// Returns the short name of a header option. `None` for other words.
fn header_name(word: &str) -> Option<&'static str> {
    Some(match word {
        "-p" | "--protocol" | "--proto" => "-p",
        "-s" | "--source" | "--src" => "-s",
        "-d" | "--destination" | "--dst" => "-d",
        "-i" | "--in-interface" => "-i",
        "-o" | "--out-interface" => "-o",
        "-f" | "--fragment" => "-f",
        _ => return None,
    })
}
