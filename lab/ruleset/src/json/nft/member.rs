//! Reads members of objects, and formats their values.

use std::fmt::Write as _;

use super::super::value::Value;
use super::Unknown;

/// Returns a member as text. An error names the expression.
pub(super) fn required(inner: &Value, member: &str, name: &str) -> Result<String, Unknown> {
    match inner.get(member) {
        Some(value @ (Value::Text(_) | Value::Number(_))) => Ok(value.to_string()),
        _ => Err(Unknown::new(name)),
    }
}

/// Returns the text of a member with a space after it. Empty without the member.
pub(super) fn followed_by_space(inner: &Value, member: &str) -> String {
    inner
        .text(member)
        .map_or_else(String::new, |text| format!("{text} "))
}

/// Whether a member is `true`.
pub(super) fn is_on(inner: &Value, member: &str) -> bool {
    inner.get(member) == Some(&Value::Flag(true))
}

/// Returns a text in quotes, which `nft` cannot escape.
pub(super) fn quoted(text: &str) -> Result<String, Unknown> {
    if text.contains('"') {
        return Err(Unknown::new("\""));
    }
    Ok(format!("\"{text}\""))
}

/// Returns a duration as `nft` prints it: `1d2h3m4s`.
pub(super) fn duration(seconds: u64) -> String {
    let units = [
        ("d", seconds / 86_400),
        ("h", seconds / 3_600 % 24),
        ("m", seconds / 60 % 60),
        ("s", seconds % 60),
    ];
    let mut text = String::new();
    for (unit, count) in units.iter().filter(|(_, count)| *count > 0) {
        let _ = write!(text, "{count}{unit}");
    }
    if text.is_empty() {
        "0s".to_owned()
    } else {
        text
    }
}

/// Returns a number of seconds as a duration.
pub(super) fn seconds(value: &Value, name: &str) -> Result<String, Unknown> {
    let seconds = value.to_string().parse().map_err(|_| Unknown::new(name))?;
    Ok(duration(seconds))
}
