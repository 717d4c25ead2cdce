//! Converts statements of rules: matches, verdicts, and everything that changes or counts packets.

use std::fmt::Write as _;

use super::super::value::Value;
use super::Unknown;
use super::expression::{self, Kind, convert as convert_expression};
use super::member::{quoted, required};
use super::nat;
use super::stateful;

/// Converts a statement.
pub(super) fn convert(statement: &Value) -> Result<String, Unknown> {
    match statement {
        // For statements without JSON, `nft` prints the text.
        Value::Text(text) => Ok(text.clone()),
        statement => match statement.only_member() {
            Some((name, inner)) => convert_member(name, inner),
            None => Err(Unknown::new("{}")),
        },
    }
}

/// Converts the member of a statement.
fn convert_member(name: &str, inner: &Value) -> Result<String, Unknown> {
    if inner.get("map").is_none()
        && let Some(converted) = stateful::convert(name, inner)
    {
        return converted;
    }
    Ok(match (name, inner) {
        ("match", _) => convert_match(inner)?,
        ("mangle", _) => mangle(inner)?,
        ("vmap", _) => expression::map(inner, "vmap", &Kind::Plain)?,
        ("counter" | "quota" | "limit" | "synproxy", Value::Text(object)) => {
            format!("{name} name {}", quoted(object)?)
        }
        ("counter" | "quota" | "limit" | "synproxy", Value::Object(_))
            if inner.get("map").is_some() =>
        {
            format!("{name} name {}", convert_expression(inner, &Kind::Plain)?)
        }
        ("log" | "masquerade" | "redirect" | "reject" | "synproxy", Value::Null) => name.to_owned(),
        ("snat" | "dnat" | "masquerade" | "redirect" | "tproxy", _) => nat::convert(name, inner)?,
        ("dup" | "fwd", _) => nat::convert_copy(name, inner)?,
        ("reject", _) => reject(inner)?,
        ("log", _) => log(inner)?,
        ("set" | "map", Value::Object(_)) if inner.get("op").is_some() => update(name, inner)?,
        ("meter", _) => meter(inner)?,
        ("ct helper" | "ct timeout" | "ct expectation", Value::Text(object)) => {
            format!("{name} set {}", quoted(object)?)
        }
        ("secmark", Value::Text(object)) => format!("meta secmark set {}", quoted(object)?),
        ("queue", _) => queue(inner)?,
        ("flow", _) => {
            let part = |member| required(inner, member, name);
            format!("flow {} {}", part("op")?, part("flowtable")?)
        }
        ("synproxy", _) => format!("synproxy {}", synproxy(inner).join(" ")),
        ("xt", _) => xtables(inner)?,
        ("accept" | "drop" | "continue" | "break" | "return" | "notrack" | "jump" | "goto", _) => {
            let verdict = Value::Object(vec![(name.to_owned(), inner.clone())]);
            convert_expression(&verdict, &Kind::Plain)?
        }
        _ => return Err(Unknown::new(name)),
    })
}

/// Expressions whose values are flags, so that `==` is printed.
fn has_flags(left: &Value) -> bool {
    match left.only_member() {
        Some(("payload", inner)) => inner.text("field") == Some("flags"),
        Some(("ct", inner)) => {
            matches!(
                inner.text("key"),
                Some("state" | "status" | "label" | "event")
            )
        }
        _ => false,
    }
}

fn convert_match(inner: &Value) -> Result<String, Unknown> {
    let (Some(left), Some(right)) = (inner.get("left"), inner.get("right")) else {
        return Err(Unknown::new("match"));
    };
    let operator = required(inner, "op", "match")?;
    let kind = Kind::of_expression(left);
    let right_text = convert_expression(right, &kind)?;
    if let Some(("&", operands)) = left.only_member()
        && let [masked, mask] = operands.items()
        && has_flags(masked)
        && !matches!(right, Value::Number(_))
    {
        let not = if operator == "!=" { "!= " } else { "" };
        let masked = convert_expression(masked, &kind)?;
        let mask = convert_expression(mask, &kind)?;
        return Ok(format!("{masked} {not}{right_text} / {mask}"));
    }
    let left_text = convert_expression(left, &kind)?;
    // nftables v1.0.6, `src/expression.c`, `must_print_eq_op`.
    let is_set = right_text.starts_with(['{', '@']);
    let shows_equality = expression::is_operation(left) || (has_flags(left) && !is_set);
    Ok(match operator.as_str() {
        "in" => format!("{left_text} {right_text}"),
        "==" if !shows_equality => format!("{left_text} {right_text}"),
        operator => format!("{left_text} {operator} {right_text}"),
    })
}

fn mangle(inner: &Value) -> Result<String, Unknown> {
    let (Some(key), Some(value)) = (inner.get("key"), inner.get("value")) else {
        return Err(Unknown::new("mangle"));
    };
    let kind = Kind::of_expression(key);
    let target = convert_expression(key, &kind)?;
    Ok(format!(
        "{target} set {}",
        convert_expression(value, &kind)?
    ))
}

/// Converts a rejection. The default is not printed (nftables v1.0.6, `src/statement.c`,
/// `reject_stmt_print`).
fn reject(inner: &Value) -> Result<String, Unknown> {
    let kind = required(inner, "type", "reject")?;
    let code = inner.get("expr").map(Value::to_string);
    let name = code.as_deref().map(|code| reject_code(&kind, code));
    match name {
        None => Ok(format!("reject with {kind}")),
        Some("port-unreachable") => Ok("reject".to_owned()),
        Some(name) => Ok(format!("reject with {kind} {name}")),
    }
}

