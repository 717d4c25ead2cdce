//! Converts the objects of tables: sets, maps, the hooks of chains, and named counters, limits and
//! helpers.

use super::super::value::Value;
use super::Unknown;
use super::expression::{self, Kind, convert as convert_expression};
use super::member::{duration, is_on, quoted, required, seconds};
use super::stateful;
use super::statement::{self, synproxy};

/// Line of an object. An error is a part of the JSON without a text, with the JSON.
pub(super) type Line = Result<String, (Unknown, String)>;

/// Returns a line for a part of the JSON.
pub(super) fn line(converted: Result<String, Unknown>, json: &Value) -> Line {
    converted.map_err(|unknown| (unknown, json.to_string()))
}

/// Members that identify an object.
const IDENTITY: [&str; 4] = ["family", "name", "table", "handle"];

/// Returns the lines of a set or map. `is_changed` states whether rules add elements.
pub(super) fn set_lines(set: &Value, is_changed: bool) -> Vec<Line> {
    let mut lines = vec![line(type_line(set), set)];
    let flags = flags(set, is_changed);
    lines.extend((!flags.is_empty()).then(|| Ok(format!("flags {}", flags.join(",")))));
    for (name, value) in set.members() {
        let converted = match (name.as_str(), value) {
            ("type" | "map" | "elem" | "flags", _) => continue,
            (identity, _) if IDENTITY.contains(&identity) => continue,
            ("timeout" | "gc-interval", _) => {
                seconds(value, name).map(|time| format!("{name} {time}"))
            }
            ("comment", Value::Text(comment)) => {
                quoted(comment).map(|comment| format!("comment {comment}"))
            }
            ("auto-merge", Value::Flag(is_on)) => {
                if !is_on {
                    continue;
                }
                Ok(name.clone())
            }
            ("stmt", Value::List(statements)) => {
                lines.extend(
                    statements
                        .iter()
                        .map(|own| line(statement::convert(own), own)),
                );
                continue;
            }
            ("size" | "policy", value) => Ok(format!("{name} {value}")),
            _ => Err(Unknown::new(name)),
        };
        lines.push(line(converted, value));
    }
    lines.extend(element_lines(set));
    lines
}

/// Flags of sets in the order of the text (nftables v1.0.6, `src/rule.c`, `set_print_declaration`).
const FLAGS: [&str; 4] = ["constant", "dynamic", "interval", "timeout"];

/// Types of data that `typeof` accepts without an expression.
const UNTYPED_DATA: [&str; 5] = ["verdict", "counter", "quota", "limit", "synproxy"];

/// Returns the flags of a set. nftables v1.0.6 does not print `dynamic` in JSON, which the kernel
/// needs for rules that add elements (Linux v6.12, `net/netfilter/nft_dynset.c`, `nft_dynset_init`).
/// In text, it does not print `timeout` alone if the set has a timeout (`src/rule.c`,
/// `set_print_declaration`).
fn flags(set: &Value, is_changed: bool) -> Vec<String> {
    let mut flags: Vec<String> = match set.get("flags") {
        Some(Value::List(flags)) => flags.iter().map(Value::to_string).collect(),
        Some(flag) => vec![flag.to_string()],
        None => Vec::new(),
    };
    if is_changed && !flags.iter().any(|flag| flag == "dynamic") {
        flags.push("dynamic".to_owned());
    }
    flags.sort_by_key(|flag| FLAGS.iter().position(|known| known == flag));
    if flags == ["timeout"] && set.get("timeout").is_some() {
        flags.clear();
    }
    flags
}

/// Returns the text of a type, which is a name, an array of names or an expression.
fn type_text(types: &Value) -> Result<String, Unknown> {
    match types {
        Value::Text(name) => Ok(name.clone()),
        Value::List(names) => {
            let names: Vec<String> = names.iter().map(Value::to_string).collect();
            Ok(names.join(" . "))
        }
        types => match types.get("typeof") {
            Some(expression) => convert_expression(expression, &Kind::Plain),
            None => Err(Unknown::new("type")),
        },
    }
}

/// Returns the kind of the values of a type.
fn kind(types: Option<&Value>) -> Kind {
    match types {
        Some(types @ Value::Object(_)) => {
            types.get("typeof").map_or(Kind::Plain, Kind::of_expression)
        }
        Some(types) => type_text(types).map_or(Kind::Plain, |name| Kind::of_type(&name)),
        None => Kind::Plain,
    }
}

fn type_line(set: &Value) -> Result<String, Unknown> {
    let types = set.get("type").ok_or_else(|| Unknown::new("set"))?;
    let keyword = match types {
        Value::Object(_) => "typeof",
        _ => "type",
    };
    let keys = type_text(types)?;
    Ok(match set.get("map") {
        // nftables v1.1.6 prints a type name here, which `typeof` does not accept.
        Some(Value::Text(data)) if keyword == "typeof" && !UNTYPED_DATA.contains(&&**data) => {
            return Err(Unknown::new("map with typeof"));
        }
        Some(data) => format!("{keyword} {keys} : {}", type_text(data)?),
        None => format!("{keyword} {keys}"),
    })
}

/// Returns the lines of the elements. Elements without a text have lines of their own before the
/// others.
fn element_lines(set: &Value) -> Vec<Line> {
    let key_kind = kind(set.get("type"));
    let data_kind = kind(set.get("map"));
    let mut lines = Vec::new();
    let mut texts = Vec::new();
    let elements = match set.get("elem") {
        Some(Value::List(elements)) => elements.as_slice(),
        Some(single) => std::slice::from_ref(single),
        None => &[],
    };
    for element in elements {
        let converted = match element {
            Value::List(_) => expression::map_element(element, &key_kind, &data_kind),
            element => convert_expression(element, &key_kind),
        };
        match line(converted, element) {
            Ok(text) => texts.push(text),
            unknown => lines.push(unknown),
        }
    }
    if !texts.is_empty() {
        lines.push(Ok(format!(
            "elements = {{ {} }}",
            texts.join(",\n\t\t\t     ")
        )));
    }
    lines
}

