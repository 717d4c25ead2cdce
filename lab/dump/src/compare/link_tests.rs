//! Tests the comparison of interfaces and bridge ports.

use super::super::node::{File, NodeDump};
use super::compare;
use svclab_ruleset::tool::Format;

/// Renders the differences between two dumps.
fn differences(first: &[(&str, &str)], second: &[(&str, &str)]) -> String {
    let [first, second] = [first, second].map(NodeDump::from_texts);
    let differences = compare(&first, &second);
    let lines = differences.iter().map(ToString::to_string);
    lines.collect::<Vec<_>>().join("\n")
}

/// Renders the differences between two files, also when both dumps have them twice.
fn file_differences(name: &str, first: &str, second: &str) -> String {
    assert_eq!(differences(&[(name, first)], &[(name, first)]), "");
    differences(&[(name, first)], &[(name, second)])
}

/// Returns the errors of a dump.
fn errors(files: &[(&str, &str)]) -> String {
    let read = NodeDump::parse_texts(files);
    let messages = read.diagnostics.iter().map(|error| error.message.clone());
    messages.collect::<Vec<_>>().join("\n")
}

/// Output of iproute2 6.1.
const D_LINK: &str = "\
6: v1@v2: <BROADCAST,MULTICAST,UP,LOWER_UP> mtu 1500 qdisc noqueue master cni0 state UP mode DEFAULT group default qlen 1000
    link/ether 02:00:00:00:02:01 brd ff:ff:ff:ff:ff:ff promiscuity 1  allmulti 1 minmtu 68 maxmtu 65535 
    veth 
    bridge_slave state forwarding priority 32 cost 2 hairpin on guard off root_block off fastleave off learning on flood on port_id 0x8001 port_no 0x1 hold_timer    0.00 mcast_router 1 mcast_fast_leave off group_fwd_mask 0 isolated off addrgenmode eui64 numtxqueues 2 numrxqueues 2 gso_max_size 65536 
7: flannel.1: <BROADCAST,MULTICAST,UP,LOWER_UP> mtu 1450 qdisc noqueue state UNKNOWN mode DEFAULT group default qlen 1000
    link/ether 02:00:00:00:03:01 brd ff:ff:ff:ff:ff:ff promiscuity 0  allmulti 0 minmtu 68 maxmtu 65535 
    vxlan id 1 local 10.0.0.1 dev eth0 srcport 0 0 dstport 8472 nolearning ttl auto ageing 300 udpcsum addrgenmode eui64 numtxqueues 1 numrxqueues 1 gso_max_size 65536 
";

const BRIDGE_LINK: &str = "\
6: v1@v2: <BROADCAST,MULTICAST,UP,LOWER_UP> mtu 1500 master cni0 state forwarding priority 32 cost 2 
    hairpin on guard off root_block off fastleave off learning on flood on mcast_flood on bcast_flood on mcast_router 1 mcast_to_unicast off neigh_suppress off vlan_tunnel off isolated off locked off 
";

