//! Compares interfaces and their addresses.

use std::net::{IpAddr, Ipv6Addr};

use super::super::difference::{DumpChange, DumpLocation, Side};
use super::super::hardware::OwnHardwareAddresses;
use super::super::lists::{self, ListItem};
use super::super::owner;
use super::{Comparison, union_of_names, value_change};
use ipnetwork::IpNetwork;
use svclab_rules::kube_proxy::ipvs::DUMMY;
use svclab_ruleset::link::{Address, Link, Links, has_only_addressed_links};

pub(super) fn compare(comparison: &mut Comparison<'_>, first: &Links, second: &Links) {
    let addresses = [first, second].map(OwnHardwareAddresses::from_links);
    let changed_addresses = addresses[0].changes(&addresses[1]);
    for name in union_of_names(first.keys(), second.keys()) {
        // kube-proxy binds the addresses of services in the order of a Go map.
        let is_any_order = name == DUMMY;
        let changes = match (first.get(name), second.get(name)) {
            (Some(link), None) | (None, Some(link)) if is_unlisted(link, [first, second]) => {
                continue;
            }
            (Some(a), Some(b)) => {
                let mut changes = heading_changes(a, b);
                let has_unknown = a.mac.is_some() != b.mac.is_some();
                let [a_items, b_items] = [a, b].map(|link| {
                    let is_derived = |address: &IpNetwork| is_derived(link, address, has_unknown);
                    address_items(link, is_any_order, is_derived)
                });
                changes.extend(lists::compare(&a_items, &b_items));
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

/// Whether an interface that only one of the lists has may be missing in the other list because
/// that list has only interfaces with addresses.
fn is_unlisted(link: &Link, lists: [&Links; 2]) -> bool {
    link.addresses.is_empty() && lists.into_iter().any(has_only_addressed_links)
}

pub(super) fn whole_link_changes(link: &Link, only: Side) -> Vec<DumpChange> {
    let addresses = address_items(link, false, |_| false)
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

/// Returns the changes of an interface, except for its addresses. Properties that one of the
/// outputs does not print are not compared.
pub(super) fn heading_changes(first: &Link, second: &Link) -> Vec<DumpChange> {
    let mut changes = Vec::new();
    if first.is_partial() || second.is_partial() {
        return changes;
    }
    let (first_flags, second_flags) = (flags(first), flags(second));
    changes.extend(value_change(
        "flags",
        Some(&first_flags),
        Some(&second_flags),
    ));
    changes.extend(value_change("linked interface", peer(first), peer(second)));
    let names = |link: &Link| -> Vec<String> {
        let attributes = link.attributes.0.iter();
        attributes
            .map(|attribute| attribute.name.to_string())
            .collect()
    };
    let (first_names, second_names) = (names(first), names(second));
    for name in union_of_names(first_names.iter(), second_names.iter()) {
        if is_printed(first, name, second) && is_printed(second, name, first) {
            let (first, second) = (attribute(first, name), attribute(second, name));
            changes.extend(value_change(name, first, second));
        }
    }
    let (first_layer, second_layer) = (link_layer(first), link_layer(second));
    let is_known = |link: &Link| link.link_layer.is_some() || link.lacks_link_layer;
    if is_known(first) && is_known(second) {
        let (first, second) = (first_layer.as_deref(), second_layer.as_deref());
        changes.extend(value_change("link layer", first, second));
    }
    if first_layer.is_some() && second_layer.is_some() {
        for name in ["protodown", "protodown_reason"] {
            let value = |link: &'_ Link| {
                let (_, attributes) = link.link_layer.as_ref()?;
                attributes.get(name).map(str::to_owned)
            };
            let (first, second) = (value(first), value(second));
            changes.extend(value_change(name, first.as_deref(), second.as_deref()));
        }
    }
    let alternative_names = |link: &Link| {
        let names: Vec<&str> = link.other_names.iter().map(|name| &**name).collect();
        (!names.is_empty()).then(|| names.join(" "))
    };
    if first.is_complete() == second.is_complete() {
        let (first, second) = (alternative_names(first), alternative_names(second));
        changes.extend(value_change(
            "alternative names",
            first.as_deref(),
            second.as_deref(),
        ));
    }
    changes
}

/// Whether the output of an interface shows if an attribute is set. Only `ip link` prints `mode`,
/// and `ip -6 addr` prints only some attributes.
fn is_printed(link: &Link, name: &str, other: &Link) -> bool {
    let is_incomplete = !link.is_complete() && other.is_complete();
    link.attributes.has(name) || (name != "mode" && !is_incomplete)
}

/// Returns the value of an attribute. `None` if it is not set. The kernel chooses the numbers of
/// XDP programs.
fn attribute<'l>(link: &'l Link, name: &str) -> Option<&'l str> {
    let is_set = || link.attributes.has(name);
    if name.starts_with("xdp") {
        return is_set().then_some("attached");
    }
    link.attributes.get(name)
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
    let rest = attributes.canonical(&[
        "link-netns",
        "link-netnsid",
        "permaddr",
        "protodown",
        "protodown_reason",
    ]);
    Some(format!("{kind} {address} {rest}").trim_end().to_owned())
}

fn address_items(
    link: &Link,
    is_any_order: bool,
    is_derived: impl Fn(&IpNetwork) -> bool,
) -> Vec<ListItem> {
    let addresses = link.addresses.iter();
    let mut items: Vec<ListItem> = addresses
        .map(|address| address_item(address, is_derived(&address.network)))
        .collect();
    if is_any_order {
        items.sort_by(|a, b| a.key.cmp(&b.key));
    }
    items
}

/// Whether the kernel has derived an address from the hardware address. `has_unknown` states that
/// only one of the compared outputs prints the hardware address. Then each address in the form of
/// derived ones counts.
fn is_derived(link: &Link, network: &IpNetwork, has_unknown: bool) -> bool {
    let IpAddr::V6(address) = network.ip() else {
        return false;
    };
    let bytes = address.octets();
    let has_form = bytes[..8] == [0xfe, 0x80, 0, 0, 0, 0, 0, 0] && bytes[11..13] == [0xff, 0xfe];
    (has_unknown && has_form) || link_local(link) == Some(address)
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
    let mut insignificant = Vec::new();
    if attributes.get("proto").is_some_and(is_kernel) {
        insignificant.push("proto");
    }
    if network.ip() == IpAddr::V6(Ipv6Addr::LOCALHOST) {
        insignificant.push("noprefixroute");
    }
    let options = attributes.canonical(&insignificant);
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

/// Whether the kernel has added an address with this protocol. Versions before Linux 5.18 and
/// iproute2 6.3 do not print protocols (Linux v6.12, `include/uapi/linux/if_addr.h`,
/// `IFAPROT_KERNEL_LO`).
fn is_kernel(protocol: &str) -> bool {
    let number = protocol.strip_prefix("0x").unwrap_or(protocol);
    protocol.starts_with("kernel") || matches!(number, "1" | "2" | "3")
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
