//! Tests the sentences about objects that differ from the lab.

use super::*;
use svclab_dump::{Difference, DumpChange, DumpLocation, Side};
use svclab_judge::{Deviation, InterfaceProperty};
use svclab_model::plan::Mac;

fn deviates(deviation: Deviation) -> Fact {
    Fact::Deviates {
        namespace: "node-1".to_owned(),
        deviation,
    }
}

fn mac(last: u8) -> Mac {
    Mac([0x0a, 0x58, 0, 0, 0, last])
}

fn difference(location: DumpLocation, change: DumpChange) -> Fact {
    deviates(Deviation::Rules {
        difference: Difference {
            location,
            change,
            owner: None,
            repeated_in: None,
        },
    })
}

fn chain(program: &str) -> DumpLocation {
    DumpLocation::Chain {
        program: program.to_owned(),
        table: "filter".to_owned(),
        chain: "FORWARD".to_owned(),
    }
}

fn item(only: Side, item: &str) -> DumpChange {
    DumpChange::Item {
        only,
        item: item.to_owned(),
        line: 1,
    }
}

#[test]
fn facts_differing_rules_are_named() {
    let set = DumpLocation::Set {
        name: "KUBE-CLUSTER-IP".to_owned(),
    };
    let server = DumpLocation::Server {
        server: "-t 10.96.0.10:80".to_owned(),
    };
    let whole = |only| DumpChange::Whole { only, line: 1 };
    insta::assert_snapshot!(render([
        difference(chain("iptables-save"), item(Side::First, "-j KUBE-FORWARD")),
        difference(chain("iptables-save"), item(Side::Second, "-j DROP")),
        difference(chain("iptables-legacy-save"), item(Side::Second, "-j DROP")),
        difference(
            chain("iptables-save"),
            DumpChange::Moved {
                item: "-j DROP".to_owned(),
                first: 1,
                second: 2,
            },
        ),
        difference(
            chain("iptables-save"),
            DumpChange::Value {
                property: "policy".to_owned(),
                first: Some("ACCEPT".to_owned()),
                second: Some("DROP".to_owned()),
            },
        ),
        difference(set.clone(), item(Side::First, "10.96.0.10,tcp:80")),
        difference(set, whole(Side::First)),
        difference(
            server.clone(),
            item(Side::First, "-r 10.244.2.10:8080 -m -w 1")
        ),
        difference(server, whole(Side::Second)),
    ]));
}

#[test]
fn facts_differing_routes_are_named() {
    let unicast = || lookup(route("192.0.2.0/24 via 10.0.0.1 dev eth0", "eth0"), None);
    let none = || lookup(RouteDecision::None { tables: vec![254] }, None);
    let local = RouteDecision::Local {
        interface: "lo".to_owned(),
    };
    let pairs = [
        (unicast(), none()),
        (unicast(), lookup(refusal(), Some(MARKED))),
        (unicast(), lookup(RouteDecision::RuleRefusal, Some(MARKED))),
        (none(), lookup(local, None)),
    ];
    let facts = pairs.map(|(planned, observed)| {
        deviates(Deviation::Route {
            planned: planned.into(),
            observed: observed.into(),
        })
    });
    insta::assert_snapshot!(render(facts));
}

#[test]
fn facts_differing_neighbours_are_named() {
    let neighbour = |planned, observed| {
        deviates(Deviation::Neighbour {
            address: "10.244.1.0".parse().unwrap(),
            interface: "flannel.1".to_owned(),
            planned,
            observed,
        })
    };
    let entry = |planned: Option<&str>, observed: Option<&str>| {
        deviates(Deviation::Forwarding {
            interface: "flannel.1".to_owned(),
            mac: mac(9),
            planned: planned.map(|to| to.parse().unwrap()),
            observed: observed.map(|to| to.parse().unwrap()),
        })
    };
    let port = |planned: Option<&str>| {
        deviates(Deviation::BridgeForwarding {
            port: "veth-b".to_owned(),
            mac: mac(9),
            planned: planned.map(str::to_owned),
        })
    };
    insta::assert_snapshot!(render([
        neighbour(Some(mac(1)), Some(mac(2))),
        neighbour(Some(mac(1)), None),
        neighbour(None, Some(mac(2))),
        entry(Some("10.0.0.2"), Some("10.0.0.3")),
        entry(Some("10.0.0.2"), None),
        entry(None, Some("10.0.0.3")),
        port(Some("veth-a")),
        port(None),
    ]));
}

#[test]
fn facts_differing_interfaces_and_sysctls_are_named() {
    use InterfaceProperty as Property;

    let property = |property, planned: Option<&str>, observed: Option<&str>| {
        deviates(Deviation::Interface {
            interface: "flannel.1".to_owned(),
            property,
            planned: planned.map(str::to_owned),
            observed: observed.map(str::to_owned),
        })
    };
    let flags = [
        Property::Hairpin,
        Property::Isolated,
        Property::Learning,
        Property::Flood,
        Property::Locked,
        Property::VlanFiltering,
    ];
    let facts = [
        property(Property::Existence, Some("exists"), None),
        property(Property::State, Some("up"), Some("down")),
        property(Property::Mtu, Some("1450"), Some("68")),
        property(
            Property::HardwareAddress,
            Some("0a:58:00:00:00:01"),
            Some("0a:58:00:00:00:02"),
        ),
        property(Property::Bridge, Some("cni0"), None),
        property(Property::Arp, Some("on"), Some("off")),
        property(Property::Address, Some("10.244.1.0/32"), None),
        property(
            Property::PortState,
            Some("forwarding"),
            Some("not forwarding"),
        ),
        property(Property::Vni, Some("1"), Some("77")),
        property(Property::VxlanPort, Some("8472"), Some("4789")),
        property(Property::VxlanLocal, Some("10.0.0.1"), Some("10.0.0.9")),
        deviates(Deviation::Sysctl {
            name: "net.ipv4.ip_default_ttl".to_owned(),
            planned: "64".to_owned(),
            observed: "1".to_owned(),
        }),
        deviates(Deviation::Queue {
            interface: "eth0".to_owned(),
            kind: "netem".to_owned(),
            dropped: 3,
        }),
    ];
    let flags = flags.map(|flag| property(flag, Some("off"), Some("on")));
    insta::assert_snapshot!(render(facts.into_iter().chain(flags)));
}

#[test]
fn facts_unread_command_is_named() {
    let unread = Fact::UnreadCommand {
        namespace: "node-1".to_owned(),
        command: "ip xfrm policy flush".to_owned(),
    };
    insta::assert_snapshot!(
        render([unread]),
        @"the manual command `ip xfrm policy flush` on node-1, whose changes svclab does not read"
    );
}
