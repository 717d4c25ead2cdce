//! Defines a rule and splits its text into header options, matches and target.

use std::borrow::Cow;
use std::fmt;
use std::ops::Range;

use super::canonical;
use super::classify::{RuleError, WordClass, WordClassifier};
use super::parts::{MatchModule, RuleOption, RuleParts, Target};
use super::words::Words;
use crate::text::Text;
use crate::text::problem::{Problem, ProblemKind};

/// Rule of a chain.
///
/// Two rules are equal when their canonical texts are equal, see [`Rule::canonical_text`].
#[derive(Debug, Clone)]
pub struct Rule {
    /// Words after the chain name. [`WordClassifier`] accepts them without an error.
    words: Text,
    /// Line number, from 1. 0 if the rule was not parsed from a file.
    pub line: u32,
    /// Number of packets that matched the rule. `None` if the dump has no counters.
    pub packets: Option<u64>,
    /// Number of bytes in these packets. `None` if the dump has no counters.
    pub bytes: Option<u64>,
}

impl Rule {
    /// Creates a rule from the words after the chain name.
    ///
    /// # Errors
    ///
    /// Returns the first error in the words.
    pub fn from_words(words: impl Into<String>) -> Result<Self, Problem> {
        let words = Text::new(words.into());
        for piece in WordClassifier::new(&words) {
            piece.map_err(
                |RuleError {
                     kind: wrong,
                     range: at,
                 }| Problem::new(wrong, at),
            )?;
        }
        Ok(Self::from_checked_words(words, 0))
    }

    /// Creates a rule from words that were already checked.
    pub(super) fn from_checked_words(words: Text, line: u32) -> Self {
        Self {
            words,
            line,
            packets: None,
            bytes: None,
        }
    }

    /// Parses `-A CHAIN …` with optional counters, and returns the chain and the rule.
    ///
    /// # Errors
    ///
    /// Returns the first error in the line.
    pub fn parse(line: &str) -> Result<(String, Self), Problem> {
        let head = parse_head(line)?;
        let mut rule = Self::from_words(&line[head.words.clone()])
            .map_err(|problem| shift_problem(problem, head.words.start))?;
        (rule.packets, rule.bytes) = head.counters.unzip();
        Ok((head.chain.to_owned(), rule))
    }

    /// Returns the source text of the words after the chain name.
    #[must_use]
    pub fn source_text(&self) -> &str {
        &self.words
    }

    /// Returns the byte range of the words in their file.
    #[must_use]
    pub fn range(&self) -> Range<usize> {
        self.words.range()
    }

