//! Tests that insignificant differences are ignored and significant ones are reported.

use super::super::node::NodeDump;
use super::compare;

/// Returns the number of differences between two files with the same name.
fn differences(name: &str, first: &str, second: &str) -> usize {
    let read = |text: &str| NodeDump::from_texts(&[(name, text)]);
    compare(&read(first), &read(second)).len()
}

/// Renders two interfaces with these hardware addresses.
fn hardware(first: &str, second: &str) -> String {
    format!(
        "2: eth0: <UP> mtu 1500\n    link/ether {first}\n    inet 10.0.0.1/24 scope global eth0\n\
         3: cni0: <UP> mtu 1500\n    link/ether {second}\n    inet 10.1.0.1/24 scope global cni0\n"
    )
}

#[test]
fn compare_insignificant_changes_are_ignored() {
    for (name, first, second) in [
        (
            "ip-route",
            "default via 10.0.0.1 dev eth0\n10.1.0.0/16 dev eth0 scope link src 10.0.0.2\n",
            "10.1.0.0/16  dev eth0 src 10.0.0.2 scope link \ndefault via 10.0.0.1 dev eth0 \n",
        ),
        (
            "ip-6-route",
            "default via fe80::1 dev eth0 proto ra metric 1024 expires 1790sec pref medium\n",
            "default via fe80::1 dev eth0 proto ra metric 1024 expires 12sec pref medium\n",
        ),
        (
            "ip-rule",
            "0:\tfrom all lookup local\n9:\tfrom all fwmark 0x1 lookup 5\n",
            "9: from all fwmark 0x1 lookup 5\n0: from all lookup local\n",
        ),
        (
            "sysctl-a",
            "net.ipv4.tcp_rmem = 4096\t131072\t6291456\nkernel.hostname = a\nnet.netfilter.nf_conntrack_count = 5\nnet.ipv4.tcp_fastopen_key = 1-2-3-4\nnet.ipv6.conf.eth0.stable_secret = ::1\n",
            "net.netfilter.nf_conntrack_count = 7\nnet.ipv4.tcp_rmem=4096 131072 6291456\nkernel.hostname = b\n",
        ),
        (
            "ip-addr",
            "2: eth0@if5: <UP> mtu 1500\n    link/ether 02:00:00:00:00:01 brd ff:ff:ff:ff:ff:ff link-netnsid 0\n    inet 10.0.0.1/24 scope global dynamic eth0\n       valid_lft 1000sec preferred_lft 100sec\n    inet6 fe80::ff:fe00:1/64 scope link\n       valid_lft forever preferred_lft forever\n3: a: <UP> mtu 1500\n",
            "4: a: <UP> mtu 1500\n9: eth0@if7: <UP> mtu 1500\n    link/ether 02:00:00:00:00:02 brd ff:ff:ff:ff:ff:ff link-netnsid 3\n    inet 10.0.0.1/24 scope global dynamic eth0\n       valid_lft 2000sec preferred_lft 200sec\n    inet6 fe80::ff:fe00:2/64 scope link\n       valid_lft forever preferred_lft forever\n",
        ),
        // The node was built again.
        (
            "ip-addr",
            &hardware("02:00:00:00:00:01", "02:00:00:00:00:03"),
            &hardware("02:00:00:00:00:02", "02:00:00:00:00:04"),
        ),
        // An interface of a pod.
        (
            "ip-addr",
            "2: v: <UP> mtu 1500\n    link/ether 02:00:00:00:00:01\n    inet6 fe80::ff:fe00:1/64 scope link\n",
            "2: v: <UP> mtu 1500\n    link/ether 02:00:00:00:00:02\n    inet6 fe80::ff:fe00:2/64 scope link\n",
        ),
        (
            "ipset-save",
            "create A hash:ip family inet hashsize 1024 maxelem 65536 timeout 60 counters bucketsize 12 initval 0x1\nadd A 10.0.0.1 timeout 5 packets 1 bytes 60\nadd A 10.0.0.2 timeout 7 packets 1 bytes 60\n",
            "create A hash:ip hashsize 64 timeout 60 counters\nadd A 10.0.0.2 timeout 50 packets 9 bytes 900\nadd A 10.0.0.1 timeout 8 packets 2 bytes 120\n",
        ),
        (
            "ipvsadm-Sn",
            "-A -t 10.0.0.1:80 -s rr\n-a -t 10.0.0.1:80 -r 10.0.1.1:80 -i -w 1\n-a -t 10.0.0.1:80 -r 10.0.1.2:80 -m -w 1\n-A -u 10.0.0.1:80 -s rr\n",
            "-A -u 10.0.0.1:80 -s rr\n-A -t 10.0.0.1:80 -s rr\n-a -t 10.0.0.1:80 -r 10.0.1.2:80 -m -w 1\n-a -t 10.0.0.1:80 -r 10.0.1.1:80 -i -w 1 --tun-type ipip\n",
        ),
        (
            "tc-qdisc",
            "qdisc tbf 8001: dev a root refcnt 2 rate 1Mbit\nqdisc noqueue 0: dev lo root refcnt 2\n",
            "qdisc noqueue 0: dev lo root\nqdisc tbf 8004: dev a root refcnt 3 rate 1Mbit\n",
        ),
        (
            "tc-filter",
            "# tc filter show dev a ingress\nfilter protocol ip pref 1 u32 chain 0 fh 800::800\n\tindex 1 ref 1 bind 1\n",
            "# tc filter show dev a ingress\nfilter protocol ip pref 1 u32 chain 0 fh 801::800\n\tindex 2 ref 1 bind 1\n",
        ),
        (
            "ip-xfrm-policy",
            "src ::/0 dst fd00::/64\n\tdir in priority 0\nsrc ::/0 dst ::/0\n\tdir out action block priority 0\n",
            "src ::/0 dst ::/0 uid 0\n\tdir out action block index 9 priority 0\nsrc ::/0 dst fd00::/64\n\tdir in priority 0\nsrc ::/0 dst ::/0\n\tsocket in priority 0\n",
        ),
        (
            "conntrack-L",
            "udp 17 27 src=10.0.0.1 dst=10.0.0.2 sport=1 dport=2 src=10.0.0.2 dst=10.0.0.1 sport=2 dport=1 mark=0 use=1\n",
            "udp 17 5 src=10.0.0.3 dst=10.0.0.2 sport=1 dport=2 src=10.0.0.2 dst=10.0.0.3 sport=2 dport=1 mark=0 use=1\n",
        ),
    ] {
        assert_eq!(differences(name, first, second), 0, "{first}{second}");
    }
}

