//! Tests rules that versions up to v1.18 write differently from later versions.

use serde_json::json;

use super::{TestCluster, test_cluster, with_balancer};
use svclab_ruleset::iptables::script::Table;

#[test]
fn node_traffic_in_1_14_reaches_only_local_endpoints() {
    let mut world = with_balancer("v1.14", "Local");
    world.proxy.cluster_cidr = Some("10.244.0.0/16".parse().unwrap());
    let redirect = "-s 10.244.0.0/16 -m comment --comment \"Redirect pods trying to reach \
                    external loadbalancer VIP to clusterIP\" -j KUBE-SVC-";
    let xlb = world.nat("KUBE-XLB-");
    assert_eq!(xlb.len(), 2);
    assert!(xlb[0].starts_with(redirect), "{}", xlb[0]);
    assert!(
        xlb[1].starts_with("-m comment --comment \"Balancing rule 0 for ns/svc:p\" -j KUBE-SEP-"),
        "{}",
        xlb[1]
    );
    // From v1.15 on, two rules send the node's own traffic to all endpoints.
    world.proxy.version = "v1.15".parse().unwrap();
    assert_eq!(world.nat("KUBE-XLB-").len(), 4);

    world.proxy.version = "v1.14".parse().unwrap();
    world.endpoints.remove(0);
    let last = world.nat("KUBE-XLB-").pop().unwrap();
    assert_eq!(
        last,
        "-m comment --comment \"ns/svc:p has no local endpoints\" -j KUBE-MARK-DROP"
    );
}

#[test]
fn rules_in_1_14_lack_comments_random_and_invalid() {
    let world = test_cluster("v1.14", &json!({}));
    let service = world.nat("KUBE-SVC-");
    assert!(
        service[0]
            .starts_with("-m statistic --mode random --probability 0.50000000000 -j KUBE-SEP-"),
        "{}",
        service[0]
    );
    assert!(service[1].starts_with("-j KUBE-SEP-"));
    assert_eq!(
        world.nat("KUBE-POSTROUTING"),
        [
            "-m comment --comment \"kubernetes service traffic requiring SNAT\" \
             -m mark --mark 0x4000/0x4000 -j MASQUERADE"
        ]
    );
    assert_eq!(
        world.chain(Table::Filter, "KUBE-FORWARD"),
        ["-m comment --comment \"kubernetes forwarding rules\" \
             -m mark --mark 0x4000/0x4000 -j ACCEPT"]
    );
    assert!(world.dump().table(Table::Mangle).is_none());
}

#[test]
fn forward_rules_in_1_14_match_cluster_cidr() {
    let mut world = test_cluster("v1.14", &json!({}));
    world.proxy.cluster_cidr = Some("10.244.0.0/16".parse().unwrap());
    let forward = world.chain(Table::Filter, "KUBE-FORWARD");
    assert_eq!(forward.len(), 3);
    assert!(forward[1].starts_with("-s 10.244.0.0/16 -m comment"));
    assert!(forward[2].starts_with("-d 10.244.0.0/16 -m comment"));
}

#[test]
fn probability_digits_depend_on_version() {
    let mut world = test_cluster("v1.16", &json!({}));
    world.endpoints.push(json!({"addresses": ["10.244.2.6"]}));
    assert!(world.nat("KUBE-SVC-")[0].contains("--probability 0.33332999982"));
    world.proxy.version = "v1.17".parse().unwrap();
    assert!(world.nat("KUBE-SVC-")[0].contains("--probability 0.33333333349"));
}

/// Returns the first word of the comment of each rule in the only nat chain whose name begins with
/// `prefix`; `None` for a rule without a comment.
fn comments(world: &TestCluster, prefix: &str) -> Vec<Option<String>> {
    let rules = world.nat(prefix);
    let comment = |rule: &String| {
        let (_, comment) = rule.split_once("--comment ")?;
        Some(comment.split(' ').next()?.to_owned())
    };
    rules.iter().map(comment).collect()
}

#[test]
fn endpoint_comments_missing_1_12_to_1_17() {
    for (version, comment) in [
        ("v1.9", Some("ns/svc:p")),
        ("v1.11", Some("ns/svc:p")),
        ("v1.12", None),
        ("v1.17", None),
        ("v1.18", Some("ns/svc:p")),
    ] {
        let mut world = test_cluster(version, &json!({}));
        world.endpoints.pop();
        let comment = || comment.map(str::to_owned);
        assert_eq!(comments(&world, "KUBE-SVC-"), [comment()], "{version}");
        assert_eq!(
            comments(&world, "KUBE-SEP-"),
            [comment(), comment()],
            "{version}"
        );
    }
}

#[test]
fn large_cluster_from_1_12_has_no_comments() {
    let mut world = test_cluster("v1.30", &json!({}));
    world.endpoints = (0..1001)
        .map(|i| json!({"addresses": [format!("10.244.{}.{}", i / 250, i % 250 + 1)]}))
        .collect();
    let commented = |world: &TestCluster| comments(world, "KUBE-SVC-").iter().flatten().count();
    assert_eq!(commented(&world), 0);
    world.proxy.version = "v1.11".parse().unwrap();
    assert_eq!(commented(&world), 1001);
    world.proxy.version = "v1.30".parse().unwrap();
    world.endpoints.pop();
    assert_eq!(commented(&world), 1000);
}

#[test]
fn forward_jump_comment_changed_in_1_10() {
    for (version, comment) in [
        ("v1.9", "kubernetes forward rules"),
        ("v1.10", "kubernetes forwarding rules"),
    ] {
        let rules = test_cluster(version, &json!({})).chain(Table::Filter, "FORWARD");
        let jump = format!("-m comment --comment \"{comment}\" -j KUBE-FORWARD");
        assert_eq!(rules, [jump], "{version}");
    }
}

