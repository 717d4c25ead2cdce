//! Plan and packets of the tests.

use svclab_journey::journey::{Crossing, Hop, Kind, PacketHeader, PacketPath, PathEnd};
use svclab_model::evidence::AddressPair;
use svclab_model::plan::{
    Link, LinkKind, Mac, Namespace, Plan, PortSettings, Route, RouteKind, RoutingAction,
    RoutingRule,
};

pub(crate) const NODE: &str = "node-1";

pub(crate) fn mac(last: u8) -> Mac {
    Mac([0x0a, 0x58, 0, 0, 0, last])
}

pub(crate) fn link(name: &str, last: u8, addresses: &[&str], kind: LinkKind) -> Link {
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

pub(crate) fn veth(namespace: &str, peer: &str) -> LinkKind {
    LinkKind::Veth {
        namespace: namespace.to_owned(),
        peer: peer.to_owned(),
    }
}

pub(crate) fn route(text: &str, kind: RouteKind, table: Option<u32>) -> Route {
    let words: Vec<&str> = text.split(' ').collect();
    let value = |name: &str| {
        let at = words.iter().position(|word| *word == name)?;
        words.get(at + 1).copied()
    };
    Route {
        via: value("via").map(|via| via.parse().unwrap()),
        kind,
        table,
        ..Route::new(words[0].parse().unwrap(), value("dev").unwrap_or_default())
    }
}

pub(crate) fn rule(priority: u32, action: RoutingAction) -> RoutingRule {
    RoutingRule::new(false, priority, action)
}

/// A node with two uplinks, a bridge with two pods, a VXLAN interface and a dummy interface.
pub(crate) fn plan() -> Plan {
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

pub(crate) fn node(plan: &mut Plan) -> &mut Namespace {
    &mut plan.namespaces[0]
}

pub(crate) fn crossing(interface: &str, out: bool) -> Crossing {
    Crossing {
        interface: interface.to_owned(),
        out,
        encapsulated: false,
        packet: 0,
    }
}

/// A packet whose last hop is in the node.
pub(crate) fn packet(from: &str, to: &str, crossings: Vec<Crossing>, end: PathEnd) -> PacketPath {
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
            tunnel: None,
            rewritten: None,
            matches: Vec::new(),
        }],
        routing_loop: None,
        end,
        code: None,
        reason: None,
        tunnel: None,
        header: Some(PacketHeader {
            ttl: 63,
            length: 60,
            dont_fragment: true,
            destination_mac: Some(mac(1)),
        }),
    }
}
