//! Defines a rule and splits its text into header options, matches and target.

use std::borrow::Cow;
use std::fmt;
use std::ops::Range;

use super::canonical;
use super::pieces::{Fault, Kind, Pieces};
use super::words::Words;
use crate::text::Text;
use crate::text::problem::{Problem, Wrong};

/// Rule of a chain.
///
/// Two rules are equal when their canonical texts are equal, see [`Rule::text`].
#[derive(Debug, Clone)]
pub struct Rule {
    /// Words after the chain name. [`Pieces`] accepts them without an error.
    words: Text,
    /// Line number, from 1. 0 if the rule was not parsed from a file.
    pub line: u32,
    /// Number of packets that matched the rule. `None` if the dump has no counters.
    pub packets: Option<u64>,
    /// Number of bytes in these packets. `None` if the dump has no counters.
    pub bytes: Option<u64>,
}

/// Rule split into its parts.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Parts<'r> {
    /// Options that match the packet header: `-p`, `-s`, `-d`, `-i`, `-o`, `-f`.
    pub header: Vec<Choice<'r>>,
    /// Matches in order of evaluation.
    pub matches: Vec<Module<'r>>,
    /// Target for packets that pass all matches. `None` for a rule that only counts.
    pub target: Option<Target<'r>>,
}

/// Option with its values, possibly negated.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Choice<'r> {
    /// Name with leading dashes.
    pub name: Cow<'r, str>,
    /// Whether `!` precedes the option.
    pub negated: bool,
    /// Values that follow the option.
    pub values: Vec<Cow<'r, str>>,
}

/// Match (`-m NAME`) with its options.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Module<'r> {
    /// Name of the match.
    pub name: Cow<'r, str>,
    /// Options of the match.
    pub choices: Vec<Choice<'r>>,
}

/// Target (`-j NAME` or `-g NAME`) with its options.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target<'r> {
    /// Name of a chain, a verdict or a target extension.
    pub name: Cow<'r, str>,
    /// Whether the packet does not return to this chain (`-g`).
    pub goto: bool,
    /// Options of the target.
    pub choices: Vec<Choice<'r>>,
}

impl Rule {
    /// Creates a rule from the words after the chain name.
    ///
    /// # Errors
    ///
    /// Returns the first error in the words.
    pub fn of_words(words: impl Into<String>) -> Result<Self, Problem> {
        let words = Text::new(words.into());
        for piece in Pieces::new(&words) {
            piece.map_err(|Fault { wrong, at }| Problem::new(wrong, at))?;
        }
        Ok(Self::of_read(words, 0))
    }

    /// Creates a rule from words that were already checked.
    pub(super) fn of_read(words: Text, line: u32) -> Self {
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
        let head = head(line)?;
        let mut rule = Self::of_words(&line[head.words.clone()])
            .map_err(|problem| shifted(problem, head.words.start))?;
        (rule.packets, rule.bytes) = head.counters.unzip();
        Ok((head.chain.to_owned(), rule))
    }

    /// Returns the source text of the words after the chain name.
    #[must_use]
    pub fn written(&self) -> &str {
        &self.words
    }

    /// Returns the byte range of the words in their file.
    #[must_use]
    pub fn place(&self) -> Range<usize> {
        self.words.range()
    }

