//! Tests which route or routing rule is at fault.

use super::*;
use crate::state::route_lookup::{RouteQuery, Transport};

#[test]
fn routing_rule_selects_by_protocol_and_ports() {
    let mut plan = plan();
    node(&mut plan)
        .routes
        .push(route("10.20.0.0/16", RouteKind::Blackhole, Some(100)));
    let to_port = |plan: &Plan, destination_port| {
        let lab = LabState::new(plan, None);
        let query = RouteQuery {
            source: "10.0.0.9".parse().unwrap(),
            destination: "10.20.0.5".parse().unwrap(),
            mark: 0,
            ingress: "eth0",
            transport: Transport {
                protocol: Some(6),
                source_port: 4000,
                destination_port,
            },
        };
        let lookup = RouteLookup::new(&lab.planned(NODE).unwrap().network, query);
        matches!(lookup.decision, RouteDecision::Refusal { .. })
    };
    let selecting = RoutingRule {
        ip_protocol: Some(6),
        destination_ports: Some((80, 90)),
        ..rule(50, RoutingAction::Table(100))
    };
    node(&mut plan).routing_rules = vec![selecting.clone()];
    assert!(to_port(&plan, 85));
    assert!(!to_port(&plan, 91));
    let of_udp = RoutingRule {
        ip_protocol: Some(17),
        ..selecting.clone()
    };
    node(&mut plan).routing_rules = vec![of_udp];
    assert!(!to_port(&plan, 85));
    let of_user = RoutingRule {
        other_conditions: true,
        ..selecting
    };
    node(&mut plan).routing_rules = vec![of_user];
    assert!(!to_port(&plan, 85));
}
use crate::state::NamespaceState;

#[test]
fn no_route_blackhole_of_marked_packets_names_rule_and_route() {
    let mut plan = plan();
    let mut marked = rule(100, RoutingAction::Table(7));
    marked.mark = Some((0x1, 0xff));
    node(&mut plan).routing_rules = vec![marked];
    node(&mut plan)
        .routes
        .push(route("198.51.100.0/24", RouteKind::Blackhole, Some(7)));
    let mut flight = received("198.51.100.1", dropped("NOT_SPECIFIED", "ip_error"));
    mark(&mut flight, 0x301);
    let (kind, lookup) = route_decision(&plan, &flight);
    assert_eq!(kind, DropKind::RouteRefused);
    assert_eq!(
        lookup.rule.as_deref(),
        Some("priority 100 from all fwmark 0x1/0xff lookup 7")
    );
    assert_eq!(
        lookup.decision,
        RouteDecision::Refusal {
            route: "blackhole 198.51.100.0/24 table 7".to_owned(),
            table: 7
        }
    );
    // Without the mark, the default route leads to the destination.
    let unmarked = received("198.51.100.1", dropped("NOT_SPECIFIED", "ip_error"));
    let (_, lookup) = route_decision(&plan, &unmarked);
    assert!(
        matches!(lookup.decision, RouteDecision::Unicast { .. }),
        "{lookup:?}"
    );
}

#[test]
fn no_route_unreachable_and_prohibit_are_found() {
    for (kind, text) in [
        (RouteKind::Unreachable, "unreachable 203.0.113.0/24"),
        (RouteKind::Prohibit, "prohibit 203.0.113.0/24"),
    ] {
        let mut plan = plan();
        node(&mut plan)
            .routes
            .push(route("203.0.113.0/24", kind, None));
        let flight = received("203.0.113.5", dropped("IP_INNOROUTES", "ip_error"));
        let (_, lookup) = route_decision(&plan, &flight);
        let expected = RouteDecision::Refusal {
            route: text.to_owned(),
            table: 254,
        };
        assert_eq!((lookup.decision, lookup.rule), (expected, None));
    }
}