#[test]
fn link_details_first_line_is_compared() {
    let changed = D_LINK
        .replacen("mtu 1500", "mtu 1400", 1)
        .replacen("master cni0 ", "", 1)
        .replacen("eui64", "none", 1)
        .replace(",MULTICAST,UP,LOWER_UP> mtu 1450", ",MULTICAST> mtu 1450")
        .replace(
            "qlen 1000\n    link/ether 02:00:00:00:03:01",
            "qlen 10\n    link/ether 02:00:00:00:03:02",
        )
        .replacen("gso_max_size 65536", "gso_max_size 1500", 1);
    insta::assert_snapshot!(file_differences("ip-link", D_LINK, &changed), @r"
    interface v1: ! mtu: 1500 | 1400
    interface v1: ! master: cni0 | none
    interface v1: ! addrgenmode: eui64 | none
    interface v1: ! gso_max_size: 65536 | 1500
    interface flannel.1: ! flags: BROADCAST,LOWER_UP,MULTICAST,UP | BROADCAST,MULTICAST
    interface flannel.1: ! qlen: 1000 | 10
    ");
    // `ip addr` shows the same change.
    let addr = D_LINK.replace(" mode DEFAULT", "");
    let addr_changed = addr.replace("mtu 1450", "mtu 1400");
    let link_changed = D_LINK.replace("mtu 1450", "mtu 1400");
    insta::assert_snapshot!(
        differences(
            &[("ip-addr", &addr), ("ip-link", D_LINK)],
            &[("ip-addr", &addr_changed), ("ip-link", &link_changed)]
        ),
        @"interface flannel.1: ! mtu: 1450 | 1400"
    );
    // `ip addr` contradicts the change.
    insta::assert_snapshot!(
        differences(
            &[("ip-addr", &addr), ("ip-link", D_LINK)],
            &[("ip-addr", &addr), ("ip-link", &link_changed)]
        ),
        @"interface flannel.1: ! mtu: 1450 | 1400"
    );
}

#[test]
fn link_layer_printed_for_other_interfaces_is_compared() {
    let addresses = "\
1: lo: <LOOPBACK,UP,LOWER_UP> mtu 65536 qdisc noqueue state UNKNOWN group default qlen 1000
    link/loopback 00:00:00:00:00:00 brd 00:00:00:00:00:00
    inet 127.0.0.1/8 scope host lo
2: eth0: <BROADCAST,MULTICAST,UP,LOWER_UP> mtu 1500 qdisc mq state UP group default qlen 1000
    link/ether 02:00:00:00:00:01 brd ff:ff:ff:ff:ff:ff
    inet 10.0.0.1/24 scope global eth0
";
    let without = |kind: &str| {
        let lines = addresses.lines().filter(|line| !line.contains(kind));
        lines.collect::<Vec<_>>().join("\n") + "\n"
    };
    insta::assert_snapshot!(file_differences("ip-addr", addresses, &without("link/ether")), @"interface eth0: ! link layer: ether | none");
    // `ip -4 addr` prints none.
    assert_eq!(
        file_differences("ip-addr", addresses, &without("link/")),
        ""
    );
    // `ip -d link show eth0` completes only `eth0`.
    let eth0 = "\
2: eth0: <BROADCAST,MULTICAST,UP,LOWER_UP> mtu 1500 qdisc mq state UP mode DEFAULT group default qlen 1000
    link/ether 02:00:00:00:00:01 brd ff:ff:ff:ff:ff:ff promiscuity 0 allmulti 0
";
    let mixed = [("ip-addr", &*without("link/")), ("ip-link", eth0)];
    let complete = [("ip-addr", addresses), ("ip-link", eth0)];
    assert_eq!(differences(&complete, &mixed), "");
}

#[test]
fn link_details_volatile_values_are_ignored() {
    let bridge = "4: cni0: <UP> mtu 1500 qdisc noqueue\n    link/ether 02:00:00:00:01:01 promiscuity 0\n    bridge forward_delay 1500 gc_timer  297.20 topology_change 0 root_port 0 stp_state 0\n";
    let later = bridge
        .replace("297.20", "1.10")
        .replace("promiscuity 0", "promiscuity 2")
        .replace("topology_change 0", "topology_change 1");
    assert_eq!(file_differences("ip-link", bridge, &later), "");
    let later = D_LINK
        .replace("promiscuity 1", "promiscuity 2")
        .replace("hold_timer    0.00", "hold_timer    0.81")
        .replace("port_id 0x8001 port_no 0x1", "port_id 0x8002 port_no 0x2")
        .replace("numtxqueues 2", "numtxqueues 8");
    assert_eq!(file_differences("ip-link", D_LINK, &later), "");
    // Statistics of `ip -s`.
    let statistics =
        format!("{D_LINK}    RX:  bytes packets errors\n          3000      30      0\n");
    assert_eq!(file_differences("ip-link", D_LINK, &statistics), "");
}

#[test]
fn link_details_missing_interface_is_a_difference() {
    let start = D_LINK.find("7: ").unwrap();
    let renamed = D_LINK.replace("7: flannel.1", "7: flannel.2");
    insta::assert_snapshot!(file_differences("ip-link", D_LINK, &D_LINK[..start]), @"interface flannel.1: - whole object");
    insta::assert_snapshot!(file_differences("ip-link", D_LINK, &renamed), @r"
    interface flannel.1: - whole object
    interface flannel.2: + whole object
    ");
    let none =
        "4: a: <UP> mtu 1500 master cni0 state forwarding priority 32 cost 2\n    hairpin off\n";
    insta::assert_snapshot!(file_differences("bridge-link", BRIDGE_LINK, none), @r"
    bridge port v1: - whole object
    bridge port a: + whole object
    ");
}

#[test]
fn link_details_settings_and_lines_are_compared() {
    let link = |lines: &str| {
        format!(
            "2: a: <UP> mtu 1500 qdisc mq\n    link/ether 02:00:00:00:00:01 brd ff:ff:ff:ff:ff:ff promiscuity 0\n    {lines} \n"
        )
    };
    let compared = |first: &str, second: &str| {
        let text = file_differences("ip-link", &link(first), &link(second));
        text.replace("interface a: ", "")
    };
    insta::assert_snapshot!(compared(
        "bond mode active-backup arp_validate none primary_reselect always fail_over_mac active",
        "bond mode active-backup arp_validate active primary_reselect always fail_over_mac none",
    ), @r"
    ! arp_validate: none | active
    ! fail_over_mac: active | none
    ");
    insta::assert_snapshot!(compared("tun type tap pi off vnet_hdr on persist off", "tun type tap pi on vnet_hdr on persist off"), @"! pi: off | on");
    insta::assert_snapshot!(compared("openvswitch addrgenmode eui64", "nlmon addrgenmode eui64"), @"! kind: openvswitch | nlmon");
    insta::assert_snapshot!(compared("hsr slave1 eth0 slave2 eth1 sequence 5 proto 0", "hsr slave1 eth0 slave2 eth2 sequence 9 proto 0"), @"! slave2: eth1 | eth2");
    insta::assert_snapshot!(compared(
        "vlan protocol 802.1Q id 5 <REORDER_HDR> addrgenmode eui64",
        "vlan protocol 802.1Q id 5 <REORDER_HDR>\n      ingress-qos-map { 1:2 } addrgenmode eui64",
    ), @"! ingress-qos-map: none | { 1:2 }");
    insta::assert_snapshot!(compared(
        "bond_slave state ACTIVE mii_status UP link_failure_count 0 perm_hwaddr 02:00:00:00:00:01 queue_id 0",
        "bond_slave state BACKUP mii_status UP link_failure_count 2 perm_hwaddr 02:00:00:00:00:02 queue_id 7",
    ), @r"
    ! state: ACTIVE | BACKUP
    ! queue_id: 0 | 7
    ");
    insta::assert_snapshot!(compared("veth", "veth\n    prog/xdp id 9 name filter tag 3b18 jited"), @"+ prog/xdp name filter tag 3b18 jited");
    assert_eq!(
        compared(
            "prog/xdp id 9 tag 3b18 jited",
            "prog/xdp id 5 tag 3b18 jited"
        ),
        ""
    );
    insta::assert_snapshot!(compared(
        "vf 0     link/ether 02:00:00:00:00:03 brd ff:ff:ff:ff:ff:ff, spoof checking on",
        "vf 0     link/ether 02:00:00:00:00:04 brd ff:ff:ff:ff:ff:ff, vlan 100, spoof checking on",
    ), @r"
    - vf 0 link/ether brd ff:ff:ff:ff:ff:ff, spoof checking on
    + vf 0 link/ether brd ff:ff:ff:ff:ff:ff, vlan 100, spoof checking on
    ");
}

#[test]
fn link_details_of_one_line_equal_others() {
    let one_line = D_LINK.replace("\n    ", "\\    ");
    let [plain, one_line] = [D_LINK, &one_line].map(|text| {
        let read = NodeDump::parse(vec![File {
            name: "session".to_owned(),
            format: Some(Format::LinkDetails),
            text: text.to_owned(),
        }]);
        read.dump
    });
    assert_eq!(compare(&plain, &one_line), []);
}

#[test]
fn contradicting_files_of_links_are_an_error() {
    let other = D_LINK.replace("nolearning ttl auto", "ttl 7");
    insta::assert_snapshot!(errors(&[("a.ip-link", D_LINK), ("b.ip-link", &other)]), @"b.ip-link and a.ip-link contain different output of `ip -d link`: interface flannel.1: nolearning: on | none");
    let other = D_LINK.replace("hairpin on", "hairpin off");
    insta::assert_snapshot!(errors(&[("a.ip-link", D_LINK), ("b.ip-link", &other)]), @"b.ip-link and a.ip-link contain different output of `ip -d link`: interface v1: hairpin: on | off");
    let other = D_LINK.replace("mtu 1450", "mtu 1400");
    insta::assert_snapshot!(errors(&[("a.ip-link", D_LINK), ("b.ip-link", &other)]), @"b.ip-link and a.ip-link contain different output of `ip -d link`: the mtu of interface flannel.1 is 1450 or 1400");
    assert_eq!(errors(&[("a.ip-link", D_LINK), ("b.ip-link", D_LINK)]), "");
    let twice = format!("{D_LINK}{}", D_LINK.replace("id 1", "id 9"));
    insta::assert_snapshot!(errors(&[("ip-link", &twice)]), @r"
    interface `v1` is listed twice; first at line 1
    interface `flannel.1` is listed twice; first at line 5
    ");
}

#[test]
fn bridge_link_is_compared_next_to_link_details() {
    let changed = BRIDGE_LINK
        .replace("fastleave off", "fastleave on")
        .replace("mcast_router 1", "mcast_router 2")
        .replace("master cni0", "master cni1")
        .replace("mtu 1500", "mtu 1400")
        .replace("MULTICAST,", "")
        .replace("locked off", "locked off novel on");
    insta::assert_snapshot!(file_differences("bridge-link", BRIDGE_LINK, &changed), @r"
    bridge port v1: ! flags: BROADCAST,LOWER_UP,MULTICAST,UP | BROADCAST,LOWER_UP,UP
    bridge port v1: ! mtu: 1500 | 1400
    bridge port v1: ! fastleave: off | on
    bridge port v1: ! mcast_router: 1 | 2
    bridge port v1: ! novel: none | on
    bridge port v1: ! bridge: cni0 | cni1
    ");
    let changed = BRIDGE_LINK.replace("hairpin on", "hairpin off");
    insta::assert_snapshot!(
        differences(
            &[("ip-link", D_LINK), ("bridge-link", BRIDGE_LINK)],
            &[("ip-link", D_LINK), ("bridge-link", &changed)]
        ),
        @"bridge port v1: ! hairpin: on | off"
    );
}

#[test]
fn address_protocols_of_the_kernel_are_ignored() {
    let addr = "1: lo: <UP> mtu 65536 qdisc noqueue\n    link/loopback 00:00:00:00:00:00\n    inet 127.0.0.1/8 scope host lo\n    inet6 ::1/128 scope host \n    inet6 fd00::1/64 scope global \n";
    let newer = addr
        .replace("host lo", "host proto kernel_lo lo")
        .replace(
            "scope host \n",
            "scope host proto kernel_lo noprefixroute \n",
        )
        .replace(
            "fd00::1/64 scope global",
            "fd00::1/64 scope global proto kernel_ra",
        );
    assert_eq!(file_differences("ip-addr", addr, &newer), "");
    let other = addr.replace("scope global", "scope global proto 18");
    assert_ne!(file_differences("ip-addr", addr, &other), "");
}

#[test]
fn attached_program_is_a_difference() {
    let addr = "2: eth0: <UP> mtu 1500 qdisc mq state UP group default\n    link/ether 02:00:00:00:00:01\n";
    let program = addr.replace("mtu 1500", "mtu 1500 xdp/id:15");
    insta::assert_snapshot!(file_differences("ip-addr", addr, &program), @"interface eth0: ! xdp: none | attached");
    let reloaded = program.replace("id:15", "id:16");
    assert_eq!(file_differences("ip-addr", &program, &reloaded), "");
    let down = addr.replace(":01", ":01 protodown on");
    insta::assert_snapshot!(file_differences("ip-addr", addr, &down), @"interface eth0: ! protodown: none | on");
}
