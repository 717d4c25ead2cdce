//! Tests the causes of losses: the rows of the drop table, and the objects at fault.

mod objects;
mod routes;

use std::collections::BTreeSet;

use super::drop_table::drop_kind;
use super::*;
use svclab_journey::journey::{Crossing, PacketHeader, RuleMatch};
use svclab_model::plan::{
    Backend, Forwarding, ForwardingTarget, Link, LinkKind, Mac, Namespace, Neighbour, Plan,
    PortSettings, Route, RouteKind, RoutingAction, RoutingRule, Sysctl,
};
use svclab_ruleset::Protocol;
use svclab_ruleset::ipvs::{RealServer, SchedulerFlags, VirtualServer, VirtualServerKey};

const NODE: &str = "node-1";

fn mac(last: u8) -> Mac {
    Mac([0x0a, 0x58, 0, 0, 0, last])
}

fn link(name: &str, last: u8, addresses: &[&str], kind: LinkKind) -> Link {
    Link {
        name: name.to_owned(),
        kind,
        mac: mac(last),
        addresses: addresses.iter().map(|own| own.parse().unwrap()).collect(),
        bridge: None,
        port: PortSettings::default(),
        down: false,
        mtu: None,
    }
}

fn veth(namespace: &str, peer: &str) -> LinkKind {
    LinkKind::Veth {
        namespace: namespace.to_owned(),
        peer: peer.to_owned(),
    }
}

fn route(text: &str, kind: RouteKind, table: Option<u32>) -> Route {
    let words: Vec<&str> = text.split(' ').collect();
    let value = |name: &str| {
        let at = words.iter().position(|word| *word == name)?;
        words.get(at + 1).copied()
    };
    Route {
        to: words[0].parse().unwrap(),
        via: value("via").map(|via| via.parse().unwrap()),
        dev: value("dev").unwrap_or_default().to_owned(),
        onlink: false,
        source: None,
        kind,
        table,
        metric: None,
    }
}

fn rule(priority: u32, action: RoutingAction) -> RoutingRule {
    RoutingRule {
        priority,
        v6: false,
        inverted: false,
        from: None,
        to: None,
        mark: None,
        input_interface: None,
        output_interface: None,
        suppress_prefix_length: None,
        action,
    }
}

/// A node with two uplinks, a bridge with two pods, a VXLAN interface and a dummy interface.
fn plan() -> Plan {
    let mut port = link("veth-a", 11, &[], veth("pod-a", "eth0"));
    port.bridge = Some("cni0".to_owned());
    let mut other_port = link("veth-b", 12, &[], veth("pod-b", "eth0"));
    other_port.bridge = Some("cni0".to_owned());
    let vxlan = LinkKind::Vxlan {
        vni: 1,
        port: 8472,
        dev: "eth0".to_owned(),
        local: "10.0.0.1".parse().unwrap(),
    };
    let node = Namespace {
        name: NODE.to_owned(),
        links: vec![
            link("eth0", 1, &["10.0.0.1/24"], veth("router", "node-1")),
            link("eth1", 2, &["10.1.0.1/24"], veth("router", "node-1b")),
            link("cni0", 10, &["10.244.0.1/24"], LinkKind::Bridge),
            port,
            other_port,
            link("flannel.1", 13, &["10.244.0.0/32"], vxlan),
            link("dummy0", 14, &["10.9.0.1/24"], LinkKind::Dummy),
        ],
        routes: vec![
            route(
                "0.0.0.0/0 via 10.0.0.254 dev eth0",
                RouteKind::Unicast,
                None,
            ),
            route(
                "10.244.1.0/24 via 10.244.1.0 dev flannel.1",
                RouteKind::Unicast,
                None,
            ),
        ],
        ..Namespace::default()
    };
    let router = Namespace {
        name: "router".to_owned(),
        links: vec![
            link("node-1", 21, &["10.0.0.254/24"], veth(NODE, "eth0")),
            link("node-1b", 22, &["10.1.0.254/24"], veth(NODE, "eth1")),
        ],
        ..Namespace::default()
    };
    let pod = |name: &str, last, address, peer| Namespace {
        name: name.to_owned(),
        links: vec![link("eth0", last, &[address], veth(NODE, peer))],
        ..Namespace::default()
    };
    Plan {
        namespaces: vec![
            node,
            router,
            pod("pod-a", 31, "10.244.0.2/24", "veth-a"),
            pod("pod-b", 32, "10.244.0.3/24", "veth-b"),
        ],
        ..Plan::default()
    }
}

fn node(plan: &mut Plan) -> &mut Namespace {
    &mut plan.namespaces[0]
}

fn crossing(interface: &str, out: bool) -> Crossing {
    Crossing {
        interface: interface.to_owned(),
        out,
        encapsulated: false,
        packet: 0,
    }
}

