//! Parses the output of `bridge -d link`: the ports of bridges with their flags. `ip -d link`
//! prints the same flags in its `bridge_slave` lines.

use std::fmt;
use std::ops::Range;

use indexmap::IndexMap;
use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, MapAccess, Visitor};

use crate::interface_settings as settings;
use crate::json::value::Value;
use crate::text::json::{self, Positions};
use crate::text::problem::{Problem, ProblemKind};
use crate::text::{Field, Line, Text, fields, lines, one_line_parts};
use crate::tool::Format;

/// Ports by interface name, in printed order.
pub type Ports = IndexMap<String, Port>;

/// Port of a bridge.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Port {
    /// Name of the bridge. `None` if it is not printed.
    pub bridge: Option<Text>,
    /// Flags of the interface, such as `UP`. `None` if another line prints them.
    pub flags: Option<Vec<String>>,
    /// Whether all settings are known. `bridge link` prints only some of them without `-d`.
    pub is_detailed: bool,
    /// Printed settings by name.
    settings: IndexMap<String, String>,
    /// Line number, from 1.
    pub line: u32,
}

/// Settings that can affect packets, with the kernel's default (Linux v6.12,
/// `net/bridge/br_if.c`, `new_nbp`). Versions of iproute2 print different subsets.
pub const SETTINGS: [(&str, &str); 18] = [
    ("state", "forwarding"),
    ("hairpin", "off"),
    ("guard", "off"),
    ("root_block", "off"),
    ("learning", "on"),
    ("flood", "on"),
    ("mcast_flood", "on"),
    ("bcast_flood", "on"),
    ("mcast_to_unicast", "off"),
    ("neigh_suppress", "off"),
    ("neigh_vlan_suppress", "off"),
    ("vlan_tunnel", "off"),
    ("isolated", "off"),
    ("locked", "off"),
    ("mab", "off"),
    ("proxy_arp", "off"),
    ("proxy_arp_wifi", "off"),
    ("backup_port", ""),
];

/// Defaults of settings that concern only multicast, reserved addresses and hardware (Linux v6.12,
/// `net/bridge/br_multicast.c`, `br_multicast_add_port`, and `net/bridge/br_if.c`, `new_nbp`).
const OTHER_DEFAULTS: [(&str, &str); 6] = [
    ("backup_nhid", "0"),
    ("fastleave", "off"),
    ("group_fwd_mask", "0"),
    ("learning_sync", "off"),
    ("mcast_max_groups", "0"),
    ("mcast_router", "1"),
];

/// Timers, counters, identifiers, and priorities and costs, which have an effect only with STP.
/// `mcast_fast_leave` and `group_fwd_mask_str` repeat other settings (iproute2 7.1,
/// `ip/iplink_bridge_slave.c`, `bridge_slave_print_opt`).
const NOT_COMPARED: [&str; 16] = [
    "config_pending",
    "cost",
    "designated_bridge",
    "designated_cost",
    "designated_port",
    "designated_root",
    "forward_delay_timer",
    "group_fwd_mask_str",
    "hold_timer",
    "mcast_fast_leave",
    "mcast_n_groups",
    "message_age_timer",
    "port_id",
    "port_no",
    "priority",
    "topology_change_ack",
];

impl Port {
    /// Creates a port of `ip -d link`, which prints all settings.
    pub(crate) fn detailed(bridge: Option<Text>, line: u32) -> Self {
        Self {
            bridge,
            flags: None,
            is_detailed: true,
            settings: IndexMap::new(),
            line,
        }
    }

    /// Returns the value of a setting: the printed value, or else the kernel's default. Empty for
    /// an unknown setting.
    #[must_use]
    pub fn setting(&self, name: &str) -> &str {
        let default = || SETTINGS.iter().find(|(known, _)| *known == name);
        match self.settings.get(name) {
            Some(value) => value,
            None => default().map_or("", |(_, value)| value),
        }
    }

    /// Returns the value of a setting: the printed value, or the kernel's default if the program
    /// prints all settings. `None` if the value is not known.
    #[must_use]
    pub fn known_setting(&self, name: &str) -> Option<&str> {
        let defaults = || SETTINGS.iter().chain(&OTHER_DEFAULTS);
        match self.settings.get(name) {
            Some(value) => Some(value),
            None if self.is_detailed => {
                let default = defaults().find(|(known, _)| *known == name)?;
                Some(default.1)
            }
            None => None,
        }
    }

