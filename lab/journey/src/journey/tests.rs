//! Tests the end of a packet in evidence of one captured SYN.

use super::*;
use svclab_model::evidence::trace::TracePoint;
use svclab_model::evidence::{
    AddressPair, Attempt, ConntrackEntry, Direction, DropEvidence, DroppedPacket, IpvsConnection,
    Packet, SavedRules, StageEvidence, TraceEvent, Verdict,
};
use svclab_model::plan::{
    Backend, Lifetime, Link, LinkKind, Namespace, Plan, PortSettings, Probe, ProbeProtocol, Target,
};

const NODE: &str = "node-1";

/// A SYN from 10.0.0.1:4000 to 10.0.0.2:80 with TTL 9 and the DF bit.
fn syn() -> Vec<u8> {
    let mut packet = vec![0x45, 0, 0, 40, 0, 7, 0x40, 0, 9, 6, 0, 0];
    packet.extend_from_slice(&[10, 0, 0, 1, 10, 0, 0, 2]);
    packet.extend_from_slice(&[0x0f, 0xa0, 0, 80, 0, 0, 0, 1, 0, 0, 0, 0, 0x50, 2]);
    packet.extend_from_slice(&[0xff, 0xff, 0, 0, 0, 0]);
    packet
}

fn plan() -> Plan {
    let eth0 = Link {
        name: "eth0".to_owned(),
        kind: LinkKind::Dummy,
        mac: Mac([10, 0x58, 0, 0, 0, 1]),
        addresses: vec!["10.0.0.1/24".parse().unwrap()],
        bridge: None,
        port: PortSettings::default(),
        down: false,
        mtu: None,
    };
    Plan {
        namespaces: vec![Namespace {
            name: NODE.to_owned(),
            links: vec![eth0],
            ..Namespace::default()
        }],
        ..Plan::default()
    }
}

fn probe() -> Probe {
    Probe {
        name: "call".to_owned(),
        namespace: NODE.to_owned(),
        target: Target {
            address: "10.0.0.2".parse().unwrap(),
            port: 80,
        },
        protocol: ProbeProtocol::Tcp,
        connections: 1,
        concurrency: None,
        bind: None,
        source_port: None,
        bytes: None,
        datagrams: std::num::NonZeroU32::MIN,
        max_wait: std::time::Duration::from_secs(1),
        settle: false,
        after: None,
        lifetime: Lifetime::Stage,
    }
}

/// Evidence of the SYN on the interface, and of its drops for these reasons.
fn evidence(direction: Direction, reasons: &[&str]) -> StageEvidence {
    let mut frame = vec![10, 0x58, 0, 0, 0, 2, 10, 0x58, 0, 0, 0, 1, 8, 0];
    frame.extend(syn());
    let dropped = reasons.iter().map(|reason| DroppedPacket {
        time: 2,
        namespace: NODE.to_owned(),
        interface: None,
        reason: (*reason).to_owned(),
        function: None,
        packet: syn(),
    });
    StageEvidence {
        attempts: vec![Attempt {
            idle: None,
            probe: "call".to_owned(),
            index: 0,
            verdict: Verdict::Timeout,
            endpoint: None,
            seen_source: None,
            further_answers: Vec::new(),
            progress: None,
            local_address: Some("10.0.0.1:4000".parse().unwrap()),
            duration: std::time::Duration::from_secs(1),
            settled: false,
            error: None,
        }],
        packets: vec![Packet {
            time: 1,
            namespace: NODE.to_owned(),
            interface: "eth0".to_owned(),
            direction,
            length: 54,
            bytes: frame,
        }],
        drops: DropEvidence::Watched {
            missed: 0,
            dropped: dropped.collect(),
        },
        ..StageEvidence::default()
    }
}

fn only_packet(evidence: &StageEvidence) -> PacketPath {
    let journeys = journeys(&plan(), &[probe()], evidence);
    journeys[0].packets[0].clone()
}

fn dropped(reason: &str) -> PathEnd {
    PathEnd::Dropped {
        reason: reason.to_owned(),
        function: None,
        settings: Vec::new(),
    }
}

