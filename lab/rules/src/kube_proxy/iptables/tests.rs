//! Tests the inputs that single rules depend on. `tests/cases/recorded` compares whole rule
//! sets with recordings.

mod early;
mod nodes;

use serde_json::{Value, json};

use crate::kube_proxy::{Family, KubeProxy, KubeProxyError, Mode, Objects, rules};
use crate::objects::{EndpointSlice, Node, Service};
use svclab_ruleset::iptables::script::Table;
use svclab_ruleset::iptables::{IptablesRules, Rule};

/// Cluster with one service, `ns/svc`, and one endpoint slice.
struct TestCluster {
    service: Value,
    endpoints: Vec<Value>,
    proxy: KubeProxy,
    node_labels: Value,
}

/// Returns a cluster whose service has one port `p`, 80 to 8080, with an endpoint on this node and
/// one on another node.
fn test_cluster(version: &str, spec: &Value) -> TestCluster {
    let mut service = json!({
        "metadata": {"namespace": "ns", "name": "svc"},
        "spec": {
            "clusterIP": "10.96.0.1",
            "ports": [{"name": "p", "port": 80, "targetPort": 8080}]
        }
    });
    merge(&mut service["spec"], spec);
    TestCluster {
        service,
        endpoints: vec![
            json!({"addresses": ["10.244.1.5"], "nodeName": "here"}),
            json!({"addresses": ["10.244.2.5"], "nodeName": "there"}),
        ],
        proxy: KubeProxy::new(version.parse().unwrap()),
        node_labels: json!({}),
    }
}

fn merge(into: &mut Value, from: &Value) {
    for (key, value) in from.as_object().unwrap() {
        into[key] = value.clone();
    }
}

impl TestCluster {
    fn try_dump(&self) -> Result<IptablesRules, KubeProxyError> {
        let port = &self.service["spec"]["ports"][0];
        let slice = json!({
            "metadata": {
                "namespace": "ns", "name": "svc-1",
                "labels": {"kubernetes.io/service-name": "svc"}
            },
            "addressType": "IPv4",
            "ports": [{"name": port["name"], "port": 8080, "protocol": port["protocol"]}],
            "endpoints": self.endpoints
        });
        let node = json!({
            "metadata": {"name": "here", "labels": self.node_labels},
            "status": {"addresses": [{"type": "InternalIP", "address": "192.168.50.10"}]}
        });
        let nodes: Vec<Node> = vec![serde_json::from_value(node).unwrap()];
        let services: Vec<Service> = vec![serde_json::from_value(self.service.clone()).unwrap()];
        let slices: Vec<EndpointSlice> = vec![serde_json::from_value(slice).unwrap()];
        let objects = Objects {
            node: "here",
            nodes: &nodes,
            services: &services,
            endpoint_slices: &slices,
            service_cidrs: &[],
            interface_addresses: &[],
        };
        let mut script = svclab_ruleset::iptables::script::IptablesScript::new();
        script.table_mut(Table::Nat).declare_chain("KUBE-MARK-DROP");
        script.append(rules(&self.proxy, &objects, Family::V4)?.script);
        Ok(IptablesRules::from_script(&script).unwrap())
    }

    fn dump(&self) -> IptablesRules {
        self.try_dump().unwrap()
    }

    /// Returns the rules of the only chain in `table` whose name begins with `prefix`.
    fn chain(&self, table: Table, prefix: &str) -> Vec<String> {
        let dump = self.dump();
        let chains = &dump.table(table).unwrap().chains;
        let mut found = chains.iter().filter(|c| c.name.starts_with(prefix));
        let rules = found.next().map_or(&[][..], |chain| &chain.rules);
        assert!(found.next().is_none(), "several chains start with {prefix}");
        rules.iter().map(Rule::canonical_text).collect()
    }

    fn nat(&self, prefix: &str) -> Vec<String> {
        self.chain(Table::Nat, prefix)
    }

