//! Groups the rule matches of a packet in one namespace by hop.
//!
//! Packets can be identical, for example a retransmitted reply. The order of the rule matches then
//! shows where the matches of one packet end and those of the next begin. Each backend, `nf_tables`
//! and legacy iptables, reports its matches in order. No source reports how matches of the two
//! backends interleave.

use std::collections::{HashMap, VecDeque};

use super::RuleMatch;
use svclab_model::evidence::TraceEvent;
use svclab_model::evidence::trace::TracePoint;
use svclab_model::plan::Backend;

/// Stage of the output hook.
pub(super) const OUTPUT_STAGE: u8 = 2;

/// Rule matches of one hop.
pub(super) type HopMatches = Vec<RuleMatch>;

/// Rule matches of a packet in a namespace, by backend.
#[derive(Debug, Default)]
pub(super) struct PacketMatches {
    nft: BackendMatches,
    legacy: BackendMatches,
}

/// Rule matches reported by one backend.
#[derive(Debug, Default)]
struct BackendMatches {
    /// Matches per hop, each with the stage of the packet.
    hops: VecDeque<Vec<(u8, RuleMatch)>>,
    /// Stage of the last match.
    stage: u8,
    /// Last rule number in each hook chain of the current hop, by table.
    last_numbers: HashMap<(bool, String, String), u32>,
}

impl PacketMatches {
    /// Adds a rule match, later than all others of its backend. `stage` is the stage of the packet
    /// if the chain belongs to a hook.
    pub(super) fn add(&mut self, event: &TraceEvent, stage: Option<u8>, step: RuleMatch) {
        match event.backend {
            Backend::Nft => self.nft.add(event, stage, step),
            Backend::Legacy => self.legacy.add(event, stage, step),
        }
    }

    /// Removes and returns the first hop, with the matches of both backends sorted by stage. The
    /// backend that dropped the packet comes last.
    pub(super) fn take_hop(&mut self) -> Option<HopMatches> {
        let hops = [self.nft.hops.pop_front(), self.legacy.hops.pop_front()];
        let mut of_both: Vec<_> = hops.into_iter().flatten().collect();
        if of_both.is_empty() {
            return None;
        }
        of_both.sort_by_key(|visit| visit.last().is_some_and(|(_, step)| step.dropped));
        let mut steps: Vec<(u8, RuleMatch)> = of_both.into_iter().flatten().collect();
        steps.sort_by_key(|(stage, _)| *stage);
        Some(steps.into_iter().map(|(_, step)| step).collect())
    }
}

impl BackendMatches {
    fn add(&mut self, event: &TraceEvent, hook_stage: Option<u8>, step: RuleMatch) {
        let stage = hook_stage.unwrap_or(self.stage);
        let is_repeated = hook_stage.is_some() && self.record_hook_position(event);
        let is_new_hop = self.hops.is_empty()
            || stage < self.stage
            || is_repeated && !self.is_sent_again(stage, &step);
        if is_new_hop {
            self.hops.push_back(Vec::new());
        }
        if is_new_hop || is_repeated {
            self.last_numbers.clear();
            if hook_stage.is_some() {
                self.record_hook_position(event);
            }
        }
        self.stage = stage;
        if let Some(visit) = self.hops.back_mut() {
            visit.push((stage, step));
        }
    }

    /// Whether a packet that this namespace created passes the output hook again, with another
    /// destination: IPVS sends it to a real server (Linux v6.12, `net/netfilter/ipvs/ip_vs_xmit.c`,
    /// `ip_vs_nat_send_or_cont`). A retransmission has the destination of the first packet.
    fn is_sent_again(&self, stage: u8, step: &RuleMatch) -> bool {
        let first = self.hops.back().and_then(|hop| hop.first());
        first.is_some_and(|(first_stage, first)| {
            [*first_stage, stage] == [OUTPUT_STAGE; 2]
                && first.flow.destination != step.flow.destination
        })
    }

