//! Defines the commands of `iptables-restore`.

use std::fmt;
use std::str::FromStr;

/// Command in the input of `iptables-restore`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Command {
    /// Option of the command.
    pub verb: Verb,
    /// Chain that the command changes.
    pub chain: String,
    /// Rule number, from 1: where to insert the rule, or which rule to delete. `None` inserts the
    /// rule at the top, or deletes the first equal rule.
    pub number: Option<usize>,
    /// Words after the chain and the number. Empty for a deletion by number and for commands
    /// without a rule.
    pub rule: String,
}

/// Option that starts a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verb {
    /// `-A`: appends a rule.
    Append,
    /// `-I`: inserts a rule.
    Insert,
    /// `-D`: deletes a rule.
    Delete,
    /// `-F`: deletes all rules of a chain.
    Flush,
    /// `-N`: creates a chain.
    NewChain,
    /// `-X`: deletes an empty chain.
    DeleteChain,
}

impl Verb {
    const ALL: [(&'static str, Self); 6] = [
        ("-A", Self::Append),
        ("-I", Self::Insert),
        ("-D", Self::Delete),
        ("-F", Self::Flush),
        ("-N", Self::NewChain),
        ("-X", Self::DeleteChain),
    ];
}

/// Error for a line that is not a supported command.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CommandError {
    /// The line starts with another option, or names no chain.
    #[error("`{0}` is not supported: lines start with -A, -I, -D, -F, -N or -X, and name a chain")]
    Unsupported(String),
    /// Rules are numbered from 1.
    #[error("`{0}`: rules are numbered from 1")]
    NumberZero(String),
}

impl Command {
    fn new(verb: Verb, chain: impl Into<String>, rule: impl Into<String>) -> Self {
        Self {
            verb,
            chain: chain.into(),
            number: None,
            rule: rule.into(),
        }
    }

    /// Appends a rule to a chain.
    pub fn append(chain: impl Into<String>, rule: impl Into<String>) -> Self {
        Self::new(Verb::Append, chain, rule)
    }

    /// Inserts a rule at the top of a chain.
    pub fn insert(chain: impl Into<String>, rule: impl Into<String>) -> Self {
        Self::new(Verb::Insert, chain, rule)
    }

    /// Inserts a rule so that it has this number, from 1.
    pub fn insert_at(chain: impl Into<String>, number: usize, rule: impl Into<String>) -> Self {
        Self {
            number: Some(number),
            ..Self::insert(chain, rule)
        }
    }

    /// Deletes the first equal rule of a chain.
    pub fn delete(chain: impl Into<String>, rule: impl Into<String>) -> Self {
        Self::new(Verb::Delete, chain, rule)
    }

    /// Deletes the rule with this number, from 1.
    pub fn delete_at(chain: impl Into<String>, number: usize) -> Self {
        Self {
            number: Some(number),
            ..Self::delete(chain, "")
        }
    }

    /// Deletes all rules of a chain.
    pub fn flush(chain: impl Into<String>) -> Self {
        Self::new(Verb::Flush, chain, "")
    }

    /// Creates a chain.
    pub fn new_chain(chain: impl Into<String>) -> Self {
        Self::new(Verb::NewChain, chain, "")
    }

    /// Deletes an empty chain.
    pub fn delete_chain(chain: impl Into<String>) -> Self {
        Self::new(Verb::DeleteChain, chain, "")
    }
}

impl fmt::Display for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let known = Verb::ALL.iter().find(|(_, verb)| *verb == self.verb);
        let (option, _) = known.unwrap_or(&Verb::ALL[0]);
        write!(f, "{option} {}", self.chain)?;
        if let Some(number) = self.number {
            write!(f, " {number}")?;
        }
        if !self.rule.is_empty() {
            write!(f, " {}", self.rule)?;
        }
        Ok(())
    }
}

impl FromStr for Command {
    type Err = CommandError;

    fn from_str(line: &str) -> Result<Self, CommandError> {
        let unsupported = || CommandError::Unsupported(line.to_owned());
        let (option, rest) = line.split_once(' ').ok_or_else(unsupported)?;
        let mut known = Verb::ALL.iter();
        let (_, verb) = known
            .find(|(name, _)| *name == option)
            .ok_or_else(unsupported)?;
        let rest = rest.trim_ascii_start();
        let (chain, rest) = rest.split_once(' ').unwrap_or((rest, ""));
        let rest = rest.trim_ascii_start();
        if chain.is_empty() {
            return Err(unsupported());
        }
        let (first, after) = rest.split_once(' ').unwrap_or((rest, ""));
        let number = match verb {
            Verb::Insert | Verb::Delete => first.parse().ok(),
            Verb::Append | Verb::Flush | Verb::NewChain | Verb::DeleteChain => None,
        };
        if number == Some(0) {
            return Err(CommandError::NumberZero(line.to_owned()));
        }
        let rule = if number.is_some() { after } else { rest };
        Ok(Self {
            number,
            ..Self::new(*verb, chain, rule)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_text_is_kept() {
        for line in [
            "-A INPUT -m comment --comment \"3  a\" -j DROP",
            "-I INPUT -j DROP",
            "-I INPUT 3 -j DROP",
            "-D INPUT -j DROP",
            "-D INPUT 3",
            "-F INPUT",
            "-A MINE",
            "-N MINE",
            "-X MINE",
        ] {
            assert_eq!(line.parse::<Command>().unwrap().to_string(), line);
        }
    }

    #[test]
    fn command_several_spaces_are_one() {
        let command: Command = "-I  INPUT  3 -j DROP".parse().unwrap();
        assert_eq!(command, Command::insert_at("INPUT", 3, "-j DROP"));
    }

    #[test]
    fn command_other_line_returns_error() {
        let errors = [
            "-R INPUT 1 -j DROP",
            "-X",
            "-F",
            "INPUT",
            "-A  ",
            "-I INPUT 0 -j DROP",
        ]
        .map(|line| line.parse::<Command>().unwrap_err().to_string());
        insta::assert_snapshot!(errors.join("\n"), @r"
        `-R INPUT 1 -j DROP` is not supported: lines start with -A, -I, -D, -F, -N or -X, and name a chain
        `-X` is not supported: lines start with -A, -I, -D, -F, -N or -X, and name a chain
        `-F` is not supported: lines start with -A, -I, -D, -F, -N or -X, and name a chain
        `INPUT` is not supported: lines start with -A, -I, -D, -F, -N or -X, and name a chain
        `-A  ` is not supported: lines start with -A, -I, -D, -F, -N or -X, and name a chain
        `-I INPUT 0 -j DROP`: rules are numbered from 1
        ");
    }
}
