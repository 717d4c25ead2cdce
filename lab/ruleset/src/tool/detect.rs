//! Identifies the program that printed a text.

use std::net::IpAddr;

use ipnetwork::IpNetwork;

use super::{DumpedBackend, Format};
use crate::{Family, Mac};

/// Returns the format of a text. `None` if several programs can print the text.
pub(super) fn detect(text: &str) -> Option<Format> {
    if is_json_array(text) {
        return detect_json(text);
    }
    if is_nft_json(text) {
        return Some(Format::Nft);
    }
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    lines.take(64).find_map(detect_line)
}

/// Route types that a printed route can start with.
const ROUTE_TYPES: [&str; 8] = [
    "local",
    "broadcast",
    "anycast",
    "multicast",
    "blackhole",
    "unreachable",
    "prohibit",
    "throw",
];

/// Returns the format of a line. `None` if several programs can print the line.
fn detect_line(line: &str) -> Option<Format> {
    let mut words = line.split_ascii_whitespace();
    let first = words.next()?;
    let second = words.next().unwrap_or_default();
    let table = ["*nat", "*filter", "*mangle", "*raw", "*security"];
    if table.contains(&first) {
        return Some(Format::Rules(Family::V4, DumpedBackend::Default));
    }
    let service = ["-t", "-u", "-f", "--sctp-service"];
    match first {
        "create" if is_set_type(words.next().unwrap_or_default()) => return Some(Format::Sets),
        "Type:" if is_set_type(second) => return Some(Format::Sets),
        // The headings of `ipvsadm -Ln`. Listings of counters have other columns.
        "Prot" if line == "Prot LocalAddress:Port Scheduler Flags" => {
            return Some(Format::VirtualServers);
        }
        "-A" | "-a" if service.contains(&second) => return Some(Format::VirtualServers),
        "-A" => return Some(Format::Rules(Family::V4, DumpedBackend::Default)),
        "table" if line.contains(" {") => return Some(Format::Nft),
        "qdisc" if words.next().is_some_and(|handle| handle.ends_with(':')) => {
            return Some(Format::Qdiscs);
        }
        "class" if words.next().is_some_and(|handle| handle.contains(':')) => {
            return Some(Format::TrafficClasses);
        }
        "filter" if matches!(second, "parent" | "protocol" | "block") => {
            return Some(Format::TrafficFilters);
        }
        // With `-o`, a policy is one line. States have no direction.
        "src" if words.any(|word| matches!(word, "dir" | "socket")) => {
            return Some(Format::IpsecPolicies);
        }
        "dir" | "socket" if matches!(second, "in" | "out" | "fwd") => {
            return Some(Format::IpsecPolicies);
        }
        "ipv4" | "ipv6" | "tcp" | "udp" | "icmp" | "icmpv6" if line.contains(" src=") => {
            return Some(Format::Connections);
        }
        "default" if matches!(second, "via" | "dev" | "nhid") => {
            return Some(Format::Routes(if line.contains(':') {
                Family::V6
            } else {
                Family::V4
            }));
        }
        _ => {}
    }
    if first.parse::<Mac>().is_ok() && second == "dev" {
        return Some(Format::Forwarding);
    }
    if first.parse::<IpAddr>().is_ok()
        && second == "dev"
        && words.any(|word| NEIGHBOUR_WORDS.contains(&word))
    {
        return Some(Format::Neighbours);
    }
    let parse_network = |text: &str| text.parse::<IpNetwork>().ok();
    let route = parse_network(first)
        .filter(|_| matches!(second, "via" | "dev" | "proto" | "nhid" | "metric"))
        .or_else(|| parse_network(second).filter(|_| ROUTE_TYPES.contains(&first)));
    if let Some(to) = route {
        return Some(Format::Routes(if to.is_ipv6() {
            Family::V6
        } else {
            Family::V4
        }));
    }
    if first.contains('.') && second == "=" {
        return Some(Format::Sysctls);
    }
    let number = first.strip_suffix(':')?;
    if number.is_empty() || !number.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    if matches!(second, "from" | "not") {
        return Some(Format::RoutingRules(Family::V4));
    }
    // `ip -o -d link` prints the same settings in a line with the link-layer address.
    let has = |name: &str| words.clone().any(|word| word == name);
    if has("priority") && has("cost") && !words.clone().any(|word| word.starts_with("link/")) {
        return Some(Format::BridgePorts);
    }
    // With `-o`, `ip addr` prints no flags.
    let is_address = matches!(words.next(), Some("inet" | "inet6"));
    let is_link = second.ends_with(':') && line.contains('<');
    (is_link || is_address).then_some(Format::Links)
}

