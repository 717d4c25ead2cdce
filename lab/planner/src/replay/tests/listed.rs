//! Tests which parts of a dump are listed as simulated or omitted.

use super::*;

/// Returns the report of a dump with additional files.
fn report_with(files: &[(&str, &str)]) -> ReplayReport {
    let all: Vec<(&str, &str)> = FILES.into_iter().chain(files.iter().copied()).collect();
    replace(&mut plan_with_node(), "node-1", &parse_files(&all))
}

#[test]
fn replace_node_traffic_control_is_listed() {
    let report = report_with(&[
        (
            "tc-qdisc",
            "qdisc noqueue 0: dev lo root refcnt 2\nqdisc mq 0: dev ens5 root\n\
             qdisc fq_codel 0: dev ens5 parent :1 limit 10240p\n\
             qdisc fq_codel 0: dev ens5 parent :2 limit 10240p\n\
             qdisc netem 8001: dev ens6 root refcnt 2 limit 1000 loss 10%\n\
             qdisc clsact ffff: dev ens5 parent ffff:fff1\n\
             qdisc netem 8002: dev other root refcnt 2 limit 1000 loss 10%\n",
        ),
        (
            "tc-filter",
            "# tc filter show dev ens5 egress\nfilter protocol ip pref 1 u32 chain 0\n\
             # tc filter show dev other ingress\nfilter protocol ip pref 1 u32 chain 0\n",
        ),
        (
            "conntrack-L",
            "icmp 1 27 src=10.0.0.1 dst=10.0.0.2 type=8 code=0 id=7 src=10.0.0.2 dst=10.0.0.1 type=0 code=0 id=7 mark=0 zone=5 use=1\n",
        ),
    ]);
    insta::assert_snapshot!(added_lines(&report), @r"
    no queues on 1 interface (fq_codel, mq on the node): packets leave at once
    tc-qdisc:5: `qdisc netem root limit 1000 loss 10%` of ens6
    svclab does not build such queues
    packets that leave through ens6 are not delayed, limited or dropped
    tc-filter:2: 1 filter of tc of ens5 egress
    svclab does not build filters of tc
    packets that they drop, redirect or change pass unchanged
    1 tracked connection, zone 5: a lab starts without connections; packets of probes belong to none of these connections
    ");
}

#[test]
fn replace_node_unknown_order_of_chains_is_listed() {
    let tables = "table ip kube-proxy {\n\tchain nat-prerouting {\n\t\ttype nat hook prerouting priority dstnat; policy accept;\n\t\tcounter\n\t}\n\
                  \tchain nat-output {\n\t\ttype nat hook output priority dstnat; policy accept;\n\t\tcounter\n\t}\n}\n";
    let report = |rules: &str| {
        let iptables = format!(
            "*nat\n:PREROUTING ACCEPT [0:0]\n:OUTPUT ACCEPT [0:0]\n:A - [0:0]\n{rules}COMMIT\n"
        );
        let mut files = FILES.to_vec();
        files.retain(|(name, _)| *name != "iptables-nft-save");
        files.extend([("iptables-nft-save", iptables.as_str()), ("nft", tables)]);
        replace(&mut plan_with_node(), "node-1", &parse_files(&files))
    };
    let translates = report(
        "-A PREROUTING -p tcp -j A\n-A OUTPUT -j RETURN\n-A A -p tcp -j DNAT --to-destination 10.0.0.9\n",
    );
    let order = |report: &ReplayReport| {
        let lines = report.to_string();
        let lines = lines.lines().filter(|line| line.contains("order of ip"));
        lines.map(|line| line.trim().to_owned()).collect::<Vec<_>>()
    };
    insta::assert_snapshot!(order(&translates).join("\n"), @"the order of ip kube-proxy nat-prerouting and PREROUTING of iptables: the chain that was created last runs first, and dumps do not show it; the lab runs ip kube-proxy nat-prerouting first; on the node, rules of PREROUTING of iptables may translate destinations before that");
    let other = report("-A PREROUTING -j RETURN\n-A A -p tcp -j DNAT --to-destination 10.0.0.9\n");
    assert_eq!(order(&other), Vec::<String>::new());
}

#[test]
fn replace_node_order_of_chains_is_that_of_the_listing() {
    let proxy = "table ip kube-proxy {\n\tchain services {\n\t}\n\tchain nat-prerouting {\n\t\ttype nat hook prerouting priority dstnat; policy accept;\n\t\tcounter\n\t}\n}\n";
    let table = |chains: &[&str]| {
        let chain = |name: &&str| {
            match *name {
            "PREROUTING" => "\tchain PREROUTING {\n\t\ttype nat hook prerouting priority dstnat; policy accept;\n\t\tcounter packets 0 bytes 0 dnat to 10.0.0.9\n\t}\n".to_owned(),
            "POSTROUTING" => "\tchain POSTROUTING {\n\t\ttype nat hook postrouting priority srcnat; policy accept;\n\t}\n".to_owned(),
            other => format!("\tchain {other} {{\n\t}}\n"),
        }
        };
        let chains: String = chains.iter().map(chain).collect();
        format!("table ip nat {{\n{chains}}}\n")
    };
    let restored = table(&["PREROUTING", "POSTROUTING", "CNI"]);
    let later = table(&["POSTROUTING", "CNI", "PREROUTING"]);
    let saved = "*nat\n:PREROUTING ACCEPT [0:0]\n:POSTROUTING ACCEPT [0:0]\n:CNI - [0:0]\n\
                 -A PREROUTING -j DNAT --to-destination 10.0.0.9\nCOMMIT\n";
    let replayed = |listing: String, saved: Option<&str>| {
        let mut files = FILES.to_vec();
        files.retain(|(name, _)| *name != "iptables-nft-save");
        files.extend(saved.map(|saved| ("iptables-nft-save", saved)));
        files.push(("nft", &listing));
        let mut plan = plan_with_node();
        let report = replace(&mut plan, "node-1", &parse_files(&files)).to_string();
        let mut effects = report.lines().filter(|line| line.contains("the lab runs"));
        let node = plan.namespace("node-1").expect("the node");
        let tables = node.nft.state().expect("tables").tables.iter();
        let tables: Vec<String> = tables.map(svclab_ruleset::nft::Table::full_name).collect();
        let order = if node.nft_first {
            "nftables"
        } else {
            "iptables"
        };
        let effect = effects.next().map(|line| line.trim().to_owned());
        format!("{order} first, {tables:?}: {}", effect.unwrap_or_default())
    };
    let results = [
        replayed(format!("{proxy}{restored}"), Some(saved)),
        replayed(format!("{restored}{proxy}"), Some(saved)),
        replayed(format!("{later}{proxy}"), Some(saved)),
        replayed(format!("{later}{proxy}"), None),
    ];
    insta::assert_snapshot!(results.join("\n"), @r#"
    nftables first, ["ip kube-proxy"]: 
    iptables first, ["ip kube-proxy"]: 
    nftables first, ["ip kube-proxy"]: the order of ip kube-proxy nat-prerouting and PREROUTING of iptables: the chain that was created last runs first, and dumps do not show it; the lab runs PREROUTING of iptables first; on the node, rules of ip kube-proxy nat-prerouting may translate destinations before that
    nftables first, ["ip kube-proxy", "ip nat"]: the order of ip kube-proxy nat-prerouting and PREROUTING of iptables: the chain that was created last runs first, and dumps do not show it; the lab runs PREROUTING of iptables first; on the node, rules of ip kube-proxy nat-prerouting may translate destinations before that
    "#);
}

#[test]
fn replace_node_ipsec_policies_are_listed() {
    let report = report_with(&[(
        "ip-xfrm-policy",
        "src 10.0.0.0/24 dst 10.0.1.0/24 \n\tdir out action block priority 0 ptype main \n\
         src 10.0.0.0/24 dst 10.0.2.0/24 \n\tdir out priority 0 ptype main \n\
         \ttmpl src 10.0.0.1 dst 10.0.2.1\n\t\tproto esp reqid 1 mode tunnel\n\
         src 10.0.2.0/24 dst 10.0.0.0/24 \n\tdir fwd priority 0 ptype main \n\
         \ttmpl src 10.0.2.1 dst 10.0.0.1\n\t\tproto esp reqid 1 mode tunnel\n\
         src 0.0.0.0/0 dst 0.0.0.0/0 \n\tsocket in priority 0 ptype main \n",
    )]);
    insta::assert_snapshot!(added_lines(&report), @r"
    ip-xfrm-policy:1: `src 10.0.0.0/24 dst 10.0.1.0/24 dir out action block priority 0 ptype main`
    svclab does not build IPsec policies
    packets that the policy drops pass
    ip-xfrm-policy:3: 2 IPsec policies
    svclab does not build IPsec policies
    packets are neither encrypted nor decrypted, and none are dropped
    ");
}

#[test]
fn replace_node_sysctls_are_written_or_listed() {
    let mut files = FILES.to_vec();
    files.retain(|(name, _)| *name != "sysctl-a");
    files.push((
        "sysctl-a",
        "net.core.somaxconn = 4096\nnet.ipv4.conf.lo.rp_filter = 1\nnet.ipv4.ip_default_ttl = 3\n\
         net.ipv4.tcp_ecn = 2\nnet.mpls.platform_labels = 100\nnet.netfilter.nf_conntrack_count = 99\n\
         net.netfilter.nf_conntrack_max = 100\nnet.netfilter.nf_conntrack_udp_timeout = 5\n\
         net.ipv4.tcp_tw_recycle = 1\nnet.ipv4.neigh.default.gc_thresh3 = 2\n\
         net.ipv6.neigh.default.gc_thresh3 = 1024\n",
    ));
    files.push((
        "ip-neigh",
        "10.0.0.7 dev ens5 lladdr 02:00:00:00:00:07 REACHABLE\n10.0.0.8 dev ens5 FAILED\n\
         10.0.0.9 dev ens5 lladdr 02:00:00:00:00:09 PERMANENT\n",
    ));
    let mut plan = plan_with_node();
    let report = replace(&mut plan, "node-1", &parse_files(&files));
    let sysctls = plan.namespace("node-1").unwrap().sysctls.iter();
    let sysctls = sysctls
        .filter(|sysctl| !sysctl.key.contains("rp_filter"))
        .map(|sysctl| {
            let optional = if sysctl.optional { ", optional" } else { "" };
            format!("{} = {}{optional}", sysctl.key, sysctl.value)
        });
    let sysctls: Vec<String> = sysctls.collect();
    insta::assert_snapshot!(sysctls.join("\n"), @r"
    net.ipv4.ip_default_ttl = 3
    net.ipv4.tcp_ecn = 2, optional
    net.netfilter.nf_conntrack_udp_timeout = 5
    ");
    insta::assert_snapshot!(added_lines(&report), @r"
    4 sysctls with an effect on packets
    replies of the next hops 10.0.0.2 on ens5, 10.0.0.3 on ens5, 10.5.0.254 on ens6: the dump does not show whether they exist, and in the lab they reply; packets through those that do not exist are lost on the node
    `10.0.0.9 dev ens5 lladdr 02:00:00:00:00:09 PERMANENT`: the dumps do not show the link-layer address of the neighbour, so the lab has the right one; if the address is wrong, packets to the neighbour are lost on the node, but not in the lab
    1 sysctl: net.mpls.platform_labels = 100: svclab does not know the effect; packets may be handled differently
    sysctl-a:7: net.netfilter.nf_conntrack_max = 100
    only the first network namespace of a kernel has this limit
    the node tracked 99 connections; the kernel drops packets of further connections (table full)
    sysctl-a:10: net.ipv4.neigh.default.gc_thresh3 = 2
    all network namespaces of a kernel share this limit
    the node had 2 neighbours; the kernel drops packets to further ones (table full)
    sysctl-a:9: net.ipv4.tcp_tw_recycle = 1
    kernels have no such sysctl since v4.12
    the node drops SYNs of clients that share an address behind source NAT
    3 sysctls: without an effect on packets, or for interfaces that are not built
    ");
}

#[test]
fn replace_node_link_state_is_listed() {
    let report = report_with(&[(
        "ip-link",
        "2: ens5: <UP> mtu 9001\n    link/ether 0a:ff:e3:00:00:01\n\
         3: ens6: <UP> mtu 1500\n    link/ether 0a:ff:e3:00:00:02\n    gre remote 10.5.0.2 local 10.5.0.1 ttl inherit\n\
         5: kube-ipvs0: <NOARP> mtu 1500\n    link/ether 0a:ff:e3:00:00:03\n    bridge stp_state 0 vlan_filtering 1\n\
         7: calidef@if3: <UP> mtu 1480\n    link/ether ee:ee:ee:ee:ee:ee\n    veth\n",
    )]);
    insta::assert_snapshot!(added_lines(&report), @r"
    omitted    tunnel ens6, gre: svclab builds a veth pair to an unknown peer instead; packets through the tunnel reach no other node
    ip-addr:14: `NOARP` of kube-ipvs0
    svclab builds such interfaces with ARP
    packets through kube-ipvs0 reach its neighbours
    ip-link:6: `vlan_filtering 1` of kube-ipvs0
    svclab does not build this setting
    packets through kube-ipvs0 are handled as without the setting
    ");
}

#[test]
fn replace_node_smaller_mtu_is_assumed_at_one_end_only() {
    let links = FILES[0].1;
    let changed = links
        .replace(
            "6: caliabc@if3: <BROADCAST,MULTICAST,UP,LOWER_UP> mtu 1480",
            "6: caliabc@if3: <UP> mtu 900",
        )
        .replace(
            "ens5: <BROADCAST,MULTICAST,UP,LOWER_UP> mtu 9001",
            "ens5: <UP> mtu 1400",
        );
    let kinds = "2: ens5: <UP> mtu 1400\n    link/ether 0a:ff:e3:00:00:01\n\
         6: caliabc@if3: <UP> mtu 900\n    link/ether ee:ee:ee:ee:ee:ee\n    veth\n\
         7: calidef@if3: <UP> mtu 1480\n    link/ether ee:ee:ee:ee:ee:ee\n    veth\n\
         8: flannel.1: <UP> mtu 1450\n    link/ether 0a:ff:e3:00:00:08\n    \
         vxlan id 1 local 10.0.0.1 dev ens5 dstport 8472\n";
    let mut files = FILES.to_vec();
    let flannel = "8: flannel.1: <UP> mtu 1450\n    link/ether 0a:ff:e3:00:00:08\n";
    let changed = format!("{changed}{flannel}");
    files[0].1 = &changed;
    files.push(("ip-link", kinds));
    let mut plan = plan_with_node();
    let report = replace(&mut plan, "node-1", &parse_files(&files));
    let mtus = ["fabric", "pod/default/web"].map(|name| plan.namespace(name).unwrap().links[0].mtu);
    assert_eq!(mtus, [Some(1500), Some(1480)]);
    let assumed = report.simulated.iter().filter(|line| line.contains("MTU"));
    let assumed: Vec<&str> = assumed.map(String::as_str).collect();
    insta::assert_snapshot!(assumed.join("\n"), @r"
    the MTU 1480 at the other ends of caliabc, as most interfaces to pods
    the MTU 1500 at the other ends of ens5, as the tunnel through it needs
    ");
}

#[test]
fn replace_node_address_states_are_listed() {
    let dumped = "2: ens5: <UP> mtu 1500 state UP\n    link/ether 0a:ff:e3:00:00:01\n\
        \x20   inet6 fd00::1/64 scope global tentative dadfailed\n\
        \x20   inet6 fd00::2/64 scope global deprecated\n\
        \x20   inet6 fd00::3/64 scope global tentative\n\
        \x20   inet6 fd00::4/64 scope global\n\
        \x20   inet6 fe80::1/64 scope link tentative\n\
        3: ens6: <UP,NO-CARRIER> mtu 1500 state DOWN\n    link/ether 0a:ff:e3:00:00:02\n\
        \x20   inet6 fd01::1/64 scope global tentative\n";
    let mut files = FILES.to_vec();
    files[0].1 = dumped;
    let report = replace(&mut plan_with_node(), "node-1", &parse_files(&files));
    let items = report.omitted.iter();
    let items = items.filter(|item| item.reason.contains("addresses without"));
    let lines: Vec<String> = items.flat_map(OmittedItem::render_lines).collect();
    insta::assert_snapshot!(lines.join("\n"), @r"
    ip-addr:3: `dadfailed` of fd00::1/64 on ens5
    svclab builds addresses without this state
    the address is used, although another machine has it
    ip-addr:4: `deprecated` of fd00::2/64 on ens5
    svclab builds addresses without this state
    new connections of the node may use the address
    ip-addr:5: `tentative` of fd00::3/64 on ens5
    svclab builds addresses without this state
    the address is used
    ");
}

#[test]
fn replace_node_route_settings_are_built() {
    let routes = "default via 10.0.0.254 dev ens5 mtu 1460 advmss lock 1400\n\
                  10.1.0.5 dev caliabc scope link mtu lock 1480 hoplimit 64\n\
                  10.3.0.0/16 tos 0x10 via 10.0.0.9 dev ens5\n\
                  10.4.0.0/16 via 10.0.0.9 dev ens5 mtu 9001 hoplimit 3\n\
                  10.5.0.0/16 from 10.6.0.0/16 via 10.0.0.9 dev ens5\n\
                  10.7.0.0/16 encap mpls 100 via 10.0.0.9 dev ens5\n\
                  10.8.0.0/16 via 10.0.0.9 dev ens5 mtu many\n";
    let mut files = FILES.to_vec();
    let file = files.iter_mut().find(|(name, _)| *name == "ip-route");
    file.unwrap().1 = routes;
    let mut plan = plan_with_node();
    let report = replace(&mut plan, "node-1", &parse_files(&files));
    let items = report.omitted.iter();
    let items = items.filter(|item| item.affects.contains("take another route"));
    let lines: Vec<String> = items.flat_map(OmittedItem::render_lines).collect();
    insta::assert_snapshot!(lines.join("\n"), @r"
    `10.5.0.0/16 from 10.6.0.0/16 via 10.0.0.9 dev ens5`: IPv4 routes have no `from`; packets that matched it take another route
    `10.8.0.0/16 via 10.0.0.9 dev ens5 mtu many`: one of its settings is not a number; packets that matched it take another route
    `10.7.0.0/16 encap mpls 100 via 10.0.0.9 dev ens5`: svclab does not support `encap` in routes; packets that matched it take another route
    `101: from all tos 0x10 lookup 200`: svclab supports only sources, destinations, marks, interfaces, protocols and ports in routing rules; packets that matched it take another route
    ");
    let node = plan.namespace("node-1").unwrap();
    let routes: Vec<String> = node.routes.iter().map(Route::to_string).collect();
    insta::assert_snapshot!(routes.join("\n"), @r"
    10.1.0.5/32 dev caliabc mtu lock 1480 hoplimit 64
    0.0.0.0/0 via 10.0.0.254 dev ens5 onlink mtu 1460 advmss 1400
    10.3.0.0/16 via 10.0.0.9 dev ens5 onlink tos 0x10
    10.4.0.0/16 via 10.0.0.9 dev ens5 onlink mtu 9001 hoplimit 3
    ");
}

#[test]
fn replace_node_changed_loopback_is_listed() {
    let lo = |text: &str| {
        let mut files = FILES.to_vec();
        files[0].1 = text;
        let report = replace(&mut plan_with_node(), "node-1", &parse_files(&files));
        let items = report.omitted.iter();
        let items = items.filter(|item| item.reason.contains("loopback interface"));
        let lines: Vec<String> = items.flat_map(OmittedItem::render_lines).collect();
        lines.join("\n")
    };
    let links = FILES[0].1;
    assert_eq!(lo(links), "");
    let changed = links
        .replace("<LOOPBACK,UP,LOWER_UP> mtu 65536", "<LOOPBACK> mtu 1000")
        .replace("    inet 127.0.0.1/8 scope host lo\n", "");
    insta::assert_snapshot!(lo(&changed), @r"
    ip-addr:1: lo is down
    the loopback interface of a namespace is up and has its default addresses
    connections of the node to itself succeed
    ip-addr:1: lo without the address 127.0.0.1
    the loopback interface of a namespace is up and has its default addresses
    packets to 127.0.0.1 are delivered
    ip-addr:1: mtu 1000 of lo
    the loopback interface of a namespace is up and has its default addresses
    larger packets of the node to itself are delivered
    ");
}

#[test]
fn replace_node_interface_without_carrier_has_peer_down() {
    let mut files = FILES.to_vec();
    let links = FILES[0]
        .1
        .replace("ens5: <", "ens5: <NO-CARRIER,")
        .replace("ens6: <", "ens6: <NO-CARRIER,");
    files[0].1 = &links;
    let mut plan = plan_with_node();
    replace(&mut plan, "node-1", &parse_files(&files));
    assert!(plan.namespace("fabric").unwrap().links[0].down);
    assert!(plan.namespace("beyond/node-1/ens6").unwrap().links[0].down);
    assert!(!plan.namespace("node-1").unwrap().links[0].down);
}

/// Returns the lines of a report that the report of the plain dump does not have.
fn added_lines(report: &ReplayReport) -> String {
    let plain = report_with(&[]).to_string();
    let text = report.to_string();
    let trim = |line: &str| {
        line.trim_start_matches(|c: char| c == ' ' || c.is_ascii_lowercase())
            .to_owned()
    };
    let known: Vec<String> = plain.lines().map(trim).collect();
    let lines = text.lines().filter(|line| !known.contains(&trim(line)));
    lines.map(str::trim).collect::<Vec<_>>().join("\n")
}

#[test]
fn replace_node_chains_that_only_nft_prints_are_built_or_listed() {
    let nft = "\
table ip mangle {
	flags dormant
	chain PREROUTING {
		type filter hook prerouting priority mangle; policy accept;
		counter accept
		counter drop
	}
	chain input {
		type filter hook input priority filter; policy drop;
	}
	chain OUTPUT {
		type route hook output priority mangle; policy accept;
	}
}
table ip nat {
	chain postrouting {
		type nat hook postrouting priority srcnat; policy accept;
		masquerade
	}
}
table ip raw {
	chain OUTPUT {
		type filter hook output priority raw; policy accept;
	}
}
";
    let mut plan = plan_with_node();
    let files = [&FILES[..], &[("nft", nft)]].concat();
    let report = replace(&mut plan, "node-1", &parse_files(&files));
    let built = plan.namespace("node-1").unwrap().nft.text().to_owned();
    let tables: Vec<&str> = built
        .lines()
        .filter(|line| line.starts_with("table "))
        .collect();
    assert_eq!(tables, ["table ip nat {"]);
    insta::assert_snapshot!(added_lines(&report), @r"
    1 table of nftables
    input of table ip mangle of nftables: not in the output of iptables-save, from which the lab has the table; their rules and policies may drop or change packets
    PREROUTING of table ip mangle of nftables: another number of rules than in the output of iptables-save, from which the lab has the table; rules that only nft prints may drop or change packets
    the flag `dormant` of table ip mangle of nftables: iptables-save does not print it; the rules of the table apply in the lab, but not on the node
    ");
}

#[test]
fn replace_node_state_of_rules_is_listed() {
    let rules = "*filter\n:INPUT ACCEPT [0:0]\n:KUBE-SVC-A - [0:0]\n:KUBE-SEP-A - [0:0]\n\
                 -A INPUT -m recent --rcheck --seconds 600 --name BAD --rsource -j DROP\n\
                 -A INPUT -m limit --limit 5/min -j LOG\n\
                 -A INPUT -m hashlimit --hashlimit-above 9/sec --hashlimit-name a -j DROP\n\
                 -A KUBE-SVC-A -m recent --rcheck --seconds 10800 --name KUBE-SEP-A --rsource -j KUBE-SEP-A\n\
                 COMMIT\n";
    let nft = "table inet own {\n\tchain input {\n\t\tmeta hour \"22:00\"-\"23:00\" drop\n\t\t\
               limit rate 5/minute log\n\t}\n}\n";
    let mut files = FILES.to_vec();
    files.retain(|(name, _)| *name != "iptables-nft-save");
    files.extend([("iptables-nft-save", rules), ("nft", nft)]);
    let report = replace(&mut plan_with_node(), "node-1", &parse_files(&files));
    let state = report
        .omitted
        .iter()
        .filter(|item| item.description.starts_with("the state of"));
    let state: Vec<String> = state
        .flat_map(super::super::report::OmittedItem::render_lines)
        .collect();
    insta::assert_snapshot!(state.join("\n"), @r"
    the state of 1 rule with remembered addresses (`recent`): a lab starts with empty lists; addresses that the node remembers match there, but not in the lab
    the state of 1 rule with limits: the limits are not used up in a lab; packets beyond the limits match other rules on the node
    the state of 1 rule with times: a lab has the time of this machine; the rules may decide in another way at the time of the fault
    ");
}

#[test]
fn replace_node_unsupported_parts_of_virtual_servers_are_listed() {
    let servers = "-A -t 10.96.0.10:80 -s mh -b flag-2\n-a -t 10.96.0.10:80 -r 10.1.0.5:8080 -m -w 1\n\
                   -A -t 10.96.0.11:80 -s rr -b flag-3\n\
                   -A -t 10.96.0.12:80 -s rr\n\
                   -a -t 10.96.0.12:80 -r 10.1.0.5:80 -i -w 1 --tun-type gue --tun-port 6080\n\
                   -A -t 10.96.0.13:80 -s rr\n-a -t 10.96.0.13:80 -r 10.1.0.5:80 -i -w 1 --tun-type ipip\n";
    let mut files = FILES.to_vec();
    files.retain(|(name, _)| *name != "ipvsadm-Sn");
    files.push(("ipvsadm-Sn", servers));
    let mut plan = plan_with_node();
    let report = replace(&mut plan, "node-1", &parse_files(&files));
    let first = &plan.namespace("node-1").unwrap().ipvs[0];
    assert!(first.flags.hash_port && !first.flags.fallback);
    let omitted = report.omitted.iter().map(|item| item.description.as_str());
    let omitted: Vec<&str> = omitted
        .filter(|description| description.contains("virtual server"))
        .collect();
    insta::assert_snapshot!(omitted.join("\n"), @r"
    scheduler flags of virtual server -t 10.96.0.11:80
    tunnel options of virtual server -t 10.96.0.12:80
    ");
}
