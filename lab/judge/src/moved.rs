//! When traffic moved after a step: how long after the change the first packet took a
//! way that there was not before, and none took one any more that there is no longer.

use std::collections::BTreeSet;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::paths::answerers;
use svclab_journey::{Frame, Payload};
use svclab_model::evidence::{Attempt, Direction, Packet, StepEvidence, Verdict};
use svclab_model::plan::{Plan, Probe};
use svclab_planner::cluster::Cluster;

/// What became of a step.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct StepOutcome {
    /// Its name in the lab.
    pub name: String,
    /// How long it took until everybody had acted on the change, in microseconds: what
    /// svclab took to change rules that it generates itself, and what real kube-proxies
    /// took otherwise.
    pub applied_us: u64,
    /// When traffic moved, probe by probe, of those that another way is open to.
    pub moved: Vec<Moved>,
    /// What was expected, in the lab's words, if anything was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expected: Option<String>,
    /// Whether that is what came.
    pub holds: bool,
}

/// When the traffic of one probe moved.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Moved {
    /// The probe.
    pub probe: String,
    /// From the change to the first packet from which on every one went a way that there
    /// is since, in microseconds.
    pub us: u64,
    /// Where that packet went: who answered, or what became of it.
    pub to: String,
}

impl StepOutcome {
    /// When the traffic of all probes had moved.
    #[must_use]
    pub fn moved(&self) -> Option<Duration> {
        let all = self.moved.iter().map(|moved| moved.us);
        all.max().map(Duration::from_micros)
    }

    /// What was seen, in words.
    #[must_use]
    pub fn seen(&self) -> String {
        let all: Vec<String> = self
            .moved
            .iter()
            .map(|moved| {
                let after = words(Duration::from_micros(moved.us));
                format!("{} to {} after {after}", moved.probe, moved.to)
            })
            .collect();
        if all.is_empty() {
            "every probe goes as before".to_owned()
        } else {
            all.join(", ")
        }
    }
}

/// A duration as people read it: `1.02 s`, `35 ms`.
#[must_use]
pub fn words(duration: Duration) -> String {
    if duration >= Duration::from_secs(1) {
        format!("{:.2} s", duration.as_secs_f64())
    } else if duration >= Duration::from_millis(10) {
        format!("{} ms", duration.as_millis())
    } else {
        format!("{:.1} ms", duration.as_secs_f64() * 1000.0)
    }
}

/// What is known of a step.
pub struct Change<'a> {
    /// What existed before it, and what exists since.
    before: &'a Cluster,
    after: &'a Cluster,
    /// How it stands since.
    plan: &'a Plan,
    /// What was tried before it, each with its probe.
    earlier: Vec<(&'a Probe, &'a Attempt)>,
    /// What was seen, and its packets since the change.
    seen: &'a StepEvidence,
    frames: Vec<(&'a Packet, Frame)>,
}

impl<'a> Change<'a> {
    /// A step from one cluster to another, which stands as `plan` has it. `earlier` is
    /// what was tried before, each with its probe.
    #[must_use]
    pub fn new(
        (before, after): (&'a Cluster, &'a Cluster),
        plan: &'a Plan,
        earlier: Vec<(&'a Probe, &'a Attempt)>,
        seen: &'a StepEvidence,
    ) -> Self {
        let packets = seen.packets.iter().chain(&seen.evidence.packets);
        Self {
            before,
            after,
            plan,
            earlier,
            seen,
            frames: packets
                .filter(|packet| packet.time >= seen.changed)
                .filter_map(|packet| Some((packet, Frame::read(&packet.bytes)?)))
                .collect(),
        }
    }

    /// When the traffic of a probe moved that was tried after the step; none where no
    /// other way is open to it, or nothing was seen of it.
    #[must_use]
    pub fn moved(&self, probe: &Probe) -> Option<Moved> {
        let own = attempts_of(&self.seen.evidence.attempts, probe);
        let ways = Ways {
            then: answerers(self.before, probe),
            now: answerers(self.after, probe),
            earlier: self
                .earlier
                .iter()
                .filter(|(other, _)| {
                    (&other.from, other.to, other.protocol)
                        == (&probe.from, probe.to, probe.protocol)
                })
                .map(|(_, attempt)| *attempt)
                .collect(),
            own: own.clone(),
        };
        let vanished = ways.vanished();
        let scouts = attempts_of(&self.seen.scouts, probe);
        let mut all: Vec<(u64, &Attempt)> = scouts
            .into_iter()
            .chain(own)
            .filter_map(|attempt| Some((self.time(probe, attempt)?, attempt)))
            .collect();
        all.sort_by_key(|(time, _)| *time);
        let first_new = all.iter().position(|(_, attempt)| ways.is_new(attempt));
        if first_new.is_none() && !vanished {
            return None;
        }
        let after_old = all
            .iter()
            .rposition(|(_, attempt)| ways.is_old(attempt))
            .map_or(0, |last| last + 1);
        let (time, attempt) = all.get(after_old.max(first_new.unwrap_or(0)))?;
        Some(Moved {
            probe: probe.name.clone(),
            us: time.saturating_sub(self.seen.changed) / 1000,
            to: attempt
                .endpoint
                .clone()
                .unwrap_or_else(|| attempt.verdict.word().to_owned()),
        })
    }

