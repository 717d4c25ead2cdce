//! Objects of a cluster, for the API server and for the generator.

use k8s_openapi::api::core::v1::{Node, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use libtest_mimic::Failed;
use serde_json::{Value, json};
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
        let mut cluster = Self::default();
        for object in recordings::recorded_objects(name)? {
            match object["kind"].as_str() {
                Some("Node") => cluster.nodes.push(serde_json::from_value(object)?),
                Some("Service") => cluster.services.push(serde_json::from_value(object)?),
                _ => cluster.slices.push(serde_json::from_value(object)?),
            }
        }
        Ok(cluster)
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

    /// Returns the objects for the generator.
    pub fn to_generator(&self) -> recordings::Cluster {
        recordings::Cluster {
            nodes: self.nodes.iter().map(Into::into).collect(),
            services: self.services.iter().map(Into::into).collect(),
            slices: self.slices.iter().map(Into::into).collect(),
            service_cidrs: Vec::new(),
        }
    }
}