#[test]
fn compare_routes_and_links_reports_differences() {
    let address = |suffix: &str| format!("2: eth0: <UP> mtu 1500\n{suffix}");
    let two =
        address("    inet 10.0.0.1/24 scope global eth0\n    inet 10.1.0.1/24 scope global eth0\n");
    assert_differences(&[
        (
            "ip-addr",
            &hardware("02:00:00:00:00:01", "02:00:00:00:00:03"),
            &hardware("02:00:00:00:00:02", "02:00:00:00:00:03"),
            1,
        ),
        (
            "ip-route",
            "default via 10.0.0.1 dev eth0",
            "default via 10.0.0.1 dev eth0 onlink",
            2,
        ),
        (
            "ip-route",
            "10.1.0.0/16 dev a",
            "blackhole 10.1.0.0/16 dev a",
            2,
        ),
        (
            "ip-route",
            "10.1.0.0/16 dev a",
            "10.1.0.0/16 dev a table 5",
            2,
        ),
        (
            "ip-route",
            "10.1.0.0/16 dev a\n10.1.0.0/16 dev b",
            "10.1.0.0/16 dev b\n10.1.0.0/16 dev a",
            1,
        ),
        (
            "ip-route",
            "10.1.0.0/16\n\tnexthop via 10.0.0.1 dev a weight 1\n\tnexthop via 10.0.0.2 dev a weight 1",
            "10.1.0.0/16\n\tnexthop via 10.0.0.1 dev a weight 1\n\tnexthop via 10.0.0.2 dev a weight 2",
            2,
        ),
        (
            "ip-rule",
            "5: from all lookup 5",
            "5: not from all lookup 5",
            2,
        ),
        ("ip-rule", "5: from all lookup 5", "6: from all lookup 5", 2),
        (
            "ip-rule",
            "5: from all lookup 5\n5: from all lookup 6",
            "5: from all lookup 6\n5: from all lookup 5",
            1,
        ),
        (
            "sysctl-a",
            "net.ipv4.ip_forward = 0",
            "net.ipv4.ip_forward = 1",
            1,
        ),
        ("sysctl-a", "net.a.b = 1", "net.a.b = 1\nnet.a.c = 1", 1),
        (
            "ip-addr",
            &two,
            &address(
                "    inet 10.1.0.1/24 scope global eth0\n    inet 10.0.0.1/24 scope global eth0\n",
            ),
            1,
        ),
        ("ip-addr", &address(""), "2: eth0: <UP,NOARP> mtu 1500", 1),
        ("ip-addr", &address(""), "2: eth0@br0: <UP> mtu 1500", 1),
        (
            "ip-addr",
            &address("    inet6 fe80::1/64 scope link\n"),
            &address("    inet6 fe80::2/64 scope link\n"),
            2,
        ),
        ("ip-addr", &two, &two.replacen("global", "link", 1), 2),
        ("ip-addr", &two, &two.replacen(" eth0\n", " eth0:1\n", 1), 2),
    ]);
}

