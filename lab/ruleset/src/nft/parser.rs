//! Parses a ruleset line by line.

use super::chain::{self, split};
use super::elements::ElementParser;
use super::first_lines::{FirstLines, duplicate_error};
use super::tokens::Token;
use super::xtables::OLD_MARK;
use crate::nft::{Chain, Ruleset, Set, Table, TableObject};
use crate::text::problem::{Problem, ProblemKind};
use crate::text::{Line, Text, lines};
use crate::tool::Format;

/// Address families of tables.
const FAMILIES: [&str; 6] = ["ip", "ip6", "inet", "arp", "bridge", "netdev"];

/// First words of table objects other than sets, maps and chains.
const OBJECT_KEYWORDS: [&str; 7] = [
    "flowtable",
    "counter",
    "quota",
    "limit",
    "secmark",
    "synproxy",
    "ct",
];

/// Properties of a set that are kept as source text.
const VERBATIM_PROPERTIES: [&str; 4] = ["policy", "gc-interval", "auto-merge", "counter"];

/// Parses the output of `nft list ruleset`. Lines that cannot be parsed are skipped and added to
/// `problems`.
#[must_use]
pub fn parse_ruleset(text: &Text, problems: &mut Vec<Problem>) -> Ruleset {
    let mut reader = Parser::default();
    for line in lines(text).map(without_handle) {
        // `nft` prints a comment before the tables of iptables-nft. Older versions print extensions
        // of iptables like comments, also at the start of a rule.
        let is_comment = line.text.starts_with('#') && !line.text.starts_with(OLD_MARK);
        if !line.text.is_empty()
            && !is_comment
            && let Err(problem) = reader.parse_line(line)
        {
            problems.push(problem);
        }
    }
    if let Some(table) = &reader.table {
        let name = format!("{} {}", table.family, table.name);
        let end = text.len();
        problems.push(Problem::new(ProblemKind::UnclosedTable(name), end..end));
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
enum Context {
    /// Table, outside of any of its objects.
    #[default]
    Table,
    Set(Set),
    Elements(Set, ElementParser),
    Chain(Chain),
    Other(TableObject),
}

#[derive(Debug, Default)]
struct Parser {
    ruleset: Ruleset,
    table: Option<Table>,
    context: Context,
    /// Lines of the properties of the table.
    table_lines: FirstLines,
    /// Lines of the properties of the set or chain that contains the next line.
    object_lines: FirstLines,
}

impl Parser {
    fn parse_line(&mut self, line: Line<'_>) -> Result<(), Problem> {
        let words = split(line)?;
        let Some(table) = &mut self.table else {
            self.table = Some(parse_table_header(&self.ruleset, &words, line)?);
            self.context = Context::Table;
            self.table_lines = FirstLines::default();
            return Ok(());
        };
        let closes = matches!(words.as_slice(), [word] if word.is_unquoted("}"));
        match (std::mem::take(&mut self.context), closes) {
            (Context::Table, true) => self.ruleset.tables.extend(self.table.take()),
            (Context::Table, false) => {
                let (within, wrong) = parse_table_line(table, &mut self.table_lines, &words, line);
                self.context = within;
                self.object_lines = FirstLines::default();
                return wrong.map_or(Ok(()), Err);
            }
            (Context::Set(set), true) => table.sets.push(set),
            (Context::Set(mut set), false) => {
                let read = parse_set_line(&mut set, &mut self.object_lines, &words, line);
                let (within, wrong) = match read {
                    Ok(Some(reader)) => (context_after_elements(set, reader), None),
                    Ok(None) => (Context::Set(set), None),
                    Err(wrong) => (Context::Set(set), Some(wrong)),
                };
                self.context = within;
                return wrong.map_or(Ok(()), Err);
            }
            (Context::Elements(set, mut reader), _) => {
                let read = reader.parse_line(&words, line);
                self.context = context_after_elements(set, reader);
                read?;
            }
            (Context::Chain(chain), true) => table.chains.push(chain),
            (Context::Chain(mut chain), false) => {
                let read =
                    chain::parse_line(&mut chain, &mut self.object_lines, line, &table.family);
                self.context = Context::Chain(chain);
                read?;
            }
            (Context::Other(other), true) => table.other_objects.push(other),
            (Context::Other(mut other), false) => {
                let balanced = chain::is_balanced(&words);
                other.body.push(line.text.to_owned());
                self.context = Context::Other(other);
                if !balanced {
                    return Err(line_problem(line));
                }
            }
        }
        Ok(())
    }
}

fn line_problem(line: Line<'_>) -> Problem {
    Problem::new(
        ProblemKind::UnknownLine(Format::Nft),
        line.start..line.end(),
    )
}

/// Returns the parser state after a line of elements: the set again after the closing brace.
fn context_after_elements(mut set: Set, mut reader: ElementParser) -> Context {
    if reader.is_complete {
        set.elements = std::mem::take(&mut reader.elements);
        Context::Set(set)
    } else {
        Context::Elements(set, reader)
    }
}

/// Parses the first line of a table: `table ip kube-proxy {`.
fn parse_table_header(
    ruleset: &Ruleset,
    words: &[Token<'_>],
    line: Line<'_>,
) -> Result<Table, Problem> {
    let [keyword, family, name, brace] = words else {
        return Err(line_problem(line));
    };
    if !keyword.is_unquoted("table")
        || name.is_quoted
        || !brace.is_unquoted("{")
        || !FAMILIES.contains(&family.text)
    {
        return Err(line_problem(line));
    }
    let mut existing = ruleset.tables.iter();
    if let Some(existing) =
        existing.find(|known| known.family == family.text && known.name == name.text)
    {
        let name = format!("{} {}", existing.family, existing.name);
        let line_of_first = existing.line;
        let wrong = ProblemKind::DuplicateTable {
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
fn parse_table_line(
    table: &mut Table,
    lines: &mut FirstLines,
    words: &[Token<'_>],
    line: Line<'_>,
) -> (Context, Option<Problem>) {
    let duplicate = |item: String, first: u32| duplicate_error(&item, first, line);
    let mut unique = |kind: &str, name: &str| {
        let item = format!("{kind} `{name}`");
        lines.insert(&item, &item, line).err()
    };
    match words {
        [keyword, comment] if keyword.is_unquoted("comment") && comment.is_quoted => {
            let unique = lines.insert("comment", "the comment of this table", line);
            table.comment = Some(comment.text.to_owned());
            (Context::Table, unique.err())
        }
        [_, name, brace] if name.is_quoted && brace.is_unquoted("{") => {
            (Context::Table, Some(line_problem(line)))
        }
        [kind, name, brace]
            if brace.is_unquoted("{") && (kind.is_unquoted("set") || kind.is_unquoted("map")) =>
        {
            let wrong = unique("set", name.text);
            let set = Set {
                is_map: kind.is_unquoted("map"),
                name: name.text.to_owned(),
                line: line.number,
                ..Set::default()
            };
            (Context::Set(set), wrong)
        }
        [kind, name, brace] if brace.is_unquoted("{") && kind.is_unquoted("chain") => {
            let wrong = unique("chain", name.text);
            let chain = Chain {
                line: line.number,
                ..Chain::regular(name.text)
            };
            (Context::Chain(chain), wrong)
        }
        [kind, .., brace] if brace.is_unquoted("{") && OBJECT_KEYWORDS.contains(&kind.text) => {
            let head = line.text.trim_end_matches('{').trim_end().to_owned();
            let known = table.other_objects.iter().find(|known| known.head == head);
            let wrong = known.map(|known| duplicate(format!("`{head}`"), known.line));
            let other = TableObject {
                head,
                body: Vec::new(),
                line: line.number,
            };
            (Context::Other(other), wrong)
        }
        [flags, flag, ..] if flags.is_unquoted("flags") && table.flags.is_none() => {
            table.flags = Some(line.text[flag.range.start..].to_owned());
            (Context::Table, None)
        }
        _ => (Context::Table, Some(line_problem(line))),
    }
}

/// Parses a line of a set. Returns a reader if the line starts the elements.
fn parse_set_line(
    set: &mut Set,
    lines: &mut FirstLines,
    words: &[Token<'_>],
    line: Line<'_>,
) -> Result<Option<ElementParser>, Problem> {
    let Some((keyword, rest)) = words.split_first() else {
        return Ok(None);
    };
    let value = line.text[keyword.range.end..].trim();
    let invalid_value = |expected: &'static str| {
        let value = value.to_owned();
        let wrong = ProblemKind::InvalidValue { value, expected };
        Problem::new(wrong, line.start..line.end())
    };
    let property = match keyword.text {
        "typeof" => "type",
        text => text,
    };
    let is_known = matches!(
        property,
        "elements" | "type" | "flags" | "timeout" | "size" | "comment"
    );
    if keyword.is_quoted
        || (is_known && rest.is_empty())
        || !(is_known || VERBATIM_PROPERTIES.contains(&property))
    {
        return Err(line_problem(line));
    }
    lines.insert(property, &format!("`{}`", keyword.text), line)?;
    match property {
        "elements" => {
            let [equals, brace, entries @ ..] = rest else {
                return Err(line_problem(line));
            };
            if !equals.is_unquoted("=") || !brace.is_unquoted("{") {
                return Err(line_problem(line));
            }
            let mut reader = ElementParser::default();
            reader.parse_line(entries, line)?;
            return Ok(Some(reader));
        }
        "type" => line.text.clone_into(&mut set.type_line),
        "flags" => {
            if rest.iter().any(|word| word.is_quoted) {
                return Err(invalid_value("a list of flags"));
            }
            let flags = rest.iter().filter(|word| !word.is_unquoted(","));
            set.flags = flags.map(|word| word.text.to_owned()).collect();
        }
        "timeout" => {
            let seconds = parse_duration(value);
            set.timeout = Some(seconds.ok_or_else(|| invalid_value("a duration"))?);
        }
        "size" => {
            // Newer versions of nft also print the number of elements: `size 65535 # count 1`
            // (nftables `src/rule.c`, `set_print_declaration`).
            let size = value.split_once("# count ").map_or(value, |(size, _)| size);
            let size = size.trim_end().parse().ok();
            set.size = Some(size.ok_or_else(|| invalid_value("a number"))?);
        }
        "comment" => match rest {
            [text] if text.is_quoted => set.comment = Some(text.text.to_owned()),
            _ => return Err(invalid_value("a quoted text")),
        },
        _ => set.properties.push(line.text.to_owned()),
    }
    Ok(None)
}

/// Parses a duration as `nft` prints it, `1d1h1m1s` or a number of seconds. Parts below 1 s are
/// dropped.
fn parse_duration(text: &str) -> Option<u64> {
    if let Ok(seconds) = text.parse() {
        return Some(seconds);
    }
    let mut rest = text;
    let mut total = 0_u64;
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
        total = total.checked_add(number.checked_mul(factor)?)?;
        rest = &unit[length..];
    }
    Some(total)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the errors of a table with one object, each with its line.
    fn problems_in_object(object: &str, lines: &str) -> Vec<(usize, String)> {
        let text =
            format!("table ip t {{\n\tcomment \"first\"\n\t{object} o {{\n{lines}\t}}\n}}\n");
        let problems = crate::nft::parse(&text).expect_err("an invalid text");
        let problems = problems.iter().map(|problem| {
            let line = text[..problem.range.start].matches('\n').count() + 1;
            (line, problem.kind.to_string())
        });
        problems.collect()
    }

    #[test]
    fn duplicate_property_names_line_of_first() {
        for (object, first, second, item) in [
            ("set", "timeout 3h", "timeout 4h", "`timeout`"),
            ("set", "type ipv4_addr", "typeof ip saddr", "`typeof`"),
            ("set", "size 2", "size 2", "`size`"),
            ("set", "policy memory", "policy memory", "`policy`"),
            (
                "chain",
                "comment \"a\"",
                "comment \"b\"",
                "the comment of this chain",
            ),
        ] {
            let lines = format!("\t\tcounter\n\t\t{first}\n\t\t{second}\n");
            let expected = format!("{item} is listed twice; first at line 5");
            assert_eq!(problems_in_object(object, &lines), [(6, expected)]);
        }
    }

    #[test]
    fn invalid_property_of_set_names_value() {
        for (property, message) in [
            ("timeout 3h 5", "`3h 5` is not a duration"),
            ("size many", "`many` is not a number"),
            ("size 1 2", "`1 2` is not a number"),
            (
                "flags \"interval\"",
                "`\"interval\"` is not a list of flags",
            ),
            ("comment words", "`words` is not a quoted text"),
        ] {
            let lines = format!("\t\t{property}\n");
            assert_eq!(problems_in_object("set", &lines), [(4, message.to_owned())]);
        }
    }

    #[test]
    fn size_with_count_of_elements_is_parsed() {
        let text = "table ip t {\n\tset s {\n\t\tsize 65535\t# count 1\n\t}\n}\n";
        let ruleset = crate::nft::parse(text).unwrap();
        assert_eq!(ruleset.tables[0].sets[0].size, Some(65_535));
    }

    #[test]
    fn parse_duration_returns_seconds() {
        assert_eq!(parse_duration("3h"), Some(10_800));
        assert_eq!(parse_duration("1d1h1m1s"), Some(90_061));
        assert_eq!(parse_duration("10800s"), Some(10_800));
        assert_eq!(parse_duration("10800"), Some(10_800));
        assert_eq!(parse_duration("3i"), None);
        assert_eq!(parse_duration("h"), None);
    }
}