    /// Returns the names of the printed settings, without counters, timers, identifiers, priorities
    /// and costs.
    pub fn compared_names(&self) -> impl Iterator<Item = &str> {
        let names = self.settings.keys().map(String::as_str);
        names.filter(|name| !NOT_COMPARED.contains(name) && !settings::is_property(name))
    }

    /// Returns the printed settings that are not of the port but of its interface.
    pub(crate) fn common_settings(&self) -> impl Iterator<Item = (&str, String)> {
        let settings = self.settings.iter();
        let common = settings.filter(|(name, _)| settings::is_property(name));
        common.map(|(name, value)| (name.as_str(), value.clone()))
    }

    /// Whether a setting is `on`.
    #[must_use]
    pub fn is_on(&self, name: &str) -> bool {
        self.setting(name) == "on"
    }

    /// Returns the settings that differ from the kernel's defaults.
    pub fn changed_settings(&self) -> impl Iterator<Item = (&'static str, &str)> {
        let all = SETTINGS.iter().map(|(name, default)| (*name, *default));
        let values = all.map(|(name, default)| (name, default, self.setting(name)));
        values
            .filter(|(_, default, value)| default != value)
            .map(|(name, _, value)| (name, value))
    }

    /// Adds settings: `hairpin on guard off`.
    pub(crate) fn add_settings(&mut self, settings: &str) {
        let settings = settings::parse_port(settings).into_iter();
        let settings = settings.map(|(name, value)| (name.to_owned(), value));
        self.settings.extend(settings);
    }
}

/// Parses the output of `bridge link`, also with `-d`, `-o` or `-j`. Lines that cannot be parsed are
/// added to `problems`.
#[must_use]
pub fn parse(text: &Text, problems: &mut Vec<Problem>) -> Ports {
    if json::is_array(text) {
        return parse_json(text, problems);
    }
    let mut ports = Ports::new();
    // Name of the port that settings may follow.
    let mut current = None;
    let lines = lines(text).filter(|line| !line.text.starts_with('#'));
    for line in lines.flat_map(one_line_parts) {
        if line.indented {
            if let Some(port) = current.as_ref().and_then(|name| ports.get_mut(name)) {
                port.add_settings(line.text);
                port.is_detailed = true;
            }
            continue;
        }
        current = None;
        match parse_port(text, line) {
            Some((name, Some(port))) => {
                if let Some(existing) = ports.get(&name) {
                    problems.push(duplicate(&name, existing.line, line.start..line.end()));
                    continue;
                }
                current = Some(name.clone());
                ports.insert(name, port);
            }
            Some((_, None)) => {}
            None => {
                let wrong = ProblemKind::UnknownLine(Format::BridgePorts);
                problems.push(Problem::new(wrong, line.start..line.end()));
            }
        }
    }
    ports
}

fn duplicate(name: &str, line: u32, range: Range<usize>) -> Problem {
    let wrong = ProblemKind::Duplicate {
        item: format!("bridge port `{name}`"),
        line,
    };
    Problem::new(wrong, range)
}

/// Parses `4: veth1@p1: <UP> mtu 1500 master cni0 state forwarding priority 32 cost 2`. Before
/// iproute2 4.15, the operational state follows the name: `4: veth1 state UP @p1: <UP> …`. Returns
/// no port for an interface without a bridge, and for the line of a network card with a switch,
/// which `bridge` prints in addition to the line of the port (iproute2 7.1, `bridge/link.c`,
/// `print_af_spec`).
fn parse_port(text: &Text, line: Line<'_>) -> Option<(String, Option<Port>)> {
    let mut words = fields(line);
    words.next()?.text.strip_suffix(':')?.parse::<u32>().ok()?;
    let name = words.next()?.text;
    let name = name.split(['@', ':']).next()?;
    let mut words = words.skip_while(|word| !word.text.starts_with('<'));
    let flags = words.next()?.text.strip_prefix('<')?.strip_suffix('>')?;
    let words: Vec<Field<'_>> = words.collect();
    let value = |name: &str| {
        let position = words.iter().position(|word| word.text == name)?;
        words.get(position + 1)
    };
    let is_card = words.iter().any(|word| word.text == "hwmode");
    let port = value("master").filter(|_| !is_card).map(|bridge| {
        let mut port = Port {
            is_detailed: false,
            flags: Some(flags.split(',').map(str::to_owned).collect()),
            ..Port::detailed(Some(text.slice(bridge.range())), line.number)
        };
        if let Some(mtu) = value("mtu") {
            port.settings.insert("mtu".to_owned(), mtu.text.to_owned());
        }
        port.add_settings(&text[bridge.range().end..line.end()]);
        port
    });
    (!name.is_empty()).then(|| (name.to_owned(), port))
}

