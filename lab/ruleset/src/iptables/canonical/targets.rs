//! Renders options of targets in canonical form.

use super::values::{
    dscp_class, format_mask, parse_byte, parse_number, renamed, value_and_mask, with_value,
};
use crate::iptables::parts::RuleOption;

/// Levels of log messages by number (syslog(3)).
const LOG_LEVELS: [&str; 8] = [
    "emerg", "alert", "crit", "error", "warning", "notice", "info", "debug",
];

/// Short names of REJECT types (iptables 1.8.9, `extensions/libipt_REJECT.c`).
const REJECT_TYPES: [(&str, &str); 7] = [
    ("net-unreach", "icmp-net-unreachable"),
    ("host-unreach", "icmp-host-unreachable"),
    ("proto-unreach", "icmp-proto-unreachable"),
    ("net-prohib", "icmp-net-prohibited"),
    ("host-prohib", "icmp-host-prohibited"),
    ("admin-prohib", "icmp-admin-prohibited"),
    ("tcp-rst", "tcp-reset"),
];

/// Returns the canonical options of a target for one option. None for an explicit default, or for a
/// value that iptables rejects.
pub(super) fn canonical_target_options<'r>(
    target: &str,
    choice: &RuleOption<'r>,
) -> Vec<RuleOption<'r>> {
    if (target, choice.name.as_ref()) == ("CONNMARK", "--mask") {
        let mask = choice.values.first().and_then(|value| parse_number(value));
        let masks = mask.filter(|mask| *mask != u32::MAX).map(|mask| {
            ["--nfmask", "--ctmask"].map(|name| renamed(choice, name, [format!("{mask:#x}")]))
        });
        return masks.into_iter().flatten().collect();
    }
    canonical_target_option(target, choice)
        .into_iter()
        .collect()
}

fn canonical_target_option<'r>(target: &str, choice: &RuleOption<'r>) -> Option<RuleOption<'r>> {
    let value = choice.values.first().map_or("", AsRef::as_ref);
    // A value that iptables would reject stays.
    let or_same = |value: Option<String>| {
        value.map_or_else(|| choice.clone(), |value| with_value(choice, value))
    };
    let byte = |value: Option<u8>| value.map(|value| format!("{value:#04x}"));
    let changed = match (target, choice.name.as_ref()) {
        (
            "MARK" | "CONNMARK",
            "--set-xmark" | "--set-mark" | "--or-mark" | "--xor-mark" | "--and-mark",
        ) => mark(&choice.name, value).map_or_else(
            || choice.clone(),
            |(bits, mask)| renamed(choice, "--set-xmark", [format!("{bits:#x}/{mask:#x}")]),
        ),
        ("CONNMARK", "--nfmask" | "--ctmask") => match parse_number(value) {
            Some(u32::MAX) => return None,
            mask => or_same(mask.map(|mask| format!("{mask:#x}"))),
        },
        ("REJECT", "--reject-with") => match value {
            "icmp-port-unreachable" | "icmp6-port-unreachable" | "port-unreach" => return None,
            value => {
                let known = REJECT_TYPES.iter().find(|(short, _)| *short == value);
                with_value(choice, known.map_or(value, |(_, long)| long).to_owned())
            }
        },
        ("DNAT", "--to") => renamed(choice, "--to-destination", [value.to_owned()]),
        ("SNAT", "--to") => renamed(choice, "--to-source", [value.to_owned()]),
        ("REDIRECT" | "MASQUERADE", "--to-port" | "--to") => {
            renamed(choice, "--to-ports", [value.to_owned()])
        }
        ("LOG", "--log-level") => {
            let named = LOG_LEVELS.iter().position(|level| *level == value);
            let level = named.map_or_else(|| value.to_owned(), |level| level.to_string());
            if level == "4" {
                return None;
            }
            with_value(choice, level)
        }
        ("NFQUEUE", "--queue-num") if value == "0" => return None,
        ("TOS", "--set-tos") => or_same(format_mask(value, 0xff)),
        ("DSCP", "--set-dscp-class") => byte(dscp_class(value)).map_or_else(
            || choice.clone(),
            |value| renamed(choice, "--set-dscp", [value]),
        ),

        ("DSCP", "--set-dscp") => or_same(byte(parse_byte(value))),
        _ => choice.clone(),
    };
    Some(changed)
}

/// Returns the bits to flip and the mask of bits to clear before, of an option of MARK.
fn mark(option: &str, value: &str) -> Option<(u32, u32)> {
    let (bits, mask) = value_and_mask(value)?;
    Some(match option {
        "--set-mark" => (bits, bits | mask.unwrap_or(u32::MAX)),
        "--or-mark" => (bits, bits),
        "--xor-mark" => (bits, 0),
        "--and-mark" => (0, !bits),
        _ => (bits, mask.unwrap_or(u32::MAX)),
    })
}
