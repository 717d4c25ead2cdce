//! Converts the objects of `ip -j route` (iproute2 6.1, `ip/iproute.c`, `print_route`).

use super::value::Value;
use super::{push, push_member, renamed};

/// Names of members that differ from the words of the text.
const NAMES: [(&str, &str); 5] = [
    ("gateway", "via"),
    ("protocol", "proto"),
    ("prefsrc", "src"),
    ("congestion", "congctl"),
    ("ecn", "features ecn"),
];

/// Metrics in milliseconds.
const TIMES: [&str; 3] = ["rtt", "rttvar", "rto_min"];

/// Statistics, which only `ip -s` prints.
const IGNORED: [&str; 3] = ["users", "used", "age"];

/// Returns the lines of a route.
pub(super) fn convert(route: &Value) -> String {
    let mut lines = String::new();
    push_members(&mut lines, route.members());
    lines.push('\n');
    if let Some(object) = route.get("nh_info") {
        lines.push_str("\tnh_info ");
        push_members(&mut lines, object.members());
        lines.push('\n');
    }
    for hop in route.get("nexthops").map_or(&[][..], Value::items) {
        lines.push_str("\tnexthop ");
        push_members(&mut lines, hop.members());
        lines.push('\n');
    }
    lines
}

/// Members after an encapsulation.
const ENCAPSULATION_ENDS: [&str; 7] = [
    "gateway", "via", "dev", "protocol", "scope", "metric", "flags",
];

fn push_members(line: &mut String, members: &[(String, Value)]) {
    let mut encapsulation: Option<String> = None;
    for (name, value) in members {
        if ENCAPSULATION_ENDS.contains(&name.as_str()) {
            encapsulation = None;
        }
        match &encapsulation {
            Some(kind) => push_encapsulation(line, kind, name, value),
            None => push_attribute(line, name, value),
        }
        if name == "encap" {
            encapsulation = Some(value.to_string());
        }
    }
}

/// Appends a member of an encapsulation (iproute2 6.1, `ip/iproute_lwtunnel.c`).
fn push_encapsulation(line: &mut String, kind: &str, name: &str, value: &Value) {
    match (kind, name) {
        ("mpls", "dst") => push(line, value.to_string()),
        (_, "segs") => {
            let segments: Vec<String> = value.items().iter().map(Value::to_string).collect();
            let segments_text = segments.join(" ");
            push(line, format!("segs {} [ {segments_text} ]", segments.len()));
        }
        _ => push_member(line, name, value),
    }
}

fn push_attribute(line: &mut String, name: &str, value: &Value) {
    match (name, value) {
        ("nexthops" | "nh_info", _) => {}
        ("group", Value::List(hops)) => push(line, format!("group {}", group(hops))),
        ("resilient_args", Value::Object(parameters)) => {
            let parameters = parameters.iter();
            parameters.for_each(|(name, value)| push_member(line, name, value));
        }
        _ if IGNORED.contains(&name) => {}
        ("type" | "dst", _) => push(line, value.to_string()),
        ("src", _) => push(line, format!("from {value}")),
        ("to", _) => push(line, format!("as to {value}")),
        ("flags", Value::List(flags)) => flags.iter().for_each(|flag| push(line, flag.to_string())),
        ("via", Value::Object(_)) => push_via(line, value),
        ("flow", Value::Object(_)) => push_realms(line, value),
        ("metrics", Value::List(metrics)) => {
            let all = metrics.iter().flat_map(Value::members);
            all.for_each(|(name, value)| push_metric(line, name, value));
        }
        ("expires", _) => push(line, format!("expires {value}sec")),
        ("ttl-propogate", Value::Flag(is_on)) => {
            let state = if *is_on { "enabled" } else { "disabled" };
            push(line, format!("ttl-propagate {state}"));
        }
        _ => push_member(line, renamed(&NAMES, name), value),
    }
}

/// Returns the identifiers and weights of a group of next hop objects: `2,2/3` (iproute2 6.1,
/// `ip/ipnexthop.c`, `print_nh_group`).
fn group(hops: &[Value]) -> String {
    let hops = hops.iter().map(|hop| {
        let id = hop.get("id").map(Value::to_string).unwrap_or_default();
        match hop.get("weight") {
            Some(weight) => format!("{id},{weight}"),
            None => id,
        }
    });
    hops.collect::<Vec<_>>().join("/")
}

fn push_via(line: &mut String, via: &Value) {
    let part = |name| via.text(name).unwrap_or_default();
    push(line, format!("via {} {}", part("family"), part("host")));
}

fn push_realms(line: &mut String, flow: &Value) {
    let to = flow.text("to").unwrap_or_default();
    match flow.text("from") {
        Some(from) => push(line, format!("realms {from}/{to}")),
        None => push(line, format!("realm {to}")),
    }
}

/// Appends a metric. The JSON does not show whether a metric is locked.
fn push_metric(line: &mut String, name: &str, value: &Value) {
    match value {
        Value::Number(time) if TIMES.contains(&name) => {
            let milliseconds: u64 = time.parse().unwrap_or_default();
            let time = match milliseconds {
                0..1000 => format!("{milliseconds}ms"),
                _ => format!("{}s", seconds(milliseconds)),
            };
            push(line, format!("{name} {time}"));
        }
        _ => push_member(line, renamed(&NAMES, name), value),
    }
}

/// Formats milliseconds as seconds, without zeros at the end.
fn seconds(milliseconds: u64) -> String {
    let text = format!("{}.{:03}", milliseconds / 1000, milliseconds % 1000);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}