/// Codes of rejections by type, with the numbers that `nft -n` prints (nftables v1.0.6,
/// `src/datatype.c`, `icmp_code_tbl`, `icmpv6_code_tbl`, `icmpx_code_tbl`).
const REJECT_CODES: [(&str, &[(&str, &str)]); 3] = [
    (
        "icmp",
        &[
            ("0", "net-unreachable"),
            ("1", "host-unreachable"),
            ("2", "prot-unreachable"),
            ("3", "port-unreachable"),
            ("9", "net-prohibited"),
            ("10", "host-prohibited"),
            ("13", "admin-prohibited"),
        ],
    ),
    (
        "icmpv6",
        &[
            ("0", "no-route"),
            ("1", "admin-prohibited"),
            ("3", "addr-unreachable"),
            ("4", "port-unreachable"),
            ("5", "policy-fail"),
            ("6", "reject-route"),
        ],
    ),
    (
        "icmpx",
        &[
            ("0", "no-route"),
            ("1", "port-unreachable"),
            ("2", "host-unreachable"),
            ("3", "admin-prohibited"),
        ],
    ),
];

/// Returns the name of a code of a rejection. Other codes stay numbers.
fn reject_code<'c>(kind: &str, code: &'c str) -> &'c str {
    let codes = REJECT_CODES.iter().find(|(known, _)| *known == kind);
    let mut codes = codes.into_iter().flat_map(|(_, codes)| codes.iter());
    codes
        .find(|(number, _)| *number == code)
        .map_or(code, |(_, name)| name)
}

fn log(inner: &Value) -> Result<String, Unknown> {
    let mut text = "log".to_owned();
    for (name, value) in inner.members() {
        match (name.as_str(), value) {
            ("prefix", Value::Text(prefix)) => {
                let _ = write!(text, " prefix {}", quoted(prefix)?);
            }
            ("group" | "snaplen" | "queue-threshold" | "level", value) => {
                let _ = write!(text, " {name} {value}");
            }
            ("flags", Value::List(flags)) => text.push_str(&log_flags(flags)),
            ("flags", flag) => text.push_str(&log_flags(std::slice::from_ref(flag))),
            _ => return Err(Unknown::new("log")),
        }
    }
    Ok(text)
}

/// Returns the flags of a log: `flags tcp sequence,options flags skuid`.
fn log_flags(flags: &[Value]) -> String {
    let mut text = String::new();
    for flag in flags.iter().map(Value::to_string) {
        match flag.strip_prefix("tcp ") {
            Some(second) if text.ends_with("tcp sequence") => {
                let _ = write!(text, ",{second}");
            }
            _ => {
                let _ = write!(text, " flags {flag}");
            }
        }
    }
    text
}

/// Converts a statement that adds or deletes an element.
fn update(name: &str, inner: &Value) -> Result<String, Unknown> {
    let part = |member| required(inner, member, name);
    let element = inner.get("elem").ok_or_else(|| Unknown::new(name))?;
    let mut entry = convert_expression(element, &Kind::Plain)?;
    for statement in inner.get("stmt").map_or(&[][..], Value::items) {
        let _ = write!(entry, " {}", convert(statement)?);
    }
    if let Some(data) = inner.get("data") {
        let _ = write!(entry, " : {}", convert_expression(data, &Kind::Plain)?);
    }
    Ok(format!("{} {} {{ {entry} }}", part("op")?, part(name)?))
}

/// Returns the set to which a statement adds elements. `None` for other statements.
pub(super) fn changed_set(statement: &Value) -> Option<&str> {
    let set = match (statement, statement.only_member()) {
        (Value::Text(text), _) => {
            let (operation, rest) = text.split_once(' ')?;
            let is_update = matches!(operation, "add" | "update");
            rest.split(' ').next().filter(|_| is_update)?
        }
        (_, Some((name @ ("set" | "map"), inner))) => inner.text(name)?,
        _ => return None,
    };
    set.strip_prefix('@')
}

fn meter(inner: &Value) -> Result<String, Unknown> {
    let (Some(key), Some(statement)) = (inner.get("key"), inner.get("stmt")) else {
        return Err(Unknown::new("meter"));
    };
    let name = required(inner, "name", "meter")?;
    let size = inner
        .get("size")
        .map_or_else(String::new, |size| format!("size {size} "));
    let entry = convert_expression(key, &Kind::Plain)?;
    Ok(format!(
        "meter {name} {size}{{ {entry} {} }}",
        convert(statement)?
    ))
}

fn queue(inner: &Value) -> Result<String, Unknown> {
    let mut text = "queue".to_owned();
    match inner.get("flags") {
        Some(flags) => {
            let _ = write!(text, " flags {}", convert_expression(flags, &Kind::Plain)?);
        }
        None if inner.members().is_empty() && *inner != Value::Null => {
            return Err(Unknown::new("queue"));
        }
        None => {}
    }
    if let Some(number) = inner.get("num") {
        let _ = write!(text, " to {}", convert_expression(number, &Kind::Plain)?);
    }
    Ok(text)
}

/// Returns the properties of a SYN proxy.
pub(super) fn synproxy(inner: &Value) -> Vec<String> {
    let mut parts = Vec::new();
    for name in ["mss", "wscale"] {
        parts.extend(inner.get(name).map(|value| format!("{name} {value}")));
    }
    match inner.get("flags") {
        Some(Value::List(flags)) => parts.extend(flags.iter().map(Value::to_string)),
        Some(flag) => parts.push(flag.to_string()),
        None => {}
    }
    parts
}

/// Converts a match or target of iptables, of which the output only shows the name.
fn xtables(inner: &Value) -> Result<String, Unknown> {
    let part = |member| required(inner, member, "xt");
    Ok(format!("xt {} {}", part("type")?, quoted(&part("name")?)?))
}
