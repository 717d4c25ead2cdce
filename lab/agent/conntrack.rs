//! Forgetting connections.

use std::io;

use netlink_packet_core::{NLM_F_ACK, NLM_F_REQUEST};
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_NETFILTER};

use super::failure;
use super::netns::NetNs;
use crate::protocol::Failure;

/// Delete from conntrack; without a tuple, everything (Linux v6.12,
/// `net/netfilter/nf_conntrack_netlink.c`, `ctnetlink_del_conntrack`).
const DELETE: u16 = 1 << 8 | 2;

/// A netlink header, and netfilter's own of four bytes that says any family.
const LENGTH: u32 = 16 + 4;

/// Has conntrack forget every connection of a namespace.
///
/// # Errors
///
/// When the kernel refuses it.
pub fn forget(ns: &NetNs, name: &str) -> Result<(), Failure> {
    ns.enter(ask).and_then(|asked| asked).map_err(|error| {
        failure::machine(
            format!("cannot forget the connections of {name}: {error}"),
            &error,
        )
    })
}

fn ask() -> io::Result<()> {
    let mut socket = Socket::new(NETLINK_NETFILTER)?;
    socket.bind_auto()?;
    let mut message = Vec::with_capacity(20);
    message.extend_from_slice(&LENGTH.to_ne_bytes());
    message.extend_from_slice(&DELETE.to_ne_bytes());
    message.extend_from_slice(&(NLM_F_REQUEST | NLM_F_ACK).to_ne_bytes());
    message.extend_from_slice(&[0; 8 + 4]);
    socket.send_to(&message, &SocketAddr::new(0, 0), 0)?;
    // The answer is there when the request has been taken.
    let (answer, _) = socket.recv_from_full()?;
    let code = answer
        .get(16..20)
        .and_then(|bytes| bytes.try_into().ok())
        .map_or(0, i32::from_ne_bytes);
    if code == 0 {
        Ok(())
    } else {
        Err(io::Error::from_raw_os_error(-code))
    }
}
