//! Patterns of packets that are expected on an interface, such as `SYN from pod/default/client to
//! 10.0.0.1:80`.

use std::fmt;
use std::net::Ipv6Addr;
use std::ops::Range;
use std::str::FromStr;

pub use svclab_model::evidence::PacketKind;

use crate::decode::spanned_error::SpannedError;

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
pub struct PacketPattern {
    /// Kind of packet.
    pub kind: PacketKind,
    /// Source of the packet on this interface; `None` matches any source.
    pub from: Option<Peer>,
    /// Destination of the packet on this interface; `None` matches any destination.
    pub to: Option<Peer>,
    /// Encapsulation on this interface; `None` matches only packets that are not encapsulated.
    pub via: Option<Overlay>,
}

impl fmt::Display for PacketPattern {
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

/// Error of parsing a [`PacketPattern`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PacketPatternError {
    /// The text is empty.
    #[error("empty packet pattern; write for example \"SYN from pod/default/client\"")]
    Empty,
    /// The first word is not a kind of packet.
    #[error("`{0}` is not a kind of packet; the kinds are {kinds}", kinds = kind_list())]
    UnknownKind(String),
    /// A word is not `from`, `to` or `via`.
    #[error("unexpected `{0}`; after the kind, write `from NAME`, `to NAME` or `via vxlan`")]
    UnexpectedWord(String),
    /// A keyword occurs twice.
    #[error("`{0}` is written twice")]
    Duplicate(&'static str),
    /// A keyword has no value.
    #[error("`{0}` requires a value")]
    MissingValue(&'static str),
    /// The port is not a number from 1 to 65535.
    #[error("`{0}` is not a port; write a number from 1 to 65535")]
    InvalidPort(String),
    /// A port for a kind of packet without ports.
    #[error("a {0} packet has no ports")]
    NoPorts(PacketKind),
    /// The encapsulation is not vxlan.
    #[error("svclab cannot decode overlay `{0}`; it supports only `vxlan`")]
    UnknownOverlay(String),
}

fn kind_list() -> String {
    PacketKind::NAMES.map(|(word, _)| word).join(", ")
}

/// Returns the words of `text` with their byte ranges.
fn split_words(text: &str) -> impl Iterator<Item = (&str, Range<usize>)> {
    text.split_ascii_whitespace().map(|word| {
        // The words are slices of `text`, so the difference of the pointers is the offset.
        let start = word.as_ptr() as usize - text.as_ptr() as usize;
        (word, start..start + word.len())
    })
}

impl FromStr for PacketPattern {
    type Err = SpannedError<PacketPatternError>;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut words = split_words(text);
        let (kind_name, range) = words
            .next()
            .ok_or(SpannedError::whole(PacketPatternError::Empty))?;
        let kind = PacketKind::NAMES
            .iter()
            .find(|(name, _)| *name == kind_name)
            .map(|(_, kind)| *kind)
            .ok_or_else(|| {
                SpannedError::new(range, PacketPatternError::UnknownKind(kind_name.to_owned()))
            })?;
        let mut pattern = Self {
            kind,
            from: None,
            to: None,
            via: None,
        };
        while let Some((keyword, range)) = words.next() {
            let (name, is_set) = match keyword {
                "from" => ("from", pattern.from.is_some()),
                "to" => ("to", pattern.to.is_some()),
                "via" => ("via", pattern.via.is_some()),
                _ => {
                    return Err(SpannedError::new(
                        range,
                        PacketPatternError::UnexpectedWord(keyword.to_owned()),
                    ));
                }
            };
            if is_set {
                return Err(SpannedError::new(
                    range,
                    PacketPatternError::Duplicate(name),
                ));
            }
            let Some((value, value_range)) = words.next() else {
                return Err(SpannedError::new(
                    range,
                    PacketPatternError::MissingValue(name),
                ));
            };
            match name {
                "from" => pattern.from = Some(parse_peer(kind, value, &value_range)?),
                "to" => pattern.to = Some(parse_peer(kind, value, &value_range)?),
                _ if value == "vxlan" => pattern.via = Some(Overlay::Vxlan),
                _ => {
                    return Err(SpannedError::new(
                        value_range,
                        PacketPatternError::UnknownOverlay(value.to_owned()),
                    ));
                }
            }
        }
        Ok(pattern)
    }
}

/// Parses a name or address with an optional port; `range` is its byte range in the whole text.
fn parse_peer(
    kind: PacketKind,
    text: &str,
    range: &Range<usize>,
) -> Result<Peer, SpannedError<PacketPatternError>> {
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
            let port_range = range.end - digits.len()..range.end;
            match digits.parse::<u16>() {
                Ok(port) if port > 0 && !digits.starts_with('+') => {
                    if !kind.has_ports() {
                        return Err(SpannedError::new(
                            port_range,
                            PacketPatternError::NoPorts(kind),
                        ));
                    }
                    Some(port)
                }
                _ => {
                    return Err(SpannedError::new(
                        port_range,
                        PacketPatternError::InvalidPort(digits.to_owned()),
                    ));
                }
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

    fn pattern(text: &str) -> PacketPattern {
        text.parse().expect("a pattern")
    }

    fn error(text: &str) -> (PacketPatternError, Option<Range<usize>>) {
        let error = text.parse::<PacketPattern>().expect_err("should not parse");
        (error.error().clone(), error.range())
    }

    #[test]
    fn packet_kind_printed_parses_to_same_kind() {
        for (word, kind) in PacketKind::NAMES {
            assert_eq!(pattern(word).kind, kind);
            assert_eq!(kind.to_string(), word);
        }
    }

    #[test]
    fn pattern_with_peers_and_overlay_parses() {
        let syn = pattern("SYN from pod/default/client to 10.0.0.1:80 via vxlan");
        assert_eq!(
            syn.from.as_ref().map(|p| p.name.as_str()),
            Some("pod/default/client")
        );
        assert_eq!(syn.from.as_ref().and_then(|p| p.port), None);
        assert_eq!(syn.to.as_ref().and_then(|p| p.port), Some(80));
        assert_eq!(syn.via, Some(Overlay::Vxlan));
        assert_eq!(
            pattern("ACK to node-1 from x").to_string(),
            "ACK from x to node-1"
        );
    }

    #[test]
    fn ipv6_peer_with_and_without_port_parses() {
        let peer = |text: &str| pattern(text).to.expect("a peer");
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
            pattern("SYN to [fd00::1]:80").to_string(),
            "SYN to [fd00::1]:80"
        );
    }

    #[test]
    fn pattern_error_range_is_invalid_word() {
        assert_eq!(
            error("SNY from a"),
            (PacketPatternError::UnknownKind("SNY".into()), Some(0..3))
        );
        assert_eq!(
            error("SYN form a"),
            (
                PacketPatternError::UnexpectedWord("form".into()),
                Some(4..8)
            )
        );
        assert_eq!(
            error("SYN from"),
            (PacketPatternError::MissingValue("from"), Some(4..8))
        );
        assert_eq!(
            error("SYN to a to b"),
            (PacketPatternError::Duplicate("to"), Some(9..11))
        );
        assert_eq!(
            error("SYN to a:http"),
            (PacketPatternError::InvalidPort("http".into()), Some(9..13))
        );
        assert_eq!(
            error("SYN to a:0"),
            (PacketPatternError::InvalidPort("0".into()), Some(9..10))
        );
        assert_eq!(
            error("PING to a:7"),
            (PacketPatternError::NoPorts(PacketKind::Ping), Some(10..11))
        );
        assert_eq!(
            error("SYN via gre"),
            (
                PacketPatternError::UnknownOverlay("gre".into()),
                Some(8..11)
            )
        );
        assert_eq!(error("  "), (PacketPatternError::Empty, None));
    }
}
