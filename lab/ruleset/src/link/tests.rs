use super::*;

/// Output of iproute2 6.1.
const TEXT: &str = "\
2: p0@eth0: <BROADCAST,MULTICAST,UP,LOWER_UP> mtu 1500 qdisc noqueue master br0 state UP group default qlen 1000
    link/ether 12:50:5e:de:10:aa brd ff:ff:ff:ff:ff:ff link-netnsid 0
    altname enp0s3
    inet6 fe80::1050:5eff:fede:10aa/64 scope link tentative 
       valid_lft forever preferred_lft forever
3: eth0: <NO-CARRIER,UP> mtu 1500 qdisc noqueue state UP group default qlen 1000
    link/ether 26:7d:8a:6f:c2:6a brd ff:ff:ff:ff:ff:ff
    inet 10.0.0.1/24 brd 10.0.0.255 scope global eth0:1
       valid_lft forever preferred_lft forever
    inet 10.9.9.9 peer 10.9.9.10/32 scope global eth0
       valid_lft forever preferred_lft forever
    inet 10.1.1.1/24 scope global dynamic eth0
       valid_lft 1000sec preferred_lft 100sec
4: tun0: <POINTOPOINT> mtu 1500 qdisc noop state DOWN group default qlen 500
    link/none 
";

#[test]
fn parse_iproute2_output_returns_links() {
    let mut problems = Vec::new();
    let links = parse(&Text::new(TEXT), &mut problems);
    assert_eq!(problems, []);
    let p0 = &links["p0"];
    assert_eq!(p0.linked_to.as_deref(), Some("eth0"));
    assert_eq!(p0.attributes.get("master"), Some("br0"));
    assert!(p0.addresses[0].attributes.has("tentative"));
    let eth0 = &links["eth0"];
    assert_eq!(
        eth0.flags.iter().map(|f| &**f).collect::<Vec<_>>(),
        ["NO-CARRIER", "UP"]
    );
    assert_eq!(eth0.addresses[0].label.as_deref(), Some("eth0:1"));
    assert_eq!(
        eth0.addresses[1].attributes.get("peer"),
        Some("10.9.9.10/32")
    );
    assert_eq!(eth0.addresses[2].lifetime.get("valid_lft"), Some("1000sec"));
    assert_eq!(links["tun0"].mac, None);
}

#[test]
fn parse_invalid_lines_reports_positions() {
    let text = "    inet 10.0.0.1/8\n2: eth0: <UP> mtu many\n    inet 10.0.0.1/8 scope global\n\
                3: eth1: <UP> mtu 1500\n    inet 10.0.0.1/33 scope global eth1\n\
                \x20   inet fd00::1/64 scope global\n    inet 10.0.0.1/8 scoop global\n\
                \x20   valid_lft soon preferred_lft forever\n    vlam id 5\n3: eth1: <UP> mtu 1500\n\
                \x20   inet 10.0.0.2/8 scope global eth1\nhello\n";
    let mut problems = Vec::new();
    let _ = parse(&Text::new(text), &mut problems);
    let places: Vec<&str> = problems.iter().map(|p| &text[p.range.clone()]).collect();
    assert_eq!(
        places,
        [
            "inet 10.0.0.1/8",
            "many",
            "10.0.0.1/33",
            "fd00::1/64",
            "scoop",
            "soon",
            "vlam id 5",
            "eth1:",
            "hello"
        ]
    );
}

