//! Patterns of packets that are expected on an interface, such as `SYN from pod/default/client to
//! 10.0.0.1:80`.

use std::fmt;
use std::net::Ipv6Addr;
use std::ops::Range;
use std::str::FromStr;

pub use svclab_model::evidence::PacketKind;

use super::within::Within;

pub use super::wire_expectation::{Tap, TapError, WireExpectation};

/// Source or destination of a packet: a name or an address, with an optional port.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Peer {
    /// Name as in a probe (`pod/default/client`, `node-1`), or an IP address without brackets.
    pub name: String,
    /// TCP or UDP port; `None` matches any port.
    pub port: Option<u16>,
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.port, self.name.contains(':')) {
            (None, _) => f.write_str(&self.name),
            (Some(port), false) => write!(f, "{}:{port}", self.name),
            (Some(port), true) => write!(f, "[{}]:{port}", self.name),
        }
    }
}

/// Encapsulation of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Overlay {
    /// VXLAN. The pattern describes the inner packet.
    Vxlan,
}

/// Pattern of packets: `KIND [from NAME[:port]] [to NAME[:port]] [via vxlan]`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Sight {
    /// Kind of packet.
    pub kind: PacketKind,
    /// Source of the packet on this interface; `None` matches any source.
    pub from: Option<Peer>,
    /// Destination of the packet on this interface; `None` matches any destination.
    pub to: Option<Peer>,
    /// Encapsulation on this interface; `None` matches only packets that are not encapsulated.
    pub via: Option<Overlay>,
}

impl fmt::Display for Sight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.kind)?;
        if let Some(from) = &self.from {
            write!(f, " from {from}")?;
        }
        if let Some(to) = &self.to {
            write!(f, " to {to}")?;
        }
        match self.via {
            Some(Overlay::Vxlan) => f.write_str(" via vxlan"),
            None => Ok(()),
        }
    }
}

/// Error of parsing a [`Sight`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SightError {
    /// The text is empty.
    #[error("an empty description of a packet; write for example \"SYN from pod/default/client\"")]
    Empty,
    /// The first word is not a kind of packet.
    #[error("`{0}` is no kind of packet; the kinds are {kinds}", kinds = kinds())]
    Kind(String),
    /// A word is not `from`, `to` or `via`.
    #[error(
        "`{0}` is not understood here; a kind is followed by `from NAME`, `to NAME` or `via vxlan`"
    )]
    Word(String),
    /// A keyword occurs twice.
    #[error("`{0}` is written twice")]
    Twice(&'static str),
    /// A keyword has no value.
    #[error("`{0}` needs a word behind it")]
    Dangling(&'static str),
    /// The port is not a number from 1 to 65535.
    #[error("`{0}` is not a port; write a number from 1 to 65535")]
    Port(String),
    /// A port for a kind of packet without ports.
    #[error("a {0} packet has no ports")]
    Portless(PacketKind),
    /// The encapsulation is not vxlan.
    #[error("`{0}` is no overlay that svclab can see into; it knows `vxlan`")]
    Overlay(String),
}

fn kinds() -> String {
    PacketKind::WORDS.map(|(word, _)| word).join(", ")
}

/// Returns the words of `text` with their byte ranges.
fn words(text: &str) -> impl Iterator<Item = (&str, Range<usize>)> {
    text.split_ascii_whitespace().map(|word| {
        // The words are slices of `text`, so the difference of the pointers is the offset.
        let start = word.as_ptr() as usize - text.as_ptr() as usize;
        (word, start..start + word.len())
    })
}

impl FromStr for Sight {
    type Err = Within<SightError>;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut words = words(text);
        let (word, range) = words.next().ok_or(Within::whole(SightError::Empty))?;
        let kind = PacketKind::WORDS
            .iter()
            .find(|(name, _)| *name == word)
            .map(|(_, kind)| *kind)
            .ok_or_else(|| Within::new(range, SightError::Kind(word.to_owned())))?;
        let mut sight = Self {
            kind,
            from: None,
            to: None,
            via: None,
        };
        while let Some((word, range)) = words.next() {
            let (name, taken) = match word {
                "from" => ("from", sight.from.is_some()),
                "to" => ("to", sight.to.is_some()),
                "via" => ("via", sight.via.is_some()),
                _ => return Err(Within::new(range, SightError::Word(word.to_owned()))),
            };
            if taken {
                return Err(Within::new(range, SightError::Twice(name)));
            }
            let Some((value, at)) = words.next() else {
                return Err(Within::new(range, SightError::Dangling(name)));
            };
            match name {
                "from" => sight.from = Some(peer(kind, value, &at)?),
                "to" => sight.to = Some(peer(kind, value, &at)?),
                _ if value == "vxlan" => sight.via = Some(Overlay::Vxlan),
                _ => return Err(Within::new(at, SightError::Overlay(value.to_owned()))),
            }
        }
        Ok(sight)
    }
}

