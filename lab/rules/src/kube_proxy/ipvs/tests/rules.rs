//! Tests iptables rules and the sets that they match.

use serde_json::json;

use super::{LOCAL_ENDPOINT, REMOTE_ENDPOINT, test_cluster, with_balancer};
use svclab_ruleset::iptables::IptablesRules;
use svclab_ruleset::iptables::script::Table;

fn read(lines: &str) -> IptablesRules {
    let mut chains: Vec<&str> = lines
        .lines()
        .filter_map(|line| line.split(' ').nth(1))
        .filter(|chain| chain.starts_with("KUBE-"))
        .collect();
    chains.dedup();
    let mut text = "*nat\n".to_owned();
    for built_in in ["PREROUTING", "INPUT", "OUTPUT", "POSTROUTING"] {
        text = format!("{text}:{built_in} ACCEPT [0:0]\n");
    }
    for chain in chains {
        text = format!("{text}:{chain} - [0:0]\n");
    }
    IptablesRules::parse(&format!("{text}{lines}\nCOMMIT\n")).unwrap()
}

/// Returns every nat rule, sorted.
fn nat_rules(dump: &IptablesRules) -> Vec<String> {
    let mut rules = Vec::new();
    for chain in &dump.table(Table::Nat).unwrap().chains {
        for rule in &chain.rules {
            rules.push(format!("{} {}", chain.name, rule.canonical_text()));
        }
    }
    rules.sort();
    rules
}

/// The dump is from a node with a v1.9.11 that ran without `--cluster-cidr`, without the rules of
/// docker and other programs.
#[test]
fn v1_9_without_cidr_masquerades_no_cluster_ip() {
    let recorded = read(
        r#"-A PREROUTING -m comment --comment "kubernetes service portals" -j KUBE-SERVICES
-A OUTPUT -m comment --comment "kubernetes service portals" -j KUBE-SERVICES
-A POSTROUTING -m comment --comment "kubernetes postrouting rules" -j KUBE-POSTROUTING
-A KUBE-MARK-MASQ -j MARK --set-xmark 0x4000/0x4000
-A KUBE-POSTROUTING -m comment --comment "kubernetes service traffic requiring SNAT" -m mark --mark 0x4000/0x4000 -j MASQUERADE
-A KUBE-POSTROUTING -m set --match-set KUBE-LOOP-BACK dst,dst,src -j MASQUERADE
-A KUBE-SERVICES -p tcp -m tcp -m set --match-set KUBE-NODE-PORT-TCP dst -j KUBE-MARK-MASQ"#,
    );
    let mut world = test_cluster(
        "v1.9.11",
        &json!({
            "type": "NodePort",
            "sessionAffinity": "ClientIP",
            "ports": [{"name": "p", "port": 443, "nodePort": 30443}]
        }),
    );
    assert_eq!(nat_rules(&recorded), nat_rules(&world.dump()));
    assert!(world.dump().table(Table::Filter).is_none());
    assert_eq!(world.set("KUBE-CLUSTER-IP"), Some(vec![]));
    assert_eq!(world.bound(), ["10.20.0.1"]);
    assert_eq!(
        world.rules().servers.last().unwrap().to_string(),
        format!(
            "-A -t 10.20.0.1:443 -s rr -p 10800\n\
             -a -t 10.20.0.1:443 -r {LOCAL_ENDPOINT} -m -w 1\n\
             -a -t 10.20.0.1:443 -r {REMOTE_ENDPOINT} -m -w 1\n"
        )
    );

    world.proxy.cluster_cidr = Some("172.16.128.0/17".parse().unwrap());
    assert_eq!(
        world.nat("KUBE-SERVICES")[0],
        "! -s 172.16.128.0/17 -m set --match-set KUBE-CLUSTER-IP dst,dst -j KUBE-MARK-MASQ"
    );
    assert_eq!(world.set("KUBE-CLUSTER-IP").unwrap(), ["10.20.0.1,tcp:443"]);
}

