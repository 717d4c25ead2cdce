//! Tests which other object is at fault: TTL, MTU, neighbour, bridge port, virtual server or link.

use std::collections::BTreeMap;

use super::*;
use svclab_model::evidence::{KernelState, NetworkState, StageEvidence};

#[test]
fn ttl_and_invalid_header_are_told_apart() {
    let plan = plan();
    let kind = |ttl, end: PathEnd| {
        let mut flight = received("203.0.113.5", end);
        let mut header = flight.header.unwrap();
        header.ttl = ttl;
        flight.header = Some(header);
        kind_and_fault(&plan, &flight)
    };
    let expired = |ttl| (DropKind::TtlExpired, Some(Fault::Ttl { ttl, set_by: None }));
    assert_eq!(kind(1, counted("IpInHdrErrors")), expired(1));
    assert_eq!(
        kind(64, counted("IpInHdrErrors")),
        (DropKind::InvalidHeader, None)
    );
    assert_eq!(kind(1, dropped("IP_INHDR", "ip_forward")), expired(1));
    assert_eq!(
        kind(64, dropped("IP_INHDR", "ip_rcv_core")),
        (DropKind::InvalidHeader, None)
    );
    assert_eq!(kind(1, dropped("NOT_SPECIFIED", "ip_forward")), expired(1));
    assert_eq!(
        kind(64, dropped("NOT_SPECIFIED", "ip_forward")),
        (DropKind::Forward, None)
    );
    let mut uncaptured = received("203.0.113.5", counted("IpInHdrErrors"));
    uncaptured.header = None;
    assert_eq!(
        kind_and_fault(&plan, &uncaptured),
        (DropKind::TtlOrHeader, None)
    );
}

#[test]
fn ttl_set_by_rule_is_named() {
    let plan = plan();
    let mut flight = received("203.0.113.5", dropped("IP_INHDR", "ip_forward"));
    mark(&mut flight, 0);
    let step = &mut flight.hops[0].matches[0];
    step.target = Some("TTL".to_owned());
    step.number = Some(3);
    let (_, fault) = kind_and_fault(&plan, &flight);
    let Some(Fault::Ttl {
        set_by: Some(rule), ..
    }) = fault
    else {
        panic!("{fault:?}");
    };
    assert_eq!((rule.chain.as_str(), rule.number), ("PREROUTING", Some(3)));
}

#[test]
fn small_mtu_is_named_if_packet_is_larger() {
    let mut plan = plan();
    node(&mut plan).links[0].mtu = Some(1400);
    let with_length = |length, end: PathEnd| {
        let mut flight = received("203.0.113.5", end);
        let mut header = flight.header.unwrap();
        header.length = length;
        flight.header = Some(header);
        kind_and_fault(&plan, &flight)
    };
    let fault = Some(Fault::Mtu {
        namespace: NODE.to_owned(),
        interface: "eth0".to_owned(),
        mtu: 1400,
        length: 1500,
    });
    for end in [
        dropped("PKT_TOO_BIG", "ip_forward"),
        dropped("NOT_SPECIFIED", "ip_forward"),
        counted("IpFragFails"),
    ] {
        assert_eq!(with_length(1500, end), (DropKind::TooBig, fault.clone()));
    }
    // A smaller packet met another MTU on its path.
    let end = dropped("PKT_TOO_BIG", "ip_forward");
    assert_eq!(with_length(1300, end), (DropKind::TooBig, None));
}

#[test]
fn failed_neighbour_is_next_hop() {
    let plan = plan();
    let neighbour = |address: &str, interface: &str| {
        Some(Fault::Neighbour {
            address: address.parse().unwrap(),
            interface: interface.to_owned(),
        })
    };
    for (to, expected) in [
        ("203.0.113.5", neighbour("10.0.0.254", "eth0")),
        ("10.1.0.77", neighbour("10.1.0.77", "eth1")),
    ] {
        for (reason, kind) in [
            ("NEIGH_FAILED", DropKind::NeighbourFailed),
            ("NEIGH_QUEUEFULL", DropKind::NeighbourQueue),
        ] {
            let flight = received(to, dropped(reason, "__neigh_event_send"));
            assert_eq!(kind_and_fault(&plan, &flight), (kind, expected.clone()));
        }
    }
}

