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
    pub kind: ProblemKind,
    /// Position in the file, as a byte range.
    pub range: Range<usize>,
}

/// Error in a dump.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ProblemKind {
    /// The content does not match the program in the file name.
    #[error("the file contains output of `{content}`, but its name indicates output of `{named}`")]
    FormatMismatch {
        /// Format according to the file name.
        named: Format,
        /// Format according to the content.
        content: Format,
    },
    /// The content is JSON, which the programs print only on request.
    #[error("the file contains JSON, not the text output of `{0}`")]
    Json(Format),
    /// The JSON is invalid, or has members that the program does not print.
    #[error("invalid JSON: {0}")]
    InvalidJson(String),
    /// A part of the JSON has no text in the format of the program.
    #[error("`{0}` in the JSON is not known")]
    UnknownJson(String),
    /// The file is empty, but its program always prints something.
    #[error("the file is empty, but `{0}` prints output on every node")]
    EmptyFile(Format),
    /// The last line has no end, because the file is truncated.
    #[error("the dump is incomplete: the file ends within this line")]
    Truncated,
    /// The program does not print lines like this.
    #[error("this line is not output of `{0}`")]
    UnknownLine(Format),
    /// The program does not print this word in this position.
    #[error("unexpected word `{word}`")]
    UnknownWord {
        /// Unexpected word.
        word: String,
    },
    /// A value has the wrong kind.
    #[error("`{value}` is not {expected}")]
    InvalidValue {
        /// Value as printed.
        value: String,
        /// Expected kind of value, such as "a number".
        expected: &'static str,
    },
    /// An option has no value.
    #[error("`{0}` has no value")]
    MissingValue(String),
    /// A quote is not closed.
    #[error("a quote is not closed")]
    UnclosedQuote,
    /// The table name is not one of the iptables tables.
    #[error("`{0}` is not an iptables table")]
    UnknownTable(String),
    /// A table is printed twice.
    #[error("table `{name}` is listed twice; first at line {line}")]
    DuplicateTable {
        /// Name of the table.
        name: String,
        /// Line of the first occurrence, from 1.
        line: u32,
    },
    /// A chain or rule precedes any `*table` line, or follows `COMMIT`.
    #[error("this line is outside of any table")]
    OutsideTable,
    /// A table has no `COMMIT` line.
    #[error("the dump is incomplete: table `{0}` has no `COMMIT` line")]
    UncommittedTable(String),
    /// An nftables table has no end.
    #[error("the dump is incomplete: table `{0}` is not closed")]
    UnclosedTable(String),
    /// A chain declaration is not of the form `:NAME POLICY [packets:bytes]`.
    #[error("this line is not a chain declaration of the form `:NAME POLICY [PACKETS:BYTES]`")]
    InvalidChain,
    /// A chain is declared twice.
    #[error("chain `{name}` is declared twice; first at line {line}")]
    DuplicateChain {
        /// Name of the chain.
        name: String,
        /// Line of the first declaration, from 1.
        line: u32,
    },
    /// The chain of a rule is not declared.
    #[error("chain `{0}` is not declared")]
    UndeclaredChain(String),
    /// A rule does not start with `-A CHAIN`.
    #[error("a rule must start with `-A CHAIN`")]
    MissingChain,
    /// Counters are not of the form `[packets:bytes]`.
    #[error("the counters are not of the form `[PACKETS:BYTES]`")]
    InvalidCounters,
    /// A rule jumps to its own chain.
    #[error("chain `{0}` jumps to itself")]
    SelfJump(String),
    /// The target is neither a chain of the table nor a target of iptables.
    #[error("`{name}` is neither a chain of this table nor a known target")]
    UnknownTarget {
        /// Name of the target.
        name: String,
        /// Similar name, as a suggestion. `None` if there is none.
        suggestion: Option<String>,
    },
    /// The match is not one of the iptables matches.
    #[error("`{name}` is not a known match")]
    UnknownMatch {
        /// Name of the match.
        name: String,
        /// Similar name, as a suggestion. `None` if there is none.
        suggestion: Option<String>,
    },
    /// A rule uses a set that the dump does not contain.
    #[error("set `{name}` is not created in {file}")]
    MissingSet {
        /// Name of the set.
        name: String,
        /// File that should create the set.
        file: String,
    },
    /// A set lists fewer or more entries than it has.
    #[error("the set has {expected} entries, but {listed} are listed")]
    MissingEntries {
        /// Number of entries that the listing states.
        expected: usize,
        /// Number of listed entries.
        listed: usize,
    },
    /// An item that must be unique appears twice.
    #[error("{item} is listed twice; first at line {line}")]
    Duplicate {
        /// Name of the item.
        item: String,
        /// Line of the first occurrence, from 1.
        line: u32,
    },
    /// A program prints fewer properties than another program for the same state.
    #[error("`{source_name}` does not print {properties}, which are not compared")]
    NotPrinted {
        /// Program or file that printed the state.
        source_name: &'static str,
        /// Properties that are missing.
        properties: &'static str,
        /// Command that prints all properties.
        command: &'static str,
    },
    /// An item lacks the preceding line that it belongs to.
    #[error("{0}")]
    MissingParent(&'static str),
}

