//! Measures when the traffic of a probe shifts after a step: the delay from the change to the first
//! packet after which every attempt has a result that is possible after the step. A shift requires
//! a result that was not possible before, or one that is no longer possible.

use std::collections::BTreeSet;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::paths::answerers;
use svclab_journey::{Frame, Payload};
use svclab_model::evidence::{Attempt, Direction, Packet, StepEvidence, Verdict};
use svclab_model::plan::{Plan, Probe};
use svclab_planner::cluster::Cluster;

/// Result of a step.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct StepOutcome {
    /// Name of the step in the lab.
    pub name: String,
    /// Duration in microseconds until all programs had applied the change. For rules that svclab
    /// generates, the time that svclab needed; otherwise the time that real kube-proxies needed.
    pub applied_us: u64,
    /// Traffic shifts of the probes that the step affects.
    pub moved: Vec<Moved>,
    /// Expectation as text; absent if the lab states none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expected: Option<String>,
    /// Whether the expectation is met.
    pub holds: bool,
}

/// Traffic shift of one probe after a step.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Moved {
    /// Name of the probe.
    pub probe: String,
    /// Delay from the change to the first packet after which every attempt has a result that is
    /// possible since the change, in microseconds.
    pub us: u64,
    /// Endpoint that answered this packet; its verdict if no endpoint answered.
    pub to: String,
}

impl StepOutcome {
    /// Returns the delay until the traffic of all probes had shifted. `None` if no traffic shifted.
    #[must_use]
    pub fn moved(&self) -> Option<Duration> {
        let all = self.moved.iter().map(|moved| moved.us);
        all.max().map(Duration::from_micros)
    }

    /// Describes the traffic shifts.
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

/// Renders a duration, such as `1.02 s` or `35 ms`.
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

/// Clusters, attempts and packets of one step.
pub struct Change<'a> {
    /// Clusters before and after the step.
    before: &'a Cluster,
    after: &'a Cluster,
    /// Plan after the step.
    plan: &'a Plan,
    /// Attempts before the step, each with its probe.
    earlier: Vec<(&'a Probe, &'a Attempt)>,
    /// Evidence of the step, and its packets since the change.
    seen: &'a StepEvidence,
    frames: Vec<(&'a Packet, Frame)>,
}

impl<'a> Change<'a> {
    /// Creates the context of a step between two clusters. `plan` is the plan after the step.
    /// `earlier` holds the attempts before the step, each with its probe.
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

    /// Returns the traffic shift of a probe that ran after the step. `None` if the step changed
    /// nothing for the probe, or if no attempt with a new result was captured.
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

    /// Returns the time at which the packet of an attempt reached the endpoint that answered.
    /// Without an answer: the time of the rejection, or of sending.
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

    /// Returns the time of the first matching packet after the change.
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

/// Whether a packet rejects a packet sent from the socket.
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

/// Results of a probe before and after a step.
struct Ways<'a> {
    /// Possible endpoints before and after the step; `None` if the target is no service.
    then: Option<BTreeSet<String>>,
    now: Option<BTreeSet<String>>,
    /// Attempts with the same addresses before the step.
    earlier: Vec<&'a Attempt>,
    /// Attempts of the probe after the step.
    own: Vec<&'a Attempt>,
}

impl Ways<'_> {
    /// Whether an attempt has a result that was not possible before the step.
    fn is_new(&self, attempt: &Attempt) -> bool {
        is_foreign(attempt, self.then.as_ref(), &self.earlier)
    }

    /// Whether an attempt has a result that is not possible after the step.
    fn is_old(&self, attempt: &Attempt) -> bool {
        is_foreign(attempt, self.now.as_ref(), &self.own)
    }

    /// Whether a result that was possible before the step is not possible after the step.
    fn vanished(&self) -> bool {
        let gone = match (&self.then, &self.now) {
            (Some(then), Some(now)) => !then.is_subset(now),
            _ => false,
        };
        gone || self.earlier.iter().any(|attempt| self.is_old(attempt))
    }
}

/// Whether the result of an attempt is not possible, given the possible endpoints and other
/// attempts. The choice of the endpoint may be random. The verdict for one endpoint, and whether
/// any endpoint answers, are not random.
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

/// Whether the endpoint received the source address unchanged; `None` if no endpoint reported a
/// source.
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
        // The reverse step.
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
        // Without possible endpoints, nothing is new or old.
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
