//! Builds the journeys of a case's attempts from its evidence.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::net::IpAddr;

use super::hop::{MatchIndex, build_hop};
use super::rules::RuleIndex;
use super::settings::controlling_sysctls;
use super::sighting::{self, PacketId, Sighting};
use super::track::{Kind, PacketTrack, tracks};
use super::{Crossing, Hop, Journey, PacketPath, PathEnd, RuleMatch};
use crate::packet::Frame;
use svclab_model::evidence::{AddressPair, Attempt, DropEvidence, DroppedPacket, Evidence};
use svclab_model::plan::{Plan, Probe, ProbeProtocol};

/// Counters that grow when the kernel drops packets in transit, or has no route for the reply to a
/// received packet.
const LOSS_COUNTERS: [&str; 5] = [
    "TcpExtIPReversePathFilter",
    "IpExtInNoRoutes",
    "IpInAddrErrors",
    "IpInHdrErrors",
    "IpOutNoRoutes",
];

/// Counter of ICMP errors about connections that the kernel does not have (Linux v6.12,
/// `net/ipv4/tcp_ipv4.c`, `tcp_v4_err`).
const IGNORED_ERROR_COUNTER: &str = "IcmpInErrors";

/// Follows every packet that belongs to an attempt of a probe. The evidence must come from a plan
/// with captures and traces in every namespace.
#[must_use]
pub fn journeys(plan: &Plan, evidence: &Evidence) -> Vec<Journey> {
    let rule_index = RuleIndex::from_evidence(evidence);
    let sightings = sighting::parse_sightings(&evidence.packets, plan);
    let mut visits = MatchIndex::from_evidence(evidence, &rule_index);
    let mut packets: Vec<FollowedPacket<'_>> = tracks(&sightings)
        .iter()
        .filter_map(|track| FollowedPacket::from_track(evidence, track, &mut visits))
        .collect();
    packets.extend(
        visits
            .into_remaining()
            .filter_map(|(namespace, identity, visit)| {
                FollowedPacket::from_matches(evidence, namespace, identity, visit)
            }),
    );
    let ends = PathEnds::new(plan, evidence, &packets);
    evidence
        .attempts
        .iter()
        .filter_map(|attempt| {
            let probe = plan
                .probes
                .iter()
                .find(|probe| probe.name == attempt.probe)?;
            Some(build_journey(probe, attempt, &packets, &ends))
        })
        .collect()
}

/// A packet and its hops, not yet assigned to an attempt.
struct FollowedPacket<'s> {
    identity: PacketId,
    time: u64,
    kind: Kind,
    code: Option<u8>,
    quoted: Option<AddressPair>,
    hops: Vec<Hop>,
    /// Last sighting; `None` if no interface carried the packet.
    last: Option<&'s Sighting<'s>>,
}

impl<'s> FollowedPacket<'s> {
    fn from_track<'e: 's>(
        evidence: &'e Evidence,
        track: &PacketTrack<'s, 'e>,
        visits: &mut MatchIndex<'e>,
    ) -> Option<Self> {
        let first = track.first();
        let hops = track
            .hops
            .iter()
            .map(|stay| {
                let first = stay.first()?;
                let namespace = first.namespace;
                // If the packet was encapsulated throughout the hop, the rules matched the outer
                // packet.
                let carrier = first.outer.filter(|_| stay.iter().all(|each| each.wrapped));
                let matches = visits.take_hop(namespace, carrier.unwrap_or(track.identity));
                build_hop(evidence, namespace, stay, matches)
            })
            .collect::<Option<Vec<_>>>()?;
        Some(Self {
            identity: track.identity,
            time: first.time,
            kind: Kind::from_payload(first.identity.payload()),
            code: first.frame.code,
            quoted: first.quoted,
            hops,
            last: track.sightings().last(),
        })
    }

    /// Builds a packet that no interface carried: it ended in the namespace that sent it.
    fn from_matches(
        evidence: &Evidence,
        namespace: &str,
        identity: PacketId,
        matches: Vec<RuleMatch>,
    ) -> Option<Self> {
        Some(Self {
            identity,
            time: 0,
            kind: Kind::from_payload(identity.payload()),
            code: None,
            quoted: None,
            hops: vec![build_hop(evidence, namespace, &[], matches)?],
            last: None,
        })
    }

    fn before(&self) -> AddressPair {
        self.hops[0].before
    }

