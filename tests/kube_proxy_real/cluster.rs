//! Objects of a cluster, for the API server and for the generator.

use k8s_openapi::api::core::v1::{Node, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use libtest_mimic::Failed;
use serde_json::{Value, json};
use svclab_rules::kube_proxy::Objects;
use svclab_test_support::recordings;

use crate::bench::{ADDRESS, to_value};
use crate::marker::Marker;

/// Name of the node that the kube-proxy runs on.
pub const NODE: &str = "node-a";

#[derive(Debug, Clone, Default)]
pub struct Cluster {
    pub nodes: Vec<Node>,
    pub services: Vec<Service>,
    pub slices: Vec<EndpointSlice>,
}

impl Cluster {
    /// Reads the objects of the recordings called `name`.
    pub fn recorded(name: &str) -> Result<Self, Failed> {
        let recorded = recordings::recorded_cluster(name)?;
        Ok(Self {
            nodes: recorded.nodes,
            services: recorded.services,
            slices: recorded.slices,
        })
    }

    /// Returns two nodes without other objects.
    pub fn with_two_nodes() -> Result<Self, Failed> {
        let node = |name: &str, address: &str| {
            serde_json::from_value(json!({
                "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
                "status": {"addresses": [{"type": "InternalIP", "address": address}]},
            }))
        };
        Ok(Self {
            nodes: vec![node(NODE, ADDRESS)?, node("node-b", "192.168.50.11")?],
            ..Self::default()
        })
    }

    /// Returns the cluster with a marker added.
    pub fn with_marker(&self, marker: &Marker) -> Result<Self, Failed> {
        let mut cluster = self.clone();
        marker.add(&mut cluster)?;
        Ok(cluster)
    }

    /// Returns the objects as JSON for the API server.
    pub fn values(&self) -> Result<Vec<Value>, Failed> {
        let nodes = self.nodes.iter().map(to_value);
        let services = self.services.iter().map(to_value);
        let slices = self.slices.iter().map(to_value);
        nodes.chain(services).chain(slices).collect()
    }

    /// Returns the objects for the generator. kube-proxy reads the addresses of the node's
    /// interfaces from the kernel; `interface_addresses` holds the same addresses.
    pub fn objects<'a>(&'a self, interface_addresses: &'a [std::net::IpAddr]) -> Objects<'a> {
        Objects {
            node: NODE,
            nodes: &self.nodes,
            services: &self.services,
            endpoint_slices: &self.slices,
            service_cidrs: &[],
            interface_addresses,
        }
    }
}
