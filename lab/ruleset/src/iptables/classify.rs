//! Classifies the words of a rule as options, values, matches and targets.

use std::ops::Range;

use super::words::{UnclosedQuote, Word, Words};
use crate::text::problem::ProblemKind;

/// Classified word of a rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ClassifiedWord<'t> {
    /// Class of the word.
    pub class: WordClass,
    /// Text of the word. For a match or a target, its name.
    pub word: Word<'t>,
    /// Whether `!` precedes the word.
    pub is_negated: bool,
}

/// Class of a word in a rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WordClass {
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
    Negation,
}

/// Options that accept any text as their value, even text that looks like an option. iptables-save
/// does not quote a leading dash.
const FREE_TEXT_OPTIONS: [&str; 17] = [
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
enum ExpectedValues {
    None,
    One,
    Any,
}

/// Iterator over the classified words of a rule, after the chain name.
#[derive(Debug, Clone)]
pub(super) struct WordClassifier<'t> {
    words: Words<'t>,
    lookahead: Option<Result<Word<'t>, UnclosedQuote>>,
    expected: ExpectedValues,
    /// Range of the option that needs one value.
    pending_option: Range<usize>,
    line: &'t str,
    has_target: bool,
}

/// Error in a rule, with its range in the line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RuleError {
    pub kind: ProblemKind,
    pub range: Range<usize>,
}

impl<'t> WordClassifier<'t> {
    /// Creates an iterator over the words after the chain name.
    pub fn new(line: &'t str) -> Self {
        let mut words = Words::new(line);
        Self {
            lookahead: words.next(),
            words,
            expected: ExpectedValues::None,
            pending_option: 0..0,
            line,
            has_target: false,
        }
    }

    fn next_word(&mut self) -> Option<Result<Word<'t>, RuleError>> {
        let word = std::mem::replace(&mut self.lookahead, self.words.next())?;
        Some(word.map_err(|UnclosedQuote(position)| RuleError {
            kind: ProblemKind::UnclosedQuote,
            range: position..self.line.len(),
        }))
    }

    /// Returns the next word, which is the required value of the word at `of`.
    fn required_value(&mut self, option: &Range<usize>) -> Result<Word<'t>, RuleError> {
        self.next_word()
            .unwrap_or_else(|| Err(self.missing_value_error(option)))
    }

    fn missing_value_error(&self, option: &Range<usize>) -> RuleError {
        RuleError {
            kind: ProblemKind::MissingValue(self.line[option.clone()].to_owned()),
            range: option.clone(),
        }
    }

    fn classify_option(
        &mut self,
        word: Word<'t>,
        negated: bool,
    ) -> Result<ClassifiedWord<'t>, RuleError> {
        self.expected = ExpectedValues::None;
        if let Some(name) = header_name(&word.text)
            && !self.has_target
        {
            if name != "-f" {
                self.expected = ExpectedValues::One;
                self.pending_option = word.range.clone();
            }
            return Ok(ClassifiedWord {
                class: WordClass::Header(name),
                word,
                is_negated: negated,
            });
        }
        let kind = match word.text.as_ref() {
            "-m" | "--match" => WordClass::Match,
            "-j" | "--jump" => WordClass::Jump,
            "-g" | "--goto" => WordClass::Goto,
            name => {
                if FREE_TEXT_OPTIONS.contains(&name) {
                    self.expected = ExpectedValues::One;
                    self.pending_option = word.range.clone();
                } else {
                    self.expected = ExpectedValues::Any;
                }
                return Ok(ClassifiedWord {
                    class: WordClass::Option,
                    word,
                    is_negated: negated,
                });
            }
        };
        self.has_target |= kind != WordClass::Match;
        let word = self.required_value(&word.range)?;
        Ok(ClassifiedWord {
            class: kind,
            word,
            is_negated: negated,
        })
    }

    fn classify(&mut self, word: Word<'t>) -> Result<ClassifiedWord<'t>, RuleError> {
        let is_negation = word.text == "!" && !word.is_quoted;
        let before_option = matches!(
            &self.lookahead,
            Some(Ok(next)) if next.text.starts_with('-') && !next.is_quoted
        );
        let classified = |kind, word| {
            Ok(ClassifiedWord {
                class: kind,
                word,
                is_negated: false,
            })
        };
        if is_negation && before_option && self.expected != ExpectedValues::One {
            let next = self.required_value(&word.range)?;
            return self.classify_option(next, true);
        }
        if is_negation && self.expected != ExpectedValues::None {
            return classified(WordClass::Negation, word);
        }
        if self.expected == ExpectedValues::One {
            // `--match-set` has two values.
            let takes_two = &self.line[self.pending_option.clone()] == "--match-set";
            self.expected = if takes_two {
                ExpectedValues::Any
            } else {
                ExpectedValues::None
            };
            return classified(WordClass::Value, word);
        }
        if self.expected == ExpectedValues::Any && is_value(&word) {
            return classified(WordClass::Value, word);
        }
        if word.text.starts_with('-') && !word.is_quoted {
            return self.classify_option(word, false);
        }
        Err(RuleError {
            range: word.range.clone(),
            kind: ProblemKind::UnknownWord {
                word: word.text.into_owned(),
            },
        })
    }
}

impl<'t> Iterator for WordClassifier<'t> {
    type Item = Result<ClassifiedWord<'t>, RuleError>;

    fn next(&mut self) -> Option<Self::Item> {
        match self.next_word() {
            Some(Ok(word)) => Some(self.classify(word)),
            Some(Err(fault)) => Some(Err(fault)),
            None if self.expected == ExpectedValues::One => {
                self.expected = ExpectedValues::None;
                Some(Err(self.missing_value_error(&self.pending_option)))
            }
            None => None,
        }
    }
}

/// Whether a word is a value. A value that starts with a dash must be a number or quoted.
fn is_value(word: &Word<'_>) -> bool {
    match word.text.strip_prefix('-') {
        None => true,
        Some(rest) => word.is_quoted || rest.starts_with(|c: char| c.is_ascii_digit()),
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
