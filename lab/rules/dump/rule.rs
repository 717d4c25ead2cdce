//! One rule, taken apart: what it matches in a packet's header, its matches,
//! its target.

use std::fmt;

use thiserror::Error;

use super::{canonical, words};

/// A rule of a chain.
///
/// Two rules are equal when they mean the same, however they were written; see
/// [`Rule::text`] for what that leaves out.
#[derive(Debug, Clone)]
pub struct Rule {
    /// What it matches in the header: `-p`, `-s`, `-d`, `-i`, `-o`, `-f`.
    pub header: Vec<Choice>,
    /// Its matches, in the order they are tried.
    pub matches: Vec<Module>,
    /// What happens to a packet that passed all of them; none for a rule that
    /// only counts.
    pub target: Option<Target>,
    /// How many packets met it, if the dump says so.
    pub packets: Option<u64>,
    /// How many bytes they had, if the dump says so.
    pub bytes: Option<u64>,
}

/// An option with its values, or its denial.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Choice {
    /// Its name with its dashes.
    pub name: String,
    /// Whether `!` stands before it.
    pub negated: bool,
    /// The words after it.
    pub values: Vec<String>,
}

/// A match (`-m NAME`) with its options.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Module {
    /// Its name.
    pub name: String,
    /// Its options.
    pub choices: Vec<Choice>,
}

/// A target (`-j NAME` or `-g NAME`) with its options.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// A chain, a verdict or a target extension.
    pub name: String,
    /// Whether the packet does not come back (`-g`).
    pub goto: bool,
    /// Its options.
    pub choices: Vec<Choice>,
}

/// Why a line is not a rule.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum RuleError {
    /// A quote that is not closed.
    #[error("a quote is not closed")]
    Quote,
    /// No `-A CHAIN`.
    #[error("a rule begins with -A and a chain")]
    Chain,
    /// Counters that are not `[packets:bytes]`.
    #[error("`{0}` does not count packets and bytes")]
    Counters(String),
    /// An option that lacks its value.
    #[error("{0} lacks its value")]
    Value(String),
    /// A word where an option is expected.
    #[error("`{0}` is not an option")]
    Word(String),
}

impl Rule {
    /// Reads `-A CHAIN …`, with counters before it or not, and gives the chain
    /// and the rule.
    ///
    /// # Errors
    ///
    /// See [`RuleError`].
    pub fn parse(line: &str) -> Result<(String, Self), RuleError> {
        let (counters, command) = match line.strip_prefix('[') {
            Some(rest) => {
                let (inside, command) = rest
                    .split_once("] ")
                    .ok_or_else(|| RuleError::Counters(line.to_owned()))?;
                (Some(counters(inside)?), command)
            }
            None => (None, line),
        };
        let mut words = words::split(command).ok_or(RuleError::Quote)?.into_iter();
        let (Some("-A" | "--append"), Some(chain)) = (words.next().as_deref(), words.next()) else {
            return Err(RuleError::Chain);
        };
        let mut rule = Self::of_words(words.collect())?;
        rule.packets = counters.map(|(packets, _)| packets);
        rule.bytes = counters.map(|(_, bytes)| bytes);
        Ok((chain, rule))
    }

    /// Takes apart the words that follow the chain's name.
    pub(super) fn of_words(words: Vec<String>) -> Result<Self, RuleError> {
        let mut rule = Self {
            header: Vec::new(),
            matches: Vec::new(),
            target: None,
            packets: None,
            bytes: None,
        };
        let mut words = words.into_iter().peekable();
        let mut negated = false;
        while let Some(word) = words.next() {
            if word == "!" {
                negated = true;
                continue;
            }
            if !word.starts_with('-') {
                return Err(RuleError::Word(word));
            }
            let mut value = || words.next().ok_or_else(|| RuleError::Value(word.clone()));
            match header_name(&word) {
                Some(name) if rule.target.is_none() => {
                    let values = if name == "-f" {
                        Vec::new()
                    } else {
                        vec![value()?]
                    };
                    rule.header.push(Choice {
                        name: name.to_owned(),
                        negated,
                        values,
                    });
                }
                _ => match word.as_str() {
                    "-m" | "--match" => rule.matches.push(Module {
                        name: value()?,
                        choices: Vec::new(),
                    }),
                    "-j" | "--jump" | "-g" | "--goto" => {
                        rule.target = Some(Target {
                            name: value()?,
                            goto: matches!(word.as_str(), "-g" | "--goto"),
                            choices: Vec::new(),
                        });
                    }
                    _ => {
                        let mut values = Vec::new();
                        // A value may begin with a dash only if it is a number.
                        while let Some(next) = words.next_if(|next| is_value(next)) {
                            values.push(next);
                        }
                        rule.open_choices().push(Choice {
                            name: word,
                            negated,
                            values,
                        });
                    }
                },
            }
            negated = false;
        }
        Ok(rule)
    }

    /// Where an option goes that has just been read: to the target, else to the
    /// last match, else to the match that the protocol implies.
    fn open_choices(&mut self) -> &mut Vec<Choice> {
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

    /// The text of its comment, if it has one.
    #[must_use]
    pub fn comment(&self) -> Option<&str> {
        let comment = self.matches.iter().find(|found| found.name == "comment")?;
        let choice = comment.choices.iter().find(|c| c.name == "--comment")?;
        choice.values.first().map(String::as_str)
    }

    /// The rule as `iptables-save` would write it, except that what says
    /// nothing is left out: a match without options, `/32`, defaults that were
    /// spelt out. Marks are in hexadecimal, options in the order of their
    /// names. Counters are not part of it.
    #[must_use]
    pub fn text(&self) -> String {
        canonical::text(self)
    }
}

impl PartialEq for Rule {
    fn eq(&self, other: &Self) -> bool {
        self.text() == other.text()
    }
}

impl Eq for Rule {}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text())
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

fn is_value(word: &str) -> bool {
    if word == "!" {
        return false;
    }
    match word.strip_prefix('-') {
        None => true,
        Some(rest) => rest.starts_with(|c: char| c.is_ascii_digit()),
    }
}

fn counters(text: &str) -> Result<(u64, u64), RuleError> {
    let bad = || RuleError::Counters(text.to_owned());
    let (packets, bytes) = text.split_once(':').ok_or_else(bad)?;
    Ok((
        packets.parse().map_err(|_| bad())?,
        bytes.parse().map_err(|_| bad())?,
    ))
}
