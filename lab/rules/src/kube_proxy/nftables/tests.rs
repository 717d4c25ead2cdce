//! Tests nftables mode by version and configuration where no recording exists. The expected rules
//! are from kube-proxy's source.

use std::net::IpAddr;

use serde_json::{Value, json};

use crate::kube_proxy::{
    DetectLocalMode, Family, KubeProxy, KubeProxyError, Mode, Objects, nftables_rules,
};
use crate::objects::{EndpointSlice, Node, Service, ServiceCidr};
use svclab_ruleset::nft::Table;

/// Node with an IPv4 address, and `ns/svc:p` with two endpoints.
struct Cluster {
    node: Node,
    service: Service,
    slice: EndpointSlice,
    cidrs: Vec<ServiceCidr>,
}

fn read<T: serde::de::DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).expect("valid object")
}

impl Cluster {
    fn new(spec: &Value) -> Self {
        let mut service = json!({
            "metadata": {"name": "svc", "namespace": "ns"},
            "spec": {
                "clusterIP": "10.96.0.1",
                "ports": [{"name": "p", "port": 80, "targetPort": 8080, "nodePort": 30080}]
            }
        });
        for (field, value) in spec.as_object().expect("the spec is an object").clone() {
            let part = if field == "loadBalancer" {
                "status"
            } else {
                "spec"
            };
            service[part][field] = value;
        }
        let endpoint = |ip: &str, node: &str| json!({"addresses": [ip], "nodeName": node});
        Self {
            node: read(json!({
                "metadata": {"name": "here"},
                "spec": {"podCIDR": "10.244.1.0/24"},
                "status": {"addresses": [{"type": "InternalIP", "address": "192.0.2.1"}]}
            })),
            service: read(service),
            slice: read(json!({
                "metadata": {
                    "name": "svc-1",
                    "namespace": "ns",
                    "labels": {"kubernetes.io/service-name": "svc"}
                },
                "addressType": "IPv4",
                "ports": [{"name": "p", "port": 8080}],
                "endpoints": [endpoint("10.244.1.5", "here"), endpoint("10.244.2.5", "there")]
            })),
            cidrs: vec![read(json!({
                "metadata": {"name": "kubernetes"},
                "spec": {"cidrs": ["10.96.0.0/16", "fd00:96::/112"]}
            }))],
        }
    }

    fn table(&self, proxy: &KubeProxy, family: Family) -> Result<Table, KubeProxyError> {
        let interfaces: [IpAddr; 3] = [
            "127.0.0.1".parse().expect("valid address"),
            "192.0.2.1".parse().expect("valid address"),
            "198.51.100.1".parse().expect("valid address"),
        ];
        let objects = Objects {
            node: "here",
            nodes: std::slice::from_ref(&self.node),
            services: std::slice::from_ref(&self.service),
            endpoint_slices: std::slice::from_ref(&self.slice),
            service_cidrs: &self.cidrs,
            interface_addresses: &interfaces,
        };
        nftables_rules(proxy, &objects, family)
    }
}

fn proxy(version: &str) -> KubeProxy {
    KubeProxy {
        mode: Mode::Nftables,
        ..KubeProxy::new(version.parse().expect("valid version"))
    }
}

fn table(version: &str) -> Table {
    let cluster = Cluster::new(&json!({}));
    cluster
        .table(&proxy(version), Family::V4)
        .expect("valid table")
}

/// Returns the rules of a chain, or of the only service chain whose name begins with `name`; empty
/// if the chain does not exist.
fn rules(table: &Table, name: &str) -> Vec<String> {
    let is_match = |chain_name: &str| {
        chain_name == name || chain_name.starts_with(name) && chain_name.contains('/')
    };
    let mut chains = table.chains.iter();
    let chain = chains.find(|chain| is_match(&chain.name));
    let rules = chain.into_iter().flat_map(|chain| &chain.rules);
    rules.map(ToString::to_string).collect()
}

/// Returns the entries of a set or map, or `None` if it does not exist.
fn entries(table: &Table, set: &str) -> Option<Vec<String>> {
    let set = table.set(set)?;
    Some(set.elements.iter().map(ToString::to_string).collect())
}

