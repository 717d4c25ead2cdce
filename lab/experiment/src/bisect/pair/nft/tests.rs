use proptest::prelude::*;

use crate::bisect::narrow::DifferenceMask;
use crate::bisect::pair::Pair;
use svclab_dump::compare::nft::compare;
use svclab_dump::{Difference, DumpChange};
use svclab_model::plan::{Namespace, Plan};
use svclab_ruleset::input::Input;
use svclab_ruleset::nft::{References, Ruleset, parse};

fn plan(tables: &str) -> Plan {
    Plan {
        namespaces: vec![Namespace {
            name: "node-1".to_owned(),
            nft: Input::from_text(tables),
            ..Namespace::default()
        }],
        ..Plan::default()
    }
}

fn pair(good: &str, bad: &str) -> Pair {
    Pair::new(&plan(good), &plan(bad)).unwrap()
}

/// Returns the tables with the differences of a mask.
fn tables(pair: &Pair, mask: &DifferenceMask) -> Ruleset {
    let plan = pair.plan(mask);
    parse(plan.namespaces[0].nft.text()).unwrap()
}

/// Returns the tables with only one difference.
fn tables_with(pair: &Pair, difference: usize) -> Ruleset {
    let mask = (0..pair.len()).map(|index| index == difference).collect();
    tables(pair, &mask)
}

/// Returns the description of each group of differences.
fn groups(pair: &Pair) -> Vec<String> {
    let indices: Vec<usize> = (0..pair.len()).collect();
    let groups = pair.describe(&indices).into_iter().map(|group| {
        let texts: Vec<String> = group.iter().map(ToString::to_string).collect();
        texts.join("\n")
    });
    groups.collect()
}

/// kube-proxy's table with a verdict map, a service and a base chain.
const HEALTHY: &str = r#"table ip kube-proxy {
	comment "rules for kube-proxy"

	set cluster-ips {
		type ipv4_addr
		elements = { 10.96.0.10, 10.96.0.11 }
	}

	map service-ips {
		type ipv4_addr . inet_proto . inet_service : verdict
		elements = { 10.96.0.10 . tcp . 80 comment "default/web" : goto service-LOLE4ISW-default/web/tcp/,
			     10.96.0.11 . tcp . 80 comment "default/api" : goto service-7ZYU2IXA-default/api/tcp/ }
	}

	chain filter-forward {
		type filter hook forward priority -110; policy accept;
		ct state new ip daddr @cluster-ips reject
	}

	chain nat-prerouting {
		type nat hook prerouting priority -100; policy accept;
		ip daddr . meta l4proto . th dport vmap @service-ips
	}

	chain service-7ZYU2IXA-default/api/tcp/ {
		meta l4proto tcp dnat to 10.244.1.6:8080
	}

	chain service-LOLE4ISW-default/web/tcp/ {
		meta l4proto tcp dnat to 10.244.1.5:8080
	}
}
"#;

#[test]
fn pair_each_change_of_table_is_one_difference() {
    let goto_web = "goto service-LOLE4ISW-default/web/tcp/";
    let mut described = String::new();
    for (from, to) in [
        (
            "10.96.0.10 . tcp . 80 comment \"default/web\" : goto service-LOLE4ISW-default/web/tcp/,\n\t\t\t     ",
            "",
        ),
        (goto_web, "goto service-7ZYU2IXA-default/api/tcp/"),
        ("10.96.0.10, ", ""),
        (
            "ct state new ip",
            "ip daddr 10.244.1.5 drop\n\t\tct state new ip",
        ),
        (
            "forward priority -110; policy accept",
            "forward priority -110; policy drop",
        ),
        ("prerouting priority -100", "prerouting priority 10"),
        ("hook forward", "hook postrouting"),
        ("\t\tmeta l4proto tcp dnat to 10.244.1.5:8080\n", ""),
        (
            "table ip kube-proxy {\n",
            "table ip kube-proxy {\n\tflags dormant\n",
        ),
        // The type of a set, with its elements and the rule that uses it.
        (
            "ipv4_addr\n\t\telements = { 10.96.0.10, 10.96.0.11 }",
            "inet_service\n\t\telements = { 80 }",
        ),
        // A new chain with the rules that jump to it.
        ("\t\tct state new ip", "\t\tjump new\n\t\tct state new ip"),
    ] {
        let mut bad = HEALTHY.replacen(from, to, 1);
        assert_ne!(bad, HEALTHY, "{from}");
        if to.contains("jump new") {
            bad = bad.replacen("\tchain nat", "\tchain new {\n\t}\n\n\tchain nat", 1);
        }
        if to.contains("inet_service") {
            bad = bad.replacen("ip daddr @cluster-ips", "th dport @cluster-ips", 1);
        }
        let pair = pair(HEALTHY, &bad);
        let groups = groups(&pair);
        assert_eq!(groups.len(), 1, "{groups:#?}");
        described.extend([groups[0].as_str(), "\n\n"]);
        let [good, bad] = [HEALTHY, &bad].map(|text| parse(text).unwrap());
        assert_eq!(compare(&tables(&pair, &vec![false]), &good), []);
        assert_eq!(compare(&tables(&pair, &vec![true]), &bad), []);
    }
    insta::assert_snapshot!(described.trim_end());
}

