//! A router that rewrites, marks, masquerades and drops packets, and the trace events that iptables
//! semantics require for its rules.

use std::collections::BTreeMap;
use std::time::Duration;

use svclab_model::evidence::trace::{RuleVerdict, TraceEvent, TracePoint};
use svclab_model::evidence::{SavedRules, StageEvidence};
use svclab_model::plan::{Backend, Iptables, Plan};
use svclab_ruleset::input::Input;

use crate::small_plan;

/// A service, marked and masqueraded as kube-proxy does, and a forbidden port. The last rules of
/// `OUTER` and `FORWARD` have no condition.
const V4: &str = "*nat
:PREROUTING ACCEPT [0:0]
:INPUT ACCEPT [0:0]
:OUTPUT ACCEPT [0:0]
:POSTROUTING ACCEPT [0:0]
:SERVICES - [0:0]
:MARK-MASQ - [0:0]
:SEP - [0:0]
-A PREROUTING -m comment --comment \"service portals\" -j SERVICES
-A POSTROUTING -m mark ! --mark 0x4000/0x4000 -j RETURN
-A POSTROUTING -j MARK --set-xmark 0x4000/0x0
-A POSTROUTING -j MASQUERADE
-A SERVICES -d 10.96.0.2/32 -p tcp -m tcp --dport 80 -j RETURN
-A SERVICES -d 10.96.0.1/32 -p tcp -m tcp --dport 80 -j MARK-MASQ
-A SERVICES -d 10.96.0.1/32 -p tcp -m tcp --dport 80 -j SEP
-A MARK-MASQ -j MARK --set-xmark 0x4000/0x4000
-A SEP -p tcp -m tcp -j DNAT --to-destination 10.0.2.2:8080
COMMIT
*filter
:INPUT ACCEPT [0:0]
:FORWARD ACCEPT [0:0]
:OUTPUT ACCEPT [0:0]
:OUTER - [0:0]
-A FORWARD -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
-A FORWARD -d 10.0.2.2/32 -p tcp -m tcp --dport 9999 -j DROP
-A FORWARD -j OUTER
-A FORWARD -j ACCEPT
-A OUTER -s 192.0.2.0/24 -j DROP
-A OUTER -j RETURN
COMMIT
";

/// Rules that accept replies and unmarked packets. Their counters include packets from outside the
/// traced time: the last packets of connections, and multicast group reports of the kernel.
const COMMON: [&str; 2] = ["--ctstate RELATED,ESTABLISHED", "! --mark"];

const V6: &str = "*filter
:INPUT ACCEPT [0:0]
:FORWARD ACCEPT [0:0]
:OUTPUT ACCEPT [0:0]
-A FORWARD -p tcp -m tcp --dport 9999 -j REJECT --reject-with tcp-reset
COMMIT
";

/// Builds the plan, with its router traced.
pub fn router_plan(backend: Backend) -> Plan {
    let mut plan = small_plan();
    plan.evidence.trace = vec!["router".to_owned()];
    for namespace in &mut plan.namespaces {
        if namespace.name == "router" {
            namespace.ipset = Input::default();
            namespace.iptables = Some(Iptables {
                backend,
                v4: Input::from_text(V4),
                v6: Input::from_text(V6),
            });
        }
    }
    for probe in plan.probes_mut() {
        if probe.name == "blocked" {
            // The kernel retransmits no SYN within this time.
            probe.max_wait = Duration::from_millis(300);
        }
    }
    plan.stages[0]
        .probes
        .retain(|probe| ["service", "blocked", "refused6"].contains(&probe.name.as_str()));
    plan
}

/// A rendered trace event without its verdict, and the verdict.
type Step = (String, RuleVerdict);

/// Returns the expected trace of the first packet to the service.
pub fn service_trace() -> Vec<Step> {
    let jump = |chain: &str| RuleVerdict::Jump(chain.to_owned());
    [
        ("nat PREROUTING 1 mark 0x0", jump("SERVICES")),
        ("nat SERVICES 2 mark 0x0", jump("MARK-MASQ")),
        ("nat MARK-MASQ 1 mark 0x0", RuleVerdict::Continue),
        ("nat MARK-MASQ return mark 0x4000", RuleVerdict::Return),
        ("nat SERVICES 3 mark 0x4000", jump("SEP")),
        ("nat SEP 1 mark 0x4000", RuleVerdict::Accept),
        ("filter FORWARD 3 mark 0x4000", jump("OUTER")),
        ("filter OUTER 2 mark 0x4000", RuleVerdict::Return),
        ("filter FORWARD 4 mark 0x4000", RuleVerdict::Accept),
        ("nat POSTROUTING 2 mark 0x4000", RuleVerdict::Continue),
        ("nat POSTROUTING 3 mark 0x0", RuleVerdict::Accept),
    ]
    .map(|(step, verdict)| (step.to_owned(), verdict))
    .to_vec()
}

