//! Describes the outcome of a run without values that two kernels may choose differently: times,
//! ephemeral ports, numbers of retransmissions, and random choices.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::IpAddr;

use ipnetwork::IpNetwork;
use svclab_journey::Frame;
use svclab_judge::Judgement;
use svclab_model::evidence::PacketKind;
use svclab_model::evidence::{Attempt, Direction, StageEvidence};
use svclab_model::plan::{EvidenceRequest, LinkKind, Plan};
use svclab_report::results::CheckDocument;
use svclab_ruleset::input::Input;
use svclab_runner::run::Prepared;

/// UDP port of VXLAN.
const VXLAN: u16 = 8472;

/// Counters of a namespace that grow for reasons other than time.
const COUNTERS: [&str; 9] = [
    "IcmpInDestUnreachs",
    "IcmpInEchos",
    "IcmpOutDestUnreachs",
    "IcmpOutEchoReps",
    "IpForwDatagrams",
    "IpInAddrErrors",
    "IpOutNoRoutes",
    "TcpExtIPReversePathFilter",
    "UdpNoPorts",
];

/// Number of occurrences, as far as two runs must agree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Occurrences {
    /// Exact number, which the plan alone determines.
    Exactly(u64),
    /// At least once: timing or chance affects the number.
    AtLeastOnce,
    Never,
}

impl fmt::Display for Occurrences {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exactly(times) => write!(f, "× {times}"),
            Self::AtLeastOnce => f.write_str("at least once"),
            Self::Never => f.write_str("never"),
        }
    }
}

/// Outcome of a run, one statement a line.
#[derive(Debug, PartialEq, Eq)]
pub struct RunOutcome(pub BTreeSet<String>);

/// Adds full evidence of packets, counters and rules to the plan.
pub fn with_full_evidence(mut prepared: Prepared) -> Prepared {
    let namespaces: Vec<String> = prepared
        .plan
        .namespaces
        .iter()
        .map(|namespace| namespace.name.clone())
        .collect();
    prepared.plan.evidence = EvidenceRequest {
        packets: namespaces.clone(),
        counters: namespaces.clone(),
        rules: namespaces,
        // Other evidence stays as the case requests it.
        ..prepared.plan.evidence
    };
    prepared
}

impl RunOutcome {
    /// Describes one run of a case.
    pub fn new(prepared: &Prepared, judgement: &Judgement, evidence: &StageEvidence) -> Self {
        assert_eq!(evidence.packets_missed, 0, "{}", prepared.case.id);
        let plan = &prepared.plan;
        let ground = RunContext::from_evidence(plan, evidence);
        let mut lines = BTreeSet::new();
        for check in judgement.checks() {
            let check = CheckDocument::from(check);
            lines.insert(format!(
                "check {}: {}: {}",
                check.target, check.expected, check.holds
            ));
        }
        for claim in &judgement.claims {
            lines.insert(format!(
                "claim {} {:?} {:?}",
                claim.id, claim.verdict, claim.part
            ));
        }
        lines.extend(describe_verdicts(prepared, judgement));
        lines.extend(
            evidence
                .attempts
                .iter()
                .map(|each| ground.describe_attempt(each)),
        );
        lines.extend(ground.describe_packets(evidence));
        lines.extend(describe_counters(evidence));
        lines.extend(ground.describe_rules(evidence));
        Self(lines)
    }
}

/// Counts the attempts of each probe by verdict; without the number where chance decides.
fn describe_verdicts(prepared: &Prepared, judgement: &Judgement) -> Vec<String> {
    let mut lines = Vec::new();
    for probe in judgement.probes() {
        let row = &prepared.case.expected().expected.probes[&probe.name];
        for (verdict, count) in &probe.observed.verdicts {
            let exact = row.verdicts().iter().any(|(name, expected)| {
                *name == verdict.name()
                    && expected.is_some_and(|range| range.max() == Some(range.min()))
            });
            let occurrences = if exact {
                Occurrences::Exactly(u64::from(*count))
            } else {
                Occurrences::AtLeastOnce
            };
            lines.push(format!("probe {}: {verdict} {occurrences}", probe.name));
        }
    }
    lines
}

/// Lists the counters of each namespace that grew.
fn describe_counters(evidence: &StageEvidence) -> Vec<String> {
    let mut lines = Vec::new();
    for (namespace, grown) in &evidence.counters {
        for counter in COUNTERS.iter().filter(|name| grown.contains_key(**name)) {
            lines.push(format!("counter {namespace} {counter} grew"));
        }
    }
    lines
}