    /// When an exchange's packet came to who answered it; of one that nobody answered
    /// when it was refused, or when it set out.
    fn time(&self, probe: &Probe, attempt: &Attempt) -> Option<u64> {
        let answered = attempt.endpoint.as_ref().and_then(|endpoint| {
            let servers = self.plan.servers.iter();
            let places: BTreeSet<&str> = servers
                .filter(|server| server.name == *endpoint)
                .map(|server| server.namespace.as_str())
                .collect();
            let source = attempt.seen_source?;
            self.first(|packet, frame| {
                packet.direction == Direction::In
                    && places.contains(packet.namespace.as_str())
                    && frame.source == source.ip()
                    && frame.ports.is_none_or(|(from, _)| from == source.port())
            })
        });
        let local = attempt.local;
        let is_local = |address, port: Option<u16>| {
            local.is_some_and(|local| {
                local.ip() == address && port.is_none_or(|port| port == local.port())
            })
        };
        let refused = || {
            self.first(|packet, frame| {
                packet.namespace == probe.from
                    && packet.direction == Direction::In
                    && refuses(frame, &is_local)
            })
        };
        let sent = || {
            self.first(|packet, frame| {
                packet.namespace == probe.from
                    && packet.direction == Direction::Out
                    && is_local(frame.source, frame.ports.map(|(from, _)| from))
            })
        };
        match attempt.verdict {
            Verdict::Refused | Verdict::Unreachable => refused().or_else(sent),
            _ => answered.or_else(sent),
        }
    }

    /// When the first packet after the change was seen that is so.
    fn first(&self, is_so: impl Fn(&Packet, &Frame) -> bool) -> Option<u64> {
        self.frames
            .iter()
            .filter(|(packet, frame)| is_so(packet, frame))
            .map(|(packet, _)| packet.time)
            .min()
    }
}

fn attempts_of<'s>(all: &'s [Attempt], probe: &Probe) -> Vec<&'s Attempt> {
    all.iter()
        .filter(|attempt| attempt.probe == probe.name)
        .collect()
}

/// Whether a packet refuses what was sent from a socket.
fn refuses(frame: &Frame, is_local: &impl Fn(std::net::IpAddr, Option<u16>) -> bool) -> bool {
    match frame.payload {
        Payload::Unreachable => frame
            .quoted
            .as_ref()
            .is_some_and(|quoted| is_local(quoted.source, quoted.ports.map(|(from, _)| from))),
        Payload::Tcp(flags) => {
            flags & pnet::packet::tcp::TcpFlags::RST != 0
                && is_local(frame.destination, frame.ports.map(|(_, to)| to))
        }
        _ => false,
    }
}

/// The ways that were open to a probe, and those that are.
struct Ways<'a> {
    /// Who could answer before, and who can now, where it calls a service.
    then: Option<BTreeSet<String>>,
    now: Option<BTreeSet<String>>,
    /// What became of the same calls before the step.
    earlier: Vec<&'a Attempt>,
    /// What became of them once it was made.
    own: Vec<&'a Attempt>,
}

impl Ways<'_> {
    /// Whether an exchange took a way that there was not before.
    fn is_new(&self, attempt: &Attempt) -> bool {
        is_foreign(attempt, self.then.as_ref(), &self.earlier)
    }

    /// Whether it took a way that there is no longer.
    fn is_old(&self, attempt: &Attempt) -> bool {
        is_foreign(attempt, self.now.as_ref(), &self.own)
    }

    /// Whether a way that was there is there no longer.
    fn vanished(&self) -> bool {
        let gone = match (&self.then, &self.now) {
            (Some(then), Some(now)) => !then.is_subset(now),
            _ => false,
        };
        gone || self.earlier.iter().any(|attempt| self.is_old(attempt))
    }
}