/// Whether a word is the type of a set: `hash:ip,port`.
fn is_set_type(word: &str) -> bool {
    let mut methods = ["hash:", "bitmap:", "list:"].iter();
    methods.any(|method| word.starts_with(method))
}

/// Words that `ip neigh` prints, but `ip route` does not.
const NEIGHBOUR_WORDS: [&str; 9] = [
    "lladdr",
    "INCOMPLETE",
    "REACHABLE",
    "STALE",
    "DELAY",
    "PROBE",
    "FAILED",
    "NOARP",
    "PERMANENT",
];

/// Whether a text is a JSON array, and not a rule with its counters: `[0:0] -A OUTPUT`.
fn is_json_array(text: &str) -> bool {
    let content = text.trim_ascii_start().strip_prefix('[');
    content.is_some_and(|content| content.trim_ascii_start().starts_with(['{', ']']))
}

/// Whether a text is output of `nft -j`: `{"nftables": [`.
fn is_nft_json(text: &str) -> bool {
    let content = text.trim_ascii_start().strip_prefix('{');
    content.is_some_and(|content| content.trim_ascii_start().starts_with("\"nftables\""))
}

/// Returns the format of a JSON array, from the members of its first object that is not empty.
/// `None` if the format is not supported, or the array is empty.
fn detect_json(text: &str) -> Option<Format> {
    let first = text.split('}').find(|object| object.contains('"'))?;
    let has = |name: &str| first.contains(&format!("\"{name}\""));
    if has("mac") && (has("ifname") || has("dev")) {
        Some(Format::Forwarding)
    } else if has("dst") && has("dev") && has("state") {
        Some(Format::Neighbours)
    } else if has("ifname") && has("priority") && has("cost") && !has("linkinfo") {
        Some(Format::BridgePorts)
    } else if has("ifindex") && has("ifname") && (has("link_type") || has("operstate")) {
        // `ip addr` lists the addresses of every interface, if only as an empty list (iproute2 6.1,
        // `ip/ipaddress.c`, `ip_addr_list`).
        let has_addresses = text.contains("\"addr_info\"");
        Some(if has_addresses {
            Format::Links
        } else {
            Format::LinkDetails
        })
    } else if has("priority") && has("src") {
        Some(Format::RoutingRules(Family::V4))
    } else if has("dst") && has("flags") {
        Some(Format::Routes(if has("pref") || has_ipv6_address(first) {
            Family::V6
        } else {
            Family::V4
        }))
    } else {
        None
    }
}

