use std::fmt::Write as _;
use std::net::IpAddr;

use proptest::prelude::*;

use super::*;
use svclab_dump::compare::iptables::{Order, compare};
use svclab_model::plan::{
    Backend, Forwarding, ForwardingTarget, Iptables, Link, LinkKind, Mac, Neighbour, PortSettings,
    Route, Sysctl,
};
use svclab_planner::delta;
use svclab_ruleset::input::Input;
use svclab_ruleset::iptables::Rule;
use svclab_ruleset::ipvs::{VirtualServer, VirtualServerKey};

fn namespace(rules: &str) -> Namespace {
    Namespace {
        name: "node-1".to_owned(),
        iptables: Some(Iptables {
            backend: Backend::Legacy,
            v4: Input::from_text(rules),
            v6: Input::default(),
        }),
        ..Namespace::default()
    }
}

fn plan(namespace: Namespace) -> Plan {
    Plan {
        namespaces: vec![namespace],
        ..Plan::default()
    }
}

fn pair(good: &Plan, bad: &Plan) -> Pair {
    Pair::new(good, bad).unwrap()
}

fn rules(plan: &Plan) -> &str {
    plan.namespaces[0].iptables.as_ref().unwrap().v4.text()
}

fn describe_all(pair: &Pair) -> String {
    let indices: Vec<usize> = (0..pair.len()).collect();
    let differences = pair.describe(&indices).concat();
    let lines: Vec<String> = differences.iter().map(ToString::to_string).collect();
    lines.join("\n")
}

/// Generates rules whose jumps lead only from earlier to later chains, or with `back` only from
/// later to earlier ones.
fn script(back: bool) -> impl Strategy<Value = String> {
    let rule = (
        0_usize..6,
        0_usize..7,
        prop::sample::select(vec!["", "-s 10.0.0.1/32 ", "-p tcp -m tcp --dport 80 "]),
    );
    let rules = prop::collection::vec(rule, 0..14);
    rules.prop_map(move |rules| {
        const CHAINS: [&str; 6] = ["OUTPUT", "A", "B", "C", "D", "E"];
        let mut used: Vec<&str> = Vec::new();
        let mut lines = String::new();
        for (from, to, matches) in rules {
            let (from, to) = if from < to || to == 6 {
                (from, to)
            } else {
                (to, from)
            };
            // Rules cannot jump to a built-in chain.
            let (from, to) = if back && from > 0 && to < 6 {
                (to, from)
            } else {
                (from, to)
            };
            let target = CHAINS.get(to).copied().filter(|_| from != to && to != 0);
            let source = CHAINS[from];
            for chain in [Some(source), target].into_iter().flatten() {
                if chain != "OUTPUT" && !used.contains(&chain) {
                    used.push(chain);
                }
            }
            let _ = writeln!(
                lines,
                "-A {source} {matches}-j {}",
                target.unwrap_or("ACCEPT")
            );
        }
        let declared = used.iter().fold(String::new(), |text, chain| {
            text + ":" + chain + " - [0:0]\n"
        });
        format!("*nat\n:OUTPUT ACCEPT [0:0]\n{declared}{lines}COMMIT\n")
    })
}

