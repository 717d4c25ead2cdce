//! Builds the journeys of a case's attempts from its evidence.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::net::IpAddr;

use super::flight::{Kind, Track, tracks};
use super::hop::{Visits, hop};
use super::rules::RuleBook;
use super::settings::deciding;
use super::sighting::{self, Identity, Sighting};
use super::{End, Flight, Hop, Journey, Seen, Step};
use crate::packet::Frame;
use svclab_model::evidence::{Attempt, Dropped, Drops, Evidence, Flow};
use svclab_model::plan::{Plan, Probe, Protocol};

/// Counters that grow when the kernel drops packets in transit, or has no route for the reply to a
/// received packet.
const LOSSES: [&str; 5] = [
    "TcpExtIPReversePathFilter",
    "IpExtInNoRoutes",
    "IpInAddrErrors",
    "IpInHdrErrors",
    "IpOutNoRoutes",
];

/// Counter of ICMP errors about connections that the kernel does not have (Linux v6.12,
/// `net/ipv4/tcp_ipv4.c`, `tcp_v4_err`).
const IGNORED: &str = "IcmpInErrors";

/// Follows every packet that belongs to an attempt of a probe. The evidence must come from a plan
/// with captures and traces in every namespace.
#[must_use]
pub fn journeys(plan: &Plan, evidence: &Evidence) -> Vec<Journey> {
    let book = RuleBook::of(evidence);
    let sightings = sighting::all(&evidence.packets, plan);
    let mut visits = Visits::of(evidence, &book);
    let mut all: Vec<Flown<'_>> = tracks(&sightings)
        .iter()
        .filter_map(|track| Flown::of(evidence, track, &mut visits))
        .collect();
    all.extend(visits.rest().filter_map(|(namespace, identity, visit)| {
        Flown::unseen(evidence, namespace, identity, visit)
    }));
    let ends = Ends::of(plan, evidence, &all);
    evidence
        .attempts
        .iter()
        .filter_map(|attempt| {
            let probe = plan
                .probes
                .iter()
                .find(|probe| probe.name == attempt.probe)?;
            Some(journey(probe, attempt, &all, &ends))
        })
        .collect()
}

/// A packet and its hops, not yet assigned to an attempt.
struct Flown<'s> {
    identity: Identity,
    time: u64,
    kind: Kind,
    code: Option<u8>,
    quoted: Option<Flow>,
    hops: Vec<Hop>,
    /// Last sighting; `None` if no interface carried the packet.
    last: Option<&'s Sighting<'s>>,
}

impl<'s> Flown<'s> {
    fn of<'e: 's>(
        evidence: &'e Evidence,
        track: &Track<'s, 'e>,
        visits: &mut Visits<'e>,
    ) -> Option<Self> {
        let first = track.first();
        let hops = track
            .stays
            .iter()
            .map(|stay| {
                let first = stay.first()?;
                let namespace = first.namespace;
                // If the packet was encapsulated throughout the hop, the rules matched the outer
                // packet.
                let carrier = first.outer.filter(|_| stay.iter().all(|each| each.wrapped));
                let met = visits.take(namespace, carrier.unwrap_or(track.identity));
                hop(evidence, namespace, stay, met)
            })
            .collect::<Option<Vec<_>>>()?;
        Some(Self {
            identity: track.identity,
            time: first.time,
            kind: Kind::of(first.identity.payload()),
            code: first.frame.code,
            quoted: first.quoted,
            hops,
            last: track.sightings().last(),
        })
    }

    /// Builds a packet that no interface carried: it ended in the namespace that sent it.
    fn unseen(
        evidence: &Evidence,
        namespace: &str,
        identity: Identity,
        met: Vec<Step>,
    ) -> Option<Self> {
        Some(Self {
            identity,
            time: 0,
            kind: Kind::of(identity.payload()),
            code: None,
            quoted: None,
            hops: vec![hop(evidence, namespace, &[], met)?],
            last: None,
        })
    }

    fn before(&self) -> Flow {
        self.hops[0].before
    }

    fn flows(&self) -> impl Iterator<Item = Flow> {
        self.hops.iter().flat_map(|hop| [hop.before, hop.after])
    }
}

/// Ends of all packets.
struct Ends {
    /// End of each packet, by its index among all packets.
    by_flight: Vec<End>,
    /// Drop reason of the kernel for each rejected packet, by the same index.
    reasons: Vec<Option<String>>,
}

