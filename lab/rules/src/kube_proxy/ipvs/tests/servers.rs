//! Tests virtual servers, their real servers, and bound addresses.

use serde_json::json;

use super::{LOCAL_ENDPOINT, REMOTE_ENDPOINT, TestCluster, test_cluster, with_balancer};
use crate::kube_proxy::{Family, KubeProxyError, Mode, Objects, rules};

#[test]
fn balancer_unbound_address_keeps_sets_and_server() {
    let mut world = with_balancer("v1.26", "Local");
    let bound = world.rules();
    assert_eq!(world.bound(), ["10.20.0.1", "203.0.113.1"]);
    world.proxy.bind_load_balancer_ips = false;
    let unbound = world.rules();
    assert_eq!(world.bound(), ["10.20.0.1"]);
    assert_eq!(world.set("KUBE-IPVS-IPS").unwrap(), ["10.20.0.1"]);
    assert_eq!(bound.script, unbound.script);
    assert_eq!(bound.servers, unbound.servers);
    for (name, set) in bound.sets.sets() {
        let same = unbound.sets.get(name) == Some(set);
        assert_eq!(same, name != "KUBE-IPVS-IPS", "{name}");
    }
}

#[test]
fn addresses_up_to_1_10_only_cluster_ips_bound() {
    for (version, bound) in [
        ("v1.10", vec!["10.20.0.1"]),
        ("v1.11", vec!["10.20.0.1", "198.18.0.1", "203.0.113.1"]),
    ] {
        let mut world = with_balancer(version, "Cluster");
        world.service["spec"]["externalIPs"] = json!(["198.18.0.1"]);
        assert_eq!(world.bound(), bound, "{version}");
        assert!(world.real_servers("-t 203.0.113.1:443").is_some());
        assert!(world.real_servers("-t 198.18.0.1:443").is_some());
    }
}

#[test]
fn servers_local_policy_depends_on_version() {
    let both = || vec![LOCAL_ENDPOINT.to_owned(), REMOTE_ENDPOINT.to_owned()];
    let here = || vec![LOCAL_ENDPOINT.to_owned()];
    for (version, cluster_ip, balancer, node_port, external) in [
        ("v1.9", here(), here(), here(), here()),
        ("v1.10", both(), here(), here(), here()),
        ("v1.11.3", both(), both(), both(), both()),
        ("v1.11", both(), both(), here(), both()),
        ("v1.12", both(), both(), here(), both()),
        ("v1.13", both(), both(), here(), both()),
        ("v1.14", both(), here(), here(), both()),
        ("v1.18", both(), here(), here(), both()),
        ("v1.19", both(), here(), here(), here()),
        ("v1.36", both(), here(), here(), here()),
    ] {
        let mut world = with_balancer(version, "Local");
        world.service["spec"]["externalIPs"] = json!(["198.18.0.1"]);
        let behind = |address: &str| world.real_servers(address).unwrap();
        assert_eq!(behind("-t 10.20.0.1:443"), cluster_ip, "{version}");
        assert_eq!(behind("-t 203.0.113.1:443"), balancer, "{version}");
        assert_eq!(behind("-t 10.19.136.10:30443"), node_port, "{version}");
        assert_eq!(behind("-t 198.18.0.1:443"), external, "{version}");
    }
}

#[test]
fn balancer_up_to_1_13_local_policy_needs_affinity() {
    for version in ["v1.11", "v1.13"] {
        let mut world = with_balancer(version, "Local");
        let behind = |world: &TestCluster| world.real_servers("-t 203.0.113.1:443").unwrap();
        assert_eq!(
            behind(&world),
            [LOCAL_ENDPOINT, REMOTE_ENDPOINT],
            "{version}"
        );
        world.service["spec"]["sessionAffinity"] = json!("ClientIP");
        assert_eq!(behind(&world), [LOCAL_ENDPOINT], "{version}");
    }
}

#[test]
fn servers_local_without_endpoints_fall_back_from_1_24() {
    for (version, servers) in [("v1.23", vec![]), ("v1.24", vec![REMOTE_ENDPOINT])] {
        let mut world = with_balancer(version, "Local");
        world.endpoints.remove(0);
        assert_eq!(
            world.real_servers("-t 203.0.113.1:443").unwrap(),
            servers,
            "{version}"
        );
    }
}

#[test]
fn cluster_ip_internal_policy_from_1_22_is_local() {
    for (version, servers) in [
        ("v1.21", vec![LOCAL_ENDPOINT, REMOTE_ENDPOINT]),
        ("v1.22", vec![LOCAL_ENDPOINT]),
    ] {
        let world = test_cluster(version, &json!({"internalTrafficPolicy": "Local"}));
        assert_eq!(
            world.real_servers("-t 10.20.0.1:443").unwrap(),
            servers,
            "{version}"
        );
    }
}

