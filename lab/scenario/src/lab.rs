//! The `Lab` document: what Kubernetes objects do not say of a cluster, and what
//! to try in it.
//!
//! Every field is documented here for the published JSON schema as well: the
//! comments on fields are what an editor shows. The document is strict; a field
//! that is not here is an error.

use indexmap::IndexMap;
use ipnetwork::IpNetwork;
use schemars::JsonSchema;

use svclab_model::plan::Backend;

use super::components::{
    CalicoConfig, DockerConfig, FlannelConfig, IpMasqAgentConfig, KubeProxyConfig,
};
use super::expectation::Row;
use super::patch::Patch;
use super::values::AxisValues;

pub use super::balancer_spec::{
    HealthCheck, LoadBalancerSpec, NoBackend, Public, SecurityGroup, Target,
};
pub use super::flow::{Fact, Failing, Flow, FlowRow};
pub use super::node_spec::{ByHand, FlannelLeftover, Leftovers, NodeSpec};
pub use super::probe::Probe;
pub use super::step::Step;

/// The only `apiVersion` there is.
pub const API_VERSION: &str = "svclab/v1";

/// The `kind` of the document.
pub const KIND: &str = "Lab";

/// A lab: a cluster and what to try in it.
#[derive(Debug, Clone, PartialEq, serde::Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Lab {
    /// `svclab/v1`.
    pub api_version: String,
    /// `Lab`.
    pub kind: String,
    /// The lab's name.
    pub metadata: Metadata,
    /// What the lab is made of.
    pub spec: LabSpec,
}

/// What names a lab.
#[derive(Debug, Clone, PartialEq, Eq, serde::Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Metadata {
    /// The lab's name: that of its file, without `.yaml`.
    pub name: String,
}

/// What a lab is made of.
#[derive(Debug, Clone, PartialEq, serde::Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct LabSpec {
    /// What the lab shows, in a sentence.
    pub about: String,
    /// Where the lab comes from: incident write-ups, issues, pages.
    #[serde(default)]
    pub source: Vec<String>,
    /// What the lab leaves out of what its source describes, such as "the name
    /// look-up". A kind of object that svclab does not model is named here, such as
    /// `NetworkPolicy`, or `hostPort`: a lab with such an object then runs, with a
    /// warning.
    #[serde(default)]
    pub not_modelled: Vec<String>,
    /// kube-proxy on every node; none without it.
    #[serde(default)]
    pub kube_proxy: Option<KubeProxyConfig>,
    /// flannel on every node; none without it.
    #[serde(default)]
    pub flannel: Option<FlannelConfig>,
    /// Calico on every node; none without it.
    #[serde(default)]
    pub calico: Option<CalicoConfig>,
    /// ip-masq-agent on every node; none without it.
    #[serde(default)]
    pub ip_masq_agent: Option<IpMasqAgentConfig>,
    /// Docker on every node; none without it.
    #[serde(default)]
    pub docker: Option<DockerConfig>,
    /// Which iptables the nodes have: `nft` (the default) or `legacy`.
    #[serde(default)]
    pub iptables: Backend,
    /// What lies between the nodes.
    #[serde(default)]
    pub fabric: Fabric,
    /// What the Node objects do not say, a node's name each.
    #[serde(default)]
    pub nodes: IndexMap<String, NodeSpec>,
    /// Machines outside the cluster.
    #[serde(default)]
    pub hosts: IndexMap<String, HostSpec>,
    /// Load balancers in front of services.
    #[serde(default)]
    pub load_balancers: IndexMap<String, LoadBalancerSpec>,
    /// The exchanges to attempt.
    #[serde(default)]
    pub probes: IndexMap<String, Probe>,
    /// Exchanges that say themselves what is expected of them, in place of `probes`
    /// and `expect` or beside them.
    #[serde(default)]
    pub flows: IndexMap<String, Flow>,
    /// How many exchanges a flow attempts that says nothing of it; one by default. An
    /// axis may patch it: endpoints that take turns are met by few, random choice needs
    /// many.
    #[serde(default = "super::probe::one")]
    #[schemars(range(min = 1))]
    pub connections: u32,
    /// What others say of such flows; rows of flows name the facts they bear out.
    #[serde(default)]
    pub facts: IndexMap<String, Fact>,
    /// The axis whose values are the columns of the table of flows: `mode` when absent,
    /// if there is such an axis, else the first one.
    #[serde(default)]
    pub columns: Option<String>,
    /// What changes while a case stands, one step after the other, each with what is
    /// tried after it.
    #[serde(default)]
    pub steps: Vec<Step>,
    /// What is varied: an axis has values, a value is a list of patches to the
    /// lab as written. The cases are the product of the axes.
    #[serde(default)]
    pub axes: IndexMap<String, IndexMap<String, Vec<Patch>>>,
    /// Combinations of axis values that mean nothing. An axis that is not named
    /// may have any value.
    #[serde(default)]
    pub exclude: Vec<IndexMap<String, AxisValues>>,
    /// What is expected: the first row whose `when` matches a case is the case's.
    #[serde(default)]
    pub expect: Vec<Row>,
    /// What the lab's source claims, by the claims' identifiers.
    #[serde(default)]
    pub claims: IndexMap<String, Claim>,
}