#[test]
fn netfilter_names_idle_virtual_server() {
    let mut plan = plan();
    let real = |weight| RealServer {
        address: "10.244.0.2:80".parse().unwrap(),
        weight,
        method: svclab_ruleset::ipvs::Forwarding::default(),
    };
    let server = |servers| VirtualServer {
        key: VirtualServerKey::Address {
            protocol: Protocol::Tcp,
            address: "10.96.0.1".parse().unwrap(),
            port: 80,
        },
        scheduler: "rr".to_owned(),
        persistence: None,
        flags: SchedulerFlags::default(),
        servers,
    };
    let flight = received("10.96.0.1", dropped("NETFILTER_DROP", "nf_hook_slow"));
    for (servers, count) in [
        (Vec::new(), Some(0)),
        (vec![real(0)], Some(1)),
        (vec![real(1)], None),
    ] {
        node(&mut plan).ipvs = vec![server(servers)];
        let address = "10.96.0.1:80".parse().unwrap();
        let fault = count.map(|servers| Fault::VirtualServer { address, servers });
        assert_eq!(kind_and_fault(&plan, &flight), (DropKind::Netfilter, fault));
    }
}

#[test]
fn failed_insert_names_translating_rule() {
    let plan = plan();
    let mut flight = received("10.96.0.1", dropped("NETFILTER_DROP", "nf_hook_slow"));
    mark(&mut flight, 0);
    let step = &mut flight.hops[0].matches[0];
    "nat".clone_into(&mut step.table);
    "POSTROUTING".clone_into(&mut step.chain);
    step.target = Some("SNAT".to_owned());
    let mut evidence = StageEvidence::default();
    let state = KernelState {
        network: Some(NetworkState::default()),
        ..KernelState::default()
    };
    evidence.kernel_state.insert(NODE.to_owned(), state);
    let fault = |evidence: &StageEvidence, flight: &PacketPath| {
        let lab = LabState::new(&plan, Some(evidence));
        let hop = &flight.hops[0];
        let cause = Cause::new(flight, hop, &lab, |step| RuleReference::new(step, hop));
        match cause {
            Cause::Kernel { fault, .. } => fault,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(fault(&evidence, &flight), None);
    let counters = BTreeMap::from([("conntrack.insert_failed".to_owned(), 3)]);
    evidence.counters.insert(NODE.to_owned(), counters);
    let rule = RuleReference::new(&flight.hops[0].matches[0], &flight.hops[0]);
    let used = Fault::UsedAddresses {
        destination: "10.96.0.1:80".parse().unwrap(),
        failed_inserts: 3,
        rule: Some(rule),
    };
    assert_eq!(fault(&evidence, &flight), Some(used));
    // kube-proxy and flannel masquerade in chains of their own.
    let mut masqueraded = flight.clone();
    let mut step = masqueraded.hops[0].matches[0].clone();
    "KUBE-POSTROUTING".clone_into(&mut step.chain);
    step.target = Some("MASQUERADE".to_owned());
    masqueraded.hops[0].matches.push(step);
    let Some(Fault::UsedAddresses { rule, .. }) = fault(&evidence, &masqueraded) else {
        panic!("addresses in use");
    };
    assert_eq!(rule.unwrap().chain, "KUBE-POSTROUTING");
    // A packet dropped before the last hook is not a connection that conntrack tried to add.
    "PREROUTING".clone_into(&mut flight.hops[0].matches[0].chain);
    assert_eq!(fault(&evidence, &flight), None);
}

#[test]
fn queue_without_program_names_rule() {
    let plan = plan();
    let mut flight = received("10.96.0.1", dropped("NOT_SPECIFIED", "nf_queue"));
    assert_eq!(
        kind_and_fault(&plan, &flight),
        (DropKind::NetfilterQueue, None)
    );
    mark(&mut flight, 0);
    flight.hops[0].matches[0].target = Some("NFQUEUE".to_owned());
    let rule = RuleReference::new(&flight.hops[0].matches[0], &flight.hops[0]);
    assert_eq!(
        kind_and_fault(&plan, &flight),
        (DropKind::NetfilterQueue, Some(Fault::QueueRule { rule }))
    );
}

#[test]
fn vxlan_without_entry_names_neighbour() {
    let mut plan = plan();
    let flight = received("10.244.1.9", dropped("NO_TX_TARGET", "vxlan_xmit"));
    let fault = |address| Fault::Vxlan {
        interface: "flannel.1".to_owned(),
        neighbour: "10.244.1.0".parse().unwrap(),
        address,
    };
    let seen = |plan: &Plan| kind_and_fault(plan, &flight);
    assert_eq!(seen(&plan), (DropKind::VxlanNoRemote, Some(fault(None))));
    let unanswered = received("10.244.1.9", dropped("NEIGH_FAILED", "neigh_invalidate"));
    assert_eq!(
        kind_and_fault(&plan, &unanswered),
        (DropKind::NeighbourFailed, Some(fault(None)))
    );
    let neighbour = "10.244.1.0".parse().unwrap();
    let waiting = received("10.244.1.9", PathEnd::Waiting(neighbour));
    assert_eq!(
        cause(&plan, &waiting),
        Cause::Waiting {
            neighbour,
            fault: Some(fault(None))
        }
    );
    // A tunnel end receives the requests.
    let mut requesting = plan.clone();
    node(&mut requesting).forwarding.push(Forwarding {
        dev: "flannel.1".to_owned(),
        mac: Mac([0; 6]),
        to: ForwardingTarget::Remote("10.0.0.2".parse().unwrap()),
    });
    let neighbour = Fault::Neighbour {
        address: neighbour,
        interface: "flannel.1".to_owned(),
    };
    assert_eq!(
        kind_and_fault(&requesting, &unanswered),
        (DropKind::NeighbourFailed, Some(neighbour))
    );
    node(&mut plan).neighbours.push(Neighbour {
        address: "10.244.1.0".parse().unwrap(),
        mac: mac(99),
        dev: "flannel.1".to_owned(),
    });
    assert_eq!(
        seen(&plan),
        (DropKind::VxlanNoRemote, Some(fault(Some(mac(99)))))
    );
    node(&mut plan).forwarding.push(Forwarding {
        dev: "flannel.1".to_owned(),
        mac: mac(99),
        to: ForwardingTarget::Remote("10.0.0.2".parse().unwrap()),
    });
    assert_eq!(seen(&plan), (DropKind::VxlanNoRemote, None));
    let remote = Fault::VxlanRemote {
        interface: "flannel.1".to_owned(),
        neighbour: "10.244.1.0".parse().unwrap(),
        address: mac(99),
        remote: "10.0.0.2".parse().unwrap(),
    };
    assert_eq!(
        kind_and_fault(&plan, &unanswered),
        (DropKind::NeighbourFailed, Some(remote))
    );
}

#[test]
fn packet_behind_bridge_names_static_entry() {
    let mut plan = plan();
    let header = PacketHeader {
        ttl: 64,
        length: 60,
        dont_fragment: true,
        destination_mac: Some(mac(32)),
    };
    assert_eq!(link_fault(&plan, "cni0", header), None);
    node(&mut plan).forwarding.push(Forwarding {
        dev: "veth-a".to_owned(),
        mac: mac(32),
        to: ForwardingTarget::StickyPort,
    });
    let end = |pod: &str| InterfaceName {
        namespace: pod.to_owned(),
        interface: "eth0".to_owned(),
    };
    let fault = Fault::HardwareAddress {
        address: mac(32),
        owner: Some(end("pod-b")),
        receiver: end("pod-a"),
        neighbour: None,
        bridge: Some("cni0".to_owned()),
    };
    assert_eq!(link_fault(&plan, "cni0", header), Some(fault));
}

/// Returns the fault of the link behind the interface that sent a packet.
fn link_fault(plan: &Plan, interface: &str, header: PacketHeader) -> Option<Fault> {
    let crossings = vec![crossing("eth0", false), crossing(interface, true)];
    let mut flight = packet(
        "192.0.2.9:4000",
        "10.9.0.5:80",
        crossings,
        PathEnd::NotReceived,
    );
    flight.header = Some(header);
    match cause(plan, &flight) {
        Cause::NotReceived { fault, .. } => fault,
        other => panic!("{other:?}"),
    }
}

#[test]
fn packet_not_received_names_fault_of_link() {
    let mut plan = plan();
    let header = |destination: Mac| PacketHeader {
        ttl: 64,
        length: 1500,
        dont_fragment: true,
        destination_mac: Some(destination),
    };
    let router = |interface: &str| InterfaceName {
        namespace: "router".to_owned(),
        interface: interface.to_owned(),
    };
    let interface = "dummy0".to_owned();
    assert_eq!(
        link_fault(&plan, "dummy0", header(mac(1))),
        Some(Fault::Dummy { interface })
    );
    assert_eq!(link_fault(&plan, "eth1", header(mac(22))), None);
    // The static entry of the neighbour has the address of another interface.
    node(&mut plan).neighbours.push(Neighbour {
        address: "10.1.0.254".parse().unwrap(),
        mac: mac(21),
        dev: "eth1".to_owned(),
    });
    assert_eq!(
        link_fault(&plan, "eth1", header(mac(21))),
        Some(Fault::HardwareAddress {
            address: mac(21),
            owner: Some(router("node-1")),
            receiver: router("node-1b"),
            neighbour: Some("10.1.0.254".parse().unwrap()),
            bridge: None,
        })
    );
    plan.namespaces[1].links[1].mtu = Some(1496);
    assert_eq!(link_fault(&plan, "eth1", header(mac(22))), None);
    plan.namespaces[1].links[1].mtu = Some(1400);
    assert_eq!(
        link_fault(&plan, "eth1", header(mac(22))),
        Some(Fault::Mtu {
            namespace: "router".to_owned(),
            interface: "node-1b".to_owned(),
            mtu: 1400,
            length: 1500,
        })
    );
    plan.namespaces[1].links[1].down = true;
    let interface = router("node-1b");
    assert_eq!(
        link_fault(&plan, "eth1", header(mac(22))),
        Some(Fault::Down { interface })
    );
}

#[test]
fn rejection_names_route_or_neighbour() {
    let mut plan = plan();
    let flight = received("10.1.0.77", PathEnd::Rejected(Vec::new()));
    let rejection = |plan: &Plan, meaning| {
        let lab = LabState::new(plan, None);
        let last = LastHop::new(&lab, &flight, &flight.hops[0]).unwrap();
        last.rejection(meaning)
    };
    let interface = "eth1".to_owned();
    let address = "10.1.0.77".parse().unwrap();
    assert_eq!(
        rejection(&plan, IcmpMeaning::HostUnreachable),
        Some(Fault::Neighbour { address, interface })
    );
    assert_eq!(rejection(&plan, IcmpMeaning::Prohibited), None);
    // A neighbour with a static entry cannot fail, so the lab was changed.
    node(&mut plan).neighbours.push(Neighbour {
        address,
        mac: mac(77),
        dev: "eth1".to_owned(),
    });
    let fault = rejection(&plan, IcmpMeaning::HostUnreachable);
    assert!(matches!(fault, Some(Fault::Route { .. })), "{fault:?}");
    node(&mut plan)
        .routes
        .push(route("10.1.0.77/32", RouteKind::Prohibit, None));
    for meaning in [IcmpMeaning::HostUnreachable, IcmpMeaning::Prohibited] {
        let Some(Fault::Route { lookup }) = rejection(&plan, meaning) else {
            panic!("{meaning:?}");
        };
        assert!(
            matches!(lookup.decision, RouteDecision::Refusal { .. }),
            "{lookup:?}"
        );
    }
}
