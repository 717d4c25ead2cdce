//! Decodes the headers of TCP, UDP and ICMP.

use pnet::packet::Packet as _;
use pnet::packet::icmp::{self, IcmpPacket, IcmpTypes};
use pnet::packet::icmpv6::{Icmpv6Packet, Icmpv6Types};
use pnet::packet::ip::IpNextHeaderProtocols;
use pnet::packet::tcp::{TcpFlags, TcpOptionNumbers, TcpOptionPacket, TcpPacket};
use pnet::packet::udp::UdpPacket;

use super::checksum::{sum, verify, verify_header};
use super::header::{Checksum, ChecksumState, Header, Icmp, TcpFlag, TcpHeader, TcpOption};
use super::layer::{Decoded, Fragment, Layer, Next, Transport, not_decoded};
use super::network;
use svclab_journey::VXLAN_PORTS;

/// Length in bytes of the header of an ICMP message that this module decodes.
const ICMP_HEADER: usize = 8;

/// Code of an ICMP destination unreachable that announces a maximum packet size (RFC 1191, 4).
const FRAGMENTATION_NEEDED: u8 = 4;

/// Position of the checksum in a header, in words of 2 bytes.
const TCP_CHECKSUM: usize = 8;
const UDP_CHECKSUM: usize = 3;
const ICMP_CHECKSUM: usize = 1;

/// Flags with their bits.
const FLAGS: [(u8, TcpFlag); 8] = [
    (TcpFlags::FIN, TcpFlag::Fin),
    (TcpFlags::SYN, TcpFlag::Syn),
    (TcpFlags::RST, TcpFlag::Rst),
    (TcpFlags::PSH, TcpFlag::Psh),
    (TcpFlags::ACK, TcpFlag::Ack),
    (TcpFlags::URG, TcpFlag::Urg),
    (TcpFlags::ECE, TcpFlag::Ece),
    (TcpFlags::CWR, TcpFlag::Cwr),
];

/// Decodes the payload of an IP packet. Returns `None` if its header is incomplete.
pub(super) fn decode(transport: Transport, bytes: &[u8]) -> Option<Decoded<'_>> {
    if transport.fragment == Fragment::Later {
        return Some((
            Some(not_decoded("fragment that is not the first", bytes)),
            None,
        ));
    }
    match transport.protocol {
        IpNextHeaderProtocols::Tcp => tcp(transport, bytes),
        IpNextHeaderProtocols::Udp => udp(transport, bytes),
        IpNextHeaderProtocols::Icmp => icmp(transport, bytes),
        IpNextHeaderProtocols::Icmpv6 => icmpv6(transport, bytes),
        other => Some((Some(not_decoded(&other.to_string(), bytes)), None)),
    }
}

/// Whether the checksum of a payload can be verified.
fn is_verifiable(transport: Transport, bytes: &[u8]) -> bool {
    transport.fragment == Fragment::None && bytes.len() == transport.length
}

/// Verifies a checksum that includes the pseudo-header, given with its position.
fn checksum(transport: Transport, bytes: &[u8], (value, position): (u16, usize)) -> Checksum {
    Checksum {
        value,
        state: if is_verifiable(transport, bytes) {
            verify(transport, bytes, (value, position))
        } else {
            ChecksumState::NotVerified
        },
    }
}

