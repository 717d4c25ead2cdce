//! A rule's words told apart: what is an option, what its value, what a match
//! or a target.

use std::ops::Range;

use super::words::{OpenQuote, Word, Words};
use crate::text::problem::Wrong;

/// A word and what it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Piece<'t> {
    /// What it is.
    pub kind: Kind,
    /// The word; of a match or a target its name.
    pub word: Word<'t>,
    /// Whether `!` stands before it.
    pub negated: bool,
}

/// What a word of a rule is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// An option of the packet's header, by its short name.
    Header(&'static str),
    /// A match: `-m NAME`.
    Match,
    /// A target: `-j NAME`.
    Jump,
    /// A target from which the packet does not come back: `-g NAME`.
    Goto,
    /// An option of the last match or target.
    Option,
    /// A value of the last option.
    Value,
    /// A `!` after the option that it denies, as iptables wrote it before 1.4.3.
    Denial,
}

/// Options whose value is any text, even one that looks like an option:
/// iptables-save quotes no dash.
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

/// How many values the last option still takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Takes {
    None,
    One,
    Any,
}

/// Tells the words of a rule apart, those after the chain's name.
#[derive(Debug, Clone)]
pub(super) struct Pieces<'t> {
    words: Words<'t>,
    ahead: Option<Result<Word<'t>, OpenQuote>>,
    takes: Takes,
    /// The option that takes one value.
    waits: Range<usize>,
    line: &'t str,
    targeted: bool,
}

/// What is wrong with a rule, and where in its words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Fault {
    pub wrong: Wrong,
    pub at: Range<usize>,
}

impl<'t> Pieces<'t> {
    /// The pieces of the words after the chain's name.
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

    /// The word after the one at `of`, which cannot do without.
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
            // A match of sets takes two.
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

/// A value may begin with a dash only if it is a number or in quotes.
fn is_value(word: &Word<'_>) -> bool {
    match word.text.strip_prefix('-') {
        None => true,
        Some(rest) => word.quoted || rest.starts_with(|c: char| c.is_ascii_digit()),
    }
}

/// The short name of a header option.
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