/// The dump of a healthy node in the same report, which the report attributes to a v1.9.2, has the
/// form of v1.12 to v1.15.
#[test]
fn v1_13_with_cidr_masquerades_nonlocal_traffic() {
    let recorded = read(
        r#"-A PREROUTING -m comment --comment "kubernetes service portals" -j KUBE-SERVICES
-A OUTPUT -m comment --comment "kubernetes service portals" -j KUBE-SERVICES
-A POSTROUTING -m comment --comment "kubernetes postrouting rules" -j KUBE-POSTROUTING
-A KUBE-FIREWALL -j KUBE-MARK-DROP
-A KUBE-LOAD-BALANCER -j KUBE-MARK-MASQ
-A KUBE-MARK-MASQ -j MARK --set-xmark 0x4000/0x4000
-A KUBE-NODE-PORT -p tcp -m comment --comment "Kubernetes nodeport TCP port for masquerade purpose" -m set --match-set KUBE-NODE-PORT-TCP dst -j KUBE-MARK-MASQ
-A KUBE-POSTROUTING -m comment --comment "kubernetes service traffic requiring SNAT" -m mark --mark 0x4000/0x4000 -j MASQUERADE
-A KUBE-POSTROUTING -m comment --comment "Kubernetes endpoints dst ip:port, source ip for solving hairpin purpose" -m set --match-set KUBE-LOOP-BACK dst,dst,src -j MASQUERADE
-A KUBE-SERVICES ! -s 172.16.128.0/17 -m comment --comment "Kubernetes service cluster ip + port for masquerade purpose" -m set --match-set KUBE-CLUSTER-IP dst,dst -j KUBE-MARK-MASQ
-A KUBE-SERVICES -m addrtype --dst-type LOCAL -j KUBE-NODE-PORT
-A KUBE-SERVICES -m set --match-set KUBE-CLUSTER-IP dst,dst -j ACCEPT"#,
    );
    let mut world = test_cluster(
        "v1.13",
        &json!({"type": "NodePort", "ports": [{"name": "p", "port": 443, "nodePort": 30443}]}),
    );
    world.proxy.cluster_cidr = Some("172.16.128.0/17".parse().unwrap());
    assert_eq!(nat_rules(&recorded), nat_rules(&world.dump()));
}

#[test]
fn node_to_own_cluster_ip_masqueraded_from_1_11_1() {
    let masquerades = |version: &str| {
        let rules = test_cluster(version, &json!({})).nat("KUBE-SERVICES");
        rules.iter().any(|rule| {
            rule.ends_with("-m set --match-set KUBE-CLUSTER-IP src,dst -j KUBE-MARK-MASQ")
        })
    };
    assert!(!masquerades("v1.9") && !masquerades("v1.10") && !masquerades("v1.11.0"));
    assert!(masquerades("v1.11") && masquerades("v1.18") && masquerades("v1.36"));
}

#[test]
fn local_balancer_adds_two_return_rules() {
    let chains = ["KUBE-LOAD-BALANCER", "KUBE-NODE-PORT"];
    let cluster = with_balancer("v1.18.2", "Cluster");
    let local = with_balancer("v1.18.2", "Local");
    for (chain, set) in chains.into_iter().zip([
        "KUBE-LOAD-BALANCER-LOCAL dst,dst",
        "KUBE-NODE-PORT-LOCAL-TCP dst",
    ]) {
        let (without, with) = (cluster.nat(chain), local.nat(chain));
        assert_eq!(with.len(), without.len() + 1, "{chain}");
        assert!(
            with[0].ends_with(&format!("--match-set {set} -j RETURN")),
            "{}",
            with[0]
        );
        assert_eq!(with[1..], without[..]);
    }
    assert_eq!(cluster.nat("KUBE-SERVICES"), local.nat("KUBE-SERVICES"));
    for world in [cluster, local] {
        assert_eq!(
            world.set("KUBE-LOAD-BALANCER").unwrap(),
            ["203.0.113.1,tcp:443"]
        );
    }
}

#[test]
fn loop_back_set_contents_depend_on_version() {
    let local_entry = "172.16.1.5,tcp:6443,172.16.1.5".to_owned();
    let remote_entry = "172.16.2.5,tcp:6443,172.16.2.5".to_owned();
    for (version, entries) in [
        ("v1.11", vec![local_entry.clone(), remote_entry.clone()]),
        ("v1.12", vec![local_entry.clone(), remote_entry]),
        ("v1.13.0", vec![local_entry.clone()]),
        ("v1.14", vec![local_entry.clone()]),
    ] {
        let world = test_cluster(version, &json!({}));
        assert_eq!(world.set("KUBE-LOOP-BACK").unwrap(), entries, "{version}");
    }
    for (version, entries) in [("v1.20", vec![]), ("v1.21", vec![local_entry])] {
        let mut world = test_cluster(version, &json!({}));
        world.endpoints[0]["conditions"] = json!({"ready": false});
        assert_eq!(world.set("KUBE-LOOP-BACK").unwrap(), entries, "{version}");
    }
}

