//! Empties the lists of addresses that iptables rules remember (`-m recent`), such as those of
//! session affinity.

use std::fs;
use std::io;

use crate::net::netns::NetNs;
use crate::runtime::failure;
use svclab_model::protocol::Failure;

/// Directory with a file for each list. `/proc/net` would show those of the process's first thread.
const LISTS: &str = "/proc/thread-self/net/xt_recent";

/// Text that empties a list (Linux v6.12, `net/netfilter/xt_recent.c`, `recent_mt_proc_write`).
const FLUSH: &str = "/";

/// Empties all lists of a namespace.
///
/// # Errors
///
/// When a list cannot be written: the files belong to root of the initial user namespace.
pub(crate) fn delete_all(ns: &NetNs, name: &str) -> Result<(), Failure> {
    let flushed = ns.enter(flush_lists).and_then(|flushed| flushed);
    flushed.map_err(|error| {
        failure::host(
            format!("cannot delete the addresses that rules of {name} remember: {error}"),
            &error,
        )
    })
}

fn flush_lists() -> io::Result<()> {
    let lists = match fs::read_dir(LISTS) {
        Ok(lists) => lists,
        // No rule has used the match.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    for list in lists {
        let list = list?.path();
        if !fs::read(&list)?.is_empty() {
            fs::write(&list, FLUSH)?;
        }
    }
    Ok(())
}
