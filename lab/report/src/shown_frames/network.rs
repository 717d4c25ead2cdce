//! Decodes the headers of Ethernet, IP and tunnels.

use pnet::packet::ethernet::{EtherTypes, EthernetPacket};
use pnet::packet::ip::IpNextHeaderProtocols;
use pnet::packet::ipv4::{self, Ipv4Flags, Ipv4Packet};
use pnet::packet::ipv6::Ipv6Packet;
use pnet::packet::vlan::VlanPacket;
use pnet::packet::vxlan::VxlanPacket;

use super::checksum::verify_header;
use super::header::{Checksum, Header, Ipv4Header, Ipv6Header};
use super::layer::{Decoded, Fragment, Layer, Next, Transport, not_decoded};
use svclab_ruleset::Mac;

/// Decodes the header at the start of `bytes`. Returns `None` if the header is incomplete, or if the
/// bytes are the payload of an IP packet that is no tunnel.
pub(super) fn decode(layer: Layer, bytes: &[u8]) -> Option<Decoded<'_>> {
    let no_header = |layer| (None, Some(Next { layer, bytes }));
    match layer {
        Layer::Ethernet => ethernet(bytes),
        Layer::EtherType(EtherTypes::Ipv4) => ipv4(bytes),
        Layer::EtherType(EtherTypes::Ipv6) => ipv6(bytes),
        Layer::EtherType(EtherTypes::Vlan) => vlan(bytes),
        Layer::EtherType(other) => Some((Some(not_decoded(&other.to_string(), bytes)), None)),
        Layer::Ip => Some(match bytes.first()? >> 4 {
            4 => no_header(Layer::EtherType(EtherTypes::Ipv4)),
            6 => no_header(Layer::EtherType(EtherTypes::Ipv6)),
            other => (
                Some(not_decoded(&format!("IP version {other}"), bytes)),
                None,
            ),
        }),
        Layer::Transport(transport) => is_tunnel(transport).then(|| no_header(Layer::Ip)),
        Layer::Vxlan => vxlan(bytes),
        Layer::Data(_) => None,
    }
}

/// Whether the payload of an IP packet is an IP packet.
pub(super) fn is_tunnel(transport: Transport) -> bool {
    let protocols = [IpNextHeaderProtocols::Ipv4, IpNextHeaderProtocols::Ipv6];
    protocols.contains(&transport.protocol) && transport.fragment == Fragment::None
}

fn ethernet(bytes: &[u8]) -> Option<Decoded<'_>> {
    let frame = EthernetPacket::new(bytes)?;
    let ether_type = frame.get_ethertype();
    let header = Header::Ethernet {
        source: Mac(frame.get_source().octets()),
        destination: Mac(frame.get_destination().octets()),
        ether_type: ether_type.0,
    };
    let layer = Layer::EtherType(ether_type);
    let bytes = bytes.get(EthernetPacket::minimum_packet_size()..)?;
    Some((Some(header), Some(Next { layer, bytes })))
}

fn vlan(bytes: &[u8]) -> Option<Decoded<'_>> {
    let tag = VlanPacket::new(bytes)?;
    let ether_type = tag.get_ethertype();
    let header = Header::Vlan {
        id: tag.get_vlan_identifier(),
        ether_type: ether_type.0,
    };
    let layer = Layer::EtherType(ether_type);
    let bytes = bytes.get(VlanPacket::minimum_packet_size()..)?;
    Some((Some(header), Some(Next { layer, bytes })))
}

fn ipv4(bytes: &[u8]) -> Option<Decoded<'_>> {
    let packet = Ipv4Packet::new(bytes)?;
    let header_length = usize::from(packet.get_header_length()) * 4;
    let options = header_length.checked_sub(Ipv4Packet::minimum_packet_size())?;
    let (header_bytes, rest) = bytes.split_at_checked(header_length)?;
    let length = usize::from(packet.get_total_length()).checked_sub(header_length)?;
    let is_more = packet.get_flags() & Ipv4Flags::MoreFragments != 0;
    let offset = packet.get_fragment_offset() * 8;
    let header = Header::Ipv4(Ipv4Header {
        source: packet.get_source(),
        destination: packet.get_destination(),
        payload: packet.get_next_level_protocol().0,
        ttl: packet.get_ttl(),
        length: packet.get_total_length(),
        identification: packet.get_identification(),
        dscp: packet.get_dscp(),
        ecn: packet.get_ecn(),
        dont_fragment: packet.get_flags() & Ipv4Flags::DontFragment != 0,
        more_fragments: is_more,
        fragment_offset: offset,
        options: u8::try_from(options).ok()?,
        checksum: Checksum {
            value: packet.get_checksum(),
            state: verify_header(
                packet.get_checksum(),
                ipv4::checksum(&Ipv4Packet::new(header_bytes)?),
            ),
        },
    });
    let transport = Transport {
        protocol: packet.get_next_level_protocol(),
        source: packet.get_source().into(),
        destination: packet.get_destination().into(),
        length,
        fragment: match (offset, is_more) {
            (0, false) => Fragment::None,
            (0, true) => Fragment::First,
            _ => Fragment::Later,
        },
    };
    Some((Some(header), Some(payload(transport, rest))))
}

fn ipv6(bytes: &[u8]) -> Option<Decoded<'_>> {
    let packet = Ipv6Packet::new(bytes)?;
    let header = Header::Ipv6(Ipv6Header {
        source: packet.get_source(),
        destination: packet.get_destination(),
        payload: packet.get_next_header().0,
        hop_limit: packet.get_hop_limit(),
        payload_length: packet.get_payload_length(),
        traffic_class: packet.get_traffic_class(),
        flow_label: packet.get_flow_label(),
    });
    let transport = Transport {
        protocol: packet.get_next_header(),
        source: packet.get_source().into(),
        destination: packet.get_destination().into(),
        length: usize::from(packet.get_payload_length()),
        fragment: Fragment::None,
    };
    let rest = bytes.get(Ipv6Packet::minimum_packet_size()..)?;
    Some((Some(header), Some(payload(transport, rest))))
}

/// Returns the payload of an IP packet without the padding of its frame.
fn payload(transport: Transport, rest: &[u8]) -> Next<'_> {
    Next {
        layer: Layer::Transport(transport),
        bytes: rest.get(..transport.length).unwrap_or(rest),
    }
}

fn vxlan(bytes: &[u8]) -> Option<Decoded<'_>> {
    let header = Header::Vxlan {
        vni: VxlanPacket::new(bytes)?.get_vni(),
    };
    let bytes = bytes.get(VxlanPacket::minimum_packet_size()..)?;
    let layer = Layer::Ethernet;
    Some((Some(header), Some(Next { layer, bytes })))
}
