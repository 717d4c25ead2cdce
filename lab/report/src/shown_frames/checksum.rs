//! Verifies checksums of headers.

use std::net::IpAddr;

use pnet::packet::util::{ipv4_checksum, ipv6_checksum};

use super::header::ChecksumState;
use super::layer::Transport;

/// Compares a checksum with the computed one.
pub(super) const fn verify_header(value: u16, computed: u16) -> ChecksumState {
    if value == computed {
        ChecksumState::Correct
    } else {
        ChecksumState::Wrong
    }
}

/// Verifies the checksum of a complete payload, which includes the pseudo-header. The checksum is
/// given with its position, in words of 2 bytes.
pub(super) fn verify(
    transport: Transport,
    bytes: &[u8],
    (value, position): (u16, usize),
) -> ChecksumState {
    let computed = sum(transport, bytes, position);
    // The sum of the pseudo-header alone, which Linux writes without the final complement
    // (Linux, include/net/tcp.h, `__tcp_v4_send_check`).
    let partial = !sum(transport, &vec![0; bytes.len()], position);
    // 0 stands for no checksum in UDP, so a sum of 0 is sent as its complement (RFC 768).
    if value == computed || (computed == 0 && value == u16::MAX) {
        ChecksumState::Correct
    } else if value == partial {
        ChecksumState::Partial
    } else {
        ChecksumState::Wrong
    }
}

/// Computes the checksum of a payload and its pseudo-header.
pub(super) fn sum(transport: Transport, bytes: &[u8], position: usize) -> u16 {
    let protocol = transport.protocol;
    match (transport.source, transport.destination) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            ipv4_checksum(bytes, position, &[], &source, &destination, protocol)
        }
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            ipv6_checksum(bytes, position, &[], &source, &destination, protocol)
        }
        // Both addresses are from one header.
        _ => 0,
    }
}
