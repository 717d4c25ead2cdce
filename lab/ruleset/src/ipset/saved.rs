//! Parses the output of `ipset save`: sets and their entries. Renders the input of `ipset restore`.

use std::fmt::Write as _;

use indexmap::IndexMap;

use svclab_diagnostic::Severity;

use crate::input::{InputError, ProgramInput};
use crate::text::attributes::{Attributes, Grammar, ValueKind};
use crate::text::problem::{Problem, ProblemKind};
use crate::text::{Field, Line, Text, fields, lines};
use crate::tool::Format;

/// Sets by name, in printed order.
pub type Sets = IndexMap<String, SavedSet>;

/// Set as `ipset save` prints it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SavedSet {
    /// Type of the set: `hash:ip,port`.
    pub kind: Text,
    /// Options of the set: `family`, `maxelem`, …
    pub options: Attributes,
    /// Options of the entries by entry (`10.96.0.10,tcp:80`), in printed order.
    pub entries: IndexMap<String, EntryOptions>,
    /// Line number of the `create` line, from 1.
    pub line: u32,
}

/// Options of an entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EntryOptions {
    /// `timeout`, `comment`, `nomatch`, …
    pub options: Attributes,
    /// Line number of the `add` line, from 1.
    pub line: u32,
}

/// Options of a `create` line (ipset 7.17, `lib/args.c`).
const CREATE_OPTIONS: Grammar = &[
    ("family", ValueKind::Word),
    ("range", ValueKind::Word),
    ("hashsize", ValueKind::Number),
    ("maxelem", ValueKind::Number),
    ("bucketsize", ValueKind::Number),
    ("initval", ValueKind::Number),
    ("netmask", ValueKind::Word),
    ("bitmask", ValueKind::Word),
    ("markmask", ValueKind::Number),
    ("timeout", ValueKind::Number),
    ("size", ValueKind::Number),
    ("counters", ValueKind::None),
    ("comment", ValueKind::None),
    ("skbinfo", ValueKind::None),
    ("forceadd", ValueKind::None),
];

/// Options of an `add` line.
const ADD_OPTIONS: Grammar = &[
    ("timeout", ValueKind::Number),
    ("packets", ValueKind::Number),
    ("bytes", ValueKind::Number),
    ("comment", ValueKind::Quoted),
    ("skbmark", ValueKind::Word),
    ("skbprio", ValueKind::Word),
    ("skbqueue", ValueKind::Number),
    ("nomatch", ValueKind::None),
    ("wildcard", ValueKind::None),
    ("before", ValueKind::Word),
    ("after", ValueKind::Word),
];

/// Storage methods, which are the first part of a set type.
const METHODS: [&str; 3] = ["hash:", "bitmap:", "list:"];

impl ProgramInput for Sets {
    fn parse(text: &str) -> Result<Self, InputError> {
        let mut problems = Vec::new();
        let sets = parse(&Text::new(text), &mut problems);
        let mut errors = problems.into_iter();
        match errors.find(|problem| problem.severity() == Severity::Error) {
            None => Ok(sets),
            Some(problem) => {
                let number = text[..problem.range.start].matches('\n').count();
                let line = text.lines().nth(number).unwrap_or_default().trim();
                Err(InputError(format!("`{line}`: {}", problem.kind)))
            }
        }
    }

    /// All sets come before the entries, because an entry can refer to another set.
    fn render(&self) -> String {
        let mut text = String::new();
        for (name, set) in self {
            let _ = writeln!(text, "create {name} {}", set.creation());
        }
        for (name, set) in self {
            for (entry, options) in &set.entries {
                let _ = writeln!(text, "add {name} {entry}{}", options.suffix());
            }
        }
        text
    }
}

impl SavedSet {
    /// Returns the type and the options of the set, as in its `create` line.
    #[must_use]
    pub fn creation(&self) -> String {
        if self.options.0.is_empty() {
            self.kind.to_string()
        } else {
            format!("{} {}", self.kind, self.options)
        }
    }
}

impl EntryOptions {
    /// Returns the options after a space. Empty without options.
    #[must_use]
    pub fn suffix(&self) -> String {
        if self.options.0.is_empty() {
            String::new()
        } else {
            format!(" {}", self.options)
        }
    }
}

/// Parses the output of `ipset save`. Lines that cannot be parsed are skipped and added to
/// `problems`.
#[must_use]
pub fn parse(text: &Text, problems: &mut Vec<Problem>) -> Sets {
    let mut sets = Sets::new();
    parse_into(&mut sets, text, problems);
    sets
}

/// Parses lines of `ipset save` that add to existing sets. Lines that cannot be parsed are skipped
/// and added to `problems`.
pub fn parse_into(sets: &mut Sets, text: &Text, problems: &mut Vec<Problem>) {
    for line in lines(text).filter(|line| !line.text.starts_with('#')) {
        let mut words = fields(line);
        let read = match words.next().map(|word| word.text) {
            Some("create") => parse_create(text, line, &mut words, sets),
            Some("add") => parse_add(text, line, &mut words, sets),
            _ => Err(line_problem(line)),
        };
        problems.extend(read.err());
    }
}

pub(super) fn line_problem(line: Line<'_>) -> Problem {
    Problem::new(
        ProblemKind::UnknownLine(Format::Sets),
        line.start..line.end(),
    )
}

