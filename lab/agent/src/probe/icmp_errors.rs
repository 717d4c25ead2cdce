//! Makes the kernel report every ICMP error to a socket. By default, the kernel reports only
//! permanent errors.

use std::io;
use std::net::IpAddr;
use std::os::fd::AsFd;

use nix::sys::socket::setsockopt;
use nix::sys::socket::sockopt::{Ipv4RecvErr, Ipv6RecvErr};

/// Makes the kernel report every ICMP error to `socket`, whose peer is `peer`.
pub(crate) fn enable(socket: &impl AsFd, peer: IpAddr) -> io::Result<()> {
    match peer {
        IpAddr::V4(_) => setsockopt(socket, Ipv4RecvErr, &true)?,
        IpAddr::V6(_) => setsockopt(socket, Ipv6RecvErr, &true)?,
    }
    Ok(())
}
