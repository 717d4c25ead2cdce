//! Finds the end of each packet: delivered, rejected, dropped or unknown.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;

use super::followed::FollowedPacket;
use super::grouped::grouped;
use super::packet_index::PacketIndex;
use super::settings::controlling_sysctls;
use super::sighting::{self, PacketId, Sighting};
use super::track::Kind;
use super::{Hop, PathEnd, TunnelPacket};
use crate::packet::Frame;
use svclab_model::evidence::{DropEvidence, DroppedPacket, StageEvidence};
use svclab_model::plan::Plan;

/// Counters that grow when the kernel drops packets in transit, or has no route for the reply to a
/// received packet. The first is the counter of ICMP errors about connections that the kernel does
/// not have, which counts for such errors only (Linux v6.12, `net/ipv4/tcp_ipv4.c`, `tcp_v4_err`,
/// and `net/ipv6/tcp_ipv6.c`, `tcp_v6_err`).
const LOSS_COUNTERS: [&str; 7] = [
    "IcmpInErrors",
    "TcpExtIPReversePathFilter",
    "IpExtInNoRoutes",
    "IpInAddrErrors",
    "IpInHdrErrors",
    "IpFragFails",
    "IpOutNoRoutes",
];

/// Counters of IPv6 with the same meaning.
const LOSS_COUNTERS_V6: [&str; 6] = [
    "Icmp6InErrors",
    "Ip6InNoRoutes",
    "Ip6InAddrErrors",
    "Ip6InHdrErrors",
    "Ip6InTooBigErrors",
    "Ip6OutNoRoutes",
];

/// Ends of all packets.
pub(super) struct PathEnds {
    /// End of each packet, by its index among all packets.
    pub(super) by_packet: Vec<PathEnd>,
    /// Drop reason of the kernel for each rejected packet, by the same index.
    pub(super) reasons: Vec<Option<String>>,
    /// Tunnel packet that carried each lost packet at its end, by the same index.
    pub(super) tunnels: Vec<Option<TunnelPacket>>,
}

impl PathEnds {
    pub(super) fn new<'p>(
        plan: &Plan,
        evidence: &StageEvidence,
        packets: &'p [FollowedPacket<'_>],
        index: &PacketIndex<'p>,
        drops: &DropsByPacket<'_>,
    ) -> Self {
        let observed: Vec<Option<PathEnd>> = packets
            .iter()
            .map(|packet| {
                let end = observed_end(evidence, drops, packet, packets, index);
                // A queue that ended with its interface does not show why the packet waited.
                let is_cause = |end: &PathEnd| match end {
                    PathEnd::Dropped { reason, .. } => !is_teardown(reason),
                    _ => true,
                };
                end.clone()
                    .filter(is_cause)
                    .or_else(|| unresolved_neighbour_end(plan, evidence, packet))
                    .or(end)
            })
            .collect();
        // The other packets have no end of their own; a counter of the namespace may explain them.
        let mut lost_packets: BTreeMap<&str, u64> = BTreeMap::new();
        for (packet, end) in packets.iter().zip(&observed) {
            if end.is_none()
                && packet.last.is_some()
                && packet.kind != Kind::Other
                && let Some(hop) = packet.hops.last()
            {
                *lost_packets.entry(&hop.namespace).or_default() += 1;
            }
        }
        let by_packet: Vec<PathEnd> = packets
            .iter()
            .zip(observed)
            .map(|(packet, end)| {
                end.or_else(|| counted_end(evidence, packet, &lost_packets))
                    .unwrap_or(PathEnd::Unknown)
            })
            .collect();
        let reason = |(packet, end): (&FollowedPacket<'_>, &PathEnd)| match end {
            PathEnd::Rejected(_) => {
                let drop = find_drop(drops, packet, packet.hops.last()?)?;
                Some(drop.reason.clone())
            }
            _ => None,
        };
        let tunnel = |(packet, end): (&FollowedPacket<'_>, &PathEnd)| match end {
            PathEnd::Delivered | PathEnd::Rejected(_) => None,
            _ => lost_tunnel(drops, packet),
        };
        Self {
            reasons: packets.iter().zip(&by_packet).map(reason).collect(),
            tunnels: packets.iter().zip(&by_packet).map(tunnel).collect(),
            by_packet,
        }
    }
}

/// Returns the tunnel packet that carried a lost packet: as captured last, or as its drop reports it.
fn lost_tunnel(drops: &DropsByPacket<'_>, packet: &FollowedPacket<'_>) -> Option<TunnelPacket> {
    let reported = || {
        let drop = find_drop(drops, packet, packet.hops.last()?)?;
        let (_, outer) = sighting::unwrapped(Frame::from_ip(&drop.packet)?);
        Some(sighting::tunnel_packet(&outer?, None))
    };
    packet.last.and_then(Sighting::tunnel).or_else(reported)
}

