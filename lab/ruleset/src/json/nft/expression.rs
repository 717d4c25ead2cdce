//! Converts expressions: the operands of matches and statements, and the elements of sets.

use std::fmt::Write as _;

use super::super::value::Value;
use super::Unknown;
use super::member::{duration, followed_by_space, quoted, required};
use super::stateful;

/// Form in which values of a type are printed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Kind {
    /// Text or number of the JSON.
    Plain,
    /// Name in quotes: an interface, a helper or a time.
    Quoted,
    /// Number of eight hexadecimal digits.
    Mark,
    /// Hexadecimal number.
    Hexadecimal,
    /// Number of seconds.
    Time,
    /// Values of these kinds, with dots between them.
    List(Vec<Self>),
}

/// Keys of `meta` with values in quotes (nftables v1.0.6, `src/meta.c`, `meta_templates`).
const QUOTED_META: [&str; 13] = [
    "iif", "oif", "iifname", "oifname", "iifgroup", "oifgroup", "ibrname", "obrname", "iifkind",
    "oifkind", "day", "hour", "time",
];

/// Keys of `meta` that are printed without `meta` (nftables v1.0.6, `src/meta.c`,
/// `meta_key_is_unqualified`).
const UNQUALIFIED_META: [&str; 6] = ["iif", "oif", "iifname", "oifname", "iifgroup", "oifgroup"];

/// Types of named sets whose values are in quotes.
const QUOTED_TYPES: [&str; 13] = [
    "ifname",
    "iface_index",
    "devgroup",
    "day",
    "hour",
    "time",
    "counter",
    "quota",
    "limit",
    "synproxy",
    "ct helper",
    "ct timeout",
    "ct expectation",
];

/// Operators with their precedence, the strongest first (nftables v1.0.6, `src/expression.c`,
/// `expr_binop_precedence`).
const OPERATORS: [(&str, u8); 5] = [("<<", 1), (">>", 1), ("&", 2), ("^", 3), ("|", 4)];

impl Kind {
    /// Returns the kind of the values that an expression is compared with.
    pub(super) fn of_expression(expression: &Value) -> Self {
        let Some((name, inner)) = expression.only_member() else {
            return Self::Plain;
        };
        let key = inner.text("key").unwrap_or_default();
        match name {
            "concat" => Self::List(inner.items().iter().map(Self::of_expression).collect()),
            "meta" | "ct" | "socket" if key == "mark" => Self::Mark,
            "meta" if QUOTED_META.contains(&key) => Self::Quoted,
            "ct" if key == "expiration" => Self::Time,
            "ct" if key == "helper" => Self::Quoted,
            "fib" if matches!(inner.text("result"), Some("oif" | "oifname")) => Self::Quoted,
            "osf" => Self::Quoted,
            "payload" if inner.get("base").is_some() => Self::Hexadecimal,
            _ if precedence(name).is_some() => inner
                .items()
                .first()
                .map_or(Self::Plain, Self::of_expression),
            _ => Self::Plain,
        }
    }

    /// Returns the kind of the values of a type, or of several types with dots between them.
    pub(super) fn of_type(name: &str) -> Self {
        let mut kinds = name.split(" . ").map(|part| match part {
            "mark" => Self::Mark,
            quoted if QUOTED_TYPES.contains(&quoted) => Self::Quoted,
            _ => Self::Plain,
        });
        match (name.contains(" . "), kinds.next()) {
            (false, Some(only)) => only,
            (_, first) => Self::List(first.into_iter().chain(kinds).collect()),
        }
    }

    fn part(&self, index: usize) -> &Self {
        match self {
            Self::List(kinds) => kinds.get(index).unwrap_or(&Self::Plain),
            single => single,
        }
    }
}

/// Returns the precedence of an operator. `None` for other names.
fn precedence(name: &str) -> Option<u8> {
    let found = OPERATORS.iter().find(|(operator, _)| *operator == name);
    found.map(|(_, precedence)| *precedence)
}

/// Whether an expression is an operation on values.
pub(super) fn is_operation(expression: &Value) -> bool {
    let name = expression.only_member().map(|(name, _)| name);
    name.is_some_and(|name| precedence(name).is_some())
}

/// Returns the text of an expression whose values are of a kind.
pub(super) fn convert(value: &Value, kind: &Kind) -> Result<String, Unknown> {
    match value {
        Value::Text(text) if text.starts_with('@') || text == "*" => Ok(text.clone()),
        Value::Text(text) if *kind == Kind::Quoted => quoted(text),
        Value::Text(text) => Ok(text.clone()),
        Value::Number(text) => Ok(number(text, kind)),
        Value::Flag(is_present) => Ok(if *is_present { "exists" } else { "missing" }.to_owned()),
        Value::List(items) => join(items, kind, ","),
        Value::Null => Err(Unknown::new("null")),
        Value::Object(_) => match value.only_member() {
            Some((name, inner)) => convert_object(name, inner, kind),
            None => Err(Unknown::new("{}")),
        },
    }
}