#[test]
fn servers_terminating_endpoints_from_1_26_are_fallback() {
    let terminating = json!({"ready": false, "serving": true, "terminating": true});
    for (version, servers) in [("v1.25", vec![]), ("v1.26", vec![LOCAL_ENDPOINT])] {
        let mut world = test_cluster(version, &json!({}));
        world.endpoints.truncate(1);
        world.endpoints[0]["conditions"] = terminating.clone();
        assert_eq!(
            world.real_servers("-t 10.20.0.1:443").unwrap(),
            servers,
            "{version}"
        );
    }
}

#[test]
fn node_ports_served_on_configured_addresses() {
    let served = |version: &str, addresses: &[&str]| {
        let mut world = with_balancer(version, "Cluster");
        world.proxy.node_port_addresses = addresses
            .iter()
            .map(|text| (*text).to_owned().try_into().unwrap())
            .collect();
        let servers = world.rules().servers;
        let texts = servers.iter().map(|server| server.key.to_string());
        texts
            .filter(|text| text.ends_with(":30443"))
            .collect::<Vec<_>>()
    };
    let node_address = "-t 10.19.136.10:30443";
    let loopback = "-t 127.0.0.1:30443";
    assert_eq!(served("v1.9", &["127.0.0.0/8"]), [node_address]);
    assert_eq!(served("v1.21", &[]), [node_address, loopback]);
    assert_eq!(served("v1.21", &["127.0.0.0/8"]), [loopback]);
    assert_eq!(served("v1.22", &[]), [node_address]);
    assert_eq!(served("v1.36", &["primary"]), [node_address]);
    assert!(served("v1.36", &["192.0.2.0/24"]).is_empty());
}

/// Tests an address of the node as load balancer address, external IP and cluster IP, by version.
#[test]
fn own_address_is_bound_by_kind_and_version() {
    const OWN: &str = "10.19.136.10";
    let worlds = |version: &str| {
        let mut balancer = with_balancer(version, "Cluster");
        balancer.service["status"]["loadBalancer"]["ingress"][0]["ip"] = json!(OWN);
        let mut external = test_cluster(version, &json!({"externalIPs": [OWN]}));
        external.proxy.bind_load_balancer_ips = false;
        let cluster = test_cluster(version, &json!({"clusterIP": OWN}));
        [balancer, external, cluster]
    };
    for (version, bound) in [
        ("v1.27", [true, true, true]),
        ("v1.28", [false, false, true]),
        ("v1.36", [false, false, true]),
    ] {
        for (kind, (world, bound)) in worlds(version).iter().zip(bound).enumerate() {
            assert_eq!(
                world.bound().contains(&OWN.to_owned()),
                bound,
                "{version} {kind}"
            );
            let ipvs_ips = world.set("KUBE-IPVS-IPS").unwrap();
            assert_eq!(ipvs_ips, world.bound(), "{version} {kind}");
            // The virtual server exists in any case.
            assert!(world.real_servers(&format!("-t {OWN}:443")).is_some());
        }
    }
}

#[test]
fn address_of_another_node_is_bound() {
    let mut world = test_cluster("v1.36", &json!({"externalIPs": ["10.19.136.11"]}));
    world.service["status"] = json!({"loadBalancer": {"ingress": [{"ip": "10.19.136.12"}]}});
    world.service["spec"]["type"] = json!("LoadBalancer");
    assert_eq!(world.bound(), ["10.19.136.11", "10.19.136.12", "10.20.0.1"]);
}

#[test]
fn scheduler_mh_from_1_27_hashes_ports() {
    let mut world = test_cluster("v1.26", &json!({}));
    world.proxy.ipvs_scheduler = "mh".to_owned();
    let server = &world.rules().servers[0];
    assert!(server.scheduler == "mh" && server.flags.is_none());
    world.proxy.version = "v1.27".parse().unwrap();
    let server = &world.rules().servers[0];
    assert_eq!(
        server
            .to_string()
            .lines()
            .next()
            .map(|line| line.ends_with("-s mh -b mh-port")),
        Some(true)
    );
}

#[test]
fn rules_of_wrong_mode_return_error() {
    let mut world = test_cluster("v1.30", &json!({}));
    let objects = Objects {
        node: "here",
        nodes: &[],
        services: &[],
        endpoint_slices: &[],
        service_cidrs: &[],
        interface_addresses: &[],
    };
    let error = rules(&world.proxy, &objects, Family::V4).unwrap_err();
    assert_eq!(error, KubeProxyError::WrongMode(Mode::Ipvs));
    world.proxy.mode = Mode::Iptables;
    let error = world.try_rules().unwrap_err();
    assert_eq!(error, KubeProxyError::WrongMode(Mode::Iptables));
}
