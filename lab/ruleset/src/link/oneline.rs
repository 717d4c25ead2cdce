//! Parses lines of `ip -o addr`, which show an address without the flags of its interface, and
//! recognises output without link layers.

use super::{Link, Links};
use crate::text::attributes::Attributes;
use crate::text::{Field, Line, Text, fields};

/// Splits `2: eth0    inet 10.0.0.1/24 …` into the name of the interface and the rest. `None` for
/// other lines.
pub(super) fn split_address(line: Line<'_>) -> Option<(Field<'_>, Line<'_>)> {
    let mut words = fields(line);
    let (index, name, family) = (words.next()?, words.next()?, words.next()?);
    let number = index.text.strip_suffix(':')?;
    let is_number = number.bytes().all(|byte| byte.is_ascii_digit());
    if !is_number || name.text.ends_with(':') || !matches!(family.text, "inet" | "inet6") {
        return None;
    }
    let rest = Line {
        text: &line.text[family.start - line.start..],
        start: family.start,
        indented: true,
        ..line
    };
    Some((name, rest))
}

/// Returns an interface of which only addresses are known. Interfaces with addresses are usually up.
pub(super) fn unknown_link(line: u32) -> Link {
    Link {
        linked_to: None,
        flags: vec![Text::new("UP"), Text::new("LOWER_UP")],
        attributes: Attributes::default(),
        link_layer: None,
        lacks_link_layer: false,
        mac: None,
        other_names: Vec::new(),
        addresses: Vec::new(),
        line,
    }
}

/// Whether all outputs of interfaces are of `ip -4 addr`, `ip -6 addr` or `ip -o addr`, which print
/// neither link layers nor interfaces without addresses (iproute2 7.1, `ip/ipaddress.c`,
/// `print_linkinfo`).
#[must_use]
pub fn has_only_addressed_links(links: &Links) -> bool {
    let is_addressed = |link: &Link| link.link_layer.is_none() && !link.addresses.is_empty();
    let is_real = |link: &Link| link.is_partial() || link.is_complete();
    links.values().all(is_addressed) && links.values().any(is_real)
}
