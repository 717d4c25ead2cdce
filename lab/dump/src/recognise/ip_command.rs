//! Parses commands of `ip`.

use super::commands::{Command, OutputKind, is_netns_option, is_prefix};
use super::place::Place;
use super::scope::{self, Scope};
use super::{Content, outputs};
use crate::silent;
use svclab_ruleset::Family;
use svclab_ruleset::tool::Format;

/// Options before the object of `ip`.
#[derive(Default)]
struct Options {
    family: Option<Family>,
    is_detailed: bool,
    is_brief: bool,
    /// Whether the command runs in all network namespaces.
    is_all: bool,
    place: Place,
}

impl Options {
    /// Parses the options. Also returns the object and its arguments.
    fn parse<'a, 'w>(arguments: &'a [&'w str]) -> (Self, &'w str, &'a [&'w str]) {
        let mut options = Self::default();
        let mut rest = arguments;
        while let Some((word, after)) = rest.split_first() {
            rest = after;
            let Some(name) = word.strip_prefix('-') else {
                return (options, word, after);
            };
            let name = name.trim_start_matches('-');
            match name {
                "4" => options.family = Some(Family::V4),
                "6" => options.family = Some(Family::V6),
                "f" | "family" => {
                    let is_six = rest.first() == Some(&"inet6");
                    options.family = Some(if is_six { Family::V6 } else { Family::V4 });
                    rest = rest.get(1..).unwrap_or_default();
                }
                _ if is_netns_option(word) => {
                    options.place = Place::Elsewhere;
                    rest = rest.get(1..).unwrap_or_default();
                }
                _ => {
                    options.is_detailed |= is_prefix(name, "details", 1);
                    options.is_brief |= is_prefix(name, "brief", 2);
                    options.is_all |= is_prefix(name, "all", 1);
                }
            }
        }
        (options, "", &[])
    }
}

impl Command {
    /// Parses the arguments of `ip`. Objects and their commands may be abbreviated (iproute2 6.1,
    /// `ip/ip.c`, `do_cmd`).
    pub(super) fn parse_ip(arguments: &[&str], depth: usize) -> Self {
        let (options, object, mut rest) = Options::parse(arguments);
        if rest.first() == Some(&"exec") && is_prefix(object, "netns", 2) {
            let start = if options.is_all { 1 } else { 2 };
            let inner = rest.get(start..).unwrap_or_default();
            return Self::parse_inside(inner, Place::Elsewhere, depth);
        }
        if rest.first() == Some(&"exec") && is_prefix(object, "vrf", 2) {
            return Self::parse_inside(rest.get(2..).unwrap_or_default(), Place::Node, depth);
        }
        let is_xfrm = is_prefix(object, "xfrm", 1);
        let is_policy = is_xfrm && rest.first().is_some_and(|of| is_prefix(of, "policy", 1));
        if is_policy {
            rest = &rest[1..];
        }
        let verb = rest.first().copied().unwrap_or("show");
        let is_listing = ["show", "list", "lst"]
            .iter()
            .any(|listing| is_prefix(verb, listing, 1));
        let selectors = rest.get(1..).unwrap_or_default();
        let format = format_of(object, &options, selectors).filter(|_| is_listing);
        let unread = if is_xfrm && !is_policy {
            Some(&outputs::XFRM)
        } else {
            (format.is_some() && options.is_brief).then_some(&outputs::LINKS)
        };
        let content = unread
            .map(Content::Unread)
            .or_else(|| format.map(Content::State));
        let (is_complete, scope) = match (format, selectors) {
            (Some(Format::Routes(_)), selectors) => of_routes(selectors),
            (_, selectors) => (selectors.is_empty(), None),
        };
        let reduced_by = (content.is_some() && !is_complete).then(|| selectors.join(" "));
        // These programs print both families without an option.
        let only_family = match (format, options.family) {
            (
                Some(format @ (Format::Links | Format::Neighbours | Format::IpsecPolicies)),
                Some(family),
            ) if reduced_by.is_none() && !is_prefix(object, "link", 1) => Some((format, family)),
            _ => None,
        };
        let kind = match content {
            None if silent::is_change(verb) => OutputKind::Silent,
            None if is_object(object) => OutputKind::Unread,
            _ => OutputKind::Single,
        };
        Self {
            content,
            kind,
            has_family: options.family.is_some(),
            only_family,
            reduced_by: reduced_by.or_else(|| {
                let (_, family) = only_family?;
                Some(format!("only {}", family.name()))
            }),
            scope,
            place: options.place,
            ..Self::unknown()
        }
    }
}

/// Objects of `ip` (iproute2 6.1, `ip/ip.c`).
const OBJECTS: [&str; 29] = [
    "address",
    "addrlabel",
    "fou",
    "ila",
    "ioam",
    "l2tp",
    "link",
    "macsec",
    "maddress",
    "monitor",
    "mptcp",
    "mroute",
    "mrule",
    "neighbor",
    "neighbour",
    "netconf",
    "netns",
    "nexthop",
    "ntable",
    "ntbl",
    "route",
    "rule",
    "sr",
    "stats",
    "tcpmetrics",
    "token",
    "tunnel",
    "tuntap",
    "vrf",
];

/// Whether a word is an object of `ip`, possibly abbreviated.
fn is_object(word: &str) -> bool {
    OBJECTS.iter().any(|object| is_prefix(word, object, 1))
}

/// Returns the format that `ip OBJECT show SELECTORS` prints. `None` for other objects.
fn format_of(object: &str, options: &Options, selectors: &[&str]) -> Option<Format> {
    let family = options.family.unwrap_or(Family::V4);
    // Cached results of lookups are not routes. Routes of a VRF do not state their table.
    let is_other = |word: &&str| matches!(*word, "cache" | "vrf");
    if is_prefix(object, "address", 1) {
        Some(Format::Links)
    } else if is_prefix(object, "link", 1) {
        let is_detailed = options.is_detailed;
        Some(if is_detailed {
            Format::LinkDetails
        } else {
            Format::Links
        })
    } else if is_prefix(object, "neighbour", 1) || is_prefix(object, "neighbor", 1) {
        let is_proxy = selectors.contains(&"proxy");
        (!is_proxy).then_some(Format::Neighbours)
    } else if is_prefix(object, "route", 1) {
        let is_other = selectors.iter().any(is_other);
        (!is_other).then_some(Format::Routes(family))
    } else if is_prefix(object, "rule", 2) {
        Some(Format::RoutingRules(family))
    } else if is_prefix(object, "xfrm", 1) {
        Some(Format::IpsecPolicies)
    } else {
        None
    }
}

/// Returns whether the arguments of `ip route show` select all routes, and the table that the lines
/// lack. Without `table all`, `ip route` prints the main table, which rules may refer to.
fn of_routes(selectors: &[&str]) -> (bool, Option<Scope>) {
    let pairs = || selectors.windows(2);
    let table = pairs()
        .find(|pair| is_prefix(pair[0], "table", 1))
        .map(|pair| pair[1]);
    let is_complete = match selectors {
        [] | ["scope", "global"] => true,
        [_, _] => matches!(table, Some("all" | "main" | "254")),
        _ => false,
    };
    let scope = table
        .filter(|table| !matches!(*table, "all" | "main" | "254" | "cache"))
        .map(scope::of_table);
    (is_complete, scope)
}