#[test]
fn nftables_before_1_29_returns_error() {
    let error = Cluster::new(&json!({})).table(&proxy("v1.28"), Family::V4);
    assert_eq!(
        error.unwrap_err().to_string(),
        "kube-proxy v1.28: mode nftables is not supported before v1.29"
    );
    let iptables_proxy = KubeProxy::new("v1.30".parse().unwrap());
    let error = Cluster::new(&json!({}))
        .table(&iptables_proxy, Family::V4)
        .unwrap_err();
    assert_eq!(error, KubeProxyError::WrongMode(Mode::Iptables));
}

/// Compares a whole table of each shape that no recording shows.
#[test]
fn table_read_versions_match_snapshot() {
    for version in ["v1.29", "v1.33"] {
        let cluster = Cluster::new(&json!({
            "type": "LoadBalancer",
            "externalTrafficPolicy": "Local",
            "sessionAffinity": "ClientIP",
            "loadBalancerSourceRanges": ["198.51.100.0/24", "192.0.2.0/24"],
            "loadBalancer": {"ingress": [{"ip": "203.0.113.1"}]}
        }));
        let mut proxy = proxy(version);
        proxy.cluster_cidr = Some("10.244.0.0/16".parse().unwrap());
        let table = cluster.table(&proxy, Family::V4).unwrap();
        insta::assert_snapshot!(version, table);
    }
}

#[test]
fn filter_chains_from_1_33_follow_dnat() {
    let hooks = |version: &str| -> Vec<String> {
        let table = table(version);
        let chains = table.chains.iter();
        let filters = chains.filter(|chain| chain.name.starts_with("filter-"));
        let hooks = filters.filter_map(|chain| Some((chain, chain.hook.as_ref()?)));
        hooks
            .map(|(chain, hook)| format!("{} {}", chain.name, hook.priority))
            .collect()
    };
    assert_eq!(
        hooks("v1.29"),
        [
            "filter-input -101",
            "filter-forward -101",
            "filter-output -101"
        ]
    );
    let before = [
        "filter-prerouting -110",
        "filter-input -110",
        "filter-forward -110",
        "filter-output -110",
        "filter-output-post-dnat -90",
    ];
    let after = [
        "filter-prerouting-pre-dnat -110",
        "filter-output-pre-dnat -110",
        "filter-input 0",
        "filter-forward 0",
        "filter-output 0",
    ];
    for (version, expected) in [
        ("v1.30", before),
        ("v1.32", before),
        ("v1.33", after),
        ("v1.36", after),
    ] {
        assert_eq!(hooks(version), expected, "{version}");
    }
}

#[test]
fn node_ports_from_1_30_on_primary_address() {
    let served = |version: &str, configured: &[&str], family: Family| {
        let mut proxy = proxy(version);
        let addresses = configured.iter().map(|text| (*text).to_owned().try_into());
        proxy.node_port_addresses = addresses.collect::<Result<_, _>>().unwrap();
        let table = Cluster::new(&json!({})).table(&proxy, family).unwrap();
        entries(&table, "nodeport-ips")
    };
    let (ipv4, ipv6) = (Family::V4, Family::V6);
    let primary = Some(vec!["192.0.2.1".to_owned()]);
    assert_eq!(served("v1.29", &[], ipv4), None);
    assert_eq!(served("v1.30", &[], ipv4), primary);
    // The node has no IPv6 address: not served in v1.30, served everywhere later.
    assert_eq!(served("v1.30", &[], ipv6), Some(Vec::new()));
    assert_eq!(served("v1.31", &[], ipv4), primary);
    assert_eq!(served("v1.31", &[], ipv6), None);
    assert_eq!(served("v1.31", &["primary"], ipv6), None);
    // Networks of the other family do not affect this family: up to v1.30 the primary address
    // serves node ports.
    let other_family = ["2001:db8::/64"];
    assert_eq!(served("v1.30", &other_family, ipv4), primary);
    assert_eq!(served("v1.31", &other_family, ipv4), None);
    assert_eq!(served("v1.36", &["0.0.0.0/0"], ipv4), None);
    // Loopback addresses never serve node ports.
    let both = ["127.0.0.0/8", "198.51.100.0/24"];
    let secondary = Some(vec!["198.51.100.1".to_owned()]);
    assert_eq!(served("v1.36", &both, ipv4), secondary);
}