#[test]
fn local_external_ips_from_1_19_not_masqueraded() {
    for (version, set, local_entries) in [
        ("v1.17", "KUBE-EXTERNAL-IP", None),
        ("v1.18", "KUBE-EXTERNAL-IP", Some(vec![])),
        (
            "v1.19",
            "KUBE-EXTERNAL-IP-LOCAL",
            Some(vec!["198.18.0.1,tcp:443".to_owned()]),
        ),
    ] {
        let mut world = with_balancer(version, "Local");
        world.service["spec"]["externalIPs"] = json!(["198.18.0.1"]);
        assert_eq!(
            world.set("KUBE-EXTERNAL-IP-LOCAL"),
            local_entries,
            "{version}"
        );
        let rules = world.nat("KUBE-SERVICES");
        let matching: Vec<&String> = rules
            .iter()
            .filter(|r| r.contains(&format!("{set} dst")))
            .collect();
        let masquerades = matching.iter().any(|rule| rule.ends_with("KUBE-MARK-MASQ"));
        assert_eq!(masquerades, set == "KUBE-EXTERNAL-IP", "{version}");
        assert_eq!(matching.len(), if masquerades { 3 } else { 2 }, "{version}");
    }
}

#[test]
fn source_range_with_node_admits_node() {
    let with_source_range = |version: &str, range: &str| {
        let mut world = with_balancer(version, "Cluster");
        world.service["spec"]["loadBalancerSourceRanges"] = json!([range]);
        world
    };
    let other_range = with_source_range("v1.30", "198.51.100.0/24");
    assert_eq!(
        other_range.set("KUBE-LOAD-BALANCER-SOURCE-IP"),
        Some(vec![])
    );
    assert_eq!(
        other_range.chain(Table::Filter, "KUBE-IPVS-OUT-FILTER"),
        ["-s 203.0.113.1 -m ipvs --vaddr 203.0.113.1 --vport 443 --vproto tcp -j DROP"]
    );
    assert_eq!(
        other_range.set("KUBE-LOAD-BALANCER-SOURCE-CIDR").unwrap(),
        ["203.0.113.1,tcp:443,198.51.100.0/24"]
    );
    let admitted = with_source_range("v1.30", "10.19.0.0/16");
    assert_eq!(
        admitted.set("KUBE-LOAD-BALANCER-SOURCE-IP").unwrap(),
        ["203.0.113.1,tcp:443,203.0.113.1"]
    );
    assert!(
        admitted
            .chain(Table::Filter, "KUBE-IPVS-OUT-FILTER")
            .is_empty()
    );

    // Before v1.25, nat marks packets for dropping.
    let old = with_source_range("v1.20", "198.51.100.0/24");
    let firewall = old.nat("KUBE-FIREWALL");
    assert_eq!(firewall.last().unwrap(), "-j KUBE-MARK-DROP");
    assert!(old.nat("KUBE-LOAD-BALANCER")[0].ends_with("-j KUBE-FIREWALL"));
}

/// ipset rejects an entry for all addresses, and kube-proxy does not handle the error: it drops
/// traffic from all sources.
#[test]
fn source_range_all_addresses_before_1_34_drops_all() {
    for (version, is_restricted) in [("v1.33", true), ("v1.34", false)] {
        let mut world = with_balancer(version, "Cluster");
        world.service["spec"]["loadBalancerSourceRanges"] = json!(["0.0.0.0/0"]);
        assert_eq!(world.set("KUBE-LOAD-BALANCER-SOURCE-CIDR"), Some(vec![]));
        let rules = world.chain(Table::Filter, "KUBE-PROXY-FIREWALL");
        assert_eq!(rules.len(), usize::from(is_restricted), "{version}");
        let ranges = world.chain(Table::Filter, "KUBE-SOURCE-RANGES-FIREWALL");
        assert_eq!(
            ranges.len(),
            if is_restricted { 3 } else { 1 },
            "{version}: {ranges:?}"
        );
    }
}

#[test]
fn v1_10_balancer_masqueraded_by_set_without_firewall() {
    let mut world = with_balancer("v1.10", "Cluster");
    world.service["spec"]["loadBalancerSourceRanges"] = json!(["198.51.100.0/24"]);
    assert_eq!(
        world.nat("KUBE-SERVICES")[0],
        "-m set --match-set KUBE-LOAD-BALANCER-MASQ dst,dst -j KUBE-MARK-MASQ"
    );
    assert_eq!(
        world.nat("KUBE-FIRE-WALL"),
        [
            "-m set --match-set KUBE-LOAD-BALANCER-SOURCE-CIDR dst,dst,src -j ACCEPT",
            "-j KUBE-MARK-DROP"
        ]
    );
    let rules = world.nat("KUBE-SERVICES");
    assert!(!rules.iter().any(|rule| rule.contains("KUBE-FIRE-WALL")));

    let local = with_balancer("v1.10", "Local");
    assert_eq!(local.set("KUBE-LOAD-BALANCER-MASQ"), Some(vec![]));
    assert_eq!(local.set("KUBE-NODE-PORT-TCP"), Some(vec![]));
    assert!(local.nat("KUBE-SERVICES").is_empty());
}