fn number(text: &str, kind: &Kind) -> String {
    match (kind, text.parse::<u64>()) {
        (Kind::Mark, Ok(mark)) => format!("{mark:#010x}"),
        (Kind::Hexadecimal, Ok(number)) => format!("{number:#x}"),
        (Kind::Time, Ok(seconds)) => duration(seconds),
        _ => text.to_owned(),
    }
}

fn join(items: &[Value], kind: &Kind, separator: &str) -> Result<String, Unknown> {
    let parts: Result<Vec<String>, Unknown> = items
        .iter()
        .enumerate()
        .map(|(index, item)| convert(item, kind.part(index)))
        .collect();
    Ok(parts?.join(separator))
}

fn convert_object(name: &str, inner: &Value, kind: &Kind) -> Result<String, Unknown> {
    let key = inner.text("key").unwrap_or_default();
    Ok(match name {
        "accept" | "drop" | "continue" | "break" | "return" | "notrack" => name.to_owned(),
        "jump" | "goto" => format!("{name} {}", required(inner, "target", name)?),
        "concat" => join(inner.items(), kind, " . ")?,
        "set" => set(inner, kind)?,
        "elem" => element(inner, kind)?,
        "map" => map(inner, "map", kind)?,
        "prefix" => {
            let address = inner.get("addr").ok_or_else(|| Unknown::new(name))?;
            format!(
                "{}/{}",
                convert(address, kind)?,
                required(inner, "len", name)?
            )
        }
        "range" => range(inner, kind)?,
        "meta" if UNQUALIFIED_META.contains(&key) => key.to_owned(),
        "meta" => format!("meta {key}"),
        "ct" => conntrack(inner, key),
        "socket" | "tunnel" => format!("{name} {key}"),
        "rt" => format!("rt {}{key}", followed_by_space(inner, "family")),
        "osf" => {
            let ttl = inner
                .text("ttl")
                .map_or_else(String::new, |ttl| format!("ttl {ttl} "));
            format!("osf {ttl}{key}")
        }
        "ipsec" => ipsec(inner, key)?,
        "payload" => payload(inner)?,
        "exthdr" | "tcp option" | "ip option" | "sctp chunk" | "dccp option" => {
            header(name, inner)?
        }
        "fib" => fib(inner)?,
        "numgen" => {
            let mode = required(inner, "mode", name)?;
            format!("numgen {mode}{}", modulus(inner)?)
        }
        "symhash" => format!("symhash{}", modulus(inner)?),
        "jhash" => {
            let hashed = inner.get("expr").ok_or_else(|| Unknown::new(name))?;
            format!(
                "jhash {}{}",
                convert(hashed, &Kind::Plain)?,
                modulus(inner)?
            )
        }
        _ => match precedence(name) {
            Some(precedence) => operation(name, precedence, inner.items(), kind)?,
            None => return Err(Unknown::new(name)),
        },
    })
}

fn conntrack(inner: &Value, key: &str) -> String {
    let direction = followed_by_space(inner, "dir");
    let family = followed_by_space(inner, "family");
    format!("ct {direction}{family}{key}")
}

fn ipsec(inner: &Value, key: &str) -> Result<String, Unknown> {
    let direction = required(inner, "dir", "ipsec")?;
    let number = match required(inner, "spnum", "ipsec")?.as_str() {
        "0" => String::new(),
        number => format!("spnum {number} "),
    };
    let family = followed_by_space(inner, "family");
    Ok(format!("ipsec {direction} {number}{family}{key}"))
}

fn payload(inner: &Value) -> Result<String, Unknown> {
    if let Some(protocol) = inner.text("protocol") {
        let field = required(inner, "field", "payload")?;
        let outer = followed_by_space(inner, "tunnel");
        return Ok(format!("{outer}{protocol} {field}"));
    }
    let part = |name| required(inner, name, "payload");
    Ok(format!(
        "@{},{},{}",
        part("base")?,
        part("offset")?,
        part("len")?
    ))
}

/// Converts fields of extension headers and options. Without a field, the presence is matched.
fn header(name: &str, inner: &Value) -> Result<String, Unknown> {
    if let Some(base) = inner.get("base") {
        let part = |member| required(inner, member, name);
        return Ok(format!(
            "{name} @{base},{},{}",
            part("offset")?,
            part("len")?
        ));
    }
    let header_name = match inner.get("name").or_else(|| inner.get("type")) {
        Some(value) => value.to_string(),
        None => return Err(Unknown::new(name)),
    };
    let offset = match inner.get("offset").map(Value::to_string) {
        Some(offset) if offset != "0" => format!("[{offset}]"),
        _ => String::new(),
    };
    Ok(match (name, inner.text("field")) {
        ("exthdr", Some(field)) => format!("{header_name}{offset} {field}"),
        (_, Some(field)) => format!("{name} {header_name}{offset} {field}"),
        (_, None) => format!("{name} {header_name}{offset}"),
    })
}