#[test]
fn header_of_last_capture_is_kept() {
    let packet = only_packet(&evidence(Direction::Out, &[]));
    let header = PacketHeader {
        ttl: 9,
        length: 40,
        dont_fragment: true,
        destination_mac: Some(Mac([10, 0x58, 0, 0, 0, 2])),
    };
    assert_eq!(packet.header, Some(header));
    assert_eq!(packet.end, PathEnd::NotReceived);
}

/// IPVS has chosen a real server, and has no route to it: no rule and no capture shows the address.
#[test]
fn packet_that_ipvs_cannot_send_has_address_of_real_server() {
    let mut evidence = evidence(Direction::In, &[]);
    let own_mac = [10, 0x58, 0, 0, 0, 1];
    evidence.packets[0].bytes[..6].copy_from_slice(&own_mac);
    let connection = IpvsConnection {
        namespace: NODE.to_owned(),
        protocol: 6,
        client: "10.0.0.1:4000".parse().unwrap(),
        virtual_server: "10.0.0.2:80".parse().unwrap(),
        real_server: "10.0.0.7:8080".parse().unwrap(),
        state: "SYN_RECV".to_owned(),
        expires: 60,
    };
    evidence.ipvs_connections = vec![connection.clone()];
    let hop = &only_packet(&evidence).hops[0];
    assert_eq!(hop.after.destination, connection.real_server);
    let rewrite = Rewrite::ByIpvs {
        server: connection.virtual_server,
        real: connection.real_server,
        rules: Vec::new(),
    };
    assert_eq!(hop.rewritten, Some(rewrite));
    // A connection of another client does not count.
    evidence.ipvs_connections[0].client.set_port(4001);
    let hop = &only_packet(&evidence).hops[0];
    assert_eq!(hop.after.destination, connection.virtual_server);
}

#[test]
fn dropped_packet_has_destination_of_its_own_rule() {
    let mut evidence = evidence(Direction::In, &["XFRM_POLICY"]);
    evidence.rules = vec![SavedRules {
        namespace: NODE.to_owned(),
        backend: Backend::Nft,
        ip_version: 4,
        text: "*nat\n:PREROUTING ACCEPT [0:0]\n\
               [1:40] -A PREROUTING -p tcp -j DNAT --to-destination 10.0.0.7:8080\nCOMMIT\n"
            .to_owned(),
    }];
    evidence.trace = vec![TraceEvent {
        namespace: NODE.to_owned(),
        backend: Backend::Nft,
        trace_id: 5,
        packet: Some(syn()),
        ip_version: 4,
        input: Some("eth0".to_owned()),
        output: None,
        mark: 0,
        table: "nat".to_owned(),
        inet: false,
        chain: "PREROUTING".to_owned(),
        point: TracePoint::Rule(1),
        verdict: None,
    }];
    let pair = |source: &str, destination: &str| AddressPair {
        source: source.parse().unwrap(),
        destination: destination.parse().unwrap(),
    };
    evidence.conntrack = vec![ConntrackEntry {
        namespace: NODE.to_owned(),
        protocol: 6,
        original: pair("10.0.0.1:4000", "10.0.0.2:80"),
        reply: pair("10.0.0.9:8080", "10.0.0.1:4000"),
        mark: 0,
        status: 0,
        state: None,
        expires: None,
    }];
    let packet = only_packet(&evidence);
    assert_eq!(packet.end, dropped("XFRM_POLICY"));
    assert_eq!(packet.hops[0].after, pair("10.0.0.1:4000", "10.0.0.7:8080"));
}

/// A frame that carries another one through a VXLAN tunnel from 192.0.2.1 to 192.0.2.2.
fn in_tunnel(inner: &[u8]) -> Vec<u8> {
    let mut frame = vec![10, 0x58, 0, 0, 0, 9, 10, 0x58, 0, 0, 0, 8, 8, 0];
    let length = u8::try_from(20 + 16 + inner.len()).unwrap();
    frame.extend([0x45, 0, 0, length, 0, 3, 0, 0, 64, 17, 0, 0]);
    frame.extend([192, 0, 2, 1, 192, 0, 2, 2]);
    frame.extend([0x9c, 0x40, 0x21, 0x18, 0, length - 20, 0, 0]);
    frame.extend([8, 0, 0, 0, 0, 0, 1, 0]);
    frame.extend(inner);
    frame
}

