//! Parses Ethernet frames and IP packets into addresses, ports, packet kind and identifying fields.

mod transport;

use std::net::IpAddr;

use pnet::packet::Packet as _;
use pnet::packet::ethernet::{EtherType, EtherTypes, EthernetPacket};
use pnet::packet::ip::{IpNextHeaderProtocol, IpNextHeaderProtocols};
use pnet::packet::ipv4::{Ipv4Flags, Ipv4Packet};
use pnet::packet::ipv6::Ipv6Packet;
use pnet::packet::tcp::TcpFlags;
use pnet::packet::vlan::VlanPacket;

use svclab_model::evidence::PacketKind;
use transport::{BRIDGED_ETHERNET, parse_transport};

pub use transport::VXLAN_PORTS;

/// Maximum number of nested tunnels.
const MAX_TUNNELS: u8 = 2;

/// Length of an IPv6 header in bytes.
const IPV6_HEADER: u32 = 40;

/// The IP packet of a frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    /// Source address of the IP header.
    pub source: IpAddr,
    /// Destination address of the IP header.
    pub destination: IpAddr,
    /// Source and destination port of TCP or UDP; `None` for other protocols.
    pub ports: Option<(u16, u16)>,
    /// Identifier of an ICMP echo; `None` for other packets.
    pub identifier: Option<u16>,
    /// Kind of the transport payload.
    pub payload: Payload,
    /// Code of an ICMP destination unreachable; `None` for other packets.
    pub code: Option<u8>,
    /// Fields of the TCP header; `None` for other protocols.
    pub tcp_header: Option<TcpHeader>,
    /// Packet that this packet carries through a tunnel: VXLAN, IP in IP or GRE.
    pub inner: Option<Box<Frame>>,
    /// Beginning of the packet that an ICMP error quotes.
    pub quoted: Option<Box<Frame>>,
    /// Fields that identify the packet wherever it is seen.
    pub invariant_fields: InvariantFields,
    /// TTL or hop limit of the IP header.
    pub ttl: u8,
    /// Length of the IP packet in bytes, as its header states.
    pub length: u32,
    /// Whether routers must not fragment the packet. Always true for IPv6 (RFC 8200, 5).
    pub dont_fragment: bool,
}

/// Fields of a packet that neither routers nor NAT change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct InvariantFields {
    /// Identification field of the IPv4 header; 0 for IPv6.
    pub identification: u16,
    /// TCP sequence number, acknowledgment number and flags.
    pub segment: Option<(u32, u32, u8)>,
    /// Sequence number of an ICMP echo.
    pub echo: Option<u16>,
    /// Length in bytes and digest of a UDP payload.
    pub data: Option<(usize, u64)>,
}

/// Fields of a TCP header except ports and flags.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TcpHeader {
    /// Sequence number of the first byte.
    pub sequence: u32,
    /// Acknowledgment number: the next sequence number that the sender expects.
    pub acknowledgment: u32,
    /// Window field as sent, without window scaling.
    pub window: u16,
    /// Offered maximum segment size in bytes; `None` without the MSS option.
    pub mss: Option<u16>,
}

/// Payload of an IP packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Payload {
    /// TCP, with the flags of its header.
    Tcp(u8),
    /// UDP datagram.
    Udp,
    /// ICMP echo request.
    Ping,
    /// ICMP echo reply.
    Pong,
    /// ICMP destination unreachable.
    Unreachable,
    /// Any other payload, including a fragment that is not the first.
    #[default]
    Other,
}

impl Frame {
    /// Parses an Ethernet frame, with at most one VLAN tag. `None` if the frame holds no IP packet,
    /// or an incomplete IP header.
    #[must_use]
    pub fn from_ethernet(bytes: &[u8]) -> Option<Self> {
        Self::parse_ethernet(bytes, 0)
    }

    fn parse_ethernet(bytes: &[u8], tunnels: u8) -> Option<Self> {
        let frame = EthernetPacket::new(bytes)?;
        match frame.get_ethertype() {
            EtherTypes::Vlan => {
                let tagged = VlanPacket::new(frame.payload())?;
                Self::from_ether_type(tagged.get_ethertype(), tagged.payload(), tunnels)
            }
            other => Self::from_ether_type(other, frame.payload(), tunnels),
        }
    }

