//! Parses the output of `ip -d link`: the kind of each interface and its details.

use indexmap::IndexMap;

use super::{Link, OWN_LINES, is_function_or_program, is_statistics, parse_headings};
use crate::bridge::port::Port;
use crate::interface_settings::{self as settings, COMMON_SETTINGS, Settings, is_property};
use crate::text::problem::Problem;
use crate::text::{Line, Text, fields, lines, one_line_parts};

/// Kinds of interfaces by interface name, in printed order.
pub type LinkKinds = IndexMap<String, LinkDetails>;

/// Interface as `ip -d link` prints it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LinkDetails {
    /// Properties that `ip addr` prints, too, without addresses.
    pub link: Link,
    /// Whether the kind is known. `ip link` does not print kinds without `-d`.
    pub is_detailed: bool,
    /// Kind as the kernel names it: `veth`, `bridge`, `vxlan`. `None` for hardware, and if the kind
    /// is not known.
    pub kind: Option<Text>,
    /// Text after the kind: `id 1 local 10.0.0.1 dev eth0 dstport 8472`.
    pub details: Text,
    /// Settings of the `bridge_slave` line. `None` if the interface is not a bridge port.
    pub bridge_port: Option<Port>,
    /// First word and settings of the line about another kind of port: `bond_slave`, `vrf_slave`.
    /// `None` without one.
    pub port: Option<(Text, Text)>,
    /// Lines of virtual functions and XDP programs, and lines of unknown meaning.
    pub other_lines: Vec<Text>,
    /// Text after the link-layer address, such as `promiscuity 0 minmtu 68 maxmtu 65535`.
    properties: Text,
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
    /// value. Properties of all interfaces, counters, timers and identifiers are not included, nor
    /// defaults of switches of `vxlan`.
    #[must_use]
    pub fn settings(&self) -> Settings<'_> {
        let mut settings = settings::parse_kind(&self.details);
        settings.retain(|name, _| !is_property(name) && !VOLATILE.contains(name));
        match self.kind.as_deref() {
            Some("vxlan") => settings::normalize_vxlan(settings),
            _ => settings,
        }
    }

    /// Returns the settings of a port of a bond or another controller. Bridge ports have their own
    /// type, [`Port`].
    #[must_use]
    pub fn port_settings(&self) -> Settings<'_> {
        let text = self.port.as_ref().map_or("", |(_, settings)| settings);
        let mut settings = settings::parse_port(text);
        settings.retain(|name, _| !is_property(name) && !VOLATILE.contains(name));
        settings
    }

    /// Returns the settings that interfaces of all kinds have, such as `addrgenmode`. Versions of
    /// iproute2 print different ones.
    #[must_use]
    pub fn common_settings(&self) -> Settings<'_> {
        let port = self.port.as_ref().map_or("", |(_, settings)| settings);
        let mut all = Settings::new();
        all.extend(settings::parse_kind(&self.properties));
        all.extend(settings::parse_kind(&self.details));
        all.extend(settings::parse_port(port));
        if let Some(port) = &self.bridge_port {
            all.extend(port.common_settings());
        }
        all.retain(|name, _| COMMON_SETTINGS.contains(name));
        all
    }
}

/// Counters, timers and identifiers of bridges, HSR interfaces and ports of bonds (iproute2 7.1,
/// `ip/iplink_bridge.c`, `bridge_print_opt`; `ip/iplink_hsr.c`; `ip/iplink_bond_slave.c`).
const VOLATILE: [&str; 14] = [
    "bridge_id",
    "designated_root",
    "fdb_n_learned",
    "gc_timer",
    "hello_timer",
    "link_failure_count",
    "perm_hwaddr",
    "root_path_cost",
    "root_port",
    "sequence",
    "tcn_timer",
    "topology_change",
    "topology_change_detected",
    "topology_change_timer",
];

/// Parses the output of `ip -d link`, also with `-o` and `-s`, and of `ip link`. Lines that cannot be
/// parsed are added to `problems`.
#[must_use]
pub fn parse(text: &Text, problems: &mut Vec<Problem>) -> LinkKinds {
    let mut kinds: LinkKinds = parse_headings(text, problems)
        .into_iter()
        .map(|(name, link)| (name, LinkDetails::new(text, link)))
        .collect();
    let by_line: IndexMap<u32, usize> = kinds
        .values()
        .enumerate()
        .map(|(index, kind)| (kind.line, index))
        .collect();
    let mut current = None;
    let all = lines(text).filter(|line| !line.text.starts_with('#'));
    for line in all.flat_map(one_line_parts) {
        if !line.indented {
            current = by_line.get(&line.number).copied();
        } else if let Some((_, kind)) = current.and_then(|index| kinds.get_index_mut(index)) {
            kind.add_line(text, line);
        }
    }
    if kinds.values().any(|kind| kind.is_detailed) {
        for kind in kinds.values_mut() {
            kind.is_detailed = true;
        }
    }
    kinds
}

impl LinkDetails {
    /// Creates an interface whose kind is not known.
    fn new(text: &Text, link: Link) -> Self {
        let empty = text.slice(0..0);
        Self {
            line: link.line,
            is_detailed: false,
            kind: None,
            details: empty.clone(),
            bridge_port: None,
            port: None,
            other_lines: Vec::new(),
            properties: empty,
            link: Link {
                addresses: Vec::new(),
                ..link
            },
        }
    }