#[test]
fn packet_lost_in_tunnel_has_tunnel_packet() {
    let mut evidence = evidence(Direction::Out, &[]);
    let packet = only_packet(&evidence);
    assert_eq!((packet.tunnel, packet.hops[0].tunnel), (None, None));
    let mut carried = evidence.packets[0].clone();
    carried.bytes = in_tunnel(&carried.bytes);
    carried.interface = "eth1".to_owned();
    carried.time = 2;
    evidence.packets.push(carried);
    let packet = only_packet(&evidence);
    let tunnel = packet.tunnel.unwrap();
    assert_eq!(
        tunnel.addresses.to_string(),
        "192.0.2.1:40000 > 192.0.2.2:8472"
    );
    assert_eq!(packet.hops[0].tunnel, Some(tunnel.addresses));
    assert_eq!((tunnel.header.ttl, tunnel.header.length), (64, 90));
    let mac = Mac([10, 0x58, 0, 0, 0, 9]);
    assert_eq!(tunnel.header.destination_mac, Some(mac));
    assert_eq!(packet.header.unwrap().ttl, 9);
}

/// No interface carried the tunnel packet; only the report of its drop shows it.
#[test]
fn tunnel_packet_dropped_by_its_sender_is_found() {
    let mut evidence = evidence(Direction::Out, &["NEIGH_FAILED"]);
    let DropEvidence::Watched { dropped, .. } = &mut evidence.drops else {
        panic!("drops were watched");
    };
    let carried = in_tunnel(&evidence.packets[0].bytes);
    dropped[0].packet = carried[14..].to_vec();
    let packet = only_packet(&evidence);
    let tunnel = packet.tunnel.unwrap();
    assert_eq!(packet.hops[0].tunnel, Some(tunnel.addresses));
    assert_eq!(tunnel.header.destination_mac, None);
}

#[test]
fn removed_queue_is_end_only_without_other_reason() {
    let end = |reasons: &[&str]| only_packet(&evidence(Direction::Out, reasons)).end;
    assert_eq!(end(&["QUEUE_PURGE"]), dropped("QUEUE_PURGE"));
    assert_eq!(
        end(&["QUEUE_PURGE", "NEIGH_FAILED"]),
        dropped("NEIGH_FAILED")
    );
    let mut waiting = evidence(Direction::Out, &["QUEUE_PURGE"]);
    let neighbour: IpAddr = "10.0.0.2".parse().unwrap();
    waiting.unresolved.insert(NODE.to_owned(), vec![neighbour]);
    assert_eq!(only_packet(&waiting).end, PathEnd::Waiting(neighbour));
}

/// ICMP port unreachable from the destination of the SYN to its source, which quotes the SYN.
fn port_unreachable() -> Vec<u8> {
    let mut packet = vec![0x45, 0, 0, 68, 0, 8, 0, 0, 64, 1, 0, 0];
    packet.extend_from_slice(&[10, 0, 0, 2, 10, 0, 0, 1]);
    packet.extend_from_slice(&[3, 3, 0, 0, 0, 0, 0, 0]);
    packet.extend(syn());
    packet
}

/// Evidence of a SYN that only a rule of the sender saw, and that the kernel rejected: the error is
/// older than the drop.
#[test]
fn end_of_packet_without_capture_is_error_before_its_drop() {
    let mut evidence = evidence(Direction::Out, &["NETFILTER_DROP"]);
    evidence.trace = vec![TraceEvent {
        namespace: NODE.to_owned(),
        backend: Backend::Legacy,
        trace_id: 0,
        packet: Some(syn()),
        ip_version: 4,
        input: None,
        output: None,
        mark: 0,
        table: "nat".to_owned(),
        inet: false,
        chain: "OUTPUT".to_owned(),
        point: TracePoint::Policy,
        verdict: None,
    }];
    let error = &mut evidence.packets[0];
    "lo".clone_into(&mut error.interface);
    error.bytes.truncate(14);
    error.bytes.extend(port_unreachable());
    assert!(error.time < 2);
    let journeys = journeys(&plan(), &[probe()], &evidence);
    let packets = &journeys[0].packets;
    let syn = packets.iter().find(|packet| packet.kind == Kind::Syn);
    let syn = syn.expect("the SYN is followed");
    assert_eq!(syn.time, 2);
    assert_eq!(syn.end, PathEnd::Rejected(vec![0]));
}
