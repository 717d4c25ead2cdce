//! Generates the objects of a cluster with any number of services.

use serde_json::{Value, from_value, json};
use svclab_rules::kube_proxy::Objects;
use svclab_rules::objects::{EndpointSlice, Node, Service};

/// Objects of a cluster with two nodes.
pub struct Cluster {
    nodes: Vec<Node>,
    services: Vec<Service>,
    slices: Vec<EndpointSlice>,
}

impl Cluster {
    /// Creates a number of services with a number of endpoints each.
    pub fn new(size: usize, endpoints: usize) -> Self {
        let node = json!({
            "metadata": {"name": "node-a"},
            "spec": {"podCIDR": "10.0.0.0/8"},
            "status": {"addresses": [{"type": "InternalIP", "address": "192.168.50.10"}]}
        });
        let service = |n: usize| {
            json!({
                "metadata": {"name": format!("service-{n}"), "namespace": "default"},
                "spec": {
                    "type": "ClusterIP",
                    "clusterIP": format!("172.{}.{}.{}", 16 + n / 65_536, n / 256 % 256, n % 256),
                    "ports": [{"name": "http", "port": 80, "targetPort": 8080, "protocol": "TCP"}]
                }
            })
        };
        let endpoint = |n: usize, index: usize| {
            let n = n * endpoints + index;
            json!({
                "addresses": [format!("10.{}.{}.{}", n / 65_536, n / 256 % 256, n % 256)],
                "conditions": {"ready": true},
                "nodeName": if index.is_multiple_of(2) { "node-a" } else { "node-b" }
            })
        };
        let slice = |n: usize| {
            let endpoints: Vec<Value> = (0..endpoints).map(|at| endpoint(n, at)).collect();
            json!({
                "metadata": {
                    "name": format!("service-{n}-1"),
                    "namespace": "default",
                    "labels": {"kubernetes.io/service-name": format!("service-{n}")}
                },
                "addressType": "IPv4",
                "ports": [{"name": "http", "port": 8080, "protocol": "TCP"}],
                "endpoints": endpoints
            })
        };
        Self {
            nodes: vec![from_value(node).expect("a node")],
            services: (0..size)
                .map(|n| from_value(service(n)).expect("a service"))
                .collect(),
            slices: (0..size)
                .map(|n| from_value(slice(n)).expect("an endpoint slice"))
                .collect(),
        }
    }

    /// Returns the objects as `node-a` sees them.
    pub fn objects(&self) -> Objects<'_> {
        Objects {
            node: "node-a",
            nodes: &self.nodes,
            services: &self.services,
            endpoint_slices: &self.slices,
            service_cidrs: &[],
            interface_addresses: &[],
        }
    }
}
