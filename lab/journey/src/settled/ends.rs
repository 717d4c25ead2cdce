//! Decides whether a retransmission of a packet would end like the packet.

use crate::journey::{Kind, PacketPath, PathEnd};

/// Reasons for which a kernel drops a packet by its addresses, routes and sysctls alone, without a
/// message to the sender (Linux v6.13, `include/net/dropreason-core.h`, used in
/// `net/ipv4/fib_frontend.c`, `__fib_validate_source`, and `net/ipv4/route.c`,
/// `ip_route_input_slow`). An identical packet has the same end.
const PERMANENT_DROP_REASONS: [&str; 5] = [
    "IP_INVALID_DEST",
    "IP_INVALID_SOURCE",
    "IP_LOCALNET",
    "IP_LOCAL_SOURCE",
    "IP_RPFILTER",
];

/// Functions that drop a packet for these causes where the kernel gives no reason (Linux v6.12,
/// `net/ipv4/ip_input.c`).
const PERMANENT_DROP_FUNCTIONS: [&str; 2] = ["ip_rcv_finish", "ip_rcv_finish_core"];

/// Whether a packet has ended, and a retransmission would end in the same way. The flag states
/// whether the packet belongs to TCP, which retransmits.
pub(super) fn is_final(
    flight: &PacketPath,
    packets: &[PacketPath],
    is_retransmitted: bool,
) -> bool {
    // The ICMP error of a kernel may come late, or only for the next packet: a lab can limit the
    // rate of ICMP errors.
    let ends_without_reply = || {
        let last = flight.hops.last().and_then(|hop| hop.matches.last());
        last.is_some_and(|step| step.target.as_deref() != Some("REJECT"))
    };
    match (&flight.end, flight.kind) {
        (PathEnd::DroppedByRule, _) => ends_without_reply(),
        (
            PathEnd::Dropped {
                reason, function, ..
            },
            kind,
        ) => {
            !is_retransmitted || kind == Kind::Rst || is_permanent_drop(reason, function.as_deref())
        }
        (PathEnd::Rejected(by), _) => {
            !is_retransmitted || by.iter().all(|at| packets[*at].kind == Kind::Rst)
        }
        // A delivered packet causes a reply or nothing, and a reply is a packet of its own.
        (PathEnd::Delivered, Kind::Syn | Kind::Datagram | Kind::Ping) => flight.direction,
        (PathEnd::Delivered, Kind::Rst) => is_retransmitted && flight.direction,
        _ => false,
    }
}

/// Whether the kernel drops each identical packet in the same way.
fn is_permanent_drop(reason: &str, function: Option<&str>) -> bool {
    let is_permanent = |function| PERMANENT_DROP_FUNCTIONS.contains(&function);
    PERMANENT_DROP_REASONS.contains(&reason)
        || reason == "NOT_SPECIFIED" && function.is_some_and(is_permanent)
}