    /// Adds a further line of the interface.
    fn add_line(&mut self, text: &Text, line: Line<'_>) {
        let mut words = fields(line);
        let Some(first) = words.next() else {
            return;
        };
        if OWN_LINES.contains(&first.text) || is_statistics(line.text) {
            return;
        }
        let rest = text.slice(first.range().end..line.end());
        if first.text.starts_with("link/") {
            let properties = words.find(|word| word.text == "promiscuity");
            if let Some(first) = properties {
                self.is_detailed = true;
                self.properties = text.slice(first.start..line.end());
            }
        } else if is_function_or_program(first.text) {
            self.other_lines.push(text.slice(line.start..line.end()));
        } else if first.text == "bridge_slave" {
            let bridge = self.link.attributes.0.iter();
            let mut bridge = bridge.filter(|attribute| &*attribute.name == "master");
            let bridge = bridge.next().and_then(|bridge| bridge.value.clone());
            let mut port = Port::detailed(bridge, line.number);
            port.add_settings(&rest);
            self.bridge_port = Some(port);
            self.is_detailed = true;
        } else if first.text.ends_with("_slave") {
            self.port = Some((text.slice(first.range()), rest));
            self.is_detailed = true;
        } else if self.port.is_some() || self.bridge_port.is_some() {
            self.other_lines.push(text.slice(line.start..line.end()));
        } else if self.kind.is_none() {
            self.kind = Some(text.slice(first.range()));
            self.details = rest;
            self.is_detailed = true;
        } else {
            // A kind with several lines, such as the priorities of `vlan` (iproute2 7.1,
            // `ip/iplink_vlan.c`, `vlan_print_map`).
            let further = text.slice(line.start..line.end());
            self.details = Text::new(format!("{} {further}", self.details));
        }
    }
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
            "id=1,local=192.168.50.11,dev=eth0,srcport=0 0,dstport=8472,nolearning=,ttl=auto,ageing=300"
        );
        assert_eq!(problems.len(), 1);
        assert_eq!(&text[problems[0].range.clone()], "hello");
        // Output of `ip -o -d link`.
        let one_line = text.replace("\n    ", "\\    ");
        let same = parse(&Text::new(one_line.as_str()), &mut problems);
        assert_eq!(same["flannel.1"].detail("dstport"), Some("8472"));
        assert!(same["veth0"].bridge_port.as_ref().unwrap().is_on("hairpin"));
    }

    #[test]
    fn parse_unknown_lines_and_kinds_are_kept() {
        let text = "\
2: eth0: <UP> mtu 1500 qdisc mq state UP
    link/ether 02:fc:00:00:00:01 brd ff:ff:ff:ff:ff:ff promiscuity 0 addrgenmode eui64
    bond_slave state ACTIVE mii_status UP link_failure_count 0 queue_id 7 gso_max_size 65536
    vf 0     link/ether 02:00:00:00:00:02, vlan 100
3: eth0.5@eth0: <UP> mtu 1500 qdisc noqueue state UP
    link/ether 02:fc:00:00:00:01 brd ff:ff:ff:ff:ff:ff promiscuity 0
    vlan protocol 802.1Q id 5 <REORDER_HDR>
      ingress-qos-map { 1:2 } addrgenmode none
4: new0: <UP> mtu 1500
    link/ether 02:fc:00:00:00:01 brd ff:ff:ff:ff:ff:ff promiscuity 0
    novel colour red
    inet 10.0.0.1/24 scope global new0
";
        let mut problems = Vec::new();
        let kinds = parse(&Text::new(text), &mut problems);
        assert_eq!(problems, []);
        let render = |settings: Settings<'_>| {
            let settings = settings
                .iter()
                .map(|(name, value)| format!("{name}={value}"));
            settings.collect::<Vec<_>>().join(", ")
        };
        let eth0 = &kinds["eth0"];
        assert_eq!(eth0.kind, None);
        insta::assert_snapshot!(render(eth0.port_settings()), @"state=ACTIVE, mii_status=UP, queue_id=7");
        insta::assert_snapshot!(render(eth0.common_settings()), @"addrgenmode=eui64, gso_max_size=65536");
        insta::assert_snapshot!(&*eth0.other_lines[0], @"vf 0     link/ether 02:00:00:00:00:02, vlan 100");
        let vlan = &kinds["eth0.5"];
        insta::assert_snapshot!(render(vlan.settings()), @"protocol=802.1Q, id=5, <REORDER_HDR>=, ingress-qos-map={ 1:2 }");
        insta::assert_snapshot!(render(vlan.common_settings()), @"addrgenmode=none");
        assert_eq!(kinds["new0"].kind.as_deref(), Some("novel"));
        assert_eq!(kinds["new0"].detail("colour"), Some("red"));
    }

    #[test]
    fn parse_repeated_interface_is_a_problem() {
        let text =
            "2: a: <UP> mtu 1500\n    link/ether 02:fc:00:00:00:01 promiscuity 0\n    vxlan id 1\n";
        let mut problems = Vec::new();
        let second = text.replace("id 1", "id 2");
        let kinds = parse(&Text::new(format!("{text}{second}")), &mut problems);
        assert_eq!(kinds["a"].detail("id"), Some("1"));
        let messages = problems.iter().map(|problem| problem.kind.to_string());
        insta::assert_snapshot!(messages.collect::<String>(), @"interface `a` is listed twice; first at line 1");
    }

    #[test]
    fn parse_output_without_details_has_unknown_kinds() {
        let text = "2: a: <UP> mtu 1500\n    link/ether 02:fc:00:00:00:01\n";
        let kinds = parse(&Text::new(text), &mut Vec::new());
        assert!(!kinds["a"].is_detailed);
    }
}
