//! Groups the rule matches of a packet in one namespace by hop.
//!
//! Packets can be identical, for example a retransmitted reply. The order of the rule matches then
//! shows where the matches of one packet end and those of the next begin. Each backend, `nf_tables`
//! and legacy iptables, reports its matches in order. No source reports how matches of the two
//! backends interleave.

use std::collections::{HashMap, VecDeque};

use super::Step;
use svclab_model::evidence::Met;
use svclab_model::evidence::met::At;
use svclab_model::plan::Backend;

/// Rule matches of one hop.
pub type Visit = Vec<Step>;

/// Rule matches of a packet in a namespace, by backend.
#[derive(Debug, Default)]
pub struct Streams {
    nft: Stream,
    legacy: Stream,
}

/// Rule matches reported by one backend.
#[derive(Debug, Default)]
struct Stream {
    /// Matches per hop, each with the stage of the packet.
    visits: VecDeque<Vec<(u8, Step)>>,
    /// Stage of the last match.
    stage: u8,
    /// Last rule number in each hook chain of the current hop, by table.
    numbers: HashMap<(bool, String, String), u32>,
}

impl Streams {
    /// Adds a rule match, later than all others of its backend. `stage` is the stage of the packet
    /// if the chain belongs to a hook.
    pub fn add(&mut self, met: &Met, stage: Option<u8>, step: Step) {
        match met.by {
            Backend::Nft => self.nft.add(met, stage, step),
            Backend::Legacy => self.legacy.add(met, stage, step),
        }
    }

    /// Removes and returns the first hop, with the matches of both backends sorted by stage. The
    /// backend that dropped the packet comes last.
    pub fn take(&mut self) -> Option<Visit> {
        let of_both = [self.nft.visits.pop_front(), self.legacy.visits.pop_front()];
        let mut of_both: Vec<_> = of_both.into_iter().flatten().collect();
        if of_both.is_empty() {
            return None;
        }
        of_both.sort_by_key(|visit| visit.last().is_some_and(|(_, step)| step.dropped));
        let mut steps: Vec<(u8, Step)> = of_both.into_iter().flatten().collect();
        steps.sort_by_key(|(stage, _)| *stage);
        Some(steps.into_iter().map(|(_, step)| step).collect())
    }
}

impl Stream {
    fn add(&mut self, met: &Met, begun: Option<u8>, step: Step) {
        let stage = begun.unwrap_or(self.stage);
        let again = begun.is_some() && self.was_at(met);
        if self.visits.is_empty() || stage < self.stage || again {
            self.visits.push_back(Vec::new());
            self.numbers.clear();
            if begun.is_some() {
                self.was_at(met);
            }
        }
        self.stage = stage;
        if let Some(visit) = self.visits.back_mut() {
            visit.push((stage, step));
        }
    }

    /// Whether this hook chain has already been passed to this rule number in the current hop. A
    /// packet passes each hook chain once.
    fn was_at(&mut self, met: &Met) -> bool {
        let number = match met.at {
            // The rule number is unknown.
            At::Rule(0) => return false,
            At::Rule(number) => number,
            At::Return | At::Policy => u32::MAX,
        };
        let chain = (met.inet, met.table.clone(), met.chain.clone());
        let before = self.numbers.insert(chain, number);
        before.is_some_and(|before| number <= before)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn met(by: Backend, table: &str, chain: &str, at: At) -> (Met, Step) {
        let met = Met {
            namespace: "node-1".to_owned(),
            by,
            pass: 0,
            packet: None,
            ip: 4,
            input: None,
            output: None,
            mark: 0,
            table: table.to_owned(),
            inet: false,
            chain: chain.to_owned(),
            at,
            verdict: None,
        };
        let step = Step {
            by,
            table: table.to_owned(),
            chain: chain.to_owned(),
            number: match at {
                At::Rule(number) => Some(number),
                _ => None,
            },
            rule: None,
            target: None,
            entries: Vec::new(),
            service: None,
            flow: svclab_model::evidence::Flow {
                source: "10.0.0.1:1".parse().unwrap(),
                destination: "10.0.0.2:2".parse().unwrap(),
            },
            mark: 0,
            dropped: table == "filter" && chain == "DROPS",
        };
        (met, step)
    }

    fn visits(all: &[(Backend, &str, &str, At)]) -> Vec<String> {
        let mut streams = Streams::default();
        for (by, table, chain, at) in all {
            let (met, step) = met(*by, table, chain, *at);
            let stage = match *chain {
                "PREROUTING" => Some(0),
                "FORWARD" => Some(1),
                _ => None,
            };
            streams.add(&met, stage, step);
        }
        let visits = std::iter::from_fn(|| streams.take());
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
    fn what_is_sent_again_meets_the_same_again() {
        use Backend::Nft;
        let one = [
            (Nft, "filter", "FORWARD", At::Rule(2)),
            (Nft, "filter", "DROPS", At::Rule(1)),
        ];
        let told = "filter FORWARD 2, filter DROPS 1";
        assert_eq!(visits(&[one, one, one].concat()), [told; 3]);
        // Several tables at one hook, and a return to the chain that jumped.
        let one = [
            (Nft, "raw", "PREROUTING", At::Policy),
            (Nft, "nat", "PREROUTING", At::Rule(1)),
            (Nft, "nat", "KUBE-SERVICES", At::Rule(4)),
            (Nft, "nat", "PREROUTING", At::Rule(2)),
            (Nft, "nat", "PREROUTING", At::Policy),
            (Nft, "filter", "FORWARD", At::Policy),
        ];
        assert_eq!(visits(&one).len(), 1);
        assert_eq!(visits(&[one, one].concat()).len(), 2);
    }

    #[test]
    fn steps_of_both_filters_are_told_hook_by_hook() {
        use Backend::{Legacy, Nft};
        let told = visits(&[
            (Nft, "nat", "PREROUTING", At::Policy),
            (Nft, "filter", "FORWARD", At::Rule(1)),
            (Nft, "filter", "DROPS", At::Rule(1)),
            (Legacy, "raw", "PREROUTING", At::Policy),
            (Legacy, "filter", "FORWARD", At::Policy),
        ]);
        assert_eq!(
            told,
            [
                "raw PREROUTING end, nat PREROUTING end, filter FORWARD end, filter FORWARD 1, \
              filter DROPS 1"
            ]
        );
    }
}
