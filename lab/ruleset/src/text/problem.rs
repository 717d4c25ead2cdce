//! What can be wrong with a dump, and where.

use std::ops::Range;

use thiserror::Error;

use crate::tool::Format;
use svclab_diagnostic::source::FileId;
use svclab_diagnostic::source::Span;
use svclab_diagnostic::{Diagnostic, Severity};

/// Something that is wrong with a dump, and its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// What is wrong.
    pub wrong: Wrong,
    /// The place, in bytes of the file.
    pub at: Range<usize>,
}

/// What can be wrong.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Wrong {
    /// The file holds what another program printed.
    #[error("this is what `{looks}` prints, and the file's name says `{named}`")]
    Mixed {
        /// By its name.
        named: Format,
        /// By what is in it.
        looks: Format,
    },
    /// JSON, which no program prints unless it is told to.
    #[error("this is JSON, and `{0}` prints none")]
    Json(Format),
    /// An empty file of a program that always prints something.
    #[error("the file is empty, and `{0}` prints something on every node")]
    Empty(Format),
    /// A line that does not end, at the end of a file that is cut off.
    #[error("the file ends within this line: the dump is not complete")]
    Cut,
    /// A line that the program does not print.
    #[error("`{0}` prints no such line")]
    Line(Format),
    /// A word that the program does not print there.
    #[error("`{word}` is not known here")]
    Word {
        /// The word.
        word: String,
    },
    /// A value that is not what its name asks for.
    #[error("`{value}` is not {wanted}")]
    Value {
        /// The value.
        value: String,
        /// What it should be, as in "a number".
        wanted: &'static str,
    },
    /// An option without its value.
    #[error("{0} lacks its value")]
    Lacks(String),
    /// A quote that is not closed.
    #[error("a quote is not closed")]
    Quote,
    /// A table nobody knows.
    #[error("`{0}` is not a table of iptables")]
    Table(String),
    /// A table that is printed twice.
    #[error("table {name} begins a second time; it began at line {line}")]
    TableTwice {
        /// The table.
        name: String,
        /// Where it began first.
        line: u32,
    },
    /// A chain or a rule before any `*table`, or after its `COMMIT`.
    #[error("this belongs to a table, but none has begun")]
    Outside,
    /// A table that was never committed.
    #[error("table {0} is not committed: the dump is not complete")]
    Unfinished(String),
    /// A table of nftables that does not end.
    #[error("table {0} does not end: the dump is not complete")]
    Open(String),
    /// A chain that is not written `:NAME POLICY [packets:bytes]`.
    #[error("this does not declare a chain")]
    Chain,
    /// A chain that is declared twice.
    #[error("chain {name} is declared a second time; it was declared at line {line}")]
    ChainTwice {
        /// The chain.
        name: String,
        /// Where it was declared first.
        line: u32,
    },
    /// A rule of a chain that was not declared.
    #[error("chain {0} is not declared")]
    Undeclared(String),
    /// No `-A CHAIN`.
    #[error("a rule begins with -A and a chain")]
    NoChain,
    /// Counters that are not `[packets:bytes]`.
    #[error("this does not count packets and bytes")]
    Counters,
    /// A rule that sends packets to the chain that it stands in.
    #[error("chain {0} jumps to itself")]
    Loop(String),
    /// A target that is no chain of the table and none that iptables has.
    #[error("{name} is neither a chain of this table nor a target that svclab knows")]
    Target {
        /// The target.
        name: String,
        /// What may have been meant.
        meant: Option<String>,
    },
    /// A match that iptables does not have.
    #[error("{name} is not a match that svclab knows")]
    Match {
        /// The match.
        name: String,
        /// What may have been meant.
        meant: Option<String>,
    },
    /// A rule asks for a set that the dump lacks.
    #[error("the set {name} is not created in {file}")]
    NoSet {
        /// The set.
        name: String,
        /// Where it was looked for.
        file: String,
    },
    /// Something that can be there only once is there twice.
    #[error("{what} is there a second time; it was at line {line}")]
    Twice {
        /// What.
        what: String,
        /// Where it was first.
        line: u32,
    },
    /// Something that belongs to what was not told of before.
    #[error("{0}")]
    Homeless(&'static str),
}