/// Returns the lines of a chain before its rules.
pub(super) fn chain_lines(chain: &Value) -> Vec<Line> {
    let mut lines = Vec::new();
    if let Some(comment) = chain.text("comment") {
        lines.push(line(
            quoted(comment).map(|comment| format!("comment {comment}")),
            chain,
        ));
    }
    if chain.get("hook").is_some() {
        lines.push(line(hook_line(chain), chain));
    }
    lines
}

/// Returns the line of a hook. nftables v1.0.6 does not print several devices in JSON.
fn hook_line(chain: &Value) -> Result<String, Unknown> {
    let part = |member| required(chain, member, "chain");
    let hook = part("hook")?;
    let device = match chain.get("dev") {
        Some(Value::List(names)) => {
            let names: Vec<String> = names.iter().map(Value::to_string).collect();
            format!(" devices = {{ {} }}", names.join(", "))
        }
        Some(name) => format!(" device {}", convert_expression(name, &Kind::Quoted)?),
        None if matches!(hook.as_str(), "ingress" | "egress") => {
            return Err(Unknown::new(&format!("hook {hook} without dev")));
        }
        None => String::new(),
    };
    let policy = chain.text("policy").unwrap_or("accept");
    Ok(format!(
        "type {} hook {hook}{device} priority {}; policy {policy};",
        part("type")?,
        part("prio")?
    ))
}

/// Returns the lines of another object.
pub(super) fn object_lines(kind: &str, object: &Value) -> Vec<Line> {
    let mut lines = Vec::new();
    if let Some(comment) = object.text("comment") {
        lines.push(line(
            quoted(comment).map(|comment| format!("comment {comment}")),
            object,
        ));
    }
    match body(kind, object) {
        Ok(body) => lines.extend(body.into_iter().map(Ok)),
        Err(unknown) => lines.push(Err((unknown, object.to_string()))),
    }
    lines
}

fn body(kind: &str, object: &Value) -> Result<Vec<String>, Unknown> {
    let part = |member| required(object, member, kind);
    Ok(match kind {
        "counter" => vec![format!(
            "packets {} bytes {}",
            part("packets")?,
            part("bytes")?
        )],
        "quota" => vec![quota(object)?],
        "limit" => vec![stateful::limit(object)?],
        "synproxy" => {
            let mut lines = synproxy(object);
            // The flags are one line.
            let flags = lines.split_off(lines.len().min(2));
            lines.extend((!flags.is_empty()).then(|| flags.join(" ")));
            lines
        }
        "secmark" => vec![quoted(&part("context")?)?],
        "ct helper" => vec![
            format!(
                "type {} protocol {}",
                quoted(&part("type")?)?,
                part("protocol")?
            ),
            format!("l3proto {}", part("l3proto")?),
        ],
        "ct timeout" => {
            let policy = object.get("policy").map_or(&[][..], Value::members);
            let policy: Vec<String> = policy
                .iter()
                .map(|(state, time)| format!("{state} : {time}"))
                .collect();
            vec![
                format!("protocol {}", part("protocol")?),
                format!("l3proto {}", part("l3proto")?),
                format!("policy = {{ {} }}", policy.join(", ")),
            ]
        }
        "ct expectation" => {
            let milliseconds: u64 = part("timeout")?.parse().map_err(|_| Unknown::new(kind))?;
            vec![
                format!("protocol {}", part("protocol")?),
                format!("dport {}", part("dport")?),
                format!("timeout {}", duration(milliseconds / 1000)),
                format!("size {}", part("size")?),
                format!("l3proto {}", part("l3proto")?),
            ]
        }
        "flowtable" => flowtable(object)?,
        _ => return Err(Unknown::new(kind)),
    })
}

/// Returns a quota in the largest unit without a remainder (nftables v1.0.6, `src/datatype.c`,
/// `get_rate`).
fn quota(object: &Value) -> Result<String, Unknown> {
    let amount = |member| {
        let bytes: Option<u64> = required(object, member, "quota")?.parse().ok();
        let mut bytes = bytes.ok_or_else(|| Unknown::new("quota"))?;
        let mut units = ["bytes", "kbytes", "mbytes"].into_iter();
        let mut unit = units.next().unwrap_or_default();
        while bytes > 0
            && bytes.is_multiple_of(1024)
            && let Some(larger) = units.next()
        {
            bytes /= 1024;
            unit = larger;
        }
        Ok((bytes, unit))
    };
    let over = if is_on(object, "inv") { "over " } else { "" };
    let (bytes, unit) = amount("bytes")?;
    Ok(match amount("used")? {
        (0, _) => format!("{over}{bytes} {unit}"),
        (used, used_unit) => format!("{over}{bytes} {unit} used {used} {used_unit}"),
    })
}

fn flowtable(object: &Value) -> Result<Vec<String>, Unknown> {
    let part = |member| required(object, member, "flowtable");
    let devices = match object.get("dev") {
        Some(Value::List(names)) => names.iter().map(Value::to_string).collect(),
        Some(name) => vec![name.to_string()],
        None => Vec::new(),
    };
    let priority = match part("prio")?.as_str() {
        "0" => "filter".to_owned(),
        number => number.to_owned(),
    };
    let mut lines = vec![format!("hook {} priority {priority}", part("hook")?)];
    if !devices.is_empty() {
        lines.push(format!("devices = {{ {} }}", devices.join(", ")));
    }
    Ok(lines)
}
