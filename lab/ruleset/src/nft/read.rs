//! Parses a ruleset line by line.

use super::chain::{self, split, twice};
use super::elements::Reader;
use super::words::Word;
use crate::nft::{Chain, Other, Ruleset, Set, Table};
use crate::text::problem::{Problem, Wrong};
use crate::text::{Line, Text, lines};
use crate::tool::Format;

/// Address families of tables.
const FAMILIES: [&str; 6] = ["ip", "ip6", "inet", "arp", "bridge", "netdev"];

/// First words of table objects other than sets, maps and chains.
const OTHERS: [&str; 7] = [
    "flowtable",
    "counter",
    "quota",
    "limit",
    "secmark",
    "synproxy",
    "ct",
];

/// Properties of a set that are kept as source text.
const PROPERTIES: [&str; 4] = ["policy", "gc-interval", "auto-merge", "counter"];

/// Parses the output of `nft list ruleset`. Lines that cannot be parsed are skipped and added to
/// `problems`.
#[must_use]
pub fn read(text: &Text, problems: &mut Vec<Problem>) -> Ruleset {
    let mut reader = State::default();
    for line in lines(text).map(without_handle) {
        // `nft` prints a comment before the tables of iptables-nft.
        if !line.text.is_empty()
            && !line.text.starts_with('#')
            && let Err(problem) = reader.line(line)
        {
            problems.push(problem);
        }
    }
    if let Some(table) = &reader.table {
        let name = format!("{} {}", table.family, table.name);
        let end = text.len();
        problems.push(Problem::new(Wrong::Open(name), end..end));
    }
    reader.ruleset
}