/// Properties of a run that determine how exactly it can be compared.
struct RunContext {
    /// Whether rules choose endpoints at random.
    random: bool,
    /// Whether load balancers send health checks during the run.
    health_checks: bool,
    /// Whether every request got a reply. Otherwise the number of retransmissions depends on time.
    all_answered: bool,
    /// Ports of servers; a kernel picked all others.
    server_ports: BTreeSet<u16>,
    /// Addresses of servers.
    server_addresses: BTreeSet<IpAddr>,
    /// Addresses from which load balancers send health checks.
    health_check_sources: BTreeSet<IpAddr>,
    /// Addresses of probe sources that are neither servers nor nodes.
    probe_sources: BTreeSet<IpAddr>,
}

impl RunContext {
    fn from_evidence(plan: &Plan, evidence: &StageEvidence) -> Self {
        let mut server_ports: BTreeSet<u16> =
            plan.servers.iter().map(|server| server.port).collect();
        server_ports.extend(plan.probes().map(|probe| probe.target.port));
        server_ports.insert(VXLAN);
        let pods: BTreeSet<&str> = plan
            .servers
            .iter()
            .map(|server| server.namespace.as_str())
            .filter(|name| name.starts_with("pod/"))
            .collect();
        let callers: BTreeSet<&str> = plan
            .probes()
            .map(|probe| probe.namespace.as_str())
            .filter(|name| name.contains('/') && !pods.contains(name))
            .collect();
        let addresses = |names: &BTreeSet<&str>| -> BTreeSet<IpAddr> {
            plan.namespaces
                .iter()
                .filter(|namespace| names.contains(namespace.name.as_str()))
                .flat_map(|namespace| &namespace.links)
                .flat_map(|link| link.addresses.iter().map(IpNetwork::ip))
                .collect()
        };
        Self {
            random: plan
                .namespaces
                .iter()
                .filter_map(|namespace| namespace.iptables.as_ref())
                .any(|rules| {
                    let has_draw = |rules: &Input<_>| rules.text().contains("-m statistic");
                    has_draw(&rules.v4) || has_draw(&rules.v6)
                }),
            health_checks: !plan.health.is_empty(),
            all_answered: evidence
                .attempts
                .iter()
                .all(|attempt| !attempt.verdict.is_unanswered()),
            server_ports,
            server_addresses: addresses(&pods),
            probe_sources: addresses(&callers),
            health_check_sources: plan
                .namespaces
                .iter()
                .filter(|namespace| {
                    let mut checks = plan.health.iter();
                    checks.any(|check| check.namespace == namespace.name)
                })
                .flat_map(|namespace| &namespace.links)
                // Load balancers answer on addresses of another interface type.
                .filter(|link| link.kind != LinkKind::Dummy)
                .flat_map(|link| link.addresses.iter().map(IpNetwork::ip))
                .collect(),
        }
    }

    /// Describes an attempt. Omits its number if chance decides between the attempts of a probe.
    /// Health checks take turns with the attempts at virtual servers with the scheduler `rr`.
    fn describe_attempt(&self, attempt: &Attempt) -> String {
        let number = (!self.random && !self.health_checks).then_some(attempt.index);
        format!(
            "exchange {} {number:?}: {} endpoint {:?} seen {:?} from {:?} error {:?}",
            attempt.probe,
            attempt.verdict,
            attempt.endpoint,
            attempt.seen_source.map(|source| source.ip()),
            attempt.local_address.map(|local| local.ip()),
            attempt.error,
        )
    }

    /// Describes the packets of each connection, without the number of transmissions.
    fn describe_packets(&self, evidence: &StageEvidence) -> Vec<String> {
        let mut connections: BTreeMap<String, (bool, BTreeSet<String>)> = BTreeMap::new();
        for packet in &evidence.packets {
            let Some(frame) = Frame::from_ethernet(&packet.bytes) else {
                continue;
            };
            let carried = innermost(&frame);
            let kind = packet_kind(carried);
            // The last packets of a connection may arrive after the capture ends. Packets of no
            // kind are the kernel's own.
            if matches!(kind, PacketKind::Fin | PacketKind::Any) {
                continue;
            }
            if self.may_be_health_check(carried) || self.is_random_reply(carried, kind) {
                continue;
            }
            let direction = match packet.direction {
                Direction::In => "in",
                Direction::Out => "out",
            };
            let place = format!("{}/{} {direction}", packet.namespace, packet.interface);
            let (_, flows) = connections
                .entry(format!("{place} {}", self.describe_packet(&frame)))
                .or_insert_with(|| (self.has_exact_count(carried, kind), BTreeSet::new()));
            flows.insert(format!(
                "{} {} {:?}",
                carried.source, carried.destination, carried.ports
            ));
        }
        let often = |(exact, flows): (bool, BTreeSet<String>)| {
            if exact {
                Occurrences::Exactly(flows.len() as u64)
            } else {
                Occurrences::AtLeastOnce
            }
        };
        connections
            .into_iter()
            .map(|(shape, seen)| format!("packet {shape} {}", often(seen)))
            .collect()
    }

