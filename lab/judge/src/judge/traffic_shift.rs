//! Measures when the traffic of a probe shifts after a step: the delay from the change to the first
//! packet after which every attempt has a result that is possible after the step. A shift requires
//! a result that was not possible before, or one that is no longer possible.

use std::collections::BTreeSet;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::paths::possible_endpoints;
use svclab_journey::{Frame, Payload};
use svclab_model::evidence::{Attempt, Direction, Packet, StageEvidence, StepEvidence, Verdict};
use svclab_model::plan::{Plan, Probe};
use svclab_planner::cluster::Cluster;

/// Traffic shift of one probe after a step.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TrafficShift {
    /// Name of the probe.
    pub probe: String,
    /// Delay from the change to the first packet after which every attempt has a result that is
    /// possible since the change, in microseconds.
    pub delay_us: u64,
    /// Endpoint that answered this packet; its verdict if no endpoint answered.
    pub to: String,
}

/// Shift of the traffic of one probe.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ProbeShift {
    /// The step changed nothing for the probe, or no attempt with a new result was captured.
    Unaffected,
    /// The traffic moved.
    Moved(TrafficShift),
    /// The last attempt had a result that is not possible after the step.
    NotMoved,
}

/// Renders a duration, such as `1.02 s` or `35 ms`.
#[must_use]
pub fn render_duration(duration: Duration) -> String {
    if duration >= Duration::from_secs(1) {
        format!("{:.2} s", duration.as_secs_f64())
    } else if duration >= Duration::from_millis(10) {
        format!("{} ms", duration.as_millis())
    } else {
        format!("{:.1} ms", duration.as_secs_f64() * 1000.0)
    }
}

/// Clusters, attempts and packets of one step.
pub(super) struct StepContext<'a> {
    /// Clusters before and after the step.
    before: &'a Cluster,
    after: &'a Cluster,
    /// Plan after the step.
    plan: &'a Plan,
    /// Attempts before the step, each with its probe.
    earlier: Vec<(&'a Probe, &'a Attempt)>,
    /// Evidence of the stage and of its step, and the packets since the change.
    seen: &'a StageEvidence,
    step: &'a StepEvidence,
    frames: Vec<(&'a Packet, Frame)>,
}

impl<'a> StepContext<'a> {
    /// Creates the context of a step between two clusters. `plan` is the plan after the step.
    /// `earlier` holds the attempts before the step, each with its probe.
    pub(super) fn new(
        (before, after): (&'a Cluster, &'a Cluster),
        plan: &'a Plan,
        earlier: Vec<(&'a Probe, &'a Attempt)>,
        seen: &'a StageEvidence,
        step: &'a StepEvidence,
    ) -> Self {
        let packets = step.packets.iter().chain(&seen.packets);
        Self {
            before,
            after,
            plan,
            earlier,
            seen,
            step,
            frames: packets
                .filter(|packet| packet.time >= step.changed_at)
                .filter_map(|packet| Some((packet, Frame::from_ethernet(&packet.bytes)?)))
                .collect(),
        }
    }

    /// Returns the traffic shift of a probe that ran after the step.
    pub(super) fn traffic_shift(&self, probe: &Probe) -> ProbeShift {
        let attempts = attempts_of(&self.seen.attempts, probe);
        let before_after = BeforeAfter {
            endpoints_before: possible_endpoints(self.before, probe),
            endpoints_after: possible_endpoints(self.after, probe),
            earlier: self
                .earlier
                .iter()
                .filter(|(earlier_probe, _)| {
                    (
                        &earlier_probe.namespace,
                        earlier_probe.target,
                        earlier_probe.protocol,
                    ) == (&probe.namespace, probe.target, probe.protocol)
                })
                .map(|(_, attempt)| *attempt)
                .collect(),
            later: attempts.clone(),
        };
        let has_vanished = before_after.has_vanished();
        let scouts = attempts_of(&self.step.convergence_attempts, probe);
        let mut attempts_by_time: Vec<(u64, &Attempt)> = scouts
            .into_iter()
            .chain(attempts)
            .filter_map(|attempt| Some((self.attempt_time(probe, attempt)?, attempt)))
            .collect();
        attempts_by_time.sort_by_key(|(time, _)| *time);
        let first_new = attempts_by_time
            .iter()
            .position(|(_, attempt)| before_after.is_new(attempt));
        if first_new.is_none() && !has_vanished {
            return ProbeShift::Unaffected;
        }
        let after_old = attempts_by_time
            .iter()
            .rposition(|(_, attempt)| before_after.is_old(attempt))
            .map_or(0, |last| last + 1);
        let first_moved = after_old.max(first_new.unwrap_or(0));
        let Some((time, attempt)) = attempts_by_time.get(first_moved) else {
            let is_last_old = after_old > 0 && after_old == attempts_by_time.len();
            return if is_last_old {
                ProbeShift::NotMoved
            } else {
                ProbeShift::Unaffected
            };
        };
        ProbeShift::Moved(TrafficShift {
            probe: probe.name.clone(),
            delay_us: time.saturating_sub(self.step.changed_at) / 1000,
            to: attempt
                .endpoint
                .clone()
                .unwrap_or_else(|| attempt.verdict.name().to_owned()),
        })
    }