pub(super) fn parse_create<'t>(
    text: &Text,
    line: Line<'t>,
    words: &mut impl Iterator<Item = Field<'t>>,
    sets: &mut Sets,
) -> Result<(), Problem> {
    let (Some(name), Some(kind)) = (words.next(), words.next()) else {
        return Err(line_problem(line));
    };
    let parts = METHODS
        .iter()
        .find_map(|method| kind.text.strip_prefix(method));
    if parts.is_none_or(str::is_empty) {
        let value = kind.text.to_owned();
        let wanted = "a set type such as `hash:ip,port`";
        return Err(Problem::new(
            ProblemKind::InvalidValue {
                value,
                expected: wanted,
            },
            kind.range(),
        ));
    }
    let options = Attributes::parse(text, words, CREATE_OPTIONS)?;
    if let Some(existing) = sets.get(name.text) {
        let wrong = ProblemKind::Duplicate {
            item: format!("set `{}`", name.text),
            line: existing.line,
        };
        return Err(Problem::new(wrong, name.range()));
    }
    let set = SavedSet {
        kind: text.slice(kind.range()),
        options,
        entries: IndexMap::new(),
        line: line.number,
    };
    sets.insert(name.text.to_owned(), set);
    Ok(())
}

pub(super) fn parse_add<'t>(
    text: &Text,
    line: Line<'t>,
    words: &mut impl Iterator<Item = Field<'t>>,
    sets: &mut Sets,
) -> Result<(), Problem> {
    let (Some(name), Some(entry)) = (words.next(), words.next()) else {
        return Err(line_problem(line));
    };
    let Some(set) = sets.get_mut(name.text) else {
        let wrong =
            ProblemKind::MissingParent("this entry is for a set that no earlier line creates");
        return Err(Problem::new(wrong, name.range()));
    };
    let parts = |text: &str| text.split(',').count();
    let (entry_parts, type_parts) = (parts(entry.text), parts(&set.kind));
    let fits = match &*set.kind {
        "list:set" => true,
        // The hardware address of an entry can be unknown.
        "bitmap:ip,mac" => entry_parts <= type_parts,
        _ => entry_parts == type_parts,
    };
    if !fits {
        let value = entry.text.to_owned();
        let wanted = "an entry for a set of this type";
        return Err(Problem::new(
            ProblemKind::InvalidValue {
                value,
                expected: wanted,
            },
            entry.range(),
        ));
    }
    let options = Attributes::parse(text, words, ADD_OPTIONS)?;
    if let Some(existing) = set.entries.get(entry.text) {
        let wrong = ProblemKind::Duplicate {
            item: format!("entry `{}`", entry.text),
            line: existing.line,
        };
        return Err(Problem::new(wrong, entry.range()));
    }
    let line = line.number;
    set.entries
        .insert(entry.text.to_owned(), EntryOptions { options, line });
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems(text: &str) -> Vec<(ProblemKind, String)> {
        let mut problems = Vec::new();
        let _ = parse(&Text::new(text), &mut problems);
        problems
            .into_iter()
            .map(|problem| (problem.kind, text[problem.range].to_owned()))
            .collect()
    }

    #[test]
    fn parse_ipset_output_returns_sets_and_entries() {
        let text = "create A hash:ip,port family inet hashsize 1024 maxelem 65536 timeout 60 counters comment\n\
                    add A 10.0.0.1,tcp:80 timeout 12 packets 1 bytes 60 comment \"a b\"\n\
                    create L list:set size 8\nadd L A before A\n";
        let mut problems = Vec::new();
        let sets = parse(&Text::new(text), &mut problems);
        assert_eq!(problems, []);
        assert_eq!(sets["A"].options.get("family"), Some("inet"));
        let entry = &sets["A"].entries["10.0.0.1,tcp:80"];
        assert_eq!(entry.options.get("comment"), Some("\"a b\""));
        assert_eq!(sets["L"].entries.len(), 1);
    }

    #[test]
    fn parse_invalid_lines_reports_positions() {
        let reported = problems(
            "create A hash:ip,port family inet\ncreate A hash:ip\nadd B 10.0.0.1\n\
             add A 10.0.0.1\nadd A 10.0.0.1,tcp:80\nadd A 10.0.0.1,tcp:80\n\
             add A 10.0.0.1,tcp:81 comment \"a b\nName: A\ncreate C hsh:ip\n\
             create D hash:ip hashsize many\ncreate E hash:ip famly inet\n",
        );
        let places: Vec<&str> = reported.iter().map(|(_, place)| place.as_str()).collect();
        assert_eq!(
            places,
            [
                "A",
                "B",
                "10.0.0.1",
                "10.0.0.1,tcp:80",
                "\"a b",
                "Name: A",
                "hsh:ip",
                "many",
                "famly"
            ]
        );
    }

    #[test]
    fn sets_text_is_kept() {
        let text = "create A hash:ip,port family inet timeout 60\ncreate L list:set\n\
                    add A 10.0.0.1,tcp:80 timeout 12 comment \"a b\"\nadd L A\n";
        assert_eq!(Sets::parse(text).unwrap().render(), text);
        assert_eq!(
            Sets::parse("create A hash:ip\nflush A\n")
                .unwrap_err()
                .to_string(),
            format!("`flush A`: {}", ProblemKind::UnknownLine(Format::Sets))
        );
    }
}