fn tcp(transport: Transport, bytes: &[u8]) -> Option<Decoded<'_>> {
    let packet = TcpPacket::new(bytes)?;
    let header_length = usize::from(packet.get_data_offset()) * 4;
    let rest = bytes.get(header_length..)?;
    if header_length < TcpPacket::minimum_packet_size() {
        return None;
    }
    let flags = packet.get_flags();
    let set = FLAGS.iter().filter(|(bit, _)| flags & bit != 0);
    let options = packet.get_options_iter();
    let header = Header::Tcp(TcpHeader {
        source_port: packet.get_source(),
        destination_port: packet.get_destination(),
        sequence: packet.get_sequence(),
        acknowledgment: packet.get_acknowledgement(),
        flags: set.map(|(_, flag)| *flag).collect(),
        window: packet.get_window(),
        // Nothing follows the end of the list.
        options: options
            .take_while(|option| option.get_number() != TcpOptionNumbers::EOL)
            .filter(|option| option.get_number() != TcpOptionNumbers::NOP)
            .map(|option| self::option(&option))
            .collect(),
        checksum: checksum(transport, bytes, (packet.get_checksum(), TCP_CHECKSUM)),
    });
    let length = transport.length.saturating_sub(header_length);
    let layer = Layer::Data(length);
    Some((Some(header), Some(Next { layer, bytes: rest })))
}

fn option(option: &TcpOptionPacket<'_>) -> TcpOption {
    let number = option.get_number();
    let data = option.payload();
    let decoded = match (number, data.len()) {
        (TcpOptionNumbers::MSS, 2) => short(data, 0).map(TcpOption::Mss),
        (TcpOptionNumbers::WSCALE, 1) => data.first().copied().map(TcpOption::WindowScale),
        (TcpOptionNumbers::SACK_PERMITTED, 0) => Some(TcpOption::SackPermitted),
        (TcpOptionNumbers::SACK, length) if length > 0 && length % 8 == 0 => {
            let blocks = data.chunks_exact(8);
            let blocks = blocks.map(|block| Some((long(block, 0)?, long(block, 4)?)));
            blocks.collect::<Option<_>>().map(TcpOption::Sack)
        }
        (TcpOptionNumbers::TIMESTAMPS, 8) => long(data, 0)
            .zip(long(data, 4))
            .map(|(value, echo)| TcpOption::Timestamps { value, echo }),
        _ => None,
    };
    decoded.unwrap_or(TcpOption::Other {
        kind: number.0,
        length: data.len(),
    })
}

fn udp(transport: Transport, bytes: &[u8]) -> Option<Decoded<'_>> {
    let packet = UdpPacket::new(bytes)?;
    let value = packet.get_checksum();
    let state = match value {
        0 => ChecksumState::Absent,
        _ if is_verifiable(transport, bytes) => verify_udp(transport, bytes, value),
        _ => ChecksumState::NotVerified,
    };
    let header = Header::Udp {
        source_port: packet.get_source(),
        destination_port: packet.get_destination(),
        length: packet.get_length(),
        checksum: Checksum { value, state },
    };
    let layer = if VXLAN_PORTS.contains(&packet.get_destination()) {
        Layer::Vxlan
    } else {
        let header = UdpPacket::minimum_packet_size();
        Layer::Data(transport.length.saturating_sub(header))
    };
    let bytes = bytes.get(UdpPacket::minimum_packet_size()..)?;
    Some((Some(header), Some(Next { layer, bytes })))
}

/// Verifies the checksum of UDP. That of a tunnel counts the packet in it with a finished checksum,
/// which the device computes later (Linux, Documentation/networking/checksum-offloads.rst, LCO).
fn verify_udp(transport: Transport, bytes: &[u8], value: u16) -> ChecksumState {
    let verify = |bytes: &[u8]| verify(transport, bytes, (value, UDP_CHECKSUM));
    match verify(bytes) {
        ChecksumState::Wrong
            if finish_inner(bytes)
                .is_some_and(|finished| verify(&finished) == ChecksumState::Correct) =>
        {
            ChecksumState::Partial
        }
        state => state,
    }
}

