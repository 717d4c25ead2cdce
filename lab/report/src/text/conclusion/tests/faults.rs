//! Tests the sentences about the object at fault: a route, an interface, a neighbour.

use super::*;

#[test]
fn facts_routes_at_fault_are_named() {
    let no_route = |lookup| {
        let fault = Some(Fault::Route { lookup });
        kernel(DropKind::NoRoute, fault, "IP_INNOROUTES", "ip_error")
    };
    let refused = |lookup| {
        let fault = Some(Fault::Route { lookup });
        kernel(DropKind::RouteRefused, fault, "NOT_SPECIFIED", "ip_error")
    };
    let none = |tables: &[u32]| RouteDecision::None {
        tables: tables.to_vec(),
    };
    let mut thrown = lookup(none(&[255, 7, 254, 253]), None);
    thrown.thrown = vec!["throw 192.0.2.0/24 table 7".to_owned()];
    let local = RouteDecision::Local {
        interface: "lo".to_owned(),
    };
    insta::assert_snapshot!(render([
        no_route(lookup(none(&[255, 254, 253]), None)),
        no_route(thrown),
        no_route(lookup(refusal(), Some(MARKED))),
        no_route(lookup(refusal(), None)),
        no_route(lookup(
            RouteDecision::RuleRefusal,
            Some("priority 5 from all prohibit")
        )),
        no_route(lookup(
            route("0.0.0.0/0 via 10.0.0.254 dev eth0", "eth0"),
            None
        )),
        no_route(lookup(local, None)),
        refused(lookup(refusal(), Some(MARKED))),
        refused(lookup(route("192.0.2.9/32 dev cali0", "cali0"), None)),
    ]));
}

#[test]
fn facts_sources_at_fault_are_named() {
    let source = |kind, reason: &str, decision, rule| {
        let lookup = lookup(decision, rule);
        kernel(
            kind,
            Some(Fault::SourceRoute { lookup }),
            reason,
            "ip_rcv_finish_core",
        )
    };
    let filtered = |decision, rule| source(DropKind::ReversePath, "IP_RPFILTER", decision, rule);
    let local = || RouteDecision::Local {
        interface: "eth1".to_owned(),
    };
    let tables = vec![255, 254, 253];
    insta::assert_snapshot!(render([
        filtered(route("192.0.2.0/24 dev eth1", "eth1"), None),
        filtered(route("0.0.0.0/0 dev eth1 table 7", "eth1"), Some(MARKED)),
        filtered(route("192.0.2.0/24 dev eth0", "eth0"), None),
        filtered(RouteDecision::None { tables }, None),
        filtered(local(), None),
        filtered(refusal(), None),
        source(DropKind::LocalSource, "IP_LOCAL_SOURCE", local(), None),
        source(
            DropKind::InvalidSource,
            "IP_INVALID_SOURCE",
            refusal(),
            None
        ),
        source(DropKind::InvalidSource, "IP_INVALID_SOURCE", local(), None),
    ]));
}