/// Port as `bridge -j link` prints it.
#[derive(Default)]
struct JsonPort<'t> {
    name: &'t str,
    bridge: Option<&'t str>,
    flags: Vec<String>,
    settings: IndexMap<String, String>,
}

impl<'t> Deserialize<'t> for JsonPort<'t> {
    fn deserialize<D: Deserializer<'t>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(JsonPortVisitor)
    }
}

/// Reads the members of a port.
struct JsonPortVisitor;

impl<'t> Visitor<'t> for JsonPortVisitor {
    type Value = JsonPort<'t>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'t>>(self, mut members: A) -> Result<JsonPort<'t>, A::Error> {
        let mut port = JsonPort::default();
        while let Some(member) = members.next_key::<&str>()? {
            match member {
                "ifname" => port.name = members.next_value()?,
                "master" => port.bridge = Some(members.next_value()?),
                "flags" => port.flags = members.next_value()?,
                "ifindex" | "link" | "link_index" => drop(members.next_value::<IgnoredAny>()?),
                _ => {
                    let value = match members.next_value()? {
                        Value::Flag(true) => "on".to_owned(),
                        Value::Flag(false) => "off".to_owned(),
                        other => other.to_string(),
                    };
                    port.settings.insert(member.to_owned(), value);
                }
            }
        }
        if port.name.is_empty() {
            return Err(serde::de::Error::missing_field("ifname"));
        }
        Ok(port)
    }
}