/// Whether jumps form a loop.
fn has_loop(dump: &IptablesRules) -> bool {
    fn reaches_loop(dump: &IptablesRules, chain: &str, depth: usize) -> bool {
        let found = dump.chain(Table::Nat, chain);
        depth > 8
            || found.is_some_and(|chain| {
                let targets = chain.rules.iter().filter_map(Rule::target);
                targets
                    .into_iter()
                    .any(|target| reaches_loop(dump, &target, depth + 1))
            })
    }
    let chains = dump.tables.iter().flat_map(|table| &table.chains);
    chains
        .into_iter()
        .any(|chain| reaches_loop(dump, &chain.name, 0))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    /// Every subset of differences gives rules that can be parsed, whose jumps have their targets
    /// and form no loop. The empty subset gives good, the full one bad.
    #[test]
    fn pair_any_selection_gives_valid_rules(good in script(false), bad in any::<bool>().prop_flat_map(script), chosen in prop::collection::vec(any::<bool>(), 40)) {
        let pair = pair(&plan(namespace(&good)), &plan(namespace(&bad)));
        prop_assert!(pair.len() <= chosen.len());
        let of = |chosen: &DifferenceMask| IptablesRules::parse(rules(&pair.plan(chosen)));
        let same = |one: &IptablesRules, other: &str| {
            let found = compare(one, &IptablesRules::parse(other).unwrap(), Order::ServicesInAnyOrder);
            // Ignores an empty chain that no rule jumps to.
            found.into_iter().filter(|found| !matches!(found.change, svclab_dump::DumpChange::Whole { .. })).count()
        };
        let none = of(&vec![false; pair.len()]).unwrap();
        let all = of(&vec![true; pair.len()]).unwrap();
        prop_assert_eq!(same(&none, &good), 0);
        prop_assert_eq!(same(&all, &bad), 0);
        let some = of(&chosen[..pair.len()].to_vec()).unwrap();
        for rule in some.tables.iter().flat_map(|table| &table.chains).flat_map(|chain| &chain.rules) {
            let target = rule.target().unwrap();
            prop_assert!(target == "ACCEPT" || some.chain(Table::Nat, &target).is_some(), "{}", target);
        }
        prop_assert!(!has_loop(&some));
    }
}

#[test]
fn pair_equivalent_rules_have_no_difference() {
    let good = namespace(
        "*nat\n:OUTPUT ACCEPT [0:0]\n-A OUTPUT -m tcp -p tcp -d 10.0.0.1 --dport 80 -j ACCEPT\nCOMMIT\n",
    );
    let bad =
        namespace("*nat\n-I OUTPUT -d 10.0.0.1/32 -p tcp -m tcp --dport 80 -j ACCEPT\nCOMMIT\n");
    assert!(pair(&plan(good), &plan(bad)).is_empty());
}

