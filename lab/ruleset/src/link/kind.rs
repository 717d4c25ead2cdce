//! Parses the output of `ip -d link`: the kind of each interface and its details.

use indexmap::IndexMap;

use crate::bridge::port::Port;
use crate::text::problem::{Problem, ProblemKind};
use crate::text::{Text, fields, lines, one_line_parts};
use crate::tool::Format;

/// Kinds of interfaces by interface name, in printed order.
pub type LinkKinds = IndexMap<String, LinkDetails>;

/// Kind of an interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LinkDetails {
    /// Kind as the kernel names it: `veth`, `bridge`, `vxlan`. `None` for hardware.
    pub kind: Option<Text>,
    /// Text after the kind: `id 1 local 10.0.0.1 dev eth0 dstport 8472`.
    pub details: Text,
    /// Settings of the `bridge_slave` line. `None` if the interface is not a bridge port.
    pub bridge_port: Option<Port>,
    /// Line number, from 1.
    pub line: u32,
}

impl LinkDetails {
    /// Returns the word after a name in the details. `None` without the name.
    #[must_use]
    pub fn detail(&self, name: &str) -> Option<&str> {
        let mut words = self.details.split_ascii_whitespace();
        words.find(|word| *word == name)?;
        words.next()
    }

    /// Returns the settings of the kind with their values, in printed order. A switch has an empty
    /// value. Properties of all interfaces, counters, timers and identifiers are not included.
    #[must_use]
    pub fn settings(&self) -> IndexMap<&str, String> {
        let mut settings: IndexMap<&str, String> = IndexMap::new();
        let mut name = "";
        for word in self.details.split_ascii_whitespace() {
            let is_first_value = settings.get(name).is_none_or(String::is_empty);
            let is_value = word.starts_with(|c: char| c.is_ascii_digit())
                || (is_first_value && NAMES_OF_WORDS.contains(&name));
            if !is_value || name.is_empty() {
                name = word;
                settings.insert(name, String::new());
            } else if let Some(value) = settings.get_mut(name) {
                if !value.is_empty() {
                    value.push(' ');
                }
                value.push_str(word);
            }
        }
        settings.retain(|name, _| !IGNORED_DETAILS.contains(name));
        settings
    }
}

/// Details with one value that are not settings of a kind: properties of all interfaces, and
/// counters, timers and identifiers of bridges (iproute2 6.1, `ip/ipaddress.c`,
/// `print_linkinfo`; `ip/iplink_bridge.c`, `bridge_print_opt`).
const IGNORED_DETAILS: [&str; 31] = [
    "addrgenmode",
    "allmulti",
    "bridge_id",
    "designated_root",
    "fdb_n_learned",
    "gc_timer",
    "gro_ipv4_max_size",
    "gro_max_size",
    "gso_ipv4_max_size",
    "gso_max_segs",
    "gso_max_size",
    "hello_timer",
    "maxmtu",
    "minmtu",
    "netns-immutable",
    "numrxqueues",
    "numtxqueues",
    "parentbus",
    "parentdev",
    "portid",
    "portname",
    "promiscuity",
    "root_path_cost",
    "root_port",
    "switchid",
    "tcn_timer",
    "topology_change",
    "topology_change_detected",
    "topology_change_timer",
    "tso_max_segs",
    "tso_max_size",
];

/// Details whose value is a word and not a number or an address.
const NAMES_OF_WORDS: [&str; 12] = [
    "addrgenmode",
    "df",
    "dev",
    "local",
    "mode",
    "parentbus",
    "parentdev",
    "protocol",
    "remote",
    "tos",
    "ttl",
    "vlan_protocol",
];

/// Kinds that a detail line can start with (iproute2 6.1, `ip/iplink*.c`).
const KINDS: [&str; 27] = [
    "bareudp",
    "bond",
    "bridge",
    "dummy",
    "erspan",
    "geneve",
    "gre",
    "gretap",
    "ifb",
    "ip6gre",
    "ip6gretap",
    "ip6tnl",
    "ipip",
    "ipvlan",
    "macvlan",
    "macvtap",
    "netkit",
    "sit",
    "tun",
    "veth",
    "vlan",
    "vrf",
    "vti",
    "vti6",
    "vxlan",
    "wireguard",
    "xfrm",
];

/// Whether a detail line of `ip -d` can start with the word.
pub(super) fn is_detail(word: &str) -> bool {
    KINDS.contains(&word) || word.ends_with("_slave")
}