    /// Whether the packet is a reply of an endpoint chosen at random. Replies to a client on the
    /// same bridge take another path than replies to other clients.
    fn is_random_reply(&self, frame: &Frame, kind: PacketKind) -> bool {
        let has_server_address = self.server_addresses.contains(&frame.source)
            || self.server_addresses.contains(&frame.destination);
        self.random && has_server_address && kind != PacketKind::Syn
    }

    /// Whether the packet may belong to a health check; the number of these depends on time. Such a
    /// packet has an address of the balancer. If masqueraded on its way, the packet instead has the
    /// address of a server and not of a probe source.
    fn may_be_health_check(&self, frame: &Frame) -> bool {
        let ends = [frame.source, frame.destination];
        let any_of = |set: &BTreeSet<IpAddr>| ends.iter().any(|end| set.contains(end));
        self.health_checks
            && (any_of(&self.health_check_sources)
                || (any_of(&self.server_addresses) && !any_of(&self.probe_sources)))
    }

    /// Whether the plan alone determines the number of connections with such a packet. This holds
    /// for handshakes. A reset or an error may answer a retransmission, so its number varies.
    fn has_exact_count(&self, frame: &Frame, kind: PacketKind) -> bool {
        // Chance affects packets once the first packet is rewritten, and then also the replies.
        let handshake = match kind {
            PacketKind::Syn => true,
            PacketKind::SynAck => !self.random,
            _ => false,
        };
        let has_server_address = self.server_addresses.contains(&frame.source)
            || self.server_addresses.contains(&frame.destination);
        handshake && !(self.random && has_server_address)
    }

    /// Describes a packet without freely chosen values.
    fn describe_packet(&self, frame: &Frame) -> String {
        let port = |port: u16| {
            if self.server_ports.contains(&port) {
                port.to_string()
            } else {
                "any".to_owned()
            }
        };
        let (from, to) = frame
            .ports
            .map_or_else(Default::default, |(from, to)| (port(from), port(to)));
        let inner = frame
            .inner
            .as_deref()
            .map(|inner| self.describe_packet(inner))
            .unwrap_or_default();
        format!(
            "{}:{from} > {}:{to} {} [{inner}]",
            frame.source,
            frame.destination,
            packet_kind(frame)
        )
    }

    /// Lists the rules of each namespace with the number of their matches.
    fn describe_rules(&self, evidence: &StageEvidence) -> Vec<String> {
        let mut lines_of_rules = Vec::new();
        for saved in &evidence.rules {
            let mut table = "";
            let lines = saved.text.lines().filter(|line| !line.starts_with('#'));
            for (number, line) in lines.enumerate() {
                table = line.strip_prefix('*').unwrap_or(table);
                let (line, often) = self.parse_rule(table, line);
                lines_of_rules.push(format!(
                    "rule {} ip{} {:?} {table} {number:04}: {line} {often}",
                    saved.namespace, saved.ip_version, saved.backend
                ));
            }
        }
        lines_of_rules
    }

    /// Parses `[PACKETS:BYTES] -A CHAIN …` or `:CHAIN POLICY [PACKETS:BYTES]`. Returns the line
    /// without counters, and the number of packets.
    fn parse_rule(&self, table: &str, line: &str) -> (String, Occurrences) {
        let Some((before, rest)) = line.split_once('[') else {
            return (line.to_owned(), Occurrences::Never);
        };
        let Some((counted, after)) = rest.split_once(']') else {
            return (line.to_owned(), Occurrences::Never);
        };
        let packets = counted.split(':').next().and_then(|text| text.parse().ok());
        let Some(packets) = packets else {
            return (line.to_owned(), Occurrences::Never);
        };
        // The nat table matches only the first packet of a connection.
        let exact = table == "nat" && self.all_answered && !self.health_checks && !self.random;
        let occurrences = match packets {
            0 => Occurrences::Never,
            packets if exact => Occurrences::Exactly(packets),
            _ => Occurrences::AtLeastOnce,
        };
        (format!("{before}{after}"), occurrences)
    }
}

/// Returns the innermost packet of a tunnel, or the packet itself.
fn innermost(frame: &Frame) -> &Frame {
    frame.inner.as_deref().map_or(frame, innermost)
}

fn packet_kind(frame: &Frame) -> PacketKind {
    PacketKind::NAMES
        .iter()
        .map(|(_, kind)| *kind)
        .find(|kind| frame.has_kind(*kind))
        .unwrap_or(PacketKind::Any)
}