#[test]
fn route_of_other_traffic_class_or_source_is_not_used() {
    let mut plan = plan();
    let refused = |plan: &Plan, to: &str, from: &str| {
        let flight = packet(
            &format!("{from}:4000"),
            &format!("{to}:80"),
            vec![crossing("eth0", false)],
            dropped("IP_INNOROUTES", "ip_error"),
        );
        match kind_and_fault(plan, &flight).1 {
            Some(Fault::Route { lookup }) => {
                matches!(lookup.decision, RouteDecision::Refusal { .. })
            }
            other => panic!("{other:?}"),
        }
    };
    let mut added = route("203.0.113.0/24", RouteKind::Prohibit, None);
    node(&mut plan).routes.push(added.clone());
    assert!(refused(&plan, "203.0.113.5", "192.0.2.9"));
    node(&mut plan).routes[2].settings.tos = Some(0x10);
    assert!(!refused(&plan, "203.0.113.5", "192.0.2.9"));
    added.to = "2001:db8::/32".parse().unwrap();
    added.settings.from = Some("fd00:1::/64".parse().unwrap());
    node(&mut plan).routes.push(added);
    assert!(refused(&plan, "[2001:db8::5]", "[fd00:1::9]"));
    assert!(!refused(&plan, "[2001:db8::5]", "[fd00:2::9]"));
}

#[test]
fn too_big_packet_names_route_with_small_mtu() {
    let mut plan = plan();
    let mut flight = received("198.51.100.1", dropped("PKT_TOO_BIG", "ip_forward"));
    flight.header.as_mut().unwrap().length = 1450;
    assert_eq!(kind_and_fault(&plan, &flight), (DropKind::TooBig, None));
    let settings = &mut node(&mut plan).routes[0].settings;
    (settings.mtu, settings.mtu_locked) = (Some(1400), true);
    let (kind, lookup) = route_decision(&plan, &flight);
    assert_eq!(kind, DropKind::TooBig);
    let RouteDecision::Unicast { route, .. } = lookup.decision else {
        panic!("{lookup:?}");
    };
    assert_eq!(route, "0.0.0.0/0 via 10.0.0.254 dev eth0 mtu lock 1400");
}

#[test]
fn ipv6_packet_at_interface_with_small_mtu_names_mtu() {
    let mut plan = plan();
    let drop = |to: &str| received(to, dropped("NOT_SPECIFIED", "ip6_rcv_core"));
    assert_eq!(
        kind_and_fault(&plan, &drop("[2001:db8::5]")),
        (DropKind::IpInput, None)
    );
    node(&mut plan).links[0].mtu = Some(1200);
    let fault = Fault::NoIpv6 {
        interface: "eth0".to_owned(),
        mtu: 1200,
    };
    assert_eq!(kind_and_fault(&plan, &drop("[2001:db8::5]")).1, Some(fault));
    assert_eq!(kind_and_fault(&plan, &drop("198.51.100.1")).1, None);
}

#[test]
fn no_route_refusing_rule_is_found() {
    let mut plan = plan();
    let mut refusing = rule(50, RoutingAction::Prohibit);
    refusing.from = Some("192.0.2.0/24".parse().unwrap());
    refusing.input_interface = Some("eth0".to_owned());
    node(&mut plan).routing_rules = vec![refusing];
    let flight = received("203.0.113.5", dropped("NOT_SPECIFIED", "ip_error"));
    let (_, lookup) = route_decision(&plan, &flight);
    assert_eq!(lookup.decision, RouteDecision::RuleRefusal);
    assert_eq!(
        lookup.rule.as_deref(),
        Some("priority 50 from 192.0.2.0/24 iif eth0 prohibit")
    );
}

#[test]
fn no_route_throw_continues_with_next_rule() {
    let mut plan = plan();
    node(&mut plan).routes.remove(0);
    node(&mut plan).routing_rules = vec![rule(10, RoutingAction::Table(7))];
    node(&mut plan)
        .routes
        .push(route("203.0.113.0/24", RouteKind::Throw, Some(7)));
    let flight = received("203.0.113.5", dropped("IP_INNOROUTES", "ip_error"));
    let (_, lookup) = route_decision(&plan, &flight);
    assert_eq!(lookup.thrown, ["throw 203.0.113.0/24 table 7"]);
    let tables = vec![255, 7, 254, 253];
    assert_eq!(lookup.decision, RouteDecision::None { tables });
}

