//! Parses the output of `ip neigh`: the neighbours of each interface.

use std::fmt;
use std::net::IpAddr;

use serde::Deserialize;

use crate::Mac;
use crate::text::attributes::{Attributes, Grammar, ValueKind};
use crate::text::json::{self, Positions, present};
use crate::text::problem::{Problem, ProblemKind};
use crate::text::{Field, Line, Text, fields, lines};
use crate::tool::Format;

/// Neighbour as `ip neigh` prints it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Neighbour {
    /// IP address.
    pub address: IpAddr,
    /// Name of the interface.
    pub dev: Text,
    /// Link-layer address as printed; an IP address on tunnels. `None` if it is not known.
    pub link_address: Option<Text>,
    /// State of the entry.
    pub state: State,
    /// `router`, `extern_learn`, `managed`, …, in printed order.
    pub flags: Vec<Text>,
    /// Routing protocol that added the entry. `None` if the entry has none.
    pub protocol: Option<Text>,
    /// Line number, from 1.
    pub line: u32,
}

/// State of a neighbour (Linux v6.12, `include/uapi/linux/neighbour.h`, `NUD_*`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum State {
    /// No state yet.
    None,
    /// Being resolved.
    Incomplete,
    /// Resolved, and confirmed recently.
    Reachable,
    /// Resolved, but not confirmed recently.
    Stale,
    /// Resolved, and to be confirmed soon.
    Delay,
    /// Resolved, and being confirmed.
    Probe,
    /// Not resolved: no reply was received.
    Failed,
    /// Set without resolution. The kernel creates such entries for multicast addresses and for
    /// interfaces without ARP.
    NoArp,
    /// Set by a program, and valid until a program removes the entry.
    Permanent,
}

impl State {
    /// Whether the neighbour has not replied, or not yet. The kernel asks a neighbour again and
    /// again as long as packets wait for it.
    #[must_use]
    pub const fn is_unanswered(self) -> bool {
        matches!(self, Self::Incomplete | Self::Failed)
    }
}

/// States as printed. A busy kernel may print several; the last of this list decides.
const STATES: [(&str, State); 9] = [
    ("NONE", State::None),
    ("INCOMPLETE", State::Incomplete),
    ("REACHABLE", State::Reachable),
    ("STALE", State::Stale),
    ("DELAY", State::Delay),
    ("PROBE", State::Probe),
    ("FAILED", State::Failed),
    ("NOARP", State::NoArp),
    ("PERMANENT", State::Permanent),
];

/// Attributes of a neighbour (iproute2 6.1, `ip/ipneigh.c`, `print_neigh`), without statistics.
const NEIGHBOUR: Grammar = &[
    ("dev", ValueKind::Word),
    ("lladdr", ValueKind::Word),
    ("proto", ValueKind::Word),
    ("router", ValueKind::None),
    ("proxy", ValueKind::None),
    ("managed", ValueKind::None),
    ("extern_learn", ValueKind::None),
    ("extern_valid", ValueKind::None),
    ("offload", ValueKind::None),
];

impl Neighbour {
    /// Returns the link-layer address. `None` if it is unknown, or if it is not an Ethernet address.
    #[must_use]
    pub fn mac(&self) -> Option<Mac> {
        self.link_address.as_deref()?.parse().ok()
    }

    /// Whether the kernel resolved the link-layer address itself.
    #[must_use]
    pub fn is_resolved(&self) -> bool {
        let states = [State::Reachable, State::Stale, State::Delay, State::Probe];
        states.contains(&self.state) && self.link_address.is_some()
    }
}

impl State {
    /// Returns the state of a printed word. `None` if the word is not a state.
    fn from_name(word: &str) -> Option<Self> {
        let known = STATES.iter().find(|(name, _)| *name == word);
        known.map(|(_, state)| *state)
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = STATES.iter().find(|(_, state)| state == self);
        f.write_str(word.map_or("", |(word, _)| word))
    }
}

/// Renders the line of `ip neigh`.
impl fmt::Display for Neighbour {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} dev {}", self.address, self.dev)?;
        if let Some(link_address) = &self.link_address {
            write!(f, " lladdr {link_address}")?;
        }
        for flag in &self.flags {
            write!(f, " {flag}")?;
        }
        write!(f, " {}", self.state)?;
        match &self.protocol {
            Some(protocol) => write!(f, " proto {protocol}"),
            None => Ok(()),
        }
    }
}

