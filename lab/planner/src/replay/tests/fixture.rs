//! A plan with a node, and a dump of it.

use super::*;

/// Returns one end of a veth pair.
fn veth_end(namespace: &str, dev: &str, to: &str, peer: &str, addresses: &[&str]) -> Link {
    Link {
        name: dev.to_owned(),
        kind: LinkKind::Veth {
            namespace: to.to_owned(),
            peer: peer.to_owned(),
        },
        mac: Mac::from_names(namespace, dev),
        addresses: addresses
            .iter()
            .map(|address| address.parse().unwrap())
            .collect(),
        bridge: None,
        port: PortSettings::default(),
        down: false,
        mtu: None,
    }
}

fn route(to: &str, via: Option<&str>, dev: &str) -> Route {
    Route {
        via: via.map(|via| via.parse().unwrap()),
        ..Route::new(to.parse().unwrap(), dev)
    }
}

/// Returns the plan of a node with one pod, as in a lab with Calico.
pub(super) fn plan_with_node() -> Plan {
    Plan {
        namespaces: vec![
            Namespace {
                name: "fabric".to_owned(),
                links: vec![veth_end(
                    "fabric",
                    "node-1",
                    "node-1",
                    "eth0",
                    &["10.0.0.254/24"],
                )],
                ..Namespace::default()
            },
            Namespace {
                name: "node-1".to_owned(),
                links: vec![
                    veth_end("node-1", "eth0", "fabric", "node-1", &["10.0.0.1/24"]),
                    veth_end("node-1", "cali0123", "pod/default/web", "eth0", &[]),
                    Link {
                        kind: LinkKind::Bridge,
                        ..veth_end("node-1", "docker0", "", "", &["172.17.0.1/16"])
                    },
                ],
                routes: vec![
                    route("0.0.0.0/0", Some("10.0.0.254"), "eth0"),
                    route("10.1.0.5/32", None, "cali0123"),
                ],
                neighbours: vec![Neighbour {
                    address: "10.1.0.5".parse().unwrap(),
                    mac: Mac::from_names("pod/default/web", "eth0"),
                    dev: "cali0123".to_owned(),
                }],
                sysctls: vec![
                    Sysctl {
                        key: "net.ipv4.conf.eth0.rp_filter".to_owned(),
                        value: "0".to_owned(),
                        link: Some("eth0".to_owned()),
                        optional: false,
                    },
                    Sysctl {
                        key: "net.ipv4.conf.docker0.rp_filter".to_owned(),
                        value: "0".to_owned(),
                        link: Some("docker0".to_owned()),
                        optional: false,
                    },
                ],
                iptables: Some(Iptables {
                    backend: Backend::Nft,
                    v4: Input::from_text("*nat\nCOMMIT\n"),
                    v6: Input::default(),
                }),
                ..Namespace::default()
            },
            Namespace {
                name: "pod/default/web".to_owned(),
                links: vec![veth_end(
                    "pod/default/web",
                    "eth0",
                    "node-1",
                    "cali0123",
                    &["10.1.0.5/32"],
                )],
                ..Namespace::default()
            },
        ],
        ..Plan::default()
    }
}

