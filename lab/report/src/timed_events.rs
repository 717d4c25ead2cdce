//! Finds what happened in a case besides the packets of its probes: steps, health checks, drops and
//! lines of logs, with their times.

use std::collections::BTreeSet;

use indexmap::IndexMap;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::text::count;
use svclab_journey::Frame;
use svclab_journey::journey::Journey;
use svclab_model::evidence::{
    DropEvidence, Evidence, Packet, PacketKind, StageEvidence, StepEvidence,
};
use svclab_model::plan::HealthCheck;

/// Maximum number of events of one kind that are kept.
const MAX_EVENTS: usize = 200;

/// Maximum length of an event's text in characters.
const MAX_TEXT: usize = 300;

const MINUTE: i64 = 60_000_000_000;
const DAY: i64 = 24 * 60 * MINUTE;

/// Time zones differ by multiples of this time.
const ZONE: i64 = 15 * MINUTE;

/// Events of a case, in order of time.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct TimedEvents {
    /// Events in order of time.
    pub events: Vec<TimedEvent>,
    /// Number of further events that are not kept.
    pub omitted: usize,
}

/// Event with its time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct TimedEvent {
    /// Nanoseconds since the epoch, on the same clock as packets.
    pub time: u64,
    /// End of an event that lasts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<u64>,
    /// Kind of the event.
    pub kind: EventKind,
    /// Namespace or program of the event; empty for a step.
    pub source: String,
    /// Description of the event.
    pub text: String,
}

/// Kind of an event.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "camelCase")]
pub(crate) enum EventKind {
    /// Step of the lab: from the change until all programs have applied it.
    Step,
    /// Health check of a load balancer.
    HealthCheck,
    /// Packets that the kernel reported as dropped in one place for one reason.
    Drop,
    /// Line of a program's log.
    Log,
}

impl TimedEvents {
    /// Finds the events of a case. `journeys` are those of each stage.
    pub(crate) fn new(
        evidence: &Evidence,
        checks: &[HealthCheck],
        journeys: &[Vec<Journey>],
    ) -> Self {
        let steps: Vec<TimedEvent> = evidence.steps().map(step).collect();
        let stages = evidence.stages.iter().zip(journeys);
        let health = stages.flat_map(|(stage, journeys)| health_checks(stage, checks, journeys));
        let drops = evidence.stages.iter().flat_map(drops);
        let start = start(evidence);
        let logs = evidence.logs.iter();
        let lines = logs.flat_map(|(program, text)| {
            let lines = text.lines();
            lines.filter_map(move |line| log_line(program, line, start?))
        });
        let mut found = Self::default();
        for kind in [steps, health.collect(), drops.collect(), lines.collect()] {
            found.omitted += kind.len().saturating_sub(MAX_EVENTS);
            found.events.extend(kind.into_iter().take(MAX_EVENTS));
        }
        found.events.sort_by_key(|event| event.time);
        found
    }
}

/// Returns the time of the first packet or step.
fn start(evidence: &Evidence) -> Option<u64> {
    let stages = evidence.stages.iter();
    let packets = stages.filter_map(|stage| stage.packets.first().map(|packet| packet.time));
    packets
        .chain(evidence.steps().map(|step| step.changed_at))
        .min()
}

fn step(step: &StepEvidence) -> TimedEvent {
    TimedEvent {
        time: step.changed_at,
        until: Some(step.applied_at),
        kind: EventKind::Step,
        source: String::new(),
        text: step.name.clone(),
    }
}

