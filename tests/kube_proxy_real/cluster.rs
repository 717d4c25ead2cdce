//! The objects of a cluster, for the API server and for the generator.

use k8s_openapi::api::core::v1::{Node, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use libtest_mimic::Failed;
use serde_json::{Value, json};
use svclab_rules::kube_proxy::Objects;

use crate::bench::{ADDRESS, value};
use crate::marker::Marker;
use crate::recordings;

/// The node that the kube-proxy runs on.
pub const NODE: &str = "node-a";

/// All objects there are.
#[derive(Debug, Clone, Default)]
pub struct Cluster {
    pub nodes: Vec<Node>,
    pub services: Vec<Service>,
    pub slices: Vec<EndpointSlice>,
}

impl Cluster {
    /// The objects that recordings called `name` were made with.
    pub fn recorded(name: &str) -> Result<Self, Failed> {
        let recorded = recordings::recorded_cluster(name)?;
        Ok(Self {
            nodes: recorded.nodes,
            services: recorded.services,
            slices: recorded.slices,
        })
    }

    /// Two nodes, and nothing on them.
    pub fn of_nodes() -> Result<Self, Failed> {
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

    /// The same with a marker.
    pub fn with(&self, marker: &Marker) -> Result<Self, Failed> {
        let mut cluster = self.clone();
        marker.add(&mut cluster)?;
        Ok(cluster)
    }

    /// What the API server is given.
    pub fn values(&self) -> Result<Vec<Value>, Failed> {
        let nodes = self.nodes.iter().map(value);
        let services = self.services.iter().map(value);
        let slices = self.slices.iter().map(value);
        nodes.chain(services).chain(slices).collect()
    }

    /// What the generator is given. kube-proxy asks the kernel for the addresses
    /// of the node's interfaces, and these are what it has.
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