#[test]
fn compare_sets_and_servers_reports_differences() {
    let server = |suffix: &str| format!("-A -t 10.0.0.1:80 -s rr{suffix}\n");
    let set = |entries: &str| format!("create A hash:net family inet timeout 0 comment\n{entries}");
    assert_differences(&[
        (
            "ipset-save",
            &set("add A 10.0.0.0/8"),
            &set("add A 10.0.0.0/8 nomatch"),
            2,
        ),
        (
            "ipset-save",
            &set("add A 10.0.0.0/8"),
            &set("add A 10.0.0.0/8 timeout 9"),
            2,
        ),
        (
            "ipset-save",
            &set("add A 10.0.0.0/8"),
            &set("add A 10.0.0.0/8 comment \"x y\""),
            2,
        ),
        (
            "ipset-save",
            "create A hash:ip",
            "create A hash:ip family inet6",
            1,
        ),
        (
            "ipset-save",
            "create A hash:ip",
            "create A hash:ip counters",
            1,
        ),
        (
            "ipset-save",
            "create A list:set\nadd A B\nadd A C",
            "create A list:set\nadd A C\nadd A B",
            1,
        ),
        ("ipvsadm-Sn", &server(""), &server(" -p 300"), 1),
        (
            "ipvsadm-Sn",
            &server(" -p 300"),
            &server(" -p 300 -M 255.255.255.0"),
            1,
        ),
        ("ipvsadm-Sn", &server(""), &server(" -b sh-port"), 1),
        ("ipvsadm-Sn", &server(""), &server(" -o"), 1),
        ("ipvsadm-Sn", &server(""), &server(" --pe sip"), 1),
        (
            "ipvsadm-Sn",
            &server("\n-a -t 10.0.0.1:80 -r 10.0.1.1:80 -m -w 1"),
            &server("\n-a -t 10.0.0.1:80 -r 10.0.1.1:80 -g -w 1"),
            2,
        ),
        (
            "ipvsadm-Sn",
            &server("\n-a -t 10.0.0.1:80 -r 10.0.1.1:80 -i -w 1 --tun-type ipip"),
            &server("\n-a -t 10.0.0.1:80 -r 10.0.1.1:80 -i -w 1 --tun-type gre --tun-csum"),
            2,
        ),
    ]);
}

