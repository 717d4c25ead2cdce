//! Compares interfaces and their addresses.

use std::net::{IpAddr, Ipv6Addr};

use super::super::difference::{Change, Place, Side};
use super::super::lists::{self, Item};
use super::super::owner;
use super::{Comparison, names, value};
use svclab_rules::kube_proxy::ipvs::DUMMY;
use svclab_ruleset::link::{Address, Link, Links};

pub(super) fn compare(to: &mut Comparison<'_>, first: &Links, second: &Links) {
    for name in names(first.keys(), second.keys()) {
        // kube-proxy binds the addresses of services in the order of a Go map.
        let free = name == DUMMY;
        let changes = match (first.get(name), second.get(name)) {
            (Some(a), Some(b)) => both(a, b, free),
            (Some(link), None) => whole(link, Side::First),
            (None, Some(link)) => whole(link, Side::Second),
            (None, None) => continue,
        };
        for change in changes {
            let place = Place::Link { name: name.clone() };
            to.differ(place, change, owner::of_link(name));
        }
    }
}

fn whole(link: &Link, only: Side) -> Vec<Change> {
    let addresses = items(link, false).into_iter().map(|item| Change::Item {
        only,
        item: item.written,
        line: item.line,
    });
    let begins = Change::Whole {
        only,
        line: link.line,
    };
    std::iter::once(begins).chain(addresses).collect()
}

fn both(first: &Link, second: &Link, free: bool) -> Vec<Change> {
    let mut changes = Vec::new();
    let (one, other) = (flags(first), flags(second));
    changes.extend(value("flags", Some(&one), Some(&other)));
    changes.extend(value("tied to", tied(first), tied(second)));
    let attributes = |link: &Link| -> Vec<String> {
        let all = link.attributes.0.iter();
        all.map(|attribute| attribute.name.to_string()).collect()
    };
    let (one, other) = (attributes(first), attributes(second));
    for name in names(one.iter(), other.iter()) {
        changes.extend(value(
            name,
            first.attributes.get(name),
            second.attributes.get(name),
        ));
    }
    let (one, other) = (layer(first), layer(second));
    changes.extend(value("link layer", one.as_deref(), other.as_deref()));
    let others = |link: &Link| {
        let names: Vec<&str> = link.other_names.iter().map(|name| &**name).collect();
        (!names.is_empty()).then(|| names.join(" "))
    };
    let (one, other) = (others(first), others(second));
    changes.extend(value("other names", one.as_deref(), other.as_deref()));
    changes.extend(lists::compare(&items(first, free), &items(second, free)));
    changes
}

fn flags(link: &Link) -> String {
    let mut flags: Vec<&str> = link.flags.iter().map(|flag| &**flag).collect();
    flags.sort_unstable();
    flags.join(",")
}

/// Returns the interface to which an interface is tied, or `None`. The number of an interface in
/// another namespace (`if5`) is not significant.
fn tied(link: &Link) -> Option<&str> {
    let tied = link.tied.as_deref()?;
    let number = tied.strip_prefix("if");
    let is_number = number.is_some_and(|n| n.bytes().all(|b| b.is_ascii_digit()));
    Some(if is_number { "another namespace" } else { tied })
}

/// Returns the kind of the link layer and, for a tunnel, its ends.
fn layer(link: &Link) -> Option<String> {
    let (kind, attributes) = link.layer.as_ref()?;
    let hardware = ["ether", "loopback", "infiniband"].contains(&&**kind);
    if hardware {
        return Some(kind.to_string());
    }
    let address = link.hardware.as_deref().unwrap_or_default();
    let rest = attributes.canonical(&["link-netnsid", "permaddr"]);
    Some(format!("{kind} {address} {rest}").trim_end().to_owned())
}

fn items(link: &Link, free: bool) -> Vec<Item> {
    let own = link_local(link).map(IpAddr::V6);
    let addresses = link.addresses.iter();
    let mut items: Vec<Item> = addresses
        .map(|address| item(address, own == Some(address.network.ip())))
        .collect();
    if free {
        items.sort_by(|a, b| a.key.cmp(&b.key));
    }
    items
}

/// Returns an address as an item. If the address is derived from the hardware address, its value is
/// not significant.
fn item(address: &Address, made: bool) -> Item {
    let Address {
        network,
        written,
        attributes,
        label,
        lifetime,
        line,
    } = address;
    let said = attributes.canonical(&[]);
    let label = label.as_deref().unwrap_or_default();
    let limited = |name: &str| match lifetime.get(name) {
        None => "",
        Some("forever") => "forever",
        Some(_) => "limited",
    };
    let (valid, preferred) = (limited("valid_lft"), limited("preferred_lft"));
    let which = if made {
        format!("link-local/{}", network.prefix())
    } else {
        network.to_string()
    };
    Item {
        key: format!("{which} {said} {label} {valid} {preferred}"),
        written: format!("{written} {said} {label}").trim_end().to_owned(),
        line: *line,
    }
}

/// Returns the link-local address that the kernel derives from a hardware address (RFC 4291,
/// appendix A).
fn link_local(link: &Link) -> Option<Ipv6Addr> {
    let bytes: Vec<u8> = link
        .hardware
        .as_deref()?
        .split(':')
        .map(|byte| u8::from_str_radix(byte, 16))
        .collect::<Result<_, _>>()
        .ok()?;
    let bytes: [u8; 6] = bytes.try_into().ok()?;
    let mut address = [0; 16];
    address[..2].copy_from_slice(&[0xfe, 0x80]);
    address[8..11].copy_from_slice(&bytes[..3]);
    address[8] ^= 2;
    address[11..13].copy_from_slice(&[0xff, 0xfe]);
    address[13..].copy_from_slice(&bytes[3..]);
    Some(Ipv6Addr::from(address))
}
