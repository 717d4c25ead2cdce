use super::*;
use crate::Family;
use crate::bridge::port::Port;
use crate::link::kind;
use crate::route::{self as routes, Route};
use crate::{link as links, text::Text};

/// Returns the recorded text of a command, and the text for its recorded JSON. The outputs are of
/// iproute2 6.1 on Linux 6.18.
macro_rules! recorded {
    ($format:expr, $name:literal) => {{
        let text = include_str!(concat!("recorded/", $name, ".txt"));
        let json = include_str!(concat!("recorded/", $name, ".json"));
        (Text::new(text), converted($format, json))
    }};
}

fn converted(format: Format, json: &str) -> Text {
    let converted = convert(format, json).expect("JSON").expect("valid JSON");
    assert_eq!(converted.problems, []);
    Text::new(converted.text)
}

/// Parses with a parser that must report nothing.
fn parse<T>(text: &Text, parser: impl FnOnce(&Text, &mut Vec<Problem>) -> T) -> T {
    let mut problems = Vec::new();
    let parsed = parser(text, &mut problems);
    assert_eq!(problems, [], "{text}");
    parsed
}

#[test]
fn addresses_as_json_equal_text() {
    for (text, json) in [
        recorded!(Format::Links, "addr"),
        recorded!(Format::Links, "d-addr"),
        recorded!(Format::Links, "d-link"),
    ] {
        assert_eq!(parse(&json, links::parse), parse(&text, links::parse));
    }
}

#[test]
fn link_details_as_json_equal_text() {
    let (text, json) = recorded!(Format::LinkDetails, "d-link");
    let (from_text, from_json) = (parse(&text, kind::parse), parse(&json, kind::parse));
    assert_eq!(from_json.len(), from_text.len());
    for ((name, expected), (own_name, own)) in from_text.iter().zip(&from_json) {
        assert_eq!(own_name, name);
        assert_eq!(own.kind, expected.kind, "{name}");
        assert_eq!(own.settings(), expected.settings(), "{name}");
        assert_eq!(own.common_settings(), expected.common_settings(), "{name}");
        let ports = [expected, own].map(|kind| kind.bridge_port.as_ref().map(describe_port));
        assert_eq!(ports[1], ports[0], "{name}");
        assert_eq!(own.line, expected.line, "{name}");
    }
    assert_eq!(from_json["vx0"].detail("dstport"), Some("8472"));
}

/// Describes a port without its timers, whose JSON has another notation.
fn describe_port(port: &Port) -> (Option<&str>, Vec<(&str, Option<&str>)>) {
    let names = port.compared_names();
    let settings = names.map(|name| (name, port.known_setting(name)));
    (port.bridge.as_deref(), settings.collect())
}

/// Describes a route without the text that it was parsed from. The JSON does not show locks of
/// metrics.
fn describe_route(route: &Route) -> String {
    let Route {
        ip,
        kind,
        to,
        attributes,
        hops,
        ..
    } = route;
    let described = format!("{ip:?} {kind:?} {to} {attributes} {hops:?}");
    described.replace("lock ", "")
}

#[test]
fn routes_as_json_equal_text() {
    for (family, (text, json)) in [
        (Family::V4, recorded!(Format::Routes(Family::V4), "d-route")),
        (
            Family::V6,
            recorded!(Format::Routes(Family::V6), "d-6-route"),
        ),
    ] {
        let [from_text, from_json] = [text, json].map(|text| {
            let parser = |text: &Text, problems: &mut _| routes::parse(text, family, problems);
            let routes = parse(&text, parser);
            routes.iter().map(describe_route).collect::<Vec<_>>()
        });
        assert_eq!(from_json, from_text);
    }
}

#[test]
fn rules_as_json_equal_text() {
    for (family, (text, json)) in [
        (
            Family::V4,
            recorded!(Format::RoutingRules(Family::V4), "d-rule"),
        ),
        (
            Family::V6,
            recorded!(Format::RoutingRules(Family::V6), "d-6-rule"),
        ),
    ] {
        let [from_text, from_json] = [text, json].map(|text| {
            let parser =
                |text: &Text, problems: &mut _| routes::rule::parse(text, family, problems);
            parse(&text, parser)
        });
        assert_eq!(from_json, from_text);
    }
}

#[test]
fn unknown_members_are_reported_by_text_parsers() {
    let link = r#"[{},{"ifindex":2,"ifname":"e","flags":[],"mtu":1,"hue":{"mode":2}}]"#;
    let route = r#"[{"dst":"default","dev":"e","colour":"red"},{"dst":"1.2.3.4","hot":true}]"#;
    let rule = r#"[{"priority":1,"src":"all","table":"main","new":null}]"#;
    let mut problems = Vec::new();
    let _ = links::parse(&converted(Format::Links, link), &mut problems);
    let routing = Format::Routes(Family::V4);
    let _ = routes::parse(&converted(routing, route), Family::V4, &mut problems);
    let rules = Format::RoutingRules(Family::V4);
    let _ = routes::rule::parse(&converted(rules, rule), Family::V4, &mut problems);
    let kinds: Vec<String> = problems.iter().map(|p| p.kind.to_string()).collect();
    assert_eq!(
        kinds,
        [
            "unexpected word `hue`",
            "unexpected word `colour`",
            "unexpected word `hot`",
            "unexpected word `new`"
        ]
    );
}

#[test]
fn programs_and_functions_as_json_equal_text() {
    let json = r#"[{"ifindex":2,"ifname":"e","flags":["UP"],"mtu":1500,"xdp":{"mode":2,"prog":{"id":15,"name":"filter","tag":"3b18","jited":1},"attached":[{"mode":2,"prog":{"id":15}}]},"qdisc":"mq","linkmode":"DEFAULT","link_type":"ether","address":"02:00:00:00:00:01","broadcast":"ff:ff:ff:ff:ff:ff","proto_down":true,"proto_down_reason":["lock"],"promiscuity":0,"min_mtu":68,"inet6_addr_gen_mode":"eui64","vfinfo_list":[{"vf":0,"link_type":"ether","address":"02:00:00:00:00:02","broadcast":"ff:ff:ff:ff:ff:ff","vlan_list":[{"vlan":100}],"rate":{"max_tx":5,"min_tx":0},"spoofchk":true,"link_state":"auto","trust":false}]}]"#;
    insta::assert_snapshot!(&*converted(Format::LinkDetails, json), @"
    2: e: <UP> mtu 1500 xdpgeneric/id:15 qdisc mq mode DEFAULT
        link/ether 02:00:00:00:00:01 brd ff:ff:ff:ff:ff:ff protodown on protodown_reason <lock> promiscuity 0 minmtu 68 addrgenmode eui64
        prog/xdp id 15 name filter tag 3b18 jited
        vf 0     link/ether 02:00:00:00:00:02 brd ff:ff:ff:ff:ff:ff, vlan 100, max_tx_rate 5Mbps, spoof checking on, link-state auto, trust off
    ");
}

#[test]
fn control_characters_do_not_begin_lines() {
    let link = "[{\"ifindex\":2,\"ifname\":\"e\\n3: f\",\"flags\":[]}]";
    assert_eq!(converted(Format::Links, link).lines().count(), 1);
}

#[test]
fn convert_other_text_is_none_or_error() {
    assert_eq!(convert(Format::Links, "1: lo: <UP>"), None);
    assert_eq!(convert(Format::Neighbours, "[]"), None);
    let broken = r#"[{"ifindex":1,"ifname":é"#;
    let problem = convert(Format::Links, broken)
        .expect("JSON")
        .expect_err("broken");
    assert_eq!(&broken[problem.range], "é");
}
