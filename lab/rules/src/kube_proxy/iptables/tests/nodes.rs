//! Tests which addresses of a node serve node ports, and how local traffic is detected.

use serde_json::json;

use super::{TestCluster, test_cluster, with_balancer};
use crate::kube_proxy::{DetectLocalMode, KubeProxy, KubeProxyError};
use svclab_ruleset::iptables::script::Table;

#[test]
fn node_ports_jump_depends_on_configured_addresses() {
    let node_port_jumps = |version: &str, proxy: &dyn Fn(&mut KubeProxy)| {
        let mut world = test_cluster(version, &json!({}));
        proxy(&mut world.proxy);
        let rules = world.nat("KUBE-SERVICES");
        let found: Vec<String> = rules
            .into_iter()
            .filter(|rule| rule.ends_with("-j KUBE-NODEPORTS"))
            .map(|rule| rule.replace("-m comment --comment \"kubernetes service nodeports; NOTE: this must be the last rule in this chain\" ", ""))
            .collect();
        found
    };
    let jumps_in_1_30 = |proxy: &dyn Fn(&mut KubeProxy)| node_port_jumps("v1.30", proxy);
    let addresses = |texts: &[&str]| -> Vec<_> {
        texts
            .iter()
            .map(|t| (*t).to_owned().try_into().unwrap())
            .collect()
    };
    let local = "-m addrtype --dst-type LOCAL -j KUBE-NODEPORTS";
    assert_eq!(jumps_in_1_30(&|_| {}), [local]);
    assert_eq!(
        jumps_in_1_30(&|proxy| proxy.localhost_node_ports = false),
        [format!("! -d 127.0.0.0/8 {local}")]
    );
    assert_eq!(
        jumps_in_1_30(&|proxy| proxy.node_port_addresses = addresses(&["192.168.50.0/24"])),
        ["-d 192.168.50.10 -j KUBE-NODEPORTS"]
    );
    assert_eq!(
        jumps_in_1_30(&|proxy| proxy.node_port_addresses = addresses(&["primary"])),
        ["-d 192.168.50.10 -j KUBE-NODEPORTS"]
    );
    assert_eq!(
        jumps_in_1_30(&|proxy| proxy.node_port_addresses = addresses(&["10.0.0.0/8"])),
        [""; 0]
    );
    let use_foreign_network =
        |proxy: &mut KubeProxy| proxy.node_port_addresses = addresses(&["10.0.0.0/8"]);
    assert_eq!(node_port_jumps("v1.9", &use_foreign_network), [local]);
    assert_eq!(node_port_jumps("v1.10", &use_foreign_network), [""; 0]);
    let use_ipv6_network =
        |proxy: &mut KubeProxy| proxy.node_port_addresses = addresses(&["2001:db8::/64"]);
    assert_eq!(node_port_jumps("v1.18", &use_ipv6_network), [""; 0]);
    assert_eq!(node_port_jumps("v1.19", &use_ipv6_network), [local]);
}

#[test]
fn local_traffic_match_depends_on_detect_local_mode() {
    let mut world = test_cluster("v1.30", &json!({}));
    let masquerade = |world: &TestCluster| world.nat("KUBE-SVC-").swap_remove(0);
    world.proxy.detect_local_mode = DetectLocalMode::InterfaceNamePrefix;
    assert_eq!(
        world.try_dump().unwrap_err(),
        KubeProxyError::MissingDetectLocalField {
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
fn node_port_unserved_1_19_to_1_22_has_empty_chains() {
    for (version, rules) in [("v1.18", 2), ("v1.19", 0), ("v1.22", 0), ("v1.23", 2)] {
        let mut world = with_balancer(version, "Local");
        let entries = |text: &str| vec![text.to_owned().try_into().unwrap()];
        world.proxy.node_port_addresses = entries("10.0.0.0/8");
        let dump = world.dump();
        let nat = &dump.table(Table::Nat).unwrap().chains;
        let count_chains = |prefix: &str| nat.iter().filter(|c| c.name.starts_with(prefix)).count();
        assert_eq!(count_chains("KUBE-SVC-"), 1, "{version}");
        assert_eq!(count_chains("KUBE-XLB-"), 1, "{version}");
        assert_eq!(count_chains("KUBE-SEP-"), rules, "{version}");
        assert_eq!(world.nat("KUBE-SVC-").len(), rules, "{version}");
        assert_eq!(world.nat("KUBE-XLB-").is_empty(), rules == 0, "{version}");
        world.proxy.node_port_addresses = entries("192.168.50.0/24");
        assert_eq!(world.nat("KUBE-SVC-").len(), 2, "{version}");
    }
}

#[test]
fn detect_local_mode_unsupported_version_returns_error() {
    let since = |version, mode| {
        let mut world = test_cluster(version, &json!({}));
        world.proxy.detect_local_mode = mode;
        world.proxy.bridge_interface = Some("cni0".to_owned());
        match world.try_dump() {
            Ok(_) => None,
            Err(KubeProxyError::UnsupportedDetectLocalMode { since, .. }) => Some(since),
            Err(other) => panic!("{other}"),
        }
    };
    assert_eq!(since("v1.9", DetectLocalMode::ClusterCIDR), None);
    assert_eq!(since("v1.17", DetectLocalMode::NodeCIDR), Some(18));
    assert_eq!(since("v1.18", DetectLocalMode::NodeCIDR), None);
    assert_eq!(since("v1.23", DetectLocalMode::BridgeInterface), Some(24));
    assert_eq!(since("v1.24", DetectLocalMode::BridgeInterface), None);
}
