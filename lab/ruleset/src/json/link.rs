//! Converts the objects of `ip -j addr` and `ip -j link`, also with `-d` and `-s` (iproute2 6.1,
//! `ip/ipaddress.c`, `print_linkinfo` and `print_addrinfo`).

use std::fmt::Write as _;

use super::value::Value;
use super::xdp;
use super::{push, push_member, renamed};

/// Names of members of an interface that differ from the words of the text.
const NAMES: [(&str, &str); 7] = [
    ("operstate", "state"),
    ("linkmode", "mode"),
    ("txqlen", "qlen"),
    ("broadcast", "brd"),
    ("link_netnsid", "link-netnsid"),
    ("protocol", "proto"),
    ("proto_down_reason", "protodown_reason"),
];

/// Members after the kind of an interface, with the words of the text (iproute2 7.1,
/// `ip/ipaddress.c`, `print_linkinfo` and `print_af_spec`).
const PROPERTIES: [(&str, &str); 19] = [
    ("allmulti", "allmulti"),
    ("min_mtu", "minmtu"),
    ("max_mtu", "maxmtu"),
    ("netns-immutable", "netns-immutable"),
    ("inet6_addr_gen_mode", "addrgenmode"),
    ("num_tx_queues", "numtxqueues"),
    ("num_rx_queues", "numrxqueues"),
    ("gso_max_size", "gso_max_size"),
    ("gso_max_segs", "gso_max_segs"),
    ("tso_max_size", "tso_max_size"),
    ("tso_max_segs", "tso_max_segs"),
    ("gro_max_size", "gro_max_size"),
    ("gso_ipv4_max_size", "gso_ipv4_max_size"),
    ("gro_ipv4_max_size", "gro_ipv4_max_size"),
    ("phys_port_name", "portname"),
    ("phys_port_id", "portid"),
    ("phys_switch_id", "switchid"),
    ("parentbus", "parentbus"),
    ("parentdev", "parentdev"),
];

/// Members of the line with the link-layer address.
const LAYER: [&str; 8] = [
    "link_type",
    "address",
    "broadcast",
    "permaddr",
    "link_netnsid",
    "proto_down",
    "proto_down_reason",
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
        if name == "xdp" {
            push(&mut text, xdp::mode_word(value));
        } else if !LAYER.contains(&name.as_str()) && !OTHERS.contains(&name.as_str()) {
            push_member(&mut text, renamed(&NAMES, name), value);
        }
    }
    text.push_str(&layer_line(link));
    // The first properties precede the kind.
    let members = link.members().iter();
    let mut properties = members.skip_while(|(name, _)| name != "promiscuity");
    let before_kind = properties.by_ref();
    push_properties(
        &mut text,
        before_kind.take_while(|(name, _)| name != "linkinfo"),
    );
    text.push_str(&kind_lines(link));
    push_properties(&mut text, properties);
    if let Some(alias) = link.text("ifalias") {
        let _ = write!(text, "\n    alias {alias}");
    }
    // `ip addr` prints no programs without `-d`.
    let has_programs = link.get("linkmode").is_some() || link.get("promiscuity").is_some();
    if let Some(program) = link.get("xdp").filter(|_| has_programs) {
        text.push_str(&xdp::program_lines(program));
    }
    for function in link.get("vfinfo_list").map_or(&[][..], Value::items) {
        text.push_str(&function_line(function));
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

/// Appends properties of all interfaces.
fn push_properties<'v>(text: &mut String, members: impl Iterator<Item = &'v (String, Value)>) {
    for (name, value) in members {
        if name != "promiscuity" && !OTHERS.contains(&name.as_str()) {
            push_member(text, renamed(&PROPERTIES, name), value);
        }
    }
}

/// Returns the line of a virtual function (iproute2 7.1, `ip/ipaddress.c`, `print_vfinfo`).
fn function_line(function: &Value) -> String {
    let mut text = "\n    ".to_owned();
    let on_off = |value: &Value| match value {
        Value::Flag(false) => "off",
        _ => "on",
    };
    for (name, value) in function.members() {
        let part = match name.as_str() {
            "vf" => format!("vf {value}"),
            "link_type" => format!("     link/{value}"),
            "address" => format!(" {value}"),
            "link_pointtopoint" | "stats" => continue,
            "broadcast" if function.get("link_pointtopoint").is_some() => format!(" peer {value}"),
            "broadcast" => format!(" brd {value}"),
            "vlan_list" => {
                let vlans = value.items().iter().flat_map(Value::members);
                let words = vlans.map(|(name, value)| match name.as_str() {
                    "protocol" => format!(", vlan protocol {value}"),
                    _ => format!(", {name} {value}"),
                });
                words.collect::<Vec<_>>().concat()
            }
            "tx_rate" => format!(", tx rate {value} (Mbps)"),
            "rate" => {
                let rates = value.members().iter();
                let rates = rates.filter(|(_, rate)| rate.to_string() != "0");
                let words = rates.map(|(name, rate)| format!(", {name}_rate {rate}Mbps"));
                words.collect::<Vec<_>>().concat()
            }
            "spoofchk" => format!(", spoof checking {}", on_off(value)),
            "link_state" => format!(", link-state {value}"),
            "trust" => format!(", trust {}", on_off(value)),
            "query_rss_en" => format!(", query_rss {}", on_off(value)),
            "node guid" => format!(", NODE_GUID {value}"),
            "port guid" => format!(", PORT_GUID {value}"),
            _ => format!(", {name} {value}"),
        };
        text.push_str(&part);
    }
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
            "proto_down" => push(&mut text, "protodown on"),
            "proto_down_reason" => {
                let reasons: Vec<String> = value.items().iter().map(Value::to_string).collect();
                push(
                    &mut text,
                    format!("protodown_reason <{}>", reasons.join(",")),
                );
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
const DETAILS: [(&str, &str); 26] = [
    ("peer_policy", "peer policy"),
    ("peer_scrub", "peer scrub"),
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