impl Ends {
    fn of(plan: &Plan, evidence: &Evidence, all: &[Flown<'_>]) -> Self {
        let drops = drops(evidence);
        let mut by_flight: Vec<Option<End>> = all
            .iter()
            .map(|flown| {
                known(evidence, &drops, flown, all).or_else(|| waiting(plan, evidence, flown))
            })
            .collect();
        // The other packets have no end of their own; a counter of the namespace may explain them.
        let mut lost: BTreeMap<&str, u64> = BTreeMap::new();
        for (flown, end) in all.iter().zip(&by_flight) {
            if end.is_none()
                && flown.last.is_some()
                && flown.kind != Kind::Other
                && let Some(hop) = flown.hops.last()
            {
                *lost.entry(&hop.namespace).or_default() += 1;
            }
        }
        for (flown, end) in all.iter().zip(&mut by_flight) {
            let Some(hop) = flown.hops.last() else {
                continue;
            };
            if end.is_some() {
                continue;
            }
            let of_errors = (flown.kind == Kind::Unreachable).then_some(&IGNORED);
            let grown = of_errors.into_iter().chain(&LOSSES).find_map(|counter| {
                let by = *evidence.counters.get(&hop.namespace)?.get(*counter)?;
                Some((*counter, u64::try_from(by).ok().filter(|by| *by > 0)?))
            });
            *end = Some(match grown {
                Some((counter, by)) => End::Counted {
                    counter: counter.to_owned(),
                    by,
                    lost: lost.get(hop.namespace.as_str()).copied().unwrap_or(0),
                    settings: deciding(evidence, hop, counter),
                },
                None => End::Unknown,
            });
        }
        let reason = |(flown, end): (&Flown<'_>, &Option<End>)| match (end, flown.hops.last()) {
            (Some(End::Answered(_)), Some(hop)) => {
                Some(drop_of(&drops, flown, hop)?.reason.clone())
            }
            _ => None,
        };
        Self {
            reasons: all.iter().zip(&by_flight).map(reason).collect(),
            by_flight: by_flight.into_iter().flatten().collect(),
        }
    }
}

/// Returns the end of a packet as far as the packets, drops and rules show it.
fn known(
    evidence: &Evidence,
    drops: &DropsBy<'_>,
    flown: &Flown<'_>,
    all: &[Flown<'_>],
) -> Option<End> {
    let hop = flown.hops.last()?;
    if hop.met.last().is_some_and(|step| step.dropped) {
        return Some(End::ByRule);
    }
    if flown.last.is_some_and(|last| last.out) {
        return Some(dropped(evidence, drops, flown, hop).unwrap_or(End::Gone));
    }
    // A host that received the packet sends to its sender.
    let answers: Vec<usize> = all
        .iter()
        .enumerate()
        .filter(|(_, other)| {
            other.time >= flown.time
                && other.hops[0].namespace == hop.namespace
                && other.hops[0].seen.first().is_none_or(|seen| seen.out)
                && (other.before() == hop.after.reversed()
                    // An ICMP error may quote the addresses as received, if the packet was
                    // rewritten in this namespace.
                    || other.quoted.is_some_and(|quoted| [hop.before, hop.after].contains(&quoted)))
        })
        .map(|(at, _)| at)
        .collect();
    // Replies after a retransmission belong to the retransmission.
    let again = all
        .iter()
        .filter(|other| other.time > flown.time && repeats(other, flown))
        .map(|other| other.time)
        .min();
    let refused = |at: &usize| {
        matches!(all[*at].kind, Kind::Rst | Kind::Unreachable)
            && again.is_none_or(|again| all[*at].time < again)
    };
    let refusals: Vec<usize> = answers.iter().copied().filter(refused).collect();
    if flown.kind != Kind::Rst && !refusals.is_empty() {
        return Some(End::Answered(refusals));
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
    let wanted = quoted.unwrap_or(hop.after.reversed());
    let is_asked = || {
        all.iter().any(|other| {
            let out = &other.hops[0];
            out.namespace == hop.namespace
                && (out.before == wanted || quoted.is_some() && out.after == wanted)
        })
    };
    let arrives = ends_there && is_asked();
    // The kernel reports a reset or an error as dropped after processing it.
    let understood = matches!(flown.kind, Kind::Rst | Kind::Unreachable)
        && drop_of(drops, flown, hop).is_none_or(|drop| !is_on_the_way(&drop.reason));
    if understood && arrives {
        return Some(End::Delivered);
    }
    let reached = !answers.is_empty() || arrives;
    dropped(evidence, drops, flown, hop)
        .filter(|end| !(reached && is_put_away(end)))
        .or_else(|| reached.then_some(End::Delivered))
}

/// Returns the end of a packet that waits for neighbour resolution.
fn waiting(plan: &Plan, evidence: &Evidence, flown: &Flown<'_>) -> Option<End> {
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
    unresolved.iter().find(next).copied().map(End::Waiting)
}

/// Whether the kernel discarded a packet that needed no further processing. Examples are a FIN
/// after the last FIN (Linux v6.12, `net/ipv4/tcp_ipv4.c`, `tcp_v4_rcv`), or unread data when a
/// socket closes.
fn is_put_away(end: &End) -> bool {
    matches!(
        end,
        End::Dropped { reason, .. }
            if matches!(reason.as_str(), "NOT_SPECIFIED" | "QUEUE_PURGE" | "SOCKET_CLOSE")
    )
}

/// Whether one of two packets is a retransmission of the other.
fn repeats(one: &Flown<'_>, other: &Flown<'_>) -> bool {
    one.identity.repeated() == other.identity.repeated()
        && one.before() == other.before()
        && one.kind == other.kind
}

/// Reported drops by namespace and packet, in order of time.
type DropsBy<'e> = HashMap<(&'e str, Identity), Vec<&'e Dropped>>;

fn drops(evidence: &Evidence) -> DropsBy<'_> {
    let mut by = DropsBy::new();
    if let Drops::Watched { dropped, .. } = &evidence.drops {
        for drop in dropped {
            let Some(frame) = Frame::of_ip(&drop.packet) else {
                continue;
            };
            let frame = frame.inner.clone().map_or(frame, |inner| *inner);
            let packet = Identity::of(&frame).beginning();
            by.entry((drop.namespace.as_str(), packet))
                .or_default()
                .push(drop);
        }
    }
    by
}

/// Returns the end of a packet that the kernel reported as dropped.
fn dropped(evidence: &Evidence, drops: &DropsBy<'_>, flown: &Flown<'_>, hop: &Hop) -> Option<End> {
    let drop = drop_of(drops, flown, hop)?;
    Some(End::Dropped {
        reason: drop.reason.clone(),
        place: drop.place.clone(),
        settings: deciding(evidence, hop, &drop.reason),
    })
}

/// Whether the kernel gives this reason for packets that it has not processed yet (Linux v6.12,
/// `include/net/dropreason-core.h`).
fn is_on_the_way(reason: &str) -> bool {
    let before = ["IP_", "NETFILTER_", "NEIGH_", "TC_", "XFRM_"];
    before.iter().any(|before| reason.starts_with(before))
}

fn drop_of<'e>(drops: &DropsBy<'e>, flown: &Flown<'_>, hop: &'e Hop) -> Option<&'e Dropped> {
    let packet = flown.identity.beginning();
    let mut drops = drops.get(&(hop.namespace.as_str(), packet))?.iter();
    drops.find(|drop| drop.time >= flown.time).copied()
}

