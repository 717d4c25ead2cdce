//! Netlink's attributes: written, and read by their numbers.

/// Says that an attribute holds others, and what of its kind is its number.
const NESTED: u16 = 0x8000;
const KIND: u16 = 0x3fff;

/// A length and a kind.
const HEADER: usize = 4;

/// Attributes to be sent.
#[derive(Debug, Clone, Default)]
pub struct Written(Vec<u8>);

impl Written {
    /// With one more, which must be shorter than 64 KiB.
    #[must_use]
    pub fn with(mut self, kind: u16, value: &[u8]) -> Self {
        let length = u16::try_from(HEADER + value.len()).unwrap_or(u16::MAX);
        self.0.extend_from_slice(&length.to_ne_bytes());
        self.0.extend_from_slice(&kind.to_ne_bytes());
        self.0.extend_from_slice(value);
        self.0.resize(self.0.len().next_multiple_of(4), 0);
        self
    }

    /// With a number, as netfilter has them.
    #[must_use]
    pub fn word(self, kind: u16, value: u32) -> Self {
        self.with(kind, &value.to_be_bytes())
    }

    /// With a name.
    #[must_use]
    pub fn text(self, kind: u16, value: &str) -> Self {
        let ended: Vec<u8> = value.bytes().chain([0]).collect();
        self.with(kind, &ended)
    }

    /// With one that holds others.
    #[must_use]
    pub fn nest(self, kind: u16, inside: &Self) -> Self {
        self.with(NESTED | kind, &inside.0)
    }

    /// As the kernel reads them.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }
}

/// Attributes as they were received.
#[derive(Debug, Clone, Copy)]
pub struct Read<'a>(pub &'a [u8]);

impl<'a> Read<'a> {
    /// The value of the first of that kind. What is cut off is not there.
    pub fn get(self, kind: u16) -> Option<&'a [u8]> {
        let mut rest = self.0;
        loop {
            let length = usize::from(u16::from_ne_bytes(*rest.first_chunk()?));
            let own = u16::from_ne_bytes(*rest.get(2..)?.first_chunk()?);
            let value = rest.get(HEADER..length)?;
            if own & KIND == kind {
                return Some(value);
            }
            rest = rest.get(length.next_multiple_of(4)..)?;
        }
    }

    /// Those inside the one of that kind.
    pub fn inside(self, kind: u16) -> Option<Self> {
        self.get(kind).map(Self)
    }

    /// A number.
    pub fn word(self, kind: u16) -> Option<u32> {
        self.get(kind)?
            .first_chunk()
            .copied()
            .map(u32::from_be_bytes)
    }

    /// A large number.
    pub fn long(self, kind: u16) -> Option<u64> {
        self.get(kind)?
            .first_chunk()
            .copied()
            .map(u64::from_be_bytes)
    }

    /// A small number.
    pub fn short(self, kind: u16) -> Option<u16> {
        self.get(kind)?
            .first_chunk()
            .copied()
            .map(u16::from_be_bytes)
    }

    /// A name, up to the nought behind it.
    pub fn text(self, kind: u16) -> Option<&'a str> {
        let bytes = self.get(kind)?;
        let end = bytes.iter().position(|each| *each == 0);
        std::str::from_utf8(&bytes[..end.unwrap_or(bytes.len())]).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_can_be_read() {
        let inside = Written::default().text(1, "nat").word(2, 0x4000);
        let written = Written::default().nest(5, &inside).with(6, &[7]);
        let read = Read(written.bytes());
        let nested = read.inside(5).unwrap();
        assert_eq!(nested.text(1), Some("nat"));
        assert_eq!(nested.word(2), Some(0x4000));
        assert_eq!(read.get(6), Some([7].as_slice()));
        assert_eq!(read.get(7), None);
    }

    #[test]
    fn what_is_cut_off_is_not_there() {
        let written = Written::default().word(1, 1).word(2, 2);
        for length in 8..written.bytes().len() {
            let read = Read(&written.bytes()[..length]);
            assert_eq!((read.word(1), read.word(2)), (Some(1), None), "{length}");
        }
        // A length of nought leads nowhere.
        assert_eq!(Read(&[0; 32]).get(3), None);
    }
}
