//! Tests the replay of neighbours, forwarding entries and bridge ports.

use super::super::{HardwareAddresses, ReplayReport, replace_node};
use svclab_dump::NodeDump;
use svclab_dump::node::File;
use svclab_model::plan::{
    Forwarding, ForwardingTarget, Link, LinkKind, Mac, Namespace, Neighbour, Plan, PortSettings,
};
use svclab_ruleset::tool::Format;

fn link(namespace: &str, name: &str, kind: LinkKind, addresses: &[&str]) -> Link {
    Link {
        name: name.to_owned(),
        kind,
        mac: Mac::from_names(namespace, name),
        addresses: addresses.iter().map(|one| one.parse().unwrap()).collect(),
        bridge: None,
        port: PortSettings::default(),
        down: false,
        mtu: None,
    }
}

fn veth(namespace: &str, name: &str, to: &str, peer: &str, addresses: &[&str]) -> Link {
    let kind = LinkKind::Veth {
        namespace: to.to_owned(),
        peer: peer.to_owned(),
    };
    link(namespace, name, kind, addresses)
}

fn port(name: &str, pod: &str) -> Link {
    Link {
        bridge: Some("cni0".to_owned()),
        port: PortSettings {
            hairpin: true,
            ..PortSettings::default()
        },
        ..veth("node-1", name, pod, "eth0", &[])
    }
}

fn neighbour(address: &str, mac: Mac, dev: &str) -> Neighbour {
    Neighbour {
        address: address.parse().unwrap(),
        mac,
        dev: dev.to_owned(),
    }
}

/// Returns the plan of a node with two pods and flannel, and of two other nodes.
fn plan() -> Plan {
    let tunnel = |node: &str, last: u8| {
        let kind = LinkKind::Vxlan {
            vni: 1,
            port: 8472,
            dev: "eth0".to_owned(),
            local: [10, 0, 0, last].into(),
        };
        link(node, "flannel.1", kind, &[&format!("10.244.{last}.0/32")])
    };
    let uplink = |node: &str, last: u8| {
        let address = format!("10.0.0.{last}/24");
        veth(node, "eth0", "fabric", node, &[&address])
    };
    let pod = |name: &str, port: &str, address: &str| Namespace {
        name: name.to_owned(),
        links: vec![veth(name, "eth0", "node-1", port, &[address])],
        ..Namespace::default()
    };
    let mut node = Namespace {
        name: "node-1".to_owned(),
        links: vec![
            uplink("node-1", 1),
            tunnel("node-1", 1),
            link("node-1", "cni0", LinkKind::Bridge, &["10.244.1.1/24"]),
            port("vetha", "pod/a"),
            port("vethb", "pod/b"),
        ],
        ..Namespace::default()
    };
    for (name, last) in [("node-2", 2), ("node-3", 3)] {
        let mac = Mac::from_names(name, "flannel.1");
        let uplink_mac = Mac::from_names(name, "eth0");
        let address = format!("10.244.{last}.0");
        node.neighbours.push(neighbour(&address, mac, "flannel.1"));
        node.neighbours
            .push(neighbour(&format!("10.0.0.{last}"), uplink_mac, "eth0"));
        node.forwarding.push(Forwarding {
            dev: "flannel.1".to_owned(),
            mac,
            to: ForwardingTarget::Remote([10, 0, 0, last].into()),
        });
    }
    for (name, last) in [("pod/a", 8), ("pod/b", 9)] {
        let mac = Mac::from_names(name, "eth0");
        node.neighbours
            .push(neighbour(&format!("10.244.1.{last}"), mac, "cni0"));
    }
    let other = |name: &str, last: u8| Namespace {
        name: name.to_owned(),
        links: vec![uplink(name, last), tunnel(name, last)],
        ..Namespace::default()
    };
    Plan {
        namespaces: vec![
            node,
            other("node-2", 2),
            other("node-3", 3),
            pod("pod/a", "vetha", "10.244.1.8/24"),
            pod("pod/b", "vethb", "10.244.1.9/24"),
        ],
        ..Plan::default()
    }
}

/// Interfaces of a node outside of a lab.
const LINKS: &str = "\
1: lo: <LOOPBACK,UP> mtu 65536
    link/loopback 00:00:00:00:00:00 brd 00:00:00:00:00:00
    inet 127.0.0.1/8 scope host lo
2: eth0: <BROADCAST,MULTICAST,UP,LOWER_UP> mtu 1500
    link/ether 52:54:00:00:00:01 brd ff:ff:ff:ff:ff:ff
    inet 10.0.0.1/24 brd 10.0.0.255 scope global eth0
3: flannel.1: <BROADCAST,MULTICAST,UP,LOWER_UP> mtu 1450
    link/ether 7a:00:00:00:00:01 brd ff:ff:ff:ff:ff:ff
    inet 10.244.1.0/32 scope global flannel.1
