//! Tests which addresses of a node serve node ports, and how local traffic is detected.

use serde_json::json;

use super::{World, with_balancer, world};
use crate::kube_proxy::{DetectLocalMode, KubeProxy, KubeProxyError};
use svclab_ruleset::iptables::script::Table;

#[test]
fn node_ports_answer_where_they_are_told_to() {
    let last_of = |version: &str, proxy: &dyn Fn(&mut KubeProxy)| {
        let mut world = world(version, &json!({}));
        proxy(&mut world.proxy);
        let rules = world.nat("KUBE-SERVICES");
        let found: Vec<String> = rules
            .into_iter()
            .filter(|rule| rule.ends_with("-j KUBE-NODEPORTS"))
            .map(|rule| rule.replace("-m comment --comment \"kubernetes service nodeports; NOTE: this must be the last rule in this chain\" ", ""))
            .collect();
        found
    };
    let last = |proxy: &dyn Fn(&mut KubeProxy)| last_of("v1.30", proxy);
    let addresses = |texts: &[&str]| -> Vec<_> {
        texts
            .iter()
            .map(|t| (*t).to_owned().try_into().unwrap())
            .collect()
    };
    let local = "-m addrtype --dst-type LOCAL -j KUBE-NODEPORTS";
    assert_eq!(last(&|_| {}), [local]);
    assert_eq!(
        last(&|proxy| proxy.localhost_node_ports = false),
        [format!("! -d 127.0.0.0/8 {local}")]
    );
    assert_eq!(
        last(&|proxy| proxy.node_port_addresses = addresses(&["192.168.50.0/24"])),
        ["-d 192.168.50.10 -j KUBE-NODEPORTS"]
    );
    assert_eq!(
        last(&|proxy| proxy.node_port_addresses = addresses(&["primary"])),
        ["-d 192.168.50.10 -j KUBE-NODEPORTS"]
    );
    assert_eq!(
        last(&|proxy| proxy.node_port_addresses = addresses(&["10.0.0.0/8"])),
        [""; 0]
    );
    let elsewhere = |proxy: &mut KubeProxy| proxy.node_port_addresses = addresses(&["10.0.0.0/8"]);
    assert_eq!(last_of("v1.9", &elsewhere), [local]);
    assert_eq!(last_of("v1.10", &elsewhere), [""; 0]);
    let six = |proxy: &mut KubeProxy| proxy.node_port_addresses = addresses(&["2001:db8::/64"]);
    assert_eq!(last_of("v1.18", &six), [""; 0]);
    assert_eq!(last_of("v1.19", &six), [local]);
}

#[test]
fn local_traffic_is_told_by_what_was_configured() {
    let mut world = world("v1.30", &json!({}));
    let masquerade = |world: &World| world.nat("KUBE-SVC-").swap_remove(0);
    world.proxy.detect_local_mode = DetectLocalMode::InterfaceNamePrefix;
    assert_eq!(
        world.try_dump().unwrap_err(),
        KubeProxyError::DetectLocal {
            mode: DetectLocalMode::InterfaceNamePrefix,
            field: "interfaceNamePrefix"
        }
    );
    world.proxy.interface_name_prefix = Some("veth".to_owned());
    assert!(masquerade(&world).starts_with("-d 10.96.0.1 ! -i veth+ "));
    world.proxy.detect_local_mode = DetectLocalMode::BridgeInterface;
    world.proxy.bridge_interface = Some("cni0".to_owned());
    assert!(masquerade(&world).starts_with("-d 10.96.0.1 ! -i cni0 "));
}

#[test]
fn a_node_port_that_no_address_serves_costs_a_service_its_endpoints_for_a_while() {
    for (version, rules) in [("v1.18", 2), ("v1.19", 0), ("v1.22", 0), ("v1.23", 2)] {
        let mut world = with_balancer(version, "Local");
        let asked = |text: &str| vec![text.to_owned().try_into().unwrap()];
        world.proxy.node_port_addresses = asked("10.0.0.0/8");
        let dump = world.dump();
        let nat = &dump.table(Table::Nat).unwrap().chains;
        let begun = |prefix: &str| nat.iter().filter(|c| c.name.starts_with(prefix)).count();
        assert_eq!(begun("KUBE-SVC-"), 1, "{version}");
        assert_eq!(begun("KUBE-XLB-"), 1, "{version}");
        assert_eq!(begun("KUBE-SEP-"), rules, "{version}");
        assert_eq!(world.nat("KUBE-SVC-").len(), rules, "{version}");
        assert_eq!(world.nat("KUBE-XLB-").is_empty(), rules == 0, "{version}");
        world.proxy.node_port_addresses = asked("192.168.50.0/24");
        assert_eq!(world.nat("KUBE-SVC-").len(), 2, "{version}");
    }
}

#[test]
fn ways_to_tell_local_traffic_came_one_after_the_other() {
    let since = |version, mode| {
        let mut world = world(version, &json!({}));
        world.proxy.detect_local_mode = mode;
        world.proxy.bridge_interface = Some("cni0".to_owned());
        match world.try_dump() {
            Ok(_) => None,
            Err(KubeProxyError::DetectLocalUnknown { since, .. }) => Some(since),
            Err(other) => panic!("{other}"),
        }
    };
    assert_eq!(since("v1.9", DetectLocalMode::ClusterCIDR), None);
    assert_eq!(since("v1.17", DetectLocalMode::NodeCIDR), Some(18));
    assert_eq!(since("v1.18", DetectLocalMode::NodeCIDR), None);
    assert_eq!(since("v1.23", DetectLocalMode::BridgeInterface), Some(24));
    assert_eq!(since("v1.24", DetectLocalMode::BridgeInterface), None);
}