/// Returns the end of a packet that a counter of its namespace explains. `lost_packets` are the
/// packets without an observed end, by namespace.
fn counted_end(
    evidence: &StageEvidence,
    packet: &FollowedPacket<'_>,
    lost_packets: &BTreeMap<&str, u64>,
) -> Option<PathEnd> {
    let hop = packet.hops.last()?;
    let counters = evidence.counters.get(&hop.namespace)?;
    let of_family: &[&str] = if hop.after.destination.is_ipv6() {
        &LOSS_COUNTERS_V6
    } else {
        &LOSS_COUNTERS
    };
    // The first counts errors only.
    let skipped = usize::from(packet.kind != Kind::Unreachable);
    let (counter, increase) = of_family[skipped..].iter().find_map(|counter| {
        let increase = u64::try_from(*counters.get(*counter)?).ok();
        Some((*counter, increase.filter(|by| *by > 0)?))
    })?;
    let lost = lost_packets.get(hop.namespace.as_str());
    Some(PathEnd::CountedDrop {
        counter: counter.to_owned(),
        increase,
        lost: lost.copied().unwrap_or(0),
        settings: controlling_sysctls(evidence, hop, counter),
    })
}

/// Returns the end of a packet as far as the packets, drops and rules show it.
fn observed_end<'p>(
    evidence: &StageEvidence,
    drops: &DropsByPacket<'_>,
    packet: &'p FollowedPacket<'_>,
    packets: &[FollowedPacket<'_>],
    index: &PacketIndex<'p>,
) -> Option<PathEnd> {
    let hop = packet.hops.last()?;
    if hop.matches.last().is_some_and(|step| step.dropped) {
        return Some(PathEnd::DroppedByRule);
    }
    if packet.last.is_some_and(|last| last.out) {
        return Some(drop_end(evidence, drops, packet, hop).unwrap_or(PathEnd::NotReceived));
    }
    // A host that received the packet sends to its sender. An ICMP error may quote the addresses as
    // received, if the packet was rewritten in this namespace.
    let namespace = hop.namespace.as_str();
    // The kernel answers a packet before it reports the drop, which is the only time that is known
    // of a packet without a capture.
    let sent_at = packet.last.map_or(0, |_| packet.time);
    let replies = index.sent_before(namespace, hop.after.reversed()).iter();
    let errors = index.quoting(namespace, hop.before).iter();
    let answers: BTreeSet<usize> = replies
        .chain(errors)
        .chain(index.quoting(namespace, hop.after))
        .copied()
        .filter(|other| {
            let crossings = &packets[*other].hops[0].crossings;
            packets[*other].time >= sent_at && crossings.first().is_none_or(|seen| seen.out)
        })
        .collect();
    // Replies after a retransmission belong to the retransmission.
    let alike = index.alike(packet).iter();
    let retransmitted_at = alike
        .map(|other| packets[*other].time)
        .filter(|time| *time > packet.time)
        .min();
    let is_rejection = |index: &usize| {
        matches!(packets[*index].kind, Kind::Rst | Kind::Unreachable)
            && retransmitted_at.is_none_or(|again| packets[*index].time < again)
    };
    let refusals: Vec<usize> = answers.iter().copied().filter(is_rejection).collect();
    if packet.kind != Kind::Rst && !refusals.is_empty() {
        return Some(PathEnd::Rejected(refusals));
    }
    let ends_there = matches!(
        packet.kind,
        Kind::Rst
            | Kind::SynAck
            | Kind::Pong
            | Kind::Unreachable
            | Kind::Fin
            | Kind::Segment
            | Kind::Datagram
    );
    // An ICMP error quotes the packet as it was where the error was created. The quote is rewritten
    // together with the error on its way back, except by the last rewrite.
    let quoted = packet.last.and_then(|last| last.quoted);
    let expected = quoted.unwrap_or(hop.after.reversed());
    let is_expected = || {
        !index.sent_before(namespace, expected).is_empty()
            || quoted.is_some() && !index.sent_after(namespace, expected).is_empty()
    };
    let arrives = ends_there && is_expected();
    // The kernel reports a reset or an error as dropped after processing it.
    let is_processed = matches!(packet.kind, Kind::Rst | Kind::Unreachable)
        && find_drop(drops, packet, hop).is_none_or(|drop| !is_transit_reason(&drop.reason));
    if is_processed && arrives {
        return Some(PathEnd::Delivered);
    }
    let reached = !answers.is_empty() || arrives;
    drop_end(evidence, drops, packet, hop)
        .filter(|end| !(reached && is_routine_discard(end)))
        .or_else(|| reached.then_some(PathEnd::Delivered))
}

/// Returns the end of a packet that waits for neighbour resolution.
fn unresolved_neighbour_end(
    plan: &Plan,
    evidence: &StageEvidence,
    packet: &FollowedPacket<'_>,
) -> Option<PathEnd> {
    let hop = packet.hops.last()?;
    let to = hop.after.destination.ip();
    unresolved_next_hop(plan, evidence, &hop.namespace, to).map(PathEnd::Waiting)
}

