//! Renders options of matches in canonical form.

use super::values::{
    dscp_class, format_mask, is_full_mask, parse_byte, ports, protocol_name, rate, renamed,
    with_value,
};
use crate::iptables::parts::RuleOption;

/// Flags of TCP in the order in which iptables-save prints them (iptables 1.8.9,
/// `extensions/libxt_tcp.c`).
const TCP_FLAGS: [&str; 6] = ["FIN", "SYN", "RST", "PSH", "ACK", "URG"];

/// Names of ICMP types (iptables 1.8.9, `libxtables/xtables.c` and `extensions/libxt_icmp.h`).
const ICMP_TYPES: [(&str, &str); 9] = [
    ("echo-reply", "0"),
    ("pong", "0"),
    ("destination-unreachable", "3"),
    ("port-unreachable", "3/3"),
    ("fragmentation-needed", "3/4"),
    ("redirect", "5"),
    ("echo-request", "8"),
    ("ping", "8"),
    ("time-exceeded", "11"),
];

/// Returns the canonical option of a match. `None` for an explicit default.
pub(super) fn canonical_match_option<'r>(
    module: &str,
    choice: &RuleOption<'r>,
) -> Option<RuleOption<'r>> {
    let value = choice.values.first().map_or("", AsRef::as_ref);
    let is_positive = !choice.is_negated;
    // A value that iptables would reject stays.
    let or_same = |value: Option<String>| {
        value.map_or_else(|| choice.clone(), |value| with_value(choice, value))
    };
    let byte = |value: Option<u8>| value.map(|value| format!("{value:#04x}"));
    let changed = match (module, choice.name.as_ref()) {
        ("tcp", "--syn") => {
            let values = ["FIN,SYN,RST,ACK", "SYN"].map(str::to_owned);
            renamed(choice, "--tcp-flags", values)
        }
        ("tcp", "--tcp-flags") => renamed(
            choice,
            "--tcp-flags",
            choice.values.iter().map(|flags| tcp_flags(flags)),
        ),
        (_, "--destination-port" | "--dport") => renamed(choice, "--dport", [ports(value)]),
        (_, "--source-port" | "--sport") => renamed(choice, "--sport", [ports(value)]),
        ("multiport", name) => {
            let name = match name {
                "--destination-ports" | "--dports" => "--dports",
                "--source-ports" | "--sports" => "--sports",
                _ => "--ports",
            };
            let list: Vec<String> = value.split(',').map(ports).collect();
            renamed(choice, name, [list.join(",")])
        }
        ("icmp", "--icmp-type") => {
            let known = ICMP_TYPES.iter().find(|(name, _)| *name == value);
            with_value(choice, known.map_or(value, |(_, number)| number).to_owned())
        }
        ("mark" | "connmark", "--mark") => or_same(format_mask(value, u32::MAX)),
        ("statistic", "--probability") => {
            // The kernel stores 31 bits of the probability.
            let scale = f64::from(1_u32 << 31);
            let probability = value.parse::<f64>().ok();
            let stored = probability.map(|value| (value * scale).round() / scale);
            or_same(stored.map(|value| format!("{value:.11}")))
        }
        ("conntrack", "--ctstate" | "--ctstatus") | ("state", "--state") => {
            let upper = value.to_ascii_uppercase();
            let mut states: Vec<&str> = upper.split(',').collect();
            // No state starts with a dash. Sorting could move such a text to the front, where it
            // would be an option.
            if !states.iter().any(|state| state.starts_with('-')) {
                states.sort_unstable();
            }
            with_value(choice, states.join(","))
        }
        ("conntrack", "--ctproto") | ("ipvs", "--vproto") => {
            with_value(choice, protocol_name(value))
        }
        ("addrtype", "--src-type" | "--dst-type") => with_value(choice, value.to_ascii_uppercase()),
        ("limit", "--limit") => or_same(rate(value)),
        ("dscp", "--dscp-class") => byte(dscp_class(value)).map_or_else(
            || choice.clone(),
            |value| renamed(choice, "--dscp", [value]),
        ),
        ("dscp", "--dscp") => or_same(byte(parse_byte(value))),
        ("tos", "--tos") => or_same(format_mask(value, 0xff)),
        ("time", "--timestart" | "--timestop") if value.matches(':').count() == 1 => {
            with_value(choice, format!("{value}:00"))
        }
        // Defaults that iptables-save prints and input usually omits, or the reverse.
        ("limit", "--limit-burst") | ("hashlimit", "--hashlimit-burst") if value == "5" => {
            return None;
        }
        ("recent", "--rsource") | ("connlimit", "--connlimit-saddr") if is_positive => return None,
        ("recent", "--mask") if is_full_mask(value) => return None,
        ("recent", "--name") if value == "DEFAULT" => return None,
        ("connlimit", "--connlimit-mask") if matches!(value, "32" | "128") => return None,
        ("time", "--datestart") if value == "1970-01-01T00:00:00" => return None,
        ("time", "--datestop") if value == "2038-01-19T03:14:07" => return None,
        _ => choice.clone(),
    };
    Some(changed)
}

fn tcp_flags(text: &str) -> String {
    let names: Vec<&str> = text.split(',').collect();
    if text == "NONE"
        || !names
            .iter()
            .all(|name| *name == "ALL" || TCP_FLAGS.contains(name))
    {
        return text.to_owned();
    }
    let is_named = |flag: &&&str| names.contains(&"ALL") || names.contains(*flag);
    let flags: Vec<&str> = TCP_FLAGS.iter().filter(is_named).copied().collect();
    flags.join(",")
}
