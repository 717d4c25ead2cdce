//! Reads conntrack entries over netlink (Linux v6.12, `net/netfilter/nf_conntrack_netlink.c`,
//! `ctnetlink_dump_tuples`).

use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use super::attributes::Read;
use crate::netns::NetNs;
use crate::nfnetlink;
use svclab_model::evidence::{Connection, Flow};

/// Messages: request for a dump, entry, and deleted entry.
const LIST: u16 = 1 << 8 | 1;
const ENTRY: u16 = 1 << 8;
const FORGOTTEN: u16 = 1 << 8 | 2;

/// Multicast group for deleted entries.
pub const GROUP: u32 = 3;

/// Attributes of an entry (`enum ctattr_type`).
const ORIGINAL: u16 = 1;
const REPLY: u16 = 2;
const STATUS: u16 = 3;
const STATE: u16 = 4;
const EXPIRES: u16 = 7;
const MARK: u16 = 8;

/// Names of TCP states by number (Linux v6.12, `include/uapi/linux/netfilter/nf_conntrack_tcp.h`,
/// `enum tcp_conntrack`), as in `net/netfilter/nf_conntrack_proto_tcp.c`.
const STATES: [&str; 10] = [
    "NONE",
    "SYN_SENT",
    "SYN_RECV",
    "ESTABLISHED",
    "FIN_WAIT",
    "CLOSE_WAIT",
    "LAST_ACK",
    "TIME_WAIT",
    "CLOSE",
    "SYN_SENT2",
];

/// File with the number of entries in the namespace of the calling thread.
const COUNT: &str = "/proc/sys/net/netfilter/nf_conntrack_count";

/// Returns every entry of a namespace, for IPv4 and IPv6.
///
/// The kernel has one table for all namespaces and scans the whole table for a dump (Linux v6.12,
/// `net/netfilter/nf_conntrack_netlink.c`, `ctnetlink_dump_table`), which takes about 10 ms. A
/// namespace without entries is not dumped.
///
/// # Errors
///
/// When the namespace cannot be entered, or the kernel does not answer.
pub fn all(ns: &NetNs, name: &str) -> io::Result<Vec<Connection>> {
    let mut all = Vec::new();
    ns.enter(|| {
        let none = fs::read_to_string(COUNT).is_ok_and(|count| count.trim() == "0");
        if none {
            return Ok(());
        }
        nfnetlink::list(LIST, |message| {
            if message.what == ENTRY {
                all.extend(connection(message.attributes, name));
            }
        })
    })??;
    Ok(all)
}

/// Returns the deleted entry of a message, or `None` for another message.
pub fn forgotten(message: &nfnetlink::Message<'_>, name: &str) -> Option<Connection> {
    if message.what != FORGOTTEN {
        return None;
    }
    let connection = connection(message.attributes, name)?;
    Some(Connection {
        expires: None,
        ..connection
    })
}

fn connection(attributes: &[u8], name: &str) -> Option<Connection> {
    let of = Read(attributes);
    let (protocol, original) = tuple(of.inside(ORIGINAL)?)?;
    let (_, reply) = tuple(of.inside(REPLY)?)?;
    Some(Connection {
        namespace: name.to_owned(),
        protocol,
        original,
        reply,
        mark: of.word(MARK).unwrap_or(0),
        status: of.word(STATUS).unwrap_or(0),
        state: state(of),
        expires: of.word(EXPIRES),
    })
}

/// Returns the state of a TCP connection: a byte inside the TCP attributes, which are inside the
/// protocol attributes.
fn state(of: Read<'_>) -> Option<String> {
    let number = *of.inside(STATE)?.inside(1)?.get(1)?.first()?;
    STATES
        .get(usize::from(number))
        .map(|name| (*name).to_owned())
}

/// Parses a tuple and its protocol.
fn tuple(of: Read<'_>) -> Option<(u8, Flow)> {
    let (addresses, ports) = (of.inside(1)?, of.inside(2)?);
    let v4 = |kind| {
        let bytes: &[u8; 4] = addresses.get(kind)?.first_chunk()?;
        Some(IpAddr::from(Ipv4Addr::from(*bytes)))
    };
    let v6 = |kind| {
        let bytes: &[u8; 16] = addresses.get(kind)?.first_chunk()?;
        Some(IpAddr::from(Ipv6Addr::from(*bytes)))
    };
    let source = v4(1).or_else(|| v6(3))?;
    let destination = v4(2).or_else(|| v6(4))?;
    // Ports, or the identifier of an echo request, or neither.
    let echo = || ports.short(4).or_else(|| ports.short(7)).unwrap_or(0);
    let tuple = Flow {
        source: SocketAddr::new(source, ports.short(2).unwrap_or_else(echo)),
        destination: SocketAddr::new(destination, ports.short(3).unwrap_or_else(echo)),
    };
    Some((*ports.get(1)?.first()?, tuple))
}

#[cfg(test)]
mod tests {
    use super::super::attributes::Written;
    use super::*;

    fn told(v6: bool, ports: &Written) -> Written {
        let (one, two) = if v6 { (3, 4) } else { (1, 2) };
        let size = if v6 { 16 } else { 4 };
        let addresses = Written::default()
            .with(one, &[1; 16][..size])
            .with(two, &[2; 16][..size]);
        let tuple = Written::default().nest(1, &addresses).nest(2, ports);
        let state = Written::default().with(1, &[1]);
        Written::default()
            .nest(ORIGINAL, &tuple)
            .nest(REPLY, &tuple)
            .word(STATUS, 0x18e)
            .word(MARK, 7)
            .nest(STATE, &Written::default().nest(1, &state))
            .word(EXPIRES, 119)
    }

    #[test]
    fn an_entry_has_ports_or_an_identifier() {
        let tcp = Written::default()
            .with(1, &[6])
            .with(2, &[0x12, 0x34])
            .with(3, &[0, 80]);
        let read = connection(told(false, &tcp).bytes(), "node-1").unwrap();
        assert_eq!(read.protocol, 6);
        assert_eq!(read.original.source, "1.1.1.1:4660".parse().unwrap());
        assert_eq!(read.original.destination, "2.2.2.2:80".parse().unwrap());
        assert_eq!((read.mark, read.status), (7, 0x18e));
        assert_eq!(read.state.as_deref(), Some("SYN_SENT"));
        assert_eq!(read.expires, Some(119));
        for (v6, protocol, kind) in [(false, 1, 4), (true, 58, 7)] {
            let ping = Written::default().with(1, &[protocol]).with(kind, &[0, 9]);
            let read = connection(told(v6, &ping).bytes(), "node-1").unwrap();
            assert_eq!(read.protocol, protocol);
            assert_eq!(read.reply.source.port(), 9);
            assert_eq!(read.reply.destination.port(), 9);
            assert_eq!(read.reply.source.is_ipv6(), v6);
        }
    }

    #[test]
    fn what_is_cut_off_is_no_entry() {
        let tcp = Written::default()
            .with(1, &[6])
            .with(2, &[0x12, 0x34])
            .with(3, &[0, 80]);
        let told = told(false, &tcp);
        let told = told.bytes();
        // Both tuples come first, with 44 bytes each.
        for length in 0..88 {
            assert_eq!(connection(&told[..length], "node-1"), None, "{length}");
        }
    }
}