#[test]
#[expect(clippy::too_many_lines, reason = "the list contains all objects")]
fn facts_other_objects_at_fault_are_named() {
    let neighbour = |kind, reason: &str| {
        let fault = Fault::Neighbour {
            address: "10.0.0.254".parse().unwrap(),
            interface: "eth0".to_owned(),
        };
        kernel(kind, Some(fault), reason, "__neigh_event_send")
    };
    let mtu = Fault::Mtu {
        namespace: "node-1".to_owned(),
        interface: "eth1".to_owned(),
        mtu: 1400,
        length: 1500,
    };
    let route_mtu = Fault::Route {
        lookup: lookup(route("192.0.2.0/24 dev eth0 mtu lock 1400", "eth0"), None),
    };
    let no_ipv6 = Fault::NoIpv6 {
        interface: "eth0".to_owned(),
        mtu: 1200,
    };
    let returned = |without_arp| Fault::ReturnedFrame {
        sender: InterfaceName {
            namespace: "node-2".to_owned(),
            interface: "eth0".to_owned(),
        },
        address: "0a:58:00:00:00:02".parse().unwrap(),
        without_arp,
    };
    let ttl = |set_by| Fault::Ttl { ttl: 1, set_by };
    let routing_loop = Fault::RoutingLoop {
        namespaces: vec!["node-2".to_owned(), "fabric".to_owned()],
        rounds: 30,
    };
    let (bridge, port) = (|| "cni0".to_owned(), || "veth-a".to_owned());
    let hairpin = Fault::Hairpin {
        bridge: bridge(),
        port: port(),
    };
    let bridge_port = |down| Fault::BridgePort {
        bridge: bridge(),
        port: port(),
        down,
    };
    let isolated = Fault::IsolatedPorts {
        bridge: bridge(),
        ingress: "veth-b".to_owned(),
        port: port(),
    };
    let unknown = |address: Option<&str>| Fault::UnknownHardwareAddress {
        bridge: bridge(),
        port: port(),
        address: address.map(|address| address.parse().unwrap()),
    };
    let disabled = Fault::DisabledPort {
        bridge: bridge(),
        port: port(),
    };
    let unconnected = Fault::UnconnectedNeighbour {
        address: "172.17.5.9".parse().unwrap(),
        bridge: bridge(),
        owner: InterfaceName {
            namespace: "host/corp".to_owned(),
            interface: "eth0".to_owned(),
        },
    };
    let locked = Fault::LockedPort {
        bridge: bridge(),
        port: port(),
    };
    let server = |servers| Fault::VirtualServer {
        address: "10.96.0.1:80".parse().unwrap(),
        servers,
    };
    let vxlan = |address: Option<&str>| Fault::Vxlan {
        interface: "flannel.1".to_owned(),
        neighbour: "10.244.1.0".parse().unwrap(),
        address: address.map(|address| address.parse().unwrap()),
    };
    let remote = Fault::VxlanRemote {
        interface: "flannel.1".to_owned(),
        neighbour: "10.244.1.0".parse().unwrap(),
        address: "0a:58:00:00:00:63".parse().unwrap(),
        remote: "192.168.50.77".parse().unwrap(),
    };
    let ingress = Fault::IngressRule {
        rule: rule(),
        device: "eth0".to_owned(),
    };
    let queue = Fault::QueueRule { rule: rule() };
    let used = |rule| Fault::UsedAddresses {
        destination: "10.244.2.53:53".parse().unwrap(),
        failed_inserts: 3,
        rule,
    };
    let ipsec = Fault::IpsecPolicy {
        destination: "10.244.2.10".parse().unwrap(),
    };
    let drop = |kind, reason, function, fault| kernel(kind, Some(fault), reason, function);
    let (none, bridging) = ("NOT_SPECIFIED", DropKind::BridgeNoPort);
    insta::assert_snapshot!(render([
        neighbour(DropKind::NeighbourFailed, "NEIGH_FAILED"),
        neighbour(DropKind::NeighbourQueue, "NEIGH_QUEUEFULL"),
        drop(
            DropKind::NeighbourFailed,
            "NEIGH_FAILED",
            "neigh_invalidate",
            remote
        ),
        neighbour(DropKind::NeighbourEntry, "NEIGH_CREATEFAIL"),
        drop(DropKind::TooBig, "PKT_TOO_BIG", "ip_forward", mtu),
        drop(DropKind::TooBig, "PKT_TOO_BIG", "ip_forward", route_mtu),
        drop(DropKind::IpInput, none, "ip6_rcv_core", no_ipv6),
        drop(
            DropKind::BridgeIngress,
            none,
            "br_handle_frame_finish",
            returned(false)
        ),
        drop(
            DropKind::BridgeIngress,
            none,
            "br_handle_frame_finish",
            returned(true)
        ),
        drop(DropKind::TtlExpired, "IP_INHDR", "ip_forward", ttl(None)),
        drop(DropKind::TtlExpired, "IP_INHDR", "ip_forward", routing_loop),
        drop(
            DropKind::TtlExpired,
            "IP_INHDR",
            "ip_forward",
            ttl(Some(rule()))
        ),
        drop(bridging, none, "br_forward", hairpin),
        drop(bridging, none, "br_forward", bridge_port(false)),
        drop(bridging, none, "br_forward", bridge_port(true)),
        drop(bridging, none, "br_forward", isolated),
        drop(bridging, none, "br_forward", disabled),
        drop(
            DropKind::NeighbourFailed,
            "NEIGH_FAILED",
            "neigh_invalidate",
            unconnected
        ),
        drop(bridging, none, "br_flood", unknown(None)),
        drop(
            bridging,
            none,
            "br_flood",
            unknown(Some("0a:58:00:00:00:15"))
        ),
        drop(
            DropKind::BridgeIngress,
            none,
            "br_handle_frame_finish",
            locked
        ),
        drop(
            DropKind::Netfilter,
            "NETFILTER_DROP",
            "nf_hook_slow",
            server(0)
        ),
        drop(
            DropKind::Netfilter,
            "NETFILTER_DROP",
            "nf_hook_slow",
            server(2)
        ),
        drop(
            DropKind::VxlanNoRemote,
            none,
            "vxlan_xmit",
            vxlan(Some("0a:58:00:00:00:63"))
        ),
        drop(DropKind::VxlanNoRemote, none, "vxlan_xmit", vxlan(None)),
        drop(
            DropKind::Netfilter,
            "NETFILTER_DROP",
            "nft_do_chain",
            ingress
        ),
        drop(DropKind::Ipsec, "XFRM_POLICY", "ip_forward", ipsec),
        drop(DropKind::NetfilterQueue, none, "nf_queue", queue),
        drop(
            DropKind::Netfilter,
            "NETFILTER_DROP",
            "nf_hook_slow",
            used(Some(rule()))
        ),
        drop(
            DropKind::Netfilter,
            "NETFILTER_DROP",
            "nf_hook_slow",
            used(None)
        ),
    ]));
}