/// Finds the connections of health checks: those to a checked backend that belong to no probe.
fn health_checks(
    stage: &StageEvidence,
    checks: &[HealthCheck],
    journeys: &[Journey],
) -> Vec<TimedEvent> {
    if checks.is_empty() {
        return Vec::new();
    }
    let hops = journeys.iter().flat_map(|journey| &journey.packets);
    let crossings = hops.flat_map(|packet| packet.hops.iter().flat_map(|hop| &hop.crossings));
    let of_probes: BTreeSet<usize> = crossings.map(|crossing| crossing.packet).collect();
    let others = stage.packets.iter().enumerate();
    let frames: Vec<(&Packet, Frame)> = others
        .filter(|(index, _)| !of_probes.contains(index))
        .filter_map(|(_, packet)| Some((packet, Frame::from_ethernet(&packet.bytes)?)))
        .collect();
    let opening = frames
        .iter()
        .filter(|(_, frame)| frame.has_kind(PacketKind::Syn));
    let checked = opening.filter_map(|(packet, frame)| {
        let (own_port, port) = frame.ports?;
        let check = checks.iter().find(|check| {
            check.namespace == packet.namespace
                && (check.backend.ip(), check.backend.port()) == (frame.destination, port)
        })?;
        let mut replies = frames.iter().filter(|(reply, answer)| {
            reply.namespace == packet.namespace
                && answer.source == frame.destination
                && answer.ports == Some((port, own_port))
        });
        let outcome = match replies.next() {
            Some((_, reply)) if reply.has_kind(PacketKind::SynAck) => "connected",
            Some(_) => "refused",
            None => "no reply",
        };
        Some(TimedEvent {
            time: packet.time,
            until: None,
            kind: EventKind::HealthCheck,
            source: packet.namespace.clone(),
            text: format!("health check of {}: {outcome}", check.backend),
        })
    });
    checked.collect()
}

/// Finds the drops of a stage. Drops in one place for one reason are one event.
fn drops(stage: &StageEvidence) -> Vec<TimedEvent> {
    let DropEvidence::Watched { dropped, .. } = &stage.drops else {
        return Vec::new();
    };
    let mut groups: IndexMap<(&str, &str, Option<&str>), Vec<u64>> = IndexMap::new();
    for packet in dropped {
        let function = packet.function.as_deref();
        let place = (packet.namespace.as_str(), packet.reason.as_str(), function);
        groups.entry(place).or_default().push(packet.time);
    }
    let events = groups
        .into_iter()
        .map(|((source, reason, function), times)| {
            let place = function.map_or_else(String::new, |function| format!(" in {function}"));
            let packets = count(times.len(), "packet", "packets");
            TimedEvent {
                time: times.iter().copied().min().unwrap_or(0),
                until: times.iter().copied().max().filter(|_| times.len() > 1),
                kind: EventKind::Drop,
                source: source.to_owned(),
                text: format!("the kernel dropped {packets}: {reason}{place}"),
            }
        });
    events.collect()
}

/// Reads a line of a log with the time that Kubernetes components write. `near` is a time of the
/// case, in nanoseconds since the epoch. `None` for other lines.
fn log_line(program: &str, line: &str, near: u64) -> Option<TimedEvent> {
    let time_of_day = klog_time(line)?;
    let near = i64::try_from(near).ok()?;
    // The line has no year, and the time of an unknown zone. It is close to the case.
    let difference = (time_of_day - near).rem_euclid(ZONE);
    let difference = if difference > ZONE / 2 {
        difference - ZONE
    } else {
        difference
    };
    Some(TimedEvent {
        time: u64::try_from(near + difference).ok()?,
        until: None,
        kind: EventKind::Log,
        source: program.to_owned(),
        text: line.chars().take(MAX_TEXT).collect(),
    })
}

/// Parses the time of day of a line such as `I1126 12:30:15.123456 17 server.go:20] text`, in
/// nanoseconds (kubernetes/klog v2.130.1, `klog.go`, header of a line).
fn klog_time(line: &str) -> Option<i64> {
    let mut words = line.split_ascii_whitespace();
    let (date, time) = (words.next()?, words.next()?);
    let digits = date.strip_prefix(['I', 'W', 'E', 'F'])?;
    if digits.len() != 4 || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let (clock, micros) = time.split_once('.')?;
    let number = |text: &str, digits: usize| {
        let is_number = text.len() == digits && text.bytes().all(|byte| byte.is_ascii_digit());
        is_number.then(|| text.parse::<i64>().ok()).flatten()
    };
    let mut parts = clock.split(':').map(|part| number(part, 2));
    let (hours, minutes, seconds) = (parts.next()??, parts.next()??, parts.next()??);
    let nanos = seconds * 1_000_000_000 + number(micros, 6)? * 1000;
    (parts.next().is_none()).then_some((hours * 60 + minutes) * MINUTE % DAY + nanos)
}

