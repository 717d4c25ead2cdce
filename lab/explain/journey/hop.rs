//! What one namespace did with a packet.

use std::collections::HashMap;

use super::rules::RuleBook;
use super::sighting::{Identity, Sighting, flow};
use super::{Flow, Hop, Rewritten, Seen, Step};
use crate::evidence::{Evidence, Met, Tuple};
use crate::explain::packet::Frame;

/// The targets that rewrite a packet's addresses.
const REWRITES: [&str; 5] = ["DNAT", "SNAT", "MASQUERADE", "REDIRECT", "NETMAP"];

/// The steps of one packet's stay in one namespace.
pub type Visit = Vec<Step>;

/// The steps that packets took in each namespace, by packet, stay by stay.
pub struct Visits<'e> {
    by_packet: HashMap<(&'e str, Identity), Vec<Visit>>,
}

impl<'e> Visits<'e> {
    /// Takes the evidence's steps apart.
    pub fn of(evidence: &'e Evidence, book: &RuleBook<'_>) -> Self {
        let mut by_packet: HashMap<(&str, Identity), Stays<'_>> = HashMap::new();
        // A pass tells the packet once, and then what changes.
        let mut passes: HashMap<(&str, u32), Frame> = HashMap::new();
        for met in &evidence.met {
            let Some(frame) = told(met, &mut passes) else {
                continue;
            };
            let key = (met.namespace.as_str(), Identity::of(&frame).beginning());
            let step = book.step(met, flow(&frame), frame.payload);
            by_packet.entry(key).or_default().add(met, step);
        }
        // In the order in which they are asked for.
        let by_packet = by_packet
            .into_iter()
            .map(|(key, stays)| (key, stays.visits.into_iter().rev().collect()))
            .collect();
        Self { by_packet }
    }

    /// The next stay of that packet in that namespace that was not taken yet.
    pub fn take(&mut self, namespace: &'e str, packet: Identity) -> Visit {
        self.by_packet
            .get_mut(&(namespace, packet.beginning()))
            .and_then(Vec::pop)
            .unwrap_or_default()
    }

    /// What nobody took: packets that no interface carried.
    pub fn rest(self) -> impl Iterator<Item = (&'e str, Identity, Visit)> {
        self.by_packet
            .into_iter()
            .flat_map(|((namespace, packet), visits)| {
                visits
                    .into_iter()
                    .rev()
                    .map(move |visit| (namespace, packet, visit))
            })
    }
}

/// A packet's stays in one namespace, as its steps are told one after the other.
#[derive(Default)]
struct Stays<'e> {
    visits: Vec<Visit>,
    /// How far the last has come through the namespace, by [`stage`].
    stage: Option<u8>,
    /// Its last rule in each hook's own chain, by table and chain.
    reached: HashMap<(&'e str, &'e str), u32>,
}

impl<'e> Stays<'e> {
    fn add(&mut self, met: &'e Met, step: Step) {
        let own = stage(&met.chain);
        let stage = own.or(self.stage).unwrap_or(0);
        let place = (met.table.as_str(), met.chain.as_str());
        let number = step.number.unwrap_or(u32::MAX);
        // Nobody goes back in a hook's own chain, and nobody goes on once dropped.
        let goes_back = own.is_some()
            && (self.stage.is_some_and(|before| stage < before)
                || self.reached.get(&place).is_some_and(|last| number <= *last));
        let last = self.visits.last().and_then(|visit| visit.last());
        if goes_back || last.is_none_or(|last| last.dropped) {
            self.visits.push(Vec::new());
            self.reached.clear();
        }
        if own.is_some() {
            self.reached.insert(place, number);
        }
        self.stage = Some(stage);
        if let Some(visit) = self.visits.last_mut() {
            visit.push(step);
        }
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

/// How far a packet has come through a namespace when it is at a hook's own chain.
/// IPVS sends on what was on its way to this machine as if it were this machine's own.
fn stage(chain: &str) -> Option<u8> {
    match chain {
        "PREROUTING" => Some(0),
        "INPUT" | "FORWARD" => Some(1),
        "OUTPUT" => Some(2),
        "POSTROUTING" => Some(3),
        _ => None,
    }
}

/// What one namespace did with a packet that was seen there in `stay`, and took these
/// steps.
pub fn hop(
    evidence: &Evidence,
    namespace: &str,
    stay: &[&Sighting<'_>],
    met: Visit,
) -> Option<Hop> {
    let (first, last) = (stay.first(), stay.last());
    let came = first.is_some_and(|first| !first.out);
    let before = match (first, met.first()) {
        (Some(first), _) if came => first.flow,
        // What set out here was rewritten before any interface saw it, and later
        // packets of a connection before any rule did.
        (_, step) => {
            let left = last.filter(|last| last.out).map(|last| last.flow);
            let set_out = left.and_then(|left| set_out(evidence, namespace, left));
            set_out.or(step.map(|step| step.flow)).or(left)?
        }
    };
    let after = match (last, met.last()) {
        (Some(last), _) if last.out => last.flow,
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
fn set_out(evidence: &Evidence, namespace: &str, left: Flow) -> Option<Flow> {
    evidence
        .connections
        .iter()
        .filter(|connection| connection.namespace == namespace)
        .map(|connection| (flow_of(connection.original), flow_of(connection.reply)))
        .find(|(_, reply)| reply.reversed() == left)
        .map(|(original, _)| original)
}

fn flow_of(tuple: Tuple) -> Flow {
    Flow {
        source: tuple.source,
        destination: tuple.destination,
    }
}

/// As conntrack knows a packet's connection from its other side, if it does and that
/// is something else.
fn remembered(evidence: &Evidence, namespace: &str, before: Flow) -> Option<Flow> {
    evidence
        .connections
        .iter()
        .filter(|connection| connection.namespace == namespace)
        .find_map(|connection| {
            let (original, reply) = (flow_of(connection.original), flow_of(connection.reply));
            if before == reply {
                Some(original.reversed())
            } else if before == original {
                Some(reply.reversed())
            } else {
                None
            }
        })
        .filter(|other| *other != before)
}
