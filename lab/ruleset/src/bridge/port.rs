//! Parses the output of `bridge -d link`: the ports of bridges with their flags. `ip -d link`
//! prints the same flags in its `bridge_slave` lines.

use std::fmt;

use indexmap::IndexMap;
use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, MapAccess, Visitor};

use crate::text::json::{self, Positions};
use crate::text::problem::{Problem, ProblemKind};
use crate::text::{Field, Line, Text, fields, lines};
use crate::tool::Format;

/// Ports by interface name, in printed order.
pub type Ports = IndexMap<String, Port>;

/// Port of a bridge.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Port {
    /// Name of the bridge. `None` if it is not printed.
    pub bridge: Option<Text>,
    /// Printed settings that can affect packets, by name in [`SETTINGS`].
    settings: Vec<(&'static str, Text)>,
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

impl Port {
    /// Creates a port with the kernel's default settings.
    pub(crate) const fn new(bridge: Option<Text>, line: u32) -> Self {
        Self {
            bridge,
            settings: Vec::new(),
            line,
        }
    }

    /// Returns the value of a setting: the printed value, or else the kernel's default. Empty for
    /// an unknown setting.
    #[must_use]
    pub fn setting(&self, name: &str) -> &str {
        let printed = self.settings.iter().find(|(known, _)| *known == name);
        let default = || SETTINGS.iter().find(|(known, _)| *known == name);
        match printed {
            Some((_, value)) => value,
            None => default().map_or("", |(_, value)| value),
        }
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

    /// Adds the settings among these words: `hairpin on guard off`.
    pub(crate) fn add_settings<'w>(&mut self, text: &Text, words: impl Iterator<Item = Field<'w>>) {
        let mut words = words.peekable();
        while let Some(word) = words.next() {
            if let Some((name, _)) = SETTINGS.iter().find(|(name, _)| *name == word.text)
                && let Some(value) = words.next()
            {
                self.settings.push((name, text.slice(value.range())));
            }
        }
    }
}

/// Parses the output of `bridge link`, also with `-d`, `-o` or `-j`. Settings without an effect on
/// packets are ignored. Lines that cannot be parsed are added to `problems`.
#[must_use]
pub fn parse(text: &Text, problems: &mut Vec<Problem>) -> Ports {
    if json::is_array(text) {
        return parse_json(text, problems);
    }
    let mut ports = Ports::new();
    // Whether the last line of an interface was that of a port, which settings may follow.
    let mut follows_port = false;
    for line in lines(text).filter(|line| !line.text.starts_with('#')) {
        if line.indented {
            if let Some((_, port)) = ports.last_mut().filter(|_| follows_port) {
                port.add_settings(text, fields(line));
            }
            continue;
        }
        let parsed = parse_port(text, line);
        follows_port = matches!(&parsed, Some((_, Some(_))));
        match parsed {
            Some((name, Some(port))) => drop(ports.insert(name, port)),
            Some((_, None)) => {}
            None => {
                let wrong = ProblemKind::UnknownLine(Format::BridgePorts);
                problems.push(Problem::new(wrong, line.start..line.end()));
            }
        }
    }
    ports
}

/// Parses `4: veth1@p1: <UP> mtu 1500 master cni0 state forwarding priority 32 cost 2`. Before
/// iproute2 4.15, the operational state follows the name: `4: veth1 state UP @p1: <UP> …`. Returns
/// no port for an interface without a bridge, which a network card with a switch prints.
fn parse_port(text: &Text, line: Line<'_>) -> Option<(String, Option<Port>)> {
    let mut words = fields(line);
    words.next()?.text.strip_suffix(':')?.parse::<u32>().ok()?;
    let name = words.next()?.text;
    let name = name.split(['@', ':']).next()?;
    let mut words = words.skip_while(|word| !word.text.starts_with('<'));
    words.next().filter(|flags| flags.text.ends_with('>'))?;
    let mut rest = words.skip_while(|word| word.text != "master").skip(1);
    let bridge = rest.next();
    let port = bridge.map(|bridge| {
        let mut port = Port::new(Some(text.slice(bridge.range())), line.number);
        port.add_settings(text, rest);
        port
    });
    (!name.is_empty()).then(|| (name.to_owned(), port))
}

/// Port as `bridge -j link` prints it.
#[derive(Default)]
struct JsonPort<'t> {
    name: &'t str,
    bridge: Option<&'t str>,
    settings: Vec<(&'static str, Text)>,
}

/// Value of a setting.
#[derive(Deserialize)]
#[serde(untagged)]
enum JsonSetting<'t> {
    Flag(bool),
    Word(&'t str),
    Number(u64),
}

impl<'t> Deserialize<'t> for JsonPort<'t> {
    fn deserialize<D: Deserializer<'t>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(JsonPortVisitor)
    }
}

/// Reads the members of a port. Members that are no settings are not kept.
struct JsonPortVisitor;

impl<'t> Visitor<'t> for JsonPortVisitor {
    type Value = JsonPort<'t>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'t>>(self, mut members: A) -> Result<JsonPort<'t>, A::Error> {
        let mut port = JsonPort::default();
        while let Some(member) = members.next_key::<&str>()? {
            let setting = SETTINGS.iter().find(|(name, _)| *name == member);
            match (member, setting) {
                ("ifname", _) => port.name = members.next_value()?,
                ("master", _) => port.bridge = Some(members.next_value()?),
                (_, Some((name, _))) => {
                    let value = match members.next_value()? {
                        JsonSetting::Flag(true) => Text::new("on"),
                        JsonSetting::Flag(false) => Text::new("off"),
                        JsonSetting::Word(word) => Text::new(word),
                        JsonSetting::Number(number) => Text::new(number.to_string()),
                    };
                    port.settings.push((name, value));
                }
                _ => drop(members.next_value::<IgnoredAny>()?),
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
        let port = Port {
            bridge: Some(positions.slice(bridge)),
            settings: object.settings,
            line: positions.line(object.name),
        };
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
}
