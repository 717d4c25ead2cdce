//! The `Lab` document: cluster properties that Kubernetes objects do not define, probes and
//! expectations.
//!
//! Comments on fields become descriptions in the published JSON schema, which editors display. The
//! document is strict: an unknown field is an error.

pub(crate) mod balancer;
pub mod components;
pub mod flow;
pub mod flow_count;
pub(crate) mod node;
pub mod patch;
pub(crate) mod probe;
pub mod reference;
pub mod schema;
pub mod step;

use indexmap::IndexMap;
use ipnetwork::IpNetwork;
use schemars::JsonSchema;

use svclab_model::plan::Backend;

use crate::decode::values::AxisValues;
use crate::expectation::Row;
use crate::lab::components::{
    CalicoConfig, DockerConfig, FlannelConfig, IpMasqAgentConfig, KubeProxyConfig,
};
use crate::lab::patch::Patch;

pub use crate::lab::balancer::{
    BalancerTarget, HealthCheck, LoadBalancerSpec, LoadBalancers, NoBackend, Public, SecurityGroup,
};
pub use crate::lab::flow::{Fact, FailureVerdict, Flow, FlowRow};
pub use crate::lab::node::{ByHand, FlannelLeftover, Leftovers, NodeSpec};
pub use crate::lab::probe::Probe;
pub use crate::lab::step::StepSpec;

/// Only supported `apiVersion` of the document.
pub const API_VERSION: &str = "svclab/v1";

/// Value of `kind` in the document.
pub const KIND: &str = "Lab";

/// Lab: a cluster, probes and expectations.
#[derive(Debug, Clone, PartialEq, serde::Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Lab {
    /// API version of the document: `svclab/v1`.
    pub api_version: String,
    /// Kind of the document: `Lab`.
    pub kind: String,
    /// Metadata with the name of the lab.
    pub metadata: Metadata,
    /// Content of the lab.
    pub spec: LabSpec,
}

/// Metadata of a lab.
#[derive(Debug, Clone, PartialEq, Eq, serde::Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Metadata {
    /// Name of the lab, at the start of the names of its cases. Without `/`.
    pub name: String,
}

/// Content of a lab.
#[derive(Debug, Clone, PartialEq, serde::Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct LabSpec {
    /// Purpose of the lab in one sentence.
    pub about: String,
    /// References of the lab: incident write-ups, issues, web pages.
    #[serde(default)]
    pub source: Vec<String>,
    /// Parts of the source that the lab does not model, such as "the name look-up". An entry may be
    /// a kind of object that svclab does not model, such as `NetworkPolicy`, or `hostPort`. A lab
    /// with such an object then runs, with a warning instead of an error. svclab writes no pods of a
    /// workload whose kind is listed, such as `Deployment`.
    #[serde(default)]
    pub not_modelled: Vec<String>,
    /// Files with Kubernetes objects in addition to those of the lab's file. The paths are relative
    /// to the directory of the lab's file. Each file is YAML or JSON with any number of objects.
    #[serde(default)]
    pub objects: Vec<String>,
    /// kube-proxy on every node; not installed when absent.
    #[serde(default)]
    pub kube_proxy: Option<KubeProxyConfig>,
    /// flannel on every node; not installed when absent.
    #[serde(default)]
    pub flannel: Option<FlannelConfig>,
    /// Calico on every node; not installed when absent.
    #[serde(default)]
    pub calico: Option<CalicoConfig>,
    /// ip-masq-agent on every node; not installed when absent.
    #[serde(default)]
    pub ip_masq_agent: Option<IpMasqAgentConfig>,
    /// Docker on every node; not installed when absent.
    #[serde(default)]
    pub docker: Option<DockerConfig>,
    /// iptables variant of the nodes: `nft` or `legacy`; default `nft`.
    #[serde(default)]
    pub iptables: Backend,
    /// Network between the nodes.
    #[serde(default)]
    pub fabric: Fabric,
    /// Node properties that Node objects do not define, by the node's name.
    #[serde(default)]
    pub nodes: IndexMap<String, NodeSpec>,
    /// Hosts outside the cluster, by name.
    #[serde(default)]
    pub hosts: IndexMap<String, HostSpec>,
    /// Load balancers in front of services, by name. With `auto`, svclab makes one for each service
    /// of type `LoadBalancer` that has an address in its status.
    #[serde(default)]
    pub load_balancers: LoadBalancers,
    /// Probes to run, by name.
    #[serde(default)]
    pub probes: IndexMap<String, Probe>,
    /// Probes with their own expectations, by name. A lab may have flows instead of `probes` and
    /// `expect`, or both.
    #[serde(default)]
    pub flows: IndexMap<String, Flow>,
    /// Number of connections of a flow without `connections`; default 1. An axis may patch this
    /// value: with round robin, few connections reach every endpoint, a random choice needs many.
    #[serde(default = "crate::lab::probe::default_connections")]
    #[schemars(range(min = 1))]
    pub connections: u32,
    /// Statements of other sources about the flows, by identifier. Rows of flows name the facts
    /// that they confirm in `covers`.
    #[serde(default)]
    pub facts: IndexMap<String, Fact>,
    /// Axis whose values are the columns of the table of flows. The default is `mode` if the lab
    /// has that axis, otherwise the first axis.
    #[serde(default)]
    pub columns: Option<String>,
    /// Changes to a running case, in order, each with the probes that run after it.
    #[serde(default)]
    pub steps: Vec<StepSpec>,
    /// Axes by name. An axis has named values, and a value is a list of patches to the lab. The
    /// cases are the product of the axes.
    #[serde(default)]
    pub axes: IndexMap<String, IndexMap<String, Vec<Patch>>>,
    /// Combinations of axis values without a case. An axis that is not named may have any value.
    #[serde(default)]
    pub exclude: Vec<IndexMap<String, AxisValues>>,
    /// Expectations: the first row whose `when` matches a case applies to that case.
    #[serde(default)]
    pub expect: Vec<Row>,
    /// Claims of the lab's source, by identifier.
    #[serde(default)]
    pub claims: IndexMap<String, Claim>,
}

