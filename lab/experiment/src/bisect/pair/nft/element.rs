//! Finds elements of interval sets that overlap. The kernel rejects a set with both.

use std::net::IpAddr;

use ipnetwork::IpNetwork;

use super::MergedItem;
use crate::bisect::merge::{Merged, SlotOrigin};
use crate::bisect::pair::graph::DifferenceGraph;
use svclab_ruleset::nft::{Element, Set};

/// Range of values of one field of a key.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Field<'k> {
    /// First and last number of an address range, and whether the addresses are IPv6.
    Addresses(bool, u128, u128),
    /// First and last number.
    Numbers(u128, u128),
    /// Any other value.
    Word(&'k str),
}

/// Joins differences of the good and of the bad side whose elements overlap.
pub(super) fn join_overlapping(
    set: &Set,
    elements: &Merged<MergedItem<Element>>,
    graph: &mut DifferenceGraph,
) {
    let is_interval = set.flags.iter().any(|flag| flag == "interval");
    if !is_interval
        || set
            .properties
            .iter()
            .any(|property| property == "auto-merge")
    {
        return;
    }
    let (mut good, mut bad) = (Vec::new(), Vec::new());
    for slot in &elements.slots {
        match slot.origin {
            SlotOrigin::Good(difference) => good.push((difference, slot.item.item.canonical_key())),
            SlotOrigin::Bad(difference) => bad.push((difference, slot.item.item.canonical_key())),
            SlotOrigin::Both => {}
        }
    }
    let bad = parse_keys(&bad);
    for (difference, fields) in parse_keys(&good) {
        for (other, other_fields) in &bad {
            let mut pairs = fields.iter().zip(other_fields);
            if pairs.all(|(field, other)| field.overlaps(other)) {
                graph.join(difference, *other);
            }
        }
    }
}

/// Splits each key into its fields.
fn parse_keys(keys: &[(usize, String)]) -> Vec<(usize, Vec<Field<'_>>)> {
    let parsed = keys.iter().map(|(difference, key)| {
        let fields = key.split(" . ").map(Field::parse);
        (*difference, fields.collect())
    });
    parsed.collect()
}

impl<'k> Field<'k> {
    fn parse(text: &'k str) -> Self {
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        if let (Some(first), Some(last)) = (addresses(first), addresses(last)) {
            return Self::Addresses(first.0, first.1, last.2);
        }
        match (first.parse(), last.parse()) {
            (Ok(first), Ok(last)) => Self::Numbers(first, last),
            _ => Self::Word(text),
        }
    }

    fn overlaps(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Addresses(v6, first, last), Self::Addresses(other_v6, start, end)) => {
                v6 == other_v6 && first <= end && start <= last
            }
            (Self::Numbers(first, last), Self::Numbers(start, end)) => {
                first <= end && start <= last
            }
            (field, other) => field == other,
        }
    }
}

/// Parses an address or network: whether it is IPv6, and its first and last address. `None` for
/// other texts.
fn addresses(text: &str) -> Option<(bool, u128, u128)> {
    if let Ok(ip) = text.parse::<IpAddr>() {
        let bits = address_bits(ip);
        return Some((ip.is_ipv6(), bits, bits));
    }
    let network: IpNetwork = text.parse().ok()?;
    let last = network.broadcast();
    Some((
        last.is_ipv6(),
        address_bits(network.network()),
        address_bits(last),
    ))
}

fn address_bits(ip: IpAddr) -> u128 {
    match ip {
        IpAddr::V4(ip) => ip.to_bits().into(),
        IpAddr::V6(ip) => ip.to_bits(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_overlap_by_value() {
        for (left, right, expected) in [
            ("10.0.0.0/8", "10.1.0.0/16", true),
            ("10.0.0.0-10.0.0.9", "10.0.0.9", true),
            ("10.0.0.0/24", "10.0.1.0/24", false),
            ("fd00::/8", "fd00::1", true),
            ("0.0.0.1", "::1", false),
            ("80-90", "85", true),
            ("80", "443", false),
            ("tcp", "tcp", true),
            ("tcp", "udp", false),
        ] {
            let overlap = Field::parse(left).overlaps(&Field::parse(right));
            assert_eq!(overlap, expected, "{left} {right}");
        }
    }
}