/// Returns the expected trace of the packet to the forbidden port.
pub fn blocked_trace() -> Vec<Step> {
    let jump = RuleVerdict::Jump("SERVICES".to_owned());
    [
        ("nat PREROUTING 1 mark 0x0", jump),
        ("nat SERVICES return mark 0x0", RuleVerdict::Return),
        ("nat PREROUTING policy mark 0x0", RuleVerdict::Accept),
        ("filter FORWARD 2 mark 0x0", RuleVerdict::Drop),
    ]
    .map(|(step, verdict)| (step.to_owned(), verdict))
    .to_vec()
}

/// Returns the expected trace of the IPv6 packet that is refused.
pub fn refused_trace() -> Vec<Step> {
    vec![("filter FORWARD 1 mark 0x0".to_owned(), RuleVerdict::Drop)]
}

/// Returns the steps that a kernel reports: `nf_tables` does not report the end of a chain.
fn reported_steps(steps: &[Step], backend: Backend) -> impl Iterator<Item = &Step> {
    let reports_returns = backend == Backend::Legacy;
    steps
        .iter()
        .filter(move |(step, _)| reports_returns || !step.contains(" return "))
}

/// Renders a trace event without its verdict.
pub fn render(met: &TraceEvent) -> String {
    let at = match met.point {
        TracePoint::Rule(line) => line.to_string(),
        TracePoint::Return => "return".to_owned(),
        TracePoint::Policy => "policy".to_owned(),
    };
    format!("{} {} {at} mark {:#x}", met.table, met.chain, met.mark)
}

/// Returns the trace events of TCP SYNs of one address family, each with the packet at that time.
pub fn syns(evidence: &StageEvidence, ip: u8) -> Vec<(&TraceEvent, Vec<u8>)> {
    let mut packets: BTreeMap<u32, Vec<u8>> = BTreeMap::new();
    let mut steps = Vec::new();
    for met in evidence
        .trace
        .iter()
        .filter(|met| met.namespace == "router")
    {
        if let Some(packet) = &met.packet {
            packets.insert(met.trace_id, packet.clone());
        }
        let packet = packets.get(&met.trace_id).expect("a recorded packet");
        let header = if ip == 6 { 40 } else { 20 };
        let (protocol, flags) = if ip == 6 {
            (packet[6], packet.get(header + 13))
        } else {
            (packet[9], packet.get(header + 13))
        };
        if met.ip_version == ip && protocol == 6 && flags.is_some_and(|flags| flags & 0x12 == 2) {
            steps.push((met, packet.clone()));
        }
    }
    steps
}

/// Returns the destination port of a packet.
pub fn destination_port(ip: u8, packet: &[u8]) -> u16 {
    let offset = if ip == 6 { 42 } else { 22 };
    u16::from_be_bytes([packet[offset], packet[offset + 1]])
}

/// Compares the trace events with the counters of every rule.
pub fn check_counters(evidence: &StageEvidence, backend: Backend) {
    let mut steps: BTreeMap<(u8, &str, &str, u32), u64> = BTreeMap::new();
    for met in &evidence.trace {
        if let TracePoint::Rule(line) = met.point {
            let rule = (met.ip_version, met.table.as_str(), met.chain.as_str(), line);
            *steps.entry(rule).or_default() += 1;
        }
        assert_eq!(met.backend, backend, "{met:?}");
    }
    let mut rules = 0;
    for SavedRules {
        ip_version: ip,
        text,
        ..
    } in &evidence.rules
    {
        let mut table = "";
        let mut lines: BTreeMap<&str, u32> = BTreeMap::new();
        for line in text.lines() {
            if let Some(name) = line.strip_prefix('*') {
                table = name;
                lines.clear();
            }
            let Some((counted, chain, number)) = parse_counted_rule(line, &mut lines) else {
                continue;
            };
            rules += 1;
            let met = steps.remove(&(*ip, table, chain, number)).unwrap_or(0);
            if COMMON.iter().any(|words| line.contains(words)) {
                assert!(met <= counted, "{met}: {line}");
                assert!(met > 0 || !line.contains(COMMON[0]), "{line}");
            } else {
                assert_eq!(met, counted, "{line}");
            }
        }
    }
    assert_eq!(rules, 16, "{:#?}", evidence.rules);
    assert_eq!(steps, BTreeMap::new());
    assert_eq!(evidence.trace_missed, 0);
}