#[test]
fn unserved_node_port_up_to_1_15_is_in_set() {
    for (version, entries) in [
        ("v1.10", vec!["30443"]),
        ("v1.15", vec!["30443"]),
        ("v1.16", vec![]),
        ("v1.30", vec![]),
    ] {
        let mut world = with_balancer(version, "Cluster");
        world.proxy.node_port_addresses = vec!["192.0.2.0/24".to_owned().try_into().unwrap()];
        assert_eq!(
            world.set("KUBE-NODE-PORT-TCP").unwrap(),
            entries,
            "{version}"
        );
        let served = world.rules().servers;
        let addresses: Vec<String> = served.iter().map(|s| s.key.to_string()).collect();
        assert_eq!(
            addresses,
            ["-t 10.20.0.1:443", "-t 203.0.113.1:443"],
            "{version}"
        );
    }
}

#[test]
fn sctp_node_port_sets_depend_on_version() {
    let spec = json!({
        "type": "NodePort",
        "externalTrafficPolicy": "Local",
        "ports": [{"name": "p", "port": 443, "nodePort": 30443, "protocol": "SCTP"}]
    });
    let old = test_cluster("v1.14", &spec);
    assert_eq!(old.set("KUBE-NODE-PORT-SCTP").unwrap(), ["30443"]);
    for version in ["v1.16", "v1.20"] {
        let hashes = test_cluster(version, &spec);
        assert_eq!(
            hashes.set("KUBE-NODE-PORT-SCTP-HASH").unwrap(),
            ["10.19.136.10,sctp:30443", "127.0.0.1,sctp:30443"],
            "{version}"
        );
    }
    // v1.15 enters only the node's own address, even if the address does not serve node ports.
    let mut cluster_1_15 = test_cluster("v1.15", &spec);
    cluster_1_15.proxy.node_port_addresses = vec!["127.0.0.0/8".to_owned().try_into().unwrap()];
    for set in ["KUBE-NODE-PORT-SCTP-HASH", "KUBE-NODE-PORT-LOCAL-SCTP-HASH"] {
        assert_eq!(
            cluster_1_15.set(set).unwrap(),
            ["10.19.136.10,sctp:30443"],
            "{set}"
        );
    }
    assert!(
        cluster_1_15
            .real_servers("--sctp-service 127.0.0.1:30443")
            .is_some()
    );
    let target = |version: &str| {
        let rules = test_cluster(version, &spec).nat("KUBE-NODE-PORT");
        rules[0].rsplit(' ').next().unwrap().to_owned()
    };
    assert_eq!(target("v1.22"), "KUBE-MARK-MASQ");
    assert_eq!(target("v1.23"), "RETURN");
    assert!(test_cluster("v1.11", &spec).rules().servers.is_empty());
}

#[test]
fn mark_cleared_last_in_backported_patch_releases() {
    let snat = "-m comment --comment \"kubernetes service traffic requiring SNAT\"";
    let before = format!("{snat} -m mark --mark 0x4000/0x4000 -j MASQUERADE");
    let hairpin = "-m comment --comment \"Kubernetes endpoints dst ip:port, source ip for solving \
                   hairpin purpose\" -m set --match-set KUBE-LOOP-BACK dst,dst,src -j MASQUERADE";
    let after = [
        "-m mark ! --mark 0x4000/0x4000 -j RETURN",
        "-j MARK --set-xmark 0x4000/0x0",
        &format!("{snat} -j MASQUERADE"),
    ];
    let old = vec![before.as_str(), hairpin];
    let new: Vec<&str> = [hairpin].into_iter().chain(after).collect();
    for (version, rules) in [
        ("v1.15", &old),
        ("v1.16.12", &old),
        ("v1.16.13", &new),
        ("v1.17.8", &old),
        ("v1.17.9", &new),
        ("v1.18.5", &old),
        ("v1.18.6", &new),
    ] {
        let mut world = test_cluster(version, &json!({}));
        world.proxy.random_fully = false;
        assert_eq!(&world.nat("KUBE-POSTROUTING"), rules, "{version}");
    }
}
