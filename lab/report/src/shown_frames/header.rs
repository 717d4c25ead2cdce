//! Headers of a packet, as data.

use std::net::{Ipv4Addr, Ipv6Addr};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use svclab_ruleset::Mac;

/// Header of a packet. After the header of a tunnel follow those of the packet in it. After an ICMP
/// error follow those of the packet that it quotes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(
    tag = "protocol",
    rename_all = "camelCase",
    rename_all_fields = "camelCase"
)]
pub(crate) enum Header {
    /// Ethernet.
    Ethernet {
        /// Source address.
        #[schemars(with = "String")]
        source: Mac,
        /// Destination address.
        #[schemars(with = "String")]
        destination: Mac,
        /// `EtherType` of the payload.
        ether_type: u16,
    },
    /// VLAN tag.
    Vlan {
        /// Identifier of the VLAN.
        id: u16,
        /// `EtherType` of the payload.
        ether_type: u16,
    },
    /// IPv4.
    Ipv4(Ipv4Header),
    /// IPv6.
    Ipv6(Ipv6Header),
    /// TCP.
    Tcp(TcpHeader),
    /// UDP.
    Udp {
        /// Source port.
        source_port: u16,
        /// Destination port.
        destination_port: u16,
        /// Length of header and payload in bytes, as the header states.
        length: u16,
        /// Checksum of header and payload.
        checksum: Checksum,
    },
    /// ICMP.
    Icmp(Icmp),
    /// `ICMPv6`.
    Icmpv6(Icmp),
    /// VXLAN.
    Vxlan {
        /// Identifier of the network.
        vni: u32,
    },
    /// Bytes after the last header.
    Data {
        /// Number of bytes.
        length: usize,
    },
    /// Bytes of a header that is not decoded.
    NotDecoded {
        /// Name of the header, with the reason.
        reason: String,
        /// Number of bytes.
        length: usize,
    },
}

/// Header of IPv4.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Ipv4Header {
    /// Source address.
    pub source: Ipv4Addr,
    /// Destination address.
    pub destination: Ipv4Addr,
    /// Protocol number of the payload.
    pub payload: u8,
    /// Time to live.
    pub ttl: u8,
    /// Length of the packet in bytes, as the header states.
    pub length: u16,
    /// Identification field.
    pub identification: u16,
    /// Differentiated services code point.
    pub dscp: u8,
    /// Explicit congestion notification.
    pub ecn: u8,
    /// Whether routers must not fragment the packet.
    pub dont_fragment: bool,
    /// Whether more fragments follow.
    pub more_fragments: bool,
    /// Offset of the fragment in bytes.
    pub fragment_offset: u16,
    /// Length of the options in bytes.
    pub options: u8,
    /// Checksum of the header.
    pub checksum: Checksum,
}

/// Header of IPv6.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Ipv6Header {
    /// Source address.
    pub source: Ipv6Addr,
    /// Destination address.
    pub destination: Ipv6Addr,
    /// Number of the next header.
    pub payload: u8,
    /// Hop limit.
    pub hop_limit: u8,
    /// Length of the payload in bytes, as the header states.
    pub payload_length: u16,
    /// Traffic class.
    pub traffic_class: u8,
    /// Flow label.
    pub flow_label: u32,
}

/// Header of TCP.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct TcpHeader {
    /// Source port.
    pub source_port: u16,
    /// Destination port.
    pub destination_port: u16,
    /// Sequence number of the first byte.
    pub sequence: u32,
    /// Acknowledgment number: the next sequence number that the sender expects.
    pub acknowledgment: u32,
    /// Flags that are set, from the lowest bit on.
    pub flags: Vec<TcpFlag>,
    /// Window field, without window scaling.
    pub window: u16,
    /// Options without padding, in order.
    pub options: Vec<TcpOption>,
    /// Checksum of header and payload.
    pub checksum: Checksum,
}

/// ICMP or `ICMPv6`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Icmp {
    /// Type of the message.
    #[serde(rename = "type")]
    pub kind: u8,
    /// Code of the message.
    pub code: u8,
    /// Identifier of an echo.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub identifier: Option<u16>,
    /// Sequence number of an echo.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sequence: Option<u16>,
    /// Maximum packet size that an error announces, in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mtu: Option<u32>,
    /// Checksum of the message.
    pub checksum: Checksum,
}

/// Checksum of a header.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Checksum {
    /// Value of the field.
    pub value: u16,
    /// Whether the value is correct.
    pub state: ChecksumState,
}

/// Result of the verification of a checksum.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) enum ChecksumState {
    /// Correct.
    Correct,
    /// Only the pseudo-header is summed. The kernel leaves the rest to the device that sends the
    /// packet, and a veth pair transmits it unfinished.
    Partial,
    /// Incorrect.
    Wrong,
    /// Absent: the field of UDP over IPv4 is 0.
    Absent,
    /// Not verified: not all bytes were captured or quoted, or the packet is a fragment.
    NotVerified,
}

/// Flag of a TCP header.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "UPPERCASE")]
pub(crate) enum TcpFlag {
    Fin,
    Syn,
    Rst,
    Psh,
    Ack,
    Urg,
    Ece,
    Cwr,
}

/// Option of a TCP header.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub(crate) enum TcpOption {
    /// Maximum segment size in bytes.
    Mss(u16),
    /// Number of bits by which window fields are shifted.
    WindowScale(u8),
    /// Selective acknowledgments are permitted.
    SackPermitted,
    /// Selective acknowledgments: first sequence number of each block, and the one after its last.
    Sack(Vec<(u32, u32)>),
    /// Timestamps.
    Timestamps {
        /// Clock of the sender.
        value: u32,
        /// Latest clock that the sender received.
        echo: u32,
    },
    /// Other or malformed option.
    Other {
        /// Number of the option.
        kind: u8,
        /// Length of its data in bytes.
        length: usize,
    },
}
