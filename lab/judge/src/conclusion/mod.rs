//! Concludes from a journey where its packets ended, and which objects decided that. Input: a
//! [`Journey`], the names of addresses, and the state of the lab. Output: [`Fact`]s, which reports
//! render as sentences.

mod cause;
mod drop_kind;
mod drop_table;
mod endpoint;
mod fact;
mod fault;
mod icmp_meaning;
mod kept_source;
mod last_hop;
mod later;
mod rules;
mod service;
mod service_reasons;
#[cfg(test)]
mod tests;
mod unmet;
mod untranslated_reply;

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

use crate::address_book::AddressBook;
use crate::deviation::{Deviation, ObservedRules, deviations};
use crate::judge::probe::ProbeOutcome;
use crate::state::LabState;
use crate::state::route_lookup::RouteQuery;
use drop_table::UNSPECIFIED;
use icmp_meaning::icmp_meaning;
use kept_source::kept_sources;
use last_hop::LastHop;
use last_hop::routes::unsent_route;
use svclab_journey::journey::{
    Hop, Journey, Kind, PacketPath, PathEnd, RuleMatch, ingress_interface, unresolved_next_hop,
};
use svclab_model::evidence::{AddressPair, StageEvidence};

pub use cause::Cause;
pub use drop_kind::DropKind;
pub use drop_table::{DROP_TABLE, DropRow, drop_row};
pub use fact::{Fact, KeptSourceReason, NamedAddress, Rejection, TunnelEnds};
pub use fault::{Fault, InterfaceName};
pub use icmp_meaning::IcmpMeaning;
pub use rules::RuleReference;
pub use service_reasons::{
    MasqueradeOption, MissingEndpointReason, NoEndpointReason, NodePortGap, ReplyGap,
    ServicePolicy, UntranslatedReason,
};

/// Explains the journeys of a stage.
#[derive(Debug)]
pub struct Explainer<'a> {
    book: AddressBook<'a>,
    lab: LabState<'a>,
    evidence: &'a StageEvidence,
    rules: ObservedRules<'a>,
    /// Probes whose results differ from the expectations of the lab.
    unexpected: BTreeMap<String, UnexpectedResult>,
}

/// Kinds of differences between the results of a probe and its expectation.
#[derive(Debug, Clone)]
struct UnexpectedResult {
    endpoints: bool,
    /// Expected endpoints that did not answer.
    missing_endpoints: Vec<String>,
    sources: bool,
}

impl<'a> Explainer<'a> {
    /// Creates the explainer of a stage from its address book and its evidence.
    #[must_use]
    pub fn new(book: AddressBook<'a>, evidence: &'a StageEvidence) -> Self {
        Self {
            book,
            lab: LabState::new(book.plan(), Some(evidence)),
            evidence,
            rules: ObservedRules::new(book.plan(), evidence),
            unexpected: BTreeMap::new(),
        }
    }