#[test]
fn pair_equivalent_tables_have_no_difference() {
    let written = "table ip t {\n\tset s {\n\t\ttype ipv4_addr\n\t\tflags dynamic,timeout\n\t}\n\n\
        \tchain a {\n\t\tcomment \"a\"\n\t\tmark and 0x4000 == 0 counter packets 1 bytes 2 return\n\t}\n\n\tchain b {\n\t}\n}\n";
    let listed = "# listed\ntable ip t {\n\tchain b {\n\t}\n\n\
        \tset s {\n\t\ttype ipv4_addr\n\t\tsize 65535\n\t\tflags timeout,dynamic\n\t}\n\n\
        \tchain a {\n\t\tmeta mark & 0x00004000 == 0x00000000 counter packets 8 bytes 9 return\n\t}\n}\n";
    assert!(pair(written, listed).is_empty());
}

#[test]
fn pair_chain_of_one_side_follows_its_jump() {
    let good = "table ip t {\n\tmap m {\n\t\ttype inet_service : verdict\n\t}\n\n\tchain a {\n\t\ttcp dport vmap @m\n\t}\n}\n";
    let bad = "table ip t {\n\tmap m {\n\t\ttype inet_service : verdict\n\t\telements = { 80 : goto b }\n\t}\n\n\
        \tchain a {\n\t\ttcp dport vmap @m\n\t}\n\n\tchain b {\n\t\tdrop\n\t}\n}\n";
    let pair = pair(good, bad);
    assert_eq!(pair.len(), 2, "{:#?}", groups(&pair));
    let with_element = tables_with(&pair, 0);
    let table = &with_element.tables[0];
    assert_eq!(table.sets[0].elements.len(), 1);
    assert!(table.chain("b").is_some_and(|chain| chain.rules.is_empty()));
    let with_rule = tables_with(&pair, 1);
    assert_eq!(with_rule.tables[0].sets[0].elements, []);
    assert_eq!(with_rule.tables[0].chain("b").unwrap().rules.len(), 1);
}

#[test]
fn pair_rule_of_new_base_chain_is_called_by_kernel() {
    let chain = |policy: &str| {
        format!(
            "table inet fw {{\n\tchain in {{\n\t\ttype filter hook input priority 0; policy {policy};\n\
             \t\ttcp dport 80 drop\n\t}}\n}}\n"
        )
    };
    let accepting = pair("", &chain("accept"));
    assert_eq!(groups(&accepting).len(), 2, "{:#?}", groups(&accepting));
    let hook = |ruleset: &Ruleset| ruleset.tables[0].chains[0].hook.clone().unwrap();
    let with_rule = tables_with(&accepting, 1);
    assert_eq!(hook(&with_rule).policy, "accept");
    assert_eq!(with_rule.tables[0].chains[0].rules.len(), 1);
    // A policy is a difference of its own, whichever side has the chain.
    let dropping = pair("", &chain("drop"));
    insta::assert_snapshot!(groups(&dropping).join("\n"));
    assert_eq!(hook(&tables_with(&dropping, 2)).policy, "accept");
    let with_policy = tables_with(&dropping, 1);
    assert_eq!(hook(&with_policy).policy, "drop");
    assert_eq!(with_policy.tables[0].chains[0].rules, []);
    let lost = pair(&chain("drop"), "");
    assert_eq!(hook(&tables_with(&lost, 1)).policy, "accept");
    assert_eq!(tables(&lost, &vec![true; 3]), Ruleset::default());
}

#[test]
fn pair_overlapping_elements_are_joined() {
    let set = |elements: &str| {
        format!(
            "table ip t {{\n\tset s {{\n\t\ttype ipv4_addr\n\t\tflags interval\n\t\telements = {{ {elements} }}\n\t}}\n}}\n"
        )
    };
    let pair = pair(
        &set("10.0.0.0/8, 172.16.0.0/16"),
        &set("10.1.0.0/16, 10.2.0.0/16, 192.168.0.0/16"),
    );
    let sizes: Vec<usize> = pair.describe(&[0, 1, 2]).iter().map(Vec::len).collect();
    assert_eq!(sizes, [3, 1, 1]);
}

#[test]
fn pair_jumps_in_loop_through_map_are_joined() {
    let table = |a: &str, elements: &str| {
        format!(
            "table ip t {{\n\tmap m {{\n\t\ttype inet_service : verdict\n{elements}\t}}\n\n\
             \tchain a {{\n{a}\t}}\n\n\tchain b {{\n\t\ttcp dport vmap @m\n\t}}\n}}\n"
        )
    };
    let good = table("\t\tjump b\n", "");
    let bad = table(
        "\t\taccept\n",
        "\t\telements = { 80 : jump a, 81 : drop }\n",
    );
    // With both, `a` jumps to `b`, which jumps to `a`. The other two are independent.
    assert_eq!(pair(&good, &bad).len(), 3);
}

