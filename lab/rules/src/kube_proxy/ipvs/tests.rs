//! Tests the inputs that single rules, entries and servers depend on. `tests/cases/recorded`
//! compares whole states with recordings.

mod rules;
mod servers;

use serde_json::{Value, json};

use super::IpvsRules;
use crate::kube_proxy::{Family, KubeProxy, KubeProxyError, Mode, Objects, ipvs_rules};
use crate::objects::{EndpointSlice, Node, Service};
use svclab_ruleset::iptables::script::{IptablesScript, Table};
use svclab_ruleset::iptables::{IptablesRules, Rule};

/// Cluster with one service, `ns/svc`, an endpoint on this node and one on another node.
struct TestCluster {
    service: Value,
    endpoints: Vec<Value>,
    proxy: KubeProxy,
}

fn test_cluster(version: &str, spec: &Value) -> TestCluster {
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
    TestCluster {
        service,
        endpoints: vec![
            json!({"addresses": ["172.16.1.5"], "nodeName": "here"}),
            json!({"addresses": ["172.16.2.5"], "nodeName": "there"}),
        ],
        proxy,
    }
}

/// Returns the cluster of [`world`] with a load balancer at 203.0.113.1 and node port 30443.
fn with_balancer(version: &str, policy: &str) -> TestCluster {
    let spec = json!({
        "type": "LoadBalancer",
        "externalTrafficPolicy": policy,
        "ports": [{"name": "p", "port": 443, "nodePort": 30443}]
    });
    let mut world = test_cluster(version, &spec);
    world.service["status"] = json!({"loadBalancer": {"ingress": [{"ip": "203.0.113.1"}]}});
    world
}

impl TestCluster {
    fn try_rules(&self) -> Result<IpvsRules, KubeProxyError> {
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
            service_cidrs: &[],
            interface_addresses: &[],
        };
        ipvs_rules(&self.proxy, &objects, Family::V4)
    }

    fn rules(&self) -> IpvsRules {
        self.try_rules().unwrap()
    }

    fn dump(&self) -> IptablesRules {
        let mut script = IptablesScript::new();
        script.table_mut(Table::Nat).declare_chain("KUBE-MARK-DROP");
        script.append(self.rules().script);
        IptablesRules::from_script(&script).unwrap()
    }

    fn chain(&self, table: Table, name: &str) -> Vec<String> {
        let dump = self.dump();
        let chain = dump.chain(table, name);
        chain.map_or(Vec::new(), |c| {
            c.rules.iter().map(Rule::canonical_text).collect()
        })
    }

    fn nat(&self, name: &str) -> Vec<String> {
        self.chain(Table::Nat, name)
    }

    /// Returns the entries of a set, or `None` if the set does not exist.
    fn set(&self, name: &str) -> Option<Vec<String>> {
        let written = self.rules();
        let set = written.sets.get(name)?;
        Some(set.entries().map(str::to_owned).collect())
    }

    /// Returns the real servers behind `address`, in the notation of `ipvsadm`, or `None` if the
    /// virtual server does not exist.
    fn real_servers(&self, address: &str) -> Option<Vec<String>> {
        let written = self.rules();
        let server = written
            .servers
            .iter()
            .find(|server| server.key.to_string() == address)?;
        Some(
            server
                .servers
                .iter()
                .map(|s| s.address.to_string())
                .collect(),
        )
    }

    fn bound(&self) -> Vec<String> {
        self.rules().bound.iter().map(ToString::to_string).collect()
    }
}

const LOCAL_ENDPOINT: &str = "172.16.1.5:6443";
const REMOTE_ENDPOINT: &str = "172.16.2.5:6443";
