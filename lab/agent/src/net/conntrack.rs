//! Deletes conntrack entries.

use std::collections::BTreeSet;
use std::io;
use std::net::{IpAddr, SocketAddr};

use nix::errno::Errno;

use crate::net::netns::NetNs;
use crate::net::nfnetlink;
use crate::runtime::failure;
use crate::watch::trace::attributes::EncodedAttributes;
use crate::watch::trace::conntrack_entries;
use svclab_model::evidence::{AddressPair, ConntrackEntry};
use svclab_model::plan::ConntrackFilter;
use svclab_model::protocol::Failure;

/// Message that deletes conntrack entries; without a tuple, all entries (Linux v6.12,
/// `net/netfilter/nf_conntrack_netlink.c`, `ctnetlink_del_conntrack`).
const CTNETLINK_DELETE: u16 = 1 << 8 | 2;

/// Deletes all conntrack entries of a namespace.
///
/// # Errors
///
/// When the kernel rejects the request.
pub fn delete_all(ns: &NetNs, name: &str) -> Result<(), Failure> {
    let result = ns.enter(|| nfnetlink::request(CTNETLINK_DELETE, 0, &[]));
    result.and_then(|asked| asked).map_err(|error| {
        failure::host(
            format!("cannot delete the conntrack entries of {name}: {error}"),
            &error,
        )
    })
}

/// Deletes the stale conntrack entries of a namespace, each by its tuple, like `conntrack -D`.
///
/// # Errors
///
/// When the kernel does not list its entries or rejects a deletion.
pub fn delete_stale(
    ns: &NetNs,
    name: &str,
    stale: &BTreeSet<ConntrackFilter>,
) -> Result<(), Failure> {
    let delete = || -> io::Result<()> {
        let entries = conntrack_entries::read_entries(ns, name)?;
        let matching = entries
            .iter()
            .filter(|entry| stale.iter().any(|forget| forget.matches(entry)));
        for entry in matching {
            let result = ns.enter(|| {
                nfnetlink::request_for_family(
                    family(entry),
                    CTNETLINK_DELETE,
                    original_tuple(entry).bytes(),
                )
            })?;
            match result {
                // The entry may have expired.
                Err(error) if error.raw_os_error() == Some(Errno::ENOENT as i32) => {}
                result => result?,
            }
        }
        Ok(())
    };
    delete().map_err(|error| {
        failure::host(
            format!("cannot delete stale conntrack entries of {name}: {error}"),
            &error,
        )
    })
}

/// Returns `AF_INET` or `AF_INET6`.
fn family(entry: &ConntrackEntry) -> u8 {
    if entry.original.destination.is_ipv6() {
        10
    } else {
        2
    }
}

/// Returns the original tuple of an entry as a netlink attribute (`enum ctattr_type` and
/// `ctattr_tuple`, Linux v6.12, `include/uapi/linux/netfilter/nfnetlink_conntrack.h`).
fn original_tuple(entry: &ConntrackEntry) -> EncodedAttributes {
    let AddressPair {
        source,
        destination,
    } = entry.original;
    let (from, to) = if source.is_ipv6() { (3, 4) } else { (1, 2) };
    let addresses = EncodedAttributes::default()
        .with(from, &octets(source))
        .with(to, &octets(destination));
    let ports = EncodedAttributes::default()
        .with(1, &[entry.protocol])
        .with(2, &source.port().to_be_bytes())
        .with(3, &destination.port().to_be_bytes());
    let tuple = EncodedAttributes::default()
        .with_nested(1, &addresses)
        .with_nested(2, &ports);
    EncodedAttributes::default().with_nested(1, &tuple)
}

fn octets(address: SocketAddr) -> Vec<u8> {
    match address.ip() {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    }
}
