//! Deletes conntrack entries.

use std::collections::BTreeSet;
use std::io;
use std::net::{IpAddr, SocketAddr};

use nix::errno::Errno;

use super::attributes::EncodedAttributes;
use super::conntrack_entries::{self, CTNETLINK_DELETE};
use super::nfnetlink::{self, Request};
use crate::net::netns::NetNs;
use crate::runtime::failure;
use svclab_model::evidence::{AddressPair, ConntrackEntry};
use svclab_model::plan::ConntrackFilter;
use svclab_model::protocol::Failure;

/// Deletes all conntrack entries of a namespace.
pub(crate) fn delete_all(ns: &NetNs, name: &str) -> Result<(), Failure> {
    // Without a tuple, the request deletes all entries (Linux v6.12,
    // `net/netfilter/nf_conntrack_netlink.c`, `ctnetlink_del_conntrack`).
    let request = Request {
        command: CTNETLINK_DELETE,
        ..Request::default()
    };
    let result = ns.enter(|| nfnetlink::request(&request));
    result.and_then(|asked| asked).map_err(|error| {
        failure::host(
            format!("cannot delete the conntrack entries of {name}: {error}"),
            &error,
        )
    })
}

/// Deletes the stale conntrack entries of a namespace, each by its tuple, like `conntrack -D`.
pub(crate) fn delete_stale(
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
            let tuple = original_tuple(entry);
            let request = Request {
                command: CTNETLINK_DELETE,
                family: family(entry),
                attributes: tuple.bytes(),
                ..Request::default()
            };
            match ns.enter(|| nfnetlink::request(&request))? {
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
        .with_u16(2, source.port())
        .with_u16(3, destination.port());
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