#[test]
fn compare_kinds_of_interfaces_reports_differences() {
    let link = |details: &str| {
        format!(
            "3: a@b: <UP> mtu 1500 state UP mode DEFAULT\n    link/ether 02:00:00:00:00:01\n    {details}\n"
        )
    };
    let vxlan = |settings: &str| link(&format!("vxlan {settings} addrgenmode eui64 numtxqueues 1"));
    let bridge = |settings: &str| link(&format!("bridge {settings} nf_call_iptables 0"));
    assert_differences(&[
        (
            "ip-link",
            &vxlan("id 1 local 10.0.0.1 dev eth0 dstport 8472 nolearning"),
            &vxlan("id 1 local 10.0.0.2 dev eth1 dstport 4789"),
            4,
        ),
        ("ip-link", &vxlan("id 1"), &link("veth"), 1),
        ("ip-link", &link("veth"), &link("veth numtxqueues 8"), 0),
        (
            "ip-link",
            &bridge("vlan_filtering 0 gc_timer 0.10 bridge_id 8000.1"),
            &bridge("vlan_filtering 1 gc_timer 3.20 bridge_id 8000.2"),
            1,
        ),
        (
            "ip-link",
            &link("ipip remote any local 10.0.0.1 ttl inherit nopmtudisc"),
            &link("ipip remote any local 10.0.0.1 ttl 5 nopmtudisc"),
            1,
        ),
        (
            "kube-proxy-cmdline",
            "kube-proxy\n--proxy-mode=ipvs\n--v=2\n",
            "kube-proxy\n--proxy-mode=iptables\n--v=4\n",
            1,
        ),
    ]);
}

#[test]
fn compare_traffic_control_reports_differences() {
    let qdisc = |kind: &str| format!("qdisc {kind} dev eth0 root refcnt 2");
    let filter = |place: &str, kind: &str| {
        format!("# tc filter show dev eth0 {place}\nfilter protocol ip pref 1 {kind} chain 0\n")
    };
    let connection = |zone: &str| {
        format!(
            "udp 17 27 src=10.0.0.1 dst=10.0.0.2 src=10.0.0.2 dst=10.0.0.1 mark=0{zone} use=1\n"
        )
    };
    assert_differences(&[
        ("tc-qdisc", &qdisc("noqueue 0:"), &qdisc("netem 8001:"), 2),
        ("tc-qdisc", &qdisc("htb 1:"), &qdisc("htb 2:"), 2),
        (
            "tc-qdisc",
            &qdisc("noqueue 0:"),
            &format!(
                "{}\nqdisc clsact ffff: dev eth0 parent ffff:fff1\n",
                qdisc("noqueue 0:")
            ),
            1,
        ),
        ("tc-filter", "", &filter("ingress", "u32"), 1),
        (
            "tc-filter",
            &filter("ingress", "u32"),
            &filter("egress", "u32"),
            2,
        ),
        (
            "tc-filter",
            &filter("ingress", "u32"),
            &filter("ingress", "bpf"),
            2,
        ),
        (
            "tc-class",
            "# tc class show dev eth0 parent 1:\nclass htb 1:10 root rate 1Mbit\n",
            "# tc class show dev eth0 parent 1:\nclass htb 1:10 root rate 2Mbit\n",
            2,
        ),
        ("conntrack-L", &connection(""), &connection(" zone=5"), 1),
        (
            "ip-xfrm-policy",
            "src ::/0 dst ::/0\n\tdir out priority 0\n",
            "src ::/0 dst ::/0\n\tdir out action block priority 0\n",
            2,
        ),
        (
            "ip-xfrm-policy",
            "",
            "src ::/0 dst ::/0\n\tdir out action block priority 0\n",
            1,
        ),
    ]);
}