#[test]
fn no_route_suppressed_prefix_continues_with_next_rule() {
    let mut plan = plan();
    let mut suppressing = rule(10, RoutingAction::Table(254));
    suppressing.suppress_prefix_length = Some(0);
    node(&mut plan).routing_rules = vec![suppressing, rule(11, RoutingAction::Unreachable)];
    let flight = received("203.0.113.5", dropped("NOT_SPECIFIED", "ip_error"));
    let (_, lookup) = route_decision(&plan, &flight);
    assert_eq!(lookup.decision, RouteDecision::RuleRefusal);
    // A route with a longer prefix is not suppressed.
    let flight = received("10.1.0.9", dropped("NOT_SPECIFIED", "ip_error"));
    let (_, lookup) = route_decision(&plan, &flight);
    assert!(
        matches!(lookup.decision, RouteDecision::Unicast { .. }),
        "{lookup:?}"
    );
}

#[test]
fn no_route_of_interface_that_is_down_is_not_used() {
    let mut plan = plan();
    node(&mut plan).links[0].down = true;
    let flight = received("203.0.113.5", dropped("IP_INNOROUTES", "ip_error"));
    let (_, lookup) = route_decision(&plan, &flight);
    assert!(
        matches!(lookup.decision, RouteDecision::None { .. }),
        "{lookup:?}"
    );
}

#[test]
fn lost_reply_names_missing_route_to_source() {
    let mut plan = plan();
    node(&mut plan).routes.remove(0);
    let flight = received("10.0.0.1", counted("IpOutNoRoutes"));
    let (kind, lookup) = route_decision(&plan, &flight);
    assert_eq!(kind, DropKind::NoRoute);
    assert_eq!(
        lookup.address,
        "192.0.2.9".parse::<std::net::IpAddr>().unwrap()
    );
    assert!(
        matches!(lookup.decision, RouteDecision::None { .. }),
        "{lookup:?}"
    );
}

#[test]
fn reverse_path_names_route_to_source() {
    let mut plan = plan();
    let via_eth1 = route(
        "192.0.2.0/24 via 10.1.0.254 dev eth1",
        RouteKind::Unicast,
        None,
    );
    node(&mut plan).routes.push(via_eth1);
    for end in [
        dropped("IP_RPFILTER", "ip_rcv_finish_core"),
        counted("TcpExtIPReversePathFilter"),
    ] {
        let (kind, lookup) = route_decision(&plan, &received("10.0.0.1", end));
        assert_eq!(kind, DropKind::ReversePath);
        let RouteDecision::Unicast { interfaces, .. } = lookup.decision else {
            panic!("{lookup:?}");
        };
        assert_eq!(interfaces, ["eth1"]);
    }
}

#[test]
fn reverse_path_uses_mark_only_with_src_valid_mark() {
    let mut plan = plan();
    let mut marked = rule(100, RoutingAction::Table(7));
    marked.mark = Some((1, 1));
    node(&mut plan).routing_rules = vec![marked];
    let by_mark = route(
        "0.0.0.0/0 via 10.1.0.254 dev eth1",
        RouteKind::Unicast,
        Some(7),
    );
    node(&mut plan).routes.push(by_mark);
    let mut flight = received("10.0.0.1", dropped("IP_RPFILTER", "ip_rcv_finish_core"));
    mark(&mut flight, 1);
    let is_by_rule = |plan: &Plan| route_decision(plan, &flight).1.rule.is_some();
    assert!(!is_by_rule(&plan));
    node(&mut plan).sysctls.push(Sysctl {
        key: "net.ipv4.conf.all.src_valid_mark".to_owned(),
        value: "1".to_owned(),
        link: None,
        optional: false,
    });
    assert!(is_by_rule(&plan));
}

#[test]
fn local_source_is_found_with_and_without_reason() {
    let plan = plan();
    for (reason, function) in [
        ("IP_LOCAL_SOURCE", "ip_rcv_finish_core"),
        ("NOT_SPECIFIED", "ip_rcv_finish_core"),
    ] {
        let crossings = vec![crossing("eth0", false)];
        let end = dropped(reason, function);
        let flight = packet("10.1.0.1:4000", "10.0.0.1:80", crossings, end);
        let (kind, lookup) = route_decision(&plan, &flight);
        let interface = "eth1".to_owned();
        assert_eq!(kind, DropKind::LocalSource);
        assert_eq!(lookup.decision, RouteDecision::Local { interface });
    }
}

