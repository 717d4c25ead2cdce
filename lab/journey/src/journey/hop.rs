//! Derives what one namespace did with a packet: the addresses before and after, and the cause of a
//! rewrite.

use std::collections::HashMap;
use std::net::SocketAddr;

use super::connection_index::ConnectionIndex;
use super::hop_matches::{HopMatches, PacketMatches};
use super::nftables;
use super::rules::RuleIndex;
use super::sighting::{PacketId, Sighting, flow};
use super::{Crossing, Hop, Rewrite, RuleMatch};
use crate::packet::{Frame, Payload};
use svclab_model::evidence::{AddressPair, DropEvidence, StageEvidence, TraceEvent};

/// Targets that rewrite the addresses of a packet.
const REWRITE_TARGETS: [&str; 5] = ["DNAT", "SNAT", "MASQUERADE", "REDIRECT", "NETMAP"];

/// Rule matches in each namespace, by packet and hop.
pub(super) struct MatchIndex<'e> {
    by_packet: HashMap<(&'e str, PacketId), PacketMatches>,
    /// Dropped tunnel packets by namespace and encapsulated packet.
    dropped_tunnels: HashMap<(&'e str, PacketId), PacketId>,
}

impl<'e> MatchIndex<'e> {
    /// Groups the rule matches of the evidence by namespace and packet.
    pub(super) fn from_evidence(evidence: &'e StageEvidence, rule_index: &RuleIndex<'_>) -> Self {
        let mut by_packet: HashMap<(&str, PacketId), PacketMatches> = HashMap::new();
        // A trace reports the whole packet once, and after that only what changes.
        let mut passes: HashMap<(&str, u32), Frame> = HashMap::new();
        for event in &evidence.trace {
            let Some(frame) = event_packet(event, &mut passes) else {
                continue;
            };
            let key = (
                event.namespace.as_str(),
                PacketId::from_frame(&frame).without_data(),
            );
            let step = rule_index.rule_match(event, flow(&frame), frame.payload);
            let stage = rule_index.stage(event);
            by_packet.entry(key).or_default().add(event, stage, step);
        }
        Self {
            by_packet,
            dropped_tunnels: dropped_tunnels(&evidence.drops),
        }
    }

    /// Removes and returns the matches of the tunnel packet that encapsulated a packet and was
    /// dropped in the namespace before an interface carried it.
    pub(super) fn take_dropped_tunnel(
        &mut self,
        namespace: &'e str,
        packet: PacketId,
    ) -> HopMatches {
        let key = (namespace, packet.without_data());
        match self.dropped_tunnels.get(&key) {
            Some(tunnel) => self.take_hop(namespace, *tunnel),
            None => HopMatches::new(),
        }
    }

    /// Removes and returns the matches of the packet's next hop in the namespace.
    pub(super) fn take_hop(&mut self, namespace: &'e str, packet: PacketId) -> HopMatches {
        self.by_packet
            .get_mut(&(namespace, packet.without_data()))
            .and_then(PacketMatches::take_hop)
            .unwrap_or_default()
    }

    /// Returns the remaining matches: those of packets that no interface carried, each with the
    /// number of identical packets before it.
    pub(super) fn into_remaining(
        self,
    ) -> impl Iterator<Item = (&'e str, PacketId, usize, HopMatches)> {
        self.by_packet
            .into_iter()
            .flat_map(|((namespace, packet), mut streams)| {
                let visits = std::iter::from_fn(move || streams.take_hop()).enumerate();
                visits.map(move |(before, visit)| (namespace, packet, before, visit))
            })
    }
}

fn dropped_tunnels(drops: &DropEvidence) -> HashMap<(&str, PacketId), PacketId> {
    let DropEvidence::Watched { dropped, .. } = drops else {
        return HashMap::new();
    };
    let tunnels = dropped.iter().filter_map(|drop| {
        let outer = Frame::from_ip(&drop.packet)?;
        let inner = PacketId::from_frame(outer.inner.as_deref()?).without_data();
        Some(((&*drop.namespace, inner), PacketId::from_frame(&outer)))
    });
    tunnels.collect()
}

/// Returns the packet of a trace event.
fn event_packet<'e>(
    event: &'e TraceEvent,
    packets: &mut HashMap<(&'e str, u32), Frame>,
) -> Option<Frame> {
    let key = (event.namespace.as_str(), event.trace_id);
    if let Some(frame) = event.packet.as_deref().and_then(Frame::from_ip) {
        packets.insert(key, frame.clone());
        return Some(frame);
    }
    packets.get(&key).cloned()
}

/// Builds the hop of a packet from its sightings and rule matches in a namespace.
pub(super) fn build_hop<'e>(
    connections: &ConnectionIndex<'e>,
    namespace: &'e str,
    sightings: &[&Sighting<'_>],
    mut matches: HopMatches,
) -> Option<Hop> {
    let (first, last) = (sightings.first(), sightings.last());
    let is_received = first.is_some_and(|first| !first.out);
    let before = match (first, matches.first()) {
        (Some(first), _) if is_received => first.flow,
        // A packet sent here was rewritten before any interface carried it. Later packets of a
        // connection were rewritten before any rule matched.
        (_, step) => {
            let sent = last.filter(|last| last.out).map(|last| last.flow);
            let reply = first.is_some_and(|first| first.frame.payload == Payload::Pong);
            let step = step.map(|step| step.flow);
            // A packet that no interface carried may have met its first rule after the rewrite.
            let left = sent.or(step.filter(|_| first.is_none()));
            let set_out = left.and_then(|left| connections.before_sent(namespace, left, reply));
            set_out.or(step).or(sent)?
        }
    };
    let after = match (last, matches.last()) {
        // Rules that matched the outer packet of a tunnel report other addresses.
        (Some(last), _) if last.out || last.wrapped() => last.flow,
        (_, Some(step)) => AddressPair {
            destination: dnat_destination(step).unwrap_or(step.flow.destination),
            ..step.flow
        },
        (Some(last), None) => last.flow,
        (None, None) => before,
    };
    let is_untouched = |step: &RuleMatch| step.dropped || step.is_untracking();
    let delivered = last.is_none_or(|last| !last.out) && !matches.iter().any(is_untouched);
    // A later SYN may have created the entry: rules gave another destination to this packet.
    let is_of_other =
        |entry: AddressPair| ![before.destination, entry.destination].contains(&after.destination);
    let after = match connections.rewritten(namespace, before) {
        // On delivery to a socket, conntrack also rewrites the packet after the last rule.
        Some(conntrack_flow) if delivered && !is_of_other(conntrack_flow) => conntrack_flow,
        // IPVS chooses a real server after the last rule, and may not be able to reach it.
        _ if delivered && before.destination == after.destination => AddressPair {
            destination: connections
                .ipvs_destination(namespace, before)
                .unwrap_or(after.destination),
            ..after
        },
        _ => after,
    };
    // A rule with a random map reports no entry; the rewritten destination shows which was chosen.
    for step in matches.iter_mut().filter(|step| step.entries.is_empty()) {
        let rule = step.rule.as_deref().filter(|rule| rule.contains(" map {"));
        let entry = rule.and_then(|rule| nftables::entry_by_destination(rule, after.destination));
        step.entries.extend(entry);
    }
    Some(Hop {
        namespace: namespace.to_owned(),
        crossings: sightings
            .iter()
            .map(|sighting| Crossing {
                interface: sighting.interface.to_owned(),
                out: sighting.out,
                encapsulated: sighting.wrapped(),
                packet: sighting.packet,
            })
            .collect(),
        before,
        after,
        tunnel: sightings
            .iter()
            .find_map(|sighting| sighting.outer.as_ref().map(flow)),
        rewritten: (before != after)
            .then(|| find_rewrite(connections, namespace, sightings, before, after, &matches)),
        matches,
    })
}

/// Returns the destination that a DNAT rule gives to a packet. No later rule or interface shows the
/// destination of a packet that the kernel drops after this rule. `None` for other rules, and for
/// rules with several destinations.
fn dnat_destination(step: &RuleMatch) -> Option<SocketAddr> {
    if step.target.as_deref() != Some("DNAT") {
        return None;
    }
    let words = step.rule.as_deref()?.split(' ');
    let mut after = words.skip_while(|word| !matches!(*word, "--to-destination" | "to"));
    let destination = after.nth(1)?;
    let with_own_port = || {
        let address = destination.parse().ok()?;
        Some(SocketAddr::new(address, step.flow.destination.port()))
    };
    destination.parse().ok().or_else(with_own_port)
}

/// Whether the packet is an ICMP error about a packet of a tracked connection: conntrack rewrites it
/// like the packets of the connection.
fn quotes_tracked<'e>(
    connections: &ConnectionIndex<'e>,
    namespace: &'e str,
    sightings: &[&Sighting<'_>],
) -> bool {
    let quoted = sightings.iter().filter_map(|seen| seen.quoted);
    let mut pairs = quoted.flat_map(|quoted| [quoted, quoted.reversed()]);
    pairs.any(|pair| connections.rewritten(namespace, pair).is_some())
}

/// Returns what rewrote the addresses of a packet.
fn find_rewrite<'e>(
    connections: &ConnectionIndex<'e>,
    namespace: &'e str,
    sightings: &[&Sighting<'_>],
    before: AddressPair,
    after: AddressPair,
    matches: &[RuleMatch],
) -> Rewrite {
    let rules: Vec<usize> = matches
        .iter()
        .enumerate()
        .filter(|(_, step)| {
            let target = step.target.as_deref();
            target.is_some_and(|target| REWRITE_TARGETS.contains(&target))
        })
        .map(|(at, _)| at)
        .collect();
    let mut to_servers = connections.of_ipvs_client(namespace, before.source);
    let balanced = to_servers.find(|entry| {
        entry.virtual_server == before.destination && entry.real_server == after.destination
    });
    if let Some(entry) = balanced.filter(|_| before.destination != after.destination) {
        return Rewrite::ByIpvs {
            server: entry.virtual_server,
            real: entry.real_server,
            rules,
        };
    }
    if !rules.is_empty() {
        return Rewrite::ByRules(rules);
    }
    if connections.rewritten(namespace, before).is_some() {
        return Rewrite::Conntrack;
    }
    let mut to_client = connections.of_ipvs_client(namespace, after.destination);
    let is_ipvs_reply = to_client
        .any(|entry| entry.real_server == before.source && entry.virtual_server == after.source);
    if is_ipvs_reply || quotes_tracked(connections, namespace, sightings) {
        Rewrite::Conntrack
    } else {
        Rewrite::Unknown
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