    /// Returns the time at which the packet of an attempt reached the endpoint that answered.
    /// Without an answer: the time of the rejection, or of sending.
    fn attempt_time(&self, probe: &Probe, attempt: &Attempt) -> Option<u64> {
        let answer_time = attempt.endpoint.as_ref().and_then(|endpoint| {
            let servers = self.plan.servers.iter();
            let namespaces: BTreeSet<&str> = servers
                .filter(|server| server.name == *endpoint)
                .map(|server| server.namespace.as_str())
                .collect();
            let source = attempt.seen_source?;
            self.first_time(|packet, frame| {
                packet.direction == Direction::In
                    && namespaces.contains(packet.namespace.as_str())
                    && frame.source == source.ip()
                    && frame.ports.is_none_or(|(from, _)| from == source.port())
            })
        });
        let local = attempt.local_address;
        let is_local = |address, port: Option<u16>| {
            local.is_some_and(|local| {
                local.ip() == address && port.is_none_or(|port| port == local.port())
            })
        };
        let rejection_time = || {
            self.first_time(|packet, frame| {
                packet.namespace == probe.namespace
                    && packet.direction == Direction::In
                    && is_rejection(frame, &is_local)
            })
        };
        let sent_time = || {
            self.first_time(|packet, frame| {
                packet.namespace == probe.namespace
                    && packet.direction == Direction::Out
                    && is_local(frame.source, frame.ports.map(|(from, _)| from))
            })
        };
        match attempt.verdict {
            Verdict::Refused | Verdict::Unreachable => rejection_time().or_else(sent_time),
            _ => answer_time.or_else(sent_time),
        }
    }

    /// Returns the time of the first matching packet after the change.
    fn first_time(&self, is_match: impl Fn(&Packet, &Frame) -> bool) -> Option<u64> {
        self.frames
            .iter()
            .filter(|(packet, frame)| is_match(packet, frame))
            .map(|(packet, _)| packet.time)
            .min()
    }
}

fn attempts_of<'s>(attempts: &'s [Attempt], probe: &Probe) -> Vec<&'s Attempt> {
    attempts
        .iter()
        .filter(|attempt| attempt.probe == probe.name)
        .collect()
}

/// Whether a packet rejects a packet sent from the socket.
fn is_rejection(frame: &Frame, is_local: &impl Fn(std::net::IpAddr, Option<u16>) -> bool) -> bool {
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
struct BeforeAfter<'a> {
    /// Possible endpoints before and after the step; `None` if the target is no service.
    endpoints_before: Option<BTreeSet<String>>,
    endpoints_after: Option<BTreeSet<String>>,
    /// Attempts with the same addresses before the step.
    earlier: Vec<&'a Attempt>,
    /// Attempts of the probe after the step.
    later: Vec<&'a Attempt>,
}

impl BeforeAfter<'_> {
    /// Whether an attempt has a result that was not possible before the step.
    fn is_new(&self, attempt: &Attempt) -> bool {
        is_impossible_result(attempt, self.endpoints_before.as_ref(), &self.earlier)
    }

    /// Whether an attempt has a result that is not possible after the step.
    fn is_old(&self, attempt: &Attempt) -> bool {
        is_impossible_result(attempt, self.endpoints_after.as_ref(), &self.later)
    }

    /// Whether a result that was possible before the step is not possible after the step.
    fn has_vanished(&self) -> bool {
        let has_lost_endpoint = match (&self.endpoints_before, &self.endpoints_after) {
            (Some(then), Some(now)) => !then.is_subset(now),
            _ => false,
        };
        has_lost_endpoint || self.earlier.iter().any(|attempt| self.is_old(attempt))
    }
}

/// Whether the result of an attempt is not possible, given the possible endpoints and other
/// attempts. The choice of the endpoint may be random. The verdict for one endpoint, and whether
/// any endpoint answers, are not random.
fn is_impossible_result(
    attempt: &Attempt,
    endpoints: Option<&BTreeSet<String>>,
    attempts: &[&Attempt],
) -> bool {
    let Some(endpoint) = &attempt.endpoint else {
        return !attempts.is_empty() && attempts.iter().all(|one| one.verdict != attempt.verdict);
    };
    if endpoints.is_some_and(|names| !names.contains(endpoint)) {
        return true;
    }
    if !attempts.is_empty() && attempts.iter().all(|one| one.endpoint.is_none()) {
        return true;
    }
    let mut same_endpoint = attempts
        .iter()
        .filter(|one| one.endpoint.as_ref() == Some(endpoint))
        .peekable();
    same_endpoint.peek().is_some()
        && same_endpoint.all(|one| is_source_kept(one) != is_source_kept(attempt))
}

