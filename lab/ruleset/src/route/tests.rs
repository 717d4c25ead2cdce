use super::*;

/// Output of iproute2 6.1.
pub const TEXT: &str = "\
default via 10.0.0.9 dev eth0 metric 100 
10.0.0.0/24 dev eth0 proto kernel scope link src 10.0.0.1 
10.3.0.0/16 
	nexthop via 10.0.0.5 dev eth0 weight 1 
	nexthop via 10.0.0.6 dev eth0 weight 2 
blackhole 10.4.0.0/16 
10.6.0.0/16 via 10.77.0.1 dev eth0 table 100 onlink mtu lock 1400 advmss 1300 
10.7.0.0/16 via inet6 fe80::5 dev eth0 
10.8.0.0/16 tos 0x10 dev eth0 proto openr scope link src 10.0.0.2 
10.11.0.0/16  encap ip id 5 src 0.0.0.0 dst 10.0.0.7 ttl 0 tos 0 dev eth0 scope link 
10.12.0.0/16 nhid 1 via 10.0.0.5 dev eth0 
local 10.0.0.1 dev eth0 table local proto kernel scope host src 10.0.0.1 
fd01::/64 metric 1024 pref medium
	nexthop via fd00::5 dev eth0 weight 1 
	nexthop via fd00::6 dev eth0 weight 1 
default via fe80::1 dev eth0 proto ra metric 1024 expires 1790sec hoplimit 64 pref medium
unreachable default dev lo metric 4294967295 error -101 pref medium
";

#[test]
fn parse_iproute2_output_returns_routes() {
    let mut problems = Vec::new();
    let routes = parse(&Text::new(TEXT), Family::V4, &mut problems);
    assert_eq!(problems, []);
    assert_eq!(routes.len(), 13);
    assert_eq!(routes[2].hops.len(), 2);
    assert_eq!(routes[3].kind.as_deref(), Some("blackhole"));
    assert_eq!(routes[4].table(), "100");
    assert_eq!(routes[4].attributes.get("mtu"), Some("lock 1400"));
    assert_eq!(routes[5].attributes.get("via"), Some("inet6 fe80::5"));
    assert_eq!(routes[5].ip, Family::V4);
    let encap = "ip id 5 src 0.0.0.0 dst 10.0.0.7 ttl 0 tos 0";
    assert_eq!(routes[7].attributes.get("encap"), Some(encap));
    for route in &routes[10..] {
        assert_eq!(route.ip, Family::V6, "{}", route.to);
    }
}

#[test]
fn parse_invalid_lines_reports_positions() {
    let text = "\tnexthop via 10.0.0.1\nhello\n10.0.0.0/8 dve eth0\n10.0.0.0/8 via\n\
                10.0.0.0/40 dev eth0\n10.0.0.0/8 dev eth0 metric low\n";
    let mut problems = Vec::new();
    let _ = parse(&Text::new(text), Family::V4, &mut problems);
    let places: Vec<&str> = problems.iter().map(|p| &text[p.range.clone()]).collect();
    assert_eq!(
        places,
        [
            "nexthop via 10.0.0.1",
            "hello",
            "dve",
            "via",
            "10.0.0.0/40",
            "low"
        ]
    );
}