#[test]
fn pair_selected_rule_keeps_its_neighbours() {
    let text = |rules: &[&str]| {
        let rules = rules.iter().fold(String::new(), |text, rule| {
            text + "-A OUTPUT -j " + rule + "\n"
        });
        namespace(&format!("*nat\n:OUTPUT ACCEPT [0:0]\n{rules}COMMIT\n"))
    };
    let pair = pair(
        &plan(text(&["ONE", "TWO", "THREE"])),
        &plan(text(&["NEW", "ONE", "THREE", "LAST"])),
    );
    assert_eq!(pair.len(), 3);
    let targets = |chosen: [bool; 3]| {
        let text = rules(&pair.plan(&DifferenceMask::from(chosen))).to_owned();
        let rules = text
            .lines()
            .filter_map(|line| line.strip_prefix("-A OUTPUT -j "));
        rules.map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(
        targets([true, false, false]),
        ["NEW", "ONE", "TWO", "THREE"]
    );
    assert_eq!(targets([false, true, true]), ["ONE", "THREE", "LAST"]);
}

#[test]
fn pair_set_of_one_side_follows_its_rule() {
    let mut good = namespace("*nat\n:OUTPUT ACCEPT [0:0]\nCOMMIT\n");
    good.ipset = Input::from_text("create BOTH hash:ip family inet\n");
    let mut bad = namespace(
        "*nat\n:OUTPUT ACCEPT [0:0]\n-A OUTPUT -m set --match-set NEW dst -j ACCEPT\nCOMMIT\n",
    );
    bad.ipset = Input::from_text(
        "create NEW hash:ip family inet hashsize 64\nadd NEW 10.0.0.1\nadd NEW 10.0.0.2\ncreate BOTH hash:ip family inet hashsize 1024\n",
    );
    let pair = pair(&plan(good), &plan(bad));
    assert_eq!(pair.len(), 3, "{}", describe_all(&pair));
    let ipset = |chosen: [bool; 3]| {
        pair.plan(&DifferenceMask::from(chosen)).namespaces[0]
            .ipset
            .text()
            .to_owned()
    };
    assert_eq!(
        ipset([false, false, false]),
        "create BOTH hash:ip family inet\n"
    );
    // The entries are the first two differences, the rule is the third.
    assert!(ipset([false, false, true]).contains("create NEW hash:ip family inet hashsize 64\n"));
    assert!(
        ipset([true, false, false])
            .ends_with("create NEW hash:ip family inet hashsize 64\nadd NEW 10.0.0.1\n")
    );
}

fn network_namespace(addresses: &[&str], routes: &[(&str, Option<&str>)]) -> Namespace {
    Namespace {
        name: "node-1".to_owned(),
        links: vec![Link {
            name: "eth0".to_owned(),
            kind: LinkKind::Bridge,
            mac: Mac::from_names("node-1", "eth0"),
            addresses: addresses
                .iter()
                .map(|address| address.parse().unwrap())
                .collect(),
            bridge: None,
            port: PortSettings::default(),
            down: false,
            mtu: None,
        }],
        routes: routes
            .iter()
            .map(|(to, via)| Route {
                via: via.map(|via| via.parse().unwrap()),
                ..Route::new(to.parse().unwrap(), "eth0")
            })
            .collect(),
        ..Namespace::default()
    }
}

#[test]
fn pair_route_joins_address_of_next_hop() {
    let good = network_namespace(&["10.0.0.2/24"], &[("0.0.0.0/0", Some("10.0.0.1"))]);
    let bad = network_namespace(
        &["10.0.0.2/24", "10.1.0.2/24"],
        &[
            ("0.0.0.0/0", Some("10.0.0.1")),
            ("10.9.0.0/16", Some("10.1.0.1")),
            ("10.8.0.0/16", Some("10.0.0.9")),
        ],
    );
    // The other route needs only objects of both sides.
    assert_eq!(pair(&plan(good.clone()), &plan(bad)).len(), 2);
    // Both sides have the route, but each reaches the next hop through its own address.
    let moved = network_namespace(&["10.0.0.3/24"], &[("0.0.0.0/0", Some("10.0.0.1"))]);
    assert_eq!(pair(&plan(good), &plan(moved)).len(), 1);
}

#[test]
fn pair_last_address_joins_what_the_kernel_removes_with_it() {
    let with_routes = |addresses: &[&str], routes: &[(&str, Option<&str>)]| {
        let mut side = network_namespace(addresses, routes);
        side.routes.iter_mut().for_each(|route| route.onlink = true);
        plan(side)
    };
    let tunnel = [("10.244.2.0/24", Some("10.244.2.0"))];
    let good = with_routes(&["10.244.1.0/32", "10.9.0.1/32"], &tunnel);
    assert_eq!(pair(&good, &with_routes(&[], &[])).len(), 1);
    // An address is left, so that something else removed the route.
    assert_eq!(pair(&good, &with_routes(&["10.9.0.1/32"], &[])).len(), 2);
    assert_eq!(pair(&good, &with_routes(&[], &tunnel)).len(), 2);
}

#[test]
fn pair_forwarding_of_interfaces_joins_its_switch() {
    let with_forwarding = |values: [&str; 3]| {
        let keys = ["ip_forward", "conf.all.forwarding", "conf.eth0.forwarding"];
        let sysctls = keys.into_iter().zip(values).map(|(key, value)| Sysctl {
            key: format!("net.ipv4.{key}"),
            value: value.to_owned(),
            link: None,
            optional: false,
        });
        plan(Namespace {
            name: "node-1".to_owned(),
            sysctls: sysctls.collect(),
            ..Namespace::default()
        })
    };
    let good = with_forwarding(["1", "1", "1"]);
    assert_eq!(pair(&good, &with_forwarding(["0", "0", "0"])).len(), 1);
    // Without the switch, each interface was changed by itself.
    assert_eq!(pair(&good, &with_forwarding(["1", "0", "0"])).len(), 2);
}

#[test]
fn pair_interface_joins_its_configuration() {
    let good = network_namespace(&["10.0.0.2/24"], &[]);
    let mut bad = good.clone();
    let mut more = network_namespace(&["10.5.0.2/24"], &[("10.6.0.0/16", Some("10.5.0.1"))]);
    more.links[0].name = "eth1".to_owned();
    more.routes[0].dev = "eth1".to_owned();
    bad.links.append(&mut more.links);
    bad.routes.append(&mut more.routes);
    bad.sysctls.push(Sysctl {
        key: "net.ipv4.conf.eth1.rp_filter".to_owned(),
        value: "1".to_owned(),
        link: Some("eth1".to_owned()),
        optional: false,
    });
    assert_eq!(pair(&plan(good), &plan(bad)).len(), 1);
}

#[test]
fn pair_neighbours_and_port_settings_are_separate() {
    let entry = |mac: Mac, to| Forwarding {
        dev: "flannel.1".to_owned(),
        mac,
        to: ForwardingTarget::Remote(to),
    };
    let mut good = network_namespace(&["10.0.0.2/24"], &[]);
    let port = network_namespace(&[], &[]).links.remove(0);
    for name in ["veth1", "veth2"] {
        let mut port = port.clone();
        port.name = name.to_owned();
        port.bridge = Some("cni0".to_owned());
        port.port.hairpin = true;
        good.links.push(port);
    }
    let (near, far) = (Mac([2, 0, 0, 0, 0, 1]), Mac([2, 0, 0, 0, 0, 2]));
    let remote = |last| IpAddr::from([10, 0, 0, last]);
    good.neighbours.push(Neighbour {
        address: "10.244.2.0".parse().unwrap(),
        mac: near,
        dev: "flannel.1".to_owned(),
    });
    good.forwarding.push(entry(near, remote(3)));
    good.forwarding.push(entry(Mac::ZERO, remote(3)));
    let mut bad = good.clone();
    bad.links[1].port.hairpin = false;
    bad.links[2].port.isolated = true;
    bad.links[2].port.learning = false;
    bad.neighbours[0].mac = far;
    bad.forwarding[0].to = ForwardingTarget::Remote(remote(9));
    bad.forwarding.push(entry(Mac::ZERO, remote(9)));
    bad.forwarding.push(Forwarding {
        dev: "veth1".to_owned(),
        mac: far,
        to: ForwardingTarget::Port,
    });
    let (good, bad) = (plan(good), plan(bad));
    let pair = pair(&good, &bad);
    assert_eq!(pair.plan(&vec![false; pair.len()]), good);
    assert_eq!(pair.plan(&vec![true; pair.len()]), bad);
    insta::assert_snapshot!(describe_all(&pair));
    // A running lab can be changed.
    delta::diff(&good, &bad).unwrap();
}

#[test]
fn describe_each_kind_matches_snapshot() {
    let mut good = namespace(
        "*nat\n:OUTPUT ACCEPT [0:0]\n:KUBE-SERVICES - [0:0]\n-A KUBE-SERVICES -d 10.96.0.10/32 -p tcp -m comment --comment \"default/web:http cluster IP\" -m tcp --dport 80 -j KUBE-SVC-LOLE4ISW44XBNF3G\n:KUBE-SVC-LOLE4ISW44XBNF3G - [0:0]\n-A OUTPUT -j ACCEPT\n-A OUTPUT -j RETURN\nCOMMIT\n",
    );
    good.ipset = Input::from_text(
        "create KUBE-CLUSTER-IP hash:ip,port family inet\nadd KUBE-CLUSTER-IP 10.96.0.10,tcp:80\n",
    );
    let setting = |value: &str| Sysctl {
        key: "net.ipv4.ip_forward".to_owned(),
        value: value.to_owned(),
        link: None,
        optional: false,
    };
    good.sysctls.push(setting("1"));
    let mut bad = namespace(
        "*nat\n:OUTPUT DROP [0:0]\n:KUBE-SERVICES - [0:0]\n-A OUTPUT -j RETURN\n-A OUTPUT -j ACCEPT\nCOMMIT\n",
    );
    bad.ipset = Input::from_text("create KUBE-CLUSTER-IP hash:ip,port family inet\n");
    bad.sysctls.push(setting("0"));
    bad.ipvs.push(VirtualServer {
        key: VirtualServerKey::FwMark {
            mark: 7,
            is_v6: false,
        },
        scheduler: "rr".to_owned(),
        persistence: None,
        flags: svclab_ruleset::ipvs::SchedulerFlags::default(),
        servers: Vec::new(),
    });
    insta::assert_snapshot!(describe_all(&pair(&plan(good), &plan(bad))));
}

#[test]
fn pair_unmergeable_plans_return_error() {
    let error = |good: &Plan, bad: &Plan| Pair::new(good, bad).unwrap_err().to_string();
    let base = plan(namespace(""));
    let mut renamed = base.clone();
    renamed.namespaces[0].name = "node-2".to_owned();
    let replaced = plan(namespace("*nat\n-R OUTPUT 1 -j ACCEPT\nCOMMIT\n"));
    let unread = plan(namespace(
        "*nat\n-A OUTPUT -m comment --comment \"open -j ACCEPT\nCOMMIT\n",
    ));
    let mut sets = base.clone();
    sets.namespaces[0].ipset = Input::from_text("destroy A\n");
    let errors = [
        error(&base, &renamed),
        error(&base, &replaced),
        error(&base, &unread),
        error(&base, &sets),
        PairError::RealProxy("node-1".to_owned()).to_string(),
    ];
    insta::assert_snapshot!(errors.join("\n"));
}

/// A running lab can be changed from any selection to any other without a rebuild.
#[test]
fn pair_any_selection_is_reached_by_delta() {
    let mut good = network_namespace(&["10.0.0.2/24"], &[]);
    good.iptables = namespace("*nat\n:OUTPUT ACCEPT [0:0]\n-A OUTPUT -j ACCEPT\nCOMMIT\n").iptables;
    let mut bad = network_namespace(
        &["10.0.0.2/24", "10.0.0.7/32"],
        &[("10.9.0.0/16", Some("10.0.0.1"))],
    );
    bad.iptables = namespace("*nat\n:OUTPUT DROP [0:0]\n:NEW - [0:0]\n-A OUTPUT -j NEW\nCOMMIT\n*mangle\n-A OUTPUT -j ACCEPT\nCOMMIT\n").iptables;
    let pair = pair(&plan(good), &plan(bad));
    let choices: Vec<DifferenceMask> = (0_u32..1 << pair.len())
        .map(|bits| {
            (0..pair.len())
                .map(|index| bits >> index & 1 == 1)
                .collect()
        })
        .collect();
    for (from, to) in choices.iter().zip(choices.iter().skip(1)) {
        delta::diff(&pair.plan(from), &pair.plan(to)).unwrap();
    }
}

#[test]
fn pair_iptables_variants_are_merged_separately() {
    let rules = |backend, rule: &str| Iptables {
        backend,
        v4: Input::from_text(format!(
            "*filter\n:FORWARD ACCEPT [0:0]\n-A FORWARD {rule}\nCOMMIT\n"
        )),
        v6: Input::default(),
    };
    let shared = rules(Backend::Nft, "-s 10.0.0.1/32 -j DROP");
    let mut good = namespace("");
    good.iptables = Some(shared.clone());
    let mut bad = good.clone();
    bad.other_iptables = Some(rules(Backend::Legacy, "-d 10.0.0.2/32 -j DROP"));
    let pair = pair(&plan(good), &plan(bad.clone()));
    assert_eq!(pair.len(), 1);
    insta::assert_snapshot!(describe_all(&pair));
    let without = pair.plan(&vec![false]);
    let with = pair.plan(&vec![true]);
    let [without_rule, with_rule] = [&without, &with].map(|plan| &plan.namespaces[0]);
    for side in [without_rule, with_rule] {
        assert_eq!(side.iptables.as_ref().unwrap().backend, Backend::Nft);
        assert_eq!(
            side.other_iptables.as_ref().unwrap().backend,
            Backend::Legacy
        );
    }
    assert!(
        !without_rule
            .other_iptables
            .as_ref()
            .unwrap()
            .v4
            .text()
            .contains("DROP")
    );
    assert!(
        with_rule
            .other_iptables
            .as_ref()
            .unwrap()
            .v4
            .text()
            .contains("10.0.0.2/32")
    );
    delta::diff(&without, &with).unwrap();
}

#[test]
fn pair_nft_tables_at_other_lines_do_not_differ() {
    let with_tables = |text: &str| {
        let mut namespace = namespace("");
        namespace.nft = Input::from_text(text);
        plan(namespace)
    };
    let tables = "table ip a {\n\n\tchain b {\n\t\tcounter\n\t}\n}\n";
    let commented = format!("# a comment\n\n{tables}");
    assert!(pair(&with_tables(tables), &with_tables(&commented)).is_empty());
    let changed = tables.replace("counter", "accept");
    assert_eq!(pair(&with_tables(tables), &with_tables(&changed)).len(), 2);
}