/// Returns the payload of a tunnel after the device has finished the checksum of the packet in it.
/// `None` if the checksum is finished, or if there is no such packet.
fn finish_inner(bytes: &[u8]) -> Option<Vec<u8>> {
    let mut next = Next {
        layer: Layer::Vxlan,
        bytes: bytes.get(UdpPacket::minimum_packet_size()..)?,
    };
    let inner = loop {
        match next.layer {
            Layer::Transport(inner) => break inner,
            layer => next = network::decode(layer, next.bytes)?.1?,
        }
    };
    let position = match inner.protocol {
        IpNextHeaderProtocols::Tcp => TCP_CHECKSUM,
        IpNextHeaderProtocols::Udp => UDP_CHECKSUM,
        _ => return None,
    };
    let value = short(next.bytes, 2 * position)?;
    if verify(inner, next.bytes, (value, position)) != ChecksumState::Partial {
        return None;
    }
    let mut finished = bytes.to_vec();
    let start = bytes.len() - next.bytes.len() + 2 * position;
    let checksum = sum(inner, next.bytes, position).to_be_bytes();
    finished
        .get_mut(start..start + 2)?
        .copy_from_slice(&checksum);
    Some(finished)
}

fn icmp(transport: Transport, bytes: &[u8]) -> Option<Decoded<'_>> {
    let packet = IcmpPacket::new(bytes)?;
    let kind = packet.get_icmp_type();
    let is_echo = [IcmpTypes::EchoRequest, IcmpTypes::EchoReply].contains(&kind);
    let is_error = [
        IcmpTypes::DestinationUnreachable,
        IcmpTypes::SourceQuench,
        IcmpTypes::RedirectMessage,
        IcmpTypes::TimeExceeded,
        IcmpTypes::ParameterProblem,
    ]
    .contains(&kind);
    let code = packet.get_icmp_code().0;
    let is_too_big = kind == IcmpTypes::DestinationUnreachable && code == FRAGMENTATION_NEEDED;
    let state = if is_verifiable(transport, bytes) {
        verify_header(packet.get_checksum(), icmp::checksum(&packet))
    } else {
        ChecksumState::NotVerified
    };
    let header = Header::Icmp(Icmp {
        kind: kind.0,
        code,
        identifier: short(bytes, 4).filter(|_| is_echo),
        sequence: short(bytes, 6).filter(|_| is_echo),
        mtu: short(bytes, 6).filter(|_| is_too_big).map(u32::from),
        checksum: Checksum {
            value: packet.get_checksum(),
            state,
        },
    });
    Some((Some(header), after_icmp(transport, bytes, is_error)))
}

fn icmpv6(transport: Transport, bytes: &[u8]) -> Option<Decoded<'_>> {
    let packet = Icmpv6Packet::new(bytes)?;
    let kind = packet.get_icmpv6_type();
    let is_echo = [Icmpv6Types::EchoRequest, Icmpv6Types::EchoReply].contains(&kind);
    // Types below 128 are errors (RFC 4443, 2.1).
    let is_error = kind.0 < 128;
    let header = Header::Icmpv6(Icmp {
        kind: kind.0,
        code: packet.get_icmpv6_code().0,
        identifier: short(bytes, 4).filter(|_| is_echo),
        sequence: short(bytes, 6).filter(|_| is_echo),
        mtu: long(bytes, 4).filter(|_| kind == Icmpv6Types::PacketTooBig),
        checksum: checksum(transport, bytes, (packet.get_checksum(), ICMP_CHECKSUM)),
    });
    Some((Some(header), after_icmp(transport, bytes, is_error)))
}

/// Returns the packet that an error quotes, or the data of another message.
fn after_icmp(transport: Transport, bytes: &[u8], is_error: bool) -> Option<Next<'_>> {
    let bytes = bytes.get(ICMP_HEADER..)?;
    let layer = if is_error {
        Layer::Ip
    } else {
        Layer::Data(transport.length.saturating_sub(ICMP_HEADER))
    };
    Some(Next { layer, bytes })
}

fn short(bytes: &[u8], offset: usize) -> Option<u16> {
    Some(u16::from_be_bytes(*bytes.get(offset..)?.first_chunk()?))
}

fn long(bytes: &[u8], offset: usize) -> Option<u32> {
    Some(u32::from_be_bytes(*bytes.get(offset..)?.first_chunk()?))
}