/// Builds the journey of one attempt from its packets.
fn journey(probe: &Probe, attempt: &Attempt, all: &[Flown<'_>], ends: &Ends) -> Journey {
    let called = attempt.local.map(|local| {
        let mut destination = probe.to.socket();
        if probe.protocol == Protocol::Ping {
            destination.set_port(local.port());
        }
        Flow {
            source: local,
            destination,
        }
    });
    let mine = called.map_or_else(Vec::new, |called| belonging(called, &probe.from, all));
    let place = |at: usize| mine.iter().position(|(own, _)| *own == at);
    let mut flights: Vec<Flight> = Vec::with_capacity(mine.len());
    for (at, outward) in &mine {
        let flown = &all[*at];
        let repeats = flights.iter().enumerate().find_map(|(earlier, flight)| {
            let (other, _) = mine[earlier];
            repeats(flown, &all[other]).then_some(flight.repeats.unwrap_or(earlier))
        });
        let end = match &ends.by_flight[*at] {
            End::Answered(by) => End::Answered(by.iter().filter_map(|at| place(*at)).collect()),
            other => other.clone(),
        };
        flights.push(Flight {
            kind: flown.kind,
            time: flown.time,
            repeats,
            outward: *outward,
            hops: flown.hops.clone(),
            end,
            code: flown.code,
            reason: ends.reasons[*at].clone(),
        });
    }
    Journey {
        probe: attempt.probe.clone(),
        number: attempt.number,
        verdict: attempt.verdict,
        error: attempt.error.clone(),
        called,
        from: probe.from.clone(),
        flights,
    }
}

/// Returns the indices of the packets of an attempt, each with whether it travels in request
/// direction. These are packets sent with the addresses of the attempt, their rewritten forms, the
/// replies to them, and so on until no packet is added.
fn belonging(called: Flow, from: &str, all: &[Flown<'_>]) -> Vec<(usize, bool)> {
    let mut outward = HashSet::from([called]);
    let mut inward = HashSet::from([called.reversed()]);
    let mut mine: BTreeMap<usize, bool> = BTreeMap::new();
    loop {
        let known = mine.len();
        for (at, flown) in all.iter().enumerate() {
            if mine.contains_key(&at) {
                continue;
            }
            let before = flown.before();
            // Another host may use the same addresses and ports.
            let starts = before != called || flown.hops[0].namespace == from;
            let goes = if outward.contains(&before) && starts {
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
            mine.insert(at, goes);
            if flown.quoted.is_none() {
                for flow in flown.flows() {
                    let (to, back) = if goes {
                        (&mut outward, &mut inward)
                    } else {
                        (&mut inward, &mut outward)
                    };
                    to.insert(flow);
                    back.insert(flow.reversed());
                }
            }
        }
        if mine.len() == known {
            return mine.into_iter().collect();
        }
    }
}

/// Returns the interface through which a packet reached the addresses and routes of a hop: the
/// bridge and not its port, the tunnel and not the interface below. `None` if the packet was sent
/// in this namespace.
#[must_use]
pub fn came_by(hop: &Hop) -> Option<&Seen> {
    let came = hop.seen.iter().take_while(|seen| !seen.out);
    came.last()
}