    /// Returns the endpoint addresses of the chain `prefix`, in the order of its rules.
    fn endpoints_of(&self, prefix: &str) -> Vec<String> {
        let dump = self.dump();
        let nat = dump.table(Table::Nat).unwrap();
        let chain = nat.chains.iter().find(|c| c.name.starts_with(prefix));
        let targets = chain.map_or(&[][..], |chain| &chain.rules).iter();
        targets
            .filter_map(|rule| {
                let endpoint = dump.chain(Table::Nat, &rule.target()?)?;
                let translate = endpoint.rules.last()?.parts().target?;
                let to = translate.options.first()?.values.first()?;
                Some(to.clone().into_owned())
            })
            .collect()
    }
}

/// Returns the cluster of [`test_cluster`] with a load balancer at 203.0.113.1 and node port 30080.
fn with_balancer(version: &str, policy: &str) -> TestCluster {
    let spec = json!({
        "type": "LoadBalancer",
        "externalTrafficPolicy": policy,
        "ports": [{"name": "p", "port": 80, "nodePort": 30080}]
    });
    let mut world = test_cluster(version, &spec);
    world.service["status"] = json!({"loadBalancer": {"ingress": [{"ip": "203.0.113.1"}]}});
    world
}

#[test]
fn rules_without_local_endpoints_by_version() {
    let mut world = with_balancer("v1.24", "Local");
    world.endpoints.remove(0);
    assert_eq!(
        world.nat("KUBE-SVL-"),
        ["-m comment --comment \"ns/svc:p has no local endpoints\" -j KUBE-MARK-DROP"]
    );
    assert!(
        world
            .nat("KUBE-EXT-")
            .last()
            .unwrap()
            .starts_with("-j KUBE-SVL-")
    );
    assert!(
        world
            .chain(Table::Filter, "KUBE-EXTERNAL-SERVICES")
            .is_empty()
    );

    world.proxy.version = "v1.25".parse().unwrap();
    assert!(world.nat("KUBE-SVL-").is_empty());
    assert_eq!(world.nat("KUBE-EXT-").len(), 2);
    let dropped = world.chain(Table::Filter, "KUBE-EXTERNAL-SERVICES");
    assert_eq!(dropped.len(), 2);
    assert!(dropped[0].starts_with("-d 203.0.113.1 -p tcp") && dropped[0].ends_with("-j DROP"));
    assert!(dropped[1].contains("--dport 30080") && dropped[1].ends_with("-j DROP"));
}

#[test]
fn rules_load_balancer_without_endpoints_rejected_by_version() {
    let refused = |version| {
        let mut world = with_balancer(version, "Cluster");
        world.endpoints.clear();
        ["KUBE-SERVICES", "KUBE-EXTERNAL-SERVICES"].map(|chain| {
            let rules = world.chain(Table::Filter, chain);
            rules.iter().filter(|r| r.contains("203.0.113.1")).count()
        })
    };
    assert_eq!(refused("v1.12"), [0, 0]);
    assert_eq!(refused("v1.13.5"), [0, 0]);
    assert_eq!(refused("v1.13.6"), [1, 0]);
    assert_eq!(refused("v1.14"), [1, 0]);
    assert_eq!(refused("v1.20"), [0, 1]);
    assert_eq!(refused("v1.30"), [0, 1]);
}

#[test]
fn rules_unnamed_port_up_to_1_18_keeps_colon() {
    let comment = |version: &str| {
        let spec = json!({"ports": [{"port": 80, "targetPort": 8080}]});
        let world = test_cluster(version, &spec);
        let service = world.nat("KUBE-SERVICES").swap_remove(0);
        let comment = service.split('"').nth(1).unwrap().to_owned();
        (comment, world.endpoints_of("KUBE-SVC-").len())
    };
    assert_eq!(comment("v1.18"), ("ns/svc: cluster IP".to_owned(), 2));
    assert_eq!(comment("v1.19"), ("ns/svc cluster IP".to_owned(), 2));
}

#[test]
fn rules_hairpin_traffic_is_masqueraded() {
    for version in ["v1.14", "v1.20", "v1.30"] {
        let mut world = test_cluster(version, &json!({}));
        world.endpoints.pop();
        let rules = world.nat("KUBE-SEP-");
        assert!(rules[0].starts_with("-s 10.244.1.5 "), "{}", rules[0]);
        assert!(rules[0].ends_with("-j KUBE-MARK-MASQ"));
        assert!(rules[1].ends_with("-j DNAT --to-destination 10.244.1.5:8080"));
    }
}

