//! Builds the journeys of a case's attempts from its evidence.

use std::collections::{BTreeMap, HashSet};

use super::connection_index::ConnectionIndex;
use super::ends::{PathEnds, dropped_frames, index_drops};
use super::followed::FollowedPacket;
use super::hop::MatchIndex;
use super::packet_index::PacketIndex;
use super::rules::RuleIndex;
use super::sighting::{self, PacketId, Sighting};
use super::track::tracks;
use super::{Journey, PacketPath, PathEnd};
use svclab_model::evidence::{AddressPair, Attempt, StageEvidence};
use svclab_model::plan::{Plan, Probe, ProbeProtocol};

/// Follows every packet that belongs to an attempt of one of the probes. The evidence must come from
/// a plan with captures and traces in every namespace.
#[must_use]
pub fn journeys(plan: &Plan, probes: &[Probe], evidence: &StageEvidence) -> Vec<Journey> {
    let rule_index = RuleIndex::from_evidence(evidence);
    let sightings = sighting::parse_sightings(&evidence.packets, plan);
    let connections = ConnectionIndex::new(evidence);
    let mut visits = MatchIndex::from_evidence(evidence, &rule_index);
    let mut packets: Vec<FollowedPacket<'_>> = tracks(&sightings)
        .iter()
        .filter_map(|track| FollowedPacket::from_track(&connections, track, &mut visits))
        .collect();
    let drops = index_drops(evidence);
    for (namespace, identity, before, visit) in visits.into_remaining() {
        // No capture has the packet, but the kernel reports when a rule dropped it.
        let of_packet = drops.get(&(namespace, identity));
        let drop = of_packet.and_then(|drops| drops.get(before)).copied();
        let packet = FollowedPacket::from_matches(&connections, namespace, identity, drop, visit);
        packets.extend(packet);
    }
    let known: HashSet<PacketId> = packets
        .iter()
        .map(|packet| packet.identity.without_data())
        .collect();
    // A packet that its own kernel dropped, and that met no rule, is in no capture and no trace.
    for (frame, dropped) in dropped_frames(evidence) {
        let identity = PacketId::from_frame(&frame).without_data();
        if !known.contains(&identity) {
            let packet = FollowedPacket::from_drop(&connections, identity, &frame, dropped);
            packets.push(packet);
        }
    }
    // A packet without a time comes last.
    packets.sort_by_key(|packet| packet.time.checked_sub(1).unwrap_or(u64::MAX));
    let index = PacketIndex::new(&packets, &evidence.relayed);
    let ends = PathEnds::new(plan, evidence, &packets, &index, &drops);
    evidence
        .attempts
        .iter()
        .filter_map(|attempt| {
            let probe = probes.iter().find(|probe| probe.name == attempt.probe)?;
            Some(build_journey(probe, attempt, &packets, &index, &ends))
        })
        .collect()
}

/// Builds the journey of one attempt from its packets.
fn build_journey(
    probe: &Probe,
    attempt: &Attempt,
    packets: &[FollowedPacket<'_>],
    index: &PacketIndex<'_>,
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
        packets_of_attempt(called, &probe.namespace, packets, index, ends)
    });
    let path_index = |index: usize| {
        own_packets
            .iter()
            .position(|(packet_index, _)| *packet_index == index)
    };
    let mut flights: Vec<PacketPath> = Vec::with_capacity(own_packets.len());
    for (index, outward) in &own_packets {
        let packet = &packets[*index];
        let repeats = flights.iter().enumerate().find_map(|(earlier, flight)| {
            let (earlier_packet, _) = own_packets[earlier];
            packet
                .is_retransmission(&packets[earlier_packet])
                .then_some(flight.retransmission_of.unwrap_or(earlier))
        });
        let end = match &ends.by_packet[*index] {
            PathEnd::Rejected(by) => {
                PathEnd::Rejected(by.iter().filter_map(|at| path_index(*at)).collect())
            }
            other => other.clone(),
        };
        let tunnel = ends.tunnels[*index];
        let mut hops = packet.hops.clone();
        if let (Some(tunnel), Some(last)) = (tunnel, hops.last_mut()) {
            // No interface carried a tunnel packet that its own kernel dropped.
            last.tunnel.get_or_insert(tunnel.addresses);
        }
        flights.push(PacketPath {
            kind: packet.kind,
            time: packet.time,
            retransmission_of: repeats,
            direction: *outward,
            hops,
            routing_loop: packet.routing_loop.clone(),
            end,
            code: packet.code,
            reason: ends.reasons[*index].clone(),
            header: packet.last.map(Sighting::header),
            tunnel,
        });
    }
    Journey {
        probe: attempt.probe.clone(),
        number: attempt.index,
        verdict: attempt.verdict,
        error: attempt.error.clone(),
        progress: attempt.progress,
        addresses,
        from: probe.namespace.clone(),
        packets: flights,
    }
}

/// Returns the indices of the packets of an attempt, each with whether it travels in request
/// direction. These are packets sent with the addresses of the attempt, their rewritten forms, the
/// replies to them, the packets of connections that load balancers made for them, and so on until no
/// packet is added.
fn packets_of_attempt(
    addresses: AddressPair,
    from: &str,
    packets: &[FollowedPacket<'_>],
    index: &PacketIndex<'_>,
    ends: &PathEnds,
) -> Vec<(usize, bool)> {
    // Without directions, these are at least the packets of the attempt.
    let connected = index.connected(addresses, packets);
    let mut outward = HashSet::from([addresses]);
    let mut inward = HashSet::from([addresses.reversed()]);
    let mut found: BTreeMap<usize, bool> = BTreeMap::new();
    loop {
        let count_before = found.len();
        for relay in &connected.relayed {
            if outward.contains(&relay.client) {
                outward.insert(relay.backend);
                inward.insert(relay.backend.reversed());
            }
        }
        for index in &connected.packets {
            if found.contains_key(index) {
                continue;
            }
            let packet = &packets[*index];
            let before = packet.before();
            // Another host may use the same addresses and ports.
            let starts = before != addresses || packet.hops[0].namespace == from;
            let is_request = if outward.contains(&before) && starts {
                true
            } else if inward.contains(&before) {
                false
            } else {
                match packet.quoted {
                    Some(quoted) if outward.contains(&quoted) => false,
                    Some(quoted) if inward.contains(&quoted) => true,
                    _ => continue,
                }
            };
            found.insert(*index, is_request);
            if packet.quoted.is_none() {
                for flow in packet.sent_flows(&ends.by_packet[*index]) {
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