/// Parses a name or address with an optional port; `at` is its byte range in the whole text.
fn peer(kind: PacketKind, text: &str, at: &Range<usize>) -> Result<Peer, Within<SightError>> {
    let bracketed = text
        .strip_prefix('[')
        .and_then(|rest| rest.split_once(']'))
        .and_then(|(name, rest)| {
            if rest.is_empty() {
                return Some((name, None));
            }
            rest.strip_prefix(':').map(|port| (name, Some(port)))
        });
    let (name, port) = if let Some(parts) = bracketed {
        parts
    } else if text.parse::<Ipv6Addr>().is_ok() {
        (text, None)
    } else if let Some((name, port)) = text.rsplit_once(':') {
        (name, Some(port))
    } else {
        (text, None)
    };
    let port = match port {
        None => None,
        Some(digits) => {
            let here = at.end - digits.len()..at.end;
            match digits.parse::<u16>() {
                Ok(port) if port > 0 && !digits.starts_with('+') => {
                    if !kind.has_ports() {
                        return Err(Within::new(here, SightError::Portless(kind)));
                    }
                    Some(port)
                }
                _ => return Err(Within::new(here, SightError::Port(digits.to_owned()))),
            }
        }
    };
    Ok(Peer {
        name: name.to_owned(),
        port,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sight(text: &str) -> Sight {
        text.parse().expect("a sight")
    }

    fn error(text: &str) -> (SightError, Option<Range<usize>>) {
        let error = text.parse::<Sight>().expect_err("should not parse");
        (error.error().clone(), error.range())
    }

    #[test]
    fn every_kind_reads_back() {
        for (word, kind) in PacketKind::WORDS {
            assert_eq!(sight(word).kind, kind);
            assert_eq!(kind.to_string(), word);
        }
    }

    #[test]
    fn ends_ports_and_overlays() {
        let syn = sight("SYN from pod/default/client to 10.0.0.1:80 via vxlan");
        assert_eq!(
            syn.from.as_ref().map(|p| p.name.as_str()),
            Some("pod/default/client")
        );
        assert_eq!(syn.from.as_ref().and_then(|p| p.port), None);
        assert_eq!(syn.to.as_ref().and_then(|p| p.port), Some(80));
        assert_eq!(syn.via, Some(Overlay::Vxlan));
        assert_eq!(
            sight("ACK to node-1 from x").to_string(),
            "ACK from x to node-1"
        );
    }

    #[test]
    fn ipv6_addresses_with_and_without_a_port() {
        let peer = |text: &str| sight(text).to.expect("a peer");
        assert_eq!(
            peer("SYN to fd00::1"),
            Peer {
                name: "fd00::1".into(),
                port: None
            }
        );
        assert_eq!(
            peer("SYN to [fd00::1]:80"),
            Peer {
                name: "fd00::1".into(),
                port: Some(80)
            }
        );
        assert_eq!(peer("SYN to [fd00::1]").port, None);
        assert_eq!(
            sight("SYN to [fd00::1]:80").to_string(),
            "SYN to [fd00::1]:80"
        );
    }

    #[test]
    fn errors_point_at_the_word() {
        assert_eq!(
            error("SNY from a"),
            (SightError::Kind("SNY".into()), Some(0..3))
        );
        assert_eq!(
            error("SYN form a"),
            (SightError::Word("form".into()), Some(4..8))
        );
        assert_eq!(
            error("SYN from"),
            (SightError::Dangling("from"), Some(4..8))
        );
        assert_eq!(
            error("SYN to a to b"),
            (SightError::Twice("to"), Some(9..11))
        );
        assert_eq!(
            error("SYN to a:http"),
            (SightError::Port("http".into()), Some(9..13))
        );
        assert_eq!(
            error("SYN to a:0"),
            (SightError::Port("0".into()), Some(9..10))
        );
        assert_eq!(
            error("PING to a:7"),
            (SightError::Portless(PacketKind::Ping), Some(10..11))
        );
        assert_eq!(
            error("SYN via gre"),
            (SightError::Overlay("gre".into()), Some(8..11))
        );
        assert_eq!(error("  "), (SightError::Empty, None));
    }
}
