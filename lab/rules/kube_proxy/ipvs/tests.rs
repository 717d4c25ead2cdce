//! What single rules, entries and servers depend on. Whole states are compared
//! with recordings in `tests/kube_proxy_recorded`.

use k8s_openapi::api::core::v1::{Node, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use serde_json::{Value, json};

use super::IpvsRules;
use crate::rules::dump::{Dump, Rule};
use crate::rules::kube_proxy::{
    Family, KubeProxy, KubeProxyError, Mode, Objects, ipvs_rules, rules,
};
use crate::rules::script::{Script, Table};

/// A cluster with one service, `ns/svc`, an endpoint on this node and one
/// elsewhere.
struct World {
    service: Value,
    endpoints: Vec<Value>,
    proxy: KubeProxy,
}

fn world(version: &str, spec: &Value) -> World {
    let mut service = json!({
        "metadata": {"namespace": "ns", "name": "svc"},
        "spec": {
            "clusterIP": "10.20.0.1",
            "ports": [{"name": "p", "port": 443, "targetPort": 6443}]
        }
    });
    for (key, value) in spec.as_object().unwrap() {
        service["spec"][key] = value.clone();
    }
    let mut proxy = KubeProxy::new(version.parse().unwrap());
    proxy.mode = Mode::Ipvs;
    World {
        service,
        endpoints: vec![
            json!({"addresses": ["172.16.1.5"], "nodeName": "here"}),
            json!({"addresses": ["172.16.2.5"], "nodeName": "there"}),
        ],
        proxy,
    }
}

/// The same behind a load balancer at 203.0.113.1, with node port 30443.
fn with_balancer(version: &str, policy: &str) -> World {
    let spec = json!({
        "type": "LoadBalancer",
        "externalTrafficPolicy": policy,
        "ports": [{"name": "p", "port": 443, "nodePort": 30443}]
    });
    let mut world = world(version, &spec);
    world.service["status"] = json!({"loadBalancer": {"ingress": [{"ip": "203.0.113.1"}]}});
    world
}

impl World {
    fn try_written(&self) -> Result<IpvsRules, KubeProxyError> {
        let port = &self.service["spec"]["ports"][0];
        let slice = json!({
            "metadata": {
                "namespace": "ns", "name": "svc-1",
                "labels": {"kubernetes.io/service-name": "svc"}
            },
            "addressType": "IPv4",
            "ports": [{"name": "p", "port": 6443, "protocol": port["protocol"]}],
            "endpoints": self.endpoints
        });
        let node = json!({
            "metadata": {"name": "here"},
            "status": {"addresses": [{"type": "InternalIP", "address": "10.19.136.10"}]}
        });
        let nodes: Vec<Node> = vec![serde_json::from_value(node).unwrap()];
        let services: Vec<Service> = vec![serde_json::from_value(self.service.clone()).unwrap()];
        let slices: Vec<EndpointSlice> = vec![serde_json::from_value(slice).unwrap()];
        let objects = Objects {
            node: "here",
            nodes: &nodes,
            services: &services,
            endpoint_slices: &slices,
            interface_addresses: &[],
        };
        ipvs_rules(&self.proxy, &objects, Family::V4)
    }

    fn written(&self) -> IpvsRules {
        self.try_written().unwrap()
    }

    fn dump(&self) -> Dump {
        let mut script = Script::new();
        script.table(Table::Nat).chain("KUBE-MARK-DROP");
        script.append(self.written().script);
        Dump::of_script(&script).unwrap()
    }

    fn chain(&self, table: Table, name: &str) -> Vec<String> {
        let dump = self.dump();
        let chain = dump.chain(table, name);
        chain.map_or(Vec::new(), |c| c.rules.iter().map(Rule::text).collect())
    }

    fn nat(&self, name: &str) -> Vec<String> {
        self.chain(Table::Nat, name)
    }

    /// The entries of a set; none if there is no such set.
    fn set(&self, name: &str) -> Option<Vec<String>> {
        let written = self.written();
        let set = written.sets.get(name)?;
        Some(set.entries().map(str::to_owned).collect())
    }

    /// The real servers behind `address`, written as `ipvsadm` does; none if
    /// there is no such virtual server.
    fn behind(&self, address: &str) -> Option<Vec<String>> {
        let written = self.written();
        let server = written
            .servers
            .iter()
            .find(|server| server.takes.to_string() == address)?;
        Some(server.servers.iter().map(|s| s.to.to_string()).collect())
    }

    fn bound(&self) -> Vec<String> {
        self.written()
            .bound
            .iter()
            .map(ToString::to_string)
            .collect()
    }
}

const HERE: &str = "172.16.1.5:6443";
const THERE: &str = "172.16.2.5:6443";

fn read(lines: &str) -> Dump {
    let mut chains: Vec<&str> = lines
        .lines()
        .filter_map(|line| line.split(' ').nth(1))
        .filter(|chain| chain.starts_with("KUBE-"))
        .collect();
    chains.dedup();
    let mut text = "*nat\n".to_owned();
    for built_in in ["PREROUTING", "INPUT", "OUTPUT", "POSTROUTING"] {
        text.push_str(&format!(":{built_in} ACCEPT [0:0]\n"));
    }
    for chain in chains {
        text.push_str(&format!(":{chain} - [0:0]\n"));
    }
    Dump::parse(&format!("{text}{lines}\nCOMMIT\n")).unwrap()
}

/// Every rule of nat, chain by chain.
fn nat_rules(dump: &Dump) -> Vec<String> {
    let mut rules = Vec::new();
    for chain in &dump.table(Table::Nat).unwrap().chains {
        for rule in &chain.rules {
            rules.push(format!("{} {}", chain.name, rule.text()));
        }
    }
    rules.sort();
    rules
}

/// The dump of a node with a v1.9.11 that was started without
/// `--cluster-cidr`, less what docker and others wrote.
#[test]
fn v1_9_without_a_cluster_cidr_masquerades_no_cluster_ip() {
    let recorded = read(
        r#"-A PREROUTING -m comment --comment "kubernetes service portals" -j KUBE-SERVICES
-A OUTPUT -m comment --comment "kubernetes service portals" -j KUBE-SERVICES
-A POSTROUTING -m comment --comment "kubernetes postrouting rules" -j KUBE-POSTROUTING
-A KUBE-MARK-MASQ -j MARK --set-xmark 0x4000/0x4000
-A KUBE-POSTROUTING -m comment --comment "kubernetes service traffic requiring SNAT" -m mark --mark 0x4000/0x4000 -j MASQUERADE
-A KUBE-POSTROUTING -m set --match-set KUBE-LOOP-BACK dst,dst,src -j MASQUERADE
-A KUBE-SERVICES -p tcp -m tcp -m set --match-set KUBE-NODE-PORT-TCP dst -j KUBE-MARK-MASQ"#,
    );
    let mut world = world(
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
        world.written().servers.last().unwrap().to_string(),
        format!(
            "-A -t 10.20.0.1:443 -s rr -p 10800\n\
             -a -t 10.20.0.1:443 -r {HERE} -m -w 1\n\
             -a -t 10.20.0.1:443 -r {THERE} -m -w 1\n"
        )
    );

    world.proxy.cluster_cidr = Some("172.16.128.0/17".parse().unwrap());
    assert_eq!(
        world.nat("KUBE-SERVICES")[0],
        "! -s 172.16.128.0/17 -m set --match-set KUBE-CLUSTER-IP dst,dst -j KUBE-MARK-MASQ"
    );
    assert_eq!(world.set("KUBE-CLUSTER-IP").unwrap(), ["10.20.0.1,tcp:443"]);
}

/// The dump of a healthy node in the same report, said to be a v1.9.2's, has
/// the form of v1.12 to v1.15.
#[test]
fn v1_13_with_a_cluster_cidr_masquerades_strangers() {
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
    let mut world = world(
        "v1.13",
        &json!({"type": "NodePort", "ports": [{"name": "p", "port": 443, "nodePort": 30443}]}),
    );
    world.proxy.cluster_cidr = Some("172.16.128.0/17".parse().unwrap());
    assert_eq!(nat_rules(&recorded), nat_rules(&world.dump()));
}

#[test]
fn from_1_11_the_node_that_calls_itself_by_a_cluster_ip_is_masqueraded() {
    let masquerades = |version: &str| {
        let rules = world(version, &json!({})).nat("KUBE-SERVICES");
        rules.iter().any(|rule| {
            rule.ends_with("-m set --match-set KUBE-CLUSTER-IP src,dst -j KUBE-MARK-MASQ")
        })
    };
    assert!(!masquerades("v1.9") && !masquerades("v1.10"));
    assert!(masquerades("v1.11") && masquerades("v1.18") && masquerades("v1.36"));
}

#[test]
fn a_local_load_balancer_adds_two_rules_and_keeps_the_source() {
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
        ("v1.12", both(), here(), here(), both()),
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
fn in_1_11_a_balancer_obeys_local_only_with_affinity() {
    let mut world = with_balancer("v1.11", "Local");
    world.service["spec"]["sessionAffinity"] = json!("ClientIP");
    assert_eq!(world.behind("-t 203.0.113.1:443").unwrap(), [HERE]);
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
fn the_loop_back_set_holds_endpoints_by_version() {
    let here = "172.16.1.5,tcp:6443,172.16.1.5".to_owned();
    let there = "172.16.2.5,tcp:6443,172.16.2.5".to_owned();
    for (version, entries) in [
        ("v1.11.6", vec![here.clone(), there]),
        ("v1.11", vec![here.clone()]),
        ("v1.14", vec![here.clone()]),
    ] {
        let world = world(version, &json!({}));
        assert_eq!(world.set("KUBE-LOOP-BACK").unwrap(), entries, "{version}");
    }
    for (version, entries) in [("v1.20", vec![]), ("v1.21", vec![here])] {
        let mut world = world(version, &json!({}));
        world.endpoints[0]["conditions"] = json!({"ready": false});
        assert_eq!(world.set("KUBE-LOOP-BACK").unwrap(), entries, "{version}");
    }
}

#[test]
fn external_ips_with_the_policy_local_are_not_masqueraded_from_1_19_on() {
    for (version, set, other) in [
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
        assert_eq!(world.set("KUBE-EXTERNAL-IP-LOCAL"), other, "{version}");
        let rules = world.nat("KUBE-SERVICES");
        let about: Vec<&String> = rules
            .iter()
            .filter(|r| r.contains(&format!("{set} dst")))
            .collect();
        let masquerades = about.iter().any(|rule| rule.ends_with("KUBE-MARK-MASQ"));
        assert_eq!(masquerades, set == "KUBE-EXTERNAL-IP", "{version}");
        assert_eq!(about.len(), if masquerades { 3 } else { 2 }, "{version}");
    }
}

#[test]
fn source_ranges_that_admit_the_node_let_it_in() {
    let fenced = |version: &str, range: &str| {
        let mut world = with_balancer(version, "Cluster");
        world.service["spec"]["loadBalancerSourceRanges"] = json!([range]);
        world
    };
    let stranger = fenced("v1.30", "198.51.100.0/24");
    assert_eq!(stranger.set("KUBE-LOAD-BALANCER-SOURCE-IP"), Some(vec![]));
    assert_eq!(
        stranger.chain(Table::Filter, "KUBE-IPVS-OUT-FILTER"),
        ["-s 203.0.113.1 -m ipvs --vaddr 203.0.113.1 --vport 443 --vproto tcp -j DROP"]
    );
    assert_eq!(
        stranger.set("KUBE-LOAD-BALANCER-SOURCE-CIDR").unwrap(),
        ["203.0.113.1,tcp:443,198.51.100.0/24"]
    );
    let admitted = fenced("v1.30", "10.19.0.0/16");
    assert_eq!(
        admitted.set("KUBE-LOAD-BALANCER-SOURCE-IP").unwrap(),
        ["203.0.113.1,tcp:443,203.0.113.1"]
    );
    assert!(
        admitted
            .chain(Table::Filter, "KUBE-IPVS-OUT-FILTER")
            .is_empty()
    );

    // Before v1.25 it is nat that marks for dropping.
    let old = fenced("v1.20", "198.51.100.0/24");
    let firewall = old.nat("KUBE-FIREWALL");
    assert_eq!(firewall.last().unwrap(), "-j KUBE-MARK-DROP");
    assert!(old.nat("KUBE-LOAD-BALANCER")[0].ends_with("-j KUBE-FIREWALL"));
}

/// ipset refuses an entry for all addresses, and kube-proxy does not notice:
/// it shuts everybody out.
#[test]
fn a_source_range_of_all_addresses_admits_nobody_until_1_34() {
    for (version, fenced) in [("v1.33", true), ("v1.34", false)] {
        let mut world = with_balancer(version, "Cluster");
        world.service["spec"]["loadBalancerSourceRanges"] = json!(["0.0.0.0/0"]);
        assert_eq!(world.set("KUBE-LOAD-BALANCER-SOURCE-CIDR"), Some(vec![]));
        let rules = world.chain(Table::Filter, "KUBE-PROXY-FIREWALL");
        assert_eq!(rules.len(), usize::from(fenced), "{version}");
        let ranges = world.chain(Table::Filter, "KUBE-SOURCE-RANGES-FIREWALL");
        assert_eq!(
            ranges.len(),
            if fenced { 3 } else { 1 },
            "{version}: {ranges:?}"
        );
    }
}

#[test]
fn v1_10_masquerades_balancers_by_a_set_and_loses_its_firewall() {
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
fn sctp_node_ports_are_kept_by_version() {
    let spec = json!({
        "type": "NodePort",
        "externalTrafficPolicy": "Local",
        "ports": [{"name": "p", "port": 443, "nodePort": 30443, "protocol": "SCTP"}]
    });
    let old = world("v1.14", &spec);
    assert_eq!(old.set("KUBE-NODE-PORT-SCTP").unwrap(), ["30443"]);
    let hashes = world("v1.20", &spec);
    assert_eq!(
        hashes.set("KUBE-NODE-PORT-SCTP-HASH").unwrap(),
        ["10.19.136.10,sctp:30443", "127.0.0.1,sctp:30443"]
    );
    let target = |version: &str| {
        let rules = world(version, &spec).nat("KUBE-NODE-PORT");
        rules[0].rsplit(' ').next().unwrap().to_owned()
    };
    assert_eq!(target("v1.22"), "KUBE-MARK-MASQ");
    assert_eq!(target("v1.23"), "RETURN");
    assert!(world("v1.11", &spec).written().servers.is_empty());
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

#[test]
fn an_address_of_the_nodes_own_is_not_bound_from_1_28_on() {
    for (version, bound) in [
        ("v1.27", vec!["10.19.136.10", "10.20.0.1"]),
        ("v1.28", vec!["10.20.0.1"]),
    ] {
        let mut world = with_balancer(version, "Cluster");
        world.service["status"]["loadBalancer"]["ingress"][0]["ip"] = json!("10.19.136.10");
        assert_eq!(world.bound(), bound, "{version}");
    }
}

#[test]
fn a_scheduler_is_used_as_it_is_asked_for() {
    let mut world = world("v1.26", &json!({}));
    world.proxy.ipvs_scheduler = "mh".to_owned();
    assert_eq!(world.written().servers[0].scheduler, "mh");
    world.proxy.version = "v1.27".parse().unwrap();
    let error = world.try_written().unwrap_err();
    assert_eq!(
        error.to_string(),
        "kube-proxy v1.27: ipvsScheduler `mh` sets the flag mh-port, which is not supported: \
         use another scheduler, or a version up to v1.26"
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
        interface_addresses: &[],
    };
    let error = rules(&world.proxy, &objects, Family::V4).unwrap_err();
    assert_eq!(error, KubeProxyError::Mode(Mode::Ipvs));
    world.proxy.mode = Mode::Iptables;
    let error = world.try_written().unwrap_err();
    assert_eq!(error, KubeProxyError::Mode(Mode::Iptables));
}
