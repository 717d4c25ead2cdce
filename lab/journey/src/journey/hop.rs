//! What one namespace did with a packet.

use std::collections::HashMap;

use super::native;
use super::rules::RuleBook;
use super::sighting::{Identity, Sighting, flow};
use super::visit::{Streams, Visit};
use super::{Hop, Rewritten, Seen, Step};
use crate::packet::{Frame, Payload};
use svclab_model::evidence::{Evidence, Flow, Met};

/// The targets that rewrite a packet's addresses.
const REWRITES: [&str; 5] = ["DNAT", "SNAT", "MASQUERADE", "REDIRECT", "NETMAP"];

/// The steps that packets took in each namespace, by packet, stay by stay.
pub struct Visits<'e> {
    by_packet: HashMap<(&'e str, Identity), Streams>,
}

impl<'e> Visits<'e> {
    /// Takes the evidence's steps apart.
    pub fn of(evidence: &'e Evidence, book: &RuleBook<'_>) -> Self {
        let mut by_packet: HashMap<(&str, Identity), Streams> = HashMap::new();
        // A pass tells the packet once, and then what changes.
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

    /// The next stay of that packet in that namespace that was not taken yet.
    pub fn take(&mut self, namespace: &'e str, packet: Identity) -> Visit {
        self.by_packet
            .get_mut(&(namespace, packet.beginning()))
            .and_then(Streams::take)
            .unwrap_or_default()
    }

    /// What nobody took: packets that no interface carried.
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

/// The packet of a step.
fn told<'e>(met: &'e Met, passes: &mut HashMap<(&'e str, u32), Frame>) -> Option<Frame> {
    let key = (met.namespace.as_str(), met.pass);
    if let Some(frame) = met.packet.as_deref().and_then(Frame::of_ip) {
        passes.insert(key, frame.clone());
        return Some(frame);
    }
    passes.get(&key).cloned()
}

/// What one namespace did with a packet that was seen there in `stay`, and took these
/// steps.
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
        // What set out here was rewritten before any interface saw it, and later
        // packets of a connection before any rule did.
        (_, step) => {
            let left = last.filter(|last| last.out).map(|last| last.flow);
            let reply = first.is_some_and(|first| first.frame.payload == Payload::Pong);
            let set_out = left.and_then(|left| set_out(evidence, namespace, left, reply));
            set_out.or(step.map(|step| step.flow)).or(left)?
        }
    };
    let after = match (last, met.last()) {
        // Rules that met the tunnel's packet have other addresses.
        (Some(last), _) if last.out || last.wrapped => last.flow,
        (_, Some(step)) => step.flow,
        (Some(last), None) => last.flow,
        (None, None) => before,
    };
    let delivered = last.is_none_or(|last| !last.out) && !met.iter().any(|step| step.dropped);
    let after = match remembered(evidence, namespace, before) {
        // On its way to a socket it is rewritten after the last rule, too.
        Some(other) if delivered => other,
        _ => after,
    };
    // Of a rule that draws where it sends a packet, the kernel tells where it came to.
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

/// What rewrote a packet.
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

/// As a packet was before conntrack rewrote it on its way out of the namespace that it
/// set out in: rules see only the first of a connection as it was.
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

/// As conntrack knows a packet's connection from its other side, if it does and that
/// is something else.
fn remembered(evidence: &Evidence, namespace: &str, before: Flow) -> Option<Flow> {
    evidence
        .connections
        .iter()
        .filter(|connection| connection.namespace == namespace)
        // Who speaks to itself: both directions look the same.
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