#[test]
fn unallocated_cluster_ips_from_1_33_are_dropped() {
    let check = |version: &str, family: Family| {
        let cluster = Cluster::new(&json!({}));
        let table = cluster.table(&proxy(version), family).unwrap();
        rules(&table, "cluster-ips-check")
    };
    let reject_rule = |ip: &str| {
        format!(
            "{ip} daddr @cluster-ips reject comment \"Reject traffic to invalid ports of ClusterIPs\""
        )
    };
    let drop = |to: &str| format!("{to} drop comment \"Drop traffic to unallocated ClusterIPs\"");
    assert_eq!(check("v1.29", Family::V4), [""; 0]);
    assert_eq!(check("v1.32", Family::V4), [reject_rule("ip")]);
    assert_eq!(
        check("v1.33", Family::V4),
        [reject_rule("ip"), drop("ip daddr { 10.96.0.0/16 }")]
    );
    assert_eq!(
        check("v1.33", Family::V6),
        [reject_rule("ip6"), drop("ip6 daddr { fd00:96::/112 }")]
    );
}

#[test]
fn local_match_depends_on_detect_local_mode() {
    let masquerade = |version: &str, mode: DetectLocalMode| {
        let mut proxy = proxy(version);
        proxy.detect_local_mode = mode;
        proxy.bridge_interface = Some("cni0".to_owned());
        proxy.interface_name_prefix = Some("cali".to_owned());
        let table = Cluster::new(&json!({})).table(&proxy, Family::V4).unwrap();
        rules(&table, "service-").remove(0)
    };
    let not = |from: &str, port: &str| {
        format!("ip daddr 10.96.0.1 {port}{from} jump mark-for-masquerade")
    };
    for (version, mode, expected) in [
        (
            "v1.33",
            DetectLocalMode::NodeCIDR,
            not("ip saddr != 10.244.1.0/24", "tcp dport 80 "),
        ),
        (
            "v1.34",
            DetectLocalMode::NodeCIDR,
            not("ip saddr != 10.244.1.0/24", ""),
        ),
        (
            "v1.32",
            DetectLocalMode::BridgeInterface,
            not("iif != cni0", "tcp dport 80 "),
        ),
        (
            "v1.35",
            DetectLocalMode::BridgeInterface,
            not("iifname != cni0", ""),
        ),
        (
            "v1.35",
            DetectLocalMode::InterfaceNamePrefix,
            not("iifname != cali*", ""),
        ),
    ] {
        assert_eq!(masquerade(version, mode), expected, "{version}");
    }
}

#[test]
fn invalid_packets_in_1_29_dropped_unless_liberal() {
    assert_eq!(rules(&table("v1.29"), "forward"), ["ct state invalid drop"]);
    let mut liberal = proxy("v1.29");
    liberal.tcp_be_liberal = true;
    let table = Cluster::new(&json!({}))
        .table(&liberal, Family::V4)
        .unwrap();
    assert_eq!(rules(&table, "forward"), [""; 0]);
}

#[test]
fn source_range_with_node_admits_balancer_address() {
    let cluster = Cluster::new(&json!({
        "type": "LoadBalancer",
        "loadBalancerSourceRanges": ["192.0.2.7/24"],
        "loadBalancer": {"ingress": [{"ip": "203.0.113.1"}]}
    }));
    let table = cluster.table(&proxy("v1.36"), Family::V4).unwrap();
    let guarded = entries(&table, "firewall-ips").unwrap();
    let [guarded] = guarded.as_slice() else {
        panic!("{guarded:?}");
    };
    let (socket, chain) = guarded.split_once(" : goto ").unwrap();
    assert_eq!(socket, "203.0.113.1 . tcp . 80");
    assert_eq!(
        rules(&table, chain),
        ["ip saddr != { 192.0.2.0/24, 203.0.113.1 } drop"]
    );
}