#[test]
fn loopback_to_local_node_port_masqueraded_from_1_10() {
    let rules = |version| with_balancer(version, "Local").nat("KUBE-NODEPORTS");
    let (before, after) = (rules("v1.9"), rules("v1.10"));
    let masquerade = "-s 127.0.0.0/8 -p tcp -m comment --comment ns/svc:p -m tcp --dport 30080 \
                      -j KUBE-MARK-MASQ";
    assert_eq!(after.len(), 2, "{after:?}");
    assert_eq!(after[0], masquerade);
    assert_eq!(after[1..], before);
    assert!(before[0].contains("--dport 30080 -j KUBE-XLB-"));
}

#[test]
fn forward_jumps_to_services_from_1_13_6() {
    for (version, from) in [
        ("v1.13.5", vec!["OUTPUT"]),
        ("v1.13.6", vec!["INPUT", "FORWARD", "OUTPUT"]),
    ] {
        let world = test_cluster(version, &json!({}));
        let jumps = |chain: &&str| {
            let rules = world.chain(Table::Filter, chain);
            rules.iter().any(|rule| rule.ends_with("-j KUBE-SERVICES"))
        };
        let found: Vec<&str> = ["INPUT", "FORWARD", "OUTPUT"]
            .into_iter()
            .filter(jumps)
            .collect();
        assert_eq!(found, from, "{version}");
    }
}

#[test]
fn mark_cleared_in_backported_patch_releases() {
    for (before, after) in [
        ("v1.15", "v1.16"),
        ("v1.16.12", "v1.16.13"),
        ("v1.17.8", "v1.17.9"),
        ("v1.18.5", "v1.18.6"),
    ] {
        let snat = "-m comment --comment \"kubernetes service traffic requiring SNAT\"";
        let rules = |version| {
            let mut world = test_cluster(version, &json!({}));
            world.proxy.random_fully = false;
            world.nat("KUBE-POSTROUTING")
        };
        assert_eq!(
            rules(before),
            [format!("{snat} -m mark --mark 0x4000/0x4000 -j MASQUERADE")],
            "{before}"
        );
        assert_eq!(
            rules(after),
            [
                "-m mark ! --mark 0x4000/0x4000 -j RETURN".to_owned(),
                "-j MARK --set-xmark 0x4000/0x0".to_owned(),
                format!("{snat} -j MASQUERADE"),
            ],
            "{after}"
        );
    }
}

#[test]
fn node_rules_in_1_15_precede_pod_rules() {
    for (version, order) in [
        ("v1.14", vec!["Redirect", "Balancing"]),
        (
            "v1.15",
            vec!["masquerade", "route", "Redirect", "Balancing"],
        ),
        (
            "v1.16",
            vec!["Redirect", "masquerade", "route", "Balancing"],
        ),
    ] {
        let mut world = with_balancer(version, "Local");
        world.proxy.cluster_cidr = Some("10.244.0.0/16".parse().unwrap());
        let found = comments(&world, "KUBE-XLB-");
        let first_words: Vec<&str> = found
            .iter()
            .flatten()
            .map(|comment| comment.trim_start_matches('"'))
            .collect();
        assert_eq!(first_words, order, "{version}");
    }
}

#[test]
fn v1_9_without_endpoints_has_empty_chain_and_rejects() {
    let rules_of = |version, policy| {
        let mut world = with_balancer(version, policy);
        world.service["spec"]["externalIPs"] = json!(["198.18.0.1"]);
        world.endpoints.clear();
        world
    };
    let v1_9 = rules_of("v1.9", "Cluster");
    let dump = v1_9.dump();
    let chains = &dump.table(Table::Nat).unwrap().chains;
    let service = chains.iter().find(|c| c.name.starts_with("KUBE-SVC-"));
    assert!(service.unwrap().rules.is_empty());
    let leading = v1_9.nat("KUBE-SERVICES");
    let count_rules = |text: &str| leading.iter().filter(|r| r.contains(text)).count();
    assert_eq!(count_rules("cluster IP"), 1);
    assert_eq!(count_rules("external IP"), 3);
    assert_eq!(count_rules("loadbalancer IP"), 1);
    assert_eq!(v1_9.nat("KUBE-FW-").len(), 3);
    assert_eq!(v1_9.nat("KUBE-NODEPORTS").len(), 2);
    let refused = "-m comment --comment \"ns/svc:p has no endpoints\"";
    let reject = "-j REJECT";
    assert_eq!(
        v1_9.chain(Table::Filter, "KUBE-SERVICES"),
        [
            format!("-d 198.18.0.1 -p tcp {refused} -m tcp --dport 80 {reject}"),
            format!("-p tcp {refused} -m addrtype --dst-type LOCAL -m tcp --dport 30080 {reject}"),
            format!("-d 10.96.0.1 -p tcp {refused} -m tcp --dport 80 {reject}"),
        ]
    );

    let local = rules_of("v1.9", "Local");
    assert!(local.nat("KUBE-XLB-").is_empty());
    assert_eq!(local.nat("KUBE-NODEPORTS").len(), 1);
    assert_eq!(local.nat("KUBE-FW-").len(), 2);

    let v1_10 = rules_of("v1.10", "Cluster");
    assert!(v1_10.nat("KUBE-NODEPORTS").is_empty() && v1_10.nat("KUBE-FW-").is_empty());
    assert_eq!(
        v1_10.nat("KUBE-SERVICES").len(),
        1,
        "only the jump to node ports is expected"
    );
    assert_eq!(v1_10.chain(Table::Filter, "KUBE-SERVICES").len(), 1);
    assert_eq!(
        v1_10.chain(Table::Filter, "KUBE-EXTERNAL-SERVICES").len(),
        2
    );
}
