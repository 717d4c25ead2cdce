//! Defines the errors of a dump, with their positions, and converts them to diagnostics.

use std::ops::Range;

use thiserror::Error;

use crate::tool::Format;
use svclab_diagnostic::source::FileId;
use svclab_diagnostic::source::Span;
use svclab_diagnostic::{Diagnostic, Severity};

/// Error in a dump, with its position.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// Description of the error.
    pub wrong: Wrong,
    /// Position in the file, as a byte range.
    pub at: Range<usize>,
}

/// Error in a dump.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Wrong {
    /// The content does not match the program in the file name.
    #[error("this is what `{looks}` prints, and the file's name says `{named}`")]
    Mixed {
        /// Format according to the file name.
        named: Format,
        /// Format according to the content.
        looks: Format,
    },
    /// The content is JSON, which the programs print only on request.
    #[error("this is JSON, and `{0}` prints none")]
    Json(Format),
    /// The file is empty, but its program always prints something.
    #[error("the file is empty, and `{0}` prints something on every node")]
    Empty(Format),
    /// The last line has no end, because the file is truncated.
    #[error("the file ends within this line: the dump is not complete")]
    Cut,
    /// The program does not print lines like this.
    #[error("`{0}` prints no such line")]
    Line(Format),
    /// The program does not print this word in this position.
    #[error("`{word}` is not known here")]
    Word {
        /// Unexpected word.
        word: String,
    },
    /// A value has the wrong kind.
    #[error("`{value}` is not {wanted}")]
    Value {
        /// Value as printed.
        value: String,
        /// Expected kind of value, such as "a number".
        wanted: &'static str,
    },
    /// An option has no value.
    #[error("{0} lacks its value")]
    Lacks(String),
    /// A quote is not closed.
    #[error("a quote is not closed")]
    Quote,
    /// The table name is not one of the iptables tables.
    #[error("`{0}` is not a table of iptables")]
    Table(String),
    /// A table is printed twice.
    #[error("table {name} begins a second time; it began at line {line}")]
    TableTwice {
        /// Name of the table.
        name: String,
        /// Line of the first occurrence, from 1.
        line: u32,
    },
    /// A chain or rule precedes any `*table` line, or follows `COMMIT`.
    #[error("this belongs to a table, but none has begun")]
    Outside,
    /// A table has no `COMMIT` line.
    #[error("table {0} is not committed: the dump is not complete")]
    Unfinished(String),
    /// An nftables table has no end.
    #[error("table {0} does not end: the dump is not complete")]
    Open(String),
    /// A chain declaration is not of the form `:NAME POLICY [packets:bytes]`.
    #[error("this does not declare a chain")]
    Chain,
    /// A chain is declared twice.
    #[error("chain {name} is declared a second time; it was declared at line {line}")]
    ChainTwice {
        /// Name of the chain.
        name: String,
        /// Line of the first declaration, from 1.
        line: u32,
    },
    /// The chain of a rule is not declared.
    #[error("chain {0} is not declared")]
    Undeclared(String),
    /// A rule does not start with `-A CHAIN`.
    #[error("a rule begins with -A and a chain")]
    NoChain,
    /// Counters are not of the form `[packets:bytes]`.
    #[error("this does not count packets and bytes")]
    Counters,
    /// A rule jumps to its own chain.
    #[error("chain {0} jumps to itself")]
    Loop(String),
    /// The target is neither a chain of the table nor a target of iptables.
    #[error("{name} is neither a chain of this table nor a target that svclab knows")]
    Target {
        /// Name of the target.
        name: String,
        /// Similar name, as a suggestion. `None` if there is none.
        meant: Option<String>,
    },
    /// The match is not one of the iptables matches.
    #[error("{name} is not a match that svclab knows")]
    Match {
        /// Name of the match.
        name: String,
        /// Similar name, as a suggestion. `None` if there is none.
        meant: Option<String>,
    },
    /// A rule uses a set that the dump does not contain.
    #[error("the set {name} is not created in {file}")]
    NoSet {
        /// Name of the set.
        name: String,
        /// File that should create the set.
        file: String,
    },
    /// An item that must be unique appears twice.
    #[error("{what} is there a second time; it was at line {line}")]
    Twice {
        /// Name of the item.
        what: String,
        /// Line of the first occurrence, from 1.
        line: u32,
    },
    /// An item lacks the preceding line that it belongs to.
    #[error("{0}")]
    Homeless(&'static str),
}

impl Problem {
    /// Creates an error at a position.
    #[must_use]
    pub fn new(wrong: Wrong, at: Range<usize>) -> Self {
        Self { wrong, at }
    }

    /// Returns the severity. State that can be parsed but that no kernel accepts, such as a chain
    /// that jumps to itself, is a warning. Such dumps can still be compared.
    #[must_use]
    pub fn severity(&self) -> Severity {
        match self.wrong {
            Wrong::Loop(_) | Wrong::Target { .. } | Wrong::Match { .. } | Wrong::NoSet { .. } => {
                Severity::Warning
            }
            _ => Severity::Error,
        }
    }

    /// Converts the error to a diagnostic with file, line and caret. `text` is the content of the
    /// file.
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
    /// Returns the label at the caret and the help text.
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

/// Converts a byte range to a span with line and column.
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