#[test]
fn parse_options_of_ip_are_accepted() {
    // Output of iproute2 6.1: `ip -o addr`, `ip -o -d link` and `ip -s -d addr`.
    let addresses = "\
1: lo    inet 127.0.0.1/8 scope host lo\\       valid_lft forever preferred_lft forever
2: eth0    inet 10.0.0.1/24 brd 10.0.0.255 scope global eth0\\       valid_lft forever preferred_lft forever
3: p0    inet 10.0.0.1/24 scope global p0\\       valid_lft forever preferred_lft forever
2: eth0    inet6 fd00::1/64 scope global \\       valid_lft forever preferred_lft forever
";
    let one_line = "\
2: p0@eth0: <BROADCAST,UP> mtu 1500 qdisc noqueue master br0 state UP mode DEFAULT group default \\    \
link/ether 12:50:5e:de:10:aa brd ff:ff:ff:ff:ff:ff promiscuity 0  allmulti 0 minmtu 68 maxmtu 65535 \\    veth \\    \
bridge_slave state forwarding priority 32
";
    let statistics = "\
2: eth0: <BROADCAST,UP> mtu 1500 qdisc mq state UP group default qlen 1000
    link/ether 02:fc:00:00:00:01 brd ff:ff:ff:ff:ff:ff promiscuity 0  allmulti 0 minmtu 68 maxmtu 65535
    vxlan id 1 local 10.0.0.1 dev eth0 srcport 0 0 dstport 8472
    inet 10.0.0.1/24 brd 10.0.0.255 scope global eth0
       valid_lft forever preferred_lft forever
    RX:  bytes packets errors dropped  missed   mcast
          3000      30      0       0       0       0
    RX errors:  length    crc   frame    fifo overrun
                     0      0       0       0       0
    TX:  bytes packets errors dropped carrier collsns
          3000      30      0       0       0       0
";
    for (text, link, address) in [
        (addresses, "eth0", "10.0.0.1/24"),
        (one_line, "p0", ""),
        (statistics, "eth0", "10.0.0.1/24"),
    ] {
        let mut problems = Vec::new();
        let links = parse(&Text::new(text), &mut problems);
        assert_eq!(problems, [], "{text}");
        let found = links[link].addresses.first();
        let found = found.map(|address| address.network.to_string());
        assert_eq!(found.unwrap_or_default(), address, "{text}");
    }
    let links = parse(&Text::new(addresses), &mut Vec::new());
    assert_eq!(links["eth0"].addresses.len(), 2);
    assert!(links["eth0"].is_partial() && links.len() == 3);
}

#[test]
fn statistics_lines_are_recognised() {
    for line in [
        "3000 30 0",
        "1.50M 30k 0",
        "RX errors:  length    crc",
        "TX: bytes",
    ] {
        assert!(is_statistics(line), "{line}");
    }
    for line in [
        "vlan protocol 802.1Q id 5",
        "ingress-qos-map { 1:2 }",
        "veth",
    ] {
        assert!(!is_statistics(line), "{line}");
    }
}

#[test]
fn parse_programs_and_details_are_accepted() {
    // Written after iproute2 7.1, `ip/ipaddress.c`, `print_linkinfo`.
    let text = "\
2: eth0: <UP> mtu 1500 xdp/id:15 qdisc mq master xdp0 state UP group default qlen 1000
    link/ether 02:fc:00:00:00:01 brd ff:ff:ff:ff:ff:ff protodown on protodown_reason <bit1> promiscuity 0
    prog/xdp id 15 tag 3b185187f1855c4c jited
    vf 0     link/ether 02:00:00:00:00:02 brd ff:ff:ff:ff:ff:ff, vlan 100, spoof checking on
3: eth0.5@eth0: <UP> mtu 1500 qdisc noqueue state UP group default
    link/ether 02:fc:00:00:00:01 brd ff:ff:ff:ff:ff:ff promiscuity 0
    vlan protocol 802.1Q id 5 <REORDER_HDR>
      ingress-qos-map { 1:2 } addrgenmode eui64
    inet 10.0.0.1/24 scope global eth0.5
";
    let mut problems = Vec::new();
    let links = parse(&Text::new(text), &mut problems);
    assert_eq!(problems, []);
    let eth0 = &links["eth0"];
    assert_eq!(eth0.attributes.get("xdp"), Some("15"));
    assert_eq!(eth0.attributes.get("master"), Some("xdp0"));
    let (_, layer) = eth0.link_layer.as_ref().unwrap();
    assert_eq!(layer.get("protodown"), Some("on"));
    assert_eq!(links["eth0.5"].addresses.len(), 1);
}