/// Whether the endpoint received the source address unchanged; `None` if no endpoint reported a
/// source.
fn is_source_kept(attempt: &Attempt) -> Option<bool> {
    Some(attempt.seen_source?.ip() == attempt.local_address?.ip())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answered_attempt(by: &str, source: &str) -> Attempt {
        Attempt {
            idle: None,
            probe: "call".to_owned(),
            index: 0,
            verdict: Verdict::Connected,
            endpoint: Some(by.to_owned()),
            seen_source: Some(source.parse().unwrap()),
            further_answers: Vec::new(),
            progress: None,
            local_address: Some("10.0.0.1:4000".parse().unwrap()),
            duration: Duration::ZERO,
            settled: false,
            error: None,
        }
    }

    fn unanswered_attempt(verdict: Verdict) -> Attempt {
        Attempt {
            verdict,
            endpoint: None,
            seen_source: None,
            further_answers: Vec::new(),
            progress: None,
            ..answered_attempt("", "10.0.0.1:4000")
        }
    }

    const KEPT: &str = "10.0.0.1:4000";
    const CHANGED: &str = "10.0.0.254:4000";

    fn names(texts: &[&str]) -> BTreeSet<String> {
        texts.iter().map(|&name| name.to_owned()).collect()
    }

    #[test]
    fn before_after_possible_endpoint_is_not_new() {
        let (a, b) = (answered_attempt("a", KEPT), answered_attempt("b", KEPT));
        let ways = BeforeAfter {
            endpoints_before: Some(names(&["a", "b"])),
            endpoints_after: Some(names(&["b"])),
            earlier: vec![&a],
            later: vec![&b],
        };
        assert!(!ways.is_new(&b));
        assert!(ways.has_vanished());
        assert!(ways.is_old(&a) && !ways.is_old(&b));
    }

    #[test]
    fn before_after_added_endpoint_is_new() {
        let (a, b) = (answered_attempt("a", KEPT), answered_attempt("b", KEPT));
        let ways = BeforeAfter {
            endpoints_before: Some(names(&["a"])),
            endpoints_after: Some(names(&["a", "b"])),
            earlier: vec![&a],
            later: vec![&a, &b],
        };
        assert!(ways.is_new(&b) && !ways.is_new(&a));
        assert!(!ways.has_vanished());
    }

    #[test]
    fn before_after_other_source_or_verdict_is_new() {
        let (masked, kept) = (answered_attempt("a", CHANGED), answered_attempt("a", KEPT));
        let ways = BeforeAfter {
            endpoints_before: Some(names(&["a"])),
            endpoints_after: Some(names(&["a"])),
            earlier: vec![&masked],
            later: vec![&kept],
        };
        assert!(ways.is_new(&kept) && ways.is_old(&masked));
        let refused = unanswered_attempt(Verdict::Refused);
        let ways = BeforeAfter {
            endpoints_before: Some(names(&["a"])),
            endpoints_after: Some(names(&[])),
            earlier: vec![&masked],
            later: vec![&refused],
        };
        assert!(ways.is_new(&refused) && ways.has_vanished());
        // The reverse step.
        let ways = BeforeAfter {
            endpoints_before: Some(names(&[])),
            endpoints_after: Some(names(&["a"])),
            earlier: vec![&refused],
            later: vec![&kept],
        };
        assert!(ways.is_new(&kept) && ways.is_old(&refused));
    }

    #[test]
    fn before_after_no_change_is_not_new() {
        let (a, b) = (answered_attempt("a", KEPT), answered_attempt("b", KEPT));
        let ways = BeforeAfter {
            endpoints_before: Some(names(&["a", "b"])),
            endpoints_after: Some(names(&["a", "b"])),
            earlier: vec![&a],
            later: vec![&b],
        };
        assert!(!ways.has_vanished() && !ways.is_new(&b));
        // Without possible endpoints, nothing is new or old.
        let ways = BeforeAfter {
            endpoints_before: None,
            endpoints_after: None,
            earlier: vec![&a],
            later: vec![&b],
        };
        assert!(!ways.has_vanished() && !ways.is_new(&b));
    }

    #[test]
    fn duration_units_follow_magnitude() {
        let rendered = |micros| render_duration(Duration::from_micros(micros));
        assert_eq!(rendered(1_234_000), "1.23 s");
        assert_eq!(rendered(87_600), "87 ms");
        assert_eq!(rendered(1_240), "1.2 ms");
    }
}