    fn flows(&self) -> impl Iterator<Item = AddressPair> {
        self.hops.iter().flat_map(|hop| [hop.before, hop.after])
    }
}

/// Ends of all packets.
struct PathEnds {
    /// End of each packet, by its index among all packets.
    by_packet: Vec<PathEnd>,
    /// Drop reason of the kernel for each rejected packet, by the same index.
    reasons: Vec<Option<String>>,
}

impl PathEnds {
    fn new(plan: &Plan, evidence: &Evidence, packets: &[FollowedPacket<'_>]) -> Self {
        let drops = index_drops(evidence);
        let mut by_flight: Vec<Option<PathEnd>> = packets
            .iter()
            .map(|flown| {
                observed_end(evidence, &drops, flown, packets)
                    .or_else(|| unresolved_neighbour_end(plan, evidence, flown))
            })
            .collect();
        // The other packets have no end of their own; a counter of the namespace may explain them.
        let mut lost_packets: BTreeMap<&str, u64> = BTreeMap::new();
        for (flown, end) in packets.iter().zip(&by_flight) {
            if end.is_none()
                && flown.last.is_some()
                && flown.kind != Kind::Other
                && let Some(hop) = flown.hops.last()
            {
                *lost_packets.entry(&hop.namespace).or_default() += 1;
            }
        }
        for (flown, end) in packets.iter().zip(&mut by_flight) {
            let Some(hop) = flown.hops.last() else {
                continue;
            };
            if end.is_some() {
                continue;
            }
            let error_counter = (flown.kind == Kind::Unreachable).then_some(&IGNORED_ERROR_COUNTER);
            let increase = error_counter
                .into_iter()
                .chain(&LOSS_COUNTERS)
                .find_map(|counter| {
                    let by = *evidence.counters.get(&hop.namespace)?.get(*counter)?;
                    Some((*counter, u64::try_from(by).ok().filter(|by| *by > 0)?))
                });
            *end = Some(match increase {
                Some((counter, by)) => PathEnd::CountedDrop {
                    counter: counter.to_owned(),
                    increase: by,
                    lost: lost_packets
                        .get(hop.namespace.as_str())
                        .copied()
                        .unwrap_or(0),
                    settings: controlling_sysctls(evidence, hop, counter),
                },
                None => PathEnd::Unknown,
            });
        }
        let reason = |(flown, end): (&FollowedPacket<'_>, &Option<PathEnd>)| match (
            end,
            flown.hops.last(),
        ) {
            (Some(PathEnd::Rejected(_)), Some(hop)) => {
                Some(find_drop(&drops, flown, hop)?.reason.clone())
            }
            _ => None,
        };
        Self {
            reasons: packets.iter().zip(&by_flight).map(reason).collect(),
            by_packet: by_flight.into_iter().flatten().collect(),
        }
    }
}

/// Returns the end of a packet as far as the packets, drops and rules show it.
fn observed_end(
    evidence: &Evidence,
    drops: &DropsByPacket<'_>,
    flown: &FollowedPacket<'_>,
    packets: &[FollowedPacket<'_>],
) -> Option<PathEnd> {
    let hop = flown.hops.last()?;
    if hop.matches.last().is_some_and(|step| step.dropped) {
        return Some(PathEnd::DroppedByRule);
    }
    if flown.last.is_some_and(|last| last.out) {
        return Some(drop_end(evidence, drops, flown, hop).unwrap_or(PathEnd::NotReceived));
    }
    // A host that received the packet sends to its sender.
    let answers: Vec<usize> = packets
        .iter()
        .enumerate()
        .filter(|(_, other)| {
            other.time >= flown.time
                && other.hops[0].namespace == hop.namespace
                && other.hops[0].crossings.first().is_none_or(|seen| seen.out)
                && (other.before() == hop.after.reversed()
                    // An ICMP error may quote the addresses as received, if the packet was
                    // rewritten in this namespace.
                    || other.quoted.is_some_and(|quoted| [hop.before, hop.after].contains(&quoted)))
        })
        .map(|(index, _)| index)
        .collect();
    // Replies after a retransmission belong to the retransmission.
    let retransmitted_at = packets
        .iter()
        .filter(|other| other.time > flown.time && is_retransmission(other, flown))
        .map(|other| other.time)
        .min();
    let is_rejection = |index: &usize| {
        matches!(packets[*index].kind, Kind::Rst | Kind::Unreachable)
            && retransmitted_at.is_none_or(|again| packets[*index].time < again)
    };
    let refusals: Vec<usize> = answers.iter().copied().filter(is_rejection).collect();
    if flown.kind != Kind::Rst && !refusals.is_empty() {
        return Some(PathEnd::Rejected(refusals));
    }
    let ends_there = matches!(
        flown.kind,
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
    let quoted = flown.last.and_then(|last| last.quoted);
    let expected = quoted.unwrap_or(hop.after.reversed());
    let is_expected = || {
        packets.iter().any(|other| {
            let out = &other.hops[0];
            out.namespace == hop.namespace
                && (out.before == expected || quoted.is_some() && out.after == expected)
        })
    };
    let arrives = ends_there && is_expected();
    // The kernel reports a reset or an error as dropped after processing it.
    let is_processed = matches!(flown.kind, Kind::Rst | Kind::Unreachable)
        && find_drop(drops, flown, hop).is_none_or(|drop| !is_transit_reason(&drop.reason));
    if is_processed && arrives {
        return Some(PathEnd::Delivered);
    }
    let reached = !answers.is_empty() || arrives;
    drop_end(evidence, drops, flown, hop)
        .filter(|end| !(reached && is_routine_discard(end)))
        .or_else(|| reached.then_some(PathEnd::Delivered))
}

/// Returns the end of a packet that waits for neighbour resolution.
fn unresolved_neighbour_end(
    plan: &Plan,
    evidence: &Evidence,
    flown: &FollowedPacket<'_>,
) -> Option<PathEnd> {
    let hop = flown.hops.last()?;
    let unresolved = evidence.unresolved.get(&hop.namespace)?;
    let to = hop.after.destination.ip();
    let route = plan
        .namespace(&hop.namespace)?
        .routes
        .iter()
        .filter(|route| route.to.contains(to))
        .max_by_key(|route| route.to.prefix());
    let next = |neighbour: &&IpAddr| {
        **neighbour == to || route.is_some_and(|route| route.via == Some(**neighbour))
    };
    unresolved.iter().find(next).copied().map(PathEnd::Waiting)
}

/// Whether the kernel discarded a packet that needed no further processing. Examples are a FIN
/// after the last FIN (Linux v6.12, `net/ipv4/tcp_ipv4.c`, `tcp_v4_rcv`), or unread data when a
/// socket closes.
fn is_routine_discard(end: &PathEnd) -> bool {
    matches!(
        end,
        PathEnd::Dropped { reason, .. }
            if matches!(reason.as_str(), "NOT_SPECIFIED" | "QUEUE_PURGE" | "SOCKET_CLOSE")
    )
}

/// Whether one of two packets is a retransmission of the other.
fn is_retransmission(first: &FollowedPacket<'_>, second: &FollowedPacket<'_>) -> bool {
    first.identity.without_identification() == second.identity.without_identification()
        && first.before() == second.before()
        && first.kind == second.kind
}

/// Reported drops by namespace and packet, in order of time.
type DropsByPacket<'e> = HashMap<(&'e str, PacketId), Vec<&'e DroppedPacket>>;

fn index_drops(evidence: &Evidence) -> DropsByPacket<'_> {
    let mut index = DropsByPacket::new();
    if let DropEvidence::Watched { dropped, .. } = &evidence.drops {
        for drop in dropped {
            let Some(frame) = Frame::from_ip(&drop.packet) else {
                continue;
            };
            let frame = frame.inner.clone().map_or(frame, |inner| *inner);
            let packet = PacketId::from_frame(&frame).without_data();
            index
                .entry((drop.namespace.as_str(), packet))
                .or_default()
                .push(drop);
        }
    }
    index
}

/// Returns the end of a packet that the kernel reported as dropped.
fn drop_end(
    evidence: &Evidence,
    drops: &DropsByPacket<'_>,
    flown: &FollowedPacket<'_>,
    hop: &Hop,
) -> Option<PathEnd> {
    let drop = find_drop(drops, flown, hop)?;
    Some(PathEnd::Dropped {
        reason: drop.reason.clone(),
        function: drop.function.clone(),
        settings: controlling_sysctls(evidence, hop, &drop.reason),
    })
}

/// Whether the kernel gives this reason for packets that it has not processed yet (Linux v6.12,
/// `include/net/dropreason-core.h`).
fn is_transit_reason(reason: &str) -> bool {
    let transit_prefixes = ["IP_", "NETFILTER_", "NEIGH_", "TC_", "XFRM_"];
    transit_prefixes
        .iter()
        .any(|before| reason.starts_with(before))
}

fn find_drop<'e>(
    drops: &DropsByPacket<'e>,
    flown: &FollowedPacket<'_>,
    hop: &'e Hop,
) -> Option<&'e DroppedPacket> {
    let packet = flown.identity.without_data();
    let mut drops = drops.get(&(hop.namespace.as_str(), packet))?.iter();
    drops.find(|drop| drop.time >= flown.time).copied()
}

