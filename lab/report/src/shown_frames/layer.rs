//! Bytes of a packet and what they are.

use std::net::IpAddr;

use pnet::packet::ethernet::EtherType;
use pnet::packet::ip::IpNextHeaderProtocol;

use super::header::Header;

/// Header, if there is one, and the bytes after the header.
pub(super) type Decoded<'b> = (Option<Header>, Option<Next<'b>>);

/// Bytes that follow a header, and their kind.
pub(super) struct Next<'b> {
    pub layer: Layer,
    pub bytes: &'b [u8],
}

/// Kind of the bytes that follow a header.
#[derive(Debug, Clone, Copy)]
pub(super) enum Layer {
    Ethernet,
    EtherType(EtherType),
    /// IP packet, whose version is in its first byte.
    Ip,
    Transport(Transport),
    Vxlan,
    /// Data of a program, with the number of bytes in the packet. Not all of them may be captured.
    Data(usize),
}

/// Payload of an IP packet.
#[derive(Debug, Clone, Copy)]
pub(super) struct Transport {
    pub protocol: IpNextHeaderProtocol,
    pub source: IpAddr,
    pub destination: IpAddr,
    /// Length of the payload in bytes, as the IP header states.
    pub length: usize,
    pub fragment: Fragment,
}

/// Place of a payload in the packet that its sender made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fragment {
    None,
    First,
    Later,
}

/// Returns the entry for bytes that are not decoded.
pub(super) fn not_decoded(reason: &str, bytes: &[u8]) -> Header {
    Header::NotDecoded {
        reason: reason.to_owned(),
        length: bytes.len(),
    }
}