#[test]
fn rules_local_affinity_in_both_chains() {
    for (version, local) in [("v1.20", "KUBE-XLB-"), ("v1.30", "KUBE-SVL-")] {
        let mut world = with_balancer(version, "Local");
        merge(
            &mut world.service["spec"],
            &json!({
                "sessionAffinity": "ClientIP",
                "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 60}}
            }),
        );
        for (chain, expected) in [("KUBE-SVC-", 2), (local, 1)] {
            let rules = world.nat(chain);
            let stay = rules
                .iter()
                .filter(|r| r.contains("--rcheck") && r.contains("--seconds 60"));
            assert_eq!(stay.count(), expected, "{version} {chain}");
        }
        let dump = world.dump();
        let endpoints = dump.table(Table::Nat).unwrap().chains.iter();
        for chain in endpoints.filter(|c| c.name.starts_with("KUBE-SEP-")) {
            assert!(
                chain.rules[1]
                    .canonical_text()
                    .contains("-m recent --name KUBE-SEP-")
            );
        }
    }
}

#[test]
fn rules_source_range_with_node_admits_loopback_traffic() {
    for (version, expected) in [("v1.20", 1), ("v1.21", 0), ("v1.27", 0), ("v1.28", 1)] {
        let mut world = with_balancer(version, "Cluster");
        world.service["spec"]["loadBalancerSourceRanges"] = json!(["198.51.100.0/24"]);
        let loopback_rules = |world: &TestCluster| {
            let rules = world.nat("KUBE-FW-");
            rules
                .iter()
                .filter(|r| r.starts_with("-s 203.0.113.1 "))
                .count()
        };
        assert_eq!(loopback_rules(&world), 0);
        world.service["spec"]["loadBalancerSourceRanges"] = json!(["192.168.50.0/24"]);
        assert_eq!(loopback_rules(&world), expected, "{version}");
    }
}

#[test]
fn rules_all_addresses_range_from_1_34_is_ignored() {
    let mut world = with_balancer("v1.33", "Cluster");
    world.service["spec"]["loadBalancerSourceRanges"] = json!(["0.0.0.0/0", "10.0.0.0/8"]);
    assert!(!world.nat("KUBE-FW-").is_empty());
    world.proxy.version = "v1.34".parse().unwrap();
    assert!(world.nat("KUBE-FW-").is_empty());
}

#[test]
fn rules_proxy_ip_mode_from_1_30_has_no_rules() {
    let served = |version| {
        let mut world = with_balancer(version, "Cluster");
        world.service["status"]["loadBalancer"]["ingress"][0]["ipMode"] = json!("Proxy");
        let rules = world.nat("KUBE-SERVICES");
        rules.iter().any(|rule| rule.contains("203.0.113.1"))
    };
    assert!(served("v1.29"));
    assert!(!served("v1.30"));
}

#[test]
fn rules_terminating_endpoints_from_1_26_are_fallback() {
    let mut world = with_balancer("v1.26", "Local");
    let terminating = json!({"ready": false, "serving": true, "terminating": true});
    world.endpoints[0]["conditions"] = terminating;
    assert_eq!(world.endpoints_of("KUBE-SVC-"), ["10.244.2.5:8080"]);
    assert_eq!(world.endpoints_of("KUBE-SVL-"), ["10.244.1.5:8080"]);
    world.proxy.version = "v1.25".parse().unwrap();
    assert!(world.endpoints_of("KUBE-SVL-").is_empty());
}

