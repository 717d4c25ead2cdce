//! Derives what one namespace did with a packet: the addresses before and after, and the cause of a
//! rewrite.

use std::collections::HashMap;

use super::native;
use super::rules::RuleBook;
use super::sighting::{Identity, Sighting, flow};
use super::visit::{Streams, Visit};
use super::{Hop, Rewritten, Seen, Step};
use crate::packet::{Frame, Payload};
use svclab_model::evidence::{Evidence, Flow, Met};

/// Targets that rewrite the addresses of a packet.
const REWRITES: [&str; 5] = ["DNAT", "SNAT", "MASQUERADE", "REDIRECT", "NETMAP"];

/// Rule matches in each namespace, by packet and hop.
pub struct Visits<'e> {
    by_packet: HashMap<(&'e str, Identity), Streams>,
}

impl<'e> Visits<'e> {
    /// Groups the rule matches of the evidence by namespace and packet.
    pub fn of(evidence: &'e Evidence, book: &RuleBook<'_>) -> Self {
        let mut by_packet: HashMap<(&str, Identity), Streams> = HashMap::new();
        // A trace reports the whole packet once, and after that only what changes.
        let mut passes: HashMap<(&str, u32), Frame> = HashMap::new();
        for met in &evidence.met {
            let Some(frame) = told(met, &mut passes) else {
                continue;
            };
            let key = (met.namespace.as_str(), Identity::of(&frame).beginning());
            let step = book.step(met, flow(&frame), frame.payload);
            let stage = book.stage(met);
            by_packet.entry(key).or_default().add(met, stage, step);
        }
        Self { by_packet }
    }

    /// Removes and returns the matches of the packet's next hop in the namespace.
    pub fn take(&mut self, namespace: &'e str, packet: Identity) -> Visit {
        self.by_packet
            .get_mut(&(namespace, packet.beginning()))
            .and_then(Streams::take)
            .unwrap_or_default()
    }

    /// Returns the remaining matches: those of packets that no interface carried.
    pub fn rest(self) -> impl Iterator<Item = (&'e str, Identity, Visit)> {
        self.by_packet
            .into_iter()
            .flat_map(|((namespace, packet), mut streams)| {
                std::iter::from_fn(move || streams.take()).map(move |visit| {
                    let visit: Visit = visit;
                    (namespace, packet, visit)
                })
            })
    }
}

/// Returns the packet of a trace event.
fn told<'e>(met: &'e Met, passes: &mut HashMap<(&'e str, u32), Frame>) -> Option<Frame> {
    let key = (met.namespace.as_str(), met.pass);
    if let Some(frame) = met.packet.as_deref().and_then(Frame::of_ip) {
        passes.insert(key, frame.clone());
        return Some(frame);
    }
    passes.get(&key).cloned()
}

/// Builds the hop of a packet from its sightings and rule matches in a namespace.
pub fn hop(
    evidence: &Evidence,
    namespace: &str,
    stay: &[&Sighting<'_>],
    mut met: Visit,
) -> Option<Hop> {
    let (first, last) = (stay.first(), stay.last());
    let came = first.is_some_and(|first| !first.out);
    let before = match (first, met.first()) {
        (Some(first), _) if came => first.flow,
        // A packet sent here was rewritten before any interface carried it. Later packets of a
        // connection were rewritten before any rule matched.
        (_, step) => {
            let left = last.filter(|last| last.out).map(|last| last.flow);
            let reply = first.is_some_and(|first| first.frame.payload == Payload::Pong);
            let set_out = left.and_then(|left| set_out(evidence, namespace, left, reply));
            set_out.or(step.map(|step| step.flow)).or(left)?
        }
    };
    let after = match (last, met.last()) {
        // Rules that matched the outer packet of a tunnel report other addresses.
        (Some(last), _) if last.out || last.wrapped => last.flow,
        (_, Some(step)) => step.flow,
        (Some(last), None) => last.flow,
        (None, None) => before,
    };
    let delivered = last.is_none_or(|last| !last.out) && !met.iter().any(|step| step.dropped);
    let after = match remembered(evidence, namespace, before) {
        // On delivery to a socket, conntrack also rewrites the packet after the last rule.
        Some(other) if delivered => other,
        _ => after,
    };
    // A rule with a random map reports no entry; the rewritten destination shows which was chosen.
    for step in met.iter_mut().filter(|step| step.entries.is_empty()) {
        let rule = step.rule.as_deref().filter(|rule| rule.contains(" map {"));
        let drawn = rule.and_then(|rule| native::drawn(rule, after.destination));
        step.entries.extend(drawn);
    }
    Some(Hop {
        namespace: namespace.to_owned(),
        seen: stay
            .iter()
            .map(|sighting| Seen {
                interface: sighting.interface.to_owned(),
                out: sighting.out,
                wrapped: sighting.wrapped,
                packet: sighting.packet,
            })
            .collect(),
        before,
        after,
        rewritten: (before != after).then(|| rewritten(evidence, namespace, before, after, &met)),
        met,
    })
}

/// Returns what rewrote the addresses of a packet.
fn rewritten(
    evidence: &Evidence,
    namespace: &str,
    before: Flow,
    after: Flow,
    met: &[Step],
) -> Rewritten {
    let rules: Vec<usize> = met
        .iter()
        .enumerate()
        .filter(|(_, step)| {
            let target = step.target.as_deref();
            target.is_some_and(|target| REWRITES.contains(&target))
        })
        .map(|(at, _)| at)
        .collect();
    let balanced = evidence.balanced.iter().find(|entry| {
        entry.namespace == namespace
            && entry.client == before.source
            && entry.server == before.destination
            && entry.real == after.destination
    });
    if let Some(entry) = balanced.filter(|_| before.destination != after.destination) {
        return Rewritten::ByIpvs {
            server: entry.server,
            real: entry.real,
            rules,
        };
    }
    if !rules.is_empty() {
        return Rewritten::ByRules(rules);
    }
    if remembered(evidence, namespace, before).is_some() {
        return Rewritten::AsRemembered;
    }
    let answered = evidence.balanced.iter().any(|entry| {
        entry.namespace == namespace
            && entry.real == before.source
            && entry.server == after.source
            && entry.client == after.destination
    });
    if answered {
        Rewritten::AsRemembered
    } else {
        Rewritten::Unknown
    }
}

/// Returns the addresses of a sent packet before conntrack rewrote it on its way out of the
/// namespace. Rules see only the first packet of a connection before the rewrite.
fn set_out(evidence: &Evidence, namespace: &str, left: Flow, reply: bool) -> Option<Flow> {
    let mut own = evidence
        .connections
        .iter()
        .filter(|connection| connection.namespace == namespace);
    if reply {
        return own
            .find(|connection| connection.original.reversed() == left)
            .map(|connection| connection.reply);
    }
    own.find(|connection| connection.reply.reversed() == left)
        .map(|connection| connection.original)
}

/// Returns the addresses that conntrack gives to a packet of a tracked connection. `None` if the
/// packet belongs to no entry or is not rewritten.
fn remembered(evidence: &Evidence, namespace: &str, before: Flow) -> Option<Flow> {
    evidence
        .connections
        .iter()
        .filter(|connection| connection.namespace == namespace)
        // In a connection from an address to itself, both directions have the same addresses.
        .filter(|connection| connection.original != connection.original.reversed())
        .find_map(|connection| {
            if before == connection.reply {
                Some(connection.original.reversed())
            } else if before == connection.original {
                Some(connection.reply.reversed())
            } else {
                None
            }
        })
        .filter(|other| *other != before)
}