/// Parses the output of `ip -d link`. Details differ between kinds and versions, so unknown details
/// are ignored. Lines that cannot be parsed are added to `problems`.
#[must_use]
pub fn parse(text: &Text, problems: &mut Vec<Problem>) -> LinkKinds {
    let mut kinds = LinkKinds::new();
    let mut bridge_name = None;
    let all = lines(text).filter(|line| !line.text.starts_with('#'));
    for line in all.flat_map(one_line_parts) {
        let mut words = fields(line);
        let Some(first) = words.next() else {
            continue;
        };
        if !line.indented {
            let number = first.text.strip_suffix(':');
            let name = words.next().and_then(|name| name.text.strip_suffix(':'));
            let (Some(_), Some(name)) = (number.and_then(|n| n.parse::<u32>().ok()), name) else {
                let wrong = ProblemKind::UnknownLine(Format::LinkDetails);
                problems.push(Problem::new(wrong, line.start..line.end()));
                continue;
            };
            let short = name.split('@').next().unwrap_or(name);
            let bridge = words.skip_while(|word| word.text != "master").nth(1);
            bridge_name = bridge.map(|bridge| text.slice(bridge.range()));
            let kind = LinkDetails {
                kind: None,
                details: text.slice(line.end()..line.end()),
                bridge_port: None,
                line: line.number,
            };
            kinds.insert(short.to_owned(), kind);
            continue;
        }
        let Some((_, current)) = kinds.last_mut() else {
            continue;
        };
        let rest = text.slice(first.range().end..line.end());
        if first.text == "bridge_slave" {
            let mut port = Port::new(bridge_name.clone(), line.number);
            port.add_settings(text, words);
            current.bridge_port = Some(port);
        } else if KINDS.contains(&first.text) && current.kind.is_none() {
            current.kind = Some(text.slice(first.range()));
            current.details = rest;
        }
    }
    kinds
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parse_iproute2_output_returns_kinds_and_details() {
        // Output of iproute2 6.1.
        let text = "\
2: eth0: <BROADCAST,MULTICAST,UP,LOWER_UP> mtu 1500 qdisc mq state UP mode DEFAULT group default qlen 1000
    link/ether 02:fc:00:00:00:01 brd ff:ff:ff:ff:ff:ff promiscuity 0  allmulti 0 minmtu 68 maxmtu 65535 addrgenmode eui64 numtxqueues 1
3: flannel.1: <BROADCAST,MULTICAST,UP,LOWER_UP> mtu 1450 qdisc noqueue state UNKNOWN mode DEFAULT group default
    link/ether 0a:58:ec:1f:22:9c brd ff:ff:ff:ff:ff:ff promiscuity 0  allmulti 0 minmtu 68 maxmtu 65535
    vxlan id 1 local 192.168.50.11 dev eth0 srcport 0 0 dstport 8472 nolearning ttl auto ageing 300 udpcsum
4: veth0@if3: <BROADCAST,MULTICAST,UP,LOWER_UP> mtu 1500 qdisc noqueue master cni0 state UP mode DEFAULT group default
    link/ether 0a:58:00:00:00:01 brd ff:ff:ff:ff:ff:ff link-netnsid 1 promiscuity 1
    veth
    bridge_slave state forwarding priority 32 cost 2 hairpin on guard off root_block off
hello
";
        let mut problems = Vec::new();
        let kinds = parse(&Text::new(text), &mut problems);
        assert_eq!(kinds["eth0"].kind, None);
        assert_eq!(kinds["flannel.1"].kind.as_deref(), Some("vxlan"));
        assert_eq!(kinds["flannel.1"].detail("dstport"), Some("8472"));
        assert_eq!(kinds["flannel.1"].detail("local"), Some("192.168.50.11"));
        let port = kinds["veth0"].bridge_port.as_ref().unwrap();
        assert_eq!(port.bridge.as_deref(), Some("cni0"));
        assert_eq!(
            port.changed_settings().collect::<Vec<_>>(),
            [("hairpin", "on")]
        );
        assert_eq!(kinds["eth0"].bridge_port, None);
        let settings = kinds["flannel.1"].settings();
        let settings = settings
            .iter()
            .map(|(name, value)| format!("{name}={value}"));
        assert_eq!(
            settings.collect::<Vec<_>>().join(","),
            "id=1,local=192.168.50.11,dev=eth0,srcport=0 0,dstport=8472,nolearning=,ttl=auto,ageing=300,udpcsum="
        );
        assert_eq!(problems.len(), 1);
        assert_eq!(&text[problems[0].range.clone()], "hello");
        // Output of `ip -o -d link`.
        let one_line = text.replace("\n    ", "\\    ");
        let same = parse(&Text::new(one_line.as_str()), &mut problems);
        assert_eq!(same["flannel.1"].detail("dstport"), Some("8472"));
        assert!(same["veth0"].bridge_port.as_ref().unwrap().is_on("hairpin"));
    }
}