    /// Parses a packet that another one carries, which is itself inside `tunnels` tunnels.
    fn in_tunnel(kind: EtherType, bytes: &[u8], tunnels: u8) -> Option<Self> {
        match kind {
            _ if tunnels >= MAX_TUNNELS => None,
            BRIDGED_ETHERNET => Self::parse_ethernet(bytes, tunnels + 1),
            _ => Self::from_ether_type(kind, bytes, tunnels + 1),
        }
    }

    /// Returns the packet that this packet carries through a VXLAN tunnel.
    #[must_use]
    pub fn inner_of_vxlan(&self) -> Option<&Self> {
        self.inner
            .as_deref()
            .filter(|_| self.payload == Payload::Udp)
    }

    /// Parses an IP packet or the beginning of one. `None` if the bytes hold no complete IP header.
    #[must_use]
    pub fn from_ip(bytes: &[u8]) -> Option<Self> {
        let kind = match bytes.first()? >> 4 {
            4 => EtherTypes::Ipv4,
            6 => EtherTypes::Ipv6,
            _ => return None,
        };
        Self::from_ether_type(kind, bytes, 0)
    }

    fn from_ether_type(kind: EtherType, bytes: &[u8], tunnels: u8) -> Option<Self> {
        match kind {
            EtherTypes::Ipv4 => {
                let packet = Ipv4Packet::new(bytes)?;
                let (source, destination) =
                    (packet.get_source().into(), packet.get_destination().into());
                // Uses the length in the IP header, because a frame may be padded.
                let header = usize::from(packet.get_header_length()) * 4;
                let end = usize::from(packet.get_total_length())
                    .clamp(header.min(bytes.len()), bytes.len());
                let payload = bytes.get(header..end)?;
                let is_first_fragment = packet.get_fragment_offset() == 0;
                let mut frame = Self::from_ip_payload(
                    source,
                    destination,
                    packet.get_next_level_protocol(),
                    payload,
                    is_first_fragment.then_some(tunnels),
                );
                frame.invariant_fields.identification = packet.get_identification();
                frame.ttl = packet.get_ttl();
                frame.length = packet.get_total_length().into();
                frame.dont_fragment = packet.get_flags() & Ipv4Flags::DontFragment != 0;
                Some(frame)
            }
            EtherTypes::Ipv6 => {
                let packet = Ipv6Packet::new(bytes)?;
                let (source, destination) =
                    (packet.get_source().into(), packet.get_destination().into());
                let transport = skip_extensions(packet.get_next_header(), packet.payload())?;
                let mut frame = Self::from_ip_payload(
                    source,
                    destination,
                    transport.protocol,
                    transport.bytes,
                    transport.is_first_fragment.then_some(tunnels),
                );
                frame.ttl = packet.get_hop_limit();
                frame.length = IPV6_HEADER + u32::from(packet.get_payload_length());
                frame.dont_fragment = true;
                Some(frame)
            }
            _ => None,
        }
    }

    /// Parses the payload of an IP packet inside `tunnels` tunnels. `None` for a fragment that is not
    /// the first.
    fn from_ip_payload(
        source: IpAddr,
        destination: IpAddr,
        protocol: IpNextHeaderProtocol,
        bytes: &[u8],
        tunnels: Option<u8>,
    ) -> Self {
        let transport = tunnels.map(|tunnels| parse_transport(protocol, bytes, tunnels));
        let transport = transport.unwrap_or_default();
        Self {
            source,
            destination,
            ports: transport.ports,
            identifier: transport.identifier,
            payload: transport.payload,
            code: transport.code,
            tcp_header: transport.tcp_header,
            inner: transport.inner.map(Box::new),
            quoted: transport.quoted.map(Box::new),
            invariant_fields: transport.invariant_fields,
            ttl: 0,
            length: 0,
            dont_fragment: false,
        }
    }

    /// Whether the packet is of this kind.
    #[must_use]
    pub fn has_kind(&self, kind: PacketKind) -> bool {
        self.payload.has_kind(kind)
    }
}

/// Payload of an IPv6 packet behind its extension headers.
struct Ipv6Transport<'p> {
    protocol: IpNextHeaderProtocol,
    bytes: &'p [u8],
    is_first_fragment: bool,
}

/// Maximum number of extension headers. RFC 8200, section 4.1, lists each header once or twice.
const MAX_EXTENSIONS: usize = 8;