/// Whether one of the strings is an IPv6 address or network.
fn has_ipv6_address(object: &str) -> bool {
    let mut strings = object.split('"');
    strings.any(|text| {
        text.parse::<IpNetwork>()
            .is_ok_and(|network| network.is_ipv6())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn format_detect_one_line_port_of_ip_is_no_bridge_link() {
        let line = r"6: v1@v2: <UP> mtu 1500\    link/ether 02:00:00:00:00:01\    bridge_slave state forwarding priority 32 cost 2";
        assert_eq!(Format::detect(line), Some(Format::Links));
    }

    #[test]
    fn format_detect_typical_texts_are_recognised() {
        for (text, format) in [
            (
                "# Generated by iptables-save\n*nat\n",
                Some(Format::Rules(Family::V4, DumpedBackend::Default)),
            ),
            ("create A hash:ip family inet\n", Some(Format::Sets)),
            (
                "# Warning: table ip nat is managed by iptables-nft, do not touch!\ntable ip nat {\n",
                Some(Format::Nft),
            ),
            ("-A -t 10.0.0.1:80 -s rr\n", Some(Format::VirtualServers)),
            ("1: lo: <LOOPBACK> mtu 65536\n", Some(Format::Links)),
            (
                "10.0.0.0/8 dev eth0\ndefault via 10.0.0.1 dev eth0\n",
                Some(Format::Routes(Family::V4)),
            ),
            (
                "default via fe80::1 dev eth0\n",
                Some(Format::Routes(Family::V6)),
            ),
            (
                "blackhole fd00::/8 metric 1\n",
                Some(Format::Routes(Family::V6)),
            ),
            (
                "0:\tfrom all lookup local\n",
                Some(Format::RoutingRules(Family::V4)),
            ),
            (
                "qdisc noqueue 0: dev lo root refcnt 2\n",
                Some(Format::Qdiscs),
            ),
            (
                "# tc filter show dev d0 egress\nfilter protocol ip pref 1 u32 chain 0\n",
                Some(Format::TrafficFilters),
            ),
            ("class htb 1:10 root prio 0\n", Some(Format::TrafficClasses)),
            (
                "udp 17 27 src=127.0.0.1 dst=127.0.0.1 sport=1 dport=2\n",
                Some(Format::Connections),
            ),
            ("net.ipv4.ip_forward = 1\n", Some(Format::Sysctls)),
            ("10.0.0.1 dev eth0 FAILED\n", Some(Format::Neighbours)),
            (
                "fe80::1 dev eth0 lladdr 02:00:00:00:00:01 router STALE\n",
                Some(Format::Neighbours),
            ),
            (
                "33:33:00:00:00:01 dev eth0 self permanent\n",
                Some(Format::Forwarding),
            ),
            (
                "4: v@p: <UP> mtu 1500 master b state forwarding priority 32 cost 2\n",
                Some(Format::BridgePorts),
            ),
            (
                "4: v@p: <UP> mtu 1500 qdisc noqueue master b state UP\n",
                Some(Format::Links),
            ),
            (
                "[ {\n  \"dst\": \"10.0.0.1\",\n  \"dev\": \"eth0\",\n  \"state\": [ \"STALE\" ]\n} ]",
                Some(Format::Neighbours),
            ),
            (
                r#"[{"mac":"33:33:00:00:00:01","ifname":"eth0","flags":["self"]}]"#,
                Some(Format::Forwarding),
            ),
            (
                r#"[{"ifindex":4,"ifname":"v","master":"b","priority":32,"cost":2}]"#,
                Some(Format::BridgePorts),
            ),
            (
                r#"[{"dst":"default","dev":"eth0","flags":[]}]"#,
                Some(Format::Routes(Family::V4)),
            ),
            (
                r#"[{"dst":"default","gateway":"fe80::1","dev":"eth0","flags":[]}]"#,
                Some(Format::Routes(Family::V6)),
            ),
            (
                r#"[{"priority":0,"src":"all","table":"local"}]"#,
                Some(Format::RoutingRules(Family::V4)),
            ),
            (
                r#"[{},{"ifindex":1,"ifname":"lo","operstate":"UNKNOWN","addr_info":[]}]"#,
                Some(Format::Links),
            ),
            (
                r#"[{},{"ifindex":1,"ifname":"lo","flags":[],"mtu":65536,"operstate":"UNKNOWN"}]"#,
                Some(Format::LinkDetails),
            ),
            (r#"{ "nftables": [{"metainfo":{}}]}"#, Some(Format::Nft)),
            (r#"{"a":1}"#, None),
            ("[]", None),
            ("", None),
            ("hello\n", None),
        ] {
            assert_eq!(Format::detect(text), format, "{text}");
        }
    }

    #[test]
    fn format_detect_ipsec_states_are_no_policies() {
        for (text, format) in [
            (
                "src 10.0.0.0/24 dst 10.0.1.0/24 \n\tdir out action block priority 0 ptype main \n",
                Some(Format::IpsecPolicies),
            ),
            (
                "src ::/0 dst ::/0 \\\tsocket in priority 0 ptype main \\\n",
                Some(Format::IpsecPolicies),
            ),
            (
                "src 10.0.0.1 dst 10.0.0.2\n\tproto esp spi 0x1 reqid 1 mode tunnel\n",
                None,
            ),
        ] {
            assert_eq!(Format::detect(text), format, "{text}");
        }
    }
}
