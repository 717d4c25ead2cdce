//! Opens netlink sockets with large buffers and reads the number of lost messages.

use std::fs;
use std::io;

use netlink_sys::{Socket, protocols::NETLINK_NETFILTER};
use nix::sys::stat::fstat;

use crate::net::netns::NetNs;
use crate::watch::set_receive_buffer;

/// Size of the receive buffer in bytes.
const RECEIVE_BUFFER_BYTES: usize = 8 << 20;

/// File with all netlink sockets of a namespace, one per line. `/proc/net` would show those of the
/// process's first thread.
const SOCKETS_FILE: &str = "/proc/thread-self/net/netlink";

/// Opens a socket in a namespace. With a multicast group, the socket joins the group.
///
/// # Errors
///
/// When the namespace cannot be entered, no descriptor is left, or the kernel has no such group.
pub(super) fn open(ns: &NetNs, group: Option<u32>) -> io::Result<Socket> {
    ns.enter(|| {
        let mut socket = Socket::new(NETLINK_NETFILTER)?;
        socket.bind_auto()?;
        socket.set_non_blocking(true)?;
        // The kernel counts lost messages. Losses must not make receiving fail.
        socket.set_no_enobufs(true)?;
        set_receive_buffer(&socket, RECEIVE_BUFFER_BYTES)?;
        if let Some(group) = group {
            socket.add_membership(group)?;
        }
        Ok(socket)
    })?
}

/// Returns the number of messages that a socket lost.
pub(super) fn lost_messages(ns: &NetNs, socket: &Socket) -> io::Result<u64> {
    let inode = fstat(socket)?.st_ino;
    let text = ns.enter(|| fs::read_to_string(SOCKETS_FILE))??;
    Ok(parse_drops(&text, inode))
}

/// Returns the number of drops in the line with the given inode number.
fn parse_drops(text: &str, inode: u64) -> u64 {
    let mut lines = text.lines().map(|line| line.split_whitespace().rev());
    let drops = lines.find_map(|mut words| {
        let is_same_socket = words.next()?.parse::<u64>().ok()? == inode;
        is_same_socket.then(|| words.next()?.parse().ok())?
    });
    drops.unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn socket_line_drop_count_is_parsed() {
        let text = "\
sk               Eth Pid        Groups   Rmem     Wmem     Dump  Locks    Drops    Inode
00000000d397a28a 0   0          00000000 0        0        0     2        0        4
00000000e571ca9d 12  4711       00000100 0        0        0     2        23       477
";
        assert_eq!(parse_drops(text, 477), 23);
        assert_eq!(parse_drops(text, 4), 0);
        assert_eq!(parse_drops(text, 5), 0);
    }
}