    /// Splits the rule into its parts.
    #[must_use]
    pub fn parts(&self) -> RuleParts<'_> {
        let mut parts = RuleParts::default();
        // The constructors checked the words, so classification returns no errors.
        for piece in WordClassifier::new(&self.words).flatten() {
            let text = piece.word.text;
            match piece.class {
                WordClass::Header(name) => parts.header.push(RuleOption {
                    name: Cow::Borrowed(name),
                    is_negated: piece.is_negated,
                    values: Vec::new(),
                }),
                WordClass::Match => parts.matches.push(MatchModule {
                    name: text,
                    is_implied: false,
                    options: Vec::new(),
                }),
                WordClass::Jump | WordClass::Goto => {
                    parts.target = Some(Target {
                        name: text,
                        is_goto: piece.class == WordClass::Goto,
                        options: Vec::new(),
                    });
                }
                WordClass::Option => parts.open_options().push(RuleOption {
                    name: text,
                    is_negated: piece.is_negated,
                    values: Vec::new(),
                }),
                WordClass::Value => {
                    if let Some(choice) = parts.last_option() {
                        choice.values.push(text);
                    }
                }
                WordClass::Negation => {
                    if let Some(choice) = parts.last_option() {
                        choice.is_negated = true;
                    }
                }
            }
        }
        parts
    }

    /// Returns the comment of the rule. `None` without a comment.
    #[must_use]
    pub fn comment(&self) -> Option<Cow<'_, str>> {
        self.value_of("--comment")
    }

    /// Returns the name of the target. `None` without a target.
    #[must_use]
    pub fn target(&self) -> Option<Cow<'_, str>> {
        WordClassifier::new(&self.words)
            .flatten()
            .find(|piece| matches!(piece.class, WordClass::Jump | WordClass::Goto))
            .map(|piece| piece.word.text)
    }

    /// Returns the first value of the first option with a name. `None` without the option.
    fn value_of(&self, option: &str) -> Option<Cow<'_, str>> {
        // Shortcut, because most rules do not contain the option.
        if !self.words.contains(option) {
            return None;
        }
        let mut pieces = WordClassifier::new(&self.words).flatten();
        pieces.find(|piece| piece.class == WordClass::Option && piece.word.text == option)?;
        pieces
            .find(|piece| piece.class == WordClass::Value)
            .map(|piece| piece.word.text)
    }

    /// Returns the sets that the rule uses, with the byte ranges of their names in the file.
    #[must_use]
    pub fn sets(&self) -> Vec<(Cow<'_, str>, Range<usize>)> {
        const SET_NAME_OPTIONS: [&str; 4] = ["--match-set", "--add-set", "--del-set", "--map-set"];
        let mut sets = Vec::new();
        if !self.words.contains("-set ") {
            return sets;
        }
        let mut expects_name = false;
        for piece in WordClassifier::new(&self.words).flatten() {
            if expects_name && piece.class == WordClass::Value {
                let start = self.words.range().start;
                let range = start + piece.word.range.start..start + piece.word.range.end;
                sets.push((piece.word.text, range));
                expects_name = false;
            } else {
                expects_name = piece.class == WordClass::Option
                    && SET_NAME_OPTIONS.contains(&piece.word.text.as_ref());
            }
        }
        sets
    }

    /// Returns the canonical text of the rule: the output of `iptables-save` without redundant
    /// parts.
    ///
    /// The text omits matches without options, `/32`, explicit defaults and counters. Marks are
    /// hexadecimal, and options are sorted by name.
    #[must_use]
    pub fn canonical_text(&self) -> String {
        canonical::render(&self.parts())
    }
}

impl PartialEq for Rule {
    fn eq(&self, other: &Self) -> bool {
        self.words == other.words || self.canonical_text() == other.canonical_text()
    }
}

impl Eq for Rule {}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.canonical_text())
    }
}

/// Parts of a line that precede the words of a rule.
#[derive(Debug)]
pub(super) struct RuleHead<'t> {
    /// Packets and bytes. `None` without counters.
    pub counters: Option<(u64, u64)>,
    /// Name of the chain.
    pub chain: &'t str,
    /// Byte range of the chain name in the line.
    pub chain_at: Range<usize>,
    /// Byte range of the words in the line.
    pub words: Range<usize>,
}

/// Parses the start of `[12:720] -A CHAIN …`.
pub(super) fn parse_head(line: &str) -> Result<RuleHead<'_>, Problem> {
    let mut position = 0;
    let mut counters = None;
    if let Some(rest) = line.strip_prefix('[') {
        let Some((inside, _)) = rest.split_once(']') else {
            return Err(Problem::new(ProblemKind::InvalidCounters, 0..line.len()));
        };
        position = inside.len() + 2;
        let counters_error = || Problem::new(ProblemKind::InvalidCounters, 0..position);
        counters = Some(parse_counters(inside).ok_or_else(counters_error)?);
    }
    let mut words = Words::new(&line[position..]);
    let command = words.next();
    let (Some(Ok(command)), Some(Ok(chain))) = (command, words.next()) else {
        return Err(Problem::new(
            ProblemKind::MissingChain,
            position..line.len(),
        ));
    };
    if !matches!(command.text.as_ref(), "-A" | "--append") || chain.is_quoted {
        return Err(Problem::new(
            ProblemKind::MissingChain,
            position..line.len(),
        ));
    }
    let chain_at = position + chain.range.start..position + chain.range.end;
    Ok(RuleHead {
        counters,
        chain: &line[chain_at.clone()],
        words: chain_at.end..line.len(),
        chain_at,
    })
}

