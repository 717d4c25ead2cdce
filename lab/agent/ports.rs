//! Ports that datagrams left from.

use std::cell::RefCell;
use std::collections::HashSet;
use std::io;

use socket2::Socket;

/// How often another port is asked for. It would take a namespace that has sent from most
/// of its ports.
const TRIES: usize = 64;

/// The ports of one namespace that a datagram left from. Conntrack remembers those for
/// minutes, and would send a new caller's to where an old one's went (Linux v6.12,
/// `net/netfilter/nf_conntrack_proto_udp.c`); what a caller of TCP opens it takes for
/// new.
#[derive(Debug, Default)]
pub struct Ports(RefCell<HashSet<u16>>);

impl Ports {
    /// A socket that was opened, of a port that nothing has left from yet.
    ///
    /// # Errors
    ///
    /// As `open`.
    pub fn fresh<E>(
        &self,
        mut open: impl FnMut() -> io::Result<Result<Socket, E>>,
    ) -> io::Result<Result<Socket, E>> {
        // A port is not given twice while a socket has it.
        let mut known = Vec::new();
        loop {
            let socket = match open()? {
                Ok(socket) => socket,
                refused => return Ok(refused),
            };
            let address = socket.local_addr()?.as_socket();
            let port = address.map_or(0, |address| address.port());
            if self.0.borrow_mut().insert(port) || known.len() == TRIES {
                return Ok(Ok(socket));
            }
            known.push(socket);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, SocketAddr};

    use socket2::{Domain, Type};

    use super::*;

    #[test]
    fn a_port_that_was_used_is_passed_by() {
        let ports = Ports::default();
        let socket = || Socket::new(Domain::IPV4, Type::DGRAM, None);
        let bound = |port| {
            let socket = socket()?;
            socket.bind(&SocketAddr::from((Ipv4Addr::LOCALHOST, port)).into())?;
            io::Result::Ok(socket)
        };
        let port = |socket: &Socket| socket.local_addr().unwrap().as_socket().unwrap().port();
        let first = ports.fresh(|| Ok(Ok::<_, ()>(bound(0)?))).unwrap().unwrap();
        let used = port(&first);
        drop(first);
        let mut tries = 0;
        let second = ports.fresh(|| {
            tries += 1;
            Ok(Ok::<_, ()>(bound(if tries == 1 { used } else { 0 })?))
        });
        assert_ne!(port(&second.unwrap().unwrap()), used);
        assert_eq!(tries, 2);
    }
}
