//! Parses the output of `bridge fdb`: the forwarding databases of bridges and VXLAN devices.

use std::fmt;
use std::net::IpAddr;

use serde::Deserialize;

use crate::Mac;
use crate::text::attributes::{Attributes, Grammar, ValueKind};
use crate::text::json::{self, Positions};
use crate::text::problem::{Problem, ProblemKind};
use crate::text::{Field, Line, Text, fields, lines};
use crate::tool::Format;

/// Forwarding entry as `bridge fdb` prints it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Link-layer address of the frames. All zeros for frames to unknown addresses.
    pub mac: Mac,
    /// Interface: the port of a bridge, or a VXLAN device.
    pub dev: Text,
    /// Bridge that has the entry. `None` for an entry of the device itself.
    pub bridge: Option<Text>,
    /// Address of the tunnel end that receives the frames. `None` without a tunnel.
    pub remote: Option<IpAddr>,
    /// VLAN number. `None` for an entry of all VLANs.
    pub vlan: Option<u16>,
    /// Properties of a tunnel that differ from those of its device: `port 4789`, `vni 7`,
    /// `src_vni 7`, `via eth1`, `nhid 5`.
    pub tunnel: Vec<(&'static str, Text)>,
    /// Kind of the entry.
    pub state: State,
    /// `extern_learn`, `sticky`, `offload`, …, in printed order.
    pub flags: Vec<Text>,
    /// Line number, from 1.
    pub line: u32,
}

/// Kind of a forwarding entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum State {
    /// Learned from a frame. The entry expires.
    Learned,
    /// Entry that does not expire.
    Static,
    /// Entry that does not expire. In a bridge, frames to the address belong to the node itself.
    Permanent,
}

/// Attributes of an entry (iproute2 6.1, `bridge/fdb.c`, `print_fdb`), without statistics.
const ENTRY: Grammar = &[
    ("dev", ValueKind::Word),
    ("dst", ValueKind::Word),
    ("vlan", ValueKind::Number),
    ("port", ValueKind::Number),
    ("vni", ValueKind::Number),
    ("src_vni", ValueKind::Number),
    ("via", ValueKind::Word),
    ("link-netnsid", ValueKind::Number),
    ("nhid", ValueKind::Number),
    ("master", ValueKind::Word),
    ("self", ValueKind::None),
    ("router", ValueKind::None),
    ("extern_learn", ValueKind::None),
    ("offload", ValueKind::None),
    ("sticky", ValueKind::None),
    ("locked", ValueKind::None),
    ("dynamic", ValueKind::None),
    ("activity_notify", ValueKind::None),
    ("inactive", ValueKind::None),
];

/// Properties of a tunnel, as printed.
const TUNNEL: [&str; 5] = ["port", "vni", "src_vni", "via", "nhid"];

impl Entry {
    /// Whether a program added the entry, so that it does not expire.
    #[must_use]
    pub fn is_static(&self) -> bool {
        let is_external = self.flags.iter().any(|flag| &**flag == "extern_learn");
        self.state != State::Learned || is_external
    }
}

impl State {
    /// Returns the word that `bridge` prints. Empty for learned entries.
    const fn name(self) -> &'static str {
        match self {
            Self::Learned => "",
            Self::Static => "static",
            Self::Permanent => "permanent",
        }
    }

    /// Returns the state of a printed word. `None` if the word is not a state.
    fn from_name(word: &str) -> Option<Self> {
        match word {
            "static" => Some(Self::Static),
            "permanent" => Some(Self::Permanent),
            "" | "stale" => Some(Self::Learned),
            _ => word.starts_with("state=").then_some(Self::Learned),
        }
    }
}

