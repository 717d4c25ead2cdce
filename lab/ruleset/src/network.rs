//! Properties of networks in the formats of programs.

use std::net::IpAddr;

use ipnetwork::IpNetwork;

/// Returns the prefix length of a network with a single address: 32 or 128.
#[must_use]
pub const fn full_prefix(ip: IpAddr) -> u8 {
    match ip {
        IpAddr::V4(_) => 32,
        IpAddr::V6(_) => 128,
    }
}

/// Whether a network has a single address.
#[must_use]
pub fn is_single(network: IpNetwork) -> bool {
    network.prefix() == full_prefix(network.ip())
}

/// Formats a network without host bits, and one with a single address as the address.
#[must_use]
pub fn format_network(network: IpNetwork) -> String {
    if is_single(network) {
        network.ip().to_string()
    } else {
        format!("{}/{}", network.network(), network.prefix())
    }
}