/// Returns the line without the handle that `nft -a` adds.
fn without_handle(line: Line<'_>) -> Line<'_> {
    let number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let mut text = line.text;
    while let Some((before, handle)) = text.rsplit_once(" # handle ")
        && number(handle)
    {
        text = before.trim_ascii_end();
    }
    Line { text, ..line }
}

/// Object that contains the next line.
#[derive(Debug, Default)]
enum Within {
    /// Table, outside of any of its objects.
    #[default]
    Table,
    Set(Set),
    Elements(Set, Reader),
    Chain(Chain),
    Other(Other),
}

#[derive(Debug, Default)]
struct State {
    ruleset: Ruleset,
    table: Option<Table>,
    within: Within,
}

impl State {
    fn line(&mut self, line: Line<'_>) -> Result<(), Problem> {
        let words = split(line)?;
        let Some(table) = &mut self.table else {
            self.table = Some(begin(&self.ruleset, &words, line)?);
            self.within = Within::Table;
            return Ok(());
        };
        let closes = matches!(words.as_slice(), [word] if word.is("}"));
        match (std::mem::take(&mut self.within), closes) {
            (Within::Table, true) => self.ruleset.tables.extend(self.table.take()),
            (Within::Table, false) => {
                let (within, wrong) = in_table(table, &words, line);
                self.within = within;
                return wrong.map_or(Ok(()), Err);
            }
            (Within::Set(set), true) => table.sets.push(set),
            (Within::Set(mut set), false) => {
                let read = in_set(&mut set, &words, line);
                let (within, wrong) = match read {
                    Ok(Some(reader)) => (go_on(set, reader), None),
                    Ok(None) => (Within::Set(set), None),
                    Err(wrong) => (Within::Set(set), Some(wrong)),
                };
                self.within = within;
                return wrong.map_or(Ok(()), Err);
            }
            (Within::Elements(set, mut reader), _) => {
                let read = reader.line(&words, line);
                self.within = go_on(set, reader);
                read?;
            }
            (Within::Chain(chain), true) => table.chains.push(chain),
            (Within::Chain(mut chain), false) => {
                let read = chain::line(&mut chain, line, &table.family);
                self.within = Within::Chain(chain);
                read?;
            }
            (Within::Other(other), true) => table.others.push(other),
            (Within::Other(mut other), false) => {
                let balanced = chain::is_balanced(&words);
                other.body.push(line.text.to_owned());
                self.within = Within::Other(other);
                if !balanced {
                    return Err(whole(line));
                }
            }
        }
        Ok(())
    }
}

fn whole(line: Line<'_>) -> Problem {
    Problem::new(Wrong::Line(Format::Nft), line.start..line.end())
}

/// Returns the parser state after a line of elements: the set again after the closing brace.
fn go_on(mut set: Set, mut reader: Reader) -> Within {
    if reader.ended {
        set.elements = std::mem::take(&mut reader.elements);
        Within::Set(set)
    } else {
        Within::Elements(set, reader)
    }
}

/// Parses the first line of a table: `table ip kube-proxy {`.
fn begin(ruleset: &Ruleset, words: &[Word<'_>], line: Line<'_>) -> Result<Table, Problem> {
    let [keyword, family, name, brace] = words else {
        return Err(whole(line));
    };
    if !keyword.is("table") || name.quoted || !brace.is("{") || !FAMILIES.contains(&family.text) {
        return Err(whole(line));
    }
    let mut known = ruleset.tables.iter();
    if let Some(known) = known.find(|known| known.family == family.text && known.name == name.text)
    {
        let name = format!("{} {}", known.family, known.name);
        let line_of_first = known.line;
        let wrong = Wrong::TableTwice {
            name,
            line: line_of_first,
        };
        return Err(Problem::new(wrong, line.start..line.end()));
    }
    Ok(Table {
        family: family.text.to_owned(),
        name: name.text.to_owned(),
        line: line.number,
        ..Table::default()
    })
}

/// Parses a line directly inside a table. Returns the object that contains the next line, and the
/// error.
fn in_table(table: &mut Table, words: &[Word<'_>], line: Line<'_>) -> (Within, Option<Problem>) {
    let again = |what: String, first: u32| twice(&what, first, line);
    match words {
        [keyword, said] if keyword.is("comment") && said.quoted => {
            let known = table.comment.replace(said.text.to_owned());
            let wrong = known.map(|_| again("the table's comment".to_owned(), table.line));
            (Within::Table, wrong)
        }
        [_, name, brace] if name.quoted && brace.is("{") => (Within::Table, Some(whole(line))),
        [kind, name, brace] if brace.is("{") && (kind.is("set") || kind.is("map")) => {
            let known = table.set(name.text);
            let wrong = known.map(|known| again(format!("the set {}", name.text), known.line));
            let set = Set {
                map: kind.is("map"),
                name: name.text.to_owned(),
                line: line.number,
                ..Set::default()
            };
            (Within::Set(set), wrong)
        }
        [kind, name, brace] if brace.is("{") && kind.is("chain") => {
            let known = table.chain(name.text);
            let wrong = known.map(|known| again(format!("the chain {}", name.text), known.line));
            let chain = Chain {
                line: line.number,
                ..Chain::regular(name.text)
            };
            (Within::Chain(chain), wrong)
        }
        [kind, .., brace] if brace.is("{") && OTHERS.contains(&kind.text) => {
            let head = line.text.trim_end_matches('{').trim_end().to_owned();
            let known = table.others.iter().find(|known| known.head == head);
            let wrong = known.map(|known| again(head.clone(), known.line));
            let other = Other {
                head,
                body: Vec::new(),
                line: line.number,
            };
            (Within::Other(other), wrong)
        }
        [flags, said, ..] if flags.is("flags") && table.flags.is_none() => {
            table.flags = Some(line.text[said.at.start..].to_owned());
            (Within::Table, None)
        }
        _ => (Within::Table, Some(whole(line))),
    }
}

/// Parses a line of a set. Returns a reader if the line starts the elements.
fn in_set(set: &mut Set, words: &[Word<'_>], line: Line<'_>) -> Result<Option<Reader>, Problem> {
    let Some((keyword, rest)) = words.split_first() else {
        return Ok(None);
    };
    let again = || twice(&format!("`{}`", keyword.text), set.line, line);
    let value = |value: &str, wanted: &'static str| {
        let value = value.to_owned();
        let wrong = Wrong::Value { value, wanted };
        Problem::new(wrong, line.start..line.end())
    };
    match (keyword.text, rest) {
        ("elements", [equals, brace, entries @ ..]) if equals.is("=") && brace.is("{") => {
            if !set.elements.is_empty() {
                return Err(again());
            }
            let mut reader = Reader::default();
            reader.line(entries, line)?;
            return Ok(Some(reader));
        }
        ("type" | "typeof", [_, ..]) if set.holds.is_empty() => {
            line.text.clone_into(&mut set.holds);
        }
        ("flags", [_, ..]) if set.flags.is_empty() && !rest.iter().any(|word| word.quoted) => {
            let flags = rest.iter().filter(|word| !word.is(","));
            set.flags = flags.map(|word| word.text.to_owned()).collect();
        }
        ("timeout", [said]) if set.timeout.is_none() => {
            let seconds = seconds(said.text);
            set.timeout = Some(seconds.ok_or_else(|| value(said.text, "a duration"))?);
        }
        ("size", [said]) if set.size.is_none() => {
            let size = said.text.parse().ok();
            set.size = Some(size.ok_or_else(|| value(said.text, "a number"))?);
        }
        ("comment", [said]) if said.quoted && set.comment.is_none() => {
            set.comment = Some(said.text.to_owned());
        }
        ("type" | "typeof" | "flags" | "timeout" | "size" | "comment", [_, ..]) => {
            return Err(again());
        }
        (property, _) if PROPERTIES.contains(&property) => {
            set.properties.push(line.text.to_owned());
        }
        _ => return Err(whole(line)),
    }
    Ok(None)
}

/// Parses a duration as `nft` prints it, `1d1h1m1s` or a number of seconds. Parts below 1 s are
/// dropped.
fn seconds(text: &str) -> Option<u64> {
    if let Ok(seconds) = text.parse() {
        return Some(seconds);
    }
    let mut rest = text;
    let mut all = 0_u64;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit())?;
        let number: u64 = rest[..digits].parse().ok()?;
        let unit = &rest[digits..];
        let length = unit
            .find(|c: char| c.is_ascii_digit())
            .unwrap_or(unit.len());
        let factor = match &unit[..length] {
            "w" => 604_800,
            "d" => 86_400,
            "h" => 3_600,
            "m" => 60,
            "s" => 1,
            "ms" => 0,
            _ => return None,
        };
        all = all.checked_add(number.checked_mul(factor)?)?;
        rest = &unit[length..];
    }
    Some(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_seconds() {
        assert_eq!(seconds("3h"), Some(10_800));
        assert_eq!(seconds("1d1h1m1s"), Some(90_061));
        assert_eq!(seconds("10800s"), Some(10_800));
        assert_eq!(seconds("10800"), Some(10_800));
        assert_eq!(seconds("3i"), None);
        assert_eq!(seconds("h"), None);
    }
}