/// Network between the nodes.
#[derive(Debug, Clone, PartialEq, Eq, Default, serde::Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Fabric {
    /// Topology that connects the nodes: `routed` or `switched`; default `routed`.
    #[serde(default, rename = "type")]
    pub kind: FabricKind,
    /// Subnet of all nodes in a switched fabric, such as `172.18.0.0/16`. By default, svclab
    /// derives the subnet from the nodes' addresses.
    #[serde(default, deserialize_with = "crate::decode::values::subnet_option")]
    #[schemars(with = "Option<String>")]
    pub subnet: Option<IpNetwork>,
    /// Treatment of a packet whose source is not an address of the node that sends it. `pass` (the
    /// default) forwards the packet; `drop` drops it, as clouds with source checks do.
    #[serde(default)]
    pub foreign_sources: ForeignSources,
    /// Additional routes of the fabric's router to nodes, such as to an external IP that a node
    /// announces.
    #[serde(default)]
    pub routes: Vec<FabricRoute>,
}

/// Route of the fabric's router.
#[derive(Debug, Clone, PartialEq, Eq, serde::Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct FabricRoute {
    /// Destination network, or one address such as `192.0.2.10/32`.
    #[serde(deserialize_with = "crate::decode::values::subnet")]
    #[schemars(with = "String")]
    pub to: IpNetwork,
    /// Name of the node that receives the packets.
    pub via: String,
}

/// Topology of a fabric.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    Hash,
    Default,
    serde::Deserialize,
    serde::Serialize,
    JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum FabricKind {
    /// Each node is in its own subnet, with one router between them, as in a VPC.
    #[default]
    Routed,
    /// All nodes are on one bridge.
    Switched,
}

/// Treatment of a packet whose source is not an address of its sender.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    Hash,
    Default,
    serde::Deserialize,
    serde::Serialize,
    JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum ForeignSources {
    /// The fabric forwards the packet.
    #[default]
    Pass,
    /// The fabric drops the packet.
    Drop,
}

/// Host outside the cluster.
#[derive(Debug, Clone, PartialEq, Eq, serde::Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct HostSpec {
    /// Address with the prefix length of its subnet, such as `203.0.113.9/24`.
    #[serde(deserialize_with = "crate::decode::values::host_address")]
    #[schemars(with = "String")]
    pub address: IpNetwork,
    /// Ports on which the host answers, for TCP and UDP; none by default.
    #[serde(default)]
    pub ports: Vec<u16>,
}

/// Claim of a lab's source.
#[derive(Debug, Clone, PartialEq, Eq, serde::Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Claim {
    /// Statement of the claim, in one sentence.
    pub says: String,
    /// Reason why no packet can confirm or refute the claim.
    #[serde(default)]
    pub not_checkable: Option<String>,
}

impl LabSpec {
    /// Returns the probes of each stage by name: those of the lab, then those of each step.
    pub fn probes_by_stage(&self) -> impl Iterator<Item = &IndexMap<String, Probe>> {
        let step_probes = self.steps.iter().map(|step| &step.probes);
        std::iter::once(&self.probes).chain(step_probes)
    }

    /// Returns all probes with their names: those of the lab, then those of each step.
    pub fn all_probes(&self) -> impl Iterator<Item = (&String, &Probe)> {
        self.probes_by_stage().flatten()
    }

    /// Returns the probe of the lab or of a step with this name.
    #[must_use]
    pub fn probe(&self, name: &str) -> Option<&Probe> {
        self.probes_by_stage().find_map(|probes| probes.get(name))
    }
}
