//! Parses the output of `ip route` for one table or for all tables.

mod names;
pub mod rule;
#[cfg(test)]
mod tests;

use crate::Family;
use crate::text::attributes::{Attributes, Grammar, ValueKind};
use crate::text::problem::{Problem, ProblemKind};
use crate::text::{Line, Text, fields, lines, one_line_parts};
use crate::tool::Format;

/// Route as `ip route` prints it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Route {
    /// Address family of the route.
    pub ip: Family,
    /// Route type, such as `local` or `blackhole`. `None` if none is printed, which means
    /// `unicast`.
    pub kind: Option<Text>,
    /// Destination: `default`, an address or a network.
    pub to: Text,
    /// `via`, `dev`, `table`, `proto`, `scope`, `src`, `metric`, `onlink`, …
    pub attributes: Attributes,
    /// Next hops of a multipath route. Empty for other routes.
    pub hops: Vec<Attributes>,
    /// Properties of the next hop object, which only `ip -d` prints.
    pub object: Option<Text>,
    /// Text of the route as printed.
    pub source_text: Text,
    /// Line number, from 1.
    pub line: u32,
}

impl Route {
    /// Returns the routing table. `ip` does not print `main`.
    #[must_use]
    pub fn table(&self) -> &str {
        self.attributes.get("table").unwrap_or("main")
    }

    /// Returns the canonical properties of the next hop object, which only `ip -d` prints.
    #[must_use]
    pub fn canonical_object(&self) -> Option<String> {
        self.object.as_deref().map(names::canonical_object)
    }

    /// Returns the text as printed in one line, without the properties of the next hop object.
    #[must_use]
    pub fn one_line(&self) -> String {
        let parts = self.source_text.split(['\n', '\\']);
        let parts = parts.filter(|part| !part.trim_ascii_start().starts_with(OBJECT));
        let words = parts.flat_map(str::split_ascii_whitespace);
        words.collect::<Vec<_>>().join(" ")
    }
}

/// Start of a line about a next hop object.
const OBJECT: &str = "nh_info ";

/// Attributes that `ip` prints only with `-d`.
const DEFAULTS: [(&str, &str); 3] = [("table", "main"), ("proto", "boot"), ("scope", "global")];

/// Attributes of a route (iproute2 6.1, `ip/iproute.c`).
const ROUTE: Grammar = &[
    ("via", ValueKind::Gateway),
    ("dev", ValueKind::Word),
    ("table", ValueKind::Word),
    ("proto", ValueKind::Word),
    ("scope", ValueKind::Word),
    ("src", ValueKind::Word),
    ("from", ValueKind::Word),
    ("metric", ValueKind::Number),
    ("tos", ValueKind::Word),
    ("dsfield", ValueKind::Word),
    ("mtu", ValueKind::Lockable),
    ("advmss", ValueKind::Lockable),
    ("hoplimit", ValueKind::Lockable),
    ("window", ValueKind::Lockable),
    ("rtt", ValueKind::Lockable),
    ("rttvar", ValueKind::Lockable),
    ("rto_min", ValueKind::Lockable),
    ("ssthresh", ValueKind::Lockable),
    ("cwnd", ValueKind::Lockable),
    ("initcwnd", ValueKind::Lockable),
    ("initrwnd", ValueKind::Lockable),
    ("reordering", ValueKind::Lockable),
    ("features", ValueKind::Word),
    ("quickack", ValueKind::Word),
    ("congctl", ValueKind::Lockable),
    ("fastopen_no_cookie", ValueKind::Word),
    ("ttl-propagate", ValueKind::Word),
    ("ttl-propogate", ValueKind::Word),
    ("realm", ValueKind::Word),
    ("realms", ValueKind::Word),
    ("error", ValueKind::Word),
    ("expires", ValueKind::Word),
    ("pref", ValueKind::Word),
    ("nhid", ValueKind::Number),
    ("weight", ValueKind::Number),
    ("uid", ValueKind::Number),
    ("mark", ValueKind::Number),
    ("users", ValueKind::Number),
    ("used", ValueKind::Number),
    ("age", ValueKind::Word),
    ("iif", ValueKind::Word),
    (
        "encap",
        ValueKind::Until(&["via", "dev", "nexthop", "scope"]),
    ),
    ("onlink", ValueKind::None),
    ("linkdown", ValueKind::None),
    ("dead", ValueKind::None),
    ("pervasive", ValueKind::None),
    ("offload", ValueKind::None),
    ("offload_failed", ValueKind::None),
    ("rt_offload", ValueKind::None),
    ("rt_offload_failed", ValueKind::None),
    ("trap", ValueKind::None),
    ("rt_trap", ValueKind::None),
    ("unresolved", ValueKind::None),
    ("notify", ValueKind::None),
    ("cache", ValueKind::None),
];

