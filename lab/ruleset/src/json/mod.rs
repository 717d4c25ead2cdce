//! Converts the JSON output of `ip -j` and `nft -j` to the text that the programs print without
//! `-j`. Pure functions from text to text.
//!
//! Both programs print the members of their JSON in the order of the words of their text, by one
//! call for both (iproute2 6.1, `lib/json_print.c`, `PRINT_ANY`). Members that are not known become
//! words that no text contains, so that the parsers of the text report them.

mod link;
mod nft;
mod route;
mod rule;
pub(crate) mod value;
mod xdp;

use crate::text::json;
use crate::text::problem::Problem;
use crate::tool::Format;

use value::Value;

/// Text that a program prints for its JSON.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Converted {
    /// Text in the format of the program.
    pub text: String,
    /// Parts of the JSON that have no text, with their positions in `text`.
    pub problems: Vec<Problem>,
}

/// Converts a text to the text format that [`Format`] stands for. `None` if the text is no JSON, or
/// if the JSON of the format is read without a conversion.
///
/// # Errors
///
/// Returns the position of invalid JSON.
#[must_use]
pub fn convert(format: Format, text: &str) -> Option<Result<Converted, Problem>> {
    let converter: fn(&Value) -> Converted = match format {
        Format::Links | Format::LinkDetails => |links| lines_of(links, link::convert),
        Format::Routes(_) => |routes| lines_of(routes, route::convert),
        Format::RoutingRules(_) => |rules| lines_of(rules, rule::convert),
        Format::Nft => |document| nft::convert(document.get("nftables").map_or(&[], Value::items)),
        _ => return None,
    };
    let first = if format == Format::Nft { '{' } else { '[' };
    if !text.trim_ascii_start().starts_with(first) {
        return None;
    }
    Some(json::parse_value::<Value>(text).map(|parsed| converter(&parsed)))
}

/// Converts each object to lines. `ip` prints empty objects for interfaces that it does not show.
fn lines_of(objects: &Value, convert: fn(&Value) -> String) -> Converted {
    let shown = objects
        .items()
        .iter()
        .filter(|object| !object.members().is_empty());
    Converted {
        text: shown.map(convert).collect(),
        problems: Vec::new(),
    }
}

/// Appends a word to a line.
fn push(line: &mut String, word: impl AsRef<str>) {
    if !line.is_empty() && !line.ends_with([' ', '\n', '\t']) {
        line.push(' ');
    }
    line.push_str(word.as_ref());
}

/// Appends a name with its value: a word for a flag that is set, nothing for a flag that is not set.
fn push_member(line: &mut String, name: &str, value: &Value) {
    match value {
        Value::Null | Value::Flag(true) => push(line, name),
        Value::Flag(false) => {}
        value => push(line, format!("{name} {value}")),
    }
}

/// Returns the name in the text for a name in the JSON.
fn renamed<'n>(names: &[(&str, &'n str)], name: &'n str) -> &'n str {
    let found = names.iter().find(|(json, _)| *json == name);
    found.map_or(name, |(_, text)| text)
}

#[cfg(test)]
mod tests;
