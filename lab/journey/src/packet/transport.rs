//! Parses the headers of TCP, UDP and ICMP.

use std::hash::Hasher as _;

use pnet::packet::Packet as _;
use pnet::packet::ethernet::{EtherType, EtherTypes};
use pnet::packet::gre::GrePacket;
use pnet::packet::icmp::{IcmpPacket, IcmpTypes};
use pnet::packet::icmpv6::{Icmpv6Packet, Icmpv6Types};
use pnet::packet::ip::{IpNextHeaderProtocol, IpNextHeaderProtocols};
use pnet::packet::tcp::{TcpOptionNumbers, TcpPacket};
use pnet::packet::udp::UdpPacket;

use super::{Frame, InvariantFields, Payload, TcpHeader};

/// UDP ports of VXLAN: flannel's port, which is the default of the kernel, and the port that IANA
/// assigned.
pub const VXLAN_PORTS: [u16; 2] = [8472, 4789];

/// Length of a VXLAN header in bytes.
const VXLAN_HEADER: usize = 8;

/// Type of an Ethernet frame in a tunnel of GRE (RFC 1701, "Transparent Ethernet Bridging").
pub(super) const BRIDGED_ETHERNET: EtherType = EtherType(0x6558);

/// Flag of the first byte of a GRE header: source routing.
const GRE_ROUTING: u8 = 1 << 6;

/// Length in bytes of type, code and checksum, and of an echo's identifier and sequence number.
const ICMP_HEADER: usize = 8;

/// Parsed transport header and payload.
#[derive(Default)]
pub(super) struct Transport {
    pub(super) payload: Payload,
    pub(super) code: Option<u8>,
    pub(super) ports: Option<(u16, u16)>,
    pub(super) tcp_header: Option<TcpHeader>,
    pub(super) identifier: Option<u16>,
    pub(super) inner: Option<Frame>,
    pub(super) quoted: Option<Frame>,
    pub(super) invariant_fields: InvariantFields,
}

/// Parses the payload of a packet inside `tunnels` tunnels.
pub(super) fn parse_transport(
    protocol: IpNextHeaderProtocol,
    bytes: &[u8],
    tunnels: u8,
) -> Transport {
    let carrying = |inner: Option<Frame>| Transport {
        inner,
        ..Transport::default()
    };
    let parsed = match protocol {
        IpNextHeaderProtocols::Tcp => TcpPacket::new(bytes).map(|tcp| parse_tcp(&tcp)),
        IpNextHeaderProtocols::Udp => UdpPacket::new(bytes).map(|udp| {
            let is_tunnel = VXLAN_PORTS.contains(&udp.get_destination());
            let inner = udp.payload().get(VXLAN_HEADER..).filter(|_| is_tunnel);
            let inner = inner.and_then(|inner| Frame::in_tunnel(BRIDGED_ETHERNET, inner, tunnels));
            Transport {
                payload: Payload::Udp,
                ports: Some((udp.get_source(), udp.get_destination())),
                inner,
                invariant_fields: InvariantFields {
                    data: Some(digest(udp.payload())),
                    ..InvariantFields::default()
                },
                ..Transport::default()
            }
        }),
        IpNextHeaderProtocols::Ipv4 => {
            Some(carrying(Frame::in_tunnel(EtherTypes::Ipv4, bytes, tunnels)))
        }
        IpNextHeaderProtocols::Ipv6 => {
            Some(carrying(Frame::in_tunnel(EtherTypes::Ipv6, bytes, tunnels)))
        }
        IpNextHeaderProtocols::Gre => {
            // A packet with source routing (RFC 1701) has a header that pnet does not parse.
            let has_routing = bytes.first().is_none_or(|flags| flags & GRE_ROUTING != 0);
            let gre = GrePacket::new(bytes).filter(|_| !has_routing);
            let inner = gre.and_then(|gre| {
                let kind = EtherType::new(gre.get_protocol_type());
                Frame::in_tunnel(kind, gre.payload(), tunnels)
            });
            Some(carrying(inner))
        }
        IpNextHeaderProtocols::Icmp => IcmpPacket::new(bytes).map(|icmp| {
            let payload = match icmp.get_icmp_type() {
                IcmpTypes::EchoRequest => Payload::Ping,
                IcmpTypes::EchoReply => Payload::Pong,
                IcmpTypes::DestinationUnreachable => Payload::Unreachable,
                _ => Payload::Other,
            };
            parse_icmp(payload, bytes)
        }),
        IpNextHeaderProtocols::Icmpv6 => Icmpv6Packet::new(bytes).map(|icmp| {
            let payload = match icmp.get_icmpv6_type() {
                Icmpv6Types::EchoRequest => Payload::Ping,
                Icmpv6Types::EchoReply => Payload::Pong,
                Icmpv6Types::DestinationUnreachable => Payload::Unreachable,
                _ => Payload::Other,
            };
            parse_icmp(payload, bytes)
        }),
        _ => None,
    };
    parsed.unwrap_or_else(|| Transport {
        // The quote in an ICMP error may end after the ports.
        ports: parse_ports(protocol, bytes),
        ..Transport::default()
    })
}

fn parse_tcp(tcp: &TcpPacket<'_>) -> Transport {
    let header = TcpHeader {
        sequence: tcp.get_sequence(),
        acknowledgment: tcp.get_acknowledgement(),
        window: tcp.get_window(),
        mss: tcp
            .get_options_iter()
            .find(|option| option.get_number() == TcpOptionNumbers::MSS)
            .and_then(|option| number_at(option.payload(), 0)),
    };
    let flags = tcp.get_flags();
    Transport {
        payload: Payload::Tcp(flags),
        ports: Some((tcp.get_source(), tcp.get_destination())),
        tcp_header: Some(header),
        invariant_fields: InvariantFields {
            segment: Some((header.sequence, header.acknowledgment, flags)),
            ..InvariantFields::default()
        },
        ..Transport::default()
    }
}

fn parse_icmp(payload: Payload, bytes: &[u8]) -> Transport {
    let mut transport = Transport {
        payload,
        ..Transport::default()
    };
    match payload {
        Payload::Ping | Payload::Pong => {
            transport.identifier = number_at(bytes, 4);
            transport.invariant_fields.echo = number_at(bytes, 6);
        }
        Payload::Unreachable => {
            transport.code = bytes.get(1).copied();
            transport.quoted = bytes.get(ICMP_HEADER..).and_then(Frame::from_ip);
        }
        _ => {}
    }
    transport
}

fn parse_ports(protocol: IpNextHeaderProtocol, bytes: &[u8]) -> Option<(u16, u16)> {
    if !matches!(
        protocol,
        IpNextHeaderProtocols::Tcp | IpNextHeaderProtocols::Udp
    ) {
        return None;
    }
    Some((number_at(bytes, 0)?, number_at(bytes, 2)?))
}

fn number_at(bytes: &[u8], offset: usize) -> Option<u16> {
    let number = bytes.get(offset..)?.first_chunk()?;
    Some(u16::from_be_bytes(*number))
}

/// Returns the length of the bytes and a hash.
fn digest(bytes: &[u8]) -> (usize, u64) {
    let mut hasher = std::hash::DefaultHasher::new();
    hasher.write(bytes);
    (bytes.len(), hasher.finish())
}
