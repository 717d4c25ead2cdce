//! Makes the kernel timestamp packets.
//!
//! A kernel timestamps packets only while a socket requests timestamps, and starts shortly after
//! the request (Linux v6.12, `net/core/dev.c`, `net_enable_timestamp`). A packet without timestamp
//! gets the time at which it is read. Therefore the agent requests timestamps at the start of a
//! lab, long before the first relevant packet.

use std::io;
use std::net::UdpSocket;

use nix::sys::socket::setsockopt;
use nix::sys::socket::sockopt::ReceiveTimestampns;

/// Guard that keeps packet timestamps enabled.
#[derive(Debug)]
pub(crate) struct TimestampGuard {
    /// Socket that requests timestamps and receives no packets.
    _socket: Option<UdpSocket>,
}

impl TimestampGuard {
    /// Enables timestamps. If no socket can be opened, the times of the first packets are less
    /// precise.
    pub(crate) fn enable() -> Self {
        let open = || -> io::Result<UdpSocket> {
            let socket = UdpSocket::bind("127.0.0.1:0").or_else(|_| UdpSocket::bind("[::]:0"))?;
            setsockopt(&socket, ReceiveTimestampns, &true)?;
            Ok(socket)
        };
        Self {
            _socket: open().ok(),
        }
    }
}
