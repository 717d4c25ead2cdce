//! Meaning of the ICMP errors that reject packets.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use svclab_journey::journey::{Journey, PacketPath, PathEnd};

/// Meaning of an ICMP destination-unreachable code (RFC 792, RFC 1812, RFC 4443).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum IcmpMeaning {
    /// ICMP: the kernel has no route to the destination.
    NetUnreachable,
    /// `ICMPv6`: the kernel has no route to the destination.
    NoRoute,
    /// ICMP: the host does not answer.
    HostUnreachable,
    /// `ICMPv6`: the address does not answer.
    AddressUnreachable,
    /// A rule or a route forbids the packet.
    Prohibited,
    /// ICMP: the packet is larger than the MTU and must not be fragmented.
    TooBig,
}

/// Returns the meaning of the ICMP error that rejected a packet. `None` if no such error rejected
/// the packet, or if its code has no meaning here.
pub(super) fn icmp_meaning(flight: &PacketPath, journey: &Journey) -> Option<IcmpMeaning> {
    let PathEnd::Rejected(replies) = &flight.end else {
        return None;
    };
    let error = journey.packets.get(*replies.first()?)?;
    let v6 = flight.hops.last()?.after.destination.is_ipv6();
    Some(match (v6, error.code?) {
        (false, 0) => IcmpMeaning::NetUnreachable,
        (true, 0) => IcmpMeaning::NoRoute,
        (false, 1) => IcmpMeaning::HostUnreachable,
        (true, 3) => IcmpMeaning::AddressUnreachable,
        (false, 4) => IcmpMeaning::TooBig,
        (false, 9 | 10 | 13) | (true, 1) => IcmpMeaning::Prohibited,
        _ => return None,
    })
}
