use crate::nft::{self, Ruleset};
use crate::text::Text;
use crate::text::problem::Problem;
use crate::tool::Format;

/// Outputs of `nft list ruleset` and `nft -j list ruleset`, nftables v1.0.6.
const RECORDED: [(&str, &str); 3] = [
    (
        include_str!("recorded/ip.nft"),
        include_str!("recorded/ip.json"),
    ),
    (
        include_str!("recorded/families.nft"),
        include_str!("recorded/families.json"),
    ),
    (
        include_str!("recorded/kube-proxy.nft"),
        include_str!("recorded/kube-proxy.json"),
    ),
];

fn convert(json: &str) -> (Ruleset, Text, Vec<Problem>) {
    let converted = crate::json::convert(Format::Nft, json);
    let converted = converted.expect("JSON").expect("valid JSON");
    let text = Text::new(converted.text);
    let mut problems = converted.problems;
    let ruleset = nft::parse_ruleset(&text, &mut problems);
    (ruleset, text, problems)
}

/// Removes the properties that nftables v1.0.6 does not print in JSON. The flag `dynamic` is
/// derived from the rules.
fn as_in_json(mut ruleset: Ruleset) -> Ruleset {
    for table in &mut ruleset.tables {
        table.comment = None;
        for chain in &mut table.chains {
            chain.comment = None;
        }
        for set in &mut table.sets {
            set.flags.retain(|flag| flag != "dynamic");
            set.properties.retain(|property| property != "auto-merge");
        }
    }
    ruleset
}

#[test]
fn recorded_rulesets_as_json_equal_text() {
    for (text, json) in RECORDED {
        let expected = nft::parse(text).expect("a valid text");
        let (ruleset, text, problems) = convert(json);
        assert_eq!(problems, [], "{text}");
        assert_eq!(
            as_in_json(ruleset).to_string(),
            as_in_json(expected).to_string()
        );
    }
}

#[test]
fn sets_that_rules_change_are_dynamic() {
    let (ruleset, ..) = convert(RECORDED[0].1);
    let flags = |set| ruleset.tables[0].set(set).map(|set| set.flags.join(","));
    assert_eq!(flags("s3").as_deref(), Some("dynamic,timeout"));
    assert_eq!(flags("s4").as_deref(), Some(""));
}

#[test]
fn unknown_parts_are_reported_with_names() {
    let json = r#"{"nftables":[{"metainfo":{}},{"future":{"a":1}},
        {"table":{"family":"ip","name":"t","flags":["new"]}},
        {"counter":{"family":"ip","table":"t","name":"c"}},
        {"thing":{"family":"ip","table":"t","name":"x"}},
        {"map":{"family":"ip","table":"t","name":"m","type":{"typeof":{"payload":{"protocol":"ip","field":"saddr"}}},"map":"mark"}},
        {"map":{"family":"ip","table":"t","name":"v","type":{"typeof":{"payload":{"protocol":"ip","field":"saddr"}}},"map":"verdict"}},
        {"set":{"family":"ip","table":"t","name":"s","type":"ipv4_addr","hue":1,"elem":["10.0.0.1",{"wild":1}]}},
        {"chain":{"family":"netdev","table":"n","name":"i","type":"filter","hook":"ingress","prio":0,"policy":"accept"}},
        {"chain":{"family":"ip","table":"t","name":"c"}},
        {"rule":{"family":"ip","table":"t","chain":"c","expr":[{"match":{"op":"==","left":{"sky":{"key":"x"}},"right":1}}]}},
        {"rule":{"family":"ip","table":"t","chain":"c","expr":[{"accept":null},{"teleport":null}]}},
        {"rule":{"family":"ip","table":"t","chain":"c","expr":[{"dnat":{"addr":"10.0.0.1","twist":1}}]}},
        {"rule":{"family":"ip","table":"t","chain":"c","comment":"a \" b","expr":[{"accept":null}]}},
        {"rule":{"family":"ip","table":"t","chain":"c","expr":[{"drop":null}]}}]}"#;
    let (ruleset, text, problems) = convert(json);
    let reported = problems.iter().map(|problem| {
        let place = &text[problem.range.clone()];
        format!("{}: {place}", problem.kind)
    });
    let reported: Vec<String> = reported.collect();
    insta::assert_snapshot!(format!("{}\n\n{ruleset}", reported.join("\n")));
}

#[test]
fn statements_without_recording_are_converted() {
    let rule = |expression: &str| {
        let json = format!(
            r#"{{"nftables":[{{"rule":{{"family":"ip","table":"t","chain":"c","expr":[{expression}]}}}}]}}"#
        );
        let (ruleset, text, problems) = convert(&json);
        assert_eq!(problems, [], "{text}");
        ruleset.tables[0].chains[0].rules[0].text.clone()
    };
    for (expression, text) in [
        (r#"{"queue":null}"#, "queue"),
        (
            r#"{"queue":{"num":1,"flags":"bypass"}}"#,
            "queue flags bypass to 1",
        ),
        (
            r#"{"queue":{"num":{"range":[1,3]},"flags":["bypass","fanout"]}}"#,
            "queue flags bypass,fanout to 1-3",
        ),
        (r#"{"flow":{"op":"add","flowtable":"@ft"}}"#, "flow add @ft"),
        // With the option `-n`.
        (r#"{"reject":{"type":"icmp","expr":3}}"#, "reject"),
        (
            r#"{"reject":{"type":"icmpx","expr":3}}"#,
            "reject with icmpx admin-prohibited",
        ),
        (
            r#"{"reject":{"type":"icmpv6","expr":99}}"#,
            "reject with icmpv6 99",
        ),
        (
            r#"{"xt":{"type":"match","name":"comment"}}"#,
            "xt match \"comment\"",
        ),
        (
            r#"{"map":{"op":"update","elem":{"payload":{"protocol":"ip","field":"saddr"}},"data":5,"map":"@m"}}"#,
            "update @m { ip saddr : 5 }",
        ),
        (
            r#"{"vmap":{"key":{"fib":{"result":"check","flags":["saddr","iif"]}},"data":{"set":[[true,{"break":null}],[false,{"drop":null}]]}}}"#,
            "fib saddr . iif check vmap { exists : break, missing : drop }",
        ),
        (
            r#"{"mangle":{"key":{"meta":{"key":"mark"}},"value":{"&":[{"|":[{"meta":{"key":"mark"}},1,2]},255]}}}"#,
            "meta mark set (meta mark | 0x00000001 | 0x00000002) & 0x000000ff",
        ),
        (
            r#"{"dnat":{"family":"ip","type_flags":"concat","addr":{"map":{"key":{"numgen":{"mode":"random","mod":2,"offset":0}},"data":{"set":[[0,{"concat":["10.0.0.1",80]}]]}}}}}"#,
            "dnat ip addr . port to numgen random mod 2 map { 0 : 10.0.0.1 . 80 }",
        ),
        (
            r#"{"dnat":{"family":"ip6","addr":{"range":["fd00::1","fd00::9"]},"port":80}}"#,
            "dnat ip6 to [fd00::1]-[fd00::9]:80",
        ),
    ] {
        assert_eq!(rule(expression), text);
    }
}