/// Parses the output of `ip neigh`, also with `-s` or `-j`. Lines that cannot be parsed are skipped
/// and added to `problems`.
#[must_use]
pub fn parse(text: &Text, problems: &mut Vec<Problem>) -> Vec<Neighbour> {
    if json::is_array(text) {
        return parse_json(text, problems);
    }
    let mut neighbours = Vec::new();
    for line in lines(text).filter(|line| !line.text.starts_with('#')) {
        match parse_line(text, line) {
            Ok(neighbour) => neighbours.push(neighbour),
            Err(problem) => problems.push(problem),
        }
    }
    neighbours
}

fn parse_line(text: &Text, line: Line<'_>) -> Result<Neighbour, Problem> {
    let mut words = fields(line);
    let line_problem = || {
        let wrong = ProblemKind::UnknownLine(Format::Neighbours);
        Problem::new(wrong, line.start..line.end())
    };
    let address = words.next().and_then(|word| word.text.parse().ok());
    let address = address.ok_or_else(line_problem)?;
    let mut state = State::None;
    let mut rest: Vec<Field<'_>> = Vec::new();
    while let Some(word) = words.next() {
        match word.text {
            "ref" | "probes" => drop(words.next()),
            // iproute2 prints no space before `probes`: `used 4/4/4probes 0`.
            "used" => {
                if words
                    .next()
                    .is_some_and(|times| times.text.ends_with("probes"))
                {
                    words.next();
                }
            }
            printed => match parse_states(printed.split(',')) {
                Some(found) => state = found,
                None => rest.push(word),
            },
        }
    }
    let attributes = Attributes::parse(text, &mut rest.into_iter(), NEIGHBOUR)?;
    let value = |name: &str| {
        let mut all = attributes.0.iter();
        all.find(|attribute| &*attribute.name == name)?
            .value
            .clone()
    };
    let flags = attributes
        .0
        .iter()
        .filter(|attribute| attribute.value.is_none());
    Ok(Neighbour {
        address,
        dev: value("dev").ok_or_else(line_problem)?,
        link_address: value("lladdr"),
        state,
        flags: flags.map(|attribute| attribute.name.clone()).collect(),
        protocol: value("proto"),
        line: line.number,
    })
}

/// Returns the state that decides. `None` if one of the words is not a state.
fn parse_states<'w>(words: impl Iterator<Item = &'w str>) -> Option<State> {
    let mut decisive = State::None;
    for word in words {
        decisive = decisive.max(State::from_name(word)?);
    }
    Some(decisive)
}

/// Neighbour as `ip -j neigh` prints it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each flag is a member of the JSON"
)]
struct JsonNeighbour<'t> {
    dst: &'t str,
    dev: &'t str,
    #[serde(default)]
    lladdr: Option<&'t str>,
    #[serde(default)]
    state: Vec<&'t str>,
    #[serde(default)]
    protocol: Option<&'t str>,
    #[serde(default, deserialize_with = "present")]
    router: bool,
    #[serde(default, deserialize_with = "present")]
    proxy: bool,
    #[serde(default, deserialize_with = "present")]
    managed: bool,
    #[serde(default, deserialize_with = "present")]
    extern_learn: bool,
    #[serde(default, deserialize_with = "present")]
    extern_valid: bool,
    #[serde(default, deserialize_with = "present")]
    offload: bool,
    #[serde(default, rename = "refcnt", deserialize_with = "present")]
    _references: bool,
    #[serde(default, rename = "used", deserialize_with = "present")]
    _used: bool,
    #[serde(default, rename = "confirmed", deserialize_with = "present")]
    _confirmed: bool,
    #[serde(default, rename = "updated", deserialize_with = "present")]
    _updated: bool,
    #[serde(default, rename = "probes", deserialize_with = "present")]
    _probes: bool,
}

