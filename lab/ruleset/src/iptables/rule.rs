//! One rule: its text, and the text taken apart into what it matches in a
//! packet's header, its matches, its target.

use std::borrow::Cow;
use std::fmt;
use std::ops::Range;

use super::canonical;
use super::pieces::{Fault, Kind, Pieces};
use super::words::Words;
use crate::text::Text;
use crate::text::problem::{Problem, Wrong};

/// A rule of a chain.
///
/// Two rules are equal when they mean the same, however they were written; see
/// [`Rule::text`] for what that leaves out.
#[derive(Debug, Clone)]
pub struct Rule {
    /// Its words after the chain's name; [`Pieces`] found no fault with them.
    words: Text,
    /// The line it was read from, from 1; 0 if it is of no file.
    pub line: u32,
    /// How many packets met it, if the dump says so.
    pub packets: Option<u64>,
    /// How many bytes they had, if the dump says so.
    pub bytes: Option<u64>,
}

/// A rule taken apart.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Parts<'r> {
    /// What it matches in the header: `-p`, `-s`, `-d`, `-i`, `-o`, `-f`.
    pub header: Vec<Choice<'r>>,
    /// Its matches, in the order they are tried.
    pub matches: Vec<Module<'r>>,
    /// What happens to a packet that passed all of them; none for a rule that
    /// only counts.
    pub target: Option<Target<'r>>,
}

/// An option with its values, or its denial.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Choice<'r> {
    /// Its name with its dashes.
    pub name: Cow<'r, str>,
    /// Whether `!` stands before it.
    pub negated: bool,
    /// The words after it.
    pub values: Vec<Cow<'r, str>>,
}

/// A match (`-m NAME`) with its options.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Module<'r> {
    /// Its name.
    pub name: Cow<'r, str>,
    /// Its options.
    pub choices: Vec<Choice<'r>>,
}

/// A target (`-j NAME` or `-g NAME`) with its options.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target<'r> {
    /// A chain, a verdict or a target extension.
    pub name: Cow<'r, str>,
    /// Whether the packet does not come back (`-g`).
    pub goto: bool,
    /// Its options.
    pub choices: Vec<Choice<'r>>,
}

impl Rule {
    /// A rule of the words after the chain's name.
    ///
    /// # Errors
    ///
    /// The first thing that is wrong with it.
    pub fn of_words(words: impl Into<String>) -> Result<Self, Problem> {
        let words = Text::new(words.into());
        for piece in Pieces::new(&words) {
            piece.map_err(|Fault { wrong, at }| Problem::new(wrong, at))?;
        }
        Ok(Self::of_read(words, 0))
    }

    /// A rule whose words were read without a fault.
    pub(super) fn of_read(words: Text, line: u32) -> Self {
        Self {
            words,
            line,
            packets: None,
            bytes: None,
        }
    }

    /// Reads `-A CHAIN …`, with counters before it or not, and gives the chain
    /// and the rule.
    ///
    /// # Errors
    ///
    /// The first thing that is wrong with it.
    pub fn parse(line: &str) -> Result<(String, Self), Problem> {
        let head = head(line)?;
        let mut rule = Self::of_words(&line[head.words.clone()])
            .map_err(|problem| shifted(problem, head.words.start))?;
        (rule.packets, rule.bytes) = head.counters.unzip();
        Ok((head.chain.to_owned(), rule))
    }

    /// Its words as they were written, those after the chain's name.
    #[must_use]
    pub fn written(&self) -> &str {
        &self.words
    }

    /// Where its words stand in their file, in bytes.
    #[must_use]
    pub fn place(&self) -> Range<usize> {
        self.words.range()
    }

    /// The rule taken apart.
    #[must_use]
    pub fn parts(&self) -> Parts<'_> {
        let mut parts = Parts::default();
        // It was read before, so every piece is one.
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

    /// The text of its comment, if it has one.
    #[must_use]
    pub fn comment(&self) -> Option<Cow<'_, str>> {
        self.value_of("--comment")
    }

    /// The name of its target, if it has one.
    #[must_use]
    pub fn target(&self) -> Option<Cow<'_, str>> {
        Pieces::new(&self.words)
            .flatten()
            .find(|piece| matches!(piece.kind, Kind::Jump | Kind::Goto))
            .map(|piece| piece.word.text)
    }

    /// The first value of the first option of that name.
    fn value_of(&self, option: &str) -> Option<Cow<'_, str>> {
        // Most rules say at a glance that they have none.
        if !self.words.contains(option) {
            return None;
        }
        let mut pieces = Pieces::new(&self.words).flatten();
        pieces.find(|piece| piece.kind == Kind::Option && piece.word.text == option)?;
        pieces
            .find(|piece| piece.kind == Kind::Value)
            .map(|piece| piece.word.text)
    }

    /// The sets that it asks for or fills, and where in its file their names
    /// stand.
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

    /// The rule as `iptables-save` would write it, except that what says
    /// nothing is left out: a match without options, `/32`, defaults that were
    /// spelt out. Marks are in hexadecimal, options in the order of their
    /// names. Counters are not part of it.
    #[must_use]
    pub fn text(&self) -> String {
        canonical::text(&self.parts())
    }
}

impl<'r> Parts<'r> {
    /// Where an option goes that has just been read: to the target, else to the
    /// last match, else to the match that the protocol implies.
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

    /// The option that was read last. A header option's value follows it at
    /// once; all others are of the last match or target.
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

    /// The match of that name.
    #[must_use]
    pub fn module(&self, name: &str) -> Option<&Module<'r>> {
        self.matches.iter().find(|module| module.name == name)
    }

    /// The value of a header option (`-d`), if it is not denied.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        let choice = self.header.iter().find(|choice| choice.name == name)?;
        let value = choice.values.first()?;
        (!choice.negated).then_some(value.as_ref())
    }
}

impl Module<'_> {
    /// The first value of an option, if it is not denied.
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

/// What stands before a rule's words.
#[derive(Debug)]
pub(super) struct Head<'t> {
    /// Packets and bytes.
    pub counters: Option<(u64, u64)>,
    /// The chain.
    pub chain: &'t str,
    /// Where the chain's name stands in the line.
    pub chain_at: Range<usize>,
    /// Where the words stand.
    pub words: Range<usize>,
}

/// Reads the beginning of `[12:720] -A CHAIN …`.
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

/// A problem that was found in what begins at a place of the line.
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
