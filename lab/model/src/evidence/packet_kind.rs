//! Names the kinds of packets that labs and reports use.

use std::fmt;

/// Kind of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PacketKind {
    /// TCP with SYN and without ACK.
    Syn,
    /// TCP with SYN and ACK.
    SynAck,
    /// TCP with ACK and without SYN, FIN or RST, including segments with data.
    Ack,
    /// TCP with RST.
    Rst,
    /// TCP with FIN.
    Fin,
    /// Any UDP packet.
    Udp,
    /// An ICMP or `ICMPv6` echo request.
    Ping,
    /// An ICMP or `ICMPv6` echo reply.
    Pong,
    /// ICMP or `ICMPv6` destination unreachable with any code.
    Unreachable,
    /// Any IP packet.
    Any,
}

impl PacketKind {
    /// All kinds, with the names that labs use.
    pub const NAMES: [(&'static str, Self); 10] = [
        ("SYN", Self::Syn),
        ("SYN-ACK", Self::SynAck),
        ("ACK", Self::Ack),
        ("RST", Self::Rst),
        ("FIN", Self::Fin),
        ("UDP", Self::Udp),
        ("PING", Self::Ping),
        ("PONG", Self::Pong),
        ("UNREACHABLE", Self::Unreachable),
        ("ANY", Self::Any),
    ];

    /// Whether packets of this kind are TCP.
    #[must_use]
    pub const fn is_tcp(self) -> bool {
        matches!(
            self,
            Self::Syn | Self::SynAck | Self::Ack | Self::Rst | Self::Fin
        )
    }

    /// Whether packets of this kind offer a maximum segment size.
    #[must_use]
    pub const fn has_mss_option(self) -> bool {
        matches!(self, Self::Syn | Self::SynAck)
    }

    /// Whether packets of this kind have ports.
    #[must_use]
    pub const fn has_ports(self) -> bool {
        !matches!(self, Self::Ping | Self::Pong | Self::Unreachable)
    }
}

impl fmt::Display for PacketKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let entry = Self::NAMES.iter().find(|(_, kind)| kind == self);
        f.write_str(entry.map_or("ANY", |(word, _)| word))
    }
}
