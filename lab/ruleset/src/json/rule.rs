//! Converts the objects of `ip -j rule` (iproute2 6.1, `ip/iprule.c`, `print_rule`).

use std::fmt::Write as _;

use super::value::Value;
use super::{push, push_member, renamed};

/// Names of members that differ from the words of the text.
const NAMES: [(&str, &str); 15] = [
    ("src", "from"),
    ("dst", "to"),
    ("iif_detached", "[detached]"),
    ("oif_detached", "[detached]"),
    ("l3mdev", "lookup [l3mdev-table]"),
    ("uid_start", "uidrange"),
    ("sport_start", "sport"),
    ("dport_start", "dport"),
    ("table", "lookup"),
    ("suppress_prefixlen", "suppress_prefixlength"),
    ("flow_from", "realms"),
    ("flow_to", "realms"),
    ("nat_gateway", "map-to"),
    ("unresolved", "[unresolved]"),
    ("protocol", "proto"),
];

/// Returns the line of a rule.
pub(super) fn convert(rule: &Value) -> String {
    let mut line = String::new();
    let mut previous = "";
    for (name, value) in rule.members() {
        match (name.as_str(), previous) {
            ("priority", _) => {
                let _ = write!(line, "{value}:\t");
            }
            // The second part of the word before it.
            ("srclen" | "dstlen" | "fwmask" | "sport_mask" | "dport_mask" | "dscp_mask", _)
            | ("flow_to", "flow_from") => {
                let _ = write!(line, "/{value}");
            }
            ("uid_end" | "sport_end" | "dport_end", _) => {
                let _ = write!(line, "-{value}");
            }
            ("action", _) => push(&mut line, value.to_string()),
            _ => push_member(&mut line, renamed(&NAMES, name), value),
        }
        previous = name;
    }
    line.push('\n');
    line
}
