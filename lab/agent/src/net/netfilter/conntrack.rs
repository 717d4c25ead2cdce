//! Deletes conntrack entries.

use std::collections::BTreeSet;
use std::io;

use super::conntrack_entries::{self, CTNETLINK_DELETE};
use super::nfnetlink::{self, Request};
use crate::net::netns::NetNs;
use crate::runtime::failure;
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
        let entries = conntrack_entries::read_entries(ns, name, &[])?;
        let matching = entries
            .iter()
            .filter(|entry| stale.iter().any(|forget| forget.matches(entry)));
        for entry in matching {
            let tuple = conntrack_entries::encode_tuple(entry.protocol, entry.original);
            let request = Request {
                command: CTNETLINK_DELETE,
                family: conntrack_entries::family(entry.original),
                attributes: tuple.bytes(),
                ..Request::default()
            };
            match ns.enter(|| nfnetlink::request(&request))? {
                // The entry may have expired.
                Err(error) if conntrack_entries::is_missing(&error) => {}
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
