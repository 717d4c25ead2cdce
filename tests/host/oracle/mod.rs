//! Compares how svclab and tshark parse packets.

mod tshark;

use svclab_journey::Frame;
use svclab_model::evidence::PacketKind;
use svclab_model::evidence::{StageEvidence, Verdict};
use svclab_model::plan::{Plan, Probe, ProbeProtocol, Server, Target};
use svclab_test_support::cases::prepare_case;
use svclab_test_support::evidence::single_stage;
use svclab_test_support::programs::with_agent;

/// A case whose probe connects, through the tunnel in both directions.
const CASE: &str = "canal-stale-rule/stale=removed,rpFilter=1,underlay=drops";

/// Returns the case's probe, and probes to the pod for the other kinds of packets. These are an
/// answered and a refused datagram, a refused connection, and a ping.
fn probes(call: &Probe, pod: std::net::IpAddr) -> Vec<Probe> {
    let to = |name: &str, protocol, port| Probe {
        name: name.to_owned(),
        target: Target { address: pod, port },
        protocol,
        ..call.clone()
    };
    vec![
        call.clone(),
        to("datagram", ProbeProtocol::Udp, 8080),
        to("refused datagram", ProbeProtocol::Udp, 9),
        to("refused", ProbeProtocol::Tcp, 9),
        to("ping", ProbeProtocol::Ping, 0),
    ]
}

/// Runs the case with packets of every namespace captured.
fn record_evidence() -> StageEvidence {
    let mut prepared = prepare_case(CASE);
    let plan: &mut Plan = &mut prepared.plan;
    plan.evidence.packets = plan.namespaces.iter().map(|ns| ns.name.clone()).collect();
    let pod = plan.namespace("pod/default/web").expect("the pod exists");
    let pod = pod.links[0].addresses[0].ip();
    plan.stages[0].probes = probes(&plan.stages[0].probes[0], pod);
    // The pod declares its port for TCP only.
    let is_tcp = |server: &&Server| server.namespace == "pod/default/web" && server.port == 8080;
    let server = plan.servers.iter().find(is_tcp).cloned();
    plan.servers.push(Server {
        protocol: ProbeProtocol::Udp,
        ..server.expect("the pod serves its port")
    });
    let evidence = with_agent(async |agent| agent.build(prepared.plan).await?.probe().await)
        .expect("the case runs");
    let evidence = single_stage(evidence);
    let verdicts: Vec<Verdict> = evidence.attempts.iter().map(|a| a.verdict).collect();
    assert_eq!(
        verdicts,
        [
            Verdict::Connected,
            Verdict::Answered,
            Verdict::Refused,
            Verdict::Refused,
            Verdict::Answered
        ]
    );
    assert_eq!(evidence.packets_missed, 0);
    evidence
}

/// All kinds of packets that must be compared.
const KINDS: [PacketKind; 9] = [
    PacketKind::Syn,
    PacketKind::SynAck,
    PacketKind::Ack,
    PacketKind::Rst,
    PacketKind::Fin,
    PacketKind::Udp,
    PacketKind::Ping,
    PacketKind::Pong,
    PacketKind::Unreachable,
];

#[test]
fn frame_every_packet_is_parsed_like_tshark() {
    let evidence = record_evidence();
    let tshark_packets = tshark::parse_packets(&evidence.packets);
    assert_eq!(tshark_packets.len(), evidence.packets.len());
    let frames: Vec<Option<Frame>> = evidence
        .packets
        .iter()
        .map(|packet| Frame::from_ethernet(&packet.bytes))
        .collect();
    for ((packet, ours), theirs) in evidence.packets.iter().zip(&frames).zip(&tshark_packets) {
        assert_eq!(
            ours.as_ref().map(tshark::ParsedPacket::from_frame),
            theirs.packet,
            "tshark calls it {}: {packet:?}",
            theirs.protocols
        );
    }
    // Ensures that every kind was compared.
    for kind in KINDS {
        let bare = frames.iter().flatten().any(|frame| frame.has_kind(kind));
        let inner = |frame: &Frame| {
            frame
                .inner
                .as_ref()
                .is_some_and(|inner| inner.has_kind(kind))
        };
        let tunnelled = frames.iter().flatten().any(inner);
        assert!(
            bare && tunnelled,
            "no {kind:?} both with and without a tunnel"
        );
    }
}
