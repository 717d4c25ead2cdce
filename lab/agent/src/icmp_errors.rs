//! Asking the kernel to pass every ICMP error to a socket, not only those it
//! holds to be final.

use std::io;
use std::net::IpAddr;
use std::os::fd::AsFd;

use nix::sys::socket::setsockopt;
use nix::sys::socket::sockopt::{Ipv4RecvErr, Ipv6RecvErr};

/// Has `socket`, which talks to `peer`, told of every ICMP error.
///
/// # Errors
///
/// When the kernel refuses the option.
pub fn report(socket: &impl AsFd, peer: IpAddr) -> io::Result<()> {
    match peer {
        IpAddr::V4(_) => setsockopt(socket, Ipv4RecvErr, &true)?,
        IpAddr::V6(_) => setsockopt(socket, Ipv6RecvErr, &true)?,
    }
    Ok(())
}