fn fib(inner: &Value) -> Result<String, Unknown> {
    let flags = inner.get("flags").ok_or_else(|| Unknown::new("fib"))?;
    let flags = match flags {
        Value::List(items) => join(items, &Kind::Plain, " . ")?,
        single => convert(single, &Kind::Plain)?,
    };
    let result = required(inner, "result", "fib")?;
    Ok(format!("fib {flags} {result}"))
}

/// Returns the modulus of a generator or hash, with its seed and offset.
fn modulus(inner: &Value) -> Result<String, Unknown> {
    let mut text = format!(" mod {}", required(inner, "mod", "mod")?);
    if let Some(Value::Number(seed)) = inner.get("seed") {
        let seed: u64 = seed.parse().map_err(|_| Unknown::new("seed"))?;
        let _ = write!(text, " seed {seed:#x}");
    }
    match inner.get("offset").map(Value::to_string) {
        Some(offset) if offset != "0" => {
            let _ = write!(text, " offset {offset}");
        }
        _ => {}
    }
    Ok(text)
}

fn operation(
    name: &str,
    own_precedence: u8,
    operands: &[Value],
    kind: &Kind,
) -> Result<String, Unknown> {
    let kind = match operands.first().map(Kind::of_expression) {
        Some(Kind::Plain) | None => kind.clone(),
        Some(own) => own,
    };
    let mut parts = Vec::new();
    for (index, operand) in operands.iter().enumerate() {
        let is_shift = own_precedence == 1 && index > 0;
        let text = match operand {
            Value::List(flags) => format!("({})", join(flags, &kind, " | ")?),
            operand => convert(operand, if is_shift { &Kind::Plain } else { &kind })?,
        };
        let inner = operand.only_member().and_then(|(name, _)| precedence(name));
        parts.push(match inner {
            Some(inner) if inner > own_precedence => format!("({text})"),
            _ => text,
        });
    }
    Ok(parts.join(&format!(" {name} ")))
}

fn range(inner: &Value, kind: &Kind) -> Result<String, Unknown> {
    let [first, last] = inner.items() else {
        return Err(Unknown::new("range"));
    };
    let bound = |value: &Value| match (value, kind) {
        (Value::Number(seconds), Kind::Time) => Ok(format!("{seconds}s")),
        _ => convert(value, kind),
    };
    Ok(format!("{}-{}", bound(first)?, bound(last)?))
}

/// Converts an anonymous set.
fn set(inner: &Value, kind: &Kind) -> Result<String, Unknown> {
    let items = match inner {
        Value::List(items) => items.as_slice(),
        single => std::slice::from_ref(single),
    };
    let texts: Result<Vec<String>, Unknown> =
        items.iter().map(|item| convert(item, kind)).collect();
    Ok(format!("{{ {} }}", texts?.join(", ")))
}

/// Converts a map with its key. `keyword` is `map` or `vmap`.
pub(super) fn map(inner: &Value, keyword: &str, data_kind: &Kind) -> Result<String, Unknown> {
    let (Some(key), Some(data)) = (inner.get("key"), inner.get("data")) else {
        return Err(Unknown::new(keyword));
    };
    let key_text = convert(key, &Kind::Plain)?;
    let key_kind = Kind::of_expression(key);
    let data = match data.only_member() {
        Some(("set", Value::List(pairs))) => {
            let texts: Result<Vec<String>, Unknown> = pairs
                .iter()
                .map(|pair| map_element(pair, &key_kind, data_kind))
                .collect();
            format!("{{ {} }}", texts?.join(", "))
        }
        _ => convert(data, &key_kind)?,
    };
    Ok(format!("{key_text} {keyword} {data}"))
}

/// Converts an element of a map: an array of a key and its value.
pub(super) fn map_element(
    pair: &Value,
    key_kind: &Kind,
    data_kind: &Kind,
) -> Result<String, Unknown> {
    let [key, data] = pair.items() else {
        return Err(Unknown::new("map"));
    };
    Ok(format!(
        "{} : {}",
        convert(key, key_kind)?,
        convert(data, data_kind)?
    ))
}

/// Converts an element with properties: a counter, its timeout and its comment.
fn element(inner: &Value, kind: &Kind) -> Result<String, Unknown> {
    let key = inner.get("val").ok_or_else(|| Unknown::new("elem"))?;
    let mut text = convert(key, kind)?;
    let mut end = String::new();
    for (name, value) in inner.members() {
        match (name.as_str(), value) {
            ("val", _) => {}
            ("timeout" | "expires", Value::Number(seconds)) => {
                let seconds = seconds.parse().map_err(|_| Unknown::new(name))?;
                let _ = write!(end, " {name} {}", duration(seconds));
            }
            ("comment", Value::Text(comment)) => {
                let _ = write!(end, " comment {}", quoted(comment)?);
            }
            _ => {
                let statement = stateful::convert(name, value);
                let statement = statement.unwrap_or_else(|| Err(Unknown::new(name)))?;
                let _ = write!(text, " {statement}");
            }
        }
    }
    Ok(text + &end)
}