    /// Splits the rule into its parts.
    #[must_use]
    pub fn parts(&self) -> Parts<'_> {
        let mut parts = Parts::default();
        // The constructors checked the words, so classification returns no errors.
        for piece in Pieces::new(&self.words).flatten() {
            let text = piece.word.text;
            match piece.kind {
                Kind::Header(name) => parts.header.push(Choice {
                    name: Cow::Borrowed(name),
                    negated: piece.negated,
                    values: Vec::new(),
                }),
                Kind::Match => parts.matches.push(Module {
                    name: text,
                    choices: Vec::new(),
                }),
                Kind::Jump | Kind::Goto => {
                    parts.target = Some(Target {
                        name: text,
                        goto: piece.kind == Kind::Goto,
                        choices: Vec::new(),
                    });
                }
                Kind::Option => parts.open_choices().push(Choice {
                    name: text,
                    negated: piece.negated,
                    values: Vec::new(),
                }),
                Kind::Value => {
                    if let Some(choice) = parts.last_choice() {
                        choice.values.push(text);
                    }
                }
                Kind::Denial => {
                    if let Some(choice) = parts.last_choice() {
                        choice.negated = true;
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
        Pieces::new(&self.words)
            .flatten()
            .find(|piece| matches!(piece.kind, Kind::Jump | Kind::Goto))
            .map(|piece| piece.word.text)
    }

    /// Returns the first value of the first option with a name. `None` without the option.
    fn value_of(&self, option: &str) -> Option<Cow<'_, str>> {
        // Shortcut, because most rules do not contain the option.
        if !self.words.contains(option) {
            return None;
        }
        let mut pieces = Pieces::new(&self.words).flatten();
        pieces.find(|piece| piece.kind == Kind::Option && piece.word.text == option)?;
        pieces
            .find(|piece| piece.kind == Kind::Value)
            .map(|piece| piece.word.text)
    }

    /// Returns the sets that the rule uses, with the byte ranges of their names in the file.
    #[must_use]
    pub fn sets(&self) -> Vec<(Cow<'_, str>, Range<usize>)> {
        const NAMING: [&str; 4] = ["--match-set", "--add-set", "--del-set", "--map-set"];
        let mut sets = Vec::new();
        if !self.words.contains("-set ") {
            return sets;
        }
        let mut named = false;
        for piece in Pieces::new(&self.words).flatten() {
            if named && piece.kind == Kind::Value {
                let start = self.words.range().start;
                let at = start + piece.word.at.start..start + piece.word.at.end;
                sets.push((piece.word.text, at));
                named = false;
            } else {
                named = piece.kind == Kind::Option && NAMING.contains(&piece.word.text.as_ref());
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
    pub fn text(&self) -> String {
        canonical::text(&self.parts())
    }
}

impl<'r> Parts<'r> {
    /// Returns the options of the target, of the last match, or of the match that the protocol
    /// implies.
    fn open_choices(&mut self) -> &mut Vec<Choice<'r>> {
        if let Some(target) = &mut self.target {
            return &mut target.choices;
        }
        if self.matches.is_empty() {
            let protocol = self.header.iter().find(|choice| choice.name == "-p");
            let name = protocol.and_then(|choice| choice.values.first());
            self.matches.push(Module {
                name: name.cloned().unwrap_or_default(),
                choices: Vec::new(),
            });
        }
        let last = self.matches.len() - 1;
        &mut self.matches[last].choices
    }

    /// Returns the last parsed option. The value of a header option follows immediately. Other
    /// options belong to the last match or target.
    fn last_choice(&mut self) -> Option<&mut Choice<'r>> {
        let waits = |choice: &&mut Choice<'_>| choice.values.is_empty() && choice.name != "-f";
        if let Some(header) = self.header.last_mut().filter(waits) {
            return Some(header);
        }
        if let Some(target) = &mut self.target {
            return target.choices.last_mut();
        }
        self.matches.last_mut()?.choices.last_mut()
    }

    /// Returns the first match with a name. `None` without such a match.
    #[must_use]
    pub fn module(&self, name: &str) -> Option<&Module<'r>> {
        self.matches.iter().find(|module| module.name == name)
    }

    /// Returns the value of a header option (`-d`). `None` if the option is absent or negated.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        let choice = self.header.iter().find(|choice| choice.name == name)?;
        let value = choice.values.first()?;
        (!choice.negated).then_some(value.as_ref())
    }
}

impl Module<'_> {
    /// Returns the first value of an option. `None` if the option is absent or negated.
    #[must_use]
    pub fn value(&self, option: &str) -> Option<&str> {
        let choice = self.choices.iter().find(|choice| choice.name == option)?;
        let value = choice.values.first()?;
        (!choice.negated).then_some(value.as_ref())
    }
}

impl PartialEq for Rule {
    fn eq(&self, other: &Self) -> bool {
        self.words == other.words || self.text() == other.text()
    }
}

impl Eq for Rule {}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text())
    }
}

