//! Compares interfaces and their addresses.

use std::net::{IpAddr, Ipv6Addr};

use super::super::difference::{DumpChange, DumpLocation, Side};
use super::super::hardware::OwnHardwareAddresses;
use super::super::lists::{self, ListItem};
use super::super::owner;
use super::{Comparison, union_of_names, value_change};
use svclab_rules::kube_proxy::ipvs::DUMMY;
use svclab_ruleset::link::{Address, Link, Links};

pub(super) fn compare(comparison: &mut Comparison<'_>, first: &Links, second: &Links) {
    let addresses = [first, second].map(OwnHardwareAddresses::from_links);
    let changed_addresses = addresses[0].changes(&addresses[1]);
    for name in union_of_names(first.keys(), second.keys()) {
        // kube-proxy binds the addresses of services in the order of a Go map.
        let is_any_order = name == DUMMY;
        let changes = match (first.get(name), second.get(name)) {
            (Some(a), Some(b)) => {
                let mut changes = link_changes(a, b, is_any_order);
                if let Some([a, b]) = changed_addresses.get(name.as_str()) {
                    changes.extend(value_change("hardware address", Some(a), Some(b)));
                }
                changes
            }
            (Some(link), None) => whole_link_changes(link, Side::First),
            (None, Some(link)) => whole_link_changes(link, Side::Second),
            (None, None) => continue,
        };
        for change in changes {
            let place = DumpLocation::Link { name: name.clone() };
            comparison.add_difference(place, change, owner::link_owner(name));
        }
    }
}

fn whole_link_changes(link: &Link, only: Side) -> Vec<DumpChange> {
    let addresses = address_items(link, false)
        .into_iter()
        .map(|item| DumpChange::Item {
            only,
            item: item.source_text,
            line: item.line,
        });
    let whole_change = DumpChange::Whole {
        only,
        line: link.line,
    };
    std::iter::once(whole_change).chain(addresses).collect()
}

fn link_changes(first: &Link, second: &Link, is_any_order: bool) -> Vec<DumpChange> {
    let mut changes = Vec::new();
    let (first_flags, second_flags) = (flags(first), flags(second));
    changes.extend(value_change(
        "flags",
        Some(&first_flags),
        Some(&second_flags),
    ));
    changes.extend(value_change("linked interface", peer(first), peer(second)));
    let attributes = |link: &Link| -> Vec<String> {
        let attributes = link.attributes.0.iter();
        attributes
            .map(|attribute| attribute.name.to_string())
            .collect()
    };
    let (first_names, second_names) = (attributes(first), attributes(second));
    for name in union_of_names(first_names.iter(), second_names.iter()) {
        changes.extend(value_change(
            name,
            first.attributes.get(name),
            second.attributes.get(name),
        ));
    }
    let (first_layer, second_layer) = (link_layer(first), link_layer(second));
    changes.extend(value_change(
        "link layer",
        first_layer.as_deref(),
        second_layer.as_deref(),
    ));
    let alternative_names = |link: &Link| {
        let names: Vec<&str> = link.other_names.iter().map(|name| &**name).collect();
        (!names.is_empty()).then(|| names.join(" "))
    };
    let (first_alternatives, second_alternatives) =
        (alternative_names(first), alternative_names(second));
    changes.extend(value_change(
        "alternative names",
        first_alternatives.as_deref(),
        second_alternatives.as_deref(),
    ));
    changes.extend(lists::compare(
        &address_items(first, is_any_order),
        &address_items(second, is_any_order),
    ));
    changes
}

fn flags(link: &Link) -> String {
    let mut flags: Vec<&str> = link.flags.iter().map(|flag| &**flag).collect();
    flags.sort_unstable();
    flags.join(",")
}

/// Returns the interface to which an interface is tied, or `None`. The number of an interface in
/// another namespace (`if5`) is not significant.
fn peer(link: &Link) -> Option<&str> {
    let tied = link.linked_to.as_deref()?;
    let number = tied.strip_prefix("if");
    let is_number = number.is_some_and(|n| n.bytes().all(|b| b.is_ascii_digit()));
    Some(if is_number { "another namespace" } else { tied })
}

/// Returns the kind of the link layer and, for a tunnel, its ends.
fn link_layer(link: &Link) -> Option<String> {
    let (kind, attributes) = link.link_layer.as_ref()?;
    let hardware = ["ether", "loopback", "infiniband"].contains(&&**kind);
    if hardware {
        return Some(kind.to_string());
    }
    let address = link.mac.as_deref().unwrap_or_default();
    let rest = attributes.canonical(&["link-netnsid", "permaddr"]);
    Some(format!("{kind} {address} {rest}").trim_end().to_owned())
}

fn address_items(link: &Link, is_any_order: bool) -> Vec<ListItem> {
    let derived_address = link_local(link).map(IpAddr::V6);
    let addresses = link.addresses.iter();
    let mut items: Vec<ListItem> = addresses
        .map(|address| address_item(address, derived_address == Some(address.network.ip())))
        .collect();
    if is_any_order {
        items.sort_by(|a, b| a.key.cmp(&b.key));
    }
    items
}

/// Returns an address as an item. If the address is derived from the hardware address, its value is
/// not significant.
fn address_item(address: &Address, is_derived: bool) -> ListItem {
    let Address {
        network,
        source_text: written,
        attributes,
        label,
        lifetime,
        line,
    } = address;
    let options = attributes.canonical(&[]);
    let label = label.as_deref().unwrap_or_default();
    let limited = |name: &str| match lifetime.get(name) {
        None => "",
        Some("forever") => "forever",
        Some(_) => "limited",
    };
    let (valid, preferred) = (limited("valid_lft"), limited("preferred_lft"));
    let address_text = if is_derived {
        format!("link-local/{}", network.prefix())
    } else {
        network.to_string()
    };
    ListItem {
        key: format!("{address_text} {options} {label} {valid} {preferred}"),
        source_text: format!("{written} {options} {label}").trim_end().to_owned(),
        line: *line,
    }
}

/// Returns the link-local address that the kernel derives from a hardware address (RFC 4291,
/// appendix A).
fn link_local(link: &Link) -> Option<Ipv6Addr> {
    let bytes: Vec<u8> = link
        .mac
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
