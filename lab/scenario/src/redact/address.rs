//! Renames addresses so that two of them have as many leading bits in common as before. Addresses
//! of special ranges stay unchanged, or stay in their range.
//!
//! Addresses are texts of `0` and `1`, as in the awk program of `scripts/collect-node`.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::LazyLock;

use ipnetwork::IpNetwork;

use crate::redact::key::RedactionKey;

/// Ranges whose addresses stay unchanged.
const FIXED: [&str; 7] = [
    "127.0.0.0/8",
    "0.0.0.0/8",
    "169.254.0.0/16",
    "224.0.0.0/3",
    "::/128",
    "::1/128",
    "ff00::/8",
];

/// Ranges whose addresses stay in the range: private and link-local addresses, global unicast,
/// NAT64, and embedded IPv4 addresses.
const KEPT: [&str; 10] = [
    "10.0.0.0/8",
    "172.16.0.0/12",
    "192.168.0.0/16",
    "100.64.0.0/10",
    "fc00::/8",
    "fd00::/8",
    "fe80::/64",
    "2000::/3",
    "64::/16",
    "::/96",
];

static FIXED_PREFIXES: LazyLock<Vec<String>> = LazyLock::new(|| prefixes(&FIXED));
static KEPT_PREFIXES: LazyLock<Vec<String>> = LazyLock::new(|| prefixes(&KEPT));

/// Returns the ranges as texts of their family and their leading bits.
fn prefixes(ranges: &[&str]) -> Vec<String> {
    let networks = ranges
        .iter()
        .filter_map(|range| range.parse::<IpNetwork>().ok());
    let prefix = |network: IpNetwork| {
        let bits = match network.ip() {
            IpAddr::V4(four) => format!("4{:032b}", four.to_bits()),
            IpAddr::V6(six) => format!("6{:0128b}", six.to_bits()),
        };
        bits[..=usize::from(network.prefix())].to_owned()
    };
    networks.map(prefix).collect()
}

/// Whether the bit after a prefix decides about the membership in a range.
fn is_above_range(prefix: &str) -> bool {
    let mut ranges = FIXED_PREFIXES.iter().chain(KEPT_PREFIXES.iter());
    ranges.any(|range| range.len() > prefix.len() && range.starts_with(prefix))
}

impl RedactionKey {
    /// Returns the new text for an address, or for a network `ADDRESS/LENGTH`. `None` for any other
    /// text.
    #[must_use]
    pub fn redact_address(&self, text: &str) -> Option<String> {
        let (address, length) = match text.split_once('/') {
            Some((address, length)) => (address, Some(length.parse::<usize>().ok()?)),
            None => (text, None),
        };
        let address = self.turn(address.parse().ok()?, length);
        Some(match length {
            Some(length) => format!("{address}/{length}"),
            None => address.to_string(),
        })
    }

    /// Returns the new address for an address with an optional prefix length.
    fn turn(&self, address: IpAddr, length: Option<usize>) -> IpAddr {
        match address {
            IpAddr::V4(four) => {
                let bits = format!("{:032b}", four.to_bits());
                let turned = turn_network(self, '4', &bits, length);
                u32::from_str_radix(&turned, 2)
                    .map_or(address, |bits| Ipv4Addr::from_bits(bits).into())
            }
            IpAddr::V6(six) => {
                let bits = format!("{:0128b}", six.to_bits());
                // The address of all routers of a subnet is printed without a length.
                let length = length.or(Some(64));
                let turned = turn_network(self, '6', &bits, length);
                u128::from_str_radix(&turned, 2)
                    .map_or(address, |bits| Ipv6Addr::from_bits(bits).into())
            }
        }
    }
}

/// Returns the new bits of an address. A network whose bits after its length are 0 stays such a
/// network.
fn turn_network(key: &RedactionKey, family: char, bits: &str, length: Option<usize>) -> String {
    let turned = turn_bits(key, family, bits);
    match length {
        Some(length) if length < bits.len() && !bits[length..].contains('1') => {
            format!("{}{}", &turned[..length], &bits[length..])
        }
        _ => turned,
    }
}

/// Inverts each bit after the fixed ones, or not, depending on the bits before it. The first of
/// these bits is always inverted, so that no address keeps its value. The last bits stay: they
/// identify gateways and broadcast addresses.
fn turn_bits(key: &RedactionKey, family: char, bits: &str) -> String {
    let last = if family == '4' { 24 } else { 112 };
    let mut prefix = String::from(family);
    let mut turned = String::with_capacity(bits.len());
    let mut is_free = false;
    for (index, bit) in bits.char_indices() {
        if index >= last || FIXED_PREFIXES.contains(&prefix) {
            turned.push_str(&bits[index..]);
            break;
        }
        let is_inverted = !is_above_range(&prefix) && {
            let is_first = !std::mem::replace(&mut is_free, true);
            is_first || is_inverted(key, &prefix)
        };
        turned.push(if is_inverted == (bit == '0') {
            '1'
        } else {
            '0'
        });
        prefix.push(bit);
    }
    turned
}

/// Whether the bit after a prefix is inverted. The hash of the whole bytes before has a bit for
/// each node of the tree of the next byte: 1 is the root, and 2 n and 2 n + 1 follow n.
fn is_inverted(key: &RedactionKey, prefix: &str) -> bool {
    let whole = 1 + (prefix.len() - 1) / 8 * 8;
    let node = prefix[whole..]
        .bytes()
        .fold(1, |node, bit| 2 * node + usize::from(bit == b'1'));
    let hash = key.hash(&format!("bits {}", &prefix[..whole]));
    hash[node / 8] >> (7 - node % 8) & 1 == 1
}