impl Problem {
    /// A problem at a place.
    #[must_use]
    pub fn new(wrong: Wrong, at: Range<usize>) -> Self {
        Self { wrong, at }
    }

    /// How bad it is. What can be read but no kernel would hold, such as a chain
    /// that jumps to itself, is a warning: two dumps can be compared all the
    /// same.
    #[must_use]
    pub fn severity(&self) -> Severity {
        match self.wrong {
            Wrong::Loop(_) | Wrong::Target { .. } | Wrong::Match { .. } | Wrong::NoSet { .. } => {
                Severity::Warning
            }
            _ => Severity::Error,
        }
    }

    /// As a message with file, line and caret; `text` is the file's.
    #[must_use]
    pub fn diagnostic(&self, file: FileId, text: &str) -> Diagnostic {
        let message = self.wrong.to_string();
        let (label, help) = self.wrong.hints();
        let diagnostic = match self.severity() {
            Severity::Error => Diagnostic::error(message),
            Severity::Warning => Diagnostic::warning(message),
        };
        diagnostic
            .at(span(file, text, &self.at), label)
            .maybe_help(help)
    }
}

impl Wrong {
    /// What stands beside the caret, and what to do.
    fn hints(&self) -> (&'static str, Option<String>) {
        let meant =
            |name: &Option<String>| name.as_ref().map(|name| format!("did you mean `{name}`?"));
        let incomplete =
            || Some("the file was cut off or put together from several: save it anew".to_owned());
        match self {
            Self::Mixed { looks, .. } => (
                "here",
                Some(format!("rename the file to {}", looks.file_name())),
            ),
            Self::Quote => (
                "opened here",
                Some("no line of a dump goes on in the next: part of it was lost".to_owned()),
            ),
            Self::TableTwice { .. } | Self::ChainTwice { .. } | Self::Twice { .. } => (
                "again here",
                Some("the file is put together from several: keep one of them".to_owned()),
            ),
            Self::Outside => (
                "of which table?",
                Some("keep the `*nat` and `COMMIT` lines; lines picked out by grep are not enough".to_owned()),
            ),
            Self::Json(_) => (
                "here",
                Some("save it without the option for JSON, `-j` or `-json`".to_owned()),
            ),
            Self::Empty(format) => (
                "nothing",
                Some(format!("save the output of `{format}` again, or remove the file")),
            ),
            Self::Cut => ("this line", incomplete()),
            Self::Unfinished(_) => ("begun here", incomplete()),
            Self::Open(_) => ("its end is missing", incomplete()),
            Self::Undeclared(name) => (
                "this chain",
                Some(format!("a dump declares each chain of a table before its rules: `:{name} - [0:0]`")),
            ),
            Self::Loop(_) => (
                "this chain itself",
                Some("no kernel takes such a rule: the dump was changed after it was saved".to_owned()),
            ),
            Self::Target { meant: name, .. } => ("no such target", meant(name)),
            Self::Match { meant: name, .. } => ("no such match", meant(name)),
            Self::NoSet { .. } => (
                "this set",
                Some("no kernel takes a rule for a set that is not there: save both at the same time".to_owned()),
            ),
            Self::Homeless(_) => ("here", incomplete()),
            Self::Line(format) => (
                "this line",
                Some(format!("save the output of `{format}` alone, as it is")),
            ),
            _ => ("here", None),
        }
    }
}

/// A range of bytes as a place: line and column are counted.
#[must_use]
pub fn span(file: FileId, text: &str, at: &Range<usize>) -> Span {
    let start = text.floor_char_boundary(at.start);
    let before = &text[..start];
    let number = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
    let line = before.bytes().filter(|byte| *byte == b'\n').count() + 1;
    let column = before
        .rsplit('\n')
        .next()
        .map_or(0, |line| line.chars().count())
        + 1;
    Span {
        file,
        start: number(start),
        end: number(at.end.max(start)),
        line: number(line),
        column: number(column),
    }
}
