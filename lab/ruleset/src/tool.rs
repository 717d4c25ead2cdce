//! Identifies the program that printed a file, from the file name or from the content.

use std::fmt;
use std::net::IpAddr;

use ipnetwork::IpNetwork;

use crate::{Family, Mac};

/// Format of a file in a dump.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Format {
    /// Output of `iptables-save` or `ip6tables-save`. If both backends are in use, the legacy rules
    /// are the output of `iptables-legacy-save`.
    Rules(Family, DumpedBackend),
    /// Output of `ipset save`.
    Sets,
    /// Output of `nft list ruleset`.
    Nft,
    /// Output of `ipvsadm -Sn`.
    VirtualServers,
    /// Output of `ip addr`.
    Links,
    /// Output of `ip -d link`.
    LinkDetails,
    /// Output of `bridge -d link`.
    BridgePorts,
    /// Output of `bridge fdb`.
    Forwarding,
    /// Output of `ip neigh`.
    Neighbours,
    /// Output of `ip route`, for one table or for all tables (`table all`).
    Routes(Family),
    /// Output of `ip rule`.
    RoutingRules(Family),
    /// Output of `tc -d qdisc`.
    Qdiscs,
    /// Output of `tc class show` for each interface with classes.
    TrafficClasses,
    /// Output of `tc filter show` for each interface with filters.
    TrafficFilters,
    /// Output of `conntrack -L`.
    Connections,
    /// Output of `sysctl -a`.
    Sysctls,
    /// Command line of kube-proxy, one argument per line.
    ProxyFlags,
    /// Configuration file of kube-proxy.
    ProxyConfiguration,
}

/// Backend of an iptables dump.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DumpedBackend {
    /// Backend of `iptables-save` on the node, or the only backend.
    Default,
    /// `iptables-legacy`, in addition to another backend.
    Legacy,
}

/// File names of each format, without the part before the last dot. svclab writes the first name.
const FILE_NAMES: [(Format, &[&str]); 22] = [
    (
        Format::Rules(Family::V4, DumpedBackend::Default),
        &["iptables-save", "iptables-nft-save", "iptables"],
    ),
    (
        Format::Rules(Family::V6, DumpedBackend::Default),
        &["ip6tables-save", "ip6tables-nft-save", "ip6tables"],
    ),
    (
        Format::Rules(Family::V4, DumpedBackend::Legacy),
        &["iptables-legacy-save"],
    ),
    (
        Format::Rules(Family::V6, DumpedBackend::Legacy),
        &["ip6tables-legacy-save"],
    ),
    (Format::Sets, &["ipset-save", "ipset"]),
    (Format::Nft, &["nft", "nft-list-ruleset", "nftables"]),
    (
        Format::VirtualServers,
        &["ipvsadm-Sn", "ipvsadm-sn", "ipvsadm"],
    ),
    (Format::Links, &["ip-addr", "ip-address", "ip-a"]),
    (Format::LinkDetails, &["ip-link", "ip-d-link"]),
    (Format::BridgePorts, &["bridge-link", "bridge-d-link"]),
    (Format::Forwarding, &["bridge-fdb", "bridge-fdb-show"]),
    (
        Format::Neighbours,
        &["ip-neigh", "ip-neighbour", "ip-neigh-show"],
    ),
    (
        Format::Routes(Family::V4),
        &["ip-route", "ip-4-route", "ip-route-table-all"],
    ),
    (
        Format::Routes(Family::V6),
        &["ip-6-route", "ip-6-route-table-all"],
    ),
    (Format::RoutingRules(Family::V4), &["ip-rule", "ip-4-rule"]),
    (Format::RoutingRules(Family::V6), &["ip-6-rule"]),
    (Format::Qdiscs, &["tc-qdisc", "tc-qdisc-show", "tc-d-qdisc"]),
    (Format::TrafficClasses, &["tc-class"]),
    (Format::TrafficFilters, &["tc-filter"]),
    (Format::Connections, &["conntrack-L"]),
    (Format::ProxyFlags, &["kube-proxy-cmdline"]),
    (Format::ProxyConfiguration, &["kube-proxy-config"]),
];

/// File names of sysctl output. svclab writes the first name.
const SYSCTL_FILE_NAMES: [&str; 3] = ["sysctl-a", "sysctl", "sysctls"];

impl Format {
    /// Returns the format for a file name: `iptables-save`, but also `node-1.iptables-save` and
    /// `iptables-save.txt`. `None` for other names.
    #[must_use]
    pub fn from_file_name(name: &str) -> Option<Self> {
        let name = name.strip_suffix(".txt").unwrap_or(name);
        let last = name.rsplit('.').next().unwrap_or(name);
        if SYSCTL_FILE_NAMES.contains(&last) {
            return Some(Self::Sysctls);
        }
        FILE_NAMES
            .iter()
            .find(|(_, names)| names.contains(&last))
            .map(|(format, _)| *format)
    }