#[cfg(test)]
mod tests {
    use super::*;
    use svclab_model::evidence::DroppedPacket;

    #[test]
    fn klog_line_gets_time_near_case() {
        // 2026-11-26 12:30:00 UTC.
        let near: u64 = 1_795_696_200_000_000_000;
        let line = |time: &str| format!("I1126 {time} 17 server.go:20] \"text\"");
        let found = |time: &str| log_line("kube-proxy of node-1", &line(time), near);
        assert_eq!(found("12:30:01.500000").unwrap().time, near + 1_500_000_000);
        assert_eq!(found("12:29:59.000001").unwrap().time, near - 999_999_000);
        // Another time zone.
        assert_eq!(found("18:00:02.000000").unwrap().time, near + 2_000_000_000);
        assert_eq!(found("07:15:02.000000").unwrap().time, near + 2_000_000_000);
    }

    #[test]
    fn other_lines_have_no_time() {
        for line in [
            "",
            "I1126",
            "starting at 12:30:01.500000",
            "I112x 12:30:01.500000 text",
            "I1126 12:30 text",
            "I1126 1:30:01.500000 text",
            "I1126 12:30:01.5 text",
            "I1126 12:30:01:02.500000 text",
            "I1126 +2:30:01.500000 text",
        ] {
            assert_eq!(klog_time(line), None, "{line}");
        }
        assert_eq!(klog_time("E0101 00:00:00.000001 1 x.go:1] t"), Some(1000));
    }

    #[test]
    fn drops_in_one_place_are_one_event() {
        let drop = |time, reason: &str| DroppedPacket {
            time,
            namespace: "node-1".to_owned(),
            interface: None,
            reason: reason.to_owned(),
            function: Some("ip_rcv".to_owned()),
            packet: Vec::new(),
        };
        let dropped = vec![
            drop(5, "IP_RPFILTER"),
            drop(6, "NO_SOCKET"),
            drop(9, "IP_RPFILTER"),
        ];
        let stage = StageEvidence {
            drops: DropEvidence::Watched { missed: 0, dropped },
            ..StageEvidence::default()
        };
        let found = drops(&stage);
        let found: Vec<_> = found
            .iter()
            .map(|event| (event.time, event.until, &*event.text))
            .collect();
        let several = "the kernel dropped 2 packets: IP_RPFILTER in ip_rcv";
        let one = "the kernel dropped 1 packet: NO_SOCKET in ip_rcv";
        assert_eq!(found, [(5, Some(9), several), (6, None, one)]);
    }

    #[test]
    fn events_beyond_limit_are_counted() {
        let lines: Vec<String> = (0..300)
            .map(|number| format!("I1126 12:30:01.{number:06} 17 server.go:20] \"text\""))
            .collect();
        let stage = StageEvidence {
            step: Some(StepEvidence {
                name: "scale".to_owned(),
                changed_at: 1_795_696_200_000_000_000,
                applied_at: 1_795_696_200_100_000_000,
                ..StepEvidence::default()
            }),
            ..StageEvidence::default()
        };
        let evidence = Evidence {
            stages: vec![stage],
            logs: [("kube-proxy".to_owned(), lines.join("\n"))].into(),
            ..Evidence::default()
        };
        let found = TimedEvents::new(&evidence, &[], &[]);
        assert_eq!((found.events.len(), found.omitted), (201, 100));
        assert_eq!(found.events[0].kind, EventKind::Step);
        assert_eq!(found.events[0].text, "scale");
    }
}
