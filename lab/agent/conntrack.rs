//! Forgetting connections.

use super::netns::NetNs;
use super::{failure, nfnetlink};
use crate::protocol::Failure;

/// Delete from conntrack; without a tuple, everything (Linux v6.12,
/// `net/netfilter/nf_conntrack_netlink.c`, `ctnetlink_del_conntrack`).
const DELETE: u16 = 1 << 8 | 2;

/// Has conntrack forget every connection of a namespace.
///
/// # Errors
///
/// When the kernel refuses it.
pub fn forget(ns: &NetNs, name: &str) -> Result<(), Failure> {
    let asked = ns.enter(|| nfnetlink::ask(DELETE, 0, &[]));
    asked.and_then(|asked| asked).map_err(|error| {
        failure::machine(
            format!("cannot forget the connections of {name}: {error}"),
            &error,
        )
    })
}
