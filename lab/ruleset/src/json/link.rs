//! Converts the objects of `ip -j addr` and `ip -j link`, also with `-d` and `-s` (iproute2 6.1,
//! `ip/ipaddress.c`, `print_linkinfo` and `print_addrinfo`).

use std::fmt::Write as _;

use super::value::Value;
use super::{push, push_member, renamed};

/// Names of members of an interface that differ from the words of the text.
const NAMES: [(&str, &str); 6] = [
    ("operstate", "state"),
    ("linkmode", "mode"),
    ("txqlen", "qlen"),
    ("broadcast", "brd"),
    ("link_netnsid", "link-netnsid"),
    ("protocol", "proto"),
];

/// Members of the line with the link-layer address.
const LAYER: [&str; 6] = [
    "link_type",
    "address",
    "broadcast",
    "permaddr",
    "link_netnsid",
    "promiscuity",
];

/// Members with lines of their own, or without a word in the text.
const OTHERS: [&str; 14] = [
    "ifindex",
    "link",
    "link_index",
    "ifname",
    "flags",
    "operstate_index",
    "link_pointtopoint",
    "linkinfo",
    "ifalias",
    "altnames",
    "addr_info",
    "stats",
    "stats64",
    "vfinfo_list",
];

/// Returns the lines of an interface.
pub(super) fn convert(link: &Value) -> String {
    let mut text = heading(link);
    // `ip -d` prints properties of the interface after `promiscuity`, which the text parser skips.
    let first = link
        .members()
        .iter()
        .take_while(|(name, _)| name != "promiscuity");
    for (name, value) in first {
        if !LAYER.contains(&name.as_str()) && !OTHERS.contains(&name.as_str()) {
            push_member(&mut text, renamed(&NAMES, name), value);
        }
    }
    text.push_str(&layer_line(link));
    text.push_str(&kind_lines(link));
    if let Some(alias) = link.text("ifalias") {
        let _ = write!(text, "\n    alias {alias}");
    }
    for name in link.get("altnames").map_or(&[][..], Value::items) {
        let _ = write!(text, "\n    altname {name}");
    }
    let addresses = link.get("addr_info").map_or(&[][..], Value::items);
    let addresses = addresses
        .iter()
        .filter(|address| !address.members().is_empty());
    text.extend(addresses.map(address_lines));
    text.push('\n');
    text
}

/// Returns the begin of the first line: `4: veth0@if3: <UP>`.
fn heading(link: &Value) -> String {
    let index = link
        .get("ifindex")
        .map_or_else(String::new, Value::to_string);
    let name = link.text("ifname").unwrap_or_default();
    let lower = match (link.get("link"), link.get("link_index")) {
        (Some(Value::Null), _) => "@NONE".to_owned(),
        (Some(lower), _) => format!("@{lower}"),
        (None, Some(index)) => format!("@if{index}"),
        (None, None) => String::new(),
    };
    let flags = link.get("flags").map_or(&[][..], Value::items);
    let flags: Vec<String> = flags.iter().map(Value::to_string).collect();
    format!("{index}: {name}{lower}: <{}>", flags.join(","))
}

/// Returns the line with the link-layer address.
fn layer_line(link: &Value) -> String {
    let Some(kind) = link.text("link_type") else {
        return String::new();
    };
    let mut text = format!("\n    link/{kind} ");
    for (name, value) in link.members() {
        match name.as_str() {
            "address" => push(&mut text, value.to_string()),
            "broadcast" if link.get("link_pointtopoint").is_some() => {
                push(&mut text, format!("peer {value}"));
            }
            "broadcast" | "permaddr" | "link_netnsid" | "promiscuity" => {
                push_member(&mut text, renamed(&NAMES, name), value);
            }
            _ => {}
        }
    }
    text
}

/// Returns the lines of the kind of an interface and of the kind of its master.
fn kind_lines(link: &Value) -> String {
    let mut text = String::new();
    let Some(info) = link.get("linkinfo") else {
        return text;
    };
    for (kind, data, end) in [
        ("info_kind", "info_data", ""),
        ("info_slave_kind", "info_slave_data", "_slave"),
    ] {
        let Some(kind) = info.text(kind) else {
            continue;
        };
        let kind = format!("{kind}{end}");
        let mut detail = format!("\n    {kind}");
        for (name, value) in info.get(data).map_or(&[][..], Value::members) {
            push_detail(&mut detail, &kind, name, value);
        }
        text.push_str(&detail);
    }
    text
}