/// Parts of a line that precede the words of a rule.
#[derive(Debug)]
pub(super) struct Head<'t> {
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
pub(super) fn head(line: &str) -> Result<Head<'_>, Problem> {
    let mut at = 0;
    let mut counters = None;
    if let Some(rest) = line.strip_prefix('[') {
        let Some((inside, _)) = rest.split_once(']') else {
            return Err(Problem::new(Wrong::Counters, 0..line.len()));
        };
        at = inside.len() + 2;
        let bad = || Problem::new(Wrong::Counters, 0..at);
        counters = Some(counted(inside).ok_or_else(bad)?);
    }
    let mut words = Words::new(&line[at..]);
    let command = words.next();
    let (Some(Ok(command)), Some(Ok(chain))) = (command, words.next()) else {
        return Err(Problem::new(Wrong::NoChain, at..line.len()));
    };
    if !matches!(command.text.as_ref(), "-A" | "--append") || chain.quoted {
        return Err(Problem::new(Wrong::NoChain, at..line.len()));
    }
    let chain_at = at + chain.at.start..at + chain.at.end;
    Ok(Head {
        counters,
        chain: &line[chain_at.clone()],
        words: chain_at.end..line.len(),
        chain_at,
    })
}

/// Moves an error by `by` bytes, from a part of a line to the whole line.
pub(super) fn shifted(problem: Problem, by: usize) -> Problem {
    Problem::new(problem.wrong, problem.at.start + by..problem.at.end + by)
}

fn counted(text: &str) -> Option<(u64, u64)> {
    let (packets, bytes) = text.split_once(':')?;
    Some((packets.parse().ok()?, bytes.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_is_taken_apart() {
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
        assert_eq!(parts.module("tcp").unwrap().value("--dport"), Some("80"));
        assert_eq!(rule.comment().as_deref(), Some("-j no"));
        assert_eq!(rule.target().as_deref(), Some("DNAT"));
        let target = parts.target.unwrap();
        assert_eq!(target.choices[0].values, ["10.0.0.1:80"]);
    }

    #[test]
    fn a_value_may_look_like_an_option() {
        for text in [
            "-m comment --comment -foo -j Y",
            "-m comment --comment \"-foo\" -j Y",
        ] {
            let rule = Rule::of_words(text).unwrap();
            assert_eq!(rule.comment().as_deref(), Some("-foo"), "{text}");
            assert_eq!(rule.target().as_deref(), Some("Y"), "{text}");
        }
        let rule = Rule::of_words("-j NFLOG --nflog-prefix -A --nflog-group 2").unwrap();
        let target = rule.parts().target.unwrap();
        assert_eq!(target.choices.len(), 2);
    }

    #[test]
    fn a_denial_may_stand_before_or_after() {
        for (old, new) in [
            ("-s ! 10.0.0.0/8 -j Y", "! -s 10.0.0.0/8 -j Y"),
            (
                "-p tcp -m tcp --dport ! 80 -j Y",
                "-p tcp -m tcp ! --dport 80 -j Y",
            ),
        ] {
            assert_eq!(
                Rule::of_words(old).unwrap().text(),
                Rule::of_words(new).unwrap().text()
            );
        }
    }

    fn wrong(line: &str) -> (Wrong, &str) {
        let problem = Rule::parse(line).unwrap_err();
        (problem.wrong, &line[problem.at])
    }

    #[test]
    fn what_is_no_rule_is_pointed_at() {
        assert_eq!(
            wrong("-A X -m comment --comment \"a -j Y"),
            (Wrong::Quote, "\"a -j Y")
        );
        assert_eq!(wrong("-A X -j"), (Wrong::Lacks("-j".into()), "-j"));
        assert_eq!(wrong("-A X -p tcp -s"), (Wrong::Lacks("-s".into()), "-s"));
        assert_eq!(
            wrong("-A X tcp -j Y"),
            (Wrong::Word { word: "tcp".into() }, "tcp")
        );
        assert_eq!(wrong("-I X -j Y"), (Wrong::NoChain, "-I X -j Y"));
        assert_eq!(wrong("[a:1] -A X -j Y"), (Wrong::Counters, "[a:1]"));
        assert_eq!(wrong("[12"), (Wrong::Counters, "[12"));
        assert_eq!(wrong("[0:0"), (Wrong::Counters, "[0:0"));
    }
}