/// A packet whose last hop is in the node.
fn packet(from: &str, to: &str, crossings: Vec<Crossing>, end: PathEnd) -> PacketPath {
    let addresses = AddressPair {
        source: from.parse().unwrap(),
        destination: to.parse().unwrap(),
    };
    PacketPath {
        kind: Kind::Syn,
        time: 1,
        retransmission_of: None,
        direction: true,
        hops: vec![Hop {
            namespace: NODE.to_owned(),
            crossings,
            before: addresses,
            after: addresses,
            rewritten: None,
            matches: Vec::new(),
        }],
        end,
        code: None,
        reason: None,
        header: Some(PacketHeader {
            ttl: 63,
            length: 60,
            dont_fragment: true,
            destination_mac: Some(mac(1)),
        }),
    }
}

fn dropped(reason: &str, function: &str) -> PathEnd {
    PathEnd::Dropped {
        reason: reason.to_owned(),
        function: Some(function.to_owned()),
        settings: Vec::new(),
    }
}

fn counted(counter: &str) -> PathEnd {
    PathEnd::CountedDrop {
        counter: counter.to_owned(),
        increase: 1,
        lost: 1,
        settings: Vec::new(),
    }
}

/// A packet from the router to an address, dropped after the node received it.
fn received(to: &str, end: PathEnd) -> PacketPath {
    let to = format!("{to}:80");
    packet("192.0.2.9:4000", &to, vec![crossing("eth0", false)], end)
}

fn cause(plan: &Plan, packet: &PacketPath) -> Cause {
    Cause::new(packet, packet.hops.last().unwrap(), plan)
}

fn kind_and_fault(plan: &Plan, packet: &PacketPath) -> (DropKind, Option<Fault>) {
    match cause(plan, packet) {
        Cause::Kernel { kind, fault, .. } | Cause::Counter { kind, fault, .. } => (kind, fault),
        other => panic!("{other:?}"),
    }
}

fn route_decision(plan: &Plan, packet: &PacketPath) -> (DropKind, RouteLookup) {
    match kind_and_fault(plan, packet) {
        (kind, Some(Fault::Route { lookup } | Fault::SourceRoute { lookup })) => (kind, lookup),
        other => panic!("{other:?}"),
    }
}

fn mark(packet: &mut PacketPath, mark: u32) {
    let hop = &mut packet.hops[0];
    hop.matches.push(RuleMatch {
        backend: Backend::Nft,
        table: "mangle".to_owned(),
        chain: "PREROUTING".to_owned(),
        number: None,
        rule: None,
        target: Some("policy".to_owned()),
        entries: Vec::new(),
        service: None,
        flow: hop.before,
        mark,
        dropped: false,
    });
}

#[test]
fn drop_table_rows_are_unique_and_cited() {
    let mut seen = BTreeSet::new();
    for row in DROP_TABLE {
        assert!(row.reason.is_some() || row.function.is_some(), "{row:?}");
        assert!(seen.insert((row.reason, row.function)), "{row:?}");
        assert!(
            row.source.contains(".c, ") || row.source.contains(".h, "),
            "{row:?}"
        );
        assert!(row.source.contains("(v"), "{row:?}");
    }
}

#[test]
fn drop_table_has_every_kind() {
    let in_table: BTreeSet<DropKind> = DROP_TABLE.iter().map(|row| row.kind).collect();
    let missing: Vec<DropKind> = DropKind::ALL
        .iter()
        .copied()
        .filter(|kind| !in_table.contains(kind))
        .collect();
    // Kinds of counters, and of drops without a row.
    let expected = [
        DropKind::TtlOrHeader,
        DropKind::NoConnection,
        DropKind::Unspecified,
        DropKind::Undescribed,
    ];
    assert_eq!(missing, expected);
}

#[test]
fn drop_kind_reason_precedes_function() {
    let none = "NOT_SPECIFIED";
    for (reason, function, expected) in [
        ("IP_INHDR", Some("ip_forward"), DropKind::TtlExpired),
        ("IP_INHDR", Some("ip_rcv_core"), DropKind::InvalidHeader),
        ("IP_INHDR", None, DropKind::InvalidHeader),
        (none, Some("ip_forward"), DropKind::Forward),
        ("NO_TX_TARGET", Some("br_flood"), DropKind::BridgeNoPort),
        ("NO_TX_TARGET", Some("vxlan_xmit"), DropKind::VxlanNoRemote),
        ("NO_SOCKET", Some("ip_error"), DropKind::NoSocket),
        (none, Some("ip_error"), DropKind::RouteRefused),
        // Some kernels have no names of reasons.
        ("2", Some("ip_error"), DropKind::RouteRefused),
        (none, Some("some_function"), DropKind::Unspecified),
        (none, None, DropKind::Unspecified),
        ("NEW_REASON", Some("ip_error"), DropKind::Undescribed),
    ] {
        assert_eq!(
            drop_kind(reason, function),
            expected,
            "{reason} {function:?}"
        );
    }
}
