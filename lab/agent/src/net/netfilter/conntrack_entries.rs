//! Reads conntrack entries over netlink (Linux v6.12, `net/netfilter/nf_conntrack_netlink.c`,
//! `ctnetlink_dump_tuples`).

use std::collections::HashSet;
use std::fs;
use std::io;
use std::net::{IpAddr, SocketAddr};

use nix::errno::Errno;

use super::attributes::{EncodedAttributes, ReceivedAttributes};
use super::nfnetlink::{self, Message, Request};
use crate::net::netns::NetNs;
use svclab_journey::{Frame, Payload};
use svclab_model::evidence::{AddressPair, ConntrackEntry, Packet};

/// Messages: request for an entry or a dump, entry, and deletion or deleted entry.
const CTNETLINK_GET: u16 = 1 << 8 | 1;
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

/// File with the number of buckets of the table that all namespaces share.
const BUCKETS_FILE: &str = "/proc/sys/net/netfilter/nf_conntrack_buckets";

/// Number of buckets that are scanned in the time in which one packet is parsed and its entry is
/// looked up.
const BUCKETS_PER_PACKET: usize = 16;

/// Returns every entry of a namespace, for IPv4 and IPv6. `packets` were captured in the lab.
///
/// The kernel has one table for all namespaces and scans the whole table for a dump (Linux v6.12,
/// `net/netfilter/nf_conntrack_netlink.c`, `ctnetlink_dump_table`), which takes about 10 ms. A
/// namespace without entries is not dumped, nor one whose entries all belong to captured packets:
/// these are looked up by their addresses.
pub(crate) fn read_entries(
    ns: &NetNs,
    name: &str,
    packets: &[Packet],
) -> io::Result<Vec<ConntrackEntry>> {
    ns.enter(|| {
        let count = read_number(COUNT_FILE);
        if count == Some(0) {
            return Ok(Vec::new());
        }
        let local: Vec<&Packet> = packets.iter().filter(|one| one.namespace == name).collect();
        let is_quicker = |buckets| local.len().saturating_mul(BUCKETS_PER_PACKET) < buckets;
        if !local.is_empty()
            && read_number(BUCKETS_FILE).is_some_and(is_quicker)
            && let Ok(found) = find_entries(&local, name)
            && [count, read_number(COUNT_FILE)] == [Some(found.len()); 2]
        {
            return Ok(found);
        }
        let mut entries = Vec::new();
        nfnetlink::dump(CTNETLINK_GET, |message| {
            if message.kind == CTNETLINK_NEW {
                entries.extend(parse_entry(message.attributes, name));
            }
        })?;
        Ok(entries)
    })?
}

fn read_number(file: &str) -> Option<usize> {
    fs::read_to_string(file).ok()?.trim().parse().ok()
}

/// Returns the entries to which packets of TCP and UDP belong.
fn find_entries(packets: &[&Packet], name: &str) -> io::Result<Vec<ConntrackEntry>> {
    let socket = nfnetlink::open()?;
    let mut entries: Vec<ConntrackEntry> = Vec::new();
    let mut known = HashSet::new();
    let seen = packets.iter().filter_map(|packet| tuple_of(packet));
    // A packet that NAT changed on its way out has the reply tuple of its entry, reversed.
    let tuples =
        seen.flat_map(|(protocol, tuple)| [tuple, tuple.reversed()].map(|tuple| (protocol, tuple)));
    for (protocol, tuple) in tuples {
        if !known.insert((protocol, tuple)) {
            continue;
        }
        let attributes = encode_tuple(protocol, tuple);
        let request = Request {
            command: CTNETLINK_GET,
            family: family(tuple),
            attributes: attributes.bytes(),
            ..Request::default()
        };
        let mut found = None;
        let result = nfnetlink::query_on(&socket, &request, |message| {
            if message.kind == CTNETLINK_NEW {
                found = parse_entry(message.attributes, name);
            }
        });
        match result {
            // The packet was dropped before conntrack confirmed the entry.
            Err(error) if is_missing(&error) => {}
            result => result?,
        }
        if let Some(entry) = found {
            for direction in [entry.original, entry.reply] {
                known.insert((protocol, direction));
                known.insert((protocol, direction.reversed()));
            }
            entries.push(entry);
        }
    }
    Ok(entries)
}

/// Returns the protocol and the addresses of a packet of TCP or UDP.
fn tuple_of(packet: &Packet) -> Option<(u8, AddressPair)> {
    let frame = Frame::from_ethernet(&packet.bytes)?;
    let protocol = match frame.payload {
        Payload::Tcp(_) => 6,
        Payload::Udp => 17,
        _ => return None,
    };
    let (source, destination) = frame.ports?;
    let tuple = AddressPair {
        source: SocketAddr::new(frame.source, source),
        destination: SocketAddr::new(frame.destination, destination),
    };
    Some((protocol, tuple))
}

/// Whether the kernel has no entry for the tuple of a request.
pub(super) fn is_missing(error: &io::Error) -> bool {
    error.raw_os_error() == Some(Errno::ENOENT as i32)
}

/// Returns `AF_INET` or `AF_INET6`.
pub(super) fn family(tuple: AddressPair) -> u8 {
    if tuple.destination.is_ipv6() { 10 } else { 2 }
}

/// Returns a tuple as a netlink attribute (`enum ctattr_type` and `ctattr_tuple`, Linux v6.12,
/// `include/uapi/linux/netfilter/nfnetlink_conntrack.h`).
pub(super) fn encode_tuple(protocol: u8, tuple: AddressPair) -> EncodedAttributes {
    let AddressPair {
        source,
        destination,
    } = tuple;
    let (from, to) = if source.is_ipv6() { (3, 4) } else { (1, 2) };
    let addresses = EncodedAttributes::default()
        .with(from, &octets(source))
        .with(to, &octets(destination));
    let ports = EncodedAttributes::default()
        .with(1, &[protocol])
        .with_u16(2, source.port())
        .with_u16(3, destination.port());
    let tuple = EncodedAttributes::default()
        .with_nested(1, &addresses)
        .with_nested(2, &ports);
    EncodedAttributes::default().with_nested(ORIGINAL, &tuple)
}

fn octets(address: SocketAddr) -> Vec<u8> {
    match address.ip() {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    }
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
    fn encoded_tuples_are_parsed_back() {
        for (protocol, source, destination) in [
            (6, "10.0.0.1:40000", "10.0.0.2:80"),
            (17, "[fd00::1]:40000", "[fd00::2]:53"),
        ] {
            let tuple = AddressPair {
                source: source.parse().unwrap(),
                destination: destination.parse().unwrap(),
            };
            let encoded = encode_tuple(protocol, tuple);
            let nested = ReceivedAttributes(encoded.bytes()).get_nested(ORIGINAL);
            assert_eq!(parse_tuple(nested.unwrap()), Some((protocol, tuple)));
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