/// Parses the output of `ip route`. Lines that cannot be parsed are skipped and added to
/// `problems`. `ip` is the family of routes whose text does not show the family.
#[must_use]
pub fn parse(text: &Text, ip: Family, problems: &mut Vec<Problem>) -> Vec<Route> {
    let mut routes: Vec<Route> = Vec::new();
    let mut follows_valid_route = true;
    let content = lines(text).filter(|line| !line.text.starts_with('#'));
    for line in content.flat_map(one_line_parts) {
        let is_continued = line.text.starts_with("nexthop ") || line.text.starts_with(OBJECT);
        if is_continued {
            if follows_valid_route {
                problems.extend(parse_continuation(text, line, &mut routes).err());
            }
            continue;
        }
        match parse_route(text, ip, line) {
            Ok(route) => {
                follows_valid_route = true;
                routes.push(route);
            }
            Err(problem) => {
                follows_valid_route = false;
                problems.push(problem);
            }
        }
    }
    routes
}

fn parse_route(text: &Text, ip: Family, line: Line<'_>) -> Result<Route, Problem> {
    let mut words = fields(line).peekable();
    let line_problem = || {
        Problem::new(
            ProblemKind::UnknownLine(Format::Routes(ip)),
            line.start..line.end(),
        )
    };
    let kind = words.next_if(|word| names::route_type(word.text).is_some());
    // `ip -d` prints the default type, too.
    let kind = kind
        .and_then(|kind| names::route_type(kind.text))
        .filter(|kind| *kind != "unicast");
    let to = words.next().ok_or_else(line_problem)?;
    let known_family = match is_ipv6_network(to.text) {
        Some(known) => known,
        None if to.text == "default" => None,
        None => {
            let wrong = ProblemKind::InvalidValue {
                value: to.text.to_owned(),
                expected: "a destination (`default`, an address or a network)",
            };
            return Err(Problem::new(wrong, to.range()));
        }
    };
    let attributes = Attributes::parse(text, &mut words, ROUTE)?;
    let attributes = names::normalise(attributes, &DEFAULTS);
    let is_ipv6 = known_family.unwrap_or_else(|| {
        let via_six = |via: &str| via.contains(':') && !via.starts_with("inet");
        ip == Family::V6 || attributes.has("pref") || attributes.get("via").is_some_and(via_six)
    });
    Ok(Route {
        ip: if is_ipv6 { Family::V6 } else { Family::V4 },
        kind: kind.map(Text::new),
        to: text.slice(to.range()),
        attributes,
        hops: Vec::new(),
        object: None,
        source_text: text.slice(line.start..line.end()),
        line: line.number,
    })
}

/// Whether an address or network is IPv6. `None` if the text is neither.
#[expect(
    clippy::option_option,
    reason = "a network always has a family, `default` has none"
)]
fn is_ipv6_network(text: &str) -> Option<Option<bool>> {
    let network: ipnetwork::IpNetwork = text.parse().ok()?;
    Some(Some(network.is_ipv6()))
}

/// Parses a line that continues a route: a next hop, or the properties of its next hop object.
fn parse_continuation(text: &Text, line: Line<'_>, routes: &mut [Route]) -> Result<(), Problem> {
    let Some(route) = routes.last_mut() else {
        let wrong = ProblemKind::MissingParent("this nexthop does not follow a route");
        return Err(Problem::new(wrong, line.start..line.end()));
    };
    if let Some(object) = line.text.strip_prefix(OBJECT) {
        route.object = Some(text.slice(line.end() - object.len()..line.end()));
    } else {
        let mut words = fields(line);
        words.next();
        let hop = Attributes::parse(text, &mut words, ROUTE)?;
        route.hops.push(hop);
    }
    route.source_text = text.slice(route.source_text.range().start..line.end());
    Ok(())
}
