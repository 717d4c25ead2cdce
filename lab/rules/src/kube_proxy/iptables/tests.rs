//! Tests the inputs that single rules depend on. `tests/kube_proxy_recorded` compares whole rule
//! sets with recordings.

mod early;
mod nodes;

use k8s_openapi::api::core::v1::{Node, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use serde_json::{Value, json};

use crate::kube_proxy::{Family, KubeProxy, KubeProxyError, Mode, Objects, rules};
use svclab_ruleset::iptables::script::Table;
use svclab_ruleset::iptables::{Dump, Rule};

/// Cluster with one service, `ns/svc`, and one endpoint slice.
struct World {
    service: Value,
    endpoints: Vec<Value>,
    proxy: KubeProxy,
    node_labels: Value,
}

/// Returns a cluster whose service has one port `p`, 80 to 8080, with an endpoint on this node and
/// one on another node.
fn world(version: &str, spec: &Value) -> World {
    let mut service = json!({
        "metadata": {"namespace": "ns", "name": "svc"},
        "spec": {
            "clusterIP": "10.96.0.1",
            "ports": [{"name": "p", "port": 80, "targetPort": 8080}]
        }
    });
    merge(&mut service["spec"], spec);
    World {
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

impl World {
    fn try_dump(&self) -> Result<Dump, KubeProxyError> {
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
        let mut script = svclab_ruleset::iptables::script::Script::new();
        script.table(Table::Nat).chain("KUBE-MARK-DROP");
        script.append(rules(&self.proxy, &objects, Family::V4)?.script);
        Ok(Dump::of_script(&script).unwrap())
    }

    fn dump(&self) -> Dump {
        self.try_dump().unwrap()
    }

    /// Returns the rules of the only chain in `table` whose name begins with `prefix`.
    fn chain(&self, table: Table, prefix: &str) -> Vec<String> {
        let dump = self.dump();
        let chains = &dump.table(table).unwrap().chains;
        let mut found = chains.iter().filter(|c| c.name.starts_with(prefix));
        let rules = found.next().map_or(&[][..], |chain| &chain.rules);
        assert!(found.next().is_none(), "several chains begin with {prefix}");
        rules.iter().map(Rule::text).collect()
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
                let to = translate.choices.first()?.values.first()?;
                Some(to.clone().into_owned())
            })
            .collect()
    }
}

/// Returns the cluster of [`world`] with a load balancer at 203.0.113.1 and node port 30080.
fn with_balancer(version: &str, policy: &str) -> World {
    let spec = json!({
        "type": "LoadBalancer",
        "externalTrafficPolicy": policy,
        "ports": [{"name": "p", "port": 80, "nodePort": 30080}]
    });
    let mut world = world(version, &spec);
    world.service["status"] = json!({"loadBalancer": {"ingress": [{"ip": "203.0.113.1"}]}});
    world
}

#[test]
fn in_1_24_missing_local_endpoints_are_marked_and_from_1_25_dropped() {
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
fn a_load_balancer_without_endpoints_is_refused_where_the_version_looks() {
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
fn a_service_port_without_a_name_keeps_its_colon_up_to_1_18() {
    let comment = |version: &str| {
        let spec = json!({"ports": [{"port": 80, "targetPort": 8080}]});
        let world = world(version, &spec);
        let service = world.nat("KUBE-SERVICES").swap_remove(0);
        let comment = service.split('"').nth(1).unwrap().to_owned();
        (comment, world.endpoints_of("KUBE-SVC-").len())
    };
    assert_eq!(comment("v1.18"), ("ns/svc: cluster IP".to_owned(), 2));
    assert_eq!(comment("v1.19"), ("ns/svc cluster IP".to_owned(), 2));
}

#[test]
fn endpoints_masquerade_what_they_send_to_themselves() {
    for version in ["v1.14", "v1.20", "v1.30"] {
        let mut world = world(version, &json!({}));
        world.endpoints.pop();
        let rules = world.nat("KUBE-SEP-");
        assert!(rules[0].starts_with("-s 10.244.1.5 "), "{}", rules[0]);
        assert!(rules[0].ends_with("-j KUBE-MARK-MASQ"));
        assert!(rules[1].ends_with("-j DNAT --to-destination 10.244.1.5:8080"));
    }
}

#[test]
fn clients_stay_with_their_endpoint_in_both_chains_of_a_local_service() {
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
        let remembers = world.dump();
        let endpoints = remembers.table(Table::Nat).unwrap().chains.iter();
        for chain in endpoints.filter(|c| c.name.starts_with("KUBE-SEP-")) {
            assert!(chain.rules[1].text().contains("-m recent --name KUBE-SEP-"));
        }
    }
}

#[test]
fn source_ranges_that_hold_the_node_admit_what_loops_back() {
    for (version, expected) in [("v1.20", 1), ("v1.21", 0), ("v1.27", 0), ("v1.28", 1)] {
        let mut world = with_balancer(version, "Cluster");
        world.service["spec"]["loadBalancerSourceRanges"] = json!(["198.51.100.0/24"]);
        let looped = |world: &World| {
            let rules = world.nat("KUBE-FW-");
            rules
                .iter()
                .filter(|r| r.starts_with("-s 203.0.113.1 "))
                .count()
        };
        assert_eq!(looped(&world), 0);
        world.service["spec"]["loadBalancerSourceRanges"] = json!(["192.168.50.0/24"]);
        assert_eq!(looped(&world), expected, "{version}");
    }
}

#[test]
fn a_range_of_everything_is_no_range_from_1_34() {
    let mut world = with_balancer("v1.33", "Cluster");
    world.service["spec"]["loadBalancerSourceRanges"] = json!(["0.0.0.0/0", "10.0.0.0/8"]);
    assert!(!world.nat("KUBE-FW-").is_empty());
    world.proxy.version = "v1.34".parse().unwrap();
    assert!(world.nat("KUBE-FW-").is_empty());
}

#[test]
fn an_address_in_proxy_mode_is_left_to_the_balancer_from_1_30() {
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
fn terminating_endpoints_serve_when_nothing_else_does_from_1_26() {
    let mut world = with_balancer("v1.26", "Local");
    let leaving = json!({"ready": false, "serving": true, "terminating": true});
    world.endpoints[0]["conditions"] = leaving;
    assert_eq!(world.endpoints_of("KUBE-SVC-"), ["10.244.2.5:8080"]);
    assert_eq!(world.endpoints_of("KUBE-SVL-"), ["10.244.1.5:8080"]);
    world.proxy.version = "v1.25".parse().unwrap();
    assert!(world.endpoints_of("KUBE-SVL-").is_empty());
}

#[test]
fn hints_are_obeyed_if_all_have_one_and_one_is_for_this_place() {
    let mut world = world("v1.24", &json!({}));
    world.node_labels = json!({"topology.kubernetes.io/zone": "east"});
    for (i, zone) in ["east", "west"].into_iter().enumerate() {
        world.endpoints[i]["hints"] = json!({"forZones": [{"name": zone}]});
    }
    let chosen = |world: &World| world.endpoints_of("KUBE-SVC-").len();
    assert_eq!(chosen(&world), 2, "nobody asked for it");
    let annotation = "service.kubernetes.io/topology-aware-hints";
    world.service["metadata"]["annotations"] = json!({annotation: "Auto"});
    assert_eq!(world.endpoints_of("KUBE-SVC-"), ["10.244.1.5:8080"]);
    world.node_labels = json!({"topology.kubernetes.io/zone": "north"});
    assert_eq!(chosen(&world), 2, "nothing is hinted for this zone");
    world.node_labels = json!({"topology.kubernetes.io/zone": "east"});
    world.proxy.version = "v1.23".parse().unwrap();
    assert_eq!(chosen(&world), 2, "the gate is off");

    world.service["metadata"]["annotations"] = json!({});
    world.proxy.version = "v1.31".parse().unwrap();
    assert_eq!(chosen(&world), 1, "no annotation is needed any more");
    world.endpoints[0]["hints"]["forNodes"] = json!([{"name": "there"}]);
    world.endpoints[1]["hints"]["forNodes"] = json!([{"name": "here"}]);
    assert_eq!(world.endpoints_of("KUBE-SVC-"), ["10.244.1.5:8080"]);
    world.proxy.version = "v1.34".parse().unwrap();
    assert_eq!(world.endpoints_of("KUBE-SVC-"), ["10.244.2.5:8080"]);
}

#[test]
fn external_ips_obey_the_policy_as_the_version_has_it() {
    let spec = |kind| json!({"type": kind, "externalIPs": ["198.18.0.1"], "externalTrafficPolicy": "Local"});
    let target = |version, kind| {
        let rules = world(version, &spec(kind)).nat("KUBE-SERVICES");
        let rule = rules.iter().rfind(|r| r.contains("198.18.0.1")).unwrap();
        rule.rsplit(' ').next().unwrap()[..9].to_owned()
    };
    assert_eq!(target("v1.18", "NodePort"), "KUBE-SVC-");
    assert_eq!(target("v1.19", "NodePort"), "KUBE-XLB-");
    assert_eq!(target("v1.28", "ClusterIP"), "KUBE-EXT-");
    let local = |version| {
        !world(version, &spec("ClusterIP"))
            .nat("KUBE-SVL-")
            .is_empty()
    };
    assert!(!local("v1.28"));
    assert!(local("v1.29"));
}

#[test]
fn what_is_not_served_leaves_no_trace() {
    for spec in [
        json!({"clusterIP": "None"}),
        json!({"clusterIP": "fd00::1"}),
        json!({"type": "ExternalName", "externalName": "example.com"}),
    ] {
        assert!(world("v1.30", &spec).nat("KUBE-SVC-").is_empty());
    }
    let labelled = |version, label: &str| {
        let mut world = world(version, &json!({}));
        world.service["metadata"]["labels"] = json!({label: ""});
        world.nat("KUBE-SVC-").len()
    };
    let other = "service.kubernetes.io/service-proxy-name";
    let headless = "service.kubernetes.io/headless";
    for (version, others, headlesses) in [
        ("v1.13", 2, 2),
        ("v1.14", 0, 2),
        ("v1.15", 0, 2),
        ("v1.16", 0, 0),
        ("v1.35", 0, 0),
        ("v1.36", 0, 2),
    ] {
        assert_eq!(labelled(version, other), others, "{version}");
        assert_eq!(labelled(version, headless), headlesses, "{version}");
    }
}

#[test]
fn wrong_objects_are_named() {
    let wrong = |spec: Value| world("v1.30", &spec).try_dump().unwrap_err().to_string();
    assert_eq!(
        wrong(json!({"externalIPs": ["here"]})),
        "service ns/svc: externalIPs `here` is not valid"
    );
    assert_eq!(
        wrong(json!({"ports": [{"name": "p", "port": 70000}]})),
        "service ns/svc: port `70000` is not valid"
    );
    let mut world = world("v1.30", &json!({}));
    world.endpoints[0]["addresses"] = json!(["nowhere"]);
    assert_eq!(
        world.try_dump().unwrap_err().to_string(),
        "endpoint slice ns/svc-1: addresses `nowhere` is not valid"
    );
    world.proxy.mode = Mode::Ipvs;
    assert_eq!(
        world.try_dump().unwrap_err(),
        KubeProxyError::Mode(Mode::Ipvs)
    );
}