/// Renders the line of `bridge fdb`.
impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} dev {}", self.mac, self.dev)?;
        if let Some(remote) = self.remote {
            write!(f, " dst {remote}")?;
        }
        if let Some(vlan) = self.vlan {
            write!(f, " vlan {vlan}")?;
        }
        for (name, value) in &self.tunnel {
            write!(f, " {name} {value}")?;
        }
        for flag in &self.flags {
            write!(f, " {flag}")?;
        }
        match &self.bridge {
            Some(bridge) => write!(f, " master {bridge}")?,
            None => f.write_str(" self")?,
        }
        match self.state.name() {
            "" => Ok(()),
            name => write!(f, " {name}"),
        }
    }
}

/// Parses the output of `bridge fdb`, also with `-s` or `-j`. Lines that cannot be parsed are
/// skipped and added to `problems`.
#[must_use]
pub fn parse(text: &Text, problems: &mut Vec<Problem>) -> Vec<Entry> {
    if json::is_array(text) {
        return parse_json(text, problems);
    }
    let mut entries = Vec::new();
    for line in lines(text).filter(|line| !line.text.starts_with('#')) {
        match parse_line(text, line) {
            Ok(entry) => entries.push(entry),
            Err(problem) => problems.push(problem),
        }
    }
    entries
}

fn parse_line(text: &Text, line: Line<'_>) -> Result<Entry, Problem> {
    let mut words = fields(line);
    let line_problem = || {
        let wrong = ProblemKind::UnknownLine(Format::Forwarding);
        Problem::new(wrong, line.start..line.end())
    };
    let mac = words.next().and_then(|word| word.text.parse().ok());
    let mac = mac.ok_or_else(line_problem)?;
    let mut state = State::Learned;
    let mut rest: Vec<Field<'_>> = Vec::new();
    while let Some(word) = words.next() {
        match word.text {
            "used" => drop(words.next()),
            // The interface of another namespace has only a number: `via ifindex 5`.
            "ifindex" => {}
            printed => match State::from_name(printed) {
                Some(found) => state = found,
                None => rest.push(word),
            },
        }
    }
    let attributes = Attributes::parse(text, &mut rest.into_iter(), ENTRY)?;
    let value = |name: &str| {
        let mut all = attributes.0.iter();
        all.find(|attribute| &*attribute.name == name)?
            .value
            .clone()
    };
    let remote = value("dst").map(|remote| {
        let invalid = || invalid_value(&remote, "an IP address", remote.range());
        remote.parse().map_err(|_| invalid())
    });
    let vlan = value("vlan").map(|vlan| {
        let invalid = || invalid_value(&vlan, "a VLAN number", vlan.range());
        vlan.parse().map_err(|_| invalid())
    });
    let tunnel = TUNNEL.iter().filter_map(|name| Some((*name, value(name)?)));
    let flags = attributes
        .0
        .iter()
        .filter(|attribute| attribute.value.is_none());
    let flags = flags.filter(|attribute| &*attribute.name != "self");
    Ok(Entry {
        mac,
        dev: value("dev").ok_or_else(line_problem)?,
        bridge: value("master"),
        remote: remote.transpose()?,
        vlan: vlan.transpose()?,
        tunnel: tunnel.collect(),
        state,
        flags: flags.map(|attribute| attribute.name.clone()).collect(),
        line: line.number,
    })
}

fn invalid_value(value: &str, expected: &'static str, range: std::ops::Range<usize>) -> Problem {
    let value = value.to_owned();
    Problem::new(ProblemKind::InvalidValue { value, expected }, range)
}

/// Entry as `bridge -j fdb` prints it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct JsonEntry<'t> {
    mac: &'t str,
    /// Named `dev` before iproute2 4.16.
    #[serde(alias = "dev")]
    ifname: &'t str,
    #[serde(default)]
    dst: Option<&'t str>,
    #[serde(default)]
    vlan: Option<u16>,
    #[serde(default)]
    port: Option<u16>,
    #[serde(default)]
    vni: Option<u32>,
    #[serde(default)]
    src_vni: Option<u32>,
    #[serde(default, rename = "viaIf")]
    via: Option<&'t str>,
    #[serde(default, rename = "viaIfIndex")]
    via_index: Option<u32>,
    #[serde(default, rename = "linkNetNsId")]
    _namespace: Option<i32>,
    #[serde(default)]
    nhid: Option<u32>,
    #[serde(default, rename = "used")]
    _used: Option<u64>,
    #[serde(default, rename = "updated")]
    _updated: Option<u64>,
    #[serde(default)]
    flags: Vec<&'t str>,
    #[serde(default)]
    master: Option<&'t str>,
    #[serde(default)]
    state: &'t str,
}

