//! Deletes conntrack entries.

use std::collections::BTreeSet;
use std::io;
use std::net::{IpAddr, SocketAddr};

use nix::errno::Errno;

use super::netns::NetNs;
use super::trace::attributes::Written;
use super::trace::connections;
use super::{failure, nfnetlink};
use svclab_model::evidence::{Connection, Flow};
use svclab_model::plan::Forget;
use svclab_model::protocol::Failure;

/// Message that deletes conntrack entries; without a tuple, all entries (Linux v6.12,
/// `net/netfilter/nf_conntrack_netlink.c`, `ctnetlink_del_conntrack`).
const DELETE: u16 = 1 << 8 | 2;

/// Deletes all conntrack entries of a namespace.
///
/// # Errors
///
/// When the kernel rejects the request.
pub fn forget(ns: &NetNs, name: &str) -> Result<(), Failure> {
    let asked = ns.enter(|| nfnetlink::ask(DELETE, 0, &[]));
    asked.and_then(|asked| asked).map_err(|error| {
        failure::machine(
            format!("cannot forget the connections of {name}: {error}"),
            &error,
        )
    })
}

/// Deletes the stale conntrack entries of a namespace, each by its tuple, like `conntrack -D`.
///
/// # Errors
///
/// When the kernel does not list its entries or rejects a deletion.
pub fn forget_stale(ns: &NetNs, name: &str, stale: &BTreeSet<Forget>) -> Result<(), Failure> {
    let forgotten = || -> io::Result<()> {
        let all = connections::all(ns, name)?;
        let taken = all
            .iter()
            .filter(|entry| stale.iter().any(|forget| forget.takes(entry)));
        for entry in taken {
            let asked =
                ns.enter(|| nfnetlink::ask_of(family(entry), DELETE, tuple(entry).bytes()))?;
            match asked {
                // The entry may have expired.
                Err(error) if error.raw_os_error() == Some(Errno::ENOENT as i32) => {}
                other => other?,
            }
        }
        Ok(())
    };
    forgotten().map_err(|error| {
        failure::machine(
            format!("cannot forget stale flows of {name}: {error}"),
            &error,
        )
    })
}

/// Returns `AF_INET` or `AF_INET6`.
fn family(entry: &Connection) -> u8 {
    if entry.original.destination.is_ipv6() {
        10
    } else {
        2
    }
}

/// Returns the original tuple of an entry as a netlink attribute (`enum ctattr_type` and
/// `ctattr_tuple`, Linux v6.12, `include/uapi/linux/netfilter/nfnetlink_conntrack.h`).
fn tuple(entry: &Connection) -> Written {
    let Flow {
        source,
        destination,
    } = entry.original;
    let (from, to) = if source.is_ipv6() { (3, 4) } else { (1, 2) };
    let addresses = Written::default()
        .with(from, &octets(source))
        .with(to, &octets(destination));
    let ports = Written::default()
        .with(1, &[entry.protocol])
        .with(2, &source.port().to_be_bytes())
        .with(3, &destination.port().to_be_bytes());
    let tuple = Written::default().nest(1, &addresses).nest(2, &ports);
    Written::default().nest(1, &tuple)
}

fn octets(address: SocketAddr) -> Vec<u8> {
    match address.ip() {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    }
}
