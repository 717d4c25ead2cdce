//! The `Lab` document: what Kubernetes objects do not say of a cluster, and what
//! to try in it.
//!
//! Every field is documented here for the published JSON schema as well: the
//! comments on fields are what an editor shows. The document is strict; a field
//! that is not here is an error.

use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

use indexmap::IndexMap;
use ipnetwork::IpNetwork;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::value::MapAccessDeserializer;
use serde::de::{self, Deserialize, Deserializer, MapAccess, Visitor};

use crate::plan::{Backend, Protocol};

use crate::rules::flannel::EarlierFlannel;

use super::components::{
    CalicoConfig, DockerConfig, FlannelConfig, IpMasqAgentConfig, KubeProxyConfig,
};
use super::expectation::Row;
use super::patch::Patch;
use super::values::{AxisValues, SysctlValue};

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
    /// look-up".
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

/// What a Node object does not say.
#[derive(Debug, Clone, PartialEq, Default, serde::Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct NodeSpec {
    /// The subnet the node's own address lies in, `172.18.1.0/24`.
    #[serde(default, deserialize_with = "super::values::subnet_option")]
    #[schemars(with = "Option<String>")]
    pub subnet: Option<IpNetwork>,
    /// Sysctls by their dotted names, set on top of a node's own:
    /// `net.ipv4.conf.all.rp_filter: 1`.
    #[serde(default)]
    pub sysctls: IndexMap<String, SysctlValue>,
    /// What an earlier life of the machine left on it.
    #[serde(default)]
    pub leftovers: Leftovers,
    /// This node's kube-proxy, in place of the lab's.
    #[serde(default)]
    pub kube_proxy: Option<KubeProxyConfig>,
}

/// What an earlier life of a machine left on it.
#[derive(Debug, Clone, PartialEq, Eq, Default, serde::Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Leftovers {
    /// Lines as `iptables-save` prints them, tables included.
    #[serde(default)]
    pub iptables: Vec<String>,
    /// Lines as `ipset save` prints them.
    #[serde(default)]
    pub ipset: Vec<String>,
    /// The rules of an earlier flannel that was not torn down: `none` (the
    /// default), or the network and the node's subnet it was configured with.
    #[serde(default)]
    pub flannel: FlannelLeftover,
}

/// The rules an earlier flannel left.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum FlannelLeftover {
    /// None.
    #[default]
    None,
    /// Those of a flannel with another network or lease.
    Of(EarlierFlannel),
}

impl<'de> Deserialize<'de> for FlannelLeftover {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct LeftoverVisitor;

        impl<'de> Visitor<'de> for LeftoverVisitor {
            type Value = FlannelLeftover;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("`none` or {version, network, lease}")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<FlannelLeftover, E> {
                match text {
                    "none" => Ok(FlannelLeftover::None),
                    _ => Err(E::invalid_value(de::Unexpected::Str(text), &self)),
                }
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<FlannelLeftover, A::Error> {
                EarlierFlannel::deserialize(MapAccessDeserializer::new(map))
                    .map(FlannelLeftover::Of)
            }
        }

        deserializer.deserialize_any(LeftoverVisitor)
    }
}

impl JsonSchema for FlannelLeftover {
    fn schema_name() -> Cow<'static, str> {
        "FlannelLeftover".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let lease = generator.subschema_for::<EarlierFlannel>();
        json_schema!({"anyOf": [{"const": "none"}, lease]})
    }
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

/// A load balancer in front of a service of type `LoadBalancer`; its address is
/// the one in the service's status.
#[derive(Debug, Clone, PartialEq, Eq, serde::Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct LoadBalancerSpec {
    /// The service, as `NAMESPACE/NAME`.
    pub service: String,
    /// Whether a packet keeps its source on the way to the backend; it does by
    /// default.
    #[serde(default = "yes")]
    pub keep_source: bool,
    /// Whether the balancer never forwards a packet to the backend whose address
    /// is the packet's source; it may by default.
    #[serde(default)]
    pub skip_own_source: bool,
    /// Asks its backends whether they are well: `healthCheckNodePort` where the
    /// traffic policy is `Local`, the node port otherwise. Every backend counts
    /// as well without it.
    #[serde(default)]
    pub health_check: Option<HealthCheck>,
    /// What becomes of a packet when no backend is left.
    #[serde(default)]
    pub no_backend: NoBackend,
}

fn yes() -> bool {
    true
}

/// How a balancer asks its backends whether they are well.
#[derive(Debug, Clone, PartialEq, Eq, Default, serde::Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct HealthCheck {}

/// What a balancer does with a packet when no backend is left.
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
pub enum NoBackend {
    /// Drops it, as clouds do.
    #[default]
    Drop,
    /// Answers with an ICMP error, as IPVS does.
    Refuse,
}

/// An exchange to attempt.
#[derive(Debug, Clone, PartialEq, Eq, serde::Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Probe {
    /// Who calls: `pod/NAMESPACE/NAME`, a node or a host.
    pub from: String,
    /// Who is called: a name or an address, with its port:
    /// `lb/default/nginx:443`, `service/default/nginx:80`, `10.0.0.1:443`.
    pub to: String,
    /// What is spoken: `tcp` (the default), `udp` or `ping`.
    #[serde(default)]
    pub protocol: Protocol,
    /// How many exchanges are attempted, one after the other; one by default.
    #[serde(default = "one")]
    #[schemars(range(min = 1))]
    pub connections: u32,
    /// The source the caller binds its socket to: one of its addresses, or a
    /// name for it.
    #[serde(default)]
    pub bind: Option<String>,
    /// How long an answer is waited for, such as `3s`; the command line's
    /// `--patience` when absent.
    #[serde(default, deserialize_with = "super::values::duration")]
    #[schemars(with = "Option<String>")]
    pub patience: Option<Duration>,
    /// The probe that must have ended before this one begins.
    #[serde(default)]
    pub after: Option<String>,
}

fn one() -> u32 {
    1
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