    /// Whether this hook chain has already been passed to this rule number in the current hop. A
    /// packet passes each hook chain once, unless it is sent again.
    fn record_hook_position(&mut self, event: &TraceEvent) -> bool {
        let number = match event.point {
            // The rule number is unknown.
            TracePoint::Rule(0) => return false,
            TracePoint::Rule(number) => number,
            TracePoint::Return | TracePoint::Policy => u32::MAX,
        };
        let chain = (event.inet, event.table.clone(), event.chain.clone());
        let before = self.last_numbers.insert(chain, number);
        before.is_some_and(|before| number <= before)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Backend, table, chain and position.
    type Point<'p> = (Backend, &'p str, &'p str, TracePoint);

    fn trace_event(
        by: Backend,
        table: &str,
        chain: &str,
        position: TracePoint,
    ) -> (TraceEvent, RuleMatch) {
        let event = TraceEvent {
            namespace: "node-1".to_owned(),
            backend: by,
            trace_id: 0,
            packet: None,
            ip_version: 4,
            input: None,
            output: None,
            mark: 0,
            table: table.to_owned(),
            inet: false,
            chain: chain.to_owned(),
            point: position,
            verdict: None,
        };
        let step = RuleMatch {
            backend: by,
            table: table.to_owned(),
            chain: chain.to_owned(),
            number: match position {
                TracePoint::Rule(number) => Some(number),
                _ => None,
            },
            rule: None,
            target: None,
            entries: Vec::new(),
            service: None,
            packets: None,
            flow: svclab_model::evidence::AddressPair {
                source: "10.0.0.1:1".parse().unwrap(),
                destination: "10.0.0.2:2".parse().unwrap(),
            },
            mark: 0,
            dropped: table == "filter" && chain == "DROPS",
            earlier: Vec::new(),
        };
        (event, step)
    }

    fn hop_texts(events: &[Point<'_>]) -> Vec<String> {
        let to_service = events.iter().map(|event| (*event, "10.0.0.2:2"));
        addressed_hop_texts(&to_service.collect::<Vec<_>>())
    }

    /// Each event has the destination of the packet.
    fn addressed_hop_texts(events: &[(Point<'_>, &str)]) -> Vec<String> {
        let mut streams = PacketMatches::default();
        for ((by, table, chain, position), destination) in events {
            let (event, mut step) = trace_event(*by, table, chain, *position);
            step.flow.destination = destination.parse().unwrap();
            let stage = match *chain {
                "PREROUTING" => Some(0),
                "FORWARD" => Some(1),
                "OUTPUT" => Some(OUTPUT_STAGE),
                _ => None,
            };
            streams.add(&event, stage, step);
        }
        let visits = std::iter::from_fn(|| streams.take_hop());
        visits
            .map(|visit| {
                let steps = visit.iter().map(|step| {
                    let number = step.number.map_or("end".to_owned(), |at| at.to_string());
                    format!("{} {} {number}", step.table, step.chain)
                });
                steps.collect::<Vec<_>>().join(", ")
            })
            .collect()
    }

    #[test]
    fn take_hop_retransmission_gives_new_hop() {
        use Backend::Nft;
        let events = [
            (Nft, "filter", "FORWARD", TracePoint::Rule(2)),
            (Nft, "filter", "DROPS", TracePoint::Rule(1)),
        ];
        let expected = "filter FORWARD 2, filter DROPS 1";
        assert_eq!(hop_texts(&[events, events, events].concat()), [expected; 3]);
        // Several tables at one hook, and a return to the chain that jumped.
        let events = [
            (Nft, "raw", "PREROUTING", TracePoint::Policy),
            (Nft, "nat", "PREROUTING", TracePoint::Rule(1)),
            (Nft, "nat", "KUBE-SERVICES", TracePoint::Rule(4)),
            (Nft, "nat", "PREROUTING", TracePoint::Rule(2)),
            (Nft, "nat", "PREROUTING", TracePoint::Policy),
            (Nft, "filter", "FORWARD", TracePoint::Policy),
        ];
        assert_eq!(hop_texts(&events).len(), 1);
        assert_eq!(hop_texts(&[events, events].concat()).len(), 2);
    }

    #[test]
    fn take_hop_packet_sent_again_by_ipvs_stays_in_hop() {
        let (service, real) = ("10.96.0.13:80", "10.244.2.20:8080");
        let event = |table, point| (Backend::Nft, table, "OUTPUT", point);
        let events = [
            (event("mangle", TracePoint::Policy), service),
            (event("nat", TracePoint::Rule(1)), service),
            (event("mangle", TracePoint::Policy), real),
            (event("filter", TracePoint::Rule(1)), real),
        ];
        let expected = "mangle OUTPUT end, nat OUTPUT 1, mangle OUTPUT end, filter OUTPUT 1";
        assert_eq!(addressed_hop_texts(&events), [expected]);
        // A retransmission begins with the service's address again.
        assert_eq!(
            addressed_hop_texts(&[events, events].concat()),
            [expected; 2]
        );
    }

    #[test]
    fn take_hop_both_backends_sorted_by_stage() {
        use Backend::{Legacy, Nft};
        let hops = hop_texts(&[
            (Nft, "nat", "PREROUTING", TracePoint::Policy),
            (Nft, "filter", "FORWARD", TracePoint::Rule(1)),
            (Nft, "filter", "DROPS", TracePoint::Rule(1)),
            (Legacy, "raw", "PREROUTING", TracePoint::Policy),
            (Legacy, "filter", "FORWARD", TracePoint::Policy),
        ]);
        assert_eq!(
            hops,
            [
                "raw PREROUTING end, nat PREROUTING end, filter FORWARD end, filter FORWARD 1, \
              filter DROPS 1"
            ]
        );
    }
}