/// Moves an error by `by` bytes, from a part of a line to the whole line.
pub(super) fn shift_problem(problem: Problem, by: usize) -> Problem {
    Problem::new(
        problem.kind,
        problem.range.start + by..problem.range.end + by,
    )
}

fn parse_counters(text: &str) -> Option<(u64, u64)> {
    let (packets, bytes) = text.split_once(':')?;
    Some((packets.parse().ok()?, bytes.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rule_parse_splits_options_matches_and_target() {
        let (chain, rule) = Rule::parse(
            "[12:720] -A X ! -s 10.0.0.0/8 -p tcp --dport 80 -m comment --comment \"-j no\" -j DNAT --to-destination 10.0.0.1:80",
        )
        .unwrap();
        assert_eq!(
            (chain.as_str(), rule.packets, rule.bytes),
            ("X", Some(12), Some(720))
        );
        let parts = rule.parts();
        assert_eq!(parts.header("-s"), None);
        assert_eq!(parts.header("-p"), Some("tcp"));
        assert_eq!(
            parts.match_module("tcp").unwrap().value("--dport"),
            Some("80")
        );
        assert_eq!(rule.comment().as_deref(), Some("-j no"));
        assert_eq!(rule.target().as_deref(), Some("DNAT"));
        let target = parts.target.unwrap();
        assert_eq!(target.options[0].values, ["10.0.0.1:80"]);
    }

    #[test]
    fn rule_parse_accepts_value_that_looks_like_option() {
        for text in [
            "-m comment --comment -foo -j Y",
            "-m comment --comment \"-foo\" -j Y",
        ] {
            let rule = Rule::from_words(text).unwrap();
            assert_eq!(rule.comment().as_deref(), Some("-foo"), "{text}");
            assert_eq!(rule.target().as_deref(), Some("Y"), "{text}");
        }
        let rule = Rule::from_words("-j NFLOG --nflog-prefix -A --nflog-group 2").unwrap();
        let target = rule.parts().target.unwrap();
        assert_eq!(target.options.len(), 2);
    }

    #[test]
    fn rule_text_is_independent_of_negation_position() {
        for (old, new) in [
            ("-s ! 10.0.0.0/8 -j Y", "! -s 10.0.0.0/8 -j Y"),
            (
                "-p tcp -m tcp --dport ! 80 -j Y",
                "-p tcp -m tcp ! --dport 80 -j Y",
            ),
        ] {
            assert_eq!(
                Rule::from_words(old).unwrap().canonical_text(),
                Rule::from_words(new).unwrap().canonical_text()
            );
        }
    }

    fn parse_error(line: &str) -> (ProblemKind, &str) {
        let problem = Rule::parse(line).unwrap_err();
        (problem.kind, &line[problem.range])
    }

    #[test]
    fn rule_parse_invalid_rule_reports_position() {
        assert_eq!(
            parse_error("-A X -m comment --comment \"a -j Y"),
            (ProblemKind::UnclosedQuote, "\"a -j Y")
        );
        assert_eq!(
            parse_error("-A X -j"),
            (ProblemKind::MissingValue("-j".into()), "-j")
        );
        assert_eq!(
            parse_error("-A X -p tcp -s"),
            (ProblemKind::MissingValue("-s".into()), "-s")
        );
        assert_eq!(
            parse_error("-A X tcp -j Y"),
            (ProblemKind::UnknownWord { word: "tcp".into() }, "tcp")
        );
        assert_eq!(
            parse_error("-I X -j Y"),
            (ProblemKind::MissingChain, "-I X -j Y")
        );
        assert_eq!(
            parse_error("[a:1] -A X -j Y"),
            (ProblemKind::InvalidCounters, "[a:1]")
        );
        assert_eq!(parse_error("[12"), (ProblemKind::InvalidCounters, "[12"));
        assert_eq!(parse_error("[0:0"), (ProblemKind::InvalidCounters, "[0:0"));
    }
}
