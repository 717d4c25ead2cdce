//! Maps the numbers that `ip -N` prints to names, and removes the values that only `ip -d` prints. Both
//! options print the same state as `ip` without options (iproute2 6.1, `ip/iproute.c`,
//! `print_route`; `ip/iprule.c`, `print_rule`).

use crate::text::Text;
use crate::text::attributes::{Attribute, Attributes};

/// Names of values of an attribute, with their numbers.
type Names = &'static [(u8, &'static str)];

/// Types of routes (Linux v6.12, `include/uapi/linux/rtnetlink.h`).
const TYPES: Names = &[
    (1, "unicast"),
    (2, "local"),
    (3, "broadcast"),
    (4, "anycast"),
    (5, "multicast"),
    (6, "blackhole"),
    (7, "unreachable"),
    (8, "prohibit"),
    (9, "throw"),
    (10, "nat"),
    (11, "xresolve"),
];

/// Routing tables (iproute2 6.1, `lib/rt_names.c`, `rtnl_rttable_initialize`).
const TABLES: Names = &[(253, "default"), (254, "main"), (255, "local")];

/// Scopes (iproute2 6.1, `lib/rt_names.c`, `rtnl_rtscope_initialize`).
const SCOPES: Names = &[
    (0, "global"),
    (200, "site"),
    (253, "link"),
    (254, "host"),
    (255, "nowhere"),
];

/// Origins of routes (iproute2 6.19, `etc/iproute2/rt_protos`).
const PROTOCOLS: Names = &[
    (0, "unspec"),
    (1, "redirect"),
    (2, "kernel"),
    (3, "boot"),
    (4, "static"),
    (8, "gated"),
    (9, "ra"),
    (10, "mrt"),
    (11, "zebra"),
    (12, "bird"),
    (13, "dnrouted"),
    (14, "xorp"),
    (15, "ntk"),
    (16, "dhcp"),
    (18, "keepalived"),
    (42, "babel"),
    (84, "ovn"),
    (99, "openr"),
    (186, "bgp"),
    (187, "isis"),
    (188, "ospf"),
    (189, "rip"),
    (192, "eigrp"),
];

/// Values of the field for differentiated services (iproute2 6.1, `etc/iproute2/rt_dsfield`).
const SERVICES: Names = &[
    (0x00, "default"),
    (0x20, "CS1"),
    (0x28, "AF11"),
    (0x30, "AF12"),
    (0x38, "AF13"),
    (0x40, "CS2"),
    (0x48, "AF21"),
    (0x50, "AF22"),
    (0x58, "AF23"),
    (0x60, "CS3"),
    (0x68, "AF31"),
    (0x70, "AF32"),
    (0x78, "AF33"),
    (0x80, "CS4"),
    (0x88, "AF41"),
    (0x90, "AF42"),
    (0x98, "AF43"),
    (0xa0, "CS5"),
    (0xb8, "EF"),
    (0xc0, "CS6"),
    (0xe0, "CS7"),
];

/// Returns the name of a number of a list. `None` for other texts.
fn name_of(names: Names, number: &str) -> Option<&'static str> {
    let number: u8 = number.parse().ok()?;
    let found = names.iter().find(|(known, _)| *known == number)?;
    Some(found.1)
}

/// Returns the type of a route. `None` if the word is neither a name nor a number of a type.
pub(super) fn route_type(word: &str) -> Option<&'static str> {
    let mut types = TYPES.iter().map(|(_, name)| *name);
    name_of(TYPES, word).or_else(|| types.find(|name| *name == word))
}

/// Returns another text for a value with the same meaning. `None` for a value in canonical form.
fn canonical_value(name: &str, value: &str) -> Option<String> {
    let known = match name {
        "table" | "lookup" => name_of(TABLES, value),
        "scope" => name_of(SCOPES, value),
        "proto" | "protocol" => name_of(PROTOCOLS, value),
        "tos" | "dsfield" => {
            let found = SERVICES.iter().find(|(_, service)| *service == value)?;
            return Some(format!("{:#04x}", found.0));
        }
        // Older versions print the number of an error with its sign.
        "error" => {
            let error: i64 = value.parse().ok()?;
            let error = i32::try_from(error - (1 << 32)).ok()?;
            return Some(error.to_string());
        }
        _ => None,
    };
    known.map(str::to_owned)
}

/// Replaces numbers by names, and removes attributes with one of the default values.
pub(super) fn normalise(attributes: Attributes, defaults: &[(&str, &str)]) -> Attributes {
    let renamed = attributes.0.into_iter().map(|mut attribute| {
        if attribute.value.is_none()
            && let Some(name) = name_of(TYPES, &attribute.name)
        {
            attribute.name = Text::new(name);
        }
        let value = attribute.value.as_deref();
        match value.and_then(|value| canonical_value(&attribute.name, value)) {
            Some(value) => Attribute {
                name: attribute.name,
                value: Some(Text::new(value)),
            },
            None => attribute,
        }
    });
    let is_default = |attribute: &Attribute| {
        let value = attribute.value.as_deref().unwrap_or_default();
        defaults.contains(&(&*attribute.name, value))
    };
    Attributes(renamed.filter(|attribute| !is_default(attribute)).collect())
}

/// Returns the properties of a next hop object with names instead of numbers, and without the time
/// since when a group is unbalanced (iproute2 6.1, `ip/ipnexthop.c`, `__print_nexthop_entry`).
pub(super) fn canonical_object(printed: &str) -> String {
    let mut words = printed.split_ascii_whitespace();
    let mut canonical = Vec::new();
    while let Some(word) = words.next() {
        if word == "unbalanced_time" {
            words.next();
            continue;
        }
        canonical.push(word.to_owned());
        if matches!(word, "scope" | "proto")
            && let Some(value) = words.next()
        {
            canonical.push(canonical_value(word, value).unwrap_or_else(|| value.to_owned()));
        }
    }
    canonical.join(" ")
}
