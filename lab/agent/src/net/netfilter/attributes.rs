//! Encodes and parses netlink attributes.
//!
//! `netlink-packet-netfilter` 0.4 has no types for the attributes of trace events, and none for the
//! identifiers of ICMP in conntrack entries. It allocates every attribute of a message, of which a
//! trace may have 250,000. This code borrows from the received buffer.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Flag of a nested attribute, and mask of the attribute's type.
const NESTED: u16 = 0x8000;
const TYPE_MASK: u16 = 0x3fff;

/// Bytes of an attribute's header: length and type.
const HEADER_BYTES: usize = 4;

/// Encoded attributes.
#[derive(Debug, Clone, Default)]
pub(crate) struct EncodedAttributes(Vec<u8>);

impl EncodedAttributes {
    /// Appends an attribute, which must be shorter than 64 KiB.
    pub(crate) fn with(mut self, kind: u16, value: &[u8]) -> Self {
        let length = u16::try_from(HEADER_BYTES + value.len()).unwrap_or(u16::MAX);
        self.0.extend_from_slice(&length.to_ne_bytes());
        self.0.extend_from_slice(&kind.to_ne_bytes());
        self.0.extend_from_slice(value);
        self.0.resize(self.0.len().next_multiple_of(4), 0);
        self
    }

    /// Appends a 32-bit number in network byte order, as netfilter requires.
    pub(crate) fn with_u32(self, kind: u16, value: u32) -> Self {
        self.with(kind, &value.to_be_bytes())
    }

    /// Appends a 16-bit number in network byte order.
    pub(crate) fn with_u16(self, kind: u16, value: u16) -> Self {
        self.with(kind, &value.to_be_bytes())
    }

    /// Appends a text with a zero byte at its end.
    pub(crate) fn with_text(self, kind: u16, value: &str) -> Self {
        let ended: Vec<u8> = value.bytes().chain([0]).collect();
        self.with(kind, &ended)
    }

    /// Appends a nested attribute.
    pub(crate) fn with_nested(self, kind: u16, attributes: &Self) -> Self {
        self.with(NESTED | kind, &attributes.0)
    }

    /// Returns the attributes in netlink encoding.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.0
    }
}

/// Received attributes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ReceivedAttributes<'a>(pub(crate) &'a [u8]);

impl<'a> ReceivedAttributes<'a> {
    /// Returns the value of the first attribute of a type. Returns `None` if the attribute is
    /// missing or incomplete.
    pub(crate) fn get(self, kind: u16) -> Option<&'a [u8]> {
        let mut rest = self.0;
        loop {
            let length = usize::from(u16::from_ne_bytes(*rest.first_chunk()?));
            let attribute_type = u16::from_ne_bytes(*rest.get(2..)?.first_chunk()?);
            let value = rest.get(HEADER_BYTES..length)?;
            if attribute_type & TYPE_MASK == kind {
                return Some(value);
            }
            rest = rest.get(length.next_multiple_of(4)..)?;
        }
    }

    /// Returns the attributes inside a nested attribute.
    pub(crate) fn get_nested(self, kind: u16) -> Option<Self> {
        self.get(kind).map(Self)
    }

    /// Returns the first bytes of an attribute.
    pub(crate) fn get_bytes<const N: usize>(self, kind: u16) -> Option<[u8; N]> {
        self.get(kind)?.first_chunk().copied()
    }

    /// Returns a 16-bit number in network byte order.
    pub(crate) fn get_u16(self, kind: u16) -> Option<u16> {
        self.get_bytes(kind).map(u16::from_be_bytes)
    }

    /// Returns a 32-bit number in network byte order.
    pub(crate) fn get_u32(self, kind: u16) -> Option<u32> {
        self.get_bytes(kind).map(u32::from_be_bytes)
    }

    /// Returns a 64-bit number in network byte order.
    pub(crate) fn get_u64(self, kind: u16) -> Option<u64> {
        self.get_bytes(kind).map(u64::from_be_bytes)
    }

    /// Returns an address of 4 bytes.
    pub(crate) fn get_ipv4(self, kind: u16) -> Option<IpAddr> {
        self.get_bytes(kind)
            .map(|bytes| Ipv4Addr::from_octets(bytes).into())
    }

    /// Returns an address of 16 bytes.
    pub(crate) fn get_ipv6(self, kind: u16) -> Option<IpAddr> {
        self.get_bytes(kind)
            .map(|bytes| Ipv6Addr::from_octets(bytes).into())
    }

    /// Returns a text up to its zero byte.
    pub(crate) fn text(self, kind: u16) -> Option<&'a str> {
        let bytes = self.get(kind)?;
        let end = bytes.iter().position(|each| *each == 0);
        std::str::from_utf8(&bytes[..end.unwrap_or(bytes.len())]).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn encoded_attributes_are_parsed_back() {
        let inside = EncodedAttributes::default()
            .with_text(1, "nat")
            .with_u32(2, 0x4000);
        let written = EncodedAttributes::default()
            .with_nested(5, &inside)
            .with(6, &[7]);
        let read = ReceivedAttributes(written.bytes());
        let nested = read.get_nested(5).unwrap();
        assert_eq!(nested.text(1), Some("nat"));
        assert_eq!(nested.get_u32(2), Some(0x4000));
        assert_eq!(read.get(6), Some([7].as_slice()));
        assert_eq!(read.get(7), None);
    }

    #[test]
    fn incomplete_attribute_is_missing() {
        let written = EncodedAttributes::default().with_u32(1, 1).with_u32(2, 2);
        for length in 8..written.bytes().len() {
            let read = ReceivedAttributes(&written.bytes()[..length]);
            assert_eq!(
                (read.get_u32(1), read.get_u32(2)),
                (Some(1), None),
                "{length}"
            );
        }
        // An attribute of length 0 ends the search.
        assert_eq!(ReceivedAttributes(&[0; 32]).get(3), None);
    }
}