/// What lies between the nodes.
#[derive(Debug, Clone, PartialEq, Eq, Default, serde::Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Fabric {
    /// How the nodes are connected.
    #[serde(default, rename = "type")]
    pub kind: FabricKind,
    /// The subnet of all nodes of a switched fabric, `172.18.0.0/16`; found from
    /// the nodes' addresses when absent.
    #[serde(default, deserialize_with = "super::values::subnet_option")]
    #[schemars(with = "Option<String>")]
    pub subnet: Option<IpNetwork>,
    /// What becomes of a packet whose source is not an address of the node that
    /// sends it: `pass` (the default) or `drop`, as clouds do that check sources.
    #[serde(default)]
    pub foreign_sources: ForeignSources,
    /// What the fabric's router sends to a node though no subnet says so, such as
    /// an external IP that a node announces.
    #[serde(default)]
    pub routes: Vec<FabricRoute>,
}

/// A route of the fabric's router.
#[derive(Debug, Clone, PartialEq, Eq, serde::Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct FabricRoute {
    /// The network, or one address: `192.0.2.10/32`.
    #[serde(deserialize_with = "super::values::subnet")]
    #[schemars(with = "String")]
    pub to: IpNetwork,
    /// The node it is sent to.
    pub via: String,
}

/// How the nodes are connected.
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
    /// Each node in a subnet of its own, one router between them, as in a VPC.
    #[default]
    Routed,
    /// All nodes on one bridge.
    Switched,
}

/// What becomes of a packet whose source is not its sender's.
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
    /// It passes.
    #[default]
    Pass,
    /// The fabric drops it.
    Drop,
}

/// A machine outside the cluster.
#[derive(Debug, Clone, PartialEq, Eq, serde::Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct HostSpec {
    /// Its address with the prefix length of its subnet: `203.0.113.9/24`.
    #[serde(deserialize_with = "super::values::host_address")]
    #[schemars(with = "String")]
    pub address: IpNetwork,
    /// Ports it answers on, TCP and UDP.
    #[serde(default)]
    pub ports: Vec<u16>,
}

/// One thing a lab's source claims.
#[derive(Debug, Clone, PartialEq, Eq, serde::Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Claim {
    /// What it says, in a sentence.
    pub says: String,
    /// Why no packet can confirm or refute it, where none can.
    #[serde(default)]
    pub not_checkable: Option<String>,
}

impl LabSpec {
    /// All probes by their names: those of the lab, then those of each step.
    pub fn all_probes(&self) -> impl Iterator<Item = (&String, &Probe)> {
        let of_steps = self.steps.iter().flat_map(|step| &step.probes);
        self.probes.iter().chain(of_steps)
    }

    /// The probe of that name, wherever it is written.
    #[must_use]
    pub fn probe(&self, name: &str) -> Option<&Probe> {
        let of_steps = self.steps.iter().filter_map(|step| step.probes.get(name));
        self.probes.get(name).into_iter().chain(of_steps).next()
    }
}