fn parse_json(text: &Text, problems: &mut Vec<Problem>) -> Vec<Entry> {
    let objects: Vec<JsonEntry<'_>> = json::parse_array(text, problems);
    let mut positions = Positions::new(text);
    let mut entries = Vec::with_capacity(objects.len());
    for object in objects {
        let line = positions.line(object.mac);
        let mut invalid = |value: &str, expected| {
            let range = positions.slice(value).range();
            problems.push(invalid_value(value, expected, range));
        };
        let Ok(mac) = object.mac.parse() else {
            invalid(object.mac, "a link-layer address");
            continue;
        };
        let Ok(remote) = object.dst.map(str::parse).transpose() else {
            invalid(object.dst.unwrap_or_default(), "an IP address");
            continue;
        };
        let Some(state) = State::from_name(object.state) else {
            invalid(object.state, "`static` or `permanent`");
            continue;
        };
        let number = |value: Option<u32>| value.map(|value| Text::new(value.to_string()));
        let via = object.via.map(|via| positions.slice(via));
        let tunnel = [
            ("port", number(object.port.map(u32::from))),
            ("vni", number(object.vni)),
            ("src_vni", number(object.src_vni)),
            ("via", via.or_else(|| number(object.via_index))),
            ("nhid", number(object.nhid)),
        ];
        let tunnel = tunnel
            .into_iter()
            .filter_map(|(name, value)| Some((name, value?)));
        let flags = object.flags.iter().filter(|flag| **flag != "self");
        entries.push(Entry {
            mac,
            dev: positions.slice(object.ifname),
            bridge: object.master.map(|bridge| positions.slice(bridge)),
            remote,
            vlan: object.vlan,
            tunnel: tunnel.collect(),
            state,
            flags: flags.map(|flag| positions.slice(flag)).collect(),
            line,
        });
    }
    entries
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse_valid(text: &str) -> Vec<Entry> {
        let mut problems = Vec::new();
        let entries = parse(&Text::new(text), &mut problems);
        assert_eq!(problems, []);
        entries
    }

    /// Output of iproute2 6.1 on Linux 6.18: `bridge fdb`, `bridge -s fdb` and `bridge -j fdb`.
    const TEXT: &str = "\
33:33:00:00:00:01 dev cni0 self permanent
0a:58:0a:f4:01:01 dev cni0 master cni0 permanent
0a:58:0a:f4:01:11 dev veth1 master cni0 
0a:58:0a:f4:01:14 dev veth3 sticky master cni0 static
0a:58:0a:f4:01:15 dev veth3 vlan 1 master cni0 static
00:00:00:00:00:00 dev flannel.1 dst 192.168.50.13 port 4789 vni 7 via eth0 self permanent
7a:b2:01:02:03:04 dev flannel.1 dst 192.168.50.12 self permanent
";
    const STATISTICS: &str = "\
33:33:00:00:00:01 dev cni0 self permanent
0a:58:0a:f4:01:01 dev cni0 used 4/4 master cni0 permanent
0a:58:0a:f4:01:11 dev veth1 used 4/2 master cni0 
0a:58:0a:f4:01:14 dev veth3 used 0/0 sticky master cni0 static
0a:58:0a:f4:01:15 dev veth3 vlan 1 used 0/0 master cni0 static
00:00:00:00:00:00 dev flannel.1 dst 192.168.50.13 port 4789 vni 7 via eth0 used 2/4 self permanent
7a:b2:01:02:03:04 dev flannel.1 dst 192.168.50.12 used 4/4 self permanent
";
    const JSON: &str = r#"[{"mac":"33:33:00:00:00:01","ifname":"cni0","flags":["self"],"state":"permanent"},{"mac":"0a:58:0a:f4:01:01","ifname":"cni0","used":4,"updated":4,"flags":[],"master":"cni0","state":"permanent"},{"mac":"0a:58:0a:f4:01:11","ifname":"veth1","flags":[],"master":"cni0","state":""},{"mac":"0a:58:0a:f4:01:14","ifname":"veth3","flags":["sticky"],"master":"cni0","state":"static"},{"mac":"0a:58:0a:f4:01:15","ifname":"veth3","vlan":1,"flags":[],"master":"cni0","state":"static"},{"mac":"00:00:00:00:00:00","ifname":"flannel.1","dst":"192.168.50.13","port":4789,"vni":7,"viaIf":"eth0","flags":["self"],"state":"permanent"},{"mac":"7a:b2:01:02:03:04","ifname":"flannel.1","dst":"192.168.50.12","flags":["self"],"state":"permanent"}]"#;

    #[test]
    fn parse_iproute2_output_returns_entries() {
        let entries = parse_valid(TEXT);
        let rendered: Vec<String> = entries.iter().map(ToString::to_string).collect();
        let printed: Vec<&str> = TEXT.lines().map(str::trim_end).collect();
        assert_eq!(rendered, printed);
        assert_eq!(entries[6].remote, "192.168.50.12".parse().ok());
        let learned: Vec<bool> = entries.iter().map(Entry::is_static).collect();
        assert_eq!(learned, [true, true, false, true, true, true, true]);
    }

    #[test]
    fn parse_other_forms_returns_same_entries() {
        assert_eq!(parse_valid(STATISTICS), parse_valid(TEXT));
        let without_line = |entry| Entry { line: 0, ..entry };
        let expected: Vec<Entry> = parse_valid(TEXT).into_iter().map(without_line).collect();
        for json in [JSON.to_owned(), JSON.replace("ifname", "dev")] {
            let entries: Vec<Entry> = parse_valid(&json).into_iter().map(without_line).collect();
            assert_eq!(entries, expected);
        }
        let entry = &parse_valid(
            "0a:58:0a:f4:01:11 dev vx0 dst fd00::1 via ifindex 5 link-netnsid 1 self extern_learn \n",
        )[0];
        assert!(entry.is_static());
        assert_eq!(entry.tunnel, [("via", Text::new("5"))]);
    }

    #[test]
    fn parse_invalid_lines_reports_positions() {
        let text = "0a:58 dev x\n0a:58:0a:f4:01:11 dst 10.0.0.1\n0a:58:0a:f4:01:11 dev x dst y\n\
                    0a:58:0a:f4:01:11 dev x mastr b\n0a:58:0a:f4:01:11 dev x vlan 99999\n";
        let mut problems = Vec::new();
        assert_eq!(parse(&Text::new(text), &mut problems), []);
        let places: Vec<&str> = problems.iter().map(|p| &text[p.range.clone()]).collect();
        let expected = [
            "0a:58 dev x",
            "0a:58:0a:f4:01:11 dst 10.0.0.1",
            "y",
            "mastr",
            "99999",
        ];
        assert_eq!(places, expected);
    }

    #[test]
    fn parse_invalid_json_reports_positions() {
        for (text, place) in [
            (r#"[{"mac":"0a","ifname":"x"}]"#, "0a"),
            (
                r#"[{"mac":"0a:58:0a:f4:01:11","ifname":"x","dst":"y"}]"#,
                "y",
            ),
            (
                r#"[{"mac":"0a:58:0a:f4:01:11","ifname":"x","state":"odd"}]"#,
                "odd",
            ),
        ] {
            let mut problems = Vec::new();
            let _ = parse(&Text::new(text), &mut problems);
            assert_eq!(problems.len(), 1, "{text}");
            assert_eq!(&text[problems[0].range.clone()], place, "{text}");
        }
    }
}
