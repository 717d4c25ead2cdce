//! Parses the output of `ip route` for one table or for all tables.

pub mod rule;

use crate::Family;
use crate::text::attributes::{Attributes, Grammar, ValueKind};
use crate::text::problem::{Problem, ProblemKind};
use crate::text::{Line, Text, fields, lines};
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
}

/// Route types, printed before the destination (iproute2 6.1, `lib/rt_names.c`).
const KINDS: [&str; 12] = [
    "unicast",
    "local",
    "broadcast",
    "anycast",
    "multicast",
    "blackhole",
    "unreachable",
    "prohibit",
    "throw",
    "nat",
    "xresolve",
    "cache",
];

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
    ("realm", ValueKind::Word),
    ("realms", ValueKind::Word),
    ("error", ValueKind::Word),
    ("expires", ValueKind::Word),
    ("pref", ValueKind::Word),
    ("nhid", ValueKind::Number),
    ("weight", ValueKind::Number),
    ("uid", ValueKind::Number),
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
    // `ip -d` repeats the properties of a next hop object in a line `nh_info id 1 …`.
    let is_ignored =
        |line: &Line<'_>| line.text.starts_with('#') || line.text.starts_with("nh_info ");
    for line in lines(text).filter(|line| !is_ignored(line)) {
        if line.text.starts_with("nexthop ") {
            if follows_valid_route {
                problems.extend(parse_hop(text, line, &mut routes).err());
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
    let kind = words.next_if(|word| KINDS.contains(&word.text));
    // `ip -d` prints the default type, too.
    let kind = kind.filter(|kind| kind.text != "unicast");
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
    let is_ipv6 = known_family.unwrap_or_else(|| {
        let via_six = |via: &str| via.contains(':') && !via.starts_with("inet");
        ip == Family::V6 || attributes.has("pref") || attributes.get("via").is_some_and(via_six)
    });
    Ok(Route {
        ip: if is_ipv6 { Family::V6 } else { Family::V4 },
        kind: kind.map(|kind| text.slice(kind.range())),
        to: text.slice(to.range()),
        attributes,
        hops: Vec::new(),
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

fn parse_hop(text: &Text, line: Line<'_>, routes: &mut [Route]) -> Result<(), Problem> {
    let Some(route) = routes.last_mut() else {
        let wrong = ProblemKind::MissingParent("this nexthop does not follow a route");
        return Err(Problem::new(wrong, line.start..line.end()));
    };
    let mut words = fields(line);
    words.next();
    let hop = Attributes::parse(text, &mut words, ROUTE)?;
    route.source_text = text.slice(route.source_text.range().start..line.end());
    route.hops.push(hop);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Output of iproute2 6.1.
    pub const TEXT: &str = "\
default via 10.0.0.9 dev eth0 metric 100 
10.0.0.0/24 dev eth0 proto kernel scope link src 10.0.0.1 
10.3.0.0/16 
	nexthop via 10.0.0.5 dev eth0 weight 1 
	nexthop via 10.0.0.6 dev eth0 weight 2 
blackhole 10.4.0.0/16 
10.6.0.0/16 via 10.77.0.1 dev eth0 table 100 onlink mtu lock 1400 advmss 1300 
10.7.0.0/16 via inet6 fe80::5 dev eth0 
10.8.0.0/16 tos 0x10 dev eth0 proto openr scope link src 10.0.0.2 
10.11.0.0/16  encap ip id 5 src 0.0.0.0 dst 10.0.0.7 ttl 0 tos 0 dev eth0 scope link 
10.12.0.0/16 nhid 1 via 10.0.0.5 dev eth0 
local 10.0.0.1 dev eth0 table local proto kernel scope host src 10.0.0.1 
fd01::/64 metric 1024 pref medium
	nexthop via fd00::5 dev eth0 weight 1 
	nexthop via fd00::6 dev eth0 weight 1 
default via fe80::1 dev eth0 proto ra metric 1024 expires 1790sec hoplimit 64 pref medium
unreachable default dev lo metric 4294967295 error -101 pref medium
";

    #[test]
    fn parse_iproute2_output_returns_routes() {
        let mut problems = Vec::new();
        let routes = parse(&Text::new(TEXT), Family::V4, &mut problems);
        assert_eq!(problems, []);
        assert_eq!(routes.len(), 13);
        assert_eq!(routes[2].hops.len(), 2);
        assert_eq!(routes[3].kind.as_deref(), Some("blackhole"));
        assert_eq!(routes[4].table(), "100");
        assert_eq!(routes[4].attributes.get("mtu"), Some("lock 1400"));
        assert_eq!(routes[5].attributes.get("via"), Some("inet6 fe80::5"));
        assert_eq!(routes[5].ip, Family::V4);
        let encap = "ip id 5 src 0.0.0.0 dst 10.0.0.7 ttl 0 tos 0";
        assert_eq!(routes[7].attributes.get("encap"), Some(encap));
        for route in &routes[10..] {
            assert_eq!(route.ip, Family::V6, "{}", route.to);
        }
    }

    #[test]
    fn parse_invalid_lines_reports_positions() {
        let text = "\tnexthop via 10.0.0.1\nhello\n10.0.0.0/8 dve eth0\n10.0.0.0/8 via\n\
                    10.0.0.0/40 dev eth0\n10.0.0.0/8 dev eth0 metric low\n";
        let mut problems = Vec::new();
        let _ = parse(&Text::new(text), Family::V4, &mut problems);
        let places: Vec<&str> = problems.iter().map(|p| &text[p.range.clone()]).collect();
        assert_eq!(
            places,
            [
                "nexthop via 10.0.0.1",
                "hello",
                "dve",
                "via",
                "10.0.0.0/40",
                "low"
            ]
        );
    }
}