/// Names of details that differ from the words of the text, for all kinds but ports of bridges
/// (iproute2 6.1, `ip/iplink_*.c`).
const DETAILS: [(&str, &str); 24] = [
    ("group6", "group"),
    ("remote6", "remote"),
    ("local6", "local"),
    ("link", "dev"),
    ("port", "dstport"),
    ("limit", "maxaddr"),
    ("label", "flowlabel"),
    ("udp_csum", "udpcsum"),
    ("udp_zero_csum6_tx", "udp6zerocsumtx"),
    ("udp_zero_csum6_rx", "udp6zerocsumrx"),
    ("root_id", "designated_root"),
    ("group_addr", "group_address"),
    ("mcast_last_member_cnt", "mcast_last_member_count"),
    ("mcast_startup_query_cnt", "mcast_startup_query_count"),
    ("mcast_last_member_intvl", "mcast_last_member_interval"),
    ("mcast_membership_intvl", "mcast_membership_interval"),
    ("mcast_querier_intvl", "mcast_querier_interval"),
    ("mcast_query_intvl", "mcast_query_interval"),
    (
        "mcast_query_response_intvl",
        "mcast_query_response_interval",
    ),
    ("mcast_startup_query_intvl", "mcast_startup_query_interval"),
    ("ingress_qos", "ingress-qos-map"),
    ("egress_qos", "egress-qos-map"),
    ("macaddr_count", "remotes"),
    ("inner_proto_inherit", "innerprotoinherit"),
];

/// Names of details of ports of bridges that differ from the words of the text.
const PORT_DETAILS: [(&str, &str); 5] = [
    ("id", "port_id"),
    ("no", "port_no"),
    ("bridge_id", "designated_bridge"),
    ("root_id", "designated_root"),
    ("multicast_router", "mcast_router"),
];

/// Switches that the text shows with `no` before the name if they are off.
const NEGATED: [&str; 4] = ["udpcsum", "udp6zerocsumtx", "udp6zerocsumrx", "pmtudisc"];

/// Appends a detail of a kind.
fn push_detail(line: &mut String, kind: &str, name: &str, value: &Value) {
    let is_port = kind == "bridge_slave";
    let is_tunnel_device = kind == "tun" && name != "multi_queue";
    let names: &[_] = if is_port { &PORT_DETAILS } else { &DETAILS };
    let word = renamed(names, name);
    match (name, value) {
        (_, Value::Flag(is_on)) if is_port || is_tunnel_device => {
            let state = if *is_on { "on" } else { "off" };
            push(line, format!("{word} {state}"));
        }
        ("learning" | "localbypass", Value::Flag(true)) => {}
        ("learning" | "localbypass", Value::Flag(false)) => push(line, format!("no{word}")),
        (_, Value::Flag(false)) if NEGATED.contains(&word) => push(line, format!("no{word}")),
        ("ttl", Value::Number(number)) if number == "0" => {
            let is_overlay = matches!(kind, "vxlan" | "geneve");
            push(
                line,
                if is_overlay {
                    "ttl auto"
                } else {
                    "ttl inherit"
                },
            );
        }
        ("df", Value::Text(text)) if text == "unset" => {}
        ("proto", _) => push(line, value.to_string()),
        ("port_range", range) => {
            let bound = |name| range.get(name).map_or_else(String::new, Value::to_string);
            push(line, format!("srcport {} {}", bound("low"), bound("high")));
        }
        ("flags", Value::List(flags)) if kind == "vlan" => {
            let flags: Vec<String> = flags.iter().map(Value::to_string).collect();
            push(line, format!("<{}>", flags.join(",")));
        }
        _ => push_member(line, word, value),
    }
}

/// Lifetime that does not end (Linux, `include/net/addrconf.h`, `INFINITY_LIFE_TIME`).
const FOREVER: &str = "4294967295";

/// Returns the lines of an address.
fn address_lines(address: &Value) -> String {
    let mut line = String::new();
    let mut lifetime = String::new();
    for (name, value) in address.members() {
        match name.as_str() {
            "family" => {
                let _ = write!(line, "\n    {value}");
            }
            "address" => push(&mut line, format!("peer {value}")),
            "prefixlen" => {
                let _ = write!(line, "/{value}");
            }
            "broadcast" | "anycast" => {
                let word = if name == "anycast" { "any" } else { "brd" };
                push(&mut line, format!("{word} {value}"));
            }
            "local" | "label" => push(&mut line, value.to_string()),
            "ifa_flags" => push(&mut line, format!("flags {value}")),
            "valid_life_time" | "preferred_life_time" => {
                let word = name.split('_').next().unwrap_or_default();
                let time = match value.to_string().as_str() {
                    FOREVER => "forever".to_owned(),
                    seconds => format!("{seconds}sec"),
                };
                push(&mut lifetime, format!("{word}_lft {time}"));
            }
            _ => push_member(&mut line, renamed(&NAMES, name), value),
        }
    }
    if !lifetime.is_empty() {
        let _ = write!(line, "\n       {lifetime}");
    }
    line
}