fn parse_json(text: &Text, problems: &mut Vec<Problem>) -> Ports {
    let objects: Vec<JsonPort<'_>> = json::parse_array(text, problems);
    let mut positions = Positions::new(text);
    let mut ports = Ports::new();
    for object in objects {
        let Some(bridge) = object.bridge else {
            continue;
        };
        if object.settings.contains_key("hwmode") {
            continue;
        }
        let port = Port {
            bridge: Some(positions.slice(bridge)),
            flags: Some(object.flags),
            is_detailed: object.settings.contains_key("hairpin"),
            settings: object.settings,
            line: positions.line(object.name),
        };
        if let Some(existing) = ports.get(object.name) {
            let name = positions.slice(object.name);
            problems.push(duplicate(object.name, existing.line, name.range()));
            continue;
        }
        ports.insert(object.name.to_owned(), port);
    }
    ports
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse_valid(text: &str) -> Ports {
        let mut problems = Vec::new();
        let ports = parse(&Text::new(text), &mut problems);
        assert_eq!(problems, []);
        ports
    }

    fn changed(port: &Port) -> Vec<(&str, &str)> {
        port.changed_settings().collect()
    }

    /// Output of iproute2 6.1 on Linux 6.18: `bridge -d link` and `bridge -d -j link`.
    const TEXT: &str = "\
4: veth1@p1: <BROADCAST,MULTICAST,UP,LOWER_UP> mtu 1500 master cni0 state forwarding priority 32 cost 2 
    hairpin on guard off root_block off fastleave off learning on flood on mcast_flood on bcast_flood on mcast_router 1 mcast_to_unicast off neigh_suppress off vlan_tunnel off isolated off locked off 
6: veth2@p2: <BROADCAST,MULTICAST,UP,LOWER_UP> mtu 1500 master cni0 state forwarding priority 32 cost 2 
    hairpin off guard off root_block off fastleave off learning off flood off mcast_flood on bcast_flood on mcast_router 1 mcast_to_unicast off neigh_suppress off vlan_tunnel off isolated on locked off 
";
    const JSON: &str = r#"[{"ifindex":4,"link":"p1","ifname":"veth1","flags":["BROADCAST","MULTICAST","UP","LOWER_UP"],"mtu":1500,"master":"cni0","state":"forwarding","priority":32,"cost":2,"hairpin":true,"guard":false,"root_block":false,"fastleave":false,"learning":true,"flood":true,"mcast_flood":true,"bcast_flood":true,"mcast_router":1,"mcast_to_unicast":false,"neigh_suppress":false,"vlan_tunnel":false,"isolated":false,"locked":false},{"ifindex":6,"link":"p2","ifname":"veth2","flags":["BROADCAST","MULTICAST","UP","LOWER_UP"],"mtu":1500,"master":"cni0","state":"forwarding","priority":32,"cost":2,"hairpin":false,"guard":false,"root_block":false,"fastleave":false,"learning":false,"flood":false,"mcast_flood":true,"bcast_flood":true,"mcast_router":1,"mcast_to_unicast":false,"neigh_suppress":false,"vlan_tunnel":false,"isolated":true,"locked":false}]"#;

    #[test]
    fn parse_iproute2_output_returns_ports() {
        let one_line = TEXT.replace(" \n    ", " \\    ");
        for text in [TEXT, &one_line, JSON] {
            let ports = parse_valid(text);
            assert_eq!(ports.len(), 2);
            assert_eq!(ports["veth1"].bridge.as_deref(), Some("cni0"));
            assert_eq!(changed(&ports["veth1"]), [("hairpin", "on")]);
            let expected = [("learning", "off"), ("flood", "off"), ("isolated", "on")];
            assert_eq!(changed(&ports["veth2"]), expected);
        }
        assert_eq!(parse_valid(TEXT)["veth2"].line, 3);
        // Output of iproute2 4.9.
        let old =
            "4: veth1 state UP @p1: <UP> mtu 1500 master cni0 state blocking priority 32 cost 2 \n";
        let ports = parse_valid(old);
        assert_eq!(changed(&ports["veth1"]), [("state", "blocking")]);
        // A network card with a switch is no port.
        let card = "2: eno1: <UP> mtu 1500 hwmode VEB \n    hairpin on\n";
        assert_eq!(parse_valid(card), Ports::new());
        let card = r#"[{"ifindex":2,"ifname":"eno1","mtu":1500,"hwmode":"VEB"}]"#;
        assert_eq!(parse_valid(card), Ports::new());
    }

    #[test]
    fn parse_invalid_lines_reports_positions() {
        let text =
            "x: veth1: <UP> master b\n4: veth1\n4: veth1: <UP mtu master b\n4: :: <> master b\n";
        let mut problems = Vec::new();
        assert_eq!(parse(&Text::new(text), &mut problems), Ports::new());
        let places: Vec<&str> = problems.iter().map(|p| &text[p.range.clone()]).collect();
        assert_eq!(places, text.lines().collect::<Vec<_>>());
    }

    #[test]
    fn parse_output_without_details_has_unknown_settings() {
        let plain = "6: v1@v2: <UP> mtu 1500 master cni0 state forwarding priority 32 cost 2 \n";
        let port = &parse_valid(plain)["v1"];
        assert_eq!(port.known_setting("state"), Some("forwarding"));
        assert_eq!(port.known_setting("mtu"), Some("1500"));
        assert_eq!(port.known_setting("hairpin"), None);
        let detailed = format!("{plain}    hairpin off novel 7 \n");
        let port = &parse_valid(&detailed)["v1"];
        assert_eq!(port.known_setting("isolated"), Some("off"));
        assert_eq!(port.known_setting("mcast_router"), Some("1"));
        assert_eq!(port.known_setting("novel"), Some("7"));
    }

    #[test]
    fn parse_repeated_port_is_a_problem() {
        let port = "6: v1@v2: <UP> mtu 1500 master cni0 state forwarding priority 32 cost 2\n";
        let card = "6: v1@v2: <UP> mtu 1500 master cni0 hwmode VEB \n    learning off\n";
        assert_eq!(parse_valid(&format!("{port}{card}")).len(), 1);
        let mut problems = Vec::new();
        let ports = parse(&Text::new(format!("{port}{port}")), &mut problems);
        assert_eq!((ports.len(), problems.len()), (1, 1));
    }
}