/// Returns the packet counter of a rule, its chain, and its line in the chain.
fn parse_counted_rule<'a>(
    line: &'a str,
    lines: &mut BTreeMap<&'a str, u32>,
) -> Option<(u64, &'a str, u32)> {
    let (counters, rule) = line.strip_prefix('[')?.split_once("] -A ")?;
    let (packets, _) = counters.split_once(':')?;
    let chain = rule.split(' ').next()?;
    let number = lines.entry(chain).or_default();
    *number += 1;
    Some((packets.parse().ok()?, chain, *number))
}

/// Runs all checks on the evidence of this plan.
pub fn check_trace(evidence: &StageEvidence, backend: Backend) {
    let rendered =
        |steps: &[&TraceEvent]| -> Vec<String> { steps.iter().map(|met| render(met)).collect() };
    let to = |ip, wanted: &[u16]| -> Vec<&TraceEvent> {
        let syns = syns(evidence, ip).into_iter();
        syns.filter(|(_, packet)| wanted.contains(&destination_port(ip, packet)))
            .map(|(met, _)| met)
            .collect()
    };
    let expected = |steps: &[Step], times: usize| -> Vec<String> {
        let once = || reported_steps(steps, backend).map(|(step, _)| step.clone());
        (0..times).flat_map(|_| once()).collect()
    };
    let service = to(4, &[80, 8080]);
    let blocked = to(4, &[9999]);
    let refused: Vec<&TraceEvent> = to(6, &[9999]);
    // Connections are tried one after another.
    assert_eq!(rendered(&service), expected(&service_trace(), 2));
    assert_eq!(rendered(&blocked), expected(&blocked_trace(), 1));
    assert_eq!(rendered(&refused), expected(&refused_trace(), 1));
    let verdicts = [
        (&service, service_trace()),
        (&blocked, blocked_trace()),
        (&refused, refused_trace()),
    ];
    for (steps, wanted) in verdicts {
        let wanted: Vec<&Step> = reported_steps(&wanted, backend).collect();
        for (met, (step, verdict)) in steps.iter().zip(wanted.into_iter().cycle()) {
            let verdict_reported = (backend == Backend::Nft).then(|| verdict.clone());
            assert_eq!(met.verdict, verdict_reported, "{step}");
        }
    }
    for met in &service {
        let (input, output) = match met.chain.as_str() {
            "FORWARD" | "OUTER" => (Some("client"), Some("br0")),
            "POSTROUTING" => (None, Some("br0")),
            _ => (Some("client"), None),
        };
        let interfaces = (met.input.as_deref(), met.output.as_deref());
        // Since about Linux 5.17, the kernel also reports the input interface after routing.
        assert_eq!(interfaces.1, output, "{met:?}");
        assert!(
            interfaces.0 == input || met.chain == "POSTROUTING",
            "{met:?}"
        );
    }
    // The kernel applies DNAT after its chain, so the next chain matches the new destination.
    let ports: Vec<u16> = syns(evidence, 4)
        .iter()
        .filter(|(met, _)| met.table == "filter" && met.chain == "OUTER")
        .map(|(_, packet)| destination_port(4, packet))
        .collect();
    assert_eq!(ports, [8080, 8080]);
    check_counters(evidence, backend);
    check_conntrack(evidence);
}

/// Checks the conntrack entries of the connections to the service.
fn check_conntrack(evidence: &StageEvidence) {
    let entries: Vec<_> = evidence
        .conntrack
        .iter()
        .filter(|each| each.original.destination.port() == 80)
        .collect();
    assert_eq!(entries.len(), 2, "{:#?}", evidence.conntrack);
    for each in entries {
        assert_eq!((each.namespace.as_str(), each.protocol), ("router", 6));
        assert_eq!(each.original.source.ip().to_string(), "10.0.1.2");
        assert_eq!(each.original.destination.to_string(), "10.96.0.1:80");
        assert_eq!(each.reply.source.to_string(), "10.0.2.2:8080");
        // Masqueraded.
        assert_eq!(each.reply.destination.ip().to_string(), "10.0.2.1");
        // Confirmed, with both addresses rewritten (`IPS_CONFIRMED`, `IPS_SRC_NAT`, `IPS_DST_NAT`).
        assert_eq!(each.status & (1 << 3 | 1 << 4 | 1 << 5), 0x38, "{each:?}");
    }
    let dropped = evidence.conntrack.iter();
    let dropped = dropped.filter(|each| each.original.destination.port() == 9999);
    // The kernel never confirms a conntrack entry whose packet is dropped on its path.
    assert_eq!(dropped.count(), 0, "{:#?}", evidence.conntrack);
}
