//! Netlink sockets that hear much, and how much they had no room for.

use std::fs;
use std::io;

use netlink_sys::{Socket, protocols::NETLINK_NETFILTER};
use nix::sys::socket::setsockopt;
use nix::sys::socket::sockopt::{RcvBuf, RcvBufForce};
use nix::sys::stat::fstat;

use crate::netns::NetNs;

/// Room for what is told between two looks at a socket, in bytes. A user namespace's
/// administrator gets no more of it than `net.core.rmem_max`.
const ROOM: usize = 8 << 20;

/// All netlink sockets of a namespace, a line each. `/proc/net` would be that of the
/// process's first thread.
const SOCKETS: &str = "/proc/thread-self/net/netlink";

/// A socket in a namespace; of those that are bound to a group, what is told to it is
/// heard.
///
/// # Errors
///
/// When the namespace cannot be entered, no descriptor is left, or the kernel has no
/// such group.
pub fn open(ns: &NetNs, group: Option<u32>) -> io::Result<Socket> {
    ns.enter(|| {
        let mut socket = Socket::new(NETLINK_NETFILTER)?;
        socket.bind_auto()?;
        socket.set_non_blocking(true)?;
        // What it has no room for is counted, and is no reason to stop.
        socket.set_no_enobufs(true)?;
        setsockopt(&socket, RcvBufForce, &ROOM).or_else(|_| setsockopt(&socket, RcvBuf, &ROOM))?;
        if let Some(group) = group {
            socket.add_membership(group)?;
        }
        Ok(socket)
    })?
}

/// How many messages a socket had no room for.
///
/// # Errors
///
/// When the namespace cannot be entered, or the kernel's list cannot be read.
pub fn lost(ns: &NetNs, socket: &Socket) -> io::Result<u64> {
    let inode = fstat(socket)?.st_ino;
    let text = ns.enter(|| fs::read_to_string(SOCKETS))??;
    Ok(drops(&text, inode))
}

/// The drops in the line that ends with an inode's number.
fn drops(text: &str, inode: u64) -> u64 {
    let mut lines = text.lines().map(|line| line.split_whitespace().rev());
    let drops = lines.find_map(|mut words| {
        let own = words.next()?.parse::<u64>().ok()? == inode;
        own.then(|| words.next()?.parse().ok())?
    });
    drops.unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_of_a_socket_says_what_it_lost() {
        let text = "\
sk               Eth Pid        Groups   Rmem     Wmem     Dump  Locks    Drops    Inode
00000000d397a28a 0   0          00000000 0        0        0     2        0        4
00000000e571ca9d 12  4711       00000100 0        0        0     2        23       477
";
        assert_eq!(drops(text, 477), 23);
        assert_eq!(drops(text, 4), 0);
        assert_eq!(drops(text, 5), 0);
    }
}