#[test]
fn route_input_without_reason_is_refined_by_addresses() {
    let mut plan = plan();
    let kind = |plan: &Plan, from: &str, to: &str| {
        let crossings = vec![crossing("eth0", false)];
        let end = dropped("NOT_SPECIFIED", "ip_rcv_finish_core");
        kind_and_fault(plan, &packet(from, to, crossings, end)).0
    };
    let to = "10.0.0.1:80";
    assert_eq!(kind(&plan, "192.0.2.9:1", to), DropKind::RouteInput);
    assert_eq!(
        kind(&plan, "192.0.2.9:1", "127.0.0.1:80"),
        DropKind::LoopbackAddress
    );
    assert_eq!(kind(&plan, "127.0.0.9:1", to), DropKind::LoopbackAddress);
    assert_eq!(kind(&plan, "224.0.0.9:1", to), DropKind::InvalidSource);
    assert_eq!(
        kind(&plan, "255.255.255.255:1", to),
        DropKind::InvalidSource
    );
    assert_eq!(kind(&plan, "0.0.0.0:1", to), DropKind::InvalidSource);
    node(&mut plan)
        .routes
        .push(route("192.0.2.0/24", RouteKind::Blackhole, None));
    assert_eq!(kind(&plan, "192.0.2.9:1", to), DropKind::InvalidSource);
}

#[test]
fn failed_route_after_translation_is_named() {
    let mut plan = plan();
    node(&mut plan)
        .routes
        .push(route("192.0.2.0/24", RouteKind::Blackhole, None));
    let end = || dropped("NETFILTER_DROP", "nf_hook_slow");
    let mut sent = packet("10.0.0.1:4000", "10.96.0.1:80", Vec::new(), end());
    assert_eq!(kind_and_fault(&plan, &sent).0, DropKind::Netfilter);
    sent.hops[0].after.destination = "192.0.2.9:80".parse().unwrap();
    let (kind, lookup) = route_decision(&plan, &sent);
    assert_eq!(kind, DropKind::RouteRefused);
    assert_eq!(lookup.address.to_string(), "192.0.2.9");
}

#[test]
fn mark_of_route_is_that_before_postrouting() {
    let mut sent = packet(
        "10.0.0.1:4000",
        "10.96.0.1:80",
        Vec::new(),
        PathEnd::Delivered,
    );
    for (chain, value) in [
        ("KUBE-MARK-MASQ", 0),
        ("POSTROUTING", 0x4000),
        ("KUBE-POSTROUTING", 0),
    ] {
        mark(&mut sent, value);
        let step = sent.hops[0].matches.last_mut().unwrap();
        step.chain = chain.to_owned();
    }
    let own = NamespaceState::default();
    assert_eq!(own.routing_mark(&sent.hops[0]), 0x4000);
    sent.hops[0].matches.truncate(1);
    assert_eq!(own.routing_mark(&sent.hops[0]), 0);
}

#[test]
fn route_input_of_ipv6_names_the_route_of_the_destination() {
    let mut plan = plan();
    node(&mut plan)
        .routes
        .push(route("fd00:2::/64", RouteKind::Blackhole, None));
    let kind = |from: &str, to: &str, function: &str| {
        let end = dropped("NOT_SPECIFIED", function);
        let flight = packet(from, to, vec![crossing("eth0", false)], end);
        kind_and_fault(&plan, &flight)
    };
    let (from, bridge) = ("[fd00:1::9]:1", "br_nf_pre_routing_finish_ipv6");
    let (refused, fault) = kind(from, "[fd00:2::1]:80", bridge);
    assert_eq!(refused, DropKind::RouteRefused);
    assert!(matches!(fault, Some(Fault::Route { .. })), "{fault:?}");
    assert_eq!(kind(from, "[fd00:3::1]:80", bridge).0, DropKind::NoRoute);
    assert_eq!(kind(from, "[::1]:80", bridge).0, DropKind::Ipv6Loopback);
    let received = |from| kind(from, "[fd00:3::1]:80", "ip6_rcv_core").0;
    assert_eq!(received("[::1]:80"), DropKind::Ipv6Loopback);
    assert_eq!(received(from), DropKind::IpInput);
}