    /// Returns the file name that svclab writes for this format.
    #[must_use]
    pub fn file_name(self) -> &'static str {
        match self {
            Self::Sysctls => SYSCTL_FILE_NAMES[0],
            _ => FILE_NAMES
                .iter()
                .find(|(format, _)| *format == self)
                .map_or("", |(_, names)| names[0]),
        }
    }

    /// Returns the command that prints this format.
    #[must_use]
    pub fn command(self) -> &'static str {
        match self {
            Self::Rules(Family::V4, DumpedBackend::Default) => "iptables-save",
            Self::Rules(Family::V6, DumpedBackend::Default) => "ip6tables-save",
            Self::Rules(Family::V4, DumpedBackend::Legacy) => "iptables-legacy-save",
            Self::Rules(Family::V6, DumpedBackend::Legacy) => "ip6tables-legacy-save",
            Self::Sets => "ipset save",
            Self::Nft => "nft list ruleset",
            Self::VirtualServers => "ipvsadm -Sn",
            Self::Links => "ip addr",
            Self::LinkDetails => "ip -d link",
            Self::BridgePorts => "bridge -d link",
            Self::Forwarding => "bridge fdb",
            Self::Neighbours => "ip neigh",
            Self::Routes(Family::V4) => "ip route",
            Self::Routes(Family::V6) => "ip -6 route",
            Self::RoutingRules(Family::V4) => "ip rule",
            Self::RoutingRules(Family::V6) => "ip -6 rule",
            Self::Qdiscs => "tc qdisc",
            Self::TrafficClasses => "tc class",
            Self::TrafficFilters => "tc filter",
            Self::Connections => "conntrack -L",
            Self::Sysctls => "sysctl -a",
            Self::ProxyFlags => "tr '\\0' '\\n' < /proc/PID/cmdline",
            Self::ProxyConfiguration => "cat kube-proxy.conf",
        }
    }

    /// Whether the program prints something on every node. Each node has the interface `lo`, three
    /// IPv4 routing rules (Linux, `net/ipv4/fib_rules.c`, `fib_default_rules_init`) and sysctls.
    /// IPv6 may be disabled.
    #[must_use]
    pub const fn is_never_empty(self) -> bool {
        matches!(
            self,
            Self::Links | Self::LinkDetails | Self::RoutingRules(Family::V4) | Self::Sysctls
        )
    }

    /// Returns the format of a text, from the first of its first 64 lines that only one program
    /// prints. `None` if there is no such line: an empty text may come from any program.
    #[must_use]
    pub fn detect(text: &str) -> Option<Self> {
        if is_json_array(text) {
            return detect_json(text);
        }
        if is_nft_json(text) {
            return Some(Self::Nft);
        }
        let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
        lines.take(64).find_map(detect_line)
    }

    /// Whether the JSON output of the program is supported, too.
    #[must_use]
    pub const fn has_json(self) -> bool {
        matches!(
            self,
            Self::BridgePorts
                | Self::Forwarding
                | Self::Neighbours
                | Self::Links
                | Self::LinkDetails
                | Self::Routes(_)
                | Self::RoutingRules(_)
                | Self::Nft
        )
    }

    /// Whether a text detected as `other` may have this format. Not every text shows the family of
    /// rules and routes, or the iptables backend.
    #[must_use]
    pub fn is_compatible_with(self, other: Self) -> bool {
        let is_same_kind = std::mem::discriminant(&self) == std::mem::discriminant(&other);
        is_same_kind || (self, other) == (Self::LinkDetails, Self::Links)
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.command())
    }
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
    if words.clone().any(|word| word == "priority") && words.any(|word| word == "cost") {
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
        Some(Format::Links)
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
    fn format_from_file_name_known_names_are_recognised() {
        for (name, format) in [
            (
                "iptables-save",
                Format::Rules(Family::V4, DumpedBackend::Default),
            ),
            (
                "a.cidr.ip6tables-save",
                Format::Rules(Family::V6, DumpedBackend::Default),
            ),
            (
                "iptables-legacy-save",
                Format::Rules(Family::V4, DumpedBackend::Legacy),
            ),
            ("ipvsadm-Sn", Format::VirtualServers),
            ("ipset-save.txt", Format::Sets),
            ("a.cidr.nft", Format::Nft),
            ("ip-6-route", Format::Routes(Family::V6)),
            ("sysctl-a", Format::Sysctls),
        ] {
            assert_eq!(Format::from_file_name(name), Some(format), "{name}");
            assert_eq!(Format::from_file_name(format.file_name()), Some(format));
        }
        assert_eq!(Format::from_file_name("notes"), None);
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
                r#"[{},{"ifindex":1,"ifname":"lo","flags":[],"mtu":65536,"operstate":"UNKNOWN"}]"#,
                Some(Format::Links),
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
}