#[test]
fn facts_packet_not_received_names_link() {
    let interface = |namespace: &str| InterfaceName {
        namespace: namespace.to_owned(),
        interface: "eth0".to_owned(),
    };
    let hardware = |owner, neighbour: Option<&str>, bridge: Option<&str>| Fault::HardwareAddress {
        address: "0a:58:00:00:00:15".parse().unwrap(),
        owner,
        receiver: interface("node-2"),
        neighbour: neighbour.map(|address| address.parse().unwrap()),
        bridge: bridge.map(str::to_owned),
    };
    let node_3 = || Some(interface("node-3"));
    let dummy = Fault::Dummy {
        interface: "dummy0".to_owned(),
    };
    let down = Fault::Down {
        interface: interface("node-2"),
    };
    let silent = Fault::UnknownHardwareAddress {
        bridge: "cni0".to_owned(),
        port: "veth-a".to_owned(),
        address: None,
    };
    let not_received = |fault| {
        let interface = Some("eth1".to_owned());
        lost(None, Cause::NotReceived { interface, fault })
    };
    insta::assert_snapshot!(render([
        not_received(None),
        not_received(Some(dummy)),
        not_received(Some(down)),
        not_received(Some(hardware(node_3(), Some("10.0.0.2"), None))),
        not_received(Some(hardware(node_3(), None, Some("cni0")))),
        not_received(Some(hardware(None, None, None))),
        lost(None, Cause::Unknown { fault: None }),
        lost(
            None,
            Cause::Unknown {
                fault: Some(silent)
            }
        ),
    ]));
}

#[test]
fn facts_rejections_name_route() {
    let rejected = |meaning, fault, reason: Option<&str>| Fact::Rejected {
        packet: Kind::Syn,
        namespace: "node-1".to_owned(),
        destination: named("192.0.2.9:80", None),
        rejection: Rejection::Icmp {
            meaning,
            reason: reason.map(str::to_owned),
            fault,
        },
        bypassed: Vec::new(),
    };
    let fault = |decision| {
        let lookup = lookup(decision, None);
        Some(Fault::Route { lookup })
    };
    let tables = vec![255, 254, 253];
    let none = || RouteDecision::None {
        tables: tables.clone(),
    };
    let unsent = |fault, error: Option<&str>| Fact::NothingSent {
        namespace: "node-1".to_owned(),
        error: error.map(str::to_owned),
        no_route: true,
        fault,
    };
    let unreachable = Some("Network is unreachable (os error 101)");
    insta::assert_snapshot!(render([
        rejected(
            IcmpMeaning::NetUnreachable,
            fault(none()),
            Some("IP_INNOROUTES")
        ),
        rejected(IcmpMeaning::NetUnreachable, None, None),
        rejected(IcmpMeaning::HostUnreachable, fault(refusal()), None),
        rejected(
            IcmpMeaning::HostUnreachable,
            fault(route("192.0.2.9/32 dev cali0", "cali0")),
            None
        ),
        rejected(IcmpMeaning::HostUnreachable, None, None),
        rejected(IcmpMeaning::Prohibited, None, None),
        rejected(IcmpMeaning::TooBig, None, None),
        unsent(fault(none()), unreachable),
        unsent(None, unreachable),
        unsent(None, None),
    ]));
}
