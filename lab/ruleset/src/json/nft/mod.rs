//! Converts the output of `nft -j list ruleset` (libnftables-json(5), schema version 1) to the text
//! of `nft list ruleset`. Checked with nftables v1.0.6.

mod expression;
mod member;
mod nat;
mod object;
mod stateful;
mod statement;

use std::fmt::Write as _;

use std::collections::HashSet;

use indexmap::IndexMap;

use super::Converted;
use super::value::Value;
use crate::text::problem::{Problem, ProblemKind};
use object::{Line, line};

/// Part of the JSON without a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Unknown {
    /// Name of the expression, statement or object.
    name: String,
}

impl Unknown {
    fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
        }
    }
}

/// Table under construction.
#[derive(Default)]
struct Table<'v> {
    /// Lines outside of objects.
    lines: Vec<Line>,
    /// Sets and other objects, with their kinds.
    objects: Vec<(&'v str, &'v Value)>,
    /// Lines of chains.
    chains: IndexMap<&'v str, Vec<Line>>,
    /// Sets that rules change.
    changed_sets: HashSet<&'v str>,
}

/// Kinds of objects with lines of their own.
const OBJECTS: [&str; 11] = [
    "set",
    "map",
    "counter",
    "quota",
    "limit",
    "secmark",
    "synproxy",
    "flowtable",
    "ct helper",
    "ct timeout",
    "ct expectation",
];

/// Flags of tables.
const TABLE_FLAGS: [&str; 3] = ["dormant", "owner", "persist"];

/// Converts the objects of a document.
pub(super) fn convert(objects: &[Value]) -> Converted {
    let mut tables: IndexMap<String, Table<'_>> = IndexMap::new();
    let mut others = Vec::new();
    for object in objects {
        match object.only_member() {
            Some(("metainfo", _)) => {}
            Some((kind, inner)) if inner.text("family").is_some() => {
                let member = if kind == "table" { "name" } else { "table" };
                let family = inner.text("family").unwrap_or_default();
                let name = inner.text(member).unwrap_or_default();
                let table = tables.entry(format!("{family} {name}")).or_default();
                add_object(table, kind, inner, object);
            }
            other => {
                let name = other.map_or("nftables", |(name, _)| name);
                others.push(Err((Unknown::new(name), object.to_string())));
            }
        }
    }
    let mut writer = Writer::default();
    writer.push_lines("", others);
    for (name, table) in tables {
        writer.push_table(&name, table);
    }
    writer.converted
}

fn add_object<'v>(table: &mut Table<'v>, kind: &'v str, inner: &'v Value, object: &Value) {
    let name = inner.text("name").unwrap_or_default();
    match kind {
        "table" => table.lines.extend(table_lines(inner)),
        "chain" => {
            let lines = table.chains.entry(name).or_default();
            lines.extend(object::chain_lines(inner));
        }
        "rule" => {
            let chain = inner.text("chain").unwrap_or_default();
            let lines = table.chains.entry(chain).or_default();
            lines.push(line(rule(inner), object));
            let statements = inner.get("expr").map_or(&[][..], Value::items);
            table
                .changed_sets
                .extend(statements.iter().filter_map(statement::changed_set));
        }
        kind if OBJECTS.contains(&kind) => table.objects.push((kind, inner)),
        kind => table
            .lines
            .push(Err((Unknown::new(kind), object.to_string()))),
    }
}

fn table_lines(table: &Value) -> Vec<Line> {
    let mut lines = Vec::new();
    if let Some(comment) = table.text("comment") {
        let comment = member::quoted(comment).map(|comment| format!("comment {comment}"));
        lines.push(line(comment, table));
    }
    let flags = match table.get("flags") {
        Some(Value::List(flags)) => flags.iter().map(Value::to_string).collect(),
        Some(flag) => vec![flag.to_string()],
        None => Vec::new(),
    };
    if !flags.is_empty() {
        let is_known = flags
            .iter()
            .all(|flag| TABLE_FLAGS.contains(&flag.as_str()));
        // nftables v1.0.6 prints the name of the table instead of the flag.
        let converted = if is_known {
            Ok(format!("flags {}", flags.join(",")))
        } else {
            Err(Unknown::new("flags"))
        };
        lines.push(line(converted, table));
    }
    lines
}

fn rule(rule: &Value) -> Result<String, Unknown> {
    let statements = rule.get("expr").map_or(&[][..], Value::items);
    let texts: Result<Vec<String>, Unknown> = statements.iter().map(statement::convert).collect();
    let mut text = texts?.join(" ");
    if let Some(comment) = rule.text("comment") {
        let _ = write!(text, " comment {}", member::quoted(comment)?);
    }
    Ok(text)
}

/// Writer of the text.
#[derive(Default)]
struct Writer {
    converted: Converted,
}

impl Writer {
    fn push_table(&mut self, name: &str, table: Table<'_>) {
        self.push(&format!("table {name} {{\n"));
        self.push_lines("\t", table.lines);
        let objects = table.objects.into_iter().map(|(kind, object)| {
            let name = object.text("name").unwrap_or_default();
            let lines = match kind {
                "set" | "map" => object::set_lines(object, table.changed_sets.contains(name)),
                kind => object::object_lines(kind, object),
            };
            (format!("{kind} {name}"), lines)
        });
        let chains = table.chains.into_iter();
        let chains = chains.map(|(chain, lines)| (format!("chain {chain}"), lines));
        for (index, (head, mut lines)) in objects.chain(chains).enumerate() {
            // An object whose type is not known cannot be loaded.
            if !head.starts_with("chain ") && matches!(lines.first(), Some(Err(_))) {
                lines.truncate(1);
                self.push_lines("\t", lines);
                continue;
            }
            let blank = if index > 0 { "\n" } else { "" };
            self.push(&format!("{blank}\t{head} {{\n"));
            self.push_lines("\t\t", lines);
            self.push("\t}\n");
        }
        self.push("}\n");
    }

    fn push(&mut self, text: &str) {
        self.converted.text.push_str(text);
    }

    /// Appends lines. Parts without a text become comments, which the parser skips.
    fn push_lines(&mut self, indent: &str, lines: Vec<Line>) {
        for line in lines {
            self.push(indent);
            match line {
                Ok(text) => self.push(&text),
                Err((Unknown { name }, json)) => {
                    let start = self.converted.text.len();
                    self.push(&format!("# {json}"));
                    let range = start..self.converted.text.len();
                    let problem = Problem::new(ProblemKind::UnknownJson(name), range);
                    self.converted.problems.push(problem);
                }
            }
            self.push("\n");
        }
    }
}

#[cfg(test)]
mod tests;