#[test]
fn rules_topology_hints_filter_endpoints_by_version() {
    let mut world = test_cluster("v1.24", &json!({}));
    world.node_labels = json!({"topology.kubernetes.io/zone": "east"});
    for (i, zone) in ["east", "west"].into_iter().enumerate() {
        world.endpoints[i]["hints"] = json!({"forZones": [{"name": zone}]});
    }
    let chosen = |world: &TestCluster| world.endpoints_of("KUBE-SVC-").len();
    assert_eq!(
        chosen(&world),
        2,
        "without the annotation, hints are ignored"
    );
    let annotation = "service.kubernetes.io/topology-aware-hints";
    world.service["metadata"]["annotations"] = json!({annotation: "Auto"});
    assert_eq!(world.endpoints_of("KUBE-SVC-"), ["10.244.1.5:8080"]);
    world.node_labels = json!({"topology.kubernetes.io/zone": "north"});
    assert_eq!(chosen(&world), 2, "no hint names this zone");
    world.node_labels = json!({"topology.kubernetes.io/zone": "east"});
    world.proxy.version = "v1.23".parse().unwrap();
    assert_eq!(
        chosen(&world),
        2,
        "the feature gate is off by default in v1.23"
    );

    world.service["metadata"]["annotations"] = json!({});
    world.proxy.version = "v1.31".parse().unwrap();
    assert_eq!(chosen(&world), 1, "from v1.31 on, hints need no annotation");
    world.endpoints[0]["hints"]["forNodes"] = json!([{"name": "there"}]);
    world.endpoints[1]["hints"]["forNodes"] = json!([{"name": "here"}]);
    assert_eq!(world.endpoints_of("KUBE-SVC-"), ["10.244.1.5:8080"]);
    world.proxy.version = "v1.34".parse().unwrap();
    assert_eq!(world.endpoints_of("KUBE-SVC-"), ["10.244.2.5:8080"]);
}

#[test]
fn rules_external_ip_policy_depends_on_version() {
    let spec = |kind| json!({"type": kind, "externalIPs": ["198.18.0.1"], "externalTrafficPolicy": "Local"});
    let target = |version, kind| {
        let rules = test_cluster(version, &spec(kind)).nat("KUBE-SERVICES");
        let rule = rules.iter().rfind(|r| r.contains("198.18.0.1")).unwrap();
        rule.rsplit(' ').next().unwrap()[..9].to_owned()
    };
    assert_eq!(target("v1.18", "NodePort"), "KUBE-SVC-");
    assert_eq!(target("v1.19", "NodePort"), "KUBE-XLB-");
    assert_eq!(target("v1.28", "ClusterIP"), "KUBE-EXT-");
    let local = |version| {
        !test_cluster(version, &spec("ClusterIP"))
            .nat("KUBE-SVL-")
            .is_empty()
    };
    assert!(!local("v1.28"));
    assert!(local("v1.29"));
}

#[test]
fn rules_unserved_service_has_no_chains() {
    for spec in [
        json!({"clusterIP": "None"}),
        json!({"clusterIP": "fd00::1"}),
        json!({"type": "ExternalName", "externalName": "example.com"}),
    ] {
        assert!(test_cluster("v1.30", &spec).nat("KUBE-SVC-").is_empty());
    }
    let labelled = |version, label: &str| {
        let mut world = test_cluster(version, &json!({}));
        world.service["metadata"]["labels"] = json!({label: ""});
        world.nat("KUBE-SVC-").len()
    };
    let proxy_name_label = "service.kubernetes.io/service-proxy-name";
    let headless = "service.kubernetes.io/headless";
    for (version, proxy_name_rules, headless_rules) in [
        ("v1.13", 2, 2),
        ("v1.14", 0, 2),
        ("v1.15", 0, 2),
        ("v1.16", 0, 0),
        ("v1.35", 0, 0),
        ("v1.36", 0, 2),
    ] {
        assert_eq!(
            labelled(version, proxy_name_label),
            proxy_name_rules,
            "{version}"
        );
        assert_eq!(labelled(version, headless), headless_rules, "{version}");
    }
}

#[test]
fn rules_invalid_object_returns_error() {
    let error_text = |spec: Value| {
        test_cluster("v1.30", &spec)
            .try_dump()
            .unwrap_err()
            .to_string()
    };
    assert_eq!(
        error_text(json!({"externalIPs": ["here"]})),
        "service ns/svc: externalIPs `here` is not valid"
    );
    assert_eq!(
        error_text(json!({"ports": [{"name": "p", "port": 70000}]})),
        "service ns/svc: port `70000` is not valid"
    );
    let mut world = test_cluster("v1.30", &json!({}));
    world.endpoints[0]["addresses"] = json!(["nowhere"]);
    assert_eq!(
        world.try_dump().unwrap_err().to_string(),
        "endpoint slice ns/svc-1: addresses `nowhere` is not valid"
    );
    world.proxy.mode = Mode::Ipvs;
    assert_eq!(
        world.try_dump().unwrap_err(),
        KubeProxyError::WrongMode(Mode::Ipvs)
    );
}
