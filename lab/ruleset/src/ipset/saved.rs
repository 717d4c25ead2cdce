//! Parses the output of `ipset save`: sets and their entries.

use indexmap::IndexMap;

use crate::text::attributes::{Attributes, Grammar, Takes};
use crate::text::problem::{Problem, Wrong};
use crate::text::{Field, Line, Text, fields, lines};
use crate::tool::Format;

/// Sets by name, in printed order.
pub type Sets = IndexMap<String, Set>;

/// Set as `ipset save` prints it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Set {
    /// Type of the set: `hash:ip,port`.
    pub kind: Text,
    /// Options of the set: `family`, `maxelem`, …
    pub options: Attributes,
    /// Options of the entries by entry (`10.96.0.10,tcp:80`), in printed order.
    pub entries: IndexMap<String, Entry>,
    /// Line number of the `create` line, from 1.
    pub line: u32,
}

/// Options of an entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// `timeout`, `comment`, `nomatch`, …
    pub options: Attributes,
    /// Line number of the `add` line, from 1.
    pub line: u32,
}

/// Options of a `create` line (ipset 7.17, `lib/args.c`).
const CREATED_WITH: Grammar = &[
    ("family", Takes::Word),
    ("range", Takes::Word),
    ("hashsize", Takes::Number),
    ("maxelem", Takes::Number),
    ("bucketsize", Takes::Number),
    ("initval", Takes::Number),
    ("netmask", Takes::Word),
    ("bitmask", Takes::Word),
    ("markmask", Takes::Number),
    ("timeout", Takes::Number),
    ("size", Takes::Number),
    ("counters", Takes::Nothing),
    ("comment", Takes::Nothing),
    ("skbinfo", Takes::Nothing),
    ("forceadd", Takes::Nothing),
];

/// Options of an `add` line.
const ADDED_WITH: Grammar = &[
    ("timeout", Takes::Number),
    ("packets", Takes::Number),
    ("bytes", Takes::Number),
    ("comment", Takes::Quoted),
    ("skbmark", Takes::Word),
    ("skbprio", Takes::Word),
    ("skbqueue", Takes::Number),
    ("nomatch", Takes::Nothing),
    ("wildcard", Takes::Nothing),
    ("before", Takes::Word),
    ("after", Takes::Word),
];

/// Storage methods, which are the first part of a set type.
const METHODS: [&str; 3] = ["hash:", "bitmap:", "list:"];

/// Parses the output of `ipset save`. Lines that cannot be parsed are skipped and added to
/// `problems`.
#[must_use]
pub fn read(text: &Text, problems: &mut Vec<Problem>) -> Sets {
    let mut sets = Sets::new();
    for line in lines(text).filter(|line| !line.text.starts_with('#')) {
        let mut words = fields(line);
        let read = match words.next().map(|word| word.text) {
            Some("create") => create(text, line, &mut words, &mut sets),
            Some("add") => add(text, line, &mut words, &mut sets),
            _ => Err(whole(line)),
        };
        problems.extend(read.err());
    }
    sets
}

fn whole(line: Line<'_>) -> Problem {
    Problem::new(Wrong::Line(Format::Sets), line.start..line.end())
}

fn create<'t>(
    text: &Text,
    line: Line<'t>,
    words: &mut impl Iterator<Item = Field<'t>>,
    sets: &mut Sets,
) -> Result<(), Problem> {
    let (Some(name), Some(kind)) = (words.next(), words.next()) else {
        return Err(whole(line));
    };
    let parts = METHODS
        .iter()
        .find_map(|method| kind.text.strip_prefix(method));
    if parts.is_none_or(str::is_empty) {
        let value = kind.text.to_owned();
        let wanted = "a type of set, such as hash:ip,port";
        return Err(Problem::new(Wrong::Value { value, wanted }, kind.range()));
    }
    let options = Attributes::read(text, words, CREATED_WITH)?;
    if let Some(known) = sets.get(name.text) {
        let wrong = Wrong::Twice {
            what: format!("the set {}", name.text),
            line: known.line,
        };
        return Err(Problem::new(wrong, name.range()));
    }
    let set = Set {
        kind: text.piece(kind.range()),
        options,
        entries: IndexMap::new(),
        line: line.number,
    };
    sets.insert(name.text.to_owned(), set);
    Ok(())
}

fn add<'t>(
    text: &Text,
    line: Line<'t>,
    words: &mut impl Iterator<Item = Field<'t>>,
    sets: &mut Sets,
) -> Result<(), Problem> {
    let (Some(name), Some(entry)) = (words.next(), words.next()) else {
        return Err(whole(line));
    };
    let Some(set) = sets.get_mut(name.text) else {
        let wrong = Wrong::Homeless("an entry of a set that no line before it creates");
        return Err(Problem::new(wrong, name.range()));
    };
    let parts = |text: &str| text.split(',').count();
    let (has, wants) = (parts(entry.text), parts(&set.kind));
    let fits = match &*set.kind {
        "list:set" => true,
        // The hardware address of an entry can be unknown.
        "bitmap:ip,mac" => has <= wants,
        _ => has == wants,
    };
    if !fits {
        let value = entry.text.to_owned();
        let wanted = "an entry of a set of this type";
        return Err(Problem::new(Wrong::Value { value, wanted }, entry.range()));
    }
    let options = Attributes::read(text, words, ADDED_WITH)?;
    if let Some(known) = set.entries.get(entry.text) {
        let wrong = Wrong::Twice {
            what: format!("the entry {}", entry.text),
            line: known.line,
        };
        return Err(Problem::new(wrong, entry.range()));
    }
    let line = line.number;
    set.entries
        .insert(entry.text.to_owned(), Entry { options, line });
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems(text: &str) -> Vec<(Wrong, String)> {
        let mut problems = Vec::new();
        let _ = read(&Text::new(text), &mut problems);
        problems
            .into_iter()
            .map(|problem| (problem.wrong, text[problem.at].to_owned()))
            .collect()
    }

    #[test]
    fn sets_and_entries_are_read() {
        let text = "create A hash:ip,port family inet hashsize 1024 maxelem 65536 timeout 60 counters comment\n\
                    add A 10.0.0.1,tcp:80 timeout 12 packets 1 bytes 60 comment \"a b\"\n\
                    create L list:set size 8\nadd L A before A\n";
        let mut problems = Vec::new();
        let sets = read(&Text::new(text), &mut problems);
        assert_eq!(problems, []);
        assert_eq!(sets["A"].options.get("family"), Some("inet"));
        let entry = &sets["A"].entries["10.0.0.1,tcp:80"];
        assert_eq!(entry.options.get("comment"), Some("\"a b\""));
        assert_eq!(sets["L"].entries.len(), 1);
    }

    #[test]
    fn what_is_wrong_is_pointed_at() {
        let told = problems(
            "create A hash:ip,port family inet\ncreate A hash:ip\nadd B 10.0.0.1\n\
             add A 10.0.0.1\nadd A 10.0.0.1,tcp:80\nadd A 10.0.0.1,tcp:80\n\
             add A 10.0.0.1,tcp:81 comment \"a b\nName: A\ncreate C hsh:ip\n\
             create D hash:ip hashsize many\ncreate E hash:ip famly inet\n",
        );
        let places: Vec<&str> = told.iter().map(|(_, place)| place.as_str()).collect();
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
}
