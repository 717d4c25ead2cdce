//! Tests the commands for each kind of change.

use super::*;
use svclab_model::plan::{
    Backend, Forwarding, ForwardingTarget, Iptables, Link, LinkKind, Neighbour, PortSettings,
    Route, RouteKind, RoutingAction, RoutingRule, Sysctl, VirtualServer,
};
use svclab_ruleset::Protocol;
use svclab_ruleset::input::Input;
use svclab_ruleset::ipvs::{RealServer, VirtualServerKey};

fn parse<T: std::str::FromStr<Err: std::fmt::Debug>>(text: &str) -> T {
    text.parse().expect("valid text")
}

fn render(old: &Namespace, new: &Namespace) -> String {
    let plan = |namespace: &Namespace| Plan {
        namespaces: vec![Namespace {
            name: "node-1".to_owned(),
            ..namespace.clone()
        }],
        ..Plan::default()
    };
    let commands = commands_between(&plan(old), &plan(new));
    let lines = commands
        .into_iter()
        .map(|command| format!("{}# {}\n", command.namespace, command.line));
    lines.collect()
}

fn with_rules(backend: Backend, v4: &str) -> Namespace {
    Namespace {
        iptables: Some(Iptables {
            backend,
            v4: Input::from_text(v4),
            v6: Input::default(),
        }),
        ..Namespace::default()
    }
}

#[test]
fn commands_of_iptables_rules_match_snapshot() {
    let old = "*filter\n:FORWARD DROP [0:0]\n:MINE - [0:0]\n-A FORWARD -j MINE\n-A MINE -j RETURN\nCOMMIT\n*nat\n:A - [0:0]\n-A A -s 10.0.0.1 -j RETURN\n-A A -j B1\n-A A -j B1\n-A A -j B2\nCOMMIT\n";
    let new = "*filter\n:FORWARD ACCEPT [0:0]\nCOMMIT\n*nat\n:A - [0:0]\n:C - [0:0]\n-A A -s 10.0.0.2 -j RETURN\n-A A -j B1\n-A A -m comment --comment \"a b\" -j B3\n-A A -j B2\n-A C -j A\nCOMMIT\n";
    let commands = [Backend::Nft, Backend::Legacy]
        .map(|backend| render(&with_rules(backend, old), &with_rules(backend, new)));
    insta::assert_snapshot!(commands.join("\n"));
}

#[test]
fn commands_of_nft_tables_match_snapshot() {
    let with_tables = |text: &str| Namespace {
        nft: Input::from_text(text),
        ..Namespace::default()
    };
    let old = "table ip gone {\n}\ntable inet fw {\n\tset blocked {\n\t\ttype ipv4_addr\n\t\telements = { 10.0.0.1, 10.0.0.2 }\n\t}\n\n\tchain forward {\n\t\ttype filter hook forward priority 0; policy drop;\n\t\tip daddr 10.0.0.1 drop\n\t\tip daddr 10.0.0.2 accept\n\t\tip daddr 10.0.0.9 accept\n\t}\n}\n";
    let new = "table inet fw {\n\tset blocked {\n\t\ttype ipv4_addr\n\t\telements = { 10.0.0.2, 10.0.0.3 }\n\t}\n\n\tchain forward {\n\t\ttype filter hook forward priority 0; policy accept;\n\t\tip daddr 10.0.0.3 accept\n\t\tip daddr 10.0.0.2 accept\n\t\tip daddr 10.0.0.9 accept\n\t\tip daddr 10.0.0.4 accept\n\t\tip daddr 10.0.0.5 accept\n\t}\n}\n";
    insta::assert_snapshot!(render(&with_tables(old), &with_tables(new)));
}

#[test]
fn commands_of_sets_and_virtual_servers_match_snapshot() {
    let with = |sets: &str, real: &[(&str, u32)]| Namespace {
        ipset: Input::from_text(sets),
        ipvs: vec![VirtualServer {
            key: VirtualServerKey::Address {
                protocol: Protocol::Tcp,
                address: parse("10.96.0.10"),
                port: 80,
            },
            scheduler: "rr".to_owned(),
            persistence: None,
            flags: svclab_ruleset::ipvs::SchedulerFlags::default(),
            servers: real
                .iter()
                .map(|(address, weight)| RealServer {
                    address: parse(address),
                    weight: *weight,
                    method: svclab_ruleset::ipvs::Forwarding::Masquerade,
                })
                .collect(),
        }],
        ..Namespace::default()
    };
    let old = with(
        "create A hash:ip,port\nadd A 10.96.0.1,tcp:80\ncreate GONE hash:ip\n",
        &[("10.244.1.10:8080", 0), ("10.244.1.12:8080", 1)],
    );
    let new = with(
        "create A hash:ip,port\nadd A 10.96.0.10,tcp:80\ncreate NEW hash:ip\nadd NEW 10.0.0.1\n",
        &[("10.244.1.10:8080", 1), ("10.244.1.11:8080", 1)],
    );
    insta::assert_snapshot!(render(&old, &new));
}

fn link(name: &str, down: bool, mtu: Option<u32>, hairpin: bool) -> Link {
    Link {
        name: name.to_owned(),
        kind: LinkKind::Dummy,
        mac: parse("0a:58:00:00:00:01"),
        addresses: vec![parse("10.0.0.1/24")],
        bridge: Some("cni0".to_owned()),
        port: PortSettings {
            hairpin,
            ..PortSettings::default()
        },
        down,
        mtu,
    }
}

fn route(to: &str, via: Option<&str>, kind: RouteKind) -> Route {
    Route {
        via: via.map(parse),
        kind,
        ..Route::new(parse(to), if kind.is_unicast() { "eth0" } else { "" })
    }
}

#[test]
fn commands_of_network_match_snapshot() {
    let neighbour = |mac: &str| Neighbour {
        address: parse("10.0.0.2"),
        mac: parse(mac),
        dev: "eth0".to_owned(),
    };
    let forwarding = |to: &str| Forwarding {
        dev: "flannel.1".to_owned(),
        mac: parse("0a:58:00:00:00:02"),
        to: ForwardingTarget::Remote(parse(to)),
    };
    let sysctl = |key: &str, value: &str| Sysctl {
        key: key.to_owned(),
        value: value.to_owned(),
        link: None,
        optional: false,
    };
    let old = Namespace {
        links: vec![link("eth0", true, Some(68), false)],
        routes: vec![
            route("10.1.0.0/16", Some("10.0.0.3"), RouteKind::Unicast),
            route("10.2.0.0/16", None, RouteKind::Blackhole),
        ],
        routing_rules: vec![RoutingRule {
            from: Some(parse("10.244.1.0/24")),
            ..RoutingRule::new(false, 100, RoutingAction::Table(7))
        }],
        neighbours: vec![neighbour("0a:58:00:00:00:99")],
        forwarding: vec![forwarding("192.0.2.1")],
        sysctls: vec![
            sysctl("net.ipv4.ip_forward", "0"),
            sysctl("net.ipv4.conf.all.rp_filter", "1"),
        ],
        ..Namespace::default()
    };
    let new = Namespace {
        links: vec![link("eth0", false, Some(1500), true)],
        routes: vec![route("10.1.0.0/16", Some("10.0.0.2"), RouteKind::Unicast)],
        neighbours: vec![neighbour("0a:58:00:00:00:03")],
        forwarding: vec![forwarding("192.0.2.2")],
        sysctls: vec![sysctl("net.ipv4.ip_forward", "1")],
        ..Namespace::default()
    };
    insta::assert_snapshot!(render(&old, &new));
}