#[test]
fn compare_neighbours_and_ports_reports_differences() {
    let neighbour = |suffix: &str| format!("10.0.0.1 dev eth0 lladdr 02:00:00:00:00:01 {suffix}\n");
    let port = |settings: &str| {
        format!(
            "4: v@p: <UP> mtu 1500 master b state forwarding priority 32 cost 2\n    {settings}\n"
        )
    };
    assert_differences(&[
        ("ip-neigh", &neighbour("REACHABLE"), &neighbour("STALE"), 0),
        (
            "ip-neigh",
            &neighbour("REACHABLE"),
            "10.0.0.1 dev eth0 FAILED\n",
            0,
        ),
        ("ip-neigh", &neighbour("STALE"), &neighbour("PERMANENT"), 1),
        (
            "ip-neigh",
            &neighbour("PERMANENT"),
            &neighbour("PERMANENT proto static"),
            0,
        ),
        (
            "ip-neigh",
            &neighbour("PERMANENT"),
            &neighbour("router PERMANENT"),
            2,
        ),
        (
            "ip-neigh",
            &neighbour("PERMANENT"),
            &neighbour("PERMANENT").replace(":01", ":02"),
            2,
        ),
        (
            "bridge-fdb",
            "02:00:00:00:00:01 dev vx0 dst 10.0.0.1 self permanent\n02:00:00:00:00:02 dev vx0 dst 10.0.0.2 self permanent\n",
            "02:00:00:00:00:02 dev vx0 dst 10.0.0.2 self permanent\n02:00:00:00:00:01 dev vx0 dst 10.0.0.1 self permanent\n",
            0,
        ),
        (
            "bridge-fdb",
            "02:00:00:00:00:01 dev vx0 dst 10.0.0.1 self permanent\n",
            "02:00:00:00:00:01 dev vx0 dst 10.0.0.2 self permanent\n",
            2,
        ),
        (
            "bridge-fdb",
            "02:00:00:00:00:01 dev v master b\n",
            "02:00:00:00:00:01 dev v master b static\n",
            1,
        ),
        (
            "bridge-link",
            &port("hairpin on"),
            &port("hairpin off isolated on"),
            2,
        ),
        (
            "bridge-link",
            &port("learning on cost 2"),
            &port("cost 4"),
            0,
        ),
    ]);
}

/// Asserts the number of differences between two texts, in either order.
fn assert_differences(cases: &[(&str, &str, &str, usize)]) {
    for (name, first, second, count) in cases {
        assert_eq!(
            differences(name, first, second),
            *count,
            "{first}\n{second}"
        );
        assert_eq!(
            differences(name, second, first),
            *count,
            "{second}\n{first}"
        );
        assert_eq!(differences(name, first, first), 0);
    }
}

#[test]
fn compare_stale_connections_reports_each_target_once() {
    let rules = "*nat\n:KUBE-SERVICES - [0:0]\n-A KUBE-SERVICES -d 10.96.0.10/32 -p udp -m udp \
                 --dport 53 -j DNAT --to-destination 10.244.1.9:53\nCOMMIT\n";
    let dump = |server: &str| {
        let lines = [4000, 4001].map(|port| {
            format!(
                "udp 17 27 src=10.244.1.5 dst=10.96.0.10 sport={port} dport=53 src={server} \
                 dst=10.244.1.5 sport=53 dport={port} mark=0 use=1\n"
            )
        });
        NodeDump::from_texts(&[("conntrack-L", &lines.concat()), ("iptables-save", rules)])
    };
    let found = compare(&dump("10.244.1.9"), &dump("10.244.3.7"));
    let found: Vec<String> = found
        .iter()
        .map(|each| format!("{:?}", each.change))
        .collect();
    insta::assert_snapshot!(found.join("\n"), @r#"Item { only: Second, item: "stale UDP connections to 10.96.0.10:53: they go to 10.244.3.7:53, which no rule names", line: 1 }"#);
    assert_eq!(
        compare(&dump("10.244.3.7"), &dump("10.244.3.7")),
        Vec::new()
    );
}

#[test]
fn compare_sets_permanent_entry_differs_from_one_with_timeout() {
    let dump = |timeout: u8| {
        let set = format!(
            "create A hash:ip family inet hashsize 1024 maxelem 65536 timeout 300\n\
             add A 10.0.0.1 timeout {timeout}\n"
        );
        NodeDump::from_texts(&[("ipset-save", &set)])
    };
    let differences = |first, second| compare(&dump(first), &dump(second)).len();
    assert_eq!(
        [(0, 4), (4, 9), (0, 0)].map(|(a, b)| differences(a, b)),
        [2, 0, 0]
    );
}