4: cni0: <BROADCAST,MULTICAST,UP,LOWER_UP> mtu 1450
    link/ether 7a:00:00:00:01:00 brd ff:ff:ff:ff:ff:ff
    inet 10.244.1.1/24 scope global cni0
5: veth111@if2: <BROADCAST,MULTICAST,UP,LOWER_UP> mtu 1450 master cni0
    link/ether 7a:00:00:00:02:01 brd ff:ff:ff:ff:ff:ff link-netnsid 0
6: veth222@if2: <BROADCAST,MULTICAST,UP,LOWER_UP> mtu 1450 master cni0
    link/ether 7a:00:00:00:02:02 brd ff:ff:ff:ff:ff:ff link-netnsid 1
";

const NEIGHBOURS: &str = "\
10.0.0.2 dev eth0 lladdr 52:54:00:00:00:02 REACHABLE
10.0.0.3 dev eth0 lladdr 52:54:00:00:00:03 STALE
10.244.2.0 dev flannel.1 lladdr 7a:00:00:00:00:02 PERMANENT
10.244.3.0 dev flannel.1 lladdr 7a:00:00:00:00:03 PERMANENT
10.244.1.8 dev cni0 lladdr 7a:00:00:00:03:08 REACHABLE
10.244.1.9 dev cni0 lladdr 7a:00:00:00:03:09 REACHABLE
";

const FORWARDING: &str = "\
33:33:00:00:00:01 dev eth0 self permanent
7a:00:00:00:01:00 dev cni0 master cni0 permanent
7a:00:00:00:03:09 dev veth111 master cni0
7a:00:00:00:03:08 dev veth222 master cni0
7a:00:00:00:00:02 dev flannel.1 dst 10.0.0.2 self permanent
7a:00:00:00:00:03 dev flannel.1 dst 10.0.0.3 self permanent
";

const PORTS: &str = "\
5: veth111@if2: <UP> mtu 1450 master cni0 state forwarding priority 32 cost 2
    hairpin on learning on flood on isolated off
6: veth222@if2: <UP> mtu 1450 master cni0 state forwarding priority 32 cost 2
    hairpin on learning on flood on isolated off
";

fn dump(links: &str, neighbours: &str, forwarding: &str, ports: &str) -> NodeDump {
    let files = [
        ("ip-addr", links),
        ("ip-neigh", neighbours),
        ("bridge-fdb", forwarding),
        ("bridge-link", ports),
    ];
    let files = files.map(|(name, text)| File {
        name: name.to_owned(),
        format: Format::from_file_name(name),
        text: text.to_owned(),
    });
    let parsed = NodeDump::parse(files.into());
    assert!(parsed.diagnostics.is_empty(), "{:?}", parsed.diagnostics);
    parsed.dump
}

fn replay(dumps: &[&NodeDump]) -> (Plan, ReplayReport) {
    let mut plan = plan();
    let known = HardwareAddresses::from_dumps(dumps.iter().copied());
    let report = replace_node(&mut plan, "node-1", dumps[0], &known);
    (plan, report)
}

/// Returns the node's neighbours, forwarding entries and port settings as text.
fn describe(plan: &Plan) -> Vec<String> {
    let node = plan.namespace("node-1").unwrap();
    let owner = |mac: Mac| {
        let namespaces = plan.namespaces.iter();
        let mut links = namespaces.flat_map(|ns| ns.links.iter().map(move |link| (ns, link)));
        let owner = links.find(|(_, link)| link.mac == mac);
        owner.map_or(mac.to_string(), |(ns, link)| {
            format!("{}/{}", ns.name, link.name)
        })
    };
    let neighbours = node.neighbours.iter();
    let neighbours =
        neighbours.map(|one| format!("{} dev {} is {}", one.address, one.dev, owner(one.mac)));
    let entries = node.forwarding.iter();
    let entries =
        entries.map(|entry| format!("{} dev {} to {:?}", owner(entry.mac), entry.dev, entry.to));
    let ports = node.links.iter().filter(|link| link.bridge.is_some());
    let ports = ports.map(|link| format!("port {}{}", link.name, link.port));
    let mut all: Vec<String> = neighbours.chain(entries).chain(ports).collect();
    all.sort();
    all
}

/// Returns how the replay of a dump differs from that of a healthy node.
fn changes(dumps: &[&NodeDump]) -> Vec<String> {
    let healthy = describe(&replay(&[&dump(LINKS, NEIGHBOURS, FORWARDING, PORTS)]).0);
    let found = describe(&replay(dumps).0);
    let lost = healthy.iter().filter(|line| !found.contains(line));
    let lost = lost.map(|line| format!("- {line}"));
    let added = found.iter().filter(|line| !healthy.contains(line));
    lost.chain(added.map(|line| format!("+ {line}"))).collect()
}