/// Returns the payload behind the extension headers (RFC 8200, section 4). `None` for a truncated
/// header.
fn skip_extensions(
    mut protocol: IpNextHeaderProtocol,
    mut bytes: &[u8],
) -> Option<Ipv6Transport<'_>> {
    let mut is_first_fragment = true;
    for _ in 0..MAX_EXTENSIONS {
        let length = match protocol {
            IpNextHeaderProtocols::Hopopt
            | IpNextHeaderProtocols::Ipv6Route
            | IpNextHeaderProtocols::Ipv6Opts => 8 * (usize::from(*bytes.get(1)?) + 1),
            IpNextHeaderProtocols::Ipv6Frag => {
                let [_, _, high, low, ..] = bytes else {
                    return None;
                };
                is_first_fragment &= u16::from_be_bytes([*high, *low]) >> 3 == 0;
                8
            }
            _ => break,
        };
        protocol = IpNextHeaderProtocol::new(*bytes.first()?);
        bytes = bytes.get(length..)?;
    }
    Some(Ipv6Transport {
        protocol,
        bytes,
        is_first_fragment,
    })
}

impl Payload {
    /// Whether the payload belongs to a packet of this kind.
    #[must_use]
    pub fn has_kind(self, kind: PacketKind) -> bool {
        let has_flags = |flags: u8| match self {
            Self::Tcp(header_flags) => header_flags & flags == flags,
            _ => false,
        };
        let (syn, ack, rst, fin) = (
            has_flags(TcpFlags::SYN),
            has_flags(TcpFlags::ACK),
            has_flags(TcpFlags::RST),
            has_flags(TcpFlags::FIN),
        );
        match kind {
            PacketKind::Syn => syn && !ack,
            PacketKind::SynAck => syn && ack,
            PacketKind::Ack => ack && !syn && !rst && !fin,
            PacketKind::Rst => rst,
            PacketKind::Fin => fin,
            PacketKind::Udp => self == Self::Udp,
            PacketKind::Ping => self == Self::Ping,
            PacketKind::Pong => self == Self::Pong,
            PacketKind::Unreachable => self == Self::Unreachable,
            PacketKind::Any => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ethernet(ip: &[u8]) -> Vec<u8> {
        let mut frame = vec![0x0a, 0x58, 0, 0, 0, 2, 0x0a, 0x58, 0, 0, 0, 1, 8, 0];
        frame.extend_from_slice(ip);
        frame
    }

    fn ipv4(protocol: u8, payload: &[u8]) -> Vec<u8> {
        let length = u16::try_from(20 + payload.len()).unwrap().to_be_bytes();
        let mut packet = vec![
            0x45, 0, length[0], length[1], 0, 0, 0x40, 0, 64, protocol, 0, 0,
        ];
        packet.extend_from_slice(&[10, 0, 1, 2, 10, 0, 2, 2]);
        packet.extend_from_slice(payload);
        packet
    }

    fn tcp(flags: u8) -> Vec<u8> {
        let mut segment = vec![0xa1, 0x8a, 0, 80, 0, 0, 0, 1, 0, 0, 0, 0, 0x50, flags];
        segment.extend_from_slice(&[0xff, 0xff, 0, 0, 0, 0]);
        segment
    }

    #[test]
    fn frame_tcp_flags_give_packet_kind() {
        let syn = Frame::from_ethernet(&ethernet(&ipv4(6, &tcp(0x02)))).unwrap();
        assert_eq!(
            (syn.source.to_string().as_str(), syn.ports),
            ("10.0.1.2", Some((41354, 80)))
        );
        assert_eq!((syn.ttl, syn.length, syn.dont_fragment), (64, 40, true));
        assert!(
            syn.has_kind(PacketKind::Syn)
                && !syn.has_kind(PacketKind::SynAck)
                && !syn.has_kind(PacketKind::Ack)
        );
        let answer = Frame::from_ethernet(&ethernet(&ipv4(6, &tcp(0x12)))).unwrap();
        assert!(answer.has_kind(PacketKind::SynAck) && !answer.has_kind(PacketKind::Syn));
        let reset = Frame::from_ethernet(&ethernet(&ipv4(6, &tcp(0x14)))).unwrap();
        assert!(reset.has_kind(PacketKind::Rst) && !reset.has_kind(PacketKind::Ack));
    }

    #[test]
    fn frame_tcp_header_has_window_and_mss() {
        let mut syn = tcp(0x02);
        assert_eq!(
            Frame::from_ethernet(&ethernet(&ipv4(6, &syn)))
                .unwrap()
                .tcp_header,
            Some(TcpHeader {
                sequence: 1,
                acknowledgment: 0,
                window: 0xffff,
                mss: None
            })
        );
        // A header of six words; the MSS option is the sixth.
        syn[12] = 0x60;
        syn.extend_from_slice(&[2, 4, 0xff, 0xd7]);
        let frame = Frame::from_ethernet(&ethernet(&ipv4(6, &syn))).unwrap();
        assert_eq!(
            frame.tcp_header.and_then(|segment| segment.mss),
            Some(65_495)
        );
    }

    #[test]
    fn frame_ipv6_fragment_has_kind_of_its_payload() {
        let udp = [0xa1, 0x8a, 0, 53, 0, 16, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8];
        let packet = |offset: u8| {
            let options = [44, 0, 1, 4, 0, 0, 0, 0];
            let fragment = [17, 0, 0, (offset << 3) | 1, 0, 0, 0, 9];
            let payload = [&options[..], &fragment, &udp].concat();
            let length = u8::try_from(payload.len()).unwrap();
            let mut frame = ethernet(&[0x60, 0, 0, 0, 0, length, 0, 64]);
            frame[12..14].copy_from_slice(&[0x86, 0xdd]);
            frame.extend_from_slice(&[[0xfd; 16], [0xfe; 16]].concat());
            frame.extend_from_slice(&payload);
            frame
        };
        let first = Frame::from_ethernet(&packet(0)).unwrap();
        assert!(first.has_kind(PacketKind::Udp));
        assert_eq!(first.ports, Some((41354, 53)));
        let second = Frame::from_ethernet(&packet(2)).unwrap();
        assert_eq!((second.payload, second.ports), (Payload::Other, None));
    }

    #[test]
    fn frame_vxlan_has_inner_packet() {
        let inner = ethernet(&ipv4(6, &tcp(0x02)));
        let mut datagram = vec![0x30, 0x39, 0x21, 0x18];
        datagram.extend_from_slice(&u16::try_from(16 + inner.len()).unwrap().to_be_bytes());
        datagram.extend_from_slice(&[0, 0, 8, 0, 0, 0, 0, 0, 1, 0]);
        datagram.extend_from_slice(&inner);
        let outer = Frame::from_ethernet(&ethernet(&ipv4(17, &datagram))).unwrap();
        assert!(outer.has_kind(PacketKind::Udp));
        assert!(outer.inner.unwrap().has_kind(PacketKind::Syn));
    }

    #[test]
    fn frame_of_other_tunnels_has_inner_packet() {
        let inner = ipv4(6, &tcp(0x02));
        let with_key = [&[0x20, 0, 8, 0, 0, 0, 0, 7], &*inner].concat();
        let bridged = [&[0, 0, 0x65, 0x58], &*ethernet(&inner)].concat();
        for (protocol, payload) in [(4, inner.clone()), (47, with_key), (47, bridged)] {
            let outer = Frame::from_ethernet(&ethernet(&ipv4(protocol, &payload))).unwrap();
            assert_eq!(outer.inner_of_vxlan(), None);
            assert!(outer.inner.unwrap().has_kind(PacketKind::Syn), "{protocol}");
        }
        let routed = [&[0x40, 0, 8, 0, 0, 0, 0, 0], &*inner].concat();
        let outer = Frame::from_ethernet(&ethernet(&ipv4(47, &routed))).unwrap();
        assert_eq!(outer.inner, None);
        // A packet with many headers has the first ones only.
        let nested = (0..1000).fold(inner, |inner, _| ipv4(4, &inner));
        let outer = Frame::from_ethernet(&ethernet(&nested)).unwrap();
        let third = outer.inner.unwrap().inner.unwrap();
        assert_eq!(third.inner, None);
    }

    #[test]
    fn frame_truncated_or_foreign_returns_none() {
        let whole = ethernet(&ipv4(6, &tcp(0x02)));
        for length in 0..whole.len() {
            // The result is not checked: parsing a truncated frame must not panic.
            let _ = Frame::from_ethernet(&whole[..length]);
        }
        assert_eq!(Frame::from_ethernet(&[0; 14]), None);
    }

    #[test]
    fn frame_padding_is_not_payload() {
        let mut frame = ethernet(&ipv4(1, &[3, 1, 0, 0, 0, 0, 0, 0]));
        frame.resize(60, 0);
        let read = Frame::from_ethernet(&frame).unwrap();
        assert!(read.has_kind(PacketKind::Unreachable));
        assert_eq!(read.code, Some(1));
    }
}
