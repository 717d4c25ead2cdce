//! Time stamps on packets, from the kernel.
//!
//! A kernel stamps packets only while somebody wants that, and begins to a moment after
//! it was asked (Linux v6.12, `net/core/dev.c`, `net_enable_timestamp`): a packet that
//! has no stamp by then is given the time at which it is read. So it is asked when a
//! lab is begun, long before the first packet that counts.

use std::io;
use std::net::UdpSocket;

use nix::sys::socket::setsockopt;
use nix::sys::socket::sockopt::ReceiveTimestampns;

/// Has packets stamped as long as it is there.
#[derive(Debug)]
pub struct Timestamps {
    /// It wants them, and gets no packets at all.
    _socket: Option<UdpSocket>,
}

impl Timestamps {
    /// Asks for them. Where there is no socket for it, the first packets' times are
    /// less exact.
    pub fn begin() -> Self {
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
