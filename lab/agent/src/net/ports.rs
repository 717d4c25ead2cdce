//! Manages the source ports of probes. No two connections of a lab use the same port.
//!
//! A conntrack entry of a datagram exists for minutes, and directs datagrams of a new client with
//! the same port to the old destination (Linux v6.12, `net/netfilter/nf_conntrack_proto_udp.c`).
//! IPVS finds the connection of a reply by the addresses and ports of the client and the real
//! server, but not of the virtual server (Linux v6.12, `net/netfilter/ipvs/ip_vs_conn.c`,
//! `ip_vs_conn_out_get`). Connections from the same port through two services to the same endpoint
//! receive each other's replies. Masquerading nodes give their own address to clients in several
//! namespaces, so that a port must be unique in the whole lab.

use std::cell::RefCell;
use std::collections::HashSet;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use nix::errno::Errno;
use socket2::Socket;

use svclab_model::plan::Probe;

/// Maximum number of attempts to get another port. Only a lab that limits its ports with
/// `net.ipv4.ip_local_port_range` needs that many.
const MAX_ATTEMPTS: usize = 64;

/// Minimum number of other ports before a port is reused: a quarter of the ports that a kernel
/// assigns, 32768 to 60999.
const MIN_PORTS_BEFORE_REUSE: usize = 7_000;

/// Source ports that connections of a lab have used.
#[derive(Debug, Default)]
pub(crate) struct Ports {
    newer: RefCell<HashSet<u16>>,
    older: RefCell<HashSet<u16>>,
}

impl Ports {
    /// Returns a socket that `open` binds to the source port of the probe, or to a port that the lab
    /// has not used recently.
    pub(crate) fn open_socket<E>(
        &self,
        probe: &Probe,
        mut open: impl FnMut() -> io::Result<Result<Socket, E>>,
    ) -> io::Result<Result<Socket, E>> {
        if probe.source_port.is_none() {
            return self.bind_unused(open);
        }
        let socket = open()?;
        if let Ok(socket) = &socket
            && let Some(address) = socket.local_addr()?.as_socket()
        {
            self.insert(address.port());
        }
        Ok(socket)
    }

    /// Returns a socket that `open` binds to a port that the lab has not used recently.
    fn bind_unused<E>(
        &self,
        mut open: impl FnMut() -> io::Result<Result<Socket, E>>,
    ) -> io::Result<Result<Socket, E>> {
        // The kernel does not assign a port again while a socket holds the port.
        let mut rejected = Vec::new();
        loop {
            let socket = match open() {
                Ok(Ok(socket)) => socket,
                // All other ports are in use.
                Err(error) if is_exhausted(&error) && !rejected.is_empty() => {
                    return Ok(Ok(rejected.swap_remove(0)));
                }
                failure => return failure,
            };
            let address = socket.local_addr()?.as_socket();
            let port = address.map_or(0, |address| address.port());
            if self.insert(port) || rejected.len() == MAX_ATTEMPTS {
                return Ok(Ok(socket));
            }
            rejected.push(socket);
        }
    }

    /// Records a port. Returns whether the port was not on record.
    fn insert(&self, port: u16) -> bool {
        let (mut newer, mut older) = (self.newer.borrow_mut(), self.older.borrow_mut());
        if newer.len() == MIN_PORTS_BEFORE_REUSE {
            *older = std::mem::take(&mut newer);
        }
        !older.contains(&port) && newer.insert(port)
    }
}

/// Whether the namespace has no port left.
pub(crate) fn is_exhausted(error: &io::Error) -> bool {
    error.raw_os_error() == Some(Errno::EADDRINUSE as i32)
}

/// Binds the socket of a connection to the source address and port of its probe. Without a source
/// port, the kernel assigns one.
pub(crate) fn bind(socket: &Socket, probe: &Probe, connection: u32) -> io::Result<()> {
    let unspecified = if probe.target.address.is_ipv6() {
        IpAddr::from(Ipv6Addr::UNSPECIFIED)
    } else {
        IpAddr::from(Ipv4Addr::UNSPECIFIED)
    };
    let port = probe.source_port_of(connection);
    if port.is_some() {
        // An earlier connection of the same port may be in state TIME_WAIT.
        socket.set_reuse_address(true)?;
    }
    let address = SocketAddr::new(probe.bind.unwrap_or(unspecified), port.unwrap_or(0));
    socket.bind(&address.into())
}

#[cfg(test)]
mod tests {
    use socket2::{Domain, Type};

    use super::*;

    #[test]
    fn used_port_is_skipped() {
        let ports = Ports::default();
        let socket = || Socket::new(Domain::IPV4, Type::DGRAM, None);
        let bound = |port| {
            let socket = socket()?;
            socket.bind(&SocketAddr::from((Ipv4Addr::LOCALHOST, port)).into())?;
            io::Result::Ok(socket)
        };
        let port = |socket: &Socket| socket.local_addr().unwrap().as_socket().unwrap().port();
        let first = ports
            .bind_unused(|| Ok(Ok::<_, ()>(bound(0)?)))
            .unwrap()
            .unwrap();
        let used = port(&first);
        drop(first);
        let mut tries = 0;
        let second = ports.bind_unused(|| {
            tries += 1;
            Ok(Ok::<_, ()>(bound(if tries == 1 { used } else { 0 })?))
        });
        assert_ne!(port(&second.unwrap().unwrap()), used);
        assert_eq!(tries, 2);
    }

    #[test]
    fn exhausted_ports_are_reused() {
        let ports = Ports::default();
        let open = || {
            let socket = Socket::new(Domain::IPV4, Type::DGRAM, None)?;
            socket.bind(&SocketAddr::from((Ipv4Addr::LOCALHOST, 0)).into())?;
            Ok(Ok::<_, ()>(socket))
        };
        let used = ports.bind_unused(open).unwrap().unwrap();
        let mut tries = 0;
        let reused = ports.bind_unused(|| {
            tries += 1;
            match tries {
                1 => Ok(Ok(used.try_clone()?)),
                _ => Err::<Result<Socket, ()>, _>(Errno::EADDRINUSE.into()),
            }
        });
        assert!(reused.unwrap().is_ok());
        assert_eq!(tries, 2);
        let none = ports.bind_unused(|| Err::<Result<Socket, ()>, _>(Errno::EADDRINUSE.into()));
        assert!(none.is_err_and(|error| is_exhausted(&error)));
    }

    #[test]
    fn port_stays_on_record_for_one_generation() {
        let ports = Ports::default();
        let ports_used: Vec<u16> =
            (1..=u16::try_from(2 * MIN_PORTS_BEFORE_REUSE + 1).unwrap()).collect();
        for port in &ports_used {
            assert!(ports.insert(*port), "{port}");
        }
        let last = &ports_used[ports_used.len() - MIN_PORTS_BEFORE_REUSE..];
        assert!(last.iter().all(|port| !ports.insert(*port)));
        assert!(ports.insert(1));
    }
}