fn parse_json(text: &Text, problems: &mut Vec<Problem>) -> Vec<Neighbour> {
    let objects: Vec<JsonNeighbour<'_>> = json::parse_array(text, problems);
    let mut positions = Positions::new(text);
    let mut neighbours = Vec::with_capacity(objects.len());
    for object in objects {
        let line = positions.line(object.dst);
        let invalid = |value: &str, expected| {
            let wrong = ProblemKind::InvalidValue {
                value: value.to_owned(),
                expected,
            };
            Problem::new(wrong, positions.slice(value).range())
        };
        let Ok(address) = object.dst.parse() else {
            problems.push(invalid(object.dst, "an IP address"));
            continue;
        };
        let Some(state) = parse_states(object.state.iter().copied()) else {
            let words = object.state.first().copied().unwrap_or_default();
            problems.push(invalid(words, "a state such as `REACHABLE`"));
            continue;
        };
        let flags = [
            ("router", object.router),
            ("proxy", object.proxy),
            ("managed", object.managed),
            ("extern_learn", object.extern_learn),
            ("extern_valid", object.extern_valid),
            ("offload", object.offload),
        ];
        let flags = flags.into_iter().filter(|(_, is_set)| *is_set);
        neighbours.push(Neighbour {
            address,
            dev: positions.slice(object.dev),
            link_address: object.lladdr.map(|address| positions.slice(address)),
            state,
            flags: flags.map(|(flag, _)| Text::new(flag)).collect(),
            protocol: object.protocol.map(|protocol| positions.slice(protocol)),
            line,
        });
    }
    neighbours
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse_valid(text: &str) -> Vec<Neighbour> {
        let mut problems = Vec::new();
        let neighbours = parse(&Text::new(text), &mut problems);
        assert_eq!(problems, []);
        neighbours
    }

    fn without_lines(neighbours: Vec<Neighbour>) -> Vec<Neighbour> {
        let without_line = |neighbour| Neighbour {
            line: 0,
            ..neighbour
        };
        neighbours.into_iter().map(without_line).collect()
    }

    /// Output of iproute2 6.1 on Linux 6.18: `ip neigh`, `ip -s neigh` and `ip -j neigh`.
    const TEXT: &str = "\
192.168.50.9 dev eth0 INCOMPLETE 
192.168.50.5 dev eth0 lladdr 02:42:c0:a8:32:05 router extern_learn PERMANENT 
10.244.2.0 dev flannel.1 lladdr 7a:b2:01:02:03:04 PERMANENT 
192.168.50.7 dev eth0 lladdr 02:42:c0:a8:32:07 PERMANENT proto static 
192.168.50.1 dev eth0 lladdr 02:42:c0:a8:32:01 REACHABLE 
192.168.50.8 dev eth0 managed INCOMPLETE 
192.168.50.4 dev eth0 FAILED 
192.168.50.2 dev eth0 lladdr 02:42:c0:a8:32:02 STALE 
fd00:50::1 dev eth0 lladdr 02:42:c0:a8:32:01 router PERMANENT 
";
    const STATISTICS: &str = "\
192.168.50.9 dev eth0  ref 1 used 0/64/0probes 4 INCOMPLETE 
192.168.50.5 dev eth0 lladdr 02:42:c0:a8:32:05 router extern_learn  used 0/0/0probes 0 PERMANENT 
10.244.2.0 dev flannel.1 lladdr 7a:b2:01:02:03:04  used 4/4/4probes 0 PERMANENT 
192.168.50.7 dev eth0 lladdr 02:42:c0:a8:32:07  used 0/0/0probes 0 PERMANENT proto static 
192.168.50.1 dev eth0 lladdr 02:42:c0:a8:32:01  ref 1 used 4/4/4probes 0 REACHABLE 
192.168.50.8 dev eth0 managed  ref 1 used 0/60/0probes 4 INCOMPLETE 
192.168.50.4 dev eth0  used 4/64/1probes 6 FAILED 
192.168.50.2 dev eth0 lladdr 02:42:c0:a8:32:02  used 4/64/4probes 0 STALE 
fd00:50::1 dev eth0 lladdr 02:42:c0:a8:32:01 router  used 0/0/0probes 0 PERMANENT 
";
    const JSON: &str = r#"[{"dst":"192.168.50.9","dev":"eth0","state":["INCOMPLETE"]},{"dst":"192.168.50.5","dev":"eth0","lladdr":"02:42:c0:a8:32:05","router":null,"extern_learn":null,"state":["PERMANENT"]},{"dst":"10.244.2.0","dev":"flannel.1","lladdr":"7a:b2:01:02:03:04","state":["PERMANENT"]},{"dst":"192.168.50.7","dev":"eth0","lladdr":"02:42:c0:a8:32:07","state":["PERMANENT"],"protocol":"static"},{"dst":"192.168.50.1","dev":"eth0","lladdr":"02:42:c0:a8:32:01","refcnt":1,"used":4,"confirmed":4,"updated":4,"probes":0,"state":["REACHABLE"]},{"dst":"192.168.50.8","dev":"eth0","managed":null,"state":["INCOMPLETE"]},{"dst":"192.168.50.4","dev":"eth0","state":["FAILED"]},{"dst":"192.168.50.2","dev":"eth0","lladdr":"02:42:c0:a8:32:02","state":["STALE"]},{"dst":"fd00:50::1","dev":"eth0","lladdr":"02:42:c0:a8:32:01","router":null,"state":["PERMANENT"]}]"#;

    #[test]
    fn parse_iproute2_output_returns_neighbours() {
        let neighbours = parse_valid(TEXT);
        let rendered: Vec<String> = neighbours.iter().map(ToString::to_string).collect();
        let printed: Vec<&str> = TEXT.lines().map(str::trim_end).collect();
        assert_eq!(rendered, printed);
        assert_eq!(neighbours[2].mac(), "7a:b2:01:02:03:04".parse().ok());
        assert_eq!(neighbours[8].line, 9);
        let resolved: Vec<usize> = (0..9).filter(|at| neighbours[*at].is_resolved()).collect();
        assert_eq!(resolved, [4, 7]);
    }

    #[test]
    fn parse_other_forms_returns_same_neighbours() {
        assert_eq!(parse_valid(STATISTICS), parse_valid(TEXT));
        let expected = without_lines(parse_valid(TEXT));
        assert_eq!(without_lines(parse_valid(JSON)), expected);
        // Output of `ip -j -p neigh`, with one member on each line.
        let pretty = JSON.replace("},{", "\n    },{\n        ");
        let neighbours = parse_valid(&pretty);
        assert_eq!(neighbours[8].line, 17);
        assert_eq!(without_lines(neighbours), expected);
        // Output of busybox 1.36.
        let busybox =
            "10.0.0.1 dev eth0 lladdr 02:42:c0:a8:32:01 ref 1 used 0/0/0 probes 4 REACHABLE\n";
        assert_eq!(parse_valid(busybox)[0].state, State::Reachable);
    }

    #[test]
    fn parse_invalid_lines_reports_positions() {
        let text = "eth0 dev x\n10.0.0.1 dev\n10.0.0.1 lladdr 02:00:00:00:00:01\n10.0.0.1 dev eth0 lladr 02:00:00:00:00:01 STALE\n";
        let mut problems = Vec::new();
        assert_eq!(parse(&Text::new(text), &mut problems), []);
        let places: Vec<&str> = problems.iter().map(|p| &text[p.range.clone()]).collect();
        let expected = [
            "eth0 dev x",
            "dev",
            "10.0.0.1 lladdr 02:00:00:00:00:01",
            "lladr",
        ];
        assert_eq!(places, expected);
    }

    #[test]
    fn parse_invalid_json_reports_positions() {
        for (text, place) in [
            (r#"[{"dst":"10.0.0.1","dev":"eth0"},{"dst":"é"#, "é"),
            (r#"[{"dst":"10.0.0","dev":"eth0"}]"#, "10.0.0"),
            (
                r#"[{"dst":"10.0.0.1","dev":"eth0","state":["BUSY"]}]"#,
                "BUSY",
            ),
            (r#"[{"dst":"10.0.0.1","dev":"eth0","x":1}]"#, "\""),
            ("[[[[", "["),
        ] {
            let mut problems = Vec::new();
            let _ = parse(&Text::new(text), &mut problems);
            assert_eq!(problems.len(), 1, "{text}");
            assert_eq!(&text[problems[0].range.clone()], place, "{text}");
        }
    }
}