fn changes_of(neighbours: &str, forwarding: &str, ports: &str) -> Vec<String> {
    changes(&[&dump(LINKS, neighbours, forwarding, ports)])
}

#[test]
fn replay_healthy_node_translates_link_layer_addresses() {
    let (plan, report) = replay(&[&dump(LINKS, NEIGHBOURS, FORWARDING, PORTS)]);
    insta::assert_snapshot!(describe(&plan).join("\n"));
    insta::assert_snapshot!(report);
    // The pods behind the ports are known by their addresses.
    let node = plan.namespace("node-1").unwrap();
    let leads = |port: &str, pod: &str| {
        let mut links = node.links.iter();
        links.any(|link| link.name == port && link.is_veth_to(pod))
    };
    assert!(leads("veth111", "pod/b") && leads("veth222", "pod/a"));
}

#[test]
fn replay_tunnel_entries_show_faults() {
    let wrong = NEIGHBOURS.replace(
        "2.0 dev flannel.1 lladdr 7a:00:00:00:00:02",
        "2.0 dev flannel.1 lladdr 7a:00:00:00:00:99",
    );
    let swapped = NEIGHBOURS.replace(
        "2.0 dev flannel.1 lladdr 7a:00:00:00:00:02",
        "2.0 dev flannel.1 lladdr 7a:00:00:00:00:03",
    );
    let without = |text: &str, part: &str| -> String {
        let lines = text.lines().filter(|line| !line.contains(part));
        lines.flat_map(|line| [line, "\n"]).collect()
    };
    let elsewhere = FORWARDING.replace("dst 10.0.0.2", "dst 10.0.0.77");
    let to_other = FORWARDING.replace("dst 10.0.0.2", "dst 10.0.0.3");
    let port = FORWARDING.replace("dst 10.0.0.2", "dst 10.0.0.2 port 4789");
    let cases = [
        ("wrong neighbour", changes_of(&wrong, FORWARDING, PORTS)),
        (
            "neighbour of another node",
            changes_of(&swapped, FORWARDING, PORTS),
        ),
        (
            "missing neighbour",
            changes_of(&without(NEIGHBOURS, "10.244.2.0"), FORWARDING, PORTS),
        ),
        ("unknown remote", changes_of(NEIGHBOURS, &elsewhere, PORTS)),
        (
            "remote of another node",
            changes_of(NEIGHBOURS, &to_other, PORTS),
        ),
        (
            "missing entry",
            changes_of(NEIGHBOURS, &without(FORWARDING, "10.0.0.2"), PORTS),
        ),
        ("other port", changes_of(NEIGHBOURS, &port, PORTS)),
    ];
    let text = cases.map(|(name, changes)| format!("{name}\n  {}\n", changes.join("\n  ")));
    insta::assert_snapshot!(text.concat());
    // The other node's dump proves its own address, and contradicts another one.
    let own = dump(LINKS, NEIGHBOURS, FORWARDING, PORTS);
    for (mac, is_known) in [("7a:00:00:00:00:02", true), ("7a:00:00:00:00:98", false)] {
        let other = LINKS
            .replace("10.0.0.1/", "10.0.0.2/")
            .replace("10.244.1.0", "10.244.2.0")
            .replace("7a:00:00:00:00:01", mac);
        let other = dump(&other, "", "", "");
        let (plan, _) = replay(&[&own, &other]);
        let known = "10.244.2.0 dev flannel.1 is node-2/flannel.1".to_owned();
        assert_eq!(describe(&plan).contains(&known), is_known, "{mac}");
    }
}

#[test]
fn replay_neighbours_show_proven_faults() {
    let with = |line: &str| format!("{NEIGHBOURS}{line}\n");
    // The dump itself does not prove the address of 10.0.0.2.
    let unproven = NEIGHBOURS.replace("02 REACHABLE", "77 PERMANENT");
    let (plan, report) = replay(&[&dump(LINKS, &unproven, FORWARDING, PORTS)]);
    assert!(describe(&plan).contains(&"10.0.0.2 dev eth0 is node-2/eth0".to_owned()));
    insta::assert_snapshot!(report);
    // Another dump, of the same or the other node, does.
    let healthy = dump(LINKS, NEIGHBOURS, FORWARDING, PORTS);
    let broken = dump(LINKS, &unproven, FORWARDING, PORTS);
    let proven = changes(&[&broken, &healthy]);
    assert_eq!(
        proven,
        [
            "- 10.0.0.2 dev eth0 is node-2/eth0",
            "+ 10.0.0.2 dev eth0 is 52:54:00:00:00:77"
        ]
    );
    // The address of another host of the lab.
    let taken = NEIGHBOURS.replace("02 REACHABLE", "03 PERMANENT");
    assert_eq!(
        changes_of(&taken, FORWARDING, PORTS)[1],
        "+ 10.0.0.2 dev eth0 is node-3/eth0"
    );
    let failed = with("10.244.1.9 dev cni0 FAILED").replace(
        "10.244.1.9 dev cni0 lladdr 7a:00:00:00:03:09 REACHABLE\n",
        "",
    );
    let (_, report) = replay(&[&dump(LINKS, &failed, FORWARDING, PORTS)]);
    assert_eq!(
        report.omitted.last().unwrap().description,
        "`10.244.1.9 dev cni0 FAILED`"
    );
}