    /// Adds the results of the probes. Attempts of a probe with an unexpected result count as
    /// failing.
    #[must_use]
    pub fn with_outcomes<'o>(self, outcomes: impl IntoIterator<Item = &'o ProbeOutcome>) -> Self {
        let outcomes = outcomes.into_iter().filter(|outcome| !outcome.holds);
        let unexpected = outcomes.map(|outcome| {
            let result = UnexpectedResult {
                endpoints: outcome.has_unexpected_endpoints(),
                missing_endpoints: outcome.missing_endpoints(),
                sources: outcome.has_unexpected_sources(),
            };
            (outcome.name.clone(), result)
        });
        Self {
            unexpected: unexpected.collect(),
            ..self
        }
    }

    /// Whether the attempt failed, or belongs to a probe with an unexpected result.
    #[must_use]
    pub fn is_failing(&self, journey: &Journey) -> bool {
        !journey.verdict.is_success() || self.unexpected.contains_key(&journey.probe)
    }

    /// Returns the most important facts about an attempt: about the request first, then about the
    /// reply, and last about objects that differ from the lab.
    #[must_use]
    pub fn conclude(&self, journey: &Journey) -> Vec<Fact> {
        let mut facts = self.packet_facts(journey);
        if self.is_failing(journey) {
            let probe = self.book.probe(&journey.probe);
            let unsent = probe.filter(|_| find_request(journey).is_none());
            let unsent = unsent.map(RouteQuery::of_probe);
            let found = deviations(&self.lab, &self.rules, journey, unsent);
            facts.extend(found.into_iter().map(deviates));
        }
        facts
    }

    /// Returns the facts about the way of a failing request to an endpoint of a service.
    fn service_facts(
        &self,
        conclusion: &Conclusion<'_>,
        request: &PacketPath,
        reply: Option<&PacketPath>,
    ) -> Vec<Fact> {
        let journey = conclusion.journey;
        if !self.is_failing(journey) {
            return Vec::new();
        }
        if !journey.verdict.is_success() {
            return conclusion.service_facts(request, reply);
        }
        let Some(result) = self.unexpected.get(&journey.probe) else {
            return Vec::new();
        };
        let is_cause = |balanced: &Fact| {
            let has_source = matches!(
                balanced,
                Fact::Balanced {
                    source: Some(_),
                    ..
                }
            );
            result.endpoints || result.sources && has_source
        };
        let balanced = conclusion.balanced(request).filter(is_cause);
        let mut facts: Vec<Fact> = balanced.into_iter().collect();
        if result.sources {
            facts.extend(conclusion.masqueraded(request));
        }
        if result.endpoints {
            facts.extend(conclusion.service_policies());
            facts.extend(conclusion.missing_endpoints(&result.missing_endpoints));
        }
        facts
    }

    fn conclusion<'c>(&'c self, journey: &'c Journey) -> Conclusion<'c> {
        Conclusion {
            journey,
            book: &self.book,
            lab: &self.lab,
            evidence: self.evidence,
        }
    }

    /// Returns the facts about the request and the reply.
    fn packet_facts(&self, journey: &Journey) -> Vec<Fact> {
        let conclusion = self.conclusion(journey);
        let Some(request) = find_request(journey) else {
            return vec![conclusion.unsent()];
        };
        let mut facts = vec![conclusion.request(request)];
        let reply = find_reply(journey, request);
        let is_reply_received = |packet: &PacketPath| {
            let is_at_source = packet.hops.last().map(|hop| &hop.namespace) == Some(&journey.from);
            is_at_source && packet.end == PathEnd::Delivered
        };
        if let Some(reply) = reply {
            if icmp_meaning(request, journey).is_some() && is_reply_received(reply) {
                // The fact about the request contains the error already.
                facts.extend(self.service_facts(&conclusion, request, None));
                return facts;
            }
            facts.push(conclusion.reply(reply, request));
        } else if matches!(request.end, PathEnd::Delivered) {
            facts.push(Fact::NoReply);
        }
        let about_reply = facts.get(1).filter(|_| reply.is_some());
        let untranslated = reply
            .filter(|reply| !is_reply_expected(reply, journey))
            .and_then(|reply| conclusion.untranslated_reply(request, reply));
        if let Some(untranslated) = untranslated {
            facts.push(untranslated);
        } else {
            let kept = kept_sources(&facts[0], about_reply, request, &self.rules);
            facts.extend(
                kept.into_iter()
                    .map(|fact| conclusion.with_missing_option(fact, request)),
            );
        }
        if let Some(reply) = reply {
            facts.extend(conclusion.later_packets(request, reply));
        }
        facts.extend(self.service_facts(&conclusion, request, reply));
        facts
    }
}

fn deviates((namespace, deviation): (String, Deviation)) -> Fact {
    Fact::Deviates {
        namespace,
        deviation,
    }
}

/// Returns the first packet of the request; `None` if no packet was sent.
#[must_use]
pub fn find_request(journey: &Journey) -> Option<&PacketPath> {
    journey.packets.iter().find(|flight| {
        flight.direction
            && flight
                .hops
                .first()
                .is_some_and(|hop| hop.namespace == journey.from)
    })
}

/// Returns the first packet of the reply, preferably from the namespace in which the request ended.
#[must_use]
pub fn find_reply<'j>(journey: &'j Journey, request: &PacketPath) -> Option<&'j PacketPath> {
    let end_namespace = &request.hops.last()?.namespace;
    let mut replies = journey.packets.iter().filter(|flight| !flight.direction);
    let is_from_end = |flight: &&PacketPath| {
        flight
            .hops
            .first()
            .is_some_and(|hop| hop.namespace == *end_namespace)
    };
    replies.clone().find(is_from_end).or_else(|| replies.next())
}

/// Whether a reply ended with the addresses that the source of the request expects.
fn is_reply_expected(reply: &PacketPath, journey: &Journey) -> bool {
    let expected = journey.addresses.map(AddressPair::reversed);
    reply.hops.last().map(|hop| hop.after) == expected
}