/// Returns the neighbour to which a namespace sends packets to an address, if its hardware address
/// was still unknown.
#[must_use]
pub fn unresolved_next_hop(
    plan: &Plan,
    evidence: &StageEvidence,
    namespace: &str,
    to: IpAddr,
) -> Option<IpAddr> {
    let unresolved = evidence.unresolved.get(namespace)?;
    let route = plan
        .namespace(namespace)?
        .routes
        .iter()
        .filter(|route| route.to.contains(to))
        .max_by_key(|route| route.to.prefix());
    let next = |neighbour: &&IpAddr| {
        **neighbour == to || route.is_some_and(|route| route.via == Some(**neighbour))
    };
    unresolved.iter().find(next).copied()
}

/// Whether the kernel discarded a packet that needed no further processing. Examples are a FIN
/// after the last FIN (Linux v6.12, `net/ipv4/tcp_ipv4.c`, `tcp_v4_rcv`), or unread data when a
/// socket closes.
fn is_routine_discard(end: &PathEnd) -> bool {
    let PathEnd::Dropped {
        reason, function, ..
    } = end
    else {
        return false;
    };
    let is_in_transit = || function.as_deref().is_some_and(is_transit_function);
    is_teardown(reason) || (reason == "NOT_SPECIFIED" && !is_in_transit())
}

/// Whether a function of the kernel handles packets before they reach a socket: in IP, bridges,
/// netfilter and neighbours. Many drops there have no reason, and none has before Linux v5.17.
fn is_transit_function(function: &str) -> bool {
    let prefixes = [
        "__br_",
        "__neigh_",
        "arp_",
        "br_",
        "dst_discard",
        "ip6_",
        "ip_",
        "ndisc_",
        "neigh_",
        "nf_",
        "nft_",
    ];
    prefixes.iter().any(|prefix| function.starts_with(prefix))
}

/// Whether the kernel gives this reason for packets in the queue of a socket or an interface that
/// is removed (Linux v6.12, `include/linux/skbuff.h`, `__skb_queue_purge`).
fn is_teardown(reason: &str) -> bool {
    matches!(reason, "QUEUE_PURGE" | "SOCKET_CLOSE")
}

/// Reported drops by namespace and packet, in order of time.
pub(super) type DropsByPacket<'e> = HashMap<(&'e str, PacketId), Vec<&'e DroppedPacket>>;

pub(super) fn index_drops(evidence: &StageEvidence) -> DropsByPacket<'_> {
    grouped(dropped_frames(evidence).map(|(frame, drop)| {
        let packet = PacketId::from_frame(&frame).without_data();
        ((drop.namespace.as_str(), packet), drop)
    }))
}

/// Returns the reported drops with their packets, without the headers of tunnels.
pub(super) fn dropped_frames(
    evidence: &StageEvidence,
) -> impl Iterator<Item = (Frame, &DroppedPacket)> {
    let dropped = match &evidence.drops {
        DropEvidence::Watched { dropped, .. } => dropped.as_slice(),
        _ => &[],
    };
    dropped.iter().filter_map(|drop| {
        let (frame, _) = sighting::unwrapped(Frame::from_ip(&drop.packet)?);
        Some((frame, drop))
    })
}

/// Returns the end of a packet that the kernel reported as dropped.
fn drop_end(
    evidence: &StageEvidence,
    drops: &DropsByPacket<'_>,
    packet: &FollowedPacket<'_>,
    hop: &Hop,
) -> Option<PathEnd> {
    let drop = find_drop(drops, packet, hop)?;
    Some(PathEnd::Dropped {
        reason: drop.reason.clone(),
        function: drop.function.clone(),
        settings: controlling_sysctls(evidence, hop, &drop.reason),
    })
}

/// Whether the kernel gives this reason for packets that it has not processed yet (Linux v6.12,
/// `include/net/dropreason-core.h`).
fn is_transit_reason(reason: &str) -> bool {
    let transit_prefixes = [
        "BRIDGE_",
        "IP_",
        "NEIGH_",
        "NETFILTER_",
        "NO_TX_TARGET",
        "OTHERHOST",
        "PKT_TOO_BIG",
        "QDISC_",
        "TC_",
        "VXLAN_",
        "XDP",
        "XFRM_",
    ];
    transit_prefixes
        .iter()
        .any(|before| reason.starts_with(before))
}

fn find_drop<'e>(
    drops: &DropsByPacket<'e>,
    packet: &FollowedPacket<'_>,
    hop: &'e Hop,
) -> Option<&'e DroppedPacket> {
    let id = packet.identity.without_data();
    let drops = drops.get(&(hop.namespace.as_str(), id))?.iter();
    let mut drops = drops.filter(|drop| drop.time >= packet.time).copied();
    let first = drops.next()?;
    let mut drops = std::iter::once(first).chain(drops);
    drops
        .find(|drop| !is_teardown(&drop.reason))
        .or(Some(first))
}