impl Problem {
    /// Creates an error at a position.
    #[must_use]
    pub fn new(kind: ProblemKind, range: Range<usize>) -> Self {
        Self { kind, range }
    }

    /// Returns the severity. State that can be parsed but that no kernel accepts, such as a chain
    /// that jumps to itself, is a warning. So are properties that a program does not print. Such
    /// dumps can still be compared.
    #[must_use]
    pub fn severity(&self) -> Severity {
        match self.kind {
            ProblemKind::SelfJump(_)
            | ProblemKind::UnknownTarget { .. }
            | ProblemKind::UnknownMatch { .. }
            | ProblemKind::NotPrinted { .. }
            | ProblemKind::MissingSet { .. } => Severity::Warning,
            _ => Severity::Error,
        }
    }

    /// Converts the error to a diagnostic with file, line and caret. `text` is the content of the
    /// file.
    #[must_use]
    pub fn diagnostic(&self, file: FileId, text: &str) -> Diagnostic {
        let message = self.kind.to_string();
        let (label, help) = self.kind.hints();
        let diagnostic = match self.severity() {
            Severity::Error => Diagnostic::error(message),
            Severity::Warning => Diagnostic::warning(message),
        };
        diagnostic
            .with_position(span(file, text, &self.range), label)
            .with_optional_help(help)
    }
}

impl ProblemKind {
    /// Whether a whole table, or an unknown part of a file, is lost with the problem.
    #[must_use]
    pub const fn loses_table(&self) -> bool {
        matches!(
            self,
            Self::FormatMismatch { .. }
                | Self::Json(_)
                | Self::EmptyFile(_)
                | Self::Truncated
                | Self::UnknownTable(_)
                | Self::DuplicateTable { .. }
                | Self::UncommittedTable(_)
                | Self::UnclosedTable(_)
                | Self::OutsideTable
        )
    }

    /// Returns the label at the caret and the help text.
    fn hints(&self) -> (&'static str, Option<String>) {
        let suggestion_help =
            |name: &Option<String>| name.as_ref().map(|name| format!("did you mean `{name}`?"));
        let incomplete = || {
            let help =
                "save the output again: the file is truncated or combined from several files";
            Some(help.to_owned())
        };
        match self {
            Self::FormatMismatch { content: looks, .. } => (
                "here",
                Some(format!("rename the file to `{}`", looks.file_name())),
            ),
            Self::UnclosedQuote => (
                "opened here",
                Some(
                    "save the output again: part of this line is missing, as dump lines never \
                     continue on the next line"
                        .to_owned(),
                ),
            ),
            Self::DuplicateTable { .. } | Self::DuplicateChain { .. } | Self::Duplicate { .. } => (
                "second occurrence",
                Some(
                    "keep only one occurrence: the file is combined from several files".to_owned(),
                ),
            ),
            Self::OutsideTable => (
                "no table is open here",
                Some(
                    "keep the `*nat` and `COMMIT` lines: lines filtered with grep are not \
                     sufficient"
                        .to_owned(),
                ),
            ),
            Self::UnknownJson(_) => (
                "this part is not read",
                Some("save the output without the JSON option, `-j` or `-json`".to_owned()),
            ),
            Self::Json(_) => (
                "here",
                Some("save the output without the JSON option, `-j` or `-json`".to_owned()),
            ),
            Self::EmptyFile(format) => (
                "empty file",
                Some(format!(
                    "save the output of `{format}` again, or remove the file"
                )),
            ),
            Self::Truncated => ("this line", incomplete()),
            Self::UncommittedTable(_) => ("the table starts here", incomplete()),
            Self::UnclosedTable(_) => ("the closing brace is missing", incomplete()),
            Self::UndeclaredChain(name) => (
                "this chain",
                Some(format!(
                    "declare the chain before the rules of the table: `:{name} - [0:0]`"
                )),
            ),
            Self::SelfJump(_) => (
                "the chain itself",
                Some(
                    "save the rules again: the dump was edited, as the kernel rejects such a rule"
                        .to_owned(),
                ),
            ),
            Self::UnknownTarget { suggestion, .. } => {
                ("unknown target", suggestion_help(suggestion))
            }
            Self::UnknownMatch { suggestion, .. } => ("unknown match", suggestion_help(suggestion)),
            Self::MissingSet { .. } => (
                "missing set",
                Some(
                    "save the rules and the sets at the same time: the kernel rejects a rule for a \
                     missing set"
                        .to_owned(),
                ),
            ),
            Self::MissingEntries { .. } => (
                "this set",
                Some("save the output of `ipset save`, which lists all entries".to_owned()),
            ),
            Self::MissingParent(_) => ("here", incomplete()),
            Self::NotPrinted { command, .. } => {
                ("here", Some(format!("save the output of `{command}`")))
            }
            Self::UnknownLine(format) => (
                "this line",
                Some(format!("save only the output of `{format}`, unmodified")),
            ),
            _ => ("here", None),
        }
    }
}

/// Converts a byte range to a span with line and column.
#[must_use]
pub fn span(file: FileId, text: &str, range: &Range<usize>) -> Span {
    let start = text.floor_char_boundary(range.start);
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
        end: number(range.end.max(start)),
        line: number(line),
        column: number(column),
    }
}
