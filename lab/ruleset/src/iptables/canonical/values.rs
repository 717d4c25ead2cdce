//! Formats values of options as iptables-save prints them.

use std::borrow::Cow;
use std::net::IpAddr;

use crate::iptables::parts::RuleOption;

pub(super) fn with_value<'r>(choice: &RuleOption<'r>, value: String) -> RuleOption<'r> {
    RuleOption {
        values: vec![Cow::Owned(value)],
        ..choice.clone()
    }
}

/// Returns the option with another name and values.
pub(super) fn renamed<'r>(
    choice: &RuleOption<'r>,
    name: &'static str,
    values: impl IntoIterator<Item = String>,
) -> RuleOption<'r> {
    RuleOption {
        name: Cow::Borrowed(name),
        is_negated: choice.is_negated,
        values: values.into_iter().map(Cow::Owned).collect(),
    }
}

pub(super) fn protocol_name(text: &str) -> String {
    match text {
        "0" => "all",
        "1" => "icmp",
        "6" => "tcp",
        "17" => "udp",
        "58" | "icmpv6" => "ipv6-icmp",
        "132" => "sctp",
        name => return name.to_ascii_lowercase(),
    }
    .to_owned()
}

/// Returns the number of a port. Names are those that administrators write in rules; others stay.
fn port(text: &str) -> &str {
    match text {
        "ftp" => "21",
        "ssh" => "22",
        "telnet" => "23",
        "smtp" => "25",
        "domain" => "53",
        "bootps" => "67",
        "bootpc" => "68",
        "http" | "www" => "80",
        "ntp" => "123",
        "snmp" => "161",
        "bgp" => "179",
        "https" => "443",
        other => other,
    }
}

/// Formats a port or a range of ports: `80`, `0:1024`.
pub(super) fn ports(text: &str) -> String {
    let Some((first, last)) = text.split_once(':') else {
        return port(text).to_owned();
    };
    let or =
        |text: &str, default: &str| port(if text.is_empty() { default } else { text }).to_owned();
    let (first, last) = (or(first, "0"), or(last, "65535"));
    if first == last {
        first
    } else {
        format!("{first}:{last}")
    }
}

/// Formats a rate with the largest unit in which the number is exact enough (iptables 1.8.9,
/// `extensions/libxt_limit.c`, `parse_rate` and `print_rate`).
pub(super) fn rate(text: &str) -> Option<String> {
    const SCALE: u32 = 10_000;
    let (count, unit) = text.split_once('/').unwrap_or((text, "second"));
    let count: u32 = count.parse().ok().filter(|count| *count > 0)?;
    let units = [
        ("day", SCALE * 24 * 60 * 60),
        ("hour", SCALE * 60 * 60),
        ("min", SCALE * 60),
        ("sec", SCALE),
    ];
    let is_unit = |name: &str, length: usize| {
        unit.len() >= length
            && ["second", "minute", "hour", "day"]
                .iter()
                .any(|long| long.starts_with(unit) && long.starts_with(name))
    };
    let (_, length) = units.iter().find(|(name, _)| is_unit(name, 1))?;
    let period = length / count;
    if period == 0 {
        return None;
    }
    let is_exact = |length: u32| period <= length && length / period >= length % period;
    let larger = units
        .iter()
        .skip(1)
        .take_while(|(_, length)| is_exact(*length));
    let (name, length) = larger.last().unwrap_or(&units[0]);
    Some(format!("{}/{name}", length / period))
}

/// Formats `VALUE/MASK` in hexadecimal. `default` is the mask of a text without one.
pub(super) fn format_mask(text: &str, default: u32) -> Option<String> {
    let (value, mask) = value_and_mask(text)?;
    Some(format!("{value:#x}/{:#x}", mask.unwrap_or(default)))
}

pub(super) fn value_and_mask(text: &str) -> Option<(u32, Option<u32>)> {
    match text.split_once('/') {
        Some((value, mask)) => Some((parse_number(value)?, Some(parse_number(mask)?))),
        None => Some((parse_number(text)?, None)),
    }
}

pub(super) fn parse_number(text: &str) -> Option<u32> {
    match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(digits) => u32::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

pub(super) fn parse_byte(text: &str) -> Option<u8> {
    u8::try_from(parse_number(text)?).ok()
}

pub(super) fn is_full_mask(text: &str) -> bool {
    match text.parse::<IpAddr>() {
        Ok(IpAddr::V4(mask)) => u32::from(mask) == u32::MAX,
        Ok(IpAddr::V6(mask)) => u128::from(mask) == u128::MAX,
        Err(_) => false,
    }
}

/// Returns the value of a class of the DSCP field (RFC 2474, RFC 2597, RFC 3246).
pub(super) fn dscp_class(name: &str) -> Option<u8> {
    let name = name.to_ascii_uppercase();
    let digits = |prefix: &str| -> Option<Vec<u8>> {
        let digits = name.strip_prefix(prefix)?.bytes();
        digits
            .map(|digit| digit.is_ascii_digit().then(|| digit - b'0'))
            .collect()
    };
    match (
        name.as_str(),
        digits("CS").as_deref(),
        digits("AF").as_deref(),
    ) {
        ("BE", ..) => Some(0),
        ("EF", ..) => Some(46),
        (_, Some(&[class @ 0..=7]), _) => Some(class * 8),
        (_, _, Some(&[class @ 1..=4, drop @ 1..=3])) => Some(class * 8 + drop * 2),
        _ => None,
    }
}