/// Tool outputs of a node with other interface names.
pub(super) const FILES: [(&str, &str); 8] = [
    (
        "ip-addr",
        "\
1: lo: <LOOPBACK,UP,LOWER_UP> mtu 65536 qdisc noqueue state UNKNOWN group default qlen 1000
    link/loopback 00:00:00:00:00:00 brd 00:00:00:00:00:00
    inet 127.0.0.1/8 scope host lo
    inet 10.9.9.9/32 scope global lo
2: ens5: <BROADCAST,MULTICAST,UP,LOWER_UP> mtu 9001 qdisc mq state UP group default qlen 1000
    link/ether 0a:ff:e3:00:00:01 brd ff:ff:ff:ff:ff:ff
    inet 10.0.0.1/24 brd 10.0.0.255 scope global dynamic ens5
    inet6 fe80::8ff:e3ff:fe00:1/64 scope link
3: ens6: <BROADCAST,MULTICAST,UP,LOWER_UP> mtu 1500 qdisc mq state UP group default qlen 1000
    link/ether 0a:ff:e3:00:00:02 brd ff:ff:ff:ff:ff:ff
    inet 10.5.0.1/24 scope global ens6
4: tunl0@NONE: <NOARP> mtu 1480 qdisc noop state DOWN group default qlen 1000
    link/ipip 0.0.0.0 brd 0.0.0.0
5: kube-ipvs0: <BROADCAST,NOARP> mtu 1500 qdisc noop state DOWN group default
    link/ether 0a:ff:e3:00:00:03 brd ff:ff:ff:ff:ff:ff
    inet 10.96.0.10/32 scope global kube-ipvs0
6: caliabc@if3: <BROADCAST,MULTICAST,UP,LOWER_UP> mtu 1480 qdisc noqueue state UP group default
    link/ether ee:ee:ee:ee:ee:ee brd ff:ff:ff:ff:ff:ff link-netnsid 0
7: calidef@if3: <BROADCAST,MULTICAST,UP,LOWER_UP> mtu 1480 qdisc noqueue state UP group default
    link/ether ee:ee:ee:ee:ee:ee brd ff:ff:ff:ff:ff:ff link-netnsid 1
",
    ),
    (
        "ip-route",
        "\
default via 10.0.0.254 dev ens5 proto dhcp src 10.0.0.1 metric 100
10.0.0.0/24 dev ens5 proto kernel scope link src 10.0.0.1 metric 100
10.1.0.5 dev caliabc scope link
10.1.0.6 dev calidef scope link
blackhole 10.1.0.0/26 proto bird
10.2.0.0/16 proto bird
	nexthop via 10.0.0.2 dev ens5 weight 1
	nexthop via 10.0.0.3 dev ens5 weight 1
default via 10.5.0.254 dev ens6 table 200
10.7.0.0/16 via 10.0.0.9 dev ens5 table mine
local 10.0.0.1 dev ens5 table local proto kernel scope host src 10.0.0.1
broadcast 10.0.0.255 dev ens5 table local proto kernel scope link src 10.0.0.1
",
    ),
    (
        "ip-rule",
        "0:\tfrom all lookup local\n100:\tfrom 10.5.0.0/24 lookup 200\n101:\tfrom all tos 0x10 lookup 200\n\
         32766:\tfrom all lookup main\n32767:\tfrom all lookup default\n",
    ),
    (
        "sysctl-a",
        "net.ipv4.conf.all.rp_filter = 2\nnet.ipv4.conf.ens5.rp_filter = 1\nnet.ipv4.conf.ens9.rp_filter = 1\n\
         net.core.somaxconn = 4096\n",
    ),
    (
        "iptables-nft-save",
        "*mangle\n:PREROUTING ACCEPT [1:2]\n-A PREROUTING -j ACCEPT\nCOMMIT\n",
    ),
    (
        "iptables-legacy-save",
        "*nat\n:PREROUTING ACCEPT [0:0]\n:KUBE-SERVICES - [0:0]\n\
         -A PREROUTING -m set --match-set KUBE-CLUSTER-IP dst,dst -j KUBE-SERVICES\nCOMMIT\n",
    ),
    (
        "ipset-save",
        "create KUBE-CLUSTER-IP hash:ip,port family inet hashsize 1024 maxelem 65536\n\
         add KUBE-CLUSTER-IP 10.96.0.10,tcp:80\n",
    ),
    (
        "ipvsadm-Sn",
        "-A -t 10.96.0.10:80 -s rr -p 10800\n-a -t 10.96.0.10:80 -r 10.1.0.5:8080 -m -w 1\n",
    ),
];

pub(super) fn parse_files(files: &[(&str, &str)]) -> NodeDump {
    let files = files.iter().map(|(name, text)| File {
        name: (*name).to_owned(),
        format: svclab_ruleset::tool::Format::from_file_name(name),
        text: (*text).to_owned(),
    });
    let parsed = NodeDump::parse(files.collect());
    assert!(parsed.diagnostics.is_empty(), "{:?}", parsed.diagnostics);
    parsed.dump
}

pub(super) fn replace(plan: &mut Plan, node: &str, dump: &NodeDump) -> ReplayReport {
    replace_node(plan, node, dump, &HardwareAddresses::from_dumps([dump]))
}

pub(super) fn dump() -> NodeDump {
    parse_files(&FILES)
}