/// Builds the journey of one attempt from its packets.
fn build_journey(
    probe: &Probe,
    attempt: &Attempt,
    packets: &[FollowedPacket<'_>],
    ends: &PathEnds,
) -> Journey {
    let addresses = attempt.local_address.map(|local| {
        let mut destination = probe.target.socket();
        if probe.protocol == ProbeProtocol::Ping {
            destination.set_port(local.port());
        }
        AddressPair {
            source: local,
            destination,
        }
    });
    let own_packets = addresses.map_or_else(Vec::new, |called| {
        packets_of_attempt(called, &probe.namespace, packets)
    });
    let path_index = |index: usize| {
        own_packets
            .iter()
            .position(|(packet_index, _)| *packet_index == index)
    };
    let mut flights: Vec<PacketPath> = Vec::with_capacity(own_packets.len());
    for (index, outward) in &own_packets {
        let flown = &packets[*index];
        let repeats = flights.iter().enumerate().find_map(|(earlier, flight)| {
            let (earlier_packet, _) = own_packets[earlier];
            is_retransmission(flown, &packets[earlier_packet])
                .then_some(flight.retransmission_of.unwrap_or(earlier))
        });
        let end = match &ends.by_packet[*index] {
            PathEnd::Rejected(by) => {
                PathEnd::Rejected(by.iter().filter_map(|at| path_index(*at)).collect())
            }
            other => other.clone(),
        };
        flights.push(PacketPath {
            kind: flown.kind,
            time: flown.time,
            retransmission_of: repeats,
            direction: *outward,
            hops: flown.hops.clone(),
            end,
            code: flown.code,
            reason: ends.reasons[*index].clone(),
        });
    }
    Journey {
        probe: attempt.probe.clone(),
        number: attempt.index,
        verdict: attempt.verdict,
        error: attempt.error.clone(),
        addresses,
        from: probe.namespace.clone(),
        packets: flights,
    }
}

/// Returns the indices of the packets of an attempt, each with whether it travels in request
/// direction. These are packets sent with the addresses of the attempt, their rewritten forms, the
/// replies to them, and so on until no packet is added.
fn packets_of_attempt(
    addresses: AddressPair,
    from: &str,
    packets: &[FollowedPacket<'_>],
) -> Vec<(usize, bool)> {
    let mut outward = HashSet::from([addresses]);
    let mut inward = HashSet::from([addresses.reversed()]);
    let mut found: BTreeMap<usize, bool> = BTreeMap::new();
    loop {
        let count_before = found.len();
        for (index, flown) in packets.iter().enumerate() {
            if found.contains_key(&index) {
                continue;
            }
            let before = flown.before();
            // Another host may use the same addresses and ports.
            let starts = before != addresses || flown.hops[0].namespace == from;
            let is_request = if outward.contains(&before) && starts {
                true
            } else if inward.contains(&before) {
                false
            } else {
                match flown.quoted {
                    Some(quoted) if outward.contains(&quoted) => false,
                    Some(quoted) if inward.contains(&quoted) => true,
                    _ => continue,
                }
            };
            found.insert(index, is_request);
            if flown.quoted.is_none() {
                for flow in flown.flows() {
                    let (to, back) = if is_request {
                        (&mut outward, &mut inward)
                    } else {
                        (&mut inward, &mut outward)
                    };
                    to.insert(flow);
                    back.insert(flow.reversed());
                }
            }
        }
        if found.len() == count_before {
            return found.into_iter().collect();
        }
    }
}

/// Returns the interface through which a packet reached the addresses and routes of a hop: the
/// bridge and not its port, the tunnel and not the interface below. `None` if the packet was sent
/// in this namespace.
#[must_use]
pub fn ingress_interface(hop: &Hop) -> Option<&Crossing> {
    let received = hop.crossings.iter().take_while(|seen| !seen.out);
    received.last()
}
