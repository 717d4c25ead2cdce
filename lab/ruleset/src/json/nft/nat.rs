//! Converts statements that change or add an address: NAT, transparent proxying and copies.

use std::fmt::Write as _;

use super::super::value::Value;
use super::Unknown;
use super::expression::{Kind, convert as convert_expression};
use super::member::quoted;

/// Converts a NAT or TPROXY statement: `dnat ip to 10.0.0.1:80 random`.
pub(super) fn convert(name: &str, inner: &Value) -> Result<String, Unknown> {
    let mut text = name.to_owned();
    let known = ["family", "addr", "port", "flags", "type_flags"];
    if let Some((unknown, _)) = inner
        .members()
        .iter()
        .find(|(member, _)| !known.contains(&member.as_str()))
    {
        return Err(Unknown::new(&format!("{name} {unknown}")));
    }
    if let Some(family) = inner.text("family") {
        let _ = write!(text, " {family}");
    }
    for flag in flags(inner, "type_flags") {
        text.push_str(match flag.as_str() {
            "prefix" => " prefix",
            "concat" => " addr . port",
            "interval" => " interval",
            _ => return Err(Unknown::new(&flag)),
        });
    }
    let port = inner.get("port");
    let address = inner.get("addr");
    if address.is_some() || port.is_some() {
        text.push_str(" to ");
    }
    if let Some(address) = address {
        text.push_str(&address_text(address, port.is_some())?);
    }
    if let Some(port) = port {
        let _ = write!(text, ":{}", convert_expression(port, &Kind::Plain)?);
    }
    // The prefix type implies `netmap`.
    let flags = flags(inner, "flags");
    let flags: Vec<&str> = flags
        .iter()
        .map(String::as_str)
        .filter(|flag| *flag != "netmap")
        .collect();
    if !flags.is_empty() {
        let _ = write!(text, " {}", flags.join(","));
    }
    Ok(text)
}

/// Returns flags, which are a string or an array.
fn flags(inner: &Value, member: &str) -> Vec<String> {
    match inner.get(member) {
        Some(Value::List(flags)) => flags.iter().map(Value::to_string).collect(),
        Some(flag) => vec![flag.to_string()],
        None => Vec::new(),
    }
}

/// Returns an address or range. IPv6 addresses before a port are in brackets.
fn address_text(address: &Value, has_port: bool) -> Result<String, Unknown> {
    match (address, address.only_member()) {
        (Value::Text(text), _) if has_port && text.contains(':') => Ok(format!("[{text}]")),
        (_, Some(("range", range))) if has_port => {
            let bounds: Result<Vec<String>, Unknown> = range
                .items()
                .iter()
                .map(|bound| address_text(bound, has_port))
                .collect();
            Ok(bounds?.join("-"))
        }
        _ => convert_expression(address, &Kind::Plain),
    }
}

/// Converts a copy or redirection of a packet: `dup to 10.0.0.1 device "eth0"`. In the family
/// `netdev`, the target is a device.
pub(super) fn convert_copy(name: &str, inner: &Value) -> Result<String, Unknown> {
    let device = inner.get("dev");
    let family = inner
        .text("family")
        .map_or_else(String::new, |family| format!(" {family}"));
    let device_text = |device: &Value| convert_expression(device, &Kind::Quoted);
    let Some(address) = inner.get("addr") else {
        let device = device.ok_or_else(|| Unknown::new(name))?;
        return Ok(format!("{name} to {}", device_text(device)?));
    };
    let target = match address {
        Value::Text(text) if text.parse::<std::net::IpAddr>().is_err() => quoted(text)?,
        address => convert_expression(address, &Kind::Plain)?,
    };
    let end = match device {
        Some(device) => format!(" device {}", device_text(device)?),
        None => String::new(),
    };
    Ok(format!("{name}{family} to {target}{end}"))
}