/// Conclusion from one journey.
struct Conclusion<'a> {
    journey: &'a Journey,
    book: &'a AddressBook<'a>,
    lab: &'a LabState<'a>,
    evidence: &'a StageEvidence,
}

impl Conclusion<'_> {
    /// Returns the fact about an attempt without any packet.
    fn unsent(&self) -> Fact {
        let journey = self.journey;
        let error = journey.error.clone();
        let has_number = |number: u32| {
            let end = format!("(os error {number})");
            error.as_ref().is_some_and(|error| error.ends_with(&end))
        };
        // Rules that drop a packet in OUTPUT let `send` of a connected socket fail with EPERM.
        if let Some(called) = journey.addresses.filter(|_| !has_number(1)) {
            let to = called.destination.ip();
            let next_hop = unresolved_next_hop(self.book.plan(), self.evidence, &journey.from, to);
            return next_hop.map_or(Fact::NothingCaptured, |neighbour| Fact::NeighbourAwaited {
                namespace: journey.from.clone(),
                neighbour,
            });
        }
        // Errors of destinations without a route, and of unreachable, prohibit and blackhole routes
        // (Linux v6.12, `net/ipv4/fib_semantics.c`, `fib_props`).
        let is_by_route = [101, 113, 13, 22].into_iter().any(has_number);
        Fact::NothingSent {
            namespace: journey.from.clone(),
            no_route: has_number(101),
            fault: is_by_route
                .then(|| unsent_route(self.lab, self.book.probe(&journey.probe)?))
                .flatten(),
            error,
        }
    }

    /// Returns the fact about the end of the request.
    fn request(&self, request: &PacketPath) -> Fact {
        let Some(hop) = request.hops.last() else {
            return Fact::NothingCaptured;
        };
        if let Some(rejection) = self.icmp_rejection(request) {
            return self.rejected(request, hop, rejection, Vec::new());
        }
        if let Some(rejection) = self.rejection_by_ipvs(request, hop) {
            return self.rejected(request, hop, rejection, Vec::new());
        }
        match &request.end {
            PathEnd::Delivered | PathEnd::Rejected(_) => {
                let source = self.journey.addresses.map(|called| called.source);
                Fact::Reached {
                    packet: request.kind,
                    namespace: hop.namespace.clone(),
                    destination: self.named(hop.after.destination),
                    source: (Some(hop.after.source) != source)
                        .then(|| self.named(hop.after.source)),
                }
            }
            _ => self.lost(request, hop, Vec::new()),
        }
    }

    /// Returns the fact about the end of the reply.
    fn reply(&self, reply: &PacketPath, request: &PacketPath) -> Fact {
        let Some(hop) = reply.hops.last() else {
            return Fact::NothingCaptured;
        };
        let bypassed = bypassed(reply, request);
        let is_at_source = hop.namespace == self.journey.from;
        match &reply.end {
            PathEnd::Delivered | PathEnd::Rejected(_) if is_at_source => {
                self.received(reply, hop, bypassed)
            }
            PathEnd::Rejected(by) => {
                let other = || Rejection::Packet {
                    packet: self.answer(by),
                    fault: None,
                };
                let rejection = self.icmp_rejection(reply).unwrap_or_else(other);
                self.rejected(reply, hop, rejection, bypassed)
            }
            PathEnd::Delivered => Fact::Misdelivered {
                packet: reply.kind,
                namespace: hop.namespace.clone(),
                destination: self.named(hop.after.destination),
                bypassed,
            },
            _ => self.lost(reply, hop, bypassed),
        }
    }

    /// Returns the fact about a reply that reached the source.
    fn received(&self, reply: &PacketPath, hop: &Hop, bypassed: Vec<String>) -> Fact {
        let expected = self.journey.addresses.map(AddressPair::reversed);
        let sender = reply.hops[0].namespace.clone();
        // An ICMP error has the address of the kernel that created it; the quoted packet identifies
        // it.
        if reply.kind == Kind::Unreachable || Some(hop.after) == expected {
            return match reply.kind {
                Kind::Rst | Kind::Unreachable => Fact::Refused {
                    packet: reply.kind,
                    sender,
                },
                packet => Fact::ReplyReceived {
                    packet,
                    sender,
                    receiver: self.journey.from.clone(),
                },
            };
        }
        let is_source_right = expected.is_some_and(|pair| pair.source == hop.after.source);
        Fact::UnexpectedAddresses {
            packet: reply.kind,
            namespace: hop.namespace.clone(),
            source: self.named(hop.after.source),
            destination: is_source_right.then(|| self.named(hop.after.destination)),
            reset: self.journey.packets.iter().any(|flight| {
                flight.kind == Kind::Rst
                    && flight.hops.first().is_some_and(|first_hop| {
                        first_hop.namespace == hop.namespace
                            && first_hop.before == hop.after.reversed()
                    })
            }),
            bypassed,
        }
    }

    fn rejected(
        &self,
        flight: &PacketPath,
        hop: &Hop,
        rejection: Rejection,
        bypassed: Vec<String>,
    ) -> Fact {
        Fact::Rejected {
            packet: flight.kind,
            namespace: hop.namespace.clone(),
            destination: self.named(hop.after.destination),
            rejection,
            bypassed,
        }
    }

    fn lost(&self, flight: &PacketPath, hop: &Hop, bypassed: Vec<String>) -> Fact {
        Fact::Lost {
            packet: flight.kind,
            namespace: hop.namespace.clone(),
            ingress: ingress_interface(hop).map(|seen| seen.interface.clone()),
            source: self.named(hop.before.source),
            destination: self.named(hop.after.destination),
            tunnel: flight.tunnel.map(|outer| {
                let ends = outer.addresses;
                Box::new(TunnelEnds {
                    source: self.named(SocketAddr::new(ends.source.ip(), 0)),
                    destination: self.named(SocketAddr::new(ends.destination.ip(), 0)),
                })
            }),
            cause: Cause::new(flight, hop, self.lab, |step| {
                self.rule_reference(step, hop, flight.kind)
            }),
            bypassed,
        }
    }

    /// Returns the reference of a rule that a packet matched. Rules of kube-proxy in ipvs mode
    /// select services by sets of addresses and do not name them.
    fn rule_reference(&self, step: &RuleMatch, hop: &Hop, kind: Kind) -> RuleReference {
        let mut reference = RuleReference::new(step, hop);
        if reference.service.is_none() && step.is_of_kube_proxy() && !step.entries.is_empty() {
            let service = self.service(step.flow.destination, kind);
            reference.service = service.map(|(service, _)| service.full_name());
        }
        reference
    }

    /// Returns the ICMP error that rejected a packet, if its code has a meaning.
    fn icmp_rejection(&self, flight: &PacketPath) -> Option<Rejection> {
        let reason = flight.reason.clone();
        let meaning = icmp_meaning(flight, self.journey)?;
        let last = LastHop::new(self.lab, flight, flight.hops.last()?);
        Some(Rejection::Icmp {
            meaning,
            reason: reason.filter(|reason| *reason != UNSPECIFIED),
            fault: last.and_then(|last| last.rejection(meaning)),
        })
    }

    /// Returns the rejection of a request by IPVS, which has no server for it (Linux v6.12,
    /// `net/netfilter/ipvs/ip_vs_core.c`, `ip_vs_leave`).
    fn rejection_by_ipvs(&self, request: &PacketPath, hop: &Hop) -> Option<Rejection> {
        let PathEnd::Rejected(by) = &request.end else {
            return None;
        };
        let fault = LastHop::new(self.lab, request, hop)?.virtual_server()?;
        Some(Rejection::Packet {
            packet: self.answer(by),
            fault: Some(fault),
        })
    }

    /// Returns the kind of the first answer that rejected a packet.
    fn answer(&self, answers: &[usize]) -> Option<Kind> {
        Some(self.journey.packets.get(*answers.first()?)?.kind)
    }

    fn named(&self, address: SocketAddr) -> NamedAddress {
        NamedAddress::new(address, self.book)
    }
}

/// Returns the namespaces that rewrote the request but did not receive the reply. Empty if the reply
/// was lost on the way to them.
fn bypassed(reply: &PacketPath, request: &PacketPath) -> Vec<String> {
    let namespaces = |flight: &'_ PacketPath| -> BTreeSet<String> {
        let hops = flight.hops.iter();
        hops.map(|hop| hop.namespace.clone()).collect()
    };
    let (of_reply, of_request) = (namespaces(reply), namespaces(request));
    let is_on_the_way = !matches!(reply.end, PathEnd::Delivered | PathEnd::Rejected(_))
        && of_reply.is_subset(&of_request);
    if is_on_the_way {
        return Vec::new();
    }
    let rewriting = request.hops.iter().filter(|hop| hop.rewritten.is_some());
    let missed = rewriting.filter(|hop| !of_reply.contains(&hop.namespace));
    missed.map(|hop| hop.namespace.clone()).collect()
}