#[test]
fn replay_dump_of_lab_needs_no_proof() {
    let node = plan().namespaces.remove(0);
    let mac = |name: &str| {
        let mut links = node.links.iter();
        links
            .find(|link| link.name == name)
            .unwrap()
            .mac
            .to_string()
    };
    let links = LINKS
        .replace("52:54:00:00:00:01", &mac("eth0"))
        .replace("veth111", "vetha")
        .replace("veth222", "vethb");
    let neighbours = "10.0.0.2 dev eth0 lladdr 52:54:00:00:00:77 PERMANENT\n";
    let (plan, report) = replay(&[&dump(&links, neighbours, "", "")]);
    let described = describe(&plan);
    assert!(described.contains(&"10.0.0.2 dev eth0 is 52:54:00:00:00:77".to_owned()));
    assert!(report.omitted.is_empty(), "{report}");
}

#[test]
fn replay_bridge_shows_entries_and_settings() {
    let wrong_port = format!("{FORWARDING}7a:00:00:00:03:08 dev veth111 master cni0 static\n");
    let local = format!("{FORWARDING}7a:00:00:00:03:08 dev veth111 master cni0 permanent\n");
    let settings = PORTS.replacen(
        "hairpin on learning on flood on isolated off",
        "hairpin off learning off flood off isolated on locked on",
        1,
    );
    let cases = [
        ("wrong port", changes_of(NEIGHBOURS, &wrong_port, PORTS)),
        ("local", changes_of(NEIGHBOURS, &local, PORTS)),
        ("settings", changes_of(NEIGHBOURS, FORWARDING, &settings)),
    ];
    let text = cases.map(|(name, changes)| format!("{name}\n  {}\n", changes.join("\n  ")));
    insta::assert_snapshot!(text.concat());
}

#[test]
fn replay_unknown_ports_are_reported() {
    // Without learned addresses, the pods behind the ports are unknown.
    let forwarding: String = FORWARDING
        .lines()
        .filter(|line| line.contains("flannel"))
        .flat_map(|line| [line, "\n"])
        .collect();
    let equal = PORTS.replace("hairpin on", "hairpin off");
    let (plan, report) = replay(&[&dump(LINKS, NEIGHBOURS, &forwarding, &equal)]);
    let lines = describe(&plan);
    assert!(lines.contains(&"port vetha".to_owned()), "{lines:?}");
    insta::assert_snapshot!(report);
    let unequal = PORTS
        .replacen("isolated off", "isolated on", 1)
        .replace("state forwarding", "state blocking");
    let vlan = format!(
        "{forwarding}7a:00:00:00:03:08 dev cni0 vlan 7 master cni0 static\n7a:00:00:00:03:08 dev veth9 master cni0 static\n"
    );
    let (_, report) = replay(&[&dump(LINKS, NEIGHBOURS, &vlan, &unequal)]);
    insta::assert_snapshot!(report);
    let known = PORTS
        .replacen("state forwarding", "state blocking", 1)
        .replace(
            "isolated off",
            "isolated off neigh_suppress on vlan_tunnel on",
        );
    let (_, report) = replay(&[&dump(LINKS, NEIGHBOURS, FORWARDING, &known)]);
    insta::assert_snapshot!(report);
    // Not the kernel, because the interface and its bridge are up.
    let disabled = PORTS.replacen("state forwarding", "state disabled", 1);
    let (plan, _) = replay(&[&dump(LINKS, NEIGHBOURS, FORWARDING, &disabled)]);
    let node = plan.namespace("node-1").unwrap();
    let ports = node.links.iter().filter(|link| !link.port.forwarding);
    assert_eq!(ports.count(), 1);
    // The kernel disables the port of an interface without carrier.
    let without_carrier = LINKS.replace("UP", "NO-CARRIER,UP");
    let (plan, _) = replay(&[&dump(&without_carrier, NEIGHBOURS, FORWARDING, &disabled)]);
    let node = plan.namespace("node-1").unwrap();
    assert!(node.links.iter().all(|link| link.port.forwarding));
}
