//! Reads conntrack entries over netlink (Linux v6.12, `net/netfilter/nf_conntrack_netlink.c`,
//! `ctnetlink_dump_tuples`).

use std::fs;
use std::io;
use std::net::SocketAddr;

use super::attributes::ReceivedAttributes;
use super::nfnetlink::{self, Message};
use crate::net::netns::NetNs;
use svclab_model::evidence::{AddressPair, ConntrackEntry};

/// Messages: request for a dump, entry, and deletion or deleted entry.
const CTNETLINK_DUMP: u16 = 1 << 8 | 1;
const CTNETLINK_NEW: u16 = 1 << 8;
pub(super) const CTNETLINK_DELETE: u16 = 1 << 8 | 2;

/// Multicast group for deleted entries.
pub(crate) const DELETE_GROUP: u32 = 3;

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
const COUNT_FILE: &str = "/proc/sys/net/netfilter/nf_conntrack_count";

/// Returns every entry of a namespace, for IPv4 and IPv6.
///
/// The kernel has one table for all namespaces and scans the whole table for a dump (Linux v6.12,
/// `net/netfilter/nf_conntrack_netlink.c`, `ctnetlink_dump_table`), which takes about 10 ms. A
/// namespace without entries is not dumped.
pub(crate) fn read_entries(ns: &NetNs, name: &str) -> io::Result<Vec<ConntrackEntry>> {
    let mut entries = Vec::new();
    ns.enter(|| {
        let none = fs::read_to_string(COUNT_FILE).is_ok_and(|count| count.trim() == "0");
        if none {
            return Ok(());
        }
        nfnetlink::dump(CTNETLINK_DUMP, |message| {
            if message.kind == CTNETLINK_NEW {
                entries.extend(parse_entry(message.attributes, name));
            }
        })
    })??;
    Ok(entries)
}

/// Returns the deleted entry of a message, or `None` for another message.
pub(crate) fn deleted_entry(message: &Message<'_>, name: &str) -> Option<ConntrackEntry> {
    if message.kind != CTNETLINK_DELETE {
        return None;
    }
    let connection = parse_entry(message.attributes, name)?;
    Some(ConntrackEntry {
        expires: None,
        ..connection
    })
}

fn parse_entry(attributes: &[u8], name: &str) -> Option<ConntrackEntry> {
    let attributes_of_entry = ReceivedAttributes(attributes);
    let (protocol, original) = parse_tuple(attributes_of_entry.get_nested(ORIGINAL)?)?;
    let (_, reply) = parse_tuple(attributes_of_entry.get_nested(REPLY)?)?;
    Some(ConntrackEntry {
        namespace: name.to_owned(),
        protocol,
        original,
        reply,
        mark: attributes_of_entry.get_u32(MARK).unwrap_or(0),
        status: attributes_of_entry.get_u32(STATUS).unwrap_or(0),
        state: tcp_state(attributes_of_entry),
        expires: attributes_of_entry.get_u32(EXPIRES),
    })
}

/// Returns the state of a TCP connection: a byte inside the TCP attributes, which are inside the
/// protocol attributes.
fn tcp_state(attributes: ReceivedAttributes<'_>) -> Option<String> {
    let [number] = attributes.get_nested(STATE)?.get_nested(1)?.get_bytes(1)?;
    STATES
        .get(usize::from(number))
        .map(|name| (*name).to_owned())
}

/// Parses a tuple and its protocol.
fn parse_tuple(attributes: ReceivedAttributes<'_>) -> Option<(u8, AddressPair)> {
    let (addresses, ports) = (attributes.get_nested(1)?, attributes.get_nested(2)?);
    let address = |v4, v6| addresses.get_ipv4(v4).or_else(|| addresses.get_ipv6(v6));
    let (source, destination) = (address(1, 3)?, address(2, 4)?);
    // Ports, or the identifier of an echo request, or neither.
    let echo = || ports.get_u16(4).or_else(|| ports.get_u16(7)).unwrap_or(0);
    let tuple = AddressPair {
        source: SocketAddr::new(source, ports.get_u16(2).unwrap_or_else(echo)),
        destination: SocketAddr::new(destination, ports.get_u16(3).unwrap_or_else(echo)),
    };
    let [protocol] = ports.get_bytes(1)?;
    Some((protocol, tuple))
}

#[cfg(test)]
mod tests {
    use super::super::attributes::EncodedAttributes;
    use super::*;

    fn encode_entry(v6: bool, ports: &EncodedAttributes) -> EncodedAttributes {
        let (source_type, destination_type) = if v6 { (3, 4) } else { (1, 2) };
        let size = if v6 { 16 } else { 4 };
        let addresses = EncodedAttributes::default()
            .with(source_type, &[1; 16][..size])
            .with(destination_type, &[2; 16][..size]);
        let tuple = EncodedAttributes::default()
            .with_nested(1, &addresses)
            .with_nested(2, ports);
        let state = EncodedAttributes::default().with(1, &[1]);
        EncodedAttributes::default()
            .with_nested(ORIGINAL, &tuple)
            .with_nested(REPLY, &tuple)
            .with_u32(STATUS, 0x18e)
            .with_u32(MARK, 7)
            .with_nested(STATE, &EncodedAttributes::default().with_nested(1, &state))
            .with_u32(EXPIRES, 119)
    }

    #[test]
    fn conntrack_entry_has_ports_or_identifier() {
        let tcp = EncodedAttributes::default()
            .with(1, &[6])
            .with(2, &[0x12, 0x34])
            .with(3, &[0, 80]);
        let read = parse_entry(encode_entry(false, &tcp).bytes(), "node-1").unwrap();
        assert_eq!(read.protocol, 6);
        assert_eq!(read.original.source, "1.1.1.1:4660".parse().unwrap());
        assert_eq!(read.original.destination, "2.2.2.2:80".parse().unwrap());
        assert_eq!((read.mark, read.status), (7, 0x18e));
        assert_eq!(read.state.as_deref(), Some("SYN_SENT"));
        assert_eq!(read.expires, Some(119));
        for (v6, protocol, kind) in [(false, 1, 4), (true, 58, 7)] {
            let ping = EncodedAttributes::default()
                .with(1, &[protocol])
                .with(kind, &[0, 9]);
            let read = parse_entry(encode_entry(v6, &ping).bytes(), "node-1").unwrap();
            assert_eq!(read.protocol, protocol);
            assert_eq!(read.reply.source.port(), 9);
            assert_eq!(read.reply.destination.port(), 9);
            assert_eq!(read.reply.source.is_ipv6(), v6);
        }
    }

    #[test]
    fn conntrack_incomplete_entry_is_skipped() {
        let tcp = EncodedAttributes::default()
            .with(1, &[6])
            .with(2, &[0x12, 0x34])
            .with(3, &[0, 80]);
        let entry = encode_entry(false, &tcp);
        let bytes = entry.bytes();
        // Both tuples come first, with 44 bytes each.
        for length in 0..88 {
            assert_eq!(parse_entry(&bytes[..length], "node-1"), None, "{length}");
        }
    }
}