#[test]
fn pair_object_of_one_side_follows_its_rule() {
    let good = "table ip t {\n\tchain a {\n\t\taccept\n\t}\n}\n";
    let bad = "table ip t {\n\tcounter hits {\n\t\tpackets 0 bytes 0\n\t}\n\n\tchain a {\n\t\tcounter name \"hits\" accept\n\t\taccept\n\t}\n}\n";
    let pair = pair(good, bad);
    assert_eq!(pair.len(), 1);
    assert_eq!(tables_with(&pair, 1).tables[0].other_objects, []);
    assert_eq!(tables_with(&pair, 0).tables[0].other_objects.len(), 1);
}

/// Generates a table whose jumps lead only from earlier to later chains, or with `back` only from
/// later to earlier ones. A map is used by the base chain.
fn table(back: bool) -> impl Strategy<Value = String> {
    let matches = prop::sample::select(vec!["", "ip saddr 10.0.0.1 ", "tcp dport 80 "]);
    let rules = prop::collection::vec((1_usize..5, 1_usize..6, matches), 0..12);
    let elements = prop::collection::btree_map(1_u8..5, 1_usize..6, 0..4);
    let policy = prop::sample::select(vec!["accept", "drop"]);
    (rules, elements, policy, any::<bool>()).prop_map(move |(rules, elements, policy, has_base)| {
        let verdict = |to: usize| {
            if to == 5 {
                "accept".to_owned()
            } else {
                format!("jump c{to}")
            }
        };
        let mut chains = vec![String::new(); 5];
        let mut used = [has_base, false, false, false, false];
        for (first, second, matches) in rules {
            let (from, to) = (first.min(second), first.max(second));
            let (from, to) = if back && to < 5 {
                (to, from)
            } else {
                (from, to)
            };
            if from == to || from == 5 {
                continue;
            }
            used[from] = true;
            if to < 5 {
                used[to] = true;
            }
            chains[from].extend(["\t\t", matches, verdict(to).as_str(), "\n"]);
        }
        let mut map = String::new();
        if has_base {
            chains[0] = format!(
                "\t\ttype filter hook input priority 0; policy {policy};\n\t\ttcp dport vmap @m\n"
            );
            let elements: Vec<String> = elements
                .into_iter()
                .map(|(key, to)| {
                    if to < 5 {
                        used[to] = true;
                    }
                    format!("{key} : {}", verdict(to))
                })
                .collect();
            let elements = if elements.is_empty() {
                String::new()
            } else {
                format!("\t\telements = {{ {} }}\n", elements.join(", "))
            };
            map = format!("\tmap m {{\n\t\ttype inet_service : verdict\n{elements}\t}}\n");
        }
        let chains = chains.iter().enumerate().filter(|(index, _)| used[*index]);
        let chains: Vec<String> = chains
            .map(|(index, rules)| format!("\n\tchain c{index} {{\n{rules}\t}}\n"))
            .collect();
        let chains = chains.concat();
        format!("table ip t {{\n{map}{chains}}}\n")
    })
}

/// Whether jumps from a chain form a loop or lead to a chain or map that does not exist.
fn is_invalid(ruleset: &Ruleset, chain: &str, depth: usize) -> bool {
    let table = &ruleset.tables[0];
    let Some(chain) = table.chain(chain) else {
        return true;
    };
    depth > 8
        || chain.rules.iter().any(|rule| {
            let references = References::parse(&rule.text);
            let mut targets = references.chains;
            for name in references.sets {
                let Some(set) = table.set(name) else {
                    return true;
                };
                let values = set
                    .elements
                    .iter()
                    .filter_map(|element| element.value.as_deref());
                targets.extend(values.flat_map(|value| References::parse(value).chains));
            }
            targets
                .into_iter()
                .any(|target| is_invalid(ruleset, target, depth + 1))
        })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    /// Every subset of differences gives tables whose references have their objects and form no
    /// loop. The empty subset gives good, the full one bad.
    #[test]
    fn pair_any_selection_gives_valid_tables(good in table(false), bad in any::<bool>().prop_flat_map(table), chosen in prop::collection::vec(any::<bool>(), 60)) {
        let pair = pair(&good, &bad);
        prop_assert!(pair.len() <= chosen.len());
        let differences = |mask: &DifferenceMask, expected: &str| -> Vec<Difference> {
            let found = compare(&tables(&pair, mask), &parse(expected).unwrap());
            // Ignores an empty chain that no rule jumps to.
            found.into_iter().filter(|found| !matches!(found.change, DumpChange::Whole { .. })).collect()
        };
        prop_assert_eq!(differences(&vec![false; pair.len()], &good), []);
        prop_assert_eq!(differences(&vec![true; pair.len()], &bad), []);
        let some = tables(&pair, &chosen[..pair.len()].to_vec());
        for chain in some.tables.iter().flat_map(|table| &table.chains) {
            prop_assert!(!is_invalid(&some, &chain.name, 0), "{}", some);
        }
    }
}
