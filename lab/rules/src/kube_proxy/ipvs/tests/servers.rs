//! Tests virtual servers, their real servers, and bound addresses.

use serde_json::json;

use super::{HERE, THERE, World, with_balancer, world};
use crate::kube_proxy::{Family, KubeProxyError, Mode, Objects, rules};

#[test]
fn a_balancers_address_that_is_not_bound_keeps_its_sets_and_server() {
    let mut world = with_balancer("v1.26", "Local");
    let bound = world.written();
    assert_eq!(world.bound(), ["10.20.0.1", "203.0.113.1"]);
    world.proxy.bind_load_balancer_ips = false;
    let unbound = world.written();
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
fn up_to_1_10_only_cluster_ips_were_bound() {
    for (version, bound) in [
        ("v1.10", vec!["10.20.0.1"]),
        ("v1.11", vec!["10.20.0.1", "198.18.0.1", "203.0.113.1"]),
    ] {
        let mut world = with_balancer(version, "Cluster");
        world.service["spec"]["externalIPs"] = json!(["198.18.0.1"]);
        assert_eq!(world.bound(), bound, "{version}");
        assert!(world.behind("-t 203.0.113.1:443").is_some());
        assert!(world.behind("-t 198.18.0.1:443").is_some());
    }
}

#[test]
fn local_meets_local_endpoints_by_version() {
    let both = || vec![HERE.to_owned(), THERE.to_owned()];
    let here = || vec![HERE.to_owned()];
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
        let behind = |address: &str| world.behind(address).unwrap();
        assert_eq!(behind("-t 10.20.0.1:443"), cluster_ip, "{version}");
        assert_eq!(behind("-t 203.0.113.1:443"), balancer, "{version}");
        assert_eq!(behind("-t 10.19.136.10:30443"), node_port, "{version}");
        assert_eq!(behind("-t 198.18.0.1:443"), external, "{version}");
    }
}

#[test]
fn up_to_1_13_a_balancer_obeys_local_only_with_affinity() {
    for version in ["v1.11", "v1.13"] {
        let mut world = with_balancer(version, "Local");
        let behind = |world: &World| world.behind("-t 203.0.113.1:443").unwrap();
        assert_eq!(behind(&world), [HERE, THERE], "{version}");
        world.service["spec"]["sessionAffinity"] = json!("ClientIP");
        assert_eq!(behind(&world), [HERE], "{version}");
    }
}

#[test]
fn local_without_local_endpoints_falls_back_from_1_24_on() {
    for (version, servers) in [("v1.23", vec![]), ("v1.24", vec![THERE])] {
        let mut world = with_balancer(version, "Local");
        world.endpoints.remove(0);
        assert_eq!(
            world.behind("-t 203.0.113.1:443").unwrap(),
            servers,
            "{version}"
        );
    }
}

#[test]
fn an_internal_policy_is_for_the_cluster_ip() {
    for (version, servers) in [("v1.21", vec![HERE, THERE]), ("v1.22", vec![HERE])] {
        let world = world(version, &json!({"internalTrafficPolicy": "Local"}));
        assert_eq!(
            world.behind("-t 10.20.0.1:443").unwrap(),
            servers,
            "{version}"
        );
    }
}

#[test]
fn endpoints_that_leave_serve_only_as_a_last_resort() {
    let leaving = json!({"ready": false, "serving": true, "terminating": true});
    for (version, servers) in [("v1.25", vec![]), ("v1.26", vec![HERE])] {
        let mut world = world(version, &json!({}));
        world.endpoints.truncate(1);
        world.endpoints[0]["conditions"] = leaving.clone();
        assert_eq!(
            world.behind("-t 10.20.0.1:443").unwrap(),
            servers,
            "{version}"
        );
    }
}

#[test]
fn node_ports_are_served_on_the_addresses_asked_for() {
    let served = |version: &str, addresses: &[&str]| {
        let mut world = with_balancer(version, "Cluster");
        world.proxy.node_port_addresses = addresses
            .iter()
            .map(|text| (*text).to_owned().try_into().unwrap())
            .collect();
        let servers = world.written().servers;
        let texts = servers.iter().map(|server| server.takes.to_string());
        texts
            .filter(|text| text.ends_with(":30443"))
            .collect::<Vec<_>>()
    };
    let own = "-t 10.19.136.10:30443";
    let loopback = "-t 127.0.0.1:30443";
    assert_eq!(served("v1.9", &["127.0.0.0/8"]), [own]);
    assert_eq!(served("v1.21", &[]), [own, loopback]);
    assert_eq!(served("v1.21", &["127.0.0.0/8"]), [loopback]);
    assert_eq!(served("v1.22", &[]), [own]);
    assert_eq!(served("v1.36", &["primary"]), [own]);
    assert!(served("v1.36", &["192.0.2.0/24"]).is_empty());
}

/// Tests an address of the node as load balancer address, external IP and cluster IP, by version.
#[test]
fn own_address_is_bound_by_kind_and_version() {
    const OWN: &str = "10.19.136.10";
    let worlds = |version: &str| {
        let mut balancer = with_balancer(version, "Cluster");
        balancer.service["status"]["loadBalancer"]["ingress"][0]["ip"] = json!(OWN);
        let mut external = world(version, &json!({"externalIPs": [OWN]}));
        external.proxy.bind_load_balancer_ips = false;
        let cluster = world(version, &json!({"clusterIP": OWN}));
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
            let refused = world.set("KUBE-IPVS-IPS").unwrap();
            assert_eq!(refused, world.bound(), "{version} {kind}");
            // The virtual server exists in any case.
            assert!(world.behind(&format!("-t {OWN}:443")).is_some());
        }
    }
}

#[test]
fn address_of_another_node_is_bound() {
    let mut world = world("v1.36", &json!({"externalIPs": ["10.19.136.11"]}));
    world.service["status"] = json!({"loadBalancer": {"ingress": [{"ip": "10.19.136.12"}]}});
    world.service["spec"]["type"] = json!("LoadBalancer");
    assert_eq!(world.bound(), ["10.19.136.11", "10.19.136.12", "10.20.0.1"]);
}

#[test]
fn a_scheduler_is_used_as_it_is_asked_for() {
    let mut world = world("v1.26", &json!({}));
    world.proxy.ipvs_scheduler = "mh".to_owned();
    let server = &world.written().servers[0];
    assert!(server.scheduler == "mh" && server.flags.is_none());
    world.proxy.version = "v1.27".parse().unwrap();
    let server = &world.written().servers[0];
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
fn each_mode_has_its_own_function() {
    let mut world = world("v1.30", &json!({}));
    let objects = Objects {
        node: "here",
        nodes: &[],
        services: &[],
        endpoint_slices: &[],
        service_cidrs: &[],
        interface_addresses: &[],
    };
    let error = rules(&world.proxy, &objects, Family::V4).unwrap_err();
    assert_eq!(error, KubeProxyError::Mode(Mode::Ipvs));
    world.proxy.mode = Mode::Iptables;
    let error = world.try_written().unwrap_err();
    assert_eq!(error, KubeProxyError::Mode(Mode::Iptables));
}