/// Whether an exchange fared as none can of which it is known who may answer, and what
/// became of `known`. Which endpoint answers may be drawn; what becomes of a call with
/// one, and whether any answers, is not.
fn is_foreign(attempt: &Attempt, answerers: Option<&BTreeSet<String>>, known: &[&Attempt]) -> bool {
    let Some(endpoint) = &attempt.endpoint else {
        return !known.is_empty() && known.iter().all(|one| one.verdict != attempt.verdict);
    };
    if answerers.is_some_and(|names| !names.contains(endpoint)) {
        return true;
    }
    if !known.is_empty() && known.iter().all(|one| one.endpoint.is_none()) {
        return true;
    }
    let mut alike = known
        .iter()
        .filter(|one| one.endpoint.as_ref() == Some(endpoint))
        .peekable();
    alike.peek().is_some() && alike.all(|one| keeps_source(one) != keeps_source(attempt))
}

/// Whether whoever answered saw the caller's own address; none where nobody did.
fn keeps_source(attempt: &Attempt) -> Option<bool> {
    Some(attempt.seen_source?.ip() == attempt.local?.ip())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answered(by: &str, source: &str) -> Attempt {
        Attempt {
            probe: "call".to_owned(),
            number: 0,
            verdict: Verdict::Connected,
            endpoint: Some(by.to_owned()),
            seen_source: Some(source.parse().unwrap()),
            local: Some("10.0.0.1:4000".parse().unwrap()),
            took: Duration::ZERO,
            settled: false,
            error: None,
        }
    }

    fn unanswered(verdict: Verdict) -> Attempt {
        Attempt {
            verdict,
            endpoint: None,
            seen_source: None,
            ..answered("", "10.0.0.1:4000")
        }
    }

    const KEPT: &str = "10.0.0.1:4000";
    const CHANGED: &str = "10.0.0.254:4000";

    fn names(all: &[&str]) -> BTreeSet<String> {
        all.iter().map(|&name| name.to_owned()).collect()
    }

    #[test]
    fn an_endpoint_that_may_answer_is_no_news_though_it_never_did() {
        let (a, b) = (answered("a", KEPT), answered("b", KEPT));
        let ways = Ways {
            then: Some(names(&["a", "b"])),
            now: Some(names(&["b"])),
            earlier: vec![&a],
            own: vec![&b],
        };
        assert!(!ways.is_new(&b));
        assert!(ways.vanished());
        assert!(ways.is_old(&a) && !ways.is_old(&b));
    }

    #[test]
    fn an_endpoint_that_could_not_answer_before_is_news() {
        let (a, b) = (answered("a", KEPT), answered("b", KEPT));
        let ways = Ways {
            then: Some(names(&["a"])),
            now: Some(names(&["a", "b"])),
            earlier: vec![&a],
            own: vec![&a, &b],
        };
        assert!(ways.is_new(&b) && !ways.is_new(&a));
        assert!(!ways.vanished());
    }

    #[test]
    fn another_source_and_another_end_are_news() {
        let (masked, own) = (answered("a", CHANGED), answered("a", KEPT));
        let ways = Ways {
            then: Some(names(&["a"])),
            now: Some(names(&["a"])),
            earlier: vec![&masked],
            own: vec![&own],
        };
        assert!(ways.is_new(&own) && ways.is_old(&masked));
        let refused = unanswered(Verdict::Refused);
        let ways = Ways {
            then: Some(names(&["a"])),
            now: Some(names(&[])),
            earlier: vec![&masked],
            own: vec![&refused],
        };
        assert!(ways.is_new(&refused) && ways.vanished());
        // And back again.
        let ways = Ways {
            then: Some(names(&[])),
            now: Some(names(&["a"])),
            earlier: vec![&refused],
            own: vec![&own],
        };
        assert!(ways.is_new(&own) && ways.is_old(&refused));
    }

    #[test]
    fn nothing_is_news_where_nothing_changes() {
        let (a, b) = (answered("a", KEPT), answered("b", KEPT));
        let ways = Ways {
            then: Some(names(&["a", "b"])),
            now: Some(names(&["a", "b"])),
            earlier: vec![&a],
            own: vec![&b],
        };
        assert!(!ways.vanished() && !ways.is_new(&b));
        // Of whom nothing is known nothing is said.
        let ways = Ways {
            then: None,
            now: None,
            earlier: vec![&a],
            own: vec![&b],
        };
        assert!(!ways.vanished() && !ways.is_new(&b));
    }

    #[test]
    fn times_are_told_as_people_read_them() {
        let told = |micros| words(Duration::from_micros(micros));
        assert_eq!(told(1_234_000), "1.23 s");
        assert_eq!(told(87_600), "87 ms");
        assert_eq!(told(1_240), "1.2 ms");
    }
}
